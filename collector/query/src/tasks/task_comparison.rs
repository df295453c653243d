//! Durations and failures of task names on two sides, and whether they differ by more than noise.

mod listed;

pub use listed::{EndedTask, EndedTasksOf, compare_ended_tasks};

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use api::{DurationChange, FailureChange, NameComparison, TaskStatistics};
use profiler_core::{TimeRange, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::by_name::ByName;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::{LABEL, Params, TASK, WORKER, known_tasks, known_workers};
use crate::parameters::range::{RANGE, asked_range};
use crate::significance::{Evidence, Levels, Share, Significance};
use crate::table_reader::Cancel;
use crate::tasks::ended_each::{EndedGroup, EndedTasks};
use crate::tasks::limit_to;
use crate::tasks::task_durations::{QUANTILES, quantiles_ns};
use base::limits::{COMPARED_NAMES_DEFAULT, COMPARED_SLICES, LEDGER_NAMES_MAX};
use state::CollectorState;
use state::ledger::{DurationHistogram, TaskFilter};
use store::Tier;

/// Smaller changes of a quantile are never reported: buckets are 0.1 % wide, and nobody acts on less.
const CHANGE_MIN: f64 = 0.01;

/// Fewest periods of a table in a slice, so that slices have about the same length.
const SLICE_PERIODS_MIN: u64 = 4;

/// Prefix of the parameters of the side before.
const BEFORE: &str = "before_";

const SIDE_FILTERS: [Parameter; 3] = [TASK, WORKER, LABEL];

/// The parameters of one side.
const SIDE: Parameters = &[&RANGE, &SIDE_FILTERS];

/// The same for the side before, by [`BEFORE`].
const SIDE_BEFORE: [Parameter; 6] = [
    Parameter::time(
        "before_from",
        "-10m",
        "Start of the range before. Default: the equal time right before.",
    ),
    Parameter::time("before_to", "-1m", "End of the range before."),
    Parameter::text("before_run", "nightly", "A named run as the range before."),
    Parameter::text(
        "before_task",
        "load",
        "Names of tasks before. Default: all.",
    )
    .repeated(),
    Parameter::text(
        "before_worker",
        "w-1",
        "Ids of workers before. Default: all.",
    )
    .repeated(),
    Parameter::text("before_label", "zone=a", "Labels of workers before.").repeated(),
];

/// The tasks of one side.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Side {
    range: TimeRange,
    filter: TaskFilter,
}

impl Side {
    /// The side of these parameters, and whether they have a range.
    fn parse(
        params: &Params<'_>,
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<(Side, bool), QueryError> {
        let (range, given) = asked_range(params, state, now)?;
        let filter = TaskFilter {
            names: known_tasks(params, state)?,
            workers: known_workers(params, state)?,
            ..TaskFilter::default()
        };
        Ok((Side { range, filter }, given))
    }

    /// The same tasks in the time of equal length right before.
    fn earlier(&self) -> Side {
        let length_ns = i64::try_from(self.range.length_ns()).unwrap_or(i64::MAX);
        let start = self.range.start();
        let range = TimeRange::new(start.shifted(-length_ns), start).unwrap_or(self.range);
        Side {
            range,
            filter: self.filter.clone(),
        }
    }

    fn ended<'a>(&'a self, state: &'a CollectorState, cancel: &'a Cancel) -> EndedTasks<'a> {
        EndedTasks::of(state, self.range, &self.filter, self.coarsest(), cancel)
    }

    /// The coarsest tier whose periods make slices.
    fn coarsest(&self) -> Tier {
        let slice_s = self.range.length_ns() / 1_000_000_000 / COMPARED_SLICES as u64;
        Tier::ALL
            .into_iter()
            .rev()
            .find(|tier: &Tier| u64::from(tier.seconds()) * SLICE_PERIODS_MIN <= slice_s)
            .unwrap_or(Tier::Second)
    }
}

/// A query for a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskComparisonQuery {
    before: Side,
    after: Side,
    limit: usize,
}

impl TaskComparisonQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &SIDE_FILTERS,
        &SIDE_BEFORE,
        &[Parameter::integer(
            "limit",
            1..=LEDGER_NAMES_MAX,
            Some(COMPARED_NAMES_DEFAULT),
            "20",
            "Most names.",
        )],
    ];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<TaskComparisonQuery, QueryError> {
        let params = Params::of(pairs, TaskComparisonQuery::PARAMETERS)?;
        let (after, _) = Side::parse(&params, state, now)?;
        let before: Vec<(String, String)> = pairs
            .iter()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(BEFORE)?.to_owned(), value.clone()))
            })
            .collect();
        let before = if before.is_empty() {
            after.earlier()
        } else {
            let side =
                Params::of(&before, SIDE).and_then(|params| Side::parse(&params, state, now));
            let (side, given) = side.map_err(|error| QueryError::Before(Box::new(error)))?;
            let range = if given { side.range } else { after.range };
            Side { range, ..side }
        };
        let limit = match params.one("limit")? {
            Some(text) => limit_to(Some(text), LEDGER_NAMES_MAX)?,
            None => COMPARED_NAMES_DEFAULT,
        };
        Ok(TaskComparisonQuery {
            before,
            after,
            limit,
        })
    }
}

/// Names on two sides, those that got slower first.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskComparison {
    pub before: TimeRange,
    pub after: TimeRange,
    /// Number of differences that could have exceeded noise.
    pub tests: usize,
    pub names: Vec<NameComparison>,
    /// Number of names past the limit.
    pub omitted: usize,
    pub damaged: Vec<String>,
}

/// The tasks of one name on one side.
#[derive(Clone, Debug, Default)]
struct SideTasks {
    durations: DurationHistogram,
    ended: u64,
    failed: u64,
    slices: Vec<SliceTasks>,
}

/// Those of one slice of the side's time.
#[derive(Clone, Copy, Debug, Default)]
struct SliceTasks {
    ended: u64,
    failed: u64,
    timed: u64,
    /// Those that took longer than each of [`QUANTILES`] of both sides together.
    slow: [u64; QUANTILES.len()],
}

/// The tasks of one name.
#[derive(Clone, Debug, Default)]
struct NameTasks {
    before: SideTasks,
    after: SideTasks,
    /// The last bucket that is not slow, for each of [`QUANTILES`]; `None` if all durations are in one.
    splits: [Option<u32>; QUANTILES.len()],
}

impl Queries<'_> {
    /// Compares the tasks that ended on two sides, by name.
    pub fn task_comparison(
        &self,
        query: &TaskComparisonQuery,
        cancel: &Cancel,
    ) -> Result<TaskComparison, QueryError> {
        let mut before = query.before.ended(self, cancel);
        let mut after = query.after.ended(self, cancel);
        let mut names = ByName::<NameTasks>::new(self.limits.ledger_names_max);
        loop {
            before.each_in_any_period(|group| {
                names.of(group.name, group.weight_ns()).before.count(&group);
            })?;
            after.each_in_any_period(|group| {
                names.of(group.name, group.weight_ns()).after.count(&group);
            })?;
            if !names.choose() {
                break;
            }
        }
        names.names.values_mut().for_each(NameTasks::split);

        let ranges = [
            before.range(query.before.range),
            after.range(query.after.range),
        ];
        before.each(|group| {
            let NameTasks { before, splits, .. } = names.again(group.name);
            before.count_in_slice(&group, ranges[0], splits);
        })?;
        after.each(|group| {
            let NameTasks { after, splits, .. } = names.again(group.name);
            after.count_in_slice(&group, ranges[1], splits);
        })?;
        let (tests, mut names) = judged(&names);
        let omitted = names.len().saturating_sub(query.limit);
        names.truncate(query.limit);
        let mut damaged = before.damaged();
        damaged.extend(after.damaged());
        damaged.sort_unstable();
        damaged.dedup();
        let [before, after] = ranges;
        Ok(TaskComparison {
            before,
            after,
            tests,
            names,
            omitted,
            damaged,
        })
    }
}

impl SideTasks {
    fn count(&mut self, group: &EndedGroup<'_>) {
        let count = group.count();
        self.ended = self.ended.saturating_add(count);
        if group.is_failure() {
            self.failed = self.failed.saturating_add(count);
        }
        if group.is_timed() {
            self.durations.add_to_buckets(group.counts.iter().copied());
        }
    }

    fn count_in_slice(
        &mut self,
        group: &EndedGroup<'_>,
        range: TimeRange,
        splits: &[Option<u32>; QUANTILES.len()],
    ) {
        let slices = COMPARED_SLICES as u128;
        let elapsed = u128::from(group.at.since_ns(range.start()));
        let index = (elapsed * slices / u128::from(range.length_ns())).min(slices - 1);
        self.slices.resize(COMPARED_SLICES, SliceTasks::default());
        let slice = &mut self.slices[index as usize];
        let count = group.count();
        slice.ended = slice.ended.saturating_add(count);
        if group.is_failure() {
            slice.failed = slice.failed.saturating_add(count);
        }
        if !group.is_timed() {
            return;
        }
        slice.timed = slice.timed.saturating_add(count);
        for (slow, split) in slice.slow.iter_mut().zip(splits) {
            let of_group = group
                .counts
                .iter()
                .filter(|(bucket, _): &&(u32, u64)| split.is_some_and(|split| *bucket > split))
                .map(|(_, count)| count);
            *slow = of_group.fold(*slow, |sum, count| sum.saturating_add(*count));
        }
    }

    fn shares(&self, share: impl Fn(&SliceTasks) -> Share) -> Vec<Share> {
        self.slices.iter().map(share).collect()
    }

    fn statistics(&self) -> TaskStatistics {
        let [p50_ns, p90_ns, p99_ns] = quantiles_ns(&self.durations);
        TaskStatistics {
            ended: self.ended,
            failed: self.failed,
            p50_ns,
            p90_ns,
            p99_ns,
        }
    }
}

impl NameTasks {
    /// Chooses what counts as slow.
    fn split(&mut self) {
        let mut pooled = self.before.durations.clone();
        pooled.absorb(self.after.durations.clone());
        let counts = pooled.counts();
        self.splits = QUANTILES.map(|quantile| split_after(&counts, quantile));
    }

    /// Evidence of its tasks about each of [`QUANTILES`], and about failures.
    fn evidence(&self) -> NameEvidence {
        let [before, after] = [&self.before, &self.after];
        let of_quantile = |at: usize| {
            let slow = |slice: &SliceTasks| Share {
                hits: slice.slow[at],
                total: slice.timed,
            };
            match self.splits[at] {
                Some(_) => Evidence::of(&before.shares(slow), &after.shares(slow)),
                None => Evidence::of_equal(before.durations.count(), after.durations.count()),
            }
        };
        NameEvidence {
            quantiles: [0, 1, 2].map(of_quantile),
            failures: Evidence::of(&before.shares(failed_share), &after.shares(failed_share)),
        }
    }
}

fn failed_share(slice: &SliceTasks) -> Share {
    Share {
        hits: slice.failed,
        total: slice.ended,
    }
}

/// The evidence about one name.
#[derive(Clone, Copy, Debug)]
struct NameEvidence {
    quantiles: [Evidence; QUANTILES.len()],
    failures: Evidence,
}

impl NameEvidence {
    fn all(&self) -> impl Iterator<Item = Evidence> {
        self.quantiles.into_iter().chain([self.failures])
    }
}

/// The last bucket of the lower part of `counts`, cut as close to the quantile as possible. Either part
/// has a bucket at least, so a single duration on each side is a difference too.
fn split_after(counts: &[(u32, u64)], quantile: f64) -> Option<u32> {
    let total: f64 = counts.iter().map(|(_, count)| *count as f64).sum();
    let (_, cuts) = counts.split_last()?;
    let below = cuts.iter().scan(0.0, |sum, (bucket, count)| {
        *sum += *count as f64;
        Some((*bucket, (*sum - quantile * total).abs()))
    });
    below
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(bucket, _)| bucket)
}

/// The number of tests, and all names in order.
fn judged(names: &ByName<NameTasks>) -> (usize, Vec<NameComparison>) {
    let evidence: Vec<NameEvidence> = names.names.values().map(NameTasks::evidence).collect();
    let levels = Levels::of(evidence.iter().flat_map(NameEvidence::all));
    let mut rows: Vec<NameComparison> = names
        .names
        .iter()
        .zip(&evidence)
        .map(|((name, tasks), evidence)| comparison(name, tasks, evidence, &levels))
        .collect();
    rows.sort_by(|a, b| {
        let rank = |row: &NameComparison| rank(&row.verdict, &row.failures.verdict);
        let ended = |row: &NameComparison| Reverse(row.after.ended.max(row.before.ended));
        rank(a)
            .cmp(&rank(b))
            .then_with(|| largest_change(b).total_cmp(&largest_change(a)))
            .then_with(|| ended(a).cmp(&ended(b)))
            .then_with(|| a.name.cmp(&b.name))
    });
    (levels.tests, rows)
}

/// The largest change beyond noise, as a logarithm; 0 if there is none.
fn largest_change(row: &NameComparison) -> f64 {
    let changes = [&row.p50, &row.p90, &row.p99].into_iter();
    let beyond_noise = changes.filter(|one| ["slower", "faster"].contains(&&*one.verdict));
    let sizes = beyond_noise.map(|one| one.ratio.map_or(f64::INFINITY, |ratio| ratio.ln().abs()));
    sizes.fold(0.0, f64::max)
}

/// The place of a row: what got worse first, what has too few tasks last.
fn rank(verdict: &str, failures: &str) -> usize {
    const ORDER: [&str; 7] = [
        "slower",
        "mixed",
        "faster",
        "only_after",
        "only_before",
        "no_change",
        "too_few",
    ];
    let place = ORDER
        .iter()
        .position(|known| *known == verdict)
        .unwrap_or(ORDER.len());
    match failures {
        "more" => place.min(1),
        "fewer" => place.min(2),
        _ => place,
    }
}

fn comparison(
    name: &Arc<str>,
    tasks: &NameTasks,
    evidence: &NameEvidence,
    levels: &Levels,
) -> NameComparison {
    let before = tasks.before.statistics();
    let after = tasks.after.statistics();
    let quantiles = [
        (before.p50_ns, after.p50_ns),
        (before.p90_ns, after.p90_ns),
        (before.p99_ns, after.p99_ns),
    ];
    let changes = [0, 1, 2].map(|at: usize| {
        let (before_ns, after_ns) = quantiles[at];
        duration_change(before_ns, after_ns, evidence.quantiles[at], levels)
    });
    let verdict = match (before.ended, after.ended) {
        (0, _) => "only_after",
        (_, 0) => "only_before",
        _ => verdict(&changes),
    };
    let [p50, p90, p99] = changes;
    NameComparison {
        name: name.to_string(),
        verdict: verdict.into(),
        p50,
        p90,
        p99,
        failures: failure_change(&before, &after, evidence.failures, levels),
        before,
        after,
    }
}

/// The verdict about a name by those about its quantiles.
fn verdict(changes: &[DurationChange]) -> &'static str {
    let any = |verdict: &str| changes.iter().any(|change| change.verdict == verdict);
    match (any("slower"), any("faster")) {
        (true, true) => "mixed",
        (true, false) => "slower",
        (false, true) => "faster",
        // The median needs the fewest tasks.
        (false, false) if any("no_change") => "no_change",
        (false, false) => "too_few",
    }
}

fn duration_change(
    before_ns: Option<u64>,
    after_ns: Option<u64>,
    evidence: Evidence,
    levels: &Levels,
) -> DurationChange {
    let (Some(before_ns), Some(after_ns)) = (before_ns, after_ns) else {
        return DurationChange {
            verdict: "too_few".into(),
            ..DurationChange::default()
        };
    };
    let ratio = (before_ns > 0).then(|| after_ns as f64 / before_ns as f64);
    let is_large = ratio.is_none_or(|ratio| (ratio - 1.0).abs() >= CHANGE_MIN);
    let verdict = match (levels.judge(evidence), after_ns.cmp(&before_ns)) {
        (Significance::TooFew, _) => "too_few",
        (Significance::ExceedsNoise, Ordering::Greater) if is_large => "slower",
        (Significance::ExceedsNoise, Ordering::Less) if is_large => "faster",
        _ => "no_change",
    };
    DurationChange {
        change_ns: Some(
            i64::try_from(i128::from(after_ns) - i128::from(before_ns)).unwrap_or(i64::MAX),
        ),
        ratio,
        p_value: Some(evidence.p),
        verdict: verdict.into(),
    }
}

fn failure_change(
    before: &TaskStatistics,
    after: &TaskStatistics,
    evidence: Evidence,
    levels: &Levels,
) -> FailureChange {
    let [before_share, after_share] = [before, after].map(|side: &TaskStatistics| {
        (side.ended > 0).then(|| side.failed as f64 / side.ended as f64)
    });
    let has_failures = before.failed + after.failed > 0;
    let verdict = match levels.judge(evidence) {
        _ if !has_failures => "no_change",
        Significance::TooFew => "too_few",
        Significance::ExceedsNoise if after_share > before_share => "more",
        Significance::ExceedsNoise => "fewer",
        Significance::WithinNoise => "no_change",
    };
    FailureChange {
        before_share,
        after_share,
        p_value: has_failures.then_some(evidence.p),
        verdict: verdict.into(),
    }
}

#[cfg(test)]
mod tests;
