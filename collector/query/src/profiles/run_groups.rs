//! Runs as groups of time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use profiler_core::hash::KeyedMap;
use profiler_core::{TimeRange, Timestamp, WorkerId};

use crate::QueryError;
use crate::profiles::group_by::NO_VALUE;
use crate::table_reader::TableReader;
use base::limits::GROUPS_MAX;
use base::sync::read;
use state::CollectorState;
use store::{Second, Tier};

/// The runs of a range: a second is in the run that covers it and started last. The time of an imported profile is in
/// its own run, whenever that was.
pub(crate) struct RunGroups {
    /// Group 0 is the time outside of runs.
    names: Vec<String>,
    /// When the run changes, and the group from there on.
    changes: Vec<(Second, usize)>,
    imports: KeyedMap<WorkerId, usize>,
    /// Periods that begin earlier have data from here on only.
    first: Second,
}

impl RunGroups {
    /// The runs that overlap `range`. Plans the reader's seconds so that each period is in one run.
    ///
    /// # Errors
    /// If there are too many runs, or the detail that tells them apart is no longer retained.
    pub(crate) fn plan(
        state: &CollectorState,
        range: TimeRange,
        stored: &mut TableReader<'_>,
        coarsest: Tier,
    ) -> Result<RunGroups, QueryError> {
        let mut groups = RunGroups {
            names: vec![NO_VALUE.to_owned()],
            changes: Vec::new(),
            imports: KeyedMap::default(),
            first: stored.first_second(),
        };
        let asked = Second::starting_in(range);
        let mut spans: Vec<(Timestamp, Range<Second>, usize)> = Vec::new();
        let telemetry = read(&state.telemetry);
        for row in telemetry.runs().all() {
            let seconds = Second::starting_in(row.range(range.stop()));
            let import = row.worker.as_ref().filter(|worker| worker.is_import());
            let is_asked = seconds.start < asked.end && asked.start < seconds.end;
            if !is_asked && import.is_none() {
                continue;
            }
            let group = groups.names.len();
            groups.names.push(format!("{}@{}", row.run.name, row.id()));
            match import {
                Some(worker) => drop(groups.imports.insert(worker.clone(), group)),
                None => spans.push((row.run.start, seconds, group)),
            }
        }
        drop(telemetry);
        if groups.names.len() > GROUPS_MAX {
            return Err(QueryError::LabelGroups {
                labels: vec!["run".to_owned()],
                count: groups.names.len(),
                limit: GROUPS_MAX,
            });
        }
        groups.changes = changes(spans);
        if !groups.split(stored, coarsest) {
            return Err(QueryError::RunsExpired);
        }
        Ok(groups)
    }

    /// Plans the reader's seconds again, in other periods. Returns whether they are still retained.
    pub(crate) fn split(&self, stored: &mut TableReader<'_>, coarsest: Tier) -> bool {
        let cuts: Vec<Second> = self.changes.iter().map(|(second, _)| *second).collect();
        stored.split(&cuts, coarsest)
    }

    pub(crate) fn take_names(&mut self) -> Vec<String> {
        std::mem::take(&mut self.names)
    }

    /// The group of a worker whose time is in one run.
    pub(crate) fn of_import(&self, worker: &WorkerId) -> usize {
        self.imports.get(worker).copied().unwrap_or(0)
    }

    /// The group of the other workers' time in a period.
    pub(crate) fn at(&self, start: Timestamp) -> usize {
        let second = Second::of(start).max(self.first);
        let after = self.changes.partition_point(|(from, _)| *from <= second);
        after.checked_sub(1).map_or(0, |at| self.changes[at].1)
    }
}

/// When the newest of the runs that are open changes, in the order of time.
fn changes(spans: Vec<(Timestamp, Range<Second>, usize)>) -> Vec<(Second, usize)> {
    let mut events: BTreeMap<Second, Vec<(bool, Timestamp, usize)>> = BTreeMap::new();
    for (start, seconds, group) in spans {
        events
            .entry(seconds.start)
            .or_default()
            .push((true, start, group));
        events
            .entry(seconds.end)
            .or_default()
            .push((false, start, group));
    }
    let mut open: BTreeSet<(Timestamp, usize)> = BTreeSet::new();
    let mut changes: Vec<(Second, usize)> = Vec::new();
    for (second, events) in events {
        for (opens, start, group) in events {
            if opens {
                open.insert((start, group));
            } else {
                open.remove(&(start, group));
            }
        }
        let newest = open.last().map_or(0, |(_, group)| *group);
        if changes.last().is_none_or(|(_, last)| *last != newest) {
            changes.push((second, newest));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_in_the_run_that_covers_it_and_started_last() {
        let span = |from: u32, to: u32, group| {
            let start = Timestamp::from_unix_ns(i64::from(from) * 1_000_000_000);
            (start, Second(from)..Second(to), group)
        };
        let spans = vec![
            span(10, 50, 1),
            span(20, 30, 2),
            span(25, 40, 3),
            span(60, 60, 4),
        ];
        let found: Vec<(u32, usize)> = changes(spans)
            .into_iter()
            .map(|(second, group)| (second.0, group))
            .collect();
        assert_eq!(found, [(10, 1), (20, 2), (25, 3), (40, 1), (50, 0)]);
    }
}
