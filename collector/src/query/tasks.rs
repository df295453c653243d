//! What ran, from when to when.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{Filter, NodeId, Outcome, TaskTotals, ThreadKind, TimeRange, Timestamp};
use rustc_hash::FxHashMap;

use super::QueryError;
use super::error::echo;
use super::params::{Params, choose, known_tasks, known_workers};
use super::range::asked_range;
use super::stored::{Asked, Cancel, Stored};
use crate::collector::Collector;
use crate::ledger::{
    EXECUTE, NameTotal, OutcomeCounts, PhaseTotal, Selecting, Selection, Spread, TaskFilter,
    TaskRow, counts_in, overlaps,
};
use crate::limits::{TASK_COLUMNS_MAX, TASK_ROWS_DEFAULT, TASK_ROWS_MAX};
use crate::store::{Counting, Coverage, Plan, Second};
use crate::sync::read;
use crate::tree::Top;

/// A question to the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskQuery {
    /// `None`: no range was given.
    pub(crate) given_range: Option<TimeRange>,
    /// What was given, or the last five minutes.
    pub(crate) range: TimeRange,
    pub(crate) filter: TaskFilter,
    pub(crate) limit: usize,
    pub(crate) summary: bool,
    /// Whether rows are answered in columns.
    pub(crate) columns: bool,
}

impl TaskQuery {
    /// A question for the tasks of these names and workers; empty for all.
    pub(super) fn of_names(
        range: TimeRange,
        names: Vec<String>,
        workers: Vec<String>,
    ) -> TaskQuery {
        let filter = TaskFilter { names, workers, ..TaskFilter::default() };
        TaskQuery {
            given_range: Some(range),
            range,
            filter,
            limit: 1,
            summary: true,
            columns: false,
        }
    }

    /// The question that the parameters ask at `now`.
    pub(crate) fn parse(
        pairs: &[(String, String)],
        collector: &Collector,
        now: Timestamp,
    ) -> Result<TaskQuery, QueryError> {
        let names = [
            "from", "to", "run", "task", "key", "worker", "label", "outcome", "type", "limit",
            "summary", "format",
        ];
        let params = Params::new(pairs, &names)?;
        let (range, given) = asked_range(&params, collector, now)?;
        let outcomes = Outcome::ALL.map(|outcome| (outcome.name(), outcome));
        let outcomes = params.many("outcome")?.into_iter().map(|o| choose("outcome", o, &outcomes));
        let columns = params.choice("format", &[("json", false), ("columns", true)])?;
        let limit_max = if columns { TASK_COLUMNS_MAX } else { TASK_ROWS_MAX };
        Ok(TaskQuery {
            given_range: given.then_some(range),
            range,
            limit: limit_to(params.one("limit")?, limit_max)?,
            columns,
            summary: params.choice("summary", &[("false", false), ("true", true)])?,
            filter: TaskFilter {
                outcomes: outcomes.collect::<Result<_, _>>()?,
                names: known_tasks(&params, collector)?,
                // Keys are as many as tasks: one that is not there finds nothing.
                keys: params.many("key")?.into_iter().map(str::to_owned).collect(),
                workers: known_workers(&params, collector)?,
                // So are types: only rows know them.
                types: params.many("type")?.into_iter().map(str::to_owned).collect(),
            },
        })
    }
}

/// How many rows a question asks for.
pub(super) fn limit(text: Option<&str>) -> Result<usize, QueryError> {
    limit_to(text, TASK_ROWS_MAX)
}

fn limit_to(text: Option<&str>, most: usize) -> Result<usize, QueryError> {
    let Some(text) = text else {
        return Ok(TASK_ROWS_DEFAULT);
    };
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| QueryError::Limit { value: echo(text), limit: most })
}

/// Rows of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskAnswer {
    pub(crate) selection: Selection,
    /// Running tasks that there was no room for, over the collector's life, and tasks that ended in the
    /// range and have no rows.
    pub(crate) thinned: u64,
    /// Names of files that are missing from the answer.
    pub(crate) damaged: Vec<String>,
}

/// Tasks of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SummaryRow {
    pub(crate) name: Arc<str>,
    pub(crate) running: u64,
    pub(crate) outcomes: OutcomeCounts,
    /// Of the tasks whose worker said when they ended.
    pub(crate) spread: Option<Spread>,
    /// What those did, the longest first.
    pub(crate) phases: Vec<(Arc<str>, PhaseTotal)>,
}

/// Tasks by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskSummary {
    /// The range that was summed; `None`: all tasks that are held.
    pub(crate) range: Option<TimeRange>,
    pub(crate) rows: Vec<SummaryRow>,
    pub(crate) thinned: u64,
    pub(crate) damaged: Vec<String>,
}

impl Collector {
    /// The rows that overlap the range.
    pub(crate) fn tasks(
        &self,
        query: &TaskQuery,
        cancel: &Cancel,
    ) -> Result<TaskAnswer, QueryError> {
        let mut selecting = Selecting::new(query.limit);
        let (thinned, damaged) = self.each_row(query, cancel, |row| selecting.offer(row))?;
        Ok(TaskAnswer { selection: selecting.done(), thinned, damaged })
    }

    /// Gives all rows that overlap the range, in no order. Answers how many there are no rows of, and
    /// which files are missing.
    pub(super) fn each_row(
        &self,
        query: &TaskQuery,
        cancel: &Cancel,
        mut each: impl FnMut(&Arc<TaskRow>),
    ) -> Result<(u64, Vec<String>), QueryError> {
        let TaskQuery { range, filter, .. } = query;
        let take = |collector: &Collector, _| read(&collector.ledger).snapshot(*range);
        // Rows are told apart to the nanosecond, so nothing ever widens.
        let plan = |_: &Coverage, seconds| Plan { pieces: Vec::new(), seconds };
        let (mut stored, snapshot) = Stored::of((self, cancel), *range, take, plan);
        let mut offer = |row: &Arc<TaskRow>| {
            if overlaps(row, *range) && filter.keeps(row) {
                each(row);
            }
        };
        snapshot.rows().for_each(&mut offer);
        stored.scan_tasks(&seconds_touched(*range), filter, offer)?;
        let seconds = Second::starting_in(*range);
        let sums = snapshot.sums.iter();
        let sums = sums.filter(|sum| counts_sum(sum, &seconds) && filter.keeps_sum(sum));
        let mut thinned = snapshot.thinned() + sums.map(|sum| sum.count()).sum::<u64>();
        if !filter.is_by_row() {
            stored.plan_for(seconds);
            thinned += self.add_phases(&mut stored, filter, &mut NameTotals::new(usize::MAX))?;
        }
        Ok((thinned, stored.damaged()))
    }

    /// Counts and durations by name, of tasks that ended in the range and of those that run. Without
    /// a range they are of all that is held. By worker or key they are counted row by row, else read
    /// from the tables that hold such counts.
    pub(crate) fn task_summary(
        &self,
        query: &TaskQuery,
        cancel: &Cancel,
    ) -> Result<TaskSummary, QueryError> {
        let filter = &query.filter;
        let asked = query.given_range.unwrap_or(TimeRange::ALL);
        // What the tables count as `[overflow]` still has its name in its own row.
        let is_unnamed = |name: &String| read(&self.tree).may_be_unnamed(name);
        let by_row = filter.names.iter().any(is_unnamed) || filter.is_by_row();
        let take = |collector: &Collector, seconds: Range<Second>| {
            let range = TimeRange::new(seconds.start.start(), seconds.end.start());
            read(&collector.ledger).snapshot(range.unwrap_or(asked))
        };
        let plan = |held: &Coverage, seconds| match by_row {
            true => Plan { pieces: Vec::new(), seconds },
            false => held.plan(seconds),
        };
        let (mut stored, snapshot) = Stored::of((self, cancel), asked, take, plan);
        let seconds = stored.plan.seconds.clone();
        let mut totals = NameTotals::new(self.limits.ledger_names_max);
        let mut count = |row: &Arc<TaskRow>| {
            if counts_in(row, &seconds) && filter.keeps(row) {
                totals.of(&row.record.name).count(row);
            }
        };
        snapshot.rows().for_each(&mut count);
        if by_row {
            stored.scan_tasks(&seconds, filter, count)?;
        } else {
            for sum in snapshot.sums.iter().filter(|sum| counts_sum(sum, &seconds)) {
                if filter.keeps_sum(sum) {
                    totals.of(&sum.name).count_sum(sum);
                }
            }
            self.add_counted(&mut stored, filter, &mut totals)?;
            self.add_phases(&mut stored, filter, &mut totals)?;
        }
        let of_sums = totals.names.values().map(|total| total.thinned).sum::<u64>();
        Ok(TaskSummary {
            range: query.given_range.map(|range| stored.range(range)),
            rows: totals.names.into_iter().map(|(name, total)| summary_row(name, &total)).collect(),
            thinned: snapshot.thinned().saturating_add(of_sums),
            damaged: stored.damaged(),
        })
    }

    /// Adds what the tables of durations hold.
    fn add_counted(
        &self,
        stored: &mut Stored<'_>,
        filter: &TaskFilter,
        totals: &mut NameTotals,
    ) -> Result<(), QueryError> {
        let tops = self.tops_named(filter);
        let tasks: Vec<NodeId> = tops.iter().map(|top| top.node).collect();
        for counting in [Counting::Durations, Counting::DurationSums] {
            let mut sums: Vec<Option<NameTotal>> = vec![None; tops.len()];
            scan_outcomes(stored, counting, (&tasks, filter), |top, outcome, bucket, value| {
                let sum = sums[top].get_or_insert_default();
                match counting {
                    Counting::Durations => sum.count_in_bucket(outcome, bucket, value),
                    _ => sum.add_to_total(outcome, value),
                }
            })?;
            for (top, sum) in tops.iter().zip(sums) {
                if let Some(sum) = sum {
                    totals.of(&top.name).absorb(sum);
                }
            }
        }
        Ok(())
    }
}

/// What one task's rows of `phases` and `phase_sums` say: by node.
type PhaseNodes = FxHashMap<u32, PhaseTotal>;

impl Collector {
    fn tops_named(&self, filter: &TaskFilter) -> Vec<Top> {
        let by_name =
            Filter { tasks: filter.names.clone(), threads: ThreadKind::All, ..Filter::default() };
        read(&self.tree).tops_kept(&by_name)
    }

    /// Adds what the tables of phases hold; gives how many tasks have no rows.
    fn add_phases(
        &self,
        stored: &mut Stored<'_>,
        filter: &TaskFilter,
        totals: &mut NameTotals,
    ) -> Result<u64, QueryError> {
        let tops = self.tops_named(filter);
        let tasks: Vec<NodeId> = tops.iter().map(|top| top.node).collect();
        let mut nodes: Vec<PhaseNodes> = vec![PhaseNodes::default(); tops.len()];
        for counting in [Counting::Phases, Counting::PhaseSums] {
            scan_outcomes(stored, counting, (&tasks, filter), |top, outcome, node, value| {
                if outcome != Outcome::Lost {
                    let total = nodes[top].entry(node).or_default();
                    match counting {
                        Counting::Phases => total.add(value, 0),
                        _ => total.add(0, value),
                    }
                }
            })?;
        }
        let mut thinned = 0u64;
        for (top, nodes) in tops.iter().zip(nodes).filter(|(_, nodes)| !nodes.is_empty()) {
            let mut sum = NameTotal::default();
            for (node, total) in nodes {
                if node == top.node.0 {
                    sum.thinned = total.count;
                    sum.phases.inside_ns = total.duration_ns;
                } else {
                    let name = read(&self.tree).name(NodeId(node));
                    let name = name.ok_or(QueryError::UnknownNodes { rows: 1 })?;
                    sum.phases.by_name.entry(name).or_default().add(total.count, total.duration_ns);
                }
            }
            thinned = thinned.saturating_add(sum.thinned);
            totals.of(&top.name).absorb(sum);
        }
        Ok(thinned)
    }
}

/// Shows the rows of `tasks` with an outcome that is asked for: the task's place among them, the outcome,
/// the node or bucket, if the table has one, and the value.
fn scan_outcomes(
    stored: &mut Stored<'_>,
    counting: Counting,
    (tasks, filter): (&[NodeId], &TaskFilter),
    mut visit: impl FnMut(usize, Outcome, u32, u64),
) -> Result<(), QueryError> {
    let asked = Asked { tasks: Some(tasks), workers: None, columns: counting.columns() };
    stored.scan(
        |_| counting,
        asked,
        |batch, rows| {
            rows.each(|index| {
                let outcome = Outcome::ALL.get(usize::from(batch.kind[index]));
                let top = tasks.binary_search(&NodeId(batch.task[index]));
                if let (Some(outcome), Ok(top)) = (outcome, top)
                    && filter.keeps_outcome(*outcome)
                {
                    let node = batch.node.get(index).copied().unwrap_or(0);
                    visit(top, *outcome, node, batch.values[index]);
                }
            });
        },
    )
}

/// Whether tasks of which there is no row ended in those seconds.
fn counts_sum(sum: &TaskTotals, seconds: &Range<Second>) -> bool {
    seconds.contains(&Second::of(sum.second))
}

/// The seconds of which any part lies in a range.
pub(super) fn seconds_touched(range: TimeRange) -> Range<Second> {
    Second::of(range.start())..Second(Second::of(range.stop()).0.saturating_add(1))
}

/// Totals by name, bounded in names.
struct NameTotals {
    names: BTreeMap<Arc<str>, NameTotal>,
    names_max: usize,
}

impl NameTotals {
    /// The name that takes what is past the limit on names.
    const OVERFLOW: &str = "[overflow]";

    fn new(names_max: usize) -> NameTotals {
        NameTotals { names: BTreeMap::new(), names_max }
    }

    fn of(&mut self, name: &Arc<str>) -> &mut NameTotal {
        // Names are never taken out, so a name that went to the overflow once always does.
        let has_room = self.names.len() < self.names_max || self.names.contains_key(name);
        let name = if has_room { name.clone() } else { NameTotals::OVERFLOW.into() };
        self.names.entry(name).or_default()
    }
}

fn summary_row(name: Arc<str>, total: &NameTotal) -> SummaryRow {
    let (outcomes, spread) = (total.outcomes, total.durations.spread());
    let mut phases: Vec<(Arc<str>, PhaseTotal)> =
        total.phases.by_name.iter().map(|(name, total)| (name.clone(), *total)).collect();
    if let Some(spread) = spread {
        let duration_ns = spread.total_ns.saturating_sub(total.phases.inside_ns);
        phases.push((EXECUTE.into(), PhaseTotal { count: spread.count, duration_ns }));
    }
    phases.sort_by(|(a_name, a), (b_name, b)| {
        b.duration_ns.cmp(&a.duration_ns).then_with(|| a_name.cmp(b_name))
    });
    SummaryRow { name, running: outcomes.get(Outcome::Running), outcomes, spread, phases }
}
