//! Names and stacks that the receiver of a profile has already.

use profiler_core::{Frame, FrameId, NodeId, StringId};

/// Lookups, and samples without one, for which tables are open at once: about a millisecond.
const OPEN_MAX: usize = 1 << 12;

/// Tables of a receiver, in which names and stacks of a profile are looked up instead of copied.
pub trait KnownTables {
    /// Opens the tables. They keep others from adding to them until the result is dropped.
    fn open(&self) -> Box<dyn LookUp + '_>;
}

/// Opened tables. An id of a frame or node stays valid, and that of a name until the profile is read.
pub trait LookUp {
    /// The number of a text.
    fn name(&self, text: &str) -> Option<StringId>;
    /// The number of a frame.
    fn frame(&self, frame: &Frame<StringId>) -> Option<FrameId>;
    /// The node of a frame below another node.
    fn child(&self, parent: NodeId, frame: FrameId) -> Option<NodeId>;
}

/// Tables that are open for a few lookups at a time.
pub(super) struct Opened<'k> {
    tables: &'k dyn KnownTables,
    open: Option<Box<dyn LookUp + 'k>>,
    left: usize,
}

impl<'k> Opened<'k> {
    pub(super) fn new(tables: &'k dyn KnownTables) -> Opened<'k> {
        Opened {
            tables,
            open: None,
            left: 0,
        }
    }

    /// The tables, for one lookup.
    pub(super) fn one(&mut self) -> &(dyn LookUp + 'k) {
        if self.left == 0 {
            // Closed first: others may be waiting.
            self.open = None;
            self.left = OPEN_MAX;
        }
        self.left -= 1;
        &**self.open.get_or_insert_with(|| self.tables.open())
    }
}
