//! Aligned columns of text.

use flamegraph::text::cell;

/// Widest cell, in characters; longer ones lose their middle.
const CELL_COLUMNS_MAX: usize = 48;

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
    /// Right; the column is omitted if all of it is 0.
    Count,
}

/// Rows under a header.
#[derive(Debug)]
pub(crate) struct Grid {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A grid without rows.
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Grid { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column. Control characters in cells are escaped.
    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> =
            cells.into_iter().map(|text| cell(&text, CELL_COLUMNS_MAX)).collect();
        debug_assert_eq!(row.len(), self.columns.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// The text: a line for each row, two spaces between columns, no trailing spaces. Columns without any
    /// value, except the first, are omitted, because terminals are narrow.
    pub(crate) fn text(&self) -> String {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let shown = (0..self.columns.len()).filter(|column| self.has_values(*column));
        let shown: Vec<(usize, usize)> = shown
            .map(|column| (column, lines().map(|row| length(&row[column])).max().unwrap_or(0)))
            .collect();
        let mut text = String::new();
        for row in lines() {
            let cells = shown.iter();
            let cells =
                cells.map(|(column, width)| pad(&row[*column], *width, self.columns[*column].1));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn has_values(&self, column: usize) -> bool {
        let no_value: &[&str] = match self.columns[column].1 {
            Align::Count => &["", "-", "0"],
            Align::Left | Align::Right => &["", "-"],
        };
        let mut cells = self.rows.iter().map(|row| row[column].as_str());
        column == 0 || self.rows.is_empty() || cells.any(|cell| !no_value.contains(&cell))
    }
}

fn length(cell: &str) -> usize {
    cell.chars().count()
}

fn pad(cell: &str, width: usize, align: Align) -> String {
    match align {
        Align::Left => format!("{cell:<width$}"),
        Align::Right | Align::Count => format!("{cell:>width$}"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_are_escaped() {
        let mut grid =
            Grid::new(&[("NAME", Align::Left), ("TIME", Align::Right), ("CAUSE", Align::Left)]);
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
    fn columns_without_values_are_omitted() {
        let grid =
            || Grid::new(&[("NAME", Align::Left), ("LOST", Align::Count), ("LEFT", Align::Right)]);
        let check = |rows: &[[&str; 3]], expected: &str| {
            let mut grid = grid();
            rows.iter().for_each(|row| grid.push(row.map(str::to_owned)));
            assert_eq!(grid.text(), expected);
        };
        check(&[["a", "0", "-"], ["b", "0", ""]], "NAME\na\nb\n");
        check(
            &[["a", "0", "0"], ["b", "1", "-"]],
            "NAME  LOST  LEFT\na        0     0\nb        1     -\n",
        );
        check(&[], "NAME  LOST  LEFT\n");
    }
}
