//! What ran, from when to when.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{Filter, NodeId, Outcome, ThreadKind, TimeRange, Timestamp};

use super::QueryError;
use super::error::echo;
use super::params::{Params, RangeText, choose, known_tasks, known_workers};
use super::stored::{Asked, Cancel, Stored};
use crate::collector::Collector;
use crate::ledger::{
    NameTotal, OutcomeCounts, Selecting, Selection, Spread, TaskFilter, TaskRow, counts_in,
    overlaps,
};
use crate::limits::{TASK_ROWS_DEFAULT, TASK_ROWS_MAX};
use crate::store::{Counting, Coverage, Plan, Second};
use crate::sync::read;

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
}

impl TaskQuery {
    /// The question that the parameters ask at `now`.
    pub(crate) fn parse(
        pairs: &[(String, String)],
        collector: &Collector,
        now: Timestamp,
    ) -> Result<TaskQuery, QueryError> {
        let names = ["from", "to", "task", "key", "worker", "outcome", "limit", "summary"];
        let params = Params::new(pairs, &names)?;
        let (range, given) = RangeText::parse(&params)?;
        let range = range.resolve(now)?;
        let outcomes = Outcome::ALL.map(|outcome| (outcome.name(), outcome));
        let outcomes = params.many("outcome")?.into_iter().map(|o| choose("outcome", o, &outcomes));
        Ok(TaskQuery {
            given_range: given.then_some(range),
            range,
            limit: limit(params.one("limit")?)?,
            summary: params.choice("summary", &[("false", false), ("true", true)])?,
            filter: TaskFilter {
                outcomes: outcomes.collect::<Result<_, _>>()?,
                names: known_tasks(&params, collector)?,
                // Keys are as many as tasks: one that is not there finds nothing.
                keys: params.many("key")?.into_iter().map(str::to_owned).collect(),
                workers: known_workers(&params, collector)?,
            },
        })
    }
}

fn limit(text: Option<&str>) -> Result<usize, QueryError> {
    let Some(text) = text else {
        return Ok(TASK_ROWS_DEFAULT);
    };
    let number = text.parse().ok().filter(|number| (1..=TASK_ROWS_MAX).contains(number));
    number.ok_or_else(|| QueryError::Limit { value: echo(text), limit: TASK_ROWS_MAX })
}

/// Rows of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TaskAnswer {
    pub(crate) selection: Selection,
    /// Running tasks that there was no room for, over the collector's life.
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
        let TaskQuery { range, filter, limit, .. } = query;
        let take = |collector: &Collector, _| read(&collector.ledger).snapshot(*range);
        // Rows are told apart to the nanosecond, so nothing ever widens.
        let plan = |_: &Coverage, seconds| Plan { pieces: Vec::new(), seconds };
        let (mut stored, snapshot) = Stored::of((self, cancel), *range, take, plan);
        let mut selecting = Selecting::new(*limit);
        let mut offer = |row: &Arc<TaskRow>| {
            if overlaps(row, *range) && filter.keeps(row) {
                selecting.offer(row);
            }
        };
        snapshot.rows().for_each(&mut offer);
        stored.scan_tasks(&seconds_touched(*range), filter, offer)?;
        let (thinned, damaged) = (snapshot.thinned(), stored.damaged());
        Ok(TaskAnswer { selection: selecting.done(), thinned, damaged })
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
        let by_row = !filter.workers.is_empty() || !filter.keys.is_empty();
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
        match by_row {
            true => stored.scan_tasks(&seconds, filter, count)?,
            false => self.add_counted(&mut stored, filter, &mut totals)?,
        }
        Ok(TaskSummary {
            range: query.given_range.map(|range| stored.range(range)),
            rows: totals.names.into_iter().map(|(name, total)| summary_row(name, &total)).collect(),
            thinned: snapshot.thinned(),
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
        let by_name =
            Filter { tasks: filter.names.clone(), threads: ThreadKind::All, ..Filter::default() };
        let tops = read(&self.tree).tops_kept(&by_name);
        let tasks: Vec<NodeId> = tops.iter().map(|top| top.node).collect();
        for counting in [Counting::Durations, Counting::DurationSums] {
            let asked = Asked { tasks: Some(&tasks), workers: None, columns: counting.columns() };
            // Rows of a task stand together.
            let mut sums: Vec<Option<NameTotal>> = vec![None; tops.len()];
            stored.scan(
                |_| counting,
                asked,
                |batch, rows| {
                    rows.each(|index| {
                        let outcome = Outcome::ALL.get(usize::from(batch.kind[index]));
                        let top = tasks.binary_search(&NodeId(batch.task[index]));
                        let (Some(outcome), Ok(top)) = (outcome, top) else { return };
                        if !filter.keeps_outcome(*outcome) {
                            return;
                        }
                        let sum = sums[top].get_or_insert_default();
                        match counting {
                            Counting::Durations => {
                                sum.count_in_bucket(
                                    *outcome,
                                    batch.node[index],
                                    batch.values[index],
                                );
                            }
                            _ => sum.add_to_total(*outcome, batch.values[index]),
                        }
                    });
                },
            )?;
            for (top, sum) in tops.iter().zip(sums) {
                if let Some(sum) = sum {
                    totals.of(&top.name).absorb(sum);
                }
            }
        }
        Ok(())
    }
}

/// The seconds of which any part lies in a range.
fn seconds_touched(range: TimeRange) -> Range<Second> {
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
    SummaryRow { name, running: outcomes.get(Outcome::Running), outcomes, spread }
}
