//! Tasks: rows and summaries.

pub(crate) mod duration_counts;
pub(crate) mod ended_each;
pub(crate) mod ended_tasks;
pub(crate) mod phases;
pub(crate) mod progress;
pub(crate) mod sampled_tasks;
pub(crate) mod task_body;
pub(crate) mod task_columns;
pub(crate) mod task_comparison;
pub(crate) mod task_durations;

use std::ops::Range;
use std::sync::Arc;

use profiler_core::{Outcome, TaskTotals, TimeRange, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::by_name::ByName;
use crate::error::echo;
use crate::parameters::parameter::{FLAG, Parameter, Parameters, names};
use crate::parameters::params::{LABEL, Params, TASK, WORKER, known_tasks, known_workers};
use crate::parameters::range::{RANGE, asked_range};
use crate::parameters::table_format::TableFormat;
use crate::table_reader::{Cancel, TableReader, seconds_touched};
use crate::tasks::ended_tasks::scan_ended;
use crate::tasks::sampled_tasks::SampledTask;
use base::limits::{TASK_COLUMNS_MAX, TASK_ROWS_DEFAULT, TASK_ROWS_MAX};
use base::sync::read;
use state::CollectorState;
use state::ledger::{
    EXECUTE, LongestTasks, NameTotal, NewestTasks, OutcomeCounts, PhaseTotal, Selection,
    TaskFilter, TaskOrder, TaskSnapshot, counts_in, overlaps,
};
use store::rows::{Names, TaskRow};
use store::{Coverage, Plan, Second, SumTable};

/// A query to the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskQuery {
    /// `None`: no range was given.
    pub given_range: Option<TimeRange>,
    /// The given range, or the last five minutes.
    pub range: TimeRange,
    pub filter: TaskFilter,
    pub limit: usize,
    /// Of rows; columns are always by start.
    pub order: TaskOrder,
    pub summary: bool,
    pub format: TaskFormat,
}

/// The format of an answer with tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskFormat {
    Json,
    /// JSON with a vector for each member of tasks; sums by name have none.
    Columns,
    File(TableFormat),
    /// Markers for the Firefox Profiler. Sums by name have no such format.
    Firefox,
}

impl TaskFormat {
    const CHOICES: [(&'static str, TaskFormat); 5] = [
        ("json", TaskFormat::Json),
        ("columns", TaskFormat::Columns),
        ("csv", TaskFormat::File(TableFormat::Csv)),
        ("parquet", TaskFormat::File(TableFormat::Parquet)),
        ("firefox", TaskFormat::Firefox),
    ];
}

impl TaskQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &[
            TASK,
            Parameter::text(
                "key",
                "load-7",
                "Keys of tasks, which match exactly. Default: all.",
            )
            .repeated(),
            WORKER,
            LABEL,
            OUTCOME,
            Parameter::text(
                "type",
                "Matrix",
                "Types of results, which match exactly. Default: all.",
            )
            .repeated(),
            Parameter::integer(
                "limit",
                1..=TASK_COLUMNS_MAX,
                Some(TASK_ROWS_DEFAULT),
                "100",
                "Most rows; at most 100,000 but with `format=columns`. Default with `format=firefox`: 100,000.",
            ),
            Parameter::flag(
                "summary",
                "Counts, percentiles and phases by name instead of rows.",
            ),
            Parameter::choice(
                "sort",
                || names(&task_orders()),
                "duration",
                "The newest or the longest first.",
            )
            .default("start"),
            Parameter::choice(
                "format",
                || names(&TaskFormat::CHOICES),
                "columns",
                "Format of the answer.",
            )
            .default("json"),
        ],
    ];

    /// A query for the tasks of these names and workers; empty for all.
    pub(crate) fn of_names(range: TimeRange, names: Names, workers: Names) -> TaskQuery {
        let filter = TaskFilter {
            names,
            workers,
            ..TaskFilter::default()
        };
        TaskQuery {
            given_range: Some(range),
            range,
            filter,
            limit: 1,
            order: TaskOrder::Start,
            summary: true,
            format: TaskFormat::Json,
        }
    }

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<TaskQuery, QueryError> {
        let params = Params::of(pairs, TaskQuery::PARAMETERS)?;
        let (range, given) = asked_range(&params, state, now)?;
        let format = params.choice("format", &TaskFormat::CHOICES)?;
        let limit = match (params.one("limit")?, format) {
            (None, TaskFormat::Firefox) => TASK_ROWS_MAX,
            (text, TaskFormat::Columns) => limit_to(text, TASK_COLUMNS_MAX)?,
            (text, _) => limit_to(text, TASK_ROWS_MAX)?,
        };
        Ok(TaskQuery {
            given_range: given.then_some(range),
            range,
            limit,
            format,
            order: params.choice("sort", &task_orders())?,
            summary: params.choice("summary", &FLAG)?,
            filter: TaskFilter {
                outcomes: params.many_of("outcome", &outcome_choices())?,
                names: known_tasks(&params, state)?,
                // There are as many keys as tasks, so an unknown key is no error.
                keys: params.many("key")?.into_iter().map(str::to_owned).collect(),
                workers: known_workers(&params, state)?,
                // Types are only in rows.
                types: params
                    .many("type")?
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            },
        })
    }
}

pub(crate) const OUTCOME: Parameter = Parameter::choice(
    "outcome",
    || names(&outcome_choices()),
    "failed",
    "Outcomes. Default: all.",
)
.repeated();

pub(crate) const LIMIT: Parameter = Parameter::integer(
    "limit",
    1..=TASK_ROWS_MAX,
    Some(TASK_ROWS_DEFAULT),
    "100",
    "Most rows.",
);

/// The outcomes by name.
pub(crate) fn outcome_choices() -> [(&'static str, Outcome); Outcome::ALL.len()] {
    Outcome::ALL.map(|outcome| (outcome.name(), outcome))
}

fn task_orders() -> [(&'static str, TaskOrder); 2] {
    [TaskOrder::Start, TaskOrder::Duration].map(|order| (order.name(), order))
}

/// The number of requested rows.
pub(crate) fn limit(text: Option<&str>) -> Result<usize, QueryError> {
    limit_to(text, TASK_ROWS_MAX)
}

pub(crate) fn limit_to(text: Option<&str>, most: usize) -> Result<usize, QueryError> {
    let Some(text) = text else {
        return Ok(TASK_ROWS_DEFAULT);
    };
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| QueryError::Limit {
        name: "limit",
        value: echo(text),
        limit: most,
    })
}

/// Rows of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskAnswer {
    pub selection: Selection,
    /// Running tasks dropped for lack of room in the collector's life, and tasks that ended in the
    /// range without rows.
    pub aggregated: u64,
    /// Names of files that are missing from the answer.
    pub damaged: Vec<String>,
}

/// Tasks of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummaryRow {
    pub name: Arc<str>,
    pub running: u64,
    pub outcomes: OutcomeCounts,
    /// Of the tasks whose worker reported the end.
    pub spread: Option<api::Durations>,
    /// Their phases, the longest first.
    pub phases: Vec<(Arc<str>, PhaseTotal)>,
}

/// Tasks by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskSummary {
    /// The summed range; `None`: all stored tasks.
    pub range: Option<TimeRange>,
    pub rows: Vec<SummaryRow>,
    /// Tasks with samples and without rows, the most time first.
    pub sampled: Vec<SampledTask>,
    pub aggregated: u64,
    pub damaged: Vec<String>,
}

impl Queries<'_> {
    /// The rows that overlap the range.
    pub fn tasks(&self, query: &TaskQuery, cancel: &Cancel) -> Result<TaskAnswer, QueryError> {
        let TaskQuery { range, filter, .. } = query;
        if query.order == TaskOrder::Duration {
            let mut selecting = LongestTasks::new(query.limit, self.clock.now());
            let (aggregated, damaged) = self.each_row(query, cancel, |row| selecting.offer(row))?;
            return Ok(TaskAnswer {
                selection: selecting.done(),
                aggregated,
                damaged,
            });
        }
        let (mut stored, snapshot) = self.rows_stored(*range, cancel);
        let mut selecting = NewestTasks::new(query.limit);
        snapshot.select_newest(*range, filter, &mut selecting);
        stored.newest_tasks(*range, filter, &mut selecting)?;
        let seconds = Second::starting_in(*range);
        let aggregated = self.aggregated(filter, seconds, &mut stored, &snapshot)?;
        Ok(TaskAnswer {
            selection: selecting.done(),
            aggregated,
            damaged: stored.damaged(),
        })
    }

    /// Visits all rows that overlap the range, in no order. Returns the number of tasks without
    /// rows, and the missing files.
    pub(crate) fn each_row(
        &self,
        query: &TaskQuery,
        cancel: &Cancel,
        each: impl FnMut(&Arc<TaskRow>),
    ) -> Result<(u64, Vec<String>), QueryError> {
        let (mut stored, snapshot) = self.each_task(query.range, &query.filter, cancel, each)?;
        let seconds = Second::starting_in(query.range);
        let aggregated = self.aggregated(&query.filter, seconds, &mut stored, &snapshot)?;
        Ok((aggregated, stored.damaged()))
    }

    /// Visits the requested tasks that overlap a range, in no order. Returns what they were read
    /// from.
    pub(crate) fn each_task<'a>(
        &'a self,
        range: TimeRange,
        filter: &TaskFilter,
        cancel: &'a Cancel,
        mut visit: impl FnMut(&Arc<TaskRow>),
    ) -> Result<(TableReader<'a>, TaskSnapshot), QueryError> {
        let (mut stored, snapshot) = self.rows_stored(range, cancel);
        let mut offer = |row: &Arc<TaskRow>| {
            if overlaps(row, range) && filter.keeps(row) {
                visit(row);
            }
        };
        snapshot.rows().for_each(&mut offer);
        stored.scan_tasks(&seconds_touched(range), filter, offer)?;
        Ok((stored, snapshot))
    }

    /// A reader for the rows of a range, and the unsealed rows.
    fn rows_stored<'a>(
        &'a self,
        range: TimeRange,
        cancel: &'a Cancel,
    ) -> (TableReader<'a>, TaskSnapshot) {
        // Rows have nanoseconds, so the range never widens.
        TableReader::of(
            self,
            cancel,
            range,
            |state: &CollectorState, _| read(&state.ledger).snapshot(range),
            |_: &Coverage, seconds| Plan {
                pieces: Vec::new(),
                seconds,
            },
        )
    }

    /// The number of tasks without rows of the requested names and outcomes, whatever else is requested: only rows
    /// have a worker, a key and a type.
    fn aggregated(
        &self,
        filter: &TaskFilter,
        seconds: Range<Second>,
        stored: &mut TableReader<'_>,
        snapshot: &TaskSnapshot,
    ) -> Result<u64, QueryError> {
        let sums = snapshot
            .sums
            .iter()
            .filter(|sum| counts_sum(sum, &seconds) && filter.keeps_sum(sum));
        let mut aggregated = snapshot.aggregated() + sums.map(|sum| sum.count()).sum::<u64>();
        stored.plan_for(seconds);
        let tops = self.tops_named(filter);
        scan_ended(stored, SumTable::Phases, &tops, filter, |top, ended| {
            if ended.outcome != Outcome::Lost {
                let own = ended.rows().filter(|(node, _)| *node == tops[top].node.0);
                aggregated = own.fold(aggregated, |sum, (_, count)| sum.saturating_add(count));
            }
        })?;
        Ok(aggregated)
    }

    /// Whether ended tasks must be counted row by row, instead of read from the tables of sums.
    pub(crate) fn counts_rows(&self, filter: &TaskFilter) -> bool {
        // Tasks that the tables count as `[overflow]` or `[damaged]` still have names in their
        // rows.
        let lacks_names = self.tables.lacks_names();
        filter
            .names
            .iter()
            .any(|name: &String| lacks_names || read(&self.tree).may_be_unnamed(name))
            || filter.is_by_row()
    }

    /// Counts and durations by name, of tasks that ended in the range and of running ones; without
    /// a range, of all stored tasks. By worker or key they are counted row by row, otherwise read
    /// from the tables of sums.
    pub fn task_summary(
        &self,
        query: &TaskQuery,
        cancel: &Cancel,
    ) -> Result<TaskSummary, QueryError> {
        let filter = &query.filter;
        let asked = query.given_range.unwrap_or(TimeRange::ALL);
        let by_row = self.counts_rows(filter);
        let (mut stored, snapshot) = TableReader::of(
            self,
            cancel,
            asked,
            |state: &CollectorState, seconds: Range<Second>| {
                let range = TimeRange::new(seconds.start.start(), seconds.end.start());
                read(&state.ledger).snapshot(range.unwrap_or(asked))
            },
            |coverage: &Coverage, seconds| {
                if by_row {
                    Plan {
                        pieces: Vec::new(),
                        seconds,
                    }
                } else {
                    coverage.plan(seconds)
                }
            },
        );
        let seconds = stored.plan.seconds.clone();
        let mut totals = ByName::<NameTotal>::new(self.limits.ledger_names_max);
        let now = self.clock.now();
        loop {
            let mut count = |row: &Arc<TaskRow>| {
                if counts_in(row, &seconds) && filter.keeps(row) {
                    let elapsed_ns = now.since_ns(row.record.start);
                    let weight_ns = row.duration_ns().unwrap_or(elapsed_ns);
                    totals.of(&row.record.name, weight_ns).count(row);
                }
            };
            snapshot.rows().for_each(&mut count);
            if by_row {
                stored.scan_tasks(&seconds, filter, count)?;
            } else {
                for sum in snapshot.sums.iter().filter(|sum| counts_sum(sum, &seconds)) {
                    if filter.keeps_sum(sum) {
                        totals.of(&sum.name, sum.duration_ns).count_sum(sum);
                    }
                }
                self.add_stored(&mut stored, filter, &mut totals)?;
            }
            if !totals.choose() {
                break;
            }
        }
        let range = query.given_range.map(|range| stored.range(range));
        let aggregated = if by_row {
            self.aggregated(filter, seconds, &mut stored, &snapshot)?
        } else {
            let of_sums = totals.names.values().map(|total| total.aggregated);
            snapshot.aggregated().saturating_add(of_sums.sum())
        };
        let reported = totals.names.keys().cloned().collect();
        let sampled = self.sampled_tasks(asked, filter, &reported, cancel)?;
        Ok(TaskSummary {
            range,
            sampled,
            rows: totals
                .names
                .into_iter()
                .map(|(name, total)| summary_row(name, &total))
                .collect(),
            aggregated,
            damaged: stored.damaged(),
        })
    }
}

/// Whether tasks without rows ended in those seconds.
pub(crate) fn counts_sum(sum: &TaskTotals, seconds: &Range<Second>) -> bool {
    seconds.contains(&Second::of(sum.second))
}

fn summary_row(name: Arc<str>, total: &NameTotal) -> SummaryRow {
    let outcomes = total.outcomes;
    let spread = total.durations.percentiles();
    let mut phases: Vec<(Arc<str>, PhaseTotal)> = total
        .phases
        .by_name
        .iter()
        .map(|(name, total)| (name.clone(), *total))
        .collect();
    if let Some(spread) = spread {
        let duration_ns = spread.total_ns.saturating_sub(total.phases.inside_ns);
        phases.push((
            EXECUTE.into(),
            PhaseTotal {
                count: spread.count,
                duration_ns,
            },
        ));
    }
    phases.sort_by(|(a_name, a), (b_name, b)| {
        b.duration_ns
            .cmp(&a.duration_ns)
            .then_with(|| a_name.cmp(b_name))
    });
    SummaryRow {
        name,
        running: outcomes.get(Outcome::Running),
        outcomes,
        spread,
        phases,
    }
}
