//! Flushes of an import that wait for its last one: an import is stored whole or not at all.

use tokio::sync::OwnedSemaphorePermit;

use store::rows::CheckedFlush;

/// The checked flushes of an unfinished import. They are neither logged nor applied, and are dropped when its
/// last stream ends.
#[derive(Debug, Default)]
pub struct StagedImport {
    /// By sequence number, ascending.
    pub flushes: Vec<StagedFlush>,
    /// Why one of its flushes was refused. All further ones are refused for the same reason.
    refusal: Option<String>,
}

/// A checked flush and its log record.
#[derive(Debug)]
pub struct StagedFlush {
    pub flush: CheckedFlush,
    pub record: Vec<u8>,
    /// Its memory; none for the last flush of an import, which does not wait.
    pub room: Option<StagedRoom>,
}

/// Memory of a staged flush, in the limits of its identity and of all.
#[derive(Debug)]
pub struct StagedRoom {
    pub own: OwnedSemaphorePermit,
    pub shared: OwnedSemaphorePermit,
}

impl StagedImport {
    /// The number of the last staged flush.
    pub fn last_seq(&self) -> Option<u64> {
        self.flushes.last().map(|staged| staged.flush.seq)
    }

    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Drops the flushes, because one of them was refused.
    pub fn refuse(&mut self, reason: &str) {
        self.flushes = Vec::new();
        self.refusal.get_or_insert_with(|| reason.to_owned());
    }

    /// A new stream continues after the last staged flush. After a refusal it starts over.
    pub fn resume(&mut self) {
        self.refusal = None;
    }
}
