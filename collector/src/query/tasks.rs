//! What ran, from when to when.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Outcome, TimeRange, Timestamp};

use super::QueryError;
use super::error::echo;
use super::params::{Params, RangeText, choose, known_tasks, known_workers};
use crate::collector::Collector;
use crate::ledger::{NameTotal, OutcomeCounts, Selection, Spread, TaskFilter};
use crate::limits::{TASK_ROWS_DEFAULT, TASK_ROWS_MAX};
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
        let names = ["from", "to", "task", "worker", "outcome", "limit", "summary"];
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
    /// Rows that are no longer there to be found, over the collector's life.
    pub(crate) thinned: u64,
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
    /// The range that was summed; `None`: all tasks that ever were.
    pub(crate) range: Option<TimeRange>,
    pub(crate) rows: Vec<SummaryRow>,
    pub(crate) thinned: u64,
}

impl Collector {
    /// The rows that overlap the range.
    pub(crate) fn tasks(&self, query: &TaskQuery) -> TaskAnswer {
        let snapshot = read(&self.ledger).snapshot(query.range);
        let selection = snapshot.select(&query.filter, query.limit);
        TaskAnswer { selection, thinned: snapshot.thinned() }
    }

    /// Counts and durations by name. Without a range, worker or outcome they are those of all tasks
    /// that ever were, also of those whose rows are gone; else of the rows.
    pub(crate) fn task_summary(&self, query: &TaskQuery) -> TaskSummary {
        let filter = &query.filter;
        if query.given_range.is_none() && filter.workers.is_empty() && filter.outcomes.is_empty() {
            return self.life_summary(&filter.names);
        }
        let range = query.given_range.unwrap_or(TimeRange::ALL);
        let snapshot = read(&self.ledger).snapshot(range);
        let rows = snapshot.summarize(filter).into_iter().map(|(name, total)| {
            let running = total.outcomes.get(Outcome::Running);
            summary_row(name, running, &total)
        });
        TaskSummary { range: query.given_range, rows: rows.collect(), thinned: snapshot.thinned() }
    }

    /// Takes the totals under the ledger's lock, shared, and computes without it.
    fn life_summary(&self, names: &[String]) -> TaskSummary {
        let (running, totals, thinned) = {
            let ledger = read(&self.ledger);
            (ledger.running_by_name(), ledger.totals().clone(), ledger.thinned())
        };
        let mut rows: BTreeMap<Arc<str>, SummaryRow> = totals
            .iter()
            .map(|(name, total)| (name.clone(), summary_row(name.clone(), 0, total)))
            .collect();
        for (name, count) in running {
            let row = rows.entry(name.clone());
            row.or_insert_with(|| summary_row(name, 0, &NameTotal::default())).running = count;
        }
        rows.retain(|name, _| names.is_empty() || names.iter().any(|asked| **asked == **name));
        TaskSummary { range: None, rows: rows.into_values().collect(), thinned }
    }
}

fn summary_row(name: Arc<str>, running: u64, total: &NameTotal) -> SummaryRow {
    SummaryRow { name, running, outcomes: total.outcomes, spread: total.durations.spread() }
}
