//! Waits of threads, as events tell them.

use profiler_core::{NodeId, State};

/// The node, thread and labels that time counts for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribution {
    pub(super) node: NodeId,
    /// The thread, below the stack's task and phase.
    pub(super) thread: NodeId,
    /// Number of its set of labels.
    pub(super) labels: u16,
}

/// A wait of a thread. Times are nanoseconds since the start of the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// The constant of the thread, which is the same in all chunks; 0 if it is unknown.
    pub(super) thread_key: u64,
    pub(super) start_ns: i64,
    pub(super) stop_ns: i64,
    pub(super) state: State,
    pub(super) attribution: Attribution,
    /// Time of the thread's waits before this one.
    before_ns: i64,
}

impl Wait {
    pub(super) fn new(
        thread_key: u64,
        start_ns: i64,
        length_ns: u64,
        state: State,
        attribution: Attribution,
    ) -> Wait {
        Wait {
            thread_key,
            start_ns,
            stop_ns: start_ns.saturating_add_unsigned(length_ns),
            state,
            attribution,
            before_ns: 0,
        }
    }
}

/// Waits that do not overlap, by thread and start.
#[derive(Default, Debug)]
pub(super) struct Waits {
    waits: Vec<Wait>,
}

impl Waits {
    /// Sorts waits. Of two that overlap, as one method that waits in another, the later one begins when the earlier
    /// one has ended, so that no time of a thread counts twice.
    pub(super) fn new(mut waits: Vec<Wait>) -> Waits {
        waits.sort_by_key(|wait| (wait.thread_key, wait.start_ns, wait.stop_ns));
        let mut last: Option<Wait> = None;
        for wait in &mut waits {
            let is_same = |last: &Wait| last.thread_key == wait.thread_key && last.thread_key != 0;
            if let Some(last) = last.filter(is_same) {
                wait.start_ns = wait.start_ns.max(last.stop_ns);
                wait.stop_ns = wait.stop_ns.max(last.stop_ns);
                wait.before_ns = last.before_ns + (last.stop_ns - last.start_ns);
            }
            last = Some(*wait);
        }
        Waits { waits }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Wait> {
        self.waits.iter()
    }

    /// How much of a thread's time in a range its waits cover.
    pub(super) fn covered_ns(&self, thread_key: u64, start_ns: i64, stop_ns: i64) -> u64 {
        let covered_ns = self.until(thread_key, stop_ns) - self.until(thread_key, start_ns);
        covered_ns.max(0).unsigned_abs()
    }

    /// Time of the waits of a thread up to a time.
    fn until(&self, thread_key: u64, at_ns: i64) -> i64 {
        let next = self
            .waits
            .partition_point(|wait| (wait.thread_key, wait.start_ns) <= (thread_key, at_ns));
        match self.waits[..next].last() {
            Some(wait) if wait.thread_key == thread_key && thread_key != 0 => {
                wait.before_ns + (at_ns.min(wait.stop_ns) - wait.start_ns)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ATTRIBUTION: Attribution = Attribution {
        node: NodeId(1),
        thread: NodeId(2),
        labels: 0,
    };

    proptest! {
        /// Against a model that marks each nanosecond of each thread.
        #[test]
        fn each_moment_of_a_thread_counts_once(
            waits in proptest::collection::vec((1_u64..4, 0_i64..60, 0_u64..20), 0..12),
            thread in 1_u64..4,
            start in 0_i64..70,
            length in 0_i64..30,
        ) {
            let mut marked = [[false; 100]; 4];
            for (thread, start, length) in &waits {
                let start = *start as usize;
                marked[*thread as usize][start..start + *length as usize].fill(true);
            }
            let made = waits.iter().map(|(thread, start, length)| {
                Wait::new(*thread, *start, *length, State::Lock, ATTRIBUTION)
            });
            let waits = Waits::new(made.collect());
            let total: i64 = waits.iter().map(|wait| wait.stop_ns - wait.start_ns).sum();
            prop_assert_eq!(total as usize, marked.iter().flatten().filter(|is| **is).count());
            let range = start as usize..(start + length) as usize;
            let expected = marked[thread as usize][range].iter().filter(|is| **is).count();
            prop_assert_eq!(waits.covered_ns(thread, start, start + length), expected as u64);
        }
    }
}
