//! A table with a column for each size, and its growth from column to column.

use std::fmt;

/// Figures by row and size.
pub(super) struct Table {
    what: &'static str,
    sizes: Vec<u32>,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    figures: Vec<(u32, f64)>,
}

impl Table {
    /// An empty table, whose sizes count `what`.
    pub(super) fn new(what: &'static str) -> Table {
        Table {
            what,
            sizes: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, name: &str, size: u32, figure: f64) {
        if !self.sizes.contains(&size) {
            self.sizes.push(size);
        }
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.figures.push((size, figure)),
            None => self.rows.push(Row {
                name: name.to_owned(),
                figures: vec![(size, figure)],
            }),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "| {} |", self.what)?;
        for size in &self.sizes {
            write!(formatter, " {size} |")?;
        }
        writeln!(formatter, "\n|---|{}", "--:|".repeat(self.sizes.len()))?;
        for row in &self.rows {
            write!(formatter, "| {} |", row.name)?;
            let mut before = None;
            for size in &self.sizes {
                let found = row.figures.iter().find(|(of, _)| of == size);
                let Some((_, figure)) = found else {
                    write!(formatter, " – |")?;
                    continue;
                };
                write!(formatter, " {figure:.1}")?;
                if let Some(before) = before.filter(|before| *before > 0.0) {
                    write!(formatter, " (× {:.1})", figure / before)?;
                }
                write!(formatter, " |")?;
                before = Some(*figure);
            }
            writeln!(formatter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_its_growth_and_a_missing_figure() {
        let mut table = Table::new("series");
        table.add("memory", 100, 10.0);
        table.add("memory", 1_000, 25.0);
        table.add("by instance", 100, 4.0);
        let expected = "| series | 100 | 1000 |\n|---|--:|--:|\n| memory | 10.0 | 25.0 (× 2.5) |\n\
                        | by instance | 4.0 | – |\n";
        assert_eq!(table.to_string(), expected);
    }
}
