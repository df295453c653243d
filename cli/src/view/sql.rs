//! Rows of a query in SQL.

use api::{SqlAnswer, SqlCell};
use flamegraph::text::cell;
use jiff::Timestamp;

use super::{View, corrupt_files};
use crate::grid::Align::{Left, Right, Time};
use crate::grid::{Grid, is_wide};

/// Widest title of a column, in characters: an expression without a name can be long.
const TITLE_COLUMNS_MAX: usize = 48;

/// The type of times.
const TIMESTAMP: &str = "timestamp";

/// A cell without a value. It differs from an empty text.
const NULL: &str = "NULL";

impl View for SqlAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("data until {}", time(&self.data_until))];
        if self.rows.is_empty() {
            notes.push("no rows".to_owned());
        }
        if self.truncated {
            let rows = self.rows.len();
            notes.push(format!(
                "only the first {rows} rows are shown; for more use --rows"
            ));
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let is_number = |column: usize| {
            let cells = self
                .rows
                .iter()
                .map(|row| row.get(column).unwrap_or(&SqlCell::Null));
            cells.clone().any(|cell| *cell != SqlCell::Null)
                && cells
                    .clone()
                    .all(|cell| !matches!(cell, SqlCell::Text(_) | SqlCell::Boolean(_)))
        };
        let is_time = |column: usize| self.columns[column].type_name == TIMESTAMP;
        let title_max = if is_wide() {
            usize::MAX
        } else {
            TITLE_COLUMNS_MAX
        };
        let titles: Vec<String> = self
            .columns
            .iter()
            .map(|column| cell(&column.name, title_max))
            .collect();
        let columns = titles.iter().enumerate().map(|(number, title)| {
            let align = match number {
                number if is_time(number) => Time,
                number if is_number(number) => Right,
                _ => Left,
            };
            (title.as_str(), align)
        });
        let mut grid = Grid::new(&columns.collect::<Vec<_>>()).with_all_columns();
        for row in &self.rows {
            grid.push(row.iter().enumerate().map(|(number, cell)| match cell {
                SqlCell::Text(text) if is_time(number) => time(text),
                cell => text_of(cell),
            }));
        }
        grid.text()
    }
}

/// A time in UTC, with no more digits than it needs: as conditions of queries have it.
fn time(text: &str) -> String {
    text.parse()
        .map_or_else(|_| text.to_owned(), |time: Timestamp| time.to_string())
}

fn text_of(cell: &SqlCell) -> String {
    match cell {
        SqlCell::Null => NULL.to_owned(),
        SqlCell::Boolean(value) => value.to_string(),
        SqlCell::Unsigned(number) => number.to_string(),
        SqlCell::Integer(number) => number.to_string(),
        SqlCell::Number(number) => number.to_string(),
        SqlCell::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use api::SqlColumn;
    use expect_test::expect;

    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_hostile_texts_are_escaped() {
        let answer = SqlAnswer {
            columns: vec![column("task"), column("sum(weight_ns)"), column("empty")],
            rows: vec![
                vec![
                    text_cell("load"),
                    SqlCell::Unsigned(1_234_567),
                    SqlCell::Null,
                ],
                vec![text_cell("a\u{1b}[2J"), SqlCell::Integer(-8), text_cell("")],
            ],
            truncated: true,
            data_until: "2026-11-25T10:00:00Z".to_owned(),
            data_until_ns: 0,
            corrupt_files: vec!["tables/tasks/1.parquet".to_owned()],
        };
        expect![[r#"
            task        sum(weight_ns)  empty
            load               1234567  NULL
            a\u{1b}[2J              -8
        "#]]
        .assert_eq(&answer.text());
        let notes = answer.notes();
        assert_eq!(notes[0], "data until 2026-11-25T10:00:00Z");
        assert!(notes[1].contains("first 2 rows"), "{notes:?}");
        assert!(notes[2].contains("tables/tasks/1.parquet"), "{notes:?}");
        let empty = SqlAnswer {
            rows: Vec::new(),
            truncated: false,
            ..answer
        };
        assert_eq!(empty.notes()[1], "no rows");
    }

    /// Conditions of queries are in UTC, in any zone of the terminal.
    #[test]
    fn times_are_in_utc_and_all_columns_are_shown() {
        let times = SqlColumn {
            name: "ts".to_owned(),
            type_name: TIMESTAMP.to_owned(),
        };
        let answer = SqlAnswer {
            columns: vec![column("x"), times, column("dash")],
            rows: [
                "2026-11-28T07:59:00.000000000Z",
                "2026-11-28T07:59:00.120000007Z",
            ]
            .map(|time| vec![SqlCell::Null, text_cell(time), text_cell("-")])
            .to_vec(),
            truncated: false,
            data_until: "2026-11-28T08:00:00.000000000Z".to_owned(),
            data_until_ns: 0,
            corrupt_files: Vec::new(),
        };
        expect![[r#"
            x     ts                              dash
            NULL  2026-11-28T07:59:00Z            -
            NULL  2026-11-28T07:59:00.120000007Z  -
        "#]]
        .assert_eq(&answer.text());
    }

    fn column(name: &str) -> SqlColumn {
        SqlColumn {
            name: name.to_owned(),
            type_name: String::new(),
        }
    }

    fn text_cell(text: &str) -> SqlCell {
        SqlCell::Text(text.to_owned())
    }
}
