//! The threads that an agent has shown: those in its table of frames.

use std::collections::BTreeSet;

use super::super::v1;

/// Most ids that are kept: the default limit on memory mappings allows a process half as many threads.
const IDS_MAX: usize = 1 << 16;

/// Memory of an id in the set, in bytes, roughly.
const ID_BYTES: usize = 8;

/// Threads in the time by thread of one life of an agent, also those that have ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShownThreads {
    ids: BTreeSet<u32>,
    has_counted_together: bool,
}

impl ShownThreads {
    /// Number of threads by id, at most 65,536.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Whether there were also threads that the agent counts together by name, so that their number is unknown.
    #[must_use]
    pub fn has_counted_together(&self) -> bool {
        self.has_counted_together
    }

    pub(super) fn note(&mut self, frame: &v1::Frame) {
        if frame.kind() != v1::FrameKind::Thread {
            return;
        }
        if frame.line == 0 || self.ids.len() == IDS_MAX {
            self.has_counted_together = true;
        } else {
            self.ids.insert(frame.line);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ids.len() * ID_BYTES
    }
}
