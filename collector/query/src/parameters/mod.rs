//! Parameters of queries: ranges, times, filters, labels and formats.

pub(crate) mod label_matchers;
pub(crate) mod label_scope;
pub(crate) mod labels;
pub(crate) mod parameter;
pub(crate) mod params;
pub(crate) mod range;
pub(crate) mod settings;
pub(crate) mod shown_names;
pub(crate) mod suggest;
pub(crate) mod symbol_upload;
pub(crate) mod table_format;
pub(crate) mod time;
