//! What the shipper and the sampler say to each other while both run: new settings, questions for
//! the stacks of the moment, and how far the sampler has got with them.
//!
//! The sampler never waits for it: it reads one number a tick, and takes the lock only if that moved
//! and nobody else has it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use profiler_core::Settings;

use crate::SamplerMode;
use crate::clock::monotonic_ns;
use crate::sync::lock;

/// Shared by one agent's threads.
#[derive(Debug)]
pub(crate) struct Control {
    wanted: Mutex<Wanted>,
    /// Number of the latest settings that were asked for.
    wanted_number: AtomicU64,
    /// Number of the settings that the sampler works by.
    applied_number: AtomicU64,
    /// Number of the latest question for stacks.
    stacks_number: AtomicU64,
    mode: Mutex<SamplerMode>,
    /// The sampler's thread, to be woken.
    sampler: OnceLock<Thread>,
}

/// The settings that were asked for last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Rises with each change.
    pub(crate) number: u64,
    pub(crate) settings: Settings,
    /// The collector's name for the change; 0 before the first.
    #[cfg_attr(not(feature = "ship"), expect(dead_code, reason = "only a collector asks"))]
    pub(crate) revision: u64,
}

impl Control {
    /// Of an agent that starts with these settings.
    pub(crate) fn new(settings: Settings) -> Control {
        Control {
            wanted: Mutex::new(Wanted { number: 0, settings, revision: 0 }),
            wanted_number: AtomicU64::new(0),
            applied_number: AtomicU64::new(0),
            stacks_number: AtomicU64::new(0),
            mode: Mutex::new(SamplerMode::Starting),
            sampler: OnceLock::new(),
        }
    }

    /// Wakes the sampler, if it sleeps.
    pub(crate) fn wake(&self) {
        if let Some(sampler) = self.sampler.get() {
            sampler.unpark();
        }
    }
}

/// The sampler's side.
impl Control {
    /// Says how the sampler works in this process; called on the sampler's thread.
    pub(crate) fn start(&self, mode: SamplerMode) {
        // A second start does not happen, and would be of the same thread.
        let _ = self.sampler.set(thread::current());
        self.set_mode(mode);
    }

    /// Says how the sampler works from now on.
    pub(crate) fn set_mode(&self, mode: SamplerMode) {
        *lock(&self.mode) = mode;
    }

    /// How much of this process the sampler can see.
    pub(crate) fn mode(&self) -> SamplerMode {
        lock(&self.mode).clone()
    }

    /// The settings that were asked for, if they are newer than the sampler's. `None` too while
    /// they are being changed: the sampler comes again.
    pub(crate) fn newer_than(&self, number: u64) -> Option<Wanted> {
        if self.wanted_number.load(Ordering::Acquire) == number {
            return None;
        }
        self.wanted.try_lock().ok().map(|wanted| *wanted)
    }

    /// Says that the sampler works by the settings of that number.
    pub(crate) fn set_applied(&self, number: u64) {
        self.applied_number.store(number, Ordering::Release);
    }

    /// Number of the latest question for stacks; 0 before the first.
    pub(crate) fn stacks_asked(&self) -> u64 {
        self.stacks_number.load(Ordering::Acquire)
    }

    /// Sleeps until a time of the monotonic clock, or until [`Control::wake`].
    pub(crate) fn sleep_until(&self, until_ns: u64) {
        let nanoseconds = until_ns.saturating_sub(monotonic_ns());
        if nanoseconds > 0 {
            thread::park_timeout(Duration::from_nanos(nanoseconds));
        }
    }

    /// Whether the sampler looks, or will as soon as it can.
    pub(crate) fn is_enabled(&self) -> bool {
        lock(&self.wanted).settings.enabled
    }
}

/// The shipper's side.
#[cfg(feature = "ship")]
impl Control {
    /// Asks for changed settings; `revision` is the collector's name for them.
    pub(crate) fn change(&self, revision: u64, change: profiler_core::SettingsChange) {
        let mut wanted = lock(&self.wanted);
        wanted.settings = wanted.settings.with(change);
        wanted.revision = revision;
        wanted.number += 1;
        self.wanted_number.store(wanted.number, Ordering::Release);
        drop(wanted);
        self.wake();
    }

    /// Asks for the stacks of the moment; gives the question's number.
    pub(crate) fn ask_stacks(&self) -> u64 {
        let number = self.stacks_number.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        number
    }

    /// The settings that were asked for last, and whether the sampler works by them.
    pub(crate) fn wanted(&self) -> (Wanted, bool) {
        let wanted = *lock(&self.wanted);
        (wanted, self.applied_number.load(Ordering::Acquire) == wanted.number)
    }
}

#[cfg(all(test, feature = "ship"))]
mod tests {
    use std::sync::Arc;

    use profiler_core::{SettingsChange, StateSet};

    use super::*;

    const SETTINGS: Settings =
        Settings { interval_ns: 10_000_000, enabled: true, states: StateSet::ALL };

    #[test]
    fn settings_count_as_applied_when_the_sampler_says_so() {
        let control = Control::new(SETTINGS);
        assert!(control.newer_than(0).is_none());
        assert!(control.wanted().1, "what it starts with is applied");
        let off = SettingsChange { enabled: Some(false), ..Default::default() };
        control.change(7, off);
        let slow = SettingsChange { interval_ns: Some(50_000_000), ..Default::default() };
        control.change(9, slow);
        let wanted = control.newer_than(0).unwrap();
        assert_eq!((wanted.number, wanted.revision), (2, 9));
        assert_eq!(wanted.settings, SETTINGS.with(off).with(slow));
        assert!(!control.wanted().1);
        control.set_applied(1);
        assert!(!control.wanted().1, "an older change is not the latest");
        control.set_applied(wanted.number);
        assert!(control.wanted().1 && control.newer_than(wanted.number).is_none());
    }

    #[test]
    fn the_sampler_does_not_wait_for_the_lock() {
        let control = Control::new(SETTINGS);
        control.change(1, SettingsChange::default());
        let held = control.wanted.lock().unwrap();
        assert!(control.newer_than(0).is_none());
        drop(held);
        assert!(control.newer_than(0).is_some());
    }

    #[test]
    fn a_question_wakes_a_sampler_that_sleeps_for_good() {
        let control = Arc::new(Control::new(SETTINGS));
        let (tell, told) = std::sync::mpsc::channel();
        let sampler = {
            let control = control.clone();
            thread::spawn(move || {
                control.start(SamplerMode::Full);
                tell.send(()).unwrap();
                while control.stacks_asked() == 0 {
                    control.sleep_until(u64::MAX);
                }
            })
        };
        told.recv().unwrap();
        assert_eq!(control.ask_stacks(), 1);
        sampler.join().unwrap();
        assert_eq!(control.mode(), SamplerMode::Full);
    }
}
