//! The weight of a session's refused flushes. A collector counts it itself, because the agent reports it only
//! with its next flush, and after the last one never.

use std::collections::VecDeque;

/// Most refused flushes of which the agent may not know yet. Agents have at most 16 flushes on their way.
const RECENT_MAX: usize = 64;

/// Weight of refused flushes.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusedWeight {
    total_ns: u64,
    /// The last ones, by rising number. They are part of the total.
    recent: VecDeque<RefusedFlush>,
}

#[derive(Clone, Copy, Debug)]
struct RefusedFlush {
    seq: u64,
    weight_ns: u64,
    /// The agent did not hear of it on the stream on which it was refused.
    is_unheard: bool,
}

impl RefusedWeight {
    /// That much, of earlier flushes.
    pub(super) fn of(total_ns: u64) -> RefusedWeight {
        RefusedWeight {
            total_ns,
            recent: VecDeque::new(),
        }
    }

    /// Counts a refused flush, once if the agent sends it again.
    pub(super) fn add(&mut self, seq: u64, weight_ns: u64) {
        self.remove(|flush| flush.seq >= seq);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.total_ns = self.total_ns.saturating_add(weight_ns);
        self.recent.push_back(RefusedFlush {
            seq,
            weight_ns,
            is_unheard: false,
        });
    }

    /// Another stream begins, whose agent has heard the answers up to a flush.
    pub(super) fn note_stream(&mut self, answered_seq: u64) {
        for flush in &mut self.recent {
            flush.is_unheard |= flush.seq > answered_seq;
        }
    }

    /// A flush of the agent is applied. Its account has what the agent did not hear of: as stored if it was
    /// sent again, else as lost by the collector.
    pub(super) fn note_account(&mut self) {
        self.remove(|flush| flush.is_unheard);
    }

    fn remove(&mut self, which: impl Fn(&RefusedFlush) -> bool) {
        let total_ns = &mut self.total_ns;
        self.recent.retain(|flush| {
            let is_removed = which(flush);
            *total_ns = total_ns.saturating_sub(if is_removed { flush.weight_ns } else { 0 });
            !is_removed
        });
    }

    pub(super) fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// Weight of the flushes that were refused after a flush.
    pub(super) fn after(&self, seq: u64) -> u64 {
        let later = self.recent.iter().filter(|flush| flush.seq > seq);
        later.fold(0, |sum, flush| sum.saturating_add(flush.weight_ns))
    }
}
