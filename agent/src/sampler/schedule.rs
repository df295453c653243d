//! When the next tick is due, by settings that may change while the sampler runs; and the state of
//! a requested thread dump.
//!
//! A change takes effect at a tick, right after the cycle was sealed: so each cycle has one quantum
//! and one set of states, and its count of due ticks is exact. While sampling is off, no thread is
//! known, so none is probed and no time counts; switching it on starts afresh.

use profiler_core::Settings;

use ship::control::{Control, DesiredSettings};

/// While a request is open, the next tick comes this soon: even at long intervals a reply takes
/// only two of these.
const SOON_NS: u64 = 10_000_000;

/// The time of a tick and of the one before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickTimes {
    pub(super) now_ns: u64,
    pub(super) last_ns: u64,
}

impl TickTimes {
    /// The best guess for something that happened since the last tick.
    pub(super) fn between_ns(self) -> u64 {
        self.last_ns + self.now_ns.saturating_sub(self.last_ns) / 2
    }
}

/// When ticks are due, and what has been applied of the [`Control`]'s requests.
pub(super) struct Schedule {
    pub(super) settings: Settings,
    /// Number of these settings.
    number: u64,
    /// Number of the last dump request that was answered or given up.
    pub(super) answered: u64,
    /// A dump request for which all threads are being probed.
    dump_in_progress: Option<u64>,
    /// When the next regular tick is due; not used while sampling is off.
    due_ns: u64,
    /// Regular ticks that came due since the last tick.
    pub(super) passed: u64,
    /// Ticks to skip before the next regular one, to stay within the CPU limit.
    pub(super) throttled: u64,
}

impl Schedule {
    pub(super) fn new(settings: Settings, now: u64) -> Schedule {
        Schedule {
            settings,
            number: 0,
            answered: 0,
            dump_in_progress: None,
            due_ns: now + settings.interval_ns,
            passed: 0,
            throttled: 0,
        }
    }

    /// Skips the next ticks; they count as due when the one after them is.
    pub(super) fn skip(&mut self, ticks: u64) {
        self.due_ns += ticks * self.settings.interval_ns;
        self.throttled = ticks;
    }

    /// Counts the regular ticks that have come due. After a late tick the missed ones are skipped:
    /// the delay becomes weight, not a burst of ticks.
    pub(super) fn pass(&mut self, now: u64) {
        let late_ns = now.checked_sub(self.due_ns);
        self.passed = late_ns.map_or(0, |late_ns| 1 + late_ns / self.settings.interval_ns);
        self.due_ns += self.passed * self.settings.interval_ns;
    }

    /// When the next tick should run, after one at `last_tick_ns`.
    pub(super) fn next_tick_ns(&self, control: &Control, last_tick_ns: u64) -> u64 {
        let requested =
            self.new_settings(control).is_some() || control.dump_requested() != self.answered;
        if requested {
            self.due_ns.min(last_tick_ns + SOON_NS)
        } else {
            self.due_ns
        }
    }

    /// Settings that are newer than these.
    pub(super) fn new_settings(&self, control: &Control) -> Option<DesiredSettings> {
        control.newer_than(self.number)
    }

    /// Uses new settings from `now` on.
    pub(super) fn apply(&mut self, desired: DesiredSettings, now: u64) {
        self.settings = desired.settings;
        self.number = desired.number;
        self.due_ns = now + desired.settings.interval_ns;
    }

    /// Whether a dump will be sent with this tick's cycle.
    pub(super) fn is_dump_in_progress(&self) -> bool {
        self.dump_in_progress.is_some()
    }

    /// Whether this tick begins to answer a dump request.
    pub(super) fn dump_begins(&self, control: &Control) -> bool {
        self.dump_in_progress.is_none() && control.dump_requested() != self.answered
    }

    /// The number of the dump request to answer at this tick: all threads were probed since it was
    /// made.
    pub(super) fn dump_due(&mut self, control: &Control) -> Option<u64> {
        let requested = control.dump_requested();
        if self.dump_in_progress.is_none() && requested != self.answered {
            // Running threads that this tick asks answer by the next tick.
            self.dump_in_progress = Some(requested);
            return None;
        }
        self.dump_in_progress
    }

    /// The dump of this request went out with a cycle.
    pub(super) fn dump_sent(&mut self, request: u64) {
        self.dump_in_progress = None;
        self.answered = request;
    }

    /// Cancels the dump in progress.
    pub(super) fn cancel_dump(&mut self) {
        self.dump_in_progress = None;
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::StateSet;

    use super::*;

    #[test]
    fn late_and_early_ticks_are_counted_by_what_was_due() {
        let settings = Settings {
            interval_ns: 10,
            enabled: true,
            states: StateSet::ALL,
        };
        let mut schedule = Schedule::new(settings, 100);
        for (now, passed, due_ns) in [
            (110, 1, 120),
            (119, 0, 120),
            (125, 1, 130),
            (155, 3, 160),
            (155, 0, 160),
        ] {
            schedule.pass(now);
            assert_eq!(
                (schedule.passed, schedule.due_ns),
                (passed, due_ns),
                "at {now}"
            );
        }
    }
}
