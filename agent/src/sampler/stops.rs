//! Times in which no thread of the process ran: it was stopped by a signal or a debugger, or its machine was suspended.

use std::ops::Range;

/// Least time by which a tick is late for a stop. The sampler's own waits for a processor do not count.
const STOP_MIN_NS: u64 = 200_000_000;

/// Finds stops by ticks that are late although the sampler did not wait for a processor.
#[derive(Debug, Default)]
pub(super) struct Stops {
    /// How long the sampler's thread had waited for processors when that was last read; `None` before.
    delay_ns: Option<u64>,
}

impl Stops {
    /// Whether a tick that was due at `due_ns` is so late that [`Stops::find`] is needed.
    pub(super) fn may_be_after(due_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(due_ns) >= STOP_MIN_NS
    }

    /// Sets how long the sampler's thread has waited for processors.
    pub(super) fn set_delay(&mut self, delay_ns: Option<u64>) {
        self.delay_ns = delay_ns;
    }

    /// The stop before a late tick, if there was one. `delay_ns` is how long the sampler's thread has waited for
    /// processors; `None` if the kernel does not count that: then nothing tells a stop from a wait.
    pub(super) fn find(
        &self,
        due_ns: u64,
        now_ns: u64,
        delay_ns: Option<u64>,
    ) -> Option<Range<u64>> {
        let waited_ns = delay_ns?.saturating_sub(self.delay_ns?);
        let stopped_ns = now_ns.saturating_sub(due_ns).saturating_sub(waited_ns);
        (stopped_ns >= STOP_MIN_NS).then(|| due_ns..due_ns + stopped_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_is_a_stop_unless_the_sampler_waited_for_a_processor() {
        const SECOND: u64 = 1_000_000_000;
        let mut stops = Stops::default();
        assert!(!Stops::may_be_after(
            10 * SECOND,
            10 * SECOND + STOP_MIN_NS - 1
        ));
        assert!(Stops::may_be_after(10 * SECOND, 12 * SECOND));
        assert_eq!(
            stops.find(10 * SECOND, 12 * SECOND, Some(SECOND)),
            None,
            "nothing was read"
        );
        stops.set_delay(Some(SECOND));
        for (delay_ns, expected) in [
            (Some(SECOND), Some(10 * SECOND..12 * SECOND)),
            (
                Some(SECOND + SECOND / 2),
                Some(10 * SECOND..12 * SECOND - SECOND / 2),
            ),
            (Some(3 * SECOND), None),
            (None, None),
        ] {
            assert_eq!(
                stops.find(10 * SECOND, 12 * SECOND, delay_ns),
                expected,
                "{delay_ns:?}"
            );
        }
    }
}
