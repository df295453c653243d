//! Tables as CSV: a line of names, then a line for each row; commas, quotes where they are needed, UTF-8.

use std::borrow::Cow;

use csv::Writer;
use flamegraph::text::printable;
use profiler_core::Timestamp;

use super::Table;
use query::format_time;
use store::{ListKind, Values};

/// Spreadsheets take a text that begins so for a formula, which may send what other cells hold.
const FORMULA_STARTS: [char; 4] = ['=', '+', '-', '@'];

const ENCODES: &str = "memory takes rows of equal length";

impl Table {
    pub(super) fn csv(&self) -> Vec<u8> {
        let mut writer = Writer::from_writer(Vec::new());
        writer
            .write_record(self.columns.iter().map(|(column, _)| column.name))
            .expect(ENCODES);
        for row in 0..self.rows {
            let cells = self
                .columns
                .iter()
                .map(|(column, values)| cell(column.kind, values, row));
            writer
                .write_record(cells.map(Cow::into_owned))
                .expect(ENCODES);
        }
        writer.into_inner().expect(ENCODES)
    }
}

fn cell(kind: ListKind, values: &Values, row: usize) -> Cow<'_, str> {
    match values {
        Values::Texts(texts) => text_cell(&texts[row]),
        Values::Flags(flags) => flags[row].to_string().into(),
        Values::Numbers32(numbers) => numbers[row].to_string().into(),
        Values::Numbers64(numbers) => number_cell(kind, numbers[row]).into(),
        Values::Optionals64(numbers) => {
            numbers[row].map_or(Cow::Borrowed(""), |number| number_cell(kind, number).into())
        }
        Values::Fractions(numbers) => numbers[row].to_string().into(),
    }
}

fn number_cell(kind: ListKind, number: i64) -> String {
    match kind {
        ListKind::Time | ListKind::OptionalTime => format_time(Timestamp::from_unix_ns(number)),
        ListKind::OptionalSigned64 => number.to_string(),
        _ => number.cast_unsigned().to_string(),
    }
}

/// A text that acts neither on a terminal nor in a spreadsheet. An apostrophe before a formula is the mark of
/// text in spreadsheets.
pub(super) fn text_cell(text: &str) -> Cow<'_, str> {
    let text = printable(text);
    if text.starts_with(FORMULA_STARTS) {
        format!("'{text}").into()
    } else {
        text
    }
}
