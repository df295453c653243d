//! Formats of answers that are rows.

use crate::parameters::parameter::{Parameter, names};

/// A file of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFormat {
    Csv,
    Parquet,
}

impl TableFormat {
    /// The values of `format`; `None` is JSON.
    pub(crate) const CHOICES: [(&'static str, Option<TableFormat>); 3] = [
        ("json", None),
        ("csv", Some(TableFormat::Csv)),
        ("parquet", Some(TableFormat::Parquet)),
    ];

    pub(crate) const PARAMETER: Parameter = Parameter::choice(
        "format",
        || names(&TableFormat::CHOICES),
        "csv",
        "Format of the answer.",
    )
    .default("json");
}
