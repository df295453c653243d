//! The loop: visits the threads of a process once in each 10 ms, at a random moment of them, and ends a cycle each second.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent::outside::{CycleEnd, OutsideOptions, ProcessSamples, Shipment, SymbolPattern, record};
use agent::{SamplerMode, ShipReport, StartError, Ticks};
use nix::errno::Errno;
use python_stacks::Unsupported;
use system::clock::monotonic_ns;
use system::foreign::FrameWalker;
use system::process::{process_cpu_ns_of, raise_priority, shorten_slice};

use crate::interpreter::PythonSearch;
use crate::random::{Random, sample_period_ns};
use crate::running::{Refused, RunningSamples, RunningSource};
use crate::stopped::Stopper;
use crate::sys::perf::Event;
use crate::target::Target;
use crate::thread_changes::{Ended, ThreadChanges};
use crate::thread_files::{OpenFiles, inner_id};
use crate::watched::{End, Since, Tick, Watched};

/// Mean time between two ticks, and about the CPU time between two samples of a running thread.
pub(crate) const INTERVAL_NS: u64 = 10_000_000;
/// Length of a cycle.
const CYCLE_NS: u64 = 1_000_000_000;
/// Most threads that are watched. Time of others counts as far as they run.
const THREADS_MAX: usize = 16_384;
/// Most visits in a tick; further threads have their turn in the next one. A visit takes some microseconds.
const VISITS_MAX: usize = 512;
/// Idle threads that are visited in a tick, as long as each then has a visit in ten ticks.
const IDLE_VISITS: u64 = 16;
const IDLE_TICKS_MAX: u64 = 10;
/// Most threads that the kernel samples at the same time, each with a ring of 256 KiB: 16 MiB. It is the next thread's
/// turn when one has not run for a while.
const EVENTS_MAX: usize = 64;
/// A thread that has not run for this long gives its ring to another one.
const EVENT_IDLE_NS: u64 = 1_000_000_000;
/// Time between two looks at whether threads have stopped.
const STOP_LOOK_NS: u64 = 200_000;
/// Most such looks at the end of a recording: two seconds.
const LAST_LOOKS_MAX: u32 = 10_000;
/// Most threads whose present CPU time is read when others end.
const PRESENT_READS_MAX: usize = 256;
/// CPU time that the kernel has shown and no thread has: less than this may be a delay of its counts.
const UNSEEN_MIN_NS: u64 = 20_000_000;

/// A process to record.
#[derive(Clone, Debug)]
pub struct RecordingOptions {
    /// The process.
    pub target: Target,
    /// The collector.
    pub url: String,
    /// Begins the name of the worker in place of the command.
    pub worker: Option<String>,
    /// Keys and values, in addition to `command` and `parent`.
    pub labels: Vec<(String, String)>,
    /// Whether names of threads are tasks, in place of the command.
    pub tasks_by_thread: bool,
    /// Functions whose calls are tasks: each has the time of the function and of its callees.
    pub names_task: Option<SymbolPattern>,
    /// How running threads are sampled.
    pub source: RunningSource,
}

/// Why a recording did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The system does not sample running threads; the text has the settings.
    #[error("{0}")]
    Refused(String),
    /// The URL, the labels or this process's threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The loop's thread.
    #[error("could not start a thread")]
    Thread(#[from] io::Error),
}

impl From<Refused> for RecordingError {
    fn from(refused: Refused) -> RecordingError {
        RecordingError::Refused(refused.to_string())
    }
}

/// A process that is being recorded.
#[derive(Debug)]
pub struct Recording {
    stop: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
    watching: Option<JoinHandle<Watching>>,
    shipment: Option<Shipment>,
    python: Arc<OnceLock<Result<(), Unsupported>>>,
    /// How running threads are sampled.
    pub samples: RunningSamples,
    /// Id of the worker.
    pub worker: String,
}

/// The account of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Recorded {
    /// Of thread time.
    pub report: ShipReport,
    /// Samples that found the ring full. Their time is in the account.
    pub lost_samples: u64,
    /// Whether the system refused to stop threads.
    pub refused_stops: bool,
}

/// Result of the loop.
#[derive(Clone, Copy, Debug, Default)]
struct Watching {
    lost_samples: u64,
    refused_stops: bool,
}

/// State that visits of threads share.
pub(crate) struct Shared {
    pub(crate) process: u32,
    /// Whether its threads have other ids where it runs.
    pub(crate) has_own_ids: bool,
    pub(crate) quantum_ns: u64,
    pub(crate) samples: ProcessSamples,
    pub(crate) open_files: OpenFiles,
    pub(crate) stopper: Option<Stopper>,
    pub(crate) refused_stops: Option<Errno>,
    pub(crate) random: Random,
    pub(crate) lost_samples: u64,
}

impl Recording {
    /// Starts to record.
    ///
    /// # Errors
    /// [`RecordingError`]; the process is untouched then.
    pub fn start(options: RecordingOptions) -> Result<Recording, RecordingError> {
        let RecordingOptions {
            target,
            url,
            worker,
            labels,
            tasks_by_thread,
            names_task,
            source,
        } = options;
        let samples = RunningSamples::find(source, target.process, INTERVAL_NS)?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let started_ms = since_epoch.map_or(0, |time| time.as_millis());
        let base = worker.as_deref().unwrap_or(&target.command);
        let worker = format!("{base}-{}-{started_ms}", target.process);
        let mut all_labels = vec![
            ("command".to_owned(), target.command.clone()),
            ("parent".to_owned(), target.parent.to_string()),
        ];
        all_labels.extend(labels);
        let options = OutsideOptions {
            process: target.process,
            url,
            worker: worker.clone(),
            labels: all_labels,
            task: target.command.clone(),
            tasks_by_thread,
            names_task,
            interval_ns: INTERVAL_NS,
            mode: SamplerMode::Full,
        };
        let quantum_ns = options.quantum_ns();
        let start_ns = monotonic_ns();
        let (process_samples, shipment) = record(options, start_ns)?;
        let stop = Arc::new(AtomicBool::new(false));
        let python: Arc<OnceLock<Result<(), Unsupported>>> = Arc::default();
        let has_ended = Arc::new(AtomicBool::new(false));
        let watch = {
            let stop = stop.clone();
            let has_ended = has_ended.clone();
            let search = PythonSearch::new(target.process, python.clone());
            move || {
                // Rings have room for some ticks only.
                raise_priority();
                let _ = shorten_slice();
                let shared = Shared {
                    process: target.process,
                    has_own_ids: inner_id(target.process, target.process) != target.process,
                    quantum_ns,
                    samples: process_samples,
                    open_files: OpenFiles::default(),
                    // The kernel knows the thread that stops others.
                    stopper: (samples == RunningSamples::Stops)
                        .then(|| Stopper::new(target.process)),
                    refused_stops: None,
                    random: Random::new(start_ns),
                    lost_samples: 0,
                };
                let watching = Watch::new(target, samples, shared, search, start_ns).run(&stop);
                has_ended.store(true, Ordering::Release);
                watching
            }
        };
        let watching = thread::Builder::new()
            .name("emberline-out".to_owned())
            .spawn(watch)?;
        Ok(Recording {
            stop,
            has_ended,
            watching: Some(watching),
            shipment: Some(shipment),
            python,
            samples,
            worker,
        })
    }

    /// Whether the process has ended. The recording waits for its own end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether the functions of its CPython are shown, once one was found.
    #[must_use]
    pub fn python(&self) -> Option<&Result<(), Unsupported>> {
        self.python.get()
    }

    /// Ends it, ships the rest within the limit and returns the account.
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Recorded {
        self.stop.store(true, Ordering::Release);
        let watching = self.watching.take().and_then(|thread| thread.join().ok());
        let Watching {
            lost_samples,
            refused_stops,
        } = watching.unwrap_or_default();
        let shipment = self.shipment.take();
        Recorded {
            report: shipment.map_or_else(ShipReport::default, |shipment| shipment.finish(limit)),
            lost_samples,
            refused_stops,
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// The loop's state.
struct Watch {
    target: Target,
    samples: RunningSamples,
    shared: Shared,
    python: PythonSearch,
    threads: Vec<Watched>,
    changes: ThreadChanges,
    /// The first thread of the next tick's visits.
    next: usize,
    ticks: Ticks,
    cycle_start_ns: u64,
    audit: Audit,
}

/// Compares the CPU time of all threads with that of the process.
#[derive(Debug, Default)]
struct Audit {
    process_cpu_before_ns: u64,
    /// At the last tick: of a process that has ended, nothing is shown any more.
    process_cpu_ns: u64,
    /// Of threads that have ended.
    ended_cpu_ns: u64,
    /// Difference of the last check.
    last_unseen_ns: u64,
    /// Counted without a thread.
    reported_ns: u64,
}

impl Audit {
    /// CPU time that the process has used and no thread has.
    fn uncounted_ns(&self, threads_cpu_ns: u64) -> u64 {
        let shown_ns = self
            .process_cpu_ns
            .saturating_sub(self.process_cpu_before_ns);
        let counted_ns = self.ended_cpu_ns + threads_cpu_ns + self.reported_ns;
        shown_ns.saturating_sub(counted_ns)
    }

    /// CPU time that the process has used and no thread has, without what was returned before. Two checks in a row must
    /// have found it, because counts of threads that run are some milliseconds old, except for the last one.
    fn unseen_ns(&mut self, threads_cpu_ns: u64, is_last: bool) -> u64 {
        let unseen_ns = self.uncounted_ns(threads_cpu_ns);
        let before_ns = std::mem::replace(&mut self.last_unseen_ns, unseen_ns);
        let found_ns = if is_last {
            unseen_ns
        } else {
            unseen_ns.min(before_ns)
        };
        if found_ns < UNSEEN_MIN_NS {
            return 0;
        }
        self.reported_ns += found_ns;
        self.last_unseen_ns = 0;
        found_ns
    }
}

impl Watch {
    fn new(
        target: Target,
        samples: RunningSamples,
        shared: Shared,
        python: PythonSearch,
        start_ns: u64,
    ) -> Watch {
        let target_id = target.process;
        let audit = Audit {
            process_cpu_before_ns: process_cpu_ns_of(target_id).unwrap_or(0),
            ..Audit::default()
        };
        Watch {
            target,
            samples,
            shared,
            python,
            threads: Vec::new(),
            changes: ThreadChanges::new(target_id, start_ns),
            next: 0,
            ticks: Ticks::default(),
            cycle_start_ns: start_ns,
            audit,
        }
    }

    fn run(mut self, stop: &AtomicBool) -> Watching {
        let start_ns = self.cycle_start_ns;
        self.python.look(&mut self.shared.samples);
        let mut number = 0;
        while !stop.load(Ordering::Acquire) && !self.target.has_ended() {
            let now_ns = monotonic_ns();
            let idle_ticks_max = idle_ticks_max(self.threads.len());
            self.tick(Tick {
                number,
                now_ns,
                idle_ticks_max,
            });
            if now_ns.saturating_sub(self.cycle_start_ns) >= CYCLE_NS {
                self.seal(now_ns, false);
            }
            // A tick near the end of its interval, which may be over by now, does not skip the next one.
            let due = (number + 1).max(monotonic_ns().saturating_sub(start_ns) / INTERVAL_NS);
            self.ticks.made += 1;
            self.ticks.expected += due - number;
            number = due;
            // Ticks of equal distances would see a program with the same period in one phase of its work only.
            let offset_ns = self.shared.random.below(INTERVAL_NS);
            self.wait_until(start_ns + due * INTERVAL_NS + offset_ns);
        }
        self.finish()
    }

    /// Waits for the next tick. Threads that are to stop do so as soon as they get a processor, and go on at once.
    fn wait_until(&mut self, next_ns: u64) {
        loop {
            let left_ns = next_ns.saturating_sub(monotonic_ns());
            let is_stopping = self.collect_stopped();
            let longest_ns = if is_stopping { STOP_LOOK_NS } else { u64::MAX };
            thread::sleep(Duration::from_nanos(left_ns.min(longest_ns)));
            if left_ns <= longest_ns {
                return;
            }
        }
    }

    /// Samples threads that have stopped. Returns whether others are still to stop.
    fn collect_stopped(&mut self) -> bool {
        let Some(mut stopper) = self.shared.stopper.take() else {
            return false;
        };
        let now_ns = monotonic_ns();
        let python = self.python.walker();
        let walker = python.map(|walker| walker as &dyn FrameWalker);
        stopper.collect(walker, |id, stopped| {
            let thread = self.threads.iter_mut().find(|thread| thread.id == id);
            if let Some(thread) = thread {
                thread.take_stopped(stopped, now_ns, &mut self.shared);
            }
        });
        let is_stopping = stopper.is_pending();
        self.shared.stopper = Some(stopper);
        is_stopping
    }

    /// Finds threads that have started or ended, and visits those that are due.
    fn tick(&mut self, tick: Tick) {
        self.shared.samples.begin_tick();
        let process_cpu_ns = process_cpu_ns_of(self.target.process);
        self.audit.process_cpu_ns = process_cpu_ns.unwrap_or(self.audit.process_cpu_ns);
        self.find_changes(tick.now_ns);
        let count = self.threads.len();
        let mut visits = 0;
        let mut gone = Vec::new();
        let mut index = self.next;
        for _ in 0..count {
            index = if index >= count { 0 } else { index };
            let thread = &mut self.threads[index];
            index += 1;
            if !thread.is_due(tick.number) {
                continue;
            }
            visits += 1;
            if thread.visit(tick, &mut self.shared).is_err() {
                gone.push(self.changes.set_gone(thread.id, tick.now_ns));
            } else if thread.event.is_none() && thread.ran_ns == tick.now_ns {
                self.add_event(index - 1, tick.now_ns);
            }
            if visits == VISITS_MAX {
                break;
            }
        }
        self.next = index;
        self.remove(&gone);
    }

    /// Adds the threads that have started since the last tick, and removes those that ended.
    fn find_changes(&mut self, now_ns: u64) {
        let is_first = self.threads.is_empty();
        let changes = self.changes.find(now_ns);
        self.remove(&changes.ended);
        let room = THREADS_MAX.saturating_sub(self.threads.len());
        for id in changes.started.into_iter().take(room) {
            let since = if is_first {
                Since::Recording(changes.since_ns)
            } else {
                Since::Start(changes.since_ns..now_ns)
            };
            let Some(thread) = Watched::new(id, since, &self.shared) else {
                continue;
            };
            self.threads.push(thread);
            self.add_event(self.threads.len() - 1, now_ns);
        }
    }

    /// Removes threads that have ended.
    fn remove(&mut self, ended: &[Ended]) {
        for end in ended {
            let at = self.threads.iter().position(|thread| thread.id == end.id);
            if let Some(at) = at {
                let thread = self.threads.swap_remove(at);
                self.finish_ended(thread, end.about_ns);
            }
        }
    }

    /// Counts the rest of the time of a thread that has ended. Of the CPU time that the process has used, it has at most
    /// what no other thread has: on a busy machine a thread that is ready mostly waits.
    fn finish_ended(&mut self, mut thread: Watched, about_ns: u64) {
        self.audit.ended_cpu_ns += thread.counted_cpu_ns();
        let ran_ns_max = if thread.is_blocked() {
            0
        } else {
            self.unclaimed_cpu_ns()
        };
        let end = End::OfThread {
            about_ns,
            ran_ns_max,
        };
        self.audit.ended_cpu_ns += thread.finish(end, &mut self.shared);
    }

    /// CPU time that the process has used and that was not counted yet.
    fn unclaimed_cpu_ns(&mut self) -> u64 {
        // Reading them takes as many microseconds.
        if self.threads.len() > PRESENT_READS_MAX {
            return 0;
        }
        let of_live = self.threads.iter_mut().map(Watched::present_cpu_ns).sum();
        self.audit.uncounted_ns(of_live)
    }

    /// Lets the kernel sample a thread, if there is room.
    fn add_event(&mut self, index: usize, now_ns: u64) {
        if self.samples == RunningSamples::Stops || index >= self.threads.len() {
            return;
        }
        let with_event = |thread: &&mut Watched| thread.event.is_some();
        if self.threads.iter_mut().filter(with_event).count() >= EVENTS_MAX {
            let idle = self.threads.iter_mut().filter(with_event);
            let longest = idle.min_by_key(|thread| thread.ran_ns);
            match longest {
                Some(idle) if now_ns.saturating_sub(idle.ran_ns) >= EVENT_IDLE_NS => {
                    idle.event = None;
                }
                _ => return,
            }
        }
        let period_ns = sample_period_ns(&mut self.shared.random);
        let thread = &mut self.threads[index];
        let event = Event::open(thread.id, period_ns, self.samples.scope());
        thread.set_event(event.ok());
    }

    fn seal(&mut self, now_ns: u64, is_last: bool) {
        let threads_cpu_ns = self.threads.iter().map(Watched::counted_cpu_ns).sum();
        let unseen_ns = self.audit.unseen_ns(threads_cpu_ns, is_last);
        if unseen_ns > 0 {
            self.shared.samples.add_unseen(unseen_ns);
        }
        let sealed = self.shared.samples.seal(CycleEnd {
            stop_ns: now_ns,
            ticks: self.ticks,
            is_last,
        });
        if sealed {
            self.cycle_start_ns = now_ns;
            self.ticks = Ticks::default();
        }
        self.shared.samples.refresh_modules();
        self.python.look(&mut self.shared.samples);
    }

    fn finish(mut self) -> Watching {
        let now_ns = monotonic_ns();
        let has_ended = self.target.has_ended();
        let end = if has_ended {
            End::OfThread {
                about_ns: now_ns.saturating_sub(INTERVAL_NS / 2),
                // Its clock can not be read any more.
                ran_ns_max: INTERVAL_NS,
            }
        } else {
            End::OfRecording { now_ns }
        };
        // A thread that gets no processor for that long is let go when this thread ends.
        for _ in 0..LAST_LOOKS_MAX {
            if !self.collect_stopped() {
                break;
            }
            thread::sleep(Duration::from_nanos(STOP_LOOK_NS));
        }
        for thread in &mut self.threads {
            thread.finish(end, &mut self.shared);
        }
        self.seal(now_ns, true);
        Watching {
            lost_samples: self.shared.lost_samples,
            refused_stops: self.shared.refused_stops.is_some(),
        }
    }
}

/// Most ticks between two visits of an idle thread among as many threads.
fn idle_ticks_max(threads: usize) -> u64 {
    (threads as u64 / IDLE_VISITS).clamp(1, IDLE_TICKS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_unseen_if_two_checks_find_it_and_counts_once() {
        let mut audit = Audit {
            process_cpu_before_ns: 1_000,
            ..Audit::default()
        };
        let second = 1_000_000_000;
        let mut unseen_ns = |seconds: u64, threads_cpu_ns: u64, is_last: bool| {
            audit.process_cpu_ns = 1_000 + seconds * second;
            audit.unseen_ns(threads_cpu_ns, is_last)
        };
        assert_eq!(unseen_ns(1, second - 5_000_000, false), 0);
        assert_eq!(unseen_ns(2, second, false), 0, "once");
        assert_eq!(unseen_ns(3, 2 * second, false), second);
        assert_eq!(unseen_ns(4, 3 * second, false), 0);
        assert_eq!(unseen_ns(5, 4 * second, false), 0);
        assert_eq!(unseen_ns(6, 4 * second, true), second, "the last one");
        assert_eq!(unseen_ns(7, 5 * second, true), 0);
    }
}
