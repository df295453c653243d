//! Progress of tasks, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profiler_core::{Epoch, Outcome, TimeRange, Timestamp, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::parameters::parameter::Parameters;
use crate::parameters::params::{LABEL, Params, TASK, WORKER, known_tasks, known_workers};
use crate::parameters::range::{RANGE, asked_range};
use crate::table_reader::Cancel;
use crate::tasks::TaskQuery;
use base::limits::{AHEAD_MAX, PROGRESS_STARTS_MAX, nanoseconds};
use base::sync::{lock, read};
use state::CollectorState;
use state::ledger::{OutcomeCounts, TaskFilter};
use state::session::{Presence, SessionCell};
use store::Second;
use store::rows::{ExpectedRow, Names};

/// A query for progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgressQuery {
    now: Timestamp,
    /// `None`: each name counts from when it was first expected.
    given: Option<TimeRange>,
    /// The given range or the last five minutes, for names without expected tasks.
    range: TimeRange,
    /// Empty for all.
    tasks: Names,
    workers: Names,
}

impl ProgressQuery {
    pub const PARAMETERS: Parameters = &[&RANGE, &[TASK, WORKER, LABEL]];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<ProgressQuery, QueryError> {
        let params = Params::of(pairs, ProgressQuery::PARAMETERS)?;
        let (range, given) = asked_range(&params, state, now)?;
        let expected = read(&state.telemetry).expected();
        let asked = params.many("task")?;
        // Expected tasks need not have started.
        let tasks = if asked
            .iter()
            .all(|name: &&str| expected.iter().any(|row| *row.expected.name == **name))
        {
            asked.into_iter().map(str::to_owned).collect()
        } else {
            known_tasks(&params, state)?
        };
        let workers = known_workers(&params, state)?;
        Ok(ProgressQuery {
            now,
            given: given.then_some(range),
            range,
            tasks,
            workers,
        })
    }
}

/// The tasks of one name.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgressRow {
    pub name: Arc<str>,
    pub expected: Option<u64>,
    pub running: u64,
    pub outcomes: OutcomeCounts,
    /// The start of the count.
    pub start: Timestamp,
    /// From the start to now or to the range's end.
    pub elapsed_ns: u64,
}

impl ProgressRow {
    /// The number of ended tasks.
    pub fn ended(&self) -> u64 {
        let ended = Outcome::ALL
            .into_iter()
            .filter(|outcome| *outcome != Outcome::Running);
        ended.fold(0, |sum: u64, outcome| {
            sum.saturating_add(self.outcomes.get(outcome))
        })
    }

    /// The number of failed tasks.
    pub fn failed(&self) -> u64 {
        self.outcomes
            .get(Outcome::Failed)
            .saturating_add(self.outcomes.get(Outcome::Panicked))
    }

    /// Ended tasks per second; `None` before the first.
    #[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
    pub fn rate_per_s(&self) -> Option<f64> {
        let is_known = self.ended() > 0 && self.elapsed_ns > 0;
        is_known.then(|| self.ended() as f64 * 1e9 / self.elapsed_ns as f64)
    }

    /// The time for the remaining tasks at that rate; `None` if unknown.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is an estimate, and never negative"
    )]
    pub fn remaining_ns(&self) -> Option<u64> {
        let rest = self.expected?.saturating_sub(self.ended());
        if rest == 0 {
            return Some(0);
        }
        Some((rest as f64 * 1e9 / self.rate_per_s()?) as u64)
    }

    pub fn state(&self) -> &'static str {
        let is_done = match self.expected {
            Some(expected) => self.ended() >= expected,
            None => self.running == 0,
        };
        match (self.failed(), is_done) {
            (1.., _) => "failed",
            (0, true) => "done",
            (0, false) => "running",
        }
    }
}

/// Progress by name.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgressAnswer {
    pub now: Timestamp,
    pub rows: Vec<ProgressRow>,
    /// Number of names that are not counted, because too many start at different times.
    pub omitted: u64,
    pub damaged: Vec<String>,
}

/// The number of expected tasks of a name, and since when.
#[derive(Clone, Debug)]
struct Total {
    expected: u64,
    since: Timestamp,
    /// Lives of workers whose expectation is not in this sum, so their tasks do not count either.
    ignored: BTreeSet<(WorkerId, Epoch)>,
}

/// The sums of `counted` by name. `ignored` are the other expectations.
fn totals_of(counted: Vec<ExpectedRow>, ignored: Vec<ExpectedRow>) -> BTreeMap<Arc<str>, Total> {
    let mut totals: BTreeMap<Arc<str>, Total> = BTreeMap::new();
    for ExpectedRow { expected, .. } in counted {
        let new = Total {
            expected: 0,
            since: expected.since,
            ignored: BTreeSet::new(),
        };
        let total = totals.entry(expected.name.clone()).or_insert(new);
        total.expected = total.expected.saturating_add(expected.total);
        total.since = total.since.min(expected.since);
    }
    for ExpectedRow {
        worker,
        epoch,
        expected,
    } in ignored
    {
        if let Some(total) = totals.get_mut(&expected.name) {
            total.ignored.insert((worker, epoch));
        }
    }
    totals
}

/// By name, the number of running tasks and the outcomes of the others.
type Counts = BTreeMap<Arc<str>, (u64, OutcomeCounts)>;

/// Adds names without tasks.
fn note_all<'n>(counts: &mut Counts, names: impl IntoIterator<Item = &'n Arc<str>>) {
    for name in names {
        counts.entry(name.clone()).or_default();
    }
}

/// An answer in progress.
struct Rows<'a> {
    now: Timestamp,
    cancel: &'a Cancel,
    rows: Vec<ProgressRow>,
    omitted: u64,
    damaged: Vec<String>,
}

impl Rows<'_> {
    /// Adds counts; `total_of` returns the number of expected tasks of a name and the start of its
    /// count.
    fn add(
        &mut self,
        counts: Counts,
        total_of: impl Fn(&Arc<str>) -> (Option<u64>, Timestamp),
        stop: Timestamp,
    ) {
        for (name, (running, outcomes)) in counts {
            let (expected, start) = total_of(&name);
            let elapsed_ns = self.now.min(stop).since_ns(start);
            self.rows.push(ProgressRow {
                name,
                expected,
                running,
                outcomes,
                start,
                elapsed_ns,
            });
        }
    }
}

impl Queries<'_> {
    /// Counts tasks since they were first expected, or in the given range. Exact, except for a
    /// start in a time whose seconds have expired.
    pub fn progress(
        &self,
        query: &ProgressQuery,
        cancel: &Cancel,
    ) -> Result<ProgressAnswer, QueryError> {
        let mut rows = Rows {
            now: query.now,
            cancel,
            rows: Vec::new(),
            omitted: 0,
            damaged: Vec::new(),
        };
        match query.given {
            Some(range) => self.progress_in(range, query, &mut rows)?,
            None => {
                let totals = self.expected_totals(query);
                let range = query.range;
                let mut others = self.counts_in(range, query, &query.tasks, &mut rows)?;
                others.retain(|name, _| !totals.contains_key(name));
                rows.add(others, |_| (None, range.start()), range.stop());
                self.progress_since(query, &totals, &mut rows)?;
            }
        }
        let Rows {
            now,
            mut rows,
            omitted,
            mut damaged,
            ..
        } = rows;
        damaged.sort_unstable();
        damaged.dedup();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(ProgressAnswer {
            now,
            rows,
            omitted,
            damaged,
        })
    }

    /// Counts a given range, with the expected tasks of every life in it. Lives whose tasks were expected
    /// before it are ignored for that name.
    fn progress_in(
        &self,
        range: TimeRange,
        query: &ProgressQuery,
        rows: &mut Rows<'_>,
    ) -> Result<(), QueryError> {
        let (inside, outside) = self
            .expected_rows(query)
            .into_iter()
            .partition(|row: &ExpectedRow| range.contains(row.expected.since));
        let mut totals = totals_of(inside, outside);
        // Tasks count from the start of the range, also before they were expected.
        totals
            .values_mut()
            .for_each(|total| total.since = range.start());
        let mut counts = self.counts_in(range, query, &query.tasks, rows)?;
        note_all(&mut counts, totals.keys());
        let seconds = Second::starting_in(range);
        if let Some(whole) = TimeRange::new(seconds.start.start(), seconds.end.start()) {
            self.subtract_ignored(whole, &totals, &mut counts, rows.cancel)?;
        }
        let expected = |name: &Arc<str>| totals.get(name).map(|total| total.expected);
        rows.add(counts, |name| (expected(name), range.start()), range.stop());
        Ok(())
    }

    /// Counts each name since it was first expected: whole seconds in one count for all names with
    /// the same first second, and the partial second row by row.
    fn progress_since(
        &self,
        query: &ProgressQuery,
        totals: &BTreeMap<Arc<str>, Total>,
        rows: &mut Rows<'_>,
    ) -> Result<(), QueryError> {
        let mut starts: BTreeMap<Second, Vec<Arc<str>>> = BTreeMap::new();
        for (name, total) in totals {
            let second = Second::of(total.since.shifted(999_999_999));
            starts.entry(second).or_default().push(name.clone());
        }
        // Each start takes a count of its own. One worker with many must not deny others theirs.
        while starts.len() > PROGRESS_STARTS_MAX
            && let Some((_, oldest)) = starts.pop_first()
        {
            rows.omitted += oldest.len() as u64;
        }
        // Ends may come from a clock that is slightly ahead.
        let end = query.now.shifted(nanoseconds(AHEAD_MAX));
        for (second, names) in starts {
            let start = second.start();
            let whole = TimeRange::new(start, end.max(start.shifted(1)))
                .expect("its end is later than its start");
            let given: Vec<String> = names.iter().map(ToString::to_string).collect();
            let mut counts = self.counts_in(whole, query, &given, rows)?;
            counts.retain(|name, _| totals.contains_key(name));
            note_all(&mut counts, &names);
            self.add_first_second(query, second, totals, &mut counts, rows.cancel)?;
            let since = names
                .iter()
                .map(|name| totals[name].since)
                .min()
                .unwrap_or(start);
            if let Some(all) = TimeRange::new(since, whole.stop()) {
                self.subtract_ignored(all, totals, &mut counts, rows.cancel)?;
            }
            rows.add(
                counts,
                |name: &Arc<str>| {
                    let total = &totals[name];
                    (Some(total.expected), total.since)
                },
                end,
            );
        }
        Ok(())
    }

    /// The expected tasks of the requested names, of every life of the workers.
    fn expected_rows(&self, query: &ProgressQuery) -> Vec<ExpectedRow> {
        let mut rows = read(&self.telemetry).expected();
        rows.retain(|row: &ExpectedRow| {
            query.tasks.keeps(&row.expected.name) && query.workers.keeps(&row.worker.0)
        });
        rows
    }

    /// The expected tasks of the requested names. For a restarted worker, those of its new epoch.
    fn expected_totals(&self, query: &ProgressQuery) -> BTreeMap<Arc<str>, Total> {
        let mut lives: BTreeMap<(Arc<str>, WorkerId), Vec<ExpectedRow>> = BTreeMap::new();
        for row in self.expected_rows(query) {
            let key = (row.expected.name.clone(), row.worker.clone());
            lives.entry(key).or_default().push(row);
        }
        let mut newest = Vec::new();
        let mut superseded = Vec::new();
        for ((_, worker), rows) in lives {
            let latest = rows.iter().map(|row| row.expected.since).max();
            let connected = if rows.len() > 1 {
                self.connected_epochs(&worker)
            } else {
                Vec::new()
            };
            let (kept, older): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| {
                Some(row.expected.since) == latest || connected.contains(&row.epoch)
            });
            newest.extend(kept);
            superseded.extend(older);
        }
        totals_of(newest, superseded)
    }

    fn connected_epochs(&self, worker: &WorkerId) -> Vec<Epoch> {
        let sessions = lock(&self.registry).of_worker(worker);
        sessions
            .iter()
            .filter(|cell: &&Arc<SessionCell>| lock(&cell.state).presence == Presence::Connected)
            .map(|cell| cell.epoch)
            .collect()
    }

    /// Counts by name, of the whole seconds of a range.
    fn counts_in(
        &self,
        range: TimeRange,
        query: &ProgressQuery,
        names: &[String],
        rows: &mut Rows<'_>,
    ) -> Result<Counts, QueryError> {
        let tasks = TaskQuery::of_names(range, names.to_vec().into(), query.workers.clone());
        let summary = self.task_summary(&tasks, rows.cancel)?;
        rows.damaged.extend(summary.damaged);
        let counts = summary.rows.into_iter();
        Ok(counts
            .map(|row| (row.name, (row.running, row.outcomes)))
            .collect())
    }

    /// Subtracts the tasks of lives that are ignored, of the counted names, in the counted range. Row by
    /// row, because tables of sums do not name the life; only restarted workers take this.
    fn subtract_ignored(
        &self,
        range: TimeRange,
        totals: &BTreeMap<Arc<str>, Total>,
        counts: &mut Counts,
        cancel: &Cancel,
    ) -> Result<(), QueryError> {
        let mut names = Vec::new();
        let mut workers = BTreeSet::new();
        for name in counts.keys() {
            let Some(total) = totals.get(name).filter(|total| !total.ignored.is_empty()) else {
                continue;
            };
            names.push(name.to_string());
            workers.extend(total.ignored.iter().map(|(worker, _)| worker.to_string()));
        }
        if workers.is_empty() {
            return Ok(());
        }
        let workers = workers.into_iter().collect();
        let filter = TaskFilter {
            names: names.into(),
            workers,
            ..TaskFilter::default()
        };
        self.each_task(range, &filter, cancel, |row| {
            let Some(total) = totals.get(&row.record.name) else {
                return;
            };
            if total.ignored.contains(&(row.worker.clone(), row.epoch))
                && row
                    .record
                    .stop
                    .is_some_and(|stop| range.contains(stop) && total.since <= stop)
                && let Some((_, outcomes)) = counts.get_mut(&row.record.name)
            {
                outcomes.subtract(row.record.outcome, 1);
            }
        })?;
        Ok(())
    }

    /// Adds the tasks that ended between the start of a count and the first whole second after it.
    fn add_first_second(
        &self,
        query: &ProgressQuery,
        second: Second,
        totals: &BTreeMap<Arc<str>, Total>,
        counts: &mut Counts,
        cancel: &Cancel,
    ) -> Result<(), QueryError> {
        let sinces = counts
            .keys()
            .filter_map(|name| Some(totals.get(name)?.since));
        let Some(range) = sinces
            .min()
            .and_then(|since| TimeRange::new(since, second.start()))
        else {
            return Ok(());
        };
        let names = counts.keys().map(ToString::to_string).collect();
        let filter = TaskFilter {
            names,
            workers: query.workers.clone(),
            ..Default::default()
        };
        self.each_task(range, &filter, cancel, |row| {
            let since = totals.get(&row.record.name).map(|total| total.since);
            if row.record.stop.is_some_and(|stop| {
                since.is_some_and(|since| since <= stop) && stop < second.start()
            }) && let Some((_, outcomes)) = counts.get_mut(&row.record.name)
            {
                outcomes.add(row.record.outcome, 1);
            }
        })?;
        Ok(())
    }
}
