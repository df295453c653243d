//! What changes while the sampler runs: its settings; and questions for what every thread is doing.
//!
//! A change takes effect at a tick, right after the cycle was sealed: so each cycle has one quantum
//! and one set of states, and its count of due ticks is exact. Off means that no thread is known, so
//! none is looked at and no time counts; on again begins as at the start.

use profiler_core::limits::DUMP_THREADS_MAX;
use profiler_core::{Settings, State, Ticks};

use super::Sampler;
use super::budget::Place;
use super::thread::Thread;
use crate::clock::monotonic_ns;
use crate::control::Wanted;
use crate::sys::process;

/// While something is asked, the next tick comes this soon: at long intervals too the answer takes
/// two of these.
const SOON_NS: u64 = 10_000_000;

/// The sampler's part of what [`Control`](crate::control::Control) says.
pub(super) struct Live {
    pub(super) settings: Settings,
    /// Number of these settings.
    number: u64,
    /// Number of the last question for stacks that was answered or given up.
    answered: u64,
    /// A question whose look at all threads is under way.
    looking: Option<u64>,
    /// When the next regular tick is due; never while off.
    pub(super) due_ns: u64,
    /// Regular ticks that came due since the last tick.
    pub(super) passed: u64,
    /// Ticks that are left out on purpose until the next regular one.
    pub(super) saved: u64,
}

/// What every thread was doing, by the sampler's nodes.
#[derive(Debug)]
pub(crate) struct RawStacks {
    /// Of the question; older ones are answered with it.
    pub(crate) number: u64,
    pub(crate) threads: Vec<RawThread>,
    pub(crate) omitted: u64,
}

#[derive(Debug)]
pub(crate) struct RawThread {
    pub(crate) id: u32,
    /// `None` if it was not seen yet.
    pub(crate) last: Option<LastSeen>,
    pub(crate) age_ns: u64,
    pub(crate) blocked_ns: u64,
}

/// How a thread was when it was last counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSeen {
    pub(crate) place: Place,
    pub(crate) state: State,
    /// Up to when it was counted so.
    at_ns: u64,
    /// Since when, without running in between.
    since_ns: u64,
    /// Its CPU clock when its stack was read.
    cpu_ns: u64,
}

impl Thread {
    /// Notes how the thread was counted up to now.
    pub(super) fn note(&mut self, place: Place, state: State) {
        let (at_ns, cpu_ns) = (self.time.reckoned_to_ns(), self.time.cpu_ns());
        let stayed = |last: &LastSeen| {
            let same = last.place.node == place.node;
            same && state.is_wait() && (last.state, last.cpu_ns) == (state, cpu_ns)
        };
        let since_ns = self.last.filter(stayed).map_or(at_ns, |last| last.since_ns);
        self.last = Some(LastSeen { place, state, at_ns, since_ns, cpu_ns });
    }
}

impl Live {
    pub(super) fn new(settings: Settings, now: u64) -> Live {
        let due_ns = now + settings.interval_ns;
        Live { settings, number: 0, answered: 0, looking: None, due_ns, passed: 0, saved: 0 }
    }

    /// Leaves out the next ticks, which count as due when the one after them is.
    pub(super) fn save(&mut self, ticks: u64) {
        self.due_ns += ticks * self.settings.interval_ns;
        self.saved = ticks;
    }

    /// Counts the regular ticks that have come due. A late tick becomes weight, never a burst: those
    /// that are already past are skipped.
    fn pass(&mut self, now: u64) {
        let late_ns = now.checked_sub(self.due_ns);
        self.passed = late_ns.map_or(0, |late_ns| 1 + late_ns / self.settings.interval_ns);
        self.due_ns += self.passed * self.settings.interval_ns;
    }
}

impl Sampler {
    /// Sleeps until the next tick; gives when that is. While sampling is off there is none.
    pub(super) fn sleep(&mut self) -> Option<u64> {
        let control = self.control.clone();
        let news = control.newer_than(self.live.number);
        if !self.live.settings.enabled {
            match news {
                Some(wanted) => self.change_while_off(wanted),
                None => control.sleep_until(u64::MAX),
            }
            return None;
        }
        let asked = news.is_some() || control.stacks_asked() != self.live.answered;
        let soon_ns = self.last_tick_ns + SOON_NS;
        let tick_ns = if asked { self.live.due_ns.min(soon_ns) } else { self.live.due_ns };
        control.sleep_until(tick_ns);
        let now = monotonic_ns();
        if now < tick_ns {
            // Woken: something may have been asked.
            return None;
        }
        self.live.pass(now);
        Some(now)
    }

    /// Whether a question for stacks will be answered at this tick.
    pub(super) fn is_looking(&self) -> bool {
        self.live.looking.is_some()
    }

    /// The answer to a question for stacks, once all threads were looked at since it was asked.
    pub(super) fn stacks_due(&mut self, now: u64) -> Option<RawStacks> {
        let asked = self.control.stacks_asked();
        if let Some(number) = self.live.looking {
            return Some(RawStacks::of(number, &self.threads, now));
        }
        if asked != self.live.answered {
            // The look of this tick starts after the question; what it finds is in at the next.
            self.live.looking = Some(asked);
        }
        None
    }

    /// The stacks of this number went out with a cycle.
    pub(super) fn stacks_sent(&mut self, number: u64) {
        self.live.looking = None;
        self.live.answered = number;
    }

    /// Takes up new settings, if there are any; the cycle must have been sealed. Gives whether
    /// sampling goes on.
    pub(super) fn take_settings(&mut self, now: u64) -> bool {
        let Some(wanted) = self.control.newer_than(self.live.number) else {
            return true;
        };
        if !wanted.settings.enabled {
            for thread in self.threads.drain(..) {
                self.look.forget(thread);
            }
            self.index.clear();
            self.known_count = None;
            self.live.looking = None;
        }
        self.work_by(wanted, now);
        wanted.settings.enabled
    }

    /// Whether new settings wait for the end of the cycle.
    pub(super) fn has_new_settings(&self) -> bool {
        self.control.newer_than(self.live.number).is_some()
    }

    fn change_while_off(&mut self, wanted: Wanted) {
        let now = monotonic_ns();
        // What was asked meanwhile was answered by the shipper: nobody looks.
        self.live.answered = self.control.stacks_asked();
        if wanted.settings.enabled {
            if let Some(cpu_ns) = process::thread_cpu_ns(self.own_id) {
                self.own_time.forgive(now, cpu_ns);
            }
            (self.last_tick_ns, self.cycle_start_ns) = (now, now);
            self.ticks = Ticks::default();
        }
        self.work_by(wanted, now);
    }

    fn work_by(&mut self, wanted: Wanted, now: u64) {
        self.live.settings = wanted.settings;
        self.live.number = wanted.number;
        self.live.due_ns = now + wanted.settings.interval_ns;
        self.options.interval_ns = wanted.settings.interval_ns;
        self.look.quantum_ns = self.options.quantum_ns();
        self.control.set_applied(wanted.number);
    }
}

impl RawStacks {
    fn of(number: u64, threads: &[Thread], now: u64) -> RawStacks {
        let thread = |thread: &Thread| RawThread {
            id: thread.id,
            last: thread.last,
            age_ns: thread.last.map_or(0, |last| now.saturating_sub(last.at_ns)),
            blocked_ns: thread.last.map_or(0, |last| last.at_ns.saturating_sub(last.since_ns)),
        };
        let omitted = threads.len().saturating_sub(DUMP_THREADS_MAX) as u64;
        let threads = threads.iter().take(DUMP_THREADS_MAX).map(thread).collect();
        RawStacks { number, threads, omitted }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use profiler_core::{NodeId, SettingsChange, StateSet};

    use super::super::addresses::Growth;
    use super::super::{RawCycle, SamplerOptions};
    use super::*;
    use crate::control::Control;

    #[test]
    fn a_thread_is_there_since_it_last_ran() {
        let mut thread = Thread::new(1, 0);
        let mut note = |cpu_ns, node, state, at_ns| {
            thread.time.advance(at_ns, cpu_ns);
            thread.note(Place { node: NodeId(node), thread: NodeId(9) }, state);
            thread.last.map(|last| last.since_ns)
        };
        assert_eq!(note(5, 1, State::Lock, 10), Some(10));
        assert_eq!(note(5, 1, State::Lock, 20), Some(10));
        assert_eq!(note(6, 1, State::Lock, 30), Some(30), "it has run and come back");
        assert_eq!(note(6, 2, State::Lock, 40), Some(40));
        assert_eq!(note(6, 2, State::Cpu, 50), Some(50));
        assert_eq!(note(6, 2, State::Cpu, 60), Some(60), "a thread that runs is nowhere for long");
    }

    #[test]
    fn ticks_that_are_late_or_early_are_counted_by_what_was_due() {
        let settings = Settings { interval_ns: 10, enabled: true, states: StateSet::ALL };
        let mut live = Live::new(settings, 100);
        for (now, passed, due_ns) in
            [(110, 1, 120), (119, 0, 120), (125, 1, 130), (155, 3, 160), (155, 0, 160)]
        {
            live.pass(now);
            assert_eq!((live.passed, live.due_ns), (passed, due_ns), "at {now}");
        }
    }

    /// A sampler of this process, on a thread of its own.
    struct Running {
        control: Arc<Control>,
        stop: Arc<AtomicBool>,
        cycles: Receiver<RawCycle>,
        sampler: thread::JoinHandle<()>,
    }

    impl Running {
        fn start() -> Running {
            let options = SamplerOptions {
                interval_ns: 10_000_000,
                cycle_ns: 50_000_000,
                cpu_limit: 1_000_000_000,
                resource_interval: None,
                task_rows_per_second: 1,
            };
            let control = Arc::new(Control::new(options.settings()));
            let stop = Arc::new(AtomicBool::new(false));
            let (sender, cycles) = sync_channel(2);
            let sampler = {
                let (control, stop) = (control.clone(), stop.clone());
                move || Sampler::new(options, control, Arc::default()).run(&stop, &sender)
            };
            Running { control, stop, cycles, sampler: thread::spawn(sampler) }
        }

        /// Takes cycles until one is as wanted. All of them obey the laws of a cycle.
        fn until(&self, wanted: impl Fn(&RawCycle) -> bool) -> RawCycle {
            loop {
                let cycle = self.cycles.recv().unwrap();
                let mut entries = cycle.growth.delta.entries().iter();
                assert!(entries.all(|(.., time)| time.is_multiple_of(cycle.quantum_ns)));
                let Growth { delta, threads, .. } = &cycle.growth;
                assert_eq!(delta.total(), threads.total(), "each thread's time once");
                assert!(cycle.ticks.made <= cycle.ticks.expected);
                if wanted(&cycle) {
                    return cycle;
                }
            }
        }

        /// Waits for settings while it makes room for the cycle that ends with them, and for none after.
        fn drain_until_applied(&self) {
            while !self.control.wanted().1 {
                let _ = self.cycles.try_recv();
                thread::yield_now();
            }
            while self.cycles.try_recv().is_ok() {}
        }

        /// What the thread of that id was doing, asked now.
        fn ask(&self, id: u32) -> RawThread {
            let number = self.control.ask_stacks();
            let answers =
                |cycle: &RawCycle| cycle.stacks.as_ref().is_some_and(|s| s.number >= number);
            let stacks = self.until(answers).stacks.unwrap();
            stacks.threads.into_iter().find(|thread| thread.id == id).unwrap()
        }
    }

    /// The sampler of this test is the only one of its process, which signals all its threads.
    #[test]
    fn settings_and_questions_reach_a_running_sampler() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let waiting = thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw().unsigned_abs()).unwrap();
            ended.recv()
        });
        let waiting_id = told.recv().unwrap();
        let running = Running::start();
        let change = |revision, change| running.control.change(revision, change);

        let mut last = running.until(|cycle| cycle.ticks.made > 0);
        let slow = SettingsChange { interval_ns: Some(30_000_000), ..Default::default() };
        change(1, slow);
        // Without a gap from the first cycle to the first of the new interval; the ticks due are those
        // that each interval asks for.
        while last.quantum_ns == 1_000_000 {
            let next = running.until(|_| true);
            assert_eq!(next.start_ns, last.stop_ns);
            last = next;
        }
        assert_eq!(last.quantum_ns, 3_000_000);
        assert!(running.control.wanted().1);
        let steady = running.until(|cycle| cycle.ticks.made > 1);
        let due = (steady.stop_ns - steady.start_ns).div_ceil(30_000_000);
        assert!(steady.ticks.expected.abs_diff(due) <= 1, "{:?} of {due}", steady.ticks);

        // It may be seen running before it waits for good; from then on it only waits longer.
        let mut first = running.ask(waiting_id);
        while first.last.is_none_or(|last| last.state == State::Cpu) || first.blocked_ns == 0 {
            first = running.ask(waiting_id);
        }
        assert!(running.ask(waiting_id).blocked_ns > first.blocked_ns);

        let cpu: StateSet = [State::Cpu].into_iter().collect();
        change(2, SettingsChange { states: Some(cpu), enabled: Some(false), interval_ns: None });
        running.drain_until_applied();
        let off_ns = monotonic_ns();
        change(3, SettingsChange { enabled: Some(true), ..Default::default() });
        let again = running.until(|_| true);
        assert!(again.start_ns >= off_ns, "the time while it was off is nobody's");
        assert_eq!((again.states, again.quantum_ns), (cpu, 3_000_000));

        // An end is not put off by sampling that is off.
        change(4, SettingsChange { enabled: Some(false), ..Default::default() });
        running.drain_until_applied();
        running.stop.store(true, Ordering::Release);
        running.control.wake();
        running.sampler.join().unwrap();
        drop(end);
        waiting.join().unwrap().unwrap_err();
    }
}
