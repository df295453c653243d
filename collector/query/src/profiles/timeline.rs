//! Timelines: the time of each task, or other group, step by step.

use profiler_core::{Filter, FrameKind, TimeRange, Timestamp, Weight};

use crate::Queries;
use crate::QueryError;
use crate::error::echo;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::{Filters, Params};
use crate::parameters::range::{RANGE, asked_range, parse_step_ns};
use crate::parameters::table_format::TableFormat;
use crate::profiles::cycles::Cycles;
use crate::profiles::group_by::{GroupBy, Heaviest, OTHERS};
use crate::profiles::profile::{Provenance, windows_in};
use crate::profiles::step_sums::{StepScan, Steps};
use crate::profiles::timeline_lines::{Sources, ThreadNumbers, TimelineLines};
use crate::table_reader::{Cancel, TableReader};
use crate::tasks::phases::parse_phases;
use base::limits::{GROUPS_DEFAULT, STEP_PERIODS_MAX, TIMELINE_STEPS_MAX, TIMELINE_SUMS_MAX};
use base::sync::read;
use state::CollectorState;
use state::tree::PhaseFilter;
use store::Tier;

/// Default steps: the first that is not too small is used.
const STEPS_S: [u64; 14] = [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400,
];

/// A query for a timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineQuery {
    pub range: TimeRange,
    pub filter: Filter,
    /// The phases of tasks to keep.
    pub phases: PhaseFilter,
    pub step_ns: u64,
    /// Kind of the series.
    pub group: GroupBy,
    /// Most series, the heaviest; the others are one more.
    pub groups_max: usize,
    /// `None` is JSON.
    pub format: Option<TableFormat>,
}

/// The length of steps, of which [`TIMELINE_STEPS_MAX`] are allowed.
const STEP: Parameter = Parameter::span(
    "step",
    "10s",
    "Length of a step; at most 4,000 steps. Default: the smallest of 1 s, 2 s, 5 s, … that fits.",
);

impl TimelineQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &Filters::PARAMETERS,
        &[
            STEP,
            Parameter::text(
                "group",
                "worker",
                "Kind of the series: `task`, `worker`, `host`, `run`, `phase`, `thread` or `label:KEY`.",
            )
            .default("task"),
            GroupBy::LIMIT,
            TableFormat::PARAMETER,
        ],
    ];

    /// A query for the time of tasks.
    pub fn of(range: TimeRange, filter: Filter, step_ns: u64) -> TimelineQuery {
        TimelineQuery {
            range,
            filter,
            phases: PhaseFilter::All,
            step_ns,
            group: GroupBy::Task,
            groups_max: GROUPS_DEFAULT,
            format: None,
        }
    }

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<TimelineQuery, QueryError> {
        let params = Params::of(pairs, TimelineQuery::PARAMETERS)?;
        let (range, _) = asked_range(&params, state, now)?;
        let step_ns = match params.one("step")? {
            Some(text) => parse_period_step_ns(text, range)?,
            None => chosen_step_ns(range, TIMELINE_STEPS_MAX),
        };
        let phases = parse_phases(&params, state)?;
        let format = params.choice("format", &TableFormat::CHOICES)?;
        let filter = Filters::parse(&params, state)?;
        let group = GroupBy::parse(&params, state, GroupBy::OF_TIMELINES)?;
        Ok(TimelineQuery {
            range,
            step_ns,
            filter,
            phases,
            group: group.unwrap_or(GroupBy::Task),
            groups_max: GroupBy::parse_limit(&params)?,
            format,
        })
    }
}

/// The `step` parameter of a query that reads periods which each lie in one step.
///
/// # Errors
/// If there are too many steps, or too many periods: a step of 3,599 s consists of seconds.
pub(crate) fn parse_period_step_ns(text: &str, range: TimeRange) -> Result<u64, QueryError> {
    let step_ns = parse_step_ns(text, |step_ns| Steps::new(range, step_ns).count)?;
    let tier = coarsest_in(step_ns);
    let periods = Steps::new(range, period_ns(tier)).count;
    if periods > STEP_PERIODS_MAX {
        return Err(QueryError::StepPeriods {
            step: echo(text),
            period_s: tier.seconds(),
            periods,
            limit: STEP_PERIODS_MAX,
        });
    }
    Ok(step_ns)
}

/// The smallest step of at least `step_ns` that consists of few enough periods.
pub(crate) fn rounded_step_ns(range: TimeRange, step_ns: u64) -> u64 {
    let steps = Tier::ALL.map(|tier| {
        step_ns
            .checked_next_multiple_of(period_ns(tier))
            .unwrap_or(step_ns)
    });
    let has_few_periods = |step_ns: &u64| {
        let period_ns = period_ns(coarsest_in(*step_ns));
        Steps::new(range, period_ns).count <= STEP_PERIODS_MAX
    };
    steps
        .into_iter()
        .find(has_few_periods)
        .unwrap_or(steps[Tier::Day as usize])
}

/// The smallest default step of which at most `steps_max` cover the range.
pub(crate) fn chosen_step_ns(range: TimeRange, steps_max: u64) -> u64 {
    let steps = STEPS_S.into_iter().map(|seconds| seconds * 1_000_000_000);
    // Two fewer than the limit, for the partial steps at both ends.
    steps
        .clone()
        .find(|step_ns: &u64| Steps::new(range, *step_ns).count <= steps_max)
        .unwrap_or_else(|| {
            let step_ns = range.length_ns() / (steps_max - 2) + 1;
            step_ns.next_multiple_of(period_ns(Tier::Day))
        })
}

/// One series of a timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    /// `None` for the sum of the series past the limit.
    pub kind: Option<FrameKind>,
    pub name: String,
    /// One per step.
    pub weights: Vec<Weight>,
}

/// A timeline, the heaviest series first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineAnswer {
    pub first: Timestamp,
    pub step_ns: u64,
    pub steps: u64,
    pub series: Vec<Series>,
    /// The number of series in the last one, if some were past the limit.
    pub others: usize,
    pub facts: Provenance,
}

impl Queries<'_> {
    /// Sums, for each step, the windows that start in it and in the range, by first-level node or other group. Windows that are longer
    /// than a period of the tables are spread over their length.
    pub fn timeline(
        &self,
        query: &TimelineQuery,
        cancel: &Cancel,
    ) -> Result<TimelineAnswer, QueryError> {
        let TimelineQuery {
            range,
            filter,
            phases,
            step_ns,
            ..
        } = query;
        let steps = Steps::new(*range, *step_ns);
        let coarsest = coarsest_in(*step_ns);
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            *range,
            |state, seconds| windows_in(state, seconds, filter),
            |held, seconds| held.plan_in(seconds, coarsest),
        );
        let tops = read(&self.tree).tops_kept(filter);
        let numbers = stored.worker_numbers(&filter.workers);
        let nodes = phases.nodes(&self.tree);
        let cycles = Cycles::read(&mut stored, &view, numbers.as_deref())?;
        let long = cycles.long_windows(&stored, period_ns(coarsest));
        let sources = Sources {
            stored: &mut stored,
            view: &view,
            coarsest,
        };
        let lines = TimelineLines::of(self, &query.group, *range, &tops, sources)?;
        let scan = StepScan {
            tops: &tops,
            numbers: numbers.as_deref(),
            states: filter.states,
            nodes: nodes.as_deref(),
            groups: lines.workers(),
            node_groups: lines.nodes(),
            long: None,
        };
        // First the weight of each line, in the fewest periods, so that only displayed ones take
        // memory.
        let plan = stored.plan.clone();
        lines.coarsen(&mut stored)?;
        let mut threads = ThreadNumbers::default();
        let mut totals: Vec<Weight> = Vec::new();
        scan.visit(&mut stored, &view, &mut |cell, weight| {
            if let Some(line) = lines.number(cell, &mut threads) {
                if line >= totals.len() {
                    totals.resize(line + 1, Weight::ZERO);
                }
                totals[line] += *weight;
            }
        })?;
        threads.check()?;
        stored.plan = plan;
        let times_ns: Vec<u64> = totals.iter().map(Weight::total_ns).collect();
        let heaviest = Heaviest::of(&times_ns, query.groups_max, |line| {
            (lines.name(line, &threads), line)
        });
        let names = heaviest
            .shown
            .iter()
            .map(|line| lines.name(*line, &threads));
        let mut series = empty_series(names.collect(), heaviest.others, steps)?;
        let scan = scan.spreading(&long);
        scan.visit(&mut stored, &view, &mut |cell, weight| {
            let line = lines.number(cell, &mut threads);
            let shown = line.and_then(|line| heaviest.lines.get(line));
            if let Some(series) = shown.and_then(|shown| series.get_mut(*shown as usize)) {
                steps.split(cell.start, cell.length_ns, weight, |step, part| {
                    series.weights[step] += part;
                });
            }
        })?;
        Ok(TimelineAnswer {
            first: steps.first,
            step_ns: *step_ns,
            steps: steps.count,
            series,
            others: heaviest.others,
            facts: Provenance::of(stored, view, *range, &cycles),
        })
    }
}

/// The coarsest tier whose periods each lie in one step.
pub(crate) fn coarsest_in(step_ns: u64) -> Tier {
    Tier::ALL
        .into_iter()
        .rev()
        .find(|tier: &Tier| step_ns.is_multiple_of(period_ns(*tier)))
        .unwrap_or(Tier::Second)
}

/// The length of a tier's periods.
pub(crate) fn period_ns(tier: Tier) -> u64 {
    u64::from(tier.seconds()) * 1_000_000_000
}

/// Series with these names, and one for others if there are any.
///
/// # Errors
/// If they have too many steps.
fn empty_series(
    names: Vec<(FrameKind, String)>,
    others: usize,
    steps: Steps,
) -> Result<Vec<Series>, QueryError> {
    let mut names: Vec<(Option<FrameKind>, String)> = names
        .into_iter()
        .map(|(kind, name)| (Some(kind), name))
        .collect();
    if others > 0 {
        names.push((None, OTHERS.to_owned()));
    }
    if names.len() as u64 * steps.count > TIMELINE_SUMS_MAX {
        return Err(QueryError::SeriesSteps {
            series: names.len(),
            steps: steps.count,
            limit: TIMELINE_SUMS_MAX,
        });
    }
    let series = names.into_iter().map(|(kind, name)| Series {
        kind,
        name,
        weights: vec![Weight::ZERO; steps.count as usize],
    });
    Ok(series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_step_is_the_smallest_that_fits() {
        const SECOND_NS: i64 = 1_000_000_000;
        check_step(0, 1, 1);
        check_step(999_999_999, SECOND_NS + 1, 1);
        check_step(0, 4_000 * SECOND_NS, 1);
        check_step(-1, 3_999 * SECOND_NS, 1);
        check_step(-1, 4_000 * SECOND_NS, 2);
        check_step(0, 86_400 * SECOND_NS, 30);
        check_step(0, 1_769_860_800 * SECOND_NS, 6 * 86_400);
    }

    #[test]
    fn a_step_of_many_periods_is_refused_or_rounded_up() {
        const DAY_S: u64 = 86_400;
        check_periods(30, "86399s", None, DAY_S);
        check_periods(30, "1441m", Some(86_460), 86_460);
        check_periods(7, "605s", None, 660);
        check_periods(1, "59s", Some(59), 59);
        check_periods(400, "601m", None, 36_600);
        check_periods(20_000, "40d", Some(40 * DAY_S), 40 * DAY_S);
    }

    /// The step of a timeline over `days`, if it is allowed, and that of a series, in seconds.
    fn check_periods(days: i64, step: &str, allowed_s: Option<u64>, rounded_s: u64) {
        let stop_ns = days * 86_400_000_000_000;
        let [from, to] = [0, stop_ns].map(Timestamp::from_unix_ns);
        let range = TimeRange::new(from, to).unwrap();
        let parsed = parse_period_step_ns(step, range).ok();
        assert_eq!(
            parsed.map(|step_ns| step_ns / 1_000_000_000),
            allowed_s,
            "{step}"
        );
        let step_ns = parse_step_ns(step, |_| 1).unwrap();
        assert_eq!(
            rounded_step_ns(range, step_ns) / 1_000_000_000,
            rounded_s,
            "{step}"
        );
    }

    fn check_step(from_ns: i64, to_ns: i64, expected: u64) {
        let [from, to] = [from_ns, to_ns].map(Timestamp::from_unix_ns);
        let range = TimeRange::new(from, to).unwrap();
        let step_ns = chosen_step_ns(range, TIMELINE_STEPS_MAX);
        let steps = Steps::new(range, step_ns);
        assert!((1..=TIMELINE_STEPS_MAX).contains(&steps.count), "{steps:?}");
        assert_eq!(step_ns / 1_000_000_000, expected);
        assert!(
            steps.first <= from && from.since_ns(steps.first) < step_ns,
            "{steps:?}"
        );
        let last = steps.index(to.shifted(-1)) as u64;
        assert_eq!((steps.index(from), last), (0, steps.count - 1));
    }
}
