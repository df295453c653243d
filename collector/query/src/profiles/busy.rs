//! The periods in which some tasks or threads have time, found from days down to seconds: each tier is read only where the
//! coarser one has time, so that a query by second costs by its answer and not by its range.

use std::collections::BTreeMap;
use std::ops::Range;

use profiler_core::Timestamp;

use crate::QueryError;
use crate::profiles::step_sums::StepScan;
use crate::table_reader::TableReader;
use state::windows::WindowSnapshot;
use store::{Second, Tier};

/// Starts of periods and their lengths in nanoseconds.
#[derive(Default)]
pub(crate) struct BusyPeriods(BTreeMap<Timestamp, u64>);

impl BusyPeriods {
    pub(crate) fn add(&mut self, start: Timestamp, length_ns: u64) {
        let known = self.0.entry(start).or_default();
        *known = length_ns.max(*known);
    }

    pub(crate) fn has(&self, start: Timestamp) -> bool {
        self.0.contains_key(&start)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The seconds that they cover, ascending.
    fn spans(&self) -> Vec<Range<Second>> {
        let of = |(start, length_ns): (&Timestamp, &u64)| {
            let stop = start.shifted(length_ns.cast_signed());
            Second::of(*start)..Second::of(stop)
        };
        self.0.iter().map(of).collect()
    }
}

/// Calls `read` with a plan of each tier, from the coarsest, without the periods that the one before did not find
/// busy. Returns those that it found in the last, which is by second where seconds are retained; the reader keeps the
/// plan for these alone.
pub(crate) fn busy_in_tables(
    stored: &mut TableReader<'_>,
    mut read: impl FnMut(&mut TableReader<'_>) -> Result<BusyPeriods, QueryError>,
) -> Result<BusyPeriods, QueryError> {
    let finest = stored.plan.clone();
    let mut spans: Option<Vec<Range<Second>>> = None;
    let coarser = Tier::ALL.into_iter().rev();
    for tier in coarser.filter(|tier| *tier > Tier::Second) {
        if stored.refine(tier, spans.as_deref()) {
            spans = Some(read(stored)?.spans());
        }
    }
    stored.narrow(&finest, spans.as_deref());
    let found = read(stored)?;
    stored.narrow(&finest, Some(&found.spans()));
    Ok(found)
}

/// The seconds in which the tasks of a scan have time.
///
/// # Errors
/// If they are more than `limit`, before finer tiers are read.
pub(crate) fn busy_seconds(
    scan: StepScan<'_>,
    stored: &mut TableReader<'_>,
    view: &WindowSnapshot,
    limit: usize,
) -> Result<BusyPeriods, QueryError> {
    let mut unsealed = BusyPeriods::default();
    scan.visit_windows(&view.windows, &mut |cell, _| {
        unsealed.add(cell.start, cell.period_ns);
    });
    check_count(&unsealed, limit)?;
    let mut found = busy_in_tables(stored, |stored| {
        let mut found = BusyPeriods::default();
        scan.visit_stored(stored, &mut |cell, _| found.add(cell.start, cell.period_ns))?;
        check_count(&found, limit)?;
        Ok(found)
    })?;
    for (start, length_ns) in unsealed.0 {
        found.add(start, length_ns);
    }
    check_count(&found, limit)?;
    Ok(found)
}

/// Each busy period has a busy second at least.
pub(crate) fn check_count(found: &BusyPeriods, limit: usize) -> Result<(), QueryError> {
    if found.count() > limit {
        return Err(QueryError::Seconds { limit });
    }
    Ok(())
}
