//! Phases of tasks that are longer than any task waits: an invalid time of a queued message makes such.

use std::sync::atomic::Ordering;

use profiler_core::{PhaseInterval, WorkerId};

use crate::CollectorState;
use base::limits::{BEHIND_MAX, nanoseconds};
use base::log_limit::{Admitted, LineLimit};
use store::rows::CheckedFlush;

/// Any agent can cause these lines.
static CUT: LineLimit = LineLimit::new();

impl CollectorState {
    /// Cuts phases that begin over [`BEHIND_MAX`] before their task, and sums that are longer. Counts and logs them.
    pub(super) fn cut_phases(&self, worker: &WorkerId, flush: &mut CheckedFlush) {
        let mut phases = 0;
        for detail in flush
            .tasks
            .iter_mut()
            .filter_map(|task| task.detail.as_mut())
        {
            for phase in &mut detail.phases {
                phases += u64::from(cut_start(phase));
            }
        }
        for phase in flush.totals.iter_mut().flat_map(|sum| &mut sum.phases) {
            phases += u64::from(cut_sum(phase));
        }
        if phases == 0 {
            return;
        }
        self.cut_phases.fetch_add(phases, Ordering::Relaxed);
        if let Some(Admitted { suppressed }) = CUT.admit() {
            // Logged as a string, so that the log escapes a name that comes from outside.
            let worker = &*worker.0;
            let days_max = BEHIND_MAX.as_secs() / 86_400;
            tracing::warn!(
                worker,
                phases,
                days_max,
                suppressed,
                "too long phases of tasks were cut"
            );
        }
    }
}

/// Moves the start of a phase to the earliest one that is plausible.
fn cut_start(phase: &mut PhaseInterval) -> bool {
    let earliest_ns = -nanoseconds(BEHIND_MAX);
    if phase.start_ns >= earliest_ns {
        return false;
    }
    let removed_ns = earliest_ns.abs_diff(phase.start_ns);
    phase.start_ns = earliest_ns;
    phase.duration_ns = phase.duration_ns.saturating_sub(removed_ns);
    true
}

/// Cuts a sum of phases, which has no start.
fn cut_sum(phase: &mut PhaseInterval) -> bool {
    let longest_ns = nanoseconds(BEHIND_MAX)
        .unsigned_abs()
        .saturating_mul(phase.count.max(1).into());
    let is_longer = phase.duration_ns > longest_ns;
    phase.duration_ns = phase.duration_ns.min(longest_ns);
    is_longer
}
