//! Aligned columns of text.

use std::sync::atomic::{AtomicBool, Ordering};

use flamegraph::text::{cell, printable};

/// Widest cell without `--wide`, in characters; longer ones lose their middle.
const CELL_COLUMNS_MAX: usize = 48;

/// Width of a table without `--wide`: that of the narrowest usual terminal. It does not depend on the
/// terminal, so that a script and a person see the same.
const TABLE_COLUMNS: usize = 80;

/// A left-aligned column is not shortened below this, or its title.
const SHORT_COLUMNS: usize = 10;

/// A column of sentences is not shortened below this.
const SENTENCE_COLUMNS: usize = 30;

/// Widest cell to which `--wide` aligns a column: one long name would fill all rows with blanks.
const ALIGNED_COLUMNS_MAX: usize = 120;

/// Stands in the header for the columns that `--wide` shows too.
const MORE: &str = "  …";

static WIDE: AtomicBool = AtomicBool::new(false);

/// Selects tables with all columns and whole cells, once, before anything is printed.
pub(crate) fn select_width(wide: bool) {
    WIDE.store(wide, Ordering::Relaxed);
}

/// Whether `--wide` was given.
pub(crate) fn is_wide() -> bool {
    WIDE.load(Ordering::Relaxed)
}

/// Most columns of a line: unlimited with `--wide`.
pub(crate) fn line_columns() -> usize {
    if is_wide() { usize::MAX } else { TABLE_COLUMNS }
}

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    /// Left, and never shortened: a part of a time says nothing.
    Time,
    /// Left, and shortened little: a few letters of a sentence say nothing.
    Sentence,
    Right,
    /// Right; the column is omitted if all of it is 0.
    Count,
}

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Grid {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
    /// Columns without values, and those that do not fit, are shown too.
    shows_all: bool,
}

impl Grid {
    /// A grid without rows.
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Grid {
            columns: columns
                .iter()
                .map(|(name, align): &(&str, Align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
            shows_all: false,
        }
    }

    /// The same, with all columns: somebody has asked for each of them.
    pub(crate) fn with_all_columns(self) -> Self {
        Grid {
            shows_all: true,
            ..self
        }
    }

    /// Adds a row with a cell for each column. Control characters in cells are escaped.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells
            .into_iter()
            .map(|text| printable(&text).into_owned())
            .collect();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// The text: a line for each row, two spaces between columns, no trailing spaces. Columns without any
    /// value, except the first, are omitted. Without `--wide`, long left-aligned cells lose their middle
    /// and columns are omitted from the right until the table fits; the header then ends in an ellipsis.
    pub(crate) fn text(&self) -> String {
        self.text_within(line_columns())
    }

    fn text_within(&self, width_max: usize) -> String {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let cell_max = if width_max == usize::MAX {
            usize::MAX
        } else {
            CELL_COLUMNS_MAX
        };
        let shown: Vec<(usize, usize)> = (0..self.columns.len())
            .filter(|column| self.has_values(*column))
            .map(|column| {
                let widest = lines().map(|row| length(&row[column])).max().unwrap_or(0);
                (column, widest.min(cell_max))
            })
            .collect();
        let fitted = self.fitted(&shown, width_max);
        let more = if fitted.len() < shown.len() { MORE } else { "" };
        let mut text = String::new();
        for (number, row) in lines().enumerate() {
            let cells = fitted.iter().map(|(column, width)| {
                let text = cell(&row[*column], *width);
                let aligned = (*width).min(ALIGNED_COLUMNS_MAX);
                pad(&text, aligned, self.columns[*column].1)
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push_str(if number == 0 { more } else { "" });
            text.push('\n');
        }
        text
    }

    /// The columns that fit, from the left, with their widths.
    fn fitted(&self, shown: &[(usize, usize)], width_max: usize) -> Vec<(usize, usize)> {
        let least = |(column, width): &(usize, usize)| match self.columns[*column].1 {
            Align::Left => (*width).min(SHORT_COLUMNS.max(length(&self.columns[*column].0))),
            Align::Sentence => (*width).min(SENTENCE_COLUMNS),
            Align::Time | Align::Right | Align::Count => *width,
        };
        let mut fitted = shown.to_vec();
        if self.shows_all && total_width(fitted.iter().map(least)) > width_max {
            return fitted;
        }
        let mut room = width_max;
        while fitted.len() > 1 && total_width(fitted.iter().map(least)) > room {
            fitted.pop();
            room = width_max - length(MORE);
        }
        while total_width(fitted.iter().map(|(_, width)| *width)) > room {
            let longest = fitted.iter_mut().filter(|column| column.1 > least(column));
            let Some((_, width)) = longest.max_by_key(|(_, width)| *width) else {
                break;
            };
            *width -= 1;
        }
        fitted
    }

    fn has_values(&self, column: usize) -> bool {
        let no_value: &[&str] = match self.columns[column].1 {
            Align::Count => &["", "-", "0"],
            Align::Left | Align::Time | Align::Sentence | Align::Right => &["", "-"],
        };
        let mut cells = self.rows.iter().map(|row| row[column].as_str());
        column == 0
            || self.shows_all
            || self.rows.is_empty()
            || cells.any(|cell| !no_value.contains(&cell))
    }
}

/// The width of columns with two spaces between them.
fn total_width(widths: impl Iterator<Item = usize>) -> usize {
    widths
        .map(|width| width + 2)
        .sum::<usize>()
        .saturating_sub(2)
}

fn length(cell: &str) -> usize {
    cell.chars().count()
}

fn pad(cell: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left | Align::Time | Align::Sentence => format!("{cell:<width$}"),
        Align::Right | Align::Count => format!("{cell:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_are_escaped() {
        let mut grid = Grid::new(&[
            ("NAME", Align::Left),
            ("TIME", Align::Right),
            ("CAUSE", Align::Left),
        ]);
        for (name, time) in [("größe", "1.24 ms"), ("a\u{1b}[2J\nb", "12 s"), ("", "")] {
            grid.push([name.to_owned(), time.to_owned(), String::new()]);
        }
        grid.push(["x".repeat(100), String::new(), String::new()]);
        expect![[r#"
            NAME                                                 TIME
            größe                                             1.24 ms
            a\u{1b}[2J\nb                                        12 s

            xxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxxxxxxxxxxxx
        "#]]
        .assert_eq(&grid.text());
    }

    #[test]
    fn a_table_fits_80_columns_by_shorter_names_and_then_by_fewer_columns() {
        let columns = [
            ("NAME", Align::Left),
            ("DURATION", Align::Right),
            ("WORKER", Align::Left),
            ("BYTES", Align::Right),
            ("CAUSE", Align::Left),
        ];
        let check = |rows: &[[usize; 5]], shown: &str| {
            let mut grid = Grid::new(&columns);
            for row in rows {
                grid.push(row.map(|letters| "x".repeat(letters)));
            }
            let text = grid.text_within(TABLE_COLUMNS);
            let widest = text.lines().map(length).max();
            assert!(widest <= Some(TABLE_COLUMNS), "{text}");
            let header: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
            assert_eq!(header.join(" "), shown, "{text}");
            let wide = grid.text_within(usize::MAX);
            assert!(wide.starts_with("NAME") && !wide.contains(MORE), "{wide}");
            assert_eq!(wide.lines().count(), text.lines().count());
        };
        check(
            &[[5, 8, 8, 5, 20], [20, 3, 8, 5, 4]],
            "NAME DURATION WORKER BYTES CAUSE",
        );
        check(&[[40, 12, 40, 12, 40]], "NAME DURATION WORKER BYTES CAUSE");
        check(&[[40, 20, 40, 30, 40]], "NAME DURATION WORKER BYTES …");
        check(&[[40, 20, 40, 40, 40]], "NAME DURATION WORKER …");
        check(&[[40, 48, 40, 30, 40]], "NAME DURATION WORKER …");
    }

    #[test]
    fn whole_cells_and_all_columns_are_shown_where_they_are_asked_for() {
        let stack = "main;".repeat(40);
        let columns = [("STACK", Align::Left), ("NOTHING", Align::Left)];
        let mut grid = Grid::new(&columns).with_all_columns();
        grid.push([stack.clone(), String::new()]);
        let wide = grid.text_within(usize::MAX);
        assert!(wide.contains(&stack), "{wide}");
        let narrow = grid.text_within(TABLE_COLUMNS);
        assert!(
            narrow.starts_with("STACK ") && narrow.contains(" NOTHING\n"),
            "{narrow}"
        );
        assert!(narrow.contains('…') && narrow.lines().all(|line| length(line) <= TABLE_COLUMNS));
        // Ten columns of times do not fit, and are shown all the same.
        let names: Vec<String> = (0..10).map(|number| format!("C{number}")).collect();
        let columns: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), Align::Time))
            .collect();
        let mut many = Grid::new(&columns).with_all_columns();
        many.push(columns.iter().map(|_| "2026-11-29T12:00:00Z".to_owned()));
        let text = many.text_within(TABLE_COLUMNS);
        assert!(text.contains("C9") && !text.contains('…'), "{text}");
        assert_eq!(text.matches("2026-").count(), 10);
    }

    #[test]
    fn a_long_cell_is_whole_and_does_not_widen_other_rows() {
        let mut grid = Grid::new(&[("NAME", Align::Left), ("TIME", Align::Right)]);
        let long = "x".repeat(4_096);
        grid.push([long.clone(), "2 s".to_owned()]);
        grid.push(["load".to_owned(), "15 s".to_owned()]);
        let wide = grid.text_within(usize::MAX);
        let blanks = " ".repeat(ALIGNED_COLUMNS_MAX - 4);
        let expected = format!("NAME{blanks}  TIME\n{long}   2 s\nload{blanks}  15 s\n");
        assert_eq!(wide, expected);
    }

    #[test]
    fn columns_without_values_are_omitted() {
        check(&[["a", "0", "-"], ["b", "0", ""]], "NAME\na\nb\n");
        check(
            &[["a", "0", "0"], ["b", "1", "-"]],
            "NAME  LOST  LEFT\na        0     0\nb        1     -\n",
        );
        check(&[], "NAME  LOST  LEFT\n");
    }

    fn three_columns() -> Grid {
        Grid::new(&[
            ("NAME", Align::Left),
            ("LOST", Align::Count),
            ("LEFT", Align::Right),
        ])
    }

    fn check(rows: &[[&str; 3]], expected: &str) {
        let mut grid = three_columns();
        rows.iter()
            .for_each(|row| grid.push(row.map(str::to_owned)));
        assert_eq!(grid.text(), expected);
    }
}
