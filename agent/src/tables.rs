//! The epoch's tables of names and call nodes.

use profiler_core::limits::{AGENT_NODES_MAX, AGENT_TASK_NAMES_MAX};
use profiler_core::{CallTrie, SymbolTable};

/// The epoch's tables, which only grow. The symbolizer adds to them; the shipper sends the part
/// that the collector does not hold yet.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) symbols: SymbolTable,
    pub(crate) trie: CallTrie,
}

impl Tables {
    pub(crate) fn new() -> Self {
        Tables { symbols: SymbolTable::new(), trie: CallTrie::new(AGENT_NODES_MAX) }
    }
}

const _: () = assert!(AGENT_TASK_NAMES_MAX < AGENT_NODES_MAX);
