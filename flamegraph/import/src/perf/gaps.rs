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

/// The last sample of each source, the gaps between them, and the rates of the event in these.
#[derive(Default)]
struct Sources {
    seen: HashMap<u32, LastSample>,
    gaps_ns: Vec<u64>,
    rates: Vec<Rate>,
}

/// The last sample of a source.
struct LastSample {
    at_ns: u64,
    /// Time since the one before it.
    gap_ns: u64,
    period: u64,
}

/// A number of events in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rate {
    events: u64,
    nanoseconds: u64,
}

impl Rate {
    /// The time of a number of events; `None` if it exceeds 64 bits.
    pub(super) fn time_ns(self, events: u64) -> Option<u64> {
        let product = u128::from(events) * u128::from(self.nanoseconds);
        u64::try_from(product / u128::from(self.events)).ok()
    }

    pub(super) fn per_second(self) -> f64 {
        self.events as f64 * 1e9 / self.nanoseconds as f64
    }
}

impl Gaps {
    pub(super) fn note(&mut self, header: &Header<'_>, at_ns: u64) {
        self.samples += 1;
        if let Some(processor) = header.processor {
            self.by_processor.note(processor, header.period, at_ns);
        }
        // Idle time is the same thread on each processor.
        if header.tid != 0 {
            self.by_thread.note(header.tid, header.period, at_ns);
        }
    }

    /// The interval of a recording. `part`: at most one of so many gaps is shorter.
    pub(super) fn estimated_ns(&mut self, is_system_wide: bool, part: usize) -> Option<u64> {
        if let Some(regular_ns) = self.by_processor.regular_ns() {
            return Some(regular_ns);
        }
        let [first, second] = self.sources(is_system_wide);
        first.short_ns(part).or_else(|| second.short_ns(part))
    }

    /// The rate of the event while its source was busy.
    pub(super) fn busy_rate(&mut self, is_system_wide: bool) -> Option<Rate> {
        let is_regular = self.by_processor.regular_ns().is_some();
        let [first, second] = self.sources(is_system_wide || is_regular);
        first.high_rate().or_else(|| second.high_rate())
    }

    /// Recordings of a whole system sample each processor, others each thread: threads that take turns on a processor
    /// have short gaps there.
    fn sources(&mut self, is_system_wide: bool) -> [&mut Sources; 2] {
        if is_system_wide {
            [&mut self.by_processor, &mut self.by_thread]
        } else {
            [&mut self.by_thread, &mut self.by_processor]
        }
    }
}

impl Sources {
    fn note(&mut self, source: u32, period: Option<u64>, at_ns: u64) {
        if self.gaps_ns.len() >= GAPS_MAX || self.seen.len() >= TABLE_ENTRIES_MAX {
            return;
        }
        let new = LastSample {
            at_ns,
            gap_ns: 0,
            period: period.unwrap_or(0),
        };
        let Some(last) = self.seen.insert(source, new) else {
            return;
        };
        let gap_ns = at_ns.saturating_sub(last.at_ns);
        if gap_ns == 0 {
            return;
        }
        self.gaps_ns.push(gap_ns);
        if let Some(seen) = self.seen.get_mut(&source) {
            seen.gap_ns = gap_ns;
        }
        if last.period > 0 {
            // Kernels print the period of the gap before a sample, or of the one after it.
            self.rates.push(Rate {
                events: last.period,
                nanoseconds: gap_ns.max(last.gap_ns),
            });
        }
    }

    /// A rate that one of ten exceeds: while a source waits, it has fewer events.
    fn high_rate(&mut self) -> Option<Rate> {
        let at = self.rates.len() * 9 / 10;
        let cross = |a: Rate, b: Rate| u128::from(a.events) * u128::from(b.nanoseconds);
        (!self.rates.is_empty()).then(|| {
            let order = |a: &Rate, b: &Rate| cross(*a, *b).cmp(&cross(*b, *a));
            let (_, rate, _) = self.rates.select_nth_unstable_by(at, order);
            *rate
        })
    }

    /// The gap that nearly all have.
    fn regular_ns(&mut self) -> Option<u64> {
        let usual_ns = self.short_ns(2)?;
        let deviation_max_ns = usual_ns / 20;
        let is_usual = |gap_ns: &&u64| (*gap_ns).abs_diff(usual_ns) <= deviation_max_ns;
        let usual = self.gaps_ns.iter().filter(is_usual).count();
        (usual * 4 >= self.gaps_ns.len() * 3).then_some(usual_ns)
    }

    /// A gap than which one of so many is shorter: sources that are not always busy have longer gaps.
    fn short_ns(&mut self, part: usize) -> Option<u64> {
        let at = self.gaps_ns.len() / part;
        (!self.gaps_ns.is_empty()).then(|| {
            let (_, gap_ns, _) = self.gaps_ns.select_nth_unstable(at);
            *gap_ns
        })
    }
}
