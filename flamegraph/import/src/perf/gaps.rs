//! The time between samples, from which the interval of a recording is estimated.

use std::collections::HashMap;

use super::header::Header;
use crate::limits::{GAPS_MAX, TABLE_ENTRIES_MAX};

/// The samples of a mode of an event.
#[derive(Default)]
pub(super) struct Gaps {
    pub(super) samples: u64,
    by_processor: Sources,
    by_thread: Sources,
}

/// The last sample of each source, and the gaps between them.
#[derive(Default)]
struct Sources {
    seen_ns: HashMap<u32, u64>,
    gaps_ns: Vec<u64>,
}

impl Gaps {
    pub(super) fn note(&mut self, header: &Header<'_>, at_ns: u64) {
        self.samples += 1;
        if let Some(processor) = header.processor {
            self.by_processor.note(processor, at_ns);
        }
        // Idle time is the same thread on each processor.
        if header.tid != 0 {
            self.by_thread.note(header.tid, at_ns);
        }
    }

    /// The interval of a recording. `part`: at most one of so many gaps is shorter.
    pub(super) fn estimated_ns(&mut self, is_system_wide: bool, part: usize) -> Option<u64> {
        if let Some(regular_ns) = self.by_processor.regular_ns() {
            return Some(regular_ns);
        }
        // Recordings of a whole system sample each processor, others each thread: threads that take turns on a
        // processor have short gaps there.
        let [first, second] = if is_system_wide {
            [&mut self.by_processor, &mut self.by_thread]
        } else {
            [&mut self.by_thread, &mut self.by_processor]
        };
        first.short_ns(part).or_else(|| second.short_ns(part))
    }
}

impl Sources {
    fn note(&mut self, source: u32, at_ns: u64) {
        if self.gaps_ns.len() >= GAPS_MAX || self.seen_ns.len() >= TABLE_ENTRIES_MAX {
            return;
        }
        let gap_ns = self
            .seen_ns
            .insert(source, at_ns)
            .map(|last_ns| at_ns.saturating_sub(last_ns));
        self.gaps_ns.extend(gap_ns.filter(|gap_ns| *gap_ns > 0));
    }

    /// The gap that nearly all have.
    fn regular_ns(&mut self) -> Option<u64> {
        let usual_ns = self.short_ns(2)?;
        let deviation_max_ns = usual_ns / 20;
        let is_usual = |gap_ns: &&u64| (*gap_ns).abs_diff(usual_ns) <= deviation_max_ns;
        let usual = self.gaps_ns.iter().filter(is_usual).count();
        (usual * 4 >= self.gaps_ns.len() * 3).then_some(usual_ns)
    }

    /// A gap of which one of so many is shorter: what is not always busy has longer gaps.
    fn short_ns(&mut self, part: usize) -> Option<u64> {
        let at = self.gaps_ns.len() / part;
        (!self.gaps_ns.is_empty()).then(|| {
            let (_, gap_ns, _) = self.gaps_ns.select_nth_unstable(at);
            *gap_ns
        })
    }
}
