//! One thread of the process, in one tick.

use std::ops::Range;

use agent::outside::{
    BlockedPlace, BlockedSite, BlockedThread, ProcessSamples, RunningStack, SampleAttribution,
    ThreadActivity, ThreadLabel, ThreadTime,
};
use profiler_core::{NoStack, State, Weight};
use system::processor::SP;

use crate::random::sample_period_ns;
use crate::recording::Shared;
use crate::stopped::{Stopped, ToStop};
use crate::sys::perf::{Event, Record};
use crate::thread_files::{Counts, Gone, ThreadFiles, inner_id};

/// Longest time without a sample of the running thread, and most CPU time; then it counts where it was sampled last.
const UNSAMPLED_MAX_NS: u64 = 10_000_000_000;
const UNSAMPLED_CPU_MAX_NS: u64 = 100_000_000;
/// Age at which the last sample says nothing any more.
const SAMPLE_AGE_MAX_NS: u64 = 1_000_000_000;
/// A thread's name is read again after this time, because threads name themselves, and then each ten times that.
const RENAMED_AFTER_NS: u64 = 1_000_000_000;
/// Most attempts in one tick to read a blocked thread that moves meanwhile.
const ATTEMPTS_MAX: u32 = 2;
/// Samples of a period; the next ones have another period.
const PERIOD_SAMPLES: u32 = 4;

/// A thread of the process.
pub(crate) struct Watched {
    pub(crate) id: u32,
    /// Its id in the namespace of its process.
    inner_id: u32,
    label: ThreadLabel,
    time: ThreadTime,
    files: ThreadFiles,
    /// The counts of the last visit.
    counts: Counts,
    /// Its CPU time before it was first seen.
    cpu_before_ns: u64,
    blocked: Option<Blocked>,
    /// Whether it ran or waited for a processor at the last visit, maybe after it was blocked.
    is_ready: bool,
    /// Where it was last sampled while it ran, and when.
    last_sample: Option<LastSample>,
    /// Its samples by the kernel, while it has some.
    pub(crate) event: Option<Event>,
    /// Its CPU time when these began.
    event_since_cpu_ns: u64,
    /// Samples since the period was set.
    period_samples: u32,
    /// When it last ran.
    pub(crate) ran_ns: u64,
    rename_at_ns: u64,
    /// Visits in a row that found that it had not run.
    idle_visits: u64,
    due_tick: u64,
}

/// Where a thread was seen blocked.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    place: SampleAttribution,
    state: State,
}

#[derive(Clone, Copy, Debug)]
struct LastSample {
    place: SampleAttribution,
    at_ns: u64,
}

/// Moment of a visit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    pub(crate) number: u64,
    pub(crate) now_ns: u64,
    /// Most ticks until the next visit of an idle thread.
    pub(crate) idle_ticks_max: u64,
}

/// From when on the time of a thread counts.
#[derive(Clone, Debug)]
pub(crate) enum Since {
    /// It may have run before.
    Recording(u64),
    /// It has started in this time, so all that it ran counts.
    Start(Range<u64>),
}

impl Since {
    /// The beginning of its account, when the kernel has these counts.
    fn account_begin(&self, counts: &Counts) -> AccountBegin {
        match self {
            Since::Recording(at_ns) => AccountBegin {
                at_ns: *at_ns,
                counts: *counts,
            },
            Since::Start(within) => {
                let has_lived_ns = counts.cpu_ns + counts.delay_ns;
                let latest_ns = within.end.saturating_sub(has_lived_ns).max(within.start);
                AccountBegin {
                    at_ns: within.start.midpoint(within.end).min(latest_ns),
                    counts: Counts::default(),
                }
            }
        }
    }
}

/// Where the account of a thread begins.
struct AccountBegin {
    at_ns: u64,
    /// The kernel's counts from before.
    counts: Counts,
}

impl Watched {
    /// A thread that is first seen now. `None` if it has ended.
    pub(crate) fn new(id: u32, since: Since, shared: &Shared) -> Option<Watched> {
        let mut files = ThreadFiles::new(shared.process, id, &shared.open_files);
        let AccountBegin {
            at_ns: since_ns,
            counts,
        } = since.account_begin(&files.counts().ok()?);
        Some(Watched {
            id,
            inner_id: if shared.has_own_ids {
                inner_id(shared.process, id)
            } else {
                id
            },
            label: ThreadLabel::new(id, &files.name()),
            time: ThreadTime::new(since_ns, counts.cpu_ns, counts.delay_ns, shared.quantum_ns),
            files,
            counts,
            cpu_before_ns: counts.cpu_ns,
            blocked: None,
            is_ready: false,
            last_sample: None,
            event: None,
            event_since_cpu_ns: 0,
            period_samples: 0,
            ran_ns: since_ns,
            rename_at_ns: since_ns + RENAMED_AFTER_NS,
            idle_visits: 0,
            due_tick: 0,
        })
    }

    /// CPU time since it was first seen.
    pub(crate) fn counted_cpu_ns(&self) -> u64 {
        self.time.cpu_ns().saturating_sub(self.cpu_before_ns)
    }

    /// Whether it was blocked when it was last visited.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some() && !self.is_ready
    }

    /// The same at present, if it ran when it was last visited.
    pub(crate) fn present_cpu_ns(&mut self) -> u64 {
        let counts = if self.idle_visits == 0 {
            self.files.counts().ok()
        } else {
            None
        };
        let cpu_ns = counts.map_or(self.time.cpu_ns(), |counts| counts.cpu_ns);
        cpu_ns.saturating_sub(self.cpu_before_ns)
    }

    /// Begins to take samples by the kernel. Without an event, its time is shown without a stack.
    pub(crate) fn set_event(&mut self, event: Option<Event>) {
        self.event = event;
        let counts = self.files.counts().ok();
        self.event_since_cpu_ns = counts.map_or(self.time.cpu_ns(), |counts| counts.cpu_ns);
    }

    pub(crate) fn is_due(&self, tick: u64) -> bool {
        self.event.is_some() && self.idle_visits == 0 || tick >= self.due_tick
    }

    /// Counts its time until now, where it is.
    ///
    /// # Errors
    /// [`Gone`]
    pub(crate) fn visit(&mut self, tick: Tick, shared: &mut Shared) -> Result<(), Gone> {
        let counts = self.files.counts()?;
        let has_run = counts.turns != self.counts.turns || counts.cpu_ns != self.counts.cpu_ns;
        self.time
            .advance(tick.now_ns, counts.cpu_ns, counts.delay_ns);
        self.counts = counts;
        if tick.now_ns >= self.rename_at_ns {
            self.label.rename(&self.files.name());
            self.rename_at_ns = tick.now_ns + 10 * RENAMED_AFTER_NS;
        }
        self.take_events(shared);
        if let Some(blocked) = self.blocked.filter(|_| !has_run) {
            self.is_ready = self.files.is_woken();
            if self.is_ready {
                // The kernel tells for how long when it gets a processor.
                self.idle_visits = 0;
            } else {
                let weight = self.time.take_off_cpu(blocked.state);
                shared.samples.add(blocked.place, weight);
                self.idle_visits += 1;
                self.due_tick = tick.number + self.idle_visits.min(tick.idle_ticks_max);
            }
        } else {
            self.idle_visits = 0;
            if has_run {
                self.ran_ns = tick.now_ns;
            }
            let is_asked = shared
                .stopper
                .as_ref()
                .is_some_and(|stopper| stopper.is_asked(self.id));
            // Where it is stopped says nothing.
            if !is_asked {
                self.look(tick, has_run, shared)?;
            }
        }
        self.count_overdue(tick.now_ns, &mut shared.samples);
        Ok(())
    }

    /// Finds out what the thread does.
    fn look(&mut self, tick: Tick, has_run: bool, shared: &mut Shared) -> Result<(), Gone> {
        let before = self.blocked.take();
        self.is_ready = false;
        for _ in 0..ATTEMPTS_MAX {
            match self.files.activity() {
                None => return Ok(()),
                Some(ThreadActivity::Running) => {
                    self.is_ready = true;
                    if let Some(before) = before {
                        let weight = self.time.take_off_cpu(before.state);
                        shared.samples.add(before.place, weight);
                    }
                    if has_run {
                        self.ask_to_stop(shared);
                    }
                    return Ok(());
                }
                Some(ThreadActivity::Blocked(site)) => {
                    if self.read_blocked(tick.now_ns, site, before, shared)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the stack of a blocked thread. Returns `false` if it has run meanwhile, so that the stack says nothing.
    fn read_blocked(
        &mut self,
        now_ns: u64,
        site: BlockedSite,
        before: Option<Blocked>,
        shared: &mut Shared,
    ) -> Result<bool, Gone> {
        let thread = BlockedThread {
            site,
            inner_id: self.inner_id,
        };
        let BlockedPlace {
            place,
            waits_for_interpreter,
        } = shared.samples.place_blocked(&mut self.label, thread);
        let is_stopped = site.is_outside_call() && self.files.is_stopped();
        let state = if waits_for_interpreter {
            State::Interpreter
        } else if is_stopped {
            State::Other
        } else {
            site.state(shared.process)
        };
        let counts = self.files.counts()?;
        if counts.turns != self.counts.turns || counts.cpu_ns != self.counts.cpu_ns {
            self.time.advance(now_ns, counts.cpu_ns, counts.delay_ns);
            self.counts = counts;
            return Ok(false);
        }
        let now = Blocked { place, state };
        self.blocked = Some(now);
        // It moved between two visits, at a time that is not known: on average half of the time goes to either place.
        let counted = before.filter(|_| shared.random.toss()).unwrap_or(now);
        let weight = self.time.take_off_cpu(counted.state);
        shared.samples.add(counted.place, weight);
        Ok(true)
    }

    /// Counts the samples by the kernel since the last visit.
    fn take_events(&mut self, shared: &mut Shared) {
        let Watched {
            event: Some(event),
            label,
            time,
            last_sample,
            period_samples,
            event_since_cpu_ns,
            ..
        } = self
        else {
            return;
        };
        let samples = &mut shared.samples;
        let lost = event.drain(|record| {
            let Record::Sample(sample) = record else {
                samples.expect_new_modules();
                return;
            };
            let stack = RunningStack {
                registers: sample.registers,
                at: sample.registers[SP],
                words: sample.words,
                // It has run since.
                frames: &[],
                is_complete: false,
            };
            let place = samples.place_running(label, stack);
            let cpu_ns = event_since_cpu_ns.saturating_add(sample.cpu_ns);
            samples.add(place, time.take_sampled(sample.at_ns, cpu_ns));
            *period_samples += 1;
            *last_sample = Some(LastSample {
                place,
                at_ns: sample.at_ns,
            });
        });
        shared.lost_samples += lost;
        if *period_samples >= PERIOD_SAMPLES {
            *period_samples = 0;
            // A refused one leaves the period that it has.
            let _ = event.set_period(sample_period_ns(&mut shared.random));
        }
    }

    /// Lets the thread stop for a sample, if that was asked for.
    fn ask_to_stop(&mut self, shared: &mut Shared) {
        let Some(stopper) = &mut shared.stopper else {
            return;
        };
        let thread = ToStop {
            id: self.id,
            inner_id: self.inner_id,
        };
        if let Err(error) = stopper.ask(thread) {
            shared.refused_stops.get_or_insert(error);
        }
    }

    /// Counts a sample of the stopped thread.
    pub(crate) fn take_stopped(&mut self, stopped: Stopped<'_>, now_ns: u64, shared: &mut Shared) {
        let stack = RunningStack {
            registers: stopped.registers,
            at: stopped.registers[SP] & !7,
            words: stopped.words,
            frames: stopped.frames,
            is_complete: stopped.is_complete,
        };
        let place = shared.samples.place_running(&mut self.label, stack);
        shared.samples.add(place, self.time.take_running());
        self.last_sample = Some(LastSample {
            place,
            at_ns: now_ns,
        });
    }

    /// Counts what has had no place for too long.
    fn count_overdue(&mut self, now_ns: u64, samples: &mut ProcessSamples) {
        let is_late = self.time.running_unattributed_for_ns() >= UNSAMPLED_MAX_NS
            || self.time.unattributed_cpu_ns() >= UNSAMPLED_CPU_MAX_NS;
        if is_late {
            self.count_running(now_ns, samples);
        }
        if self.time.off_cpu_unattributed_for_ns() >= UNSAMPLED_MAX_NS {
            self.count_off_cpu(samples);
        }
    }

    fn count_running(&mut self, now_ns: u64, samples: &mut ProcessSamples) {
        let weight = self.time.take_running();
        if weight == Weight::ZERO {
            return;
        }
        let recent = self
            .last_sample
            .filter(|last| now_ns.saturating_sub(last.at_ns) < SAMPLE_AGE_MAX_NS);
        let place = match recent {
            Some(last) => last.place,
            None => samples.place_without_stack(&mut self.label, NoStack::NotSampled),
        };
        samples.add(place, weight);
    }

    fn count_off_cpu(&mut self, samples: &mut ProcessSamples) {
        let weight = match self.blocked {
            _ if self.is_ready => self.time.take_off_cpu_as_runnable(),
            Some(blocked) => self.time.take_off_cpu(blocked.state),
            None => self.time.take_off_cpu(State::Other),
        };
        if weight == Weight::ZERO {
            return;
        }
        let place = match self.blocked {
            Some(blocked) => blocked.place,
            None => samples.place_without_stack(&mut self.label, NoStack::NotSampled),
        };
        samples.add(place, weight);
    }

    /// Counts the rest of its time, at the end of the recording, or of the thread: then it ended at some time since the
    /// last visit, on average in the middle. Returns how long it is assumed to have run since then.
    pub(crate) fn finish(&mut self, end: End, shared: &mut Shared) -> u64 {
        let mut ran_ns = 0;
        let end_ns = match end {
            End::OfRecording { now_ns } => {
                if let Ok(counts) = self.files.counts() {
                    self.time.advance(now_ns, counts.cpu_ns, counts.delay_ns);
                }
                now_ns
            }
            End::OfThread { about_ns, .. } if self.is_blocked() => {
                self.time.advance_blocked(about_ns);
                about_ns
            }
            End::OfThread {
                about_ns,
                ran_ns_max,
            } => {
                ran_ns = self.time.advance_ready(about_ns, ran_ns_max);
                about_ns
            }
        };
        self.take_events(shared);
        self.count_running(end_ns, &mut shared.samples);
        self.count_off_cpu(&mut shared.samples);
        ran_ns
    }
}

/// Why a thread is no longer watched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    OfRecording {
        now_ns: u64,
    },
    OfThread {
        about_ns: u64,
        /// CPU time that the process has used and no thread has.
        ran_ns_max: u64,
    },
}
