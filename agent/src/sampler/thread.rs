//! What the sampler remembers of each thread between two ticks.

use std::sync::Arc;

use profiler_core::{NodeId, State, Weight};

use super::addresses::AddressFrame;
use super::sys::process::WaitSite;
use super::sys::signal::{StackSpan, Ticket};
use crate::registry::{NameId, ThreadCell};

/// All threads of the agent are called so; the rest of a name says which one it is.
pub(crate) const AGENT_THREAD_PREFIX: &str = "emberline-";

/// A thread of this process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: u32,
    pub(super) of_agent: bool,
    pub(super) cell: Option<Arc<ThreadCell>>,
    /// CPU time when its stack was last read.
    pub(super) cpu_ns: u64,
    /// Up to when its time is counted.
    pub(super) counted_to_ns: u64,
    pub(super) seen: Seen,
    pub(super) request: Option<Request>,
    /// Its own stack, once it is known.
    pub(super) span: StackSpan,
    /// Samples in a row whose stack was not where it was expected.
    pub(super) misses: u32,
    /// It does not take the signal.
    pub(super) deaf: bool,
    /// Ticks in a row for which it was not signalled because it seemed to be waking.
    pub(super) put_off: u32,
    pub(super) since_running: RunTimes,
    carry: Carry,
}

/// How long a thread has run, and has waited for a processor, since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunTimes {
    pub(super) cpu_ns: u64,
    pub(super) delay_ns: u64,
}

impl RunTimes {
    /// The part of `nanoseconds` of being ready to run that was spent waiting for a processor,
    /// judged by what happened since `earlier`.
    pub(super) fn delayed_part(self, earlier: RunTimes, nanoseconds: u64) -> u64 {
        let ran = self.cpu_ns.saturating_sub(earlier.cpu_ns);
        let delayed = self.delay_ns.saturating_sub(earlier.delay_ns);
        let ready = u128::from(ran) + u128::from(delayed);
        let part = u128::from(nanoseconds) * u128::from(delayed);
        part.checked_div(ready).and_then(|part| u64::try_from(part).ok()).unwrap_or(0)
    }
}

/// How a thread was last seen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// Not yet.
    Never,
    Running,
    Blocked {
        site: WaitSite,
        node: NodeId,
        task_word: u64,
        /// Ticks since the site was last verified.
        ticks: u32,
    },
}

/// A signal under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) ticket: Ticket,
    pub(super) since_ns: u64,
}

impl Thread {
    /// A thread first seen now; its time counts from `since_ns`.
    pub(super) fn new(id: u32, of_agent: bool, since_ns: u64) -> Self {
        Thread {
            id,
            of_agent,
            cell: None,
            cpu_ns: 0,
            counted_to_ns: since_ns,
            seen: Seen::Never,
            request: None,
            span: StackSpan::default(),
            misses: 0,
            deaf: false,
            put_off: 0,
            since_running: RunTimes::default(),
            carry: Carry::default(),
        }
    }

    /// The task word now; 0 without a cell.
    pub(super) fn task_word(&self) -> u64 {
        let cell = self.cell.as_ref();
        cell.map_or(0, |cell| cell.task_word().load(std::sync::atomic::Ordering::Acquire))
    }

    /// The first-level frame for a sample taken under `task_word`.
    pub(super) fn top(&self, task_word: u64) -> AddressFrame {
        match NameId::from_word(task_word) {
            _ if self.of_agent => AddressFrame::Agent,
            NameId::NONE => AddressFrame::NoTask,
            name => AddressFrame::Task(name),
        }
    }

    /// Counts the time up to `until_ns` as blocked. Gives whole quanta and carries the rest to the
    /// thread's next sample.
    pub(super) fn count_blocked(&mut self, until_ns: u64, quantum_ns: u64) -> Weight {
        let elapsed = self.elapsed_to(until_ns);
        self.carry.quantise(Weight::of(State::Wait, elapsed), quantum_ns)
    }

    /// Counts the time up to `until_ns` as ready to run. What of it was on a processor is not seen
    /// at one instant (the sampler itself takes a processor to look), so it is judged by how the
    /// kernel's counts of both moved since the thread was last found ready.
    pub(super) fn count_ready(&mut self, until_ns: u64, now: RunTimes, quantum_ns: u64) -> Weight {
        let elapsed = self.elapsed_to(until_ns);
        let runnable_ns = now.delayed_part(self.since_running, elapsed);
        self.since_running = now;
        let weight = Weight { cpu_ns: elapsed - runnable_ns, runnable_ns, wait_ns: 0 };
        self.carry.quantise(weight, quantum_ns)
    }

    fn elapsed_to(&mut self, until_ns: u64) -> u64 {
        let elapsed = until_ns.saturating_sub(self.counted_to_ns);
        self.counted_to_ns = self.counted_to_ns.max(until_ns);
        elapsed
    }
}

/// What is left of a thread's time below one quantum, by state.
#[derive(Debug, Default)]
struct Carry(Weight);

impl Carry {
    /// The whole quanta of `weight` and of what was carried; the rest is carried on.
    fn quantise(&mut self, weight: Weight, quantum_ns: u64) -> Weight {
        let sum = self.0 + weight;
        let mut whole = Weight::ZERO;
        for state in State::ALL {
            let rest = sum.get(state) % quantum_ns;
            *whole.get_mut(state) = sum.get(state) - rest;
            *self.0.get_mut(state) = rest;
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counted_time_is_exact_to_a_quantum_a_state(
            steps in prop::collection::vec((0..30_000_000u64, any::<bool>(), 0..9u64), 0..50),
        ) {
            const QUANTUM: u64 = 1_000_000;
            let mut thread = Thread::new(1, false, 500);
            let (mut now, mut sum) = (500, Weight::ZERO);
            let mut times = RunTimes::default();
            for (step, blocked, delay) in steps {
                now += step;
                times.cpu_ns += step / 10 * delay;
                times.delay_ns += step - step / 10 * delay;
                let weight = if blocked {
                    thread.count_blocked(now, QUANTUM)
                } else {
                    thread.count_ready(now, times, QUANTUM)
                };
                prop_assert!(State::ALL.iter().all(|s| weight.get(*s) % QUANTUM == 0));
                sum += weight;
            }
            let missing = now - 500 - sum.total_ns();
            prop_assert!(missing < 3 * QUANTUM, "{} ns are missing", missing);
        }
    }

    #[test]
    fn ready_time_is_split_as_the_kernels_counts_moved() {
        let mut thread = Thread::new(1, false, 0);
        let times = |cpu_ns, delay_ns| RunTimes { cpu_ns, delay_ns };
        let weight = |cpu_ns, runnable_ns| Weight { cpu_ns, runnable_ns, wait_ns: 0 };
        assert_eq!(thread.count_ready(100, times(30, 10), 1), weight(75, 25));
        assert_eq!(thread.count_ready(200, times(130, 10), 1), weight(100, 0));
        assert_eq!(thread.count_ready(300, times(130, 10), 1), weight(100, 0), "nothing moved");
        assert_eq!(thread.count_ready(400, times(130, 90), 1), weight(0, 100));
    }

    #[test]
    fn the_clock_never_runs_back() {
        let mut thread = Thread::new(1, false, 100);
        assert_eq!(thread.count_blocked(90, 1), Weight::ZERO);
        assert_eq!(thread.count_blocked(110, 1), Weight::of(State::Wait, 10));
    }
}
