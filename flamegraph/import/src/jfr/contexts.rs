//! Labels of samples, which Pyroscope's agent for Java sends with a recording.

use std::collections::BTreeMap;

use prost::Message;

use crate::builder::Builder;
use crate::error::ImportError;
use crate::gzip::decompressed;
use crate::limits::CONTEXTS_BYTES_MAX;

/// Sets of labels by the number that events have. Keys and values are numbers of texts.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Contexts {
    #[prost(btree_map = "int64, message", tag = "1")]
    contexts: BTreeMap<i64, Context>,
    #[prost(btree_map = "int64, string", tag = "2")]
    texts: BTreeMap<i64, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Context {
    #[prost(btree_map = "int64, int64", tag = "1")]
    labels: BTreeMap<i64, i64>,
}

impl Contexts {
    pub(super) fn read(builder: &Builder<'_>, message: &[u8]) -> Result<Contexts, ImportError> {
        let message = decompressed(message, CONTEXTS_BYTES_MAX)?;
        let contexts = Contexts::decode(&*message);
        contexts.map_err(|error| builder.invalid(format!("labels: {error}")))
    }

    /// The labels of a set; none for an unknown number.
    pub(super) fn labels(&self, id: u64) -> impl Iterator<Item = (&str, &str)> {
        let context = self.contexts.get(&id.cast_signed());
        let labels = context.into_iter().flat_map(|context| &context.labels);
        labels.filter_map(|(key, value)| Some((self.text(*key)?, self.text(*value)?)))
    }

    fn text(&self, id: i64) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }
}
