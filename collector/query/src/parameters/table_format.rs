//! Formats of answers that are rows.

/// A file of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFormat {
    Csv,
    Parquet,
}

impl TableFormat {
    /// The values of `format`; `None` is JSON.
    pub(crate) const CHOICES: [(&'static str, Option<TableFormat>); 3] =
        [("json", None), ("csv", Some(TableFormat::Csv)), ("parquet", Some(TableFormat::Parquet))];
}
