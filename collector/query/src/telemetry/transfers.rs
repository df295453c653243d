//! Transfers: between whom, how much, how fast.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::hash::KeyedSet;
use profiler_core::{Direction, Epoch, NodeId, TaskId, TimeRange, Timestamp, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::by_name::{ByName, Name, OVERFLOW};
use crate::parameters::parameter::{FLAG, Parameter, Parameters};
use crate::parameters::params::{LABEL, Params, TASK, WORKER, known_tasks, known_workers};
use crate::parameters::range::{RANGE, asked_range};
use crate::parameters::table_format::TableFormat;
use crate::table_reader::seconds_touched;
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use crate::tasks::{LIMIT, limit};
use base::limits::LINKS_IN_ANSWER_MAX;
use base::sync::read;
use state::CollectorState;
use state::ledger::TaskFilter;
use state::telemetry::LinkSum;
use store::rows::{Names, TaskRow, TransferRow};
use store::{
    Coverage, Plan, RowScan, Second, SumTable, TableName, TransferMeasure, transfer_measure,
};

/// A query for transfers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferQuery {
    pub range: TimeRange,
    pub filter: TransferFilter,
    /// Names of the tasks that they belong to; empty for all.
    pub tasks: Names,
    pub limit: usize,
    pub summary: bool,
    /// A file of single transfers; `None` is JSON.
    pub format: Option<TableFormat>,
}

/// The transfers to keep; an empty list keeps all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TransferFilter {
    pub workers: Names,
    pub peers: Names,
    pub directions: Vec<Direction>,
    pub types: Names,
}

impl TransferFilter {
    fn keeps(&self, row: &TransferRow) -> bool {
        self.workers.keeps(&row.worker.0)
            && self.keeps_link(&row.record.peer, &row.record.type_name)
            && self.keeps_direction(row.record.direction)
    }

    fn keeps_link(&self, peer: &str, type_name: &str) -> bool {
        self.peers.keeps(peer) && self.types.keeps(type_name)
    }

    fn keeps_direction(&self, direction: Direction) -> bool {
        self.directions.is_empty() || self.directions.contains(&direction)
    }
}

impl TransferQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &[
            WORKER,
            LABEL,
            Parameter::text("peer", "w-2", "The other ends. Default: all.").repeated(),
            Parameter::choice(
                "direction",
                || Direction::ALL.map(Direction::name).to_vec(),
                "incoming",
                "Directions, as the worker sees them. Default: all.",
            )
            .repeated(),
            Parameter::text(
                "type",
                "Matrix",
                "Types of what was transferred. Default: all.",
            )
            .repeated(),
            TASK,
            LIMIT,
            Parameter::flag("summary", "Sums by link and by type instead of rows."),
            TableFormat::PARAMETER,
        ],
    ];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<TransferQuery, QueryError> {
        let params = Params::of(pairs, TransferQuery::PARAMETERS)?;
        let (range, _) = asked_range(&params, state, now)?;
        let directions = Direction::ALL.map(|direction| (direction.name(), direction));
        let summary = params.choice("summary", &FLAG)?;
        let formats = if summary {
            &TableFormat::CHOICES[..1]
        } else {
            &TableFormat::CHOICES[..]
        };
        Ok(TransferQuery {
            range,
            filter: TransferFilter {
                workers: known_workers(&params, state)?,
                peers: owned(params.many("peer")?),
                directions: params.many_of("direction", &directions)?,
                types: owned(params.many("type")?),
            },
            tasks: known_tasks(&params, state)?,
            limit: limit(params.one("limit")?)?,
            summary,
            format: params.choice("format", formats)?,
        })
    }
}

fn owned(texts: Vec<&str>) -> Names {
    texts.into_iter().map(str::to_owned).collect()
}

/// Transfers, the latest stops first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferAnswer {
    pub rows: Vec<Arc<TransferRow>>,
    /// The number of transfers; more than `rows` if the limit cut off the oldest.
    pub total: u64,
    pub damaged: Vec<String>,
}

/// Worker, peer and direction.
pub(crate) type Link = (Arc<str>, Arc<str>, Direction);

/// Sums of the transfers that stopped in a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferSummary {
    pub range: TimeRange,
    pub links: BTreeMap<Link, LinkSum>,
    pub types: BTreeMap<Arc<str>, LinkSum>,
    pub damaged: Vec<String>,
}

/// The tasks of the requested names.
type Tasks = KeyedSet<(WorkerId, Epoch, TaskId)>;

impl Queries<'_> {
    /// The transfers that overlap the range.
    pub fn transfers(
        &self,
        query: &TransferQuery,
        cancel: &Cancel,
    ) -> Result<TransferAnswer, QueryError> {
        let range = query.range;
        let mut rows = Newest::new(query.limit);
        let overlaps =
            |row: &TransferRow| row.record.start < range.stop() && row.record.stop >= range.start();
        let damaged = self.each_transfer(query, cancel, |row| {
            if overlaps(row) {
                rows.offer(row);
            }
        })?;
        let (rows, total) = rows.done();
        Ok(TransferAnswer {
            rows,
            total,
            damaged,
        })
    }

    /// Sums by link and by type, of the transfers that stopped in the seconds of the range. For
    /// named tasks they are summed row by row, otherwise read from the table of sums.
    pub fn transfer_summary(
        &self,
        query: &TransferQuery,
        cancel: &Cancel,
    ) -> Result<TransferSummary, QueryError> {
        let mut sums = Sums::new();
        if !query.tasks.is_empty() {
            let seconds = Second::starting_in(query.range);
            loop {
                let damaged = self.each_transfer(query, cancel, |row| {
                    if seconds.contains(&Second::of(row.record.stop)) {
                        sums.count(row);
                    }
                })?;
                if !sums.choose() {
                    return Ok(sums.summary(query.range, damaged));
                }
            }
        }
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            query.range,
            |state, seconds| read(&state.telemetry).transfers(seconds),
            Coverage::plan,
        );
        loop {
            view.rows
                .iter()
                .filter(|row| query.filter.keeps(row))
                .for_each(|row| sums.count(row));
            self.add_sums(&mut stored, &query.filter, &mut sums)?;
            if !sums.choose() {
                break;
            }
        }
        let range = stored.range(query.range);
        Ok(sums.summary(range, stored.damaged()))
    }

    /// Adds the sums in tables.
    fn add_sums(
        &self,
        stored: &mut TableReader<'_>,
        filter: &TransferFilter,
        sums: &mut Sums,
    ) -> Result<(), QueryError> {
        let links = self.tables.links();
        let kept: Vec<NodeId> = links
            .iter()
            .zip(1u32..)
            .filter(|((peer, type_name), _)| filter.keeps_link(peer, type_name))
            .map(|(_, number)| NodeId(number))
            .collect();
        let numbers = stored.worker_numbers(&filter.workers);
        let workers = self.tables.worker_ids();
        let columns = SumTable::TransferSums.columns();
        let asked = ScanFilter {
            tasks: Some(&kept),
            workers: numbers.as_deref(),
            columns,
            sums_only: true,
        };
        stored.scan(
            |_| SumTable::TransferSums,
            asked,
            |batch, rows| {
                rows.each(|index| {
                    let link = batch.task[index];
                    let direction = Direction::ALL.get(usize::from(batch.kind[index]));
                    let worker = (batch.worker[index] as usize)
                        .checked_sub(1)
                        .and_then(|place| workers.get(place));
                    let measure = transfer_measure(batch.node[index]);
                    let (Some(direction), Some(worker), Some(measure)) =
                        (direction, worker, measure)
                    else {
                        return;
                    };
                    if kept.binary_search(&NodeId(link)).is_err()
                        || !filter.keeps_direction(*direction)
                    {
                        return;
                    }
                    let (peer, type_name) = &links[link as usize - 1];
                    let link = (worker.0.clone(), peer.clone(), *direction);
                    sums.add(&link, type_name, (measure, batch.values[index]));
                });
            },
        )
    }

    /// Visits the requested transfers that stopped at or after the range's start and began before
    /// its end. Returns the missing files.
    fn each_transfer(
        &self,
        query: &TransferQuery,
        cancel: &Cancel,
        mut visit: impl FnMut(&Arc<TransferRow>),
    ) -> Result<Vec<String>, QueryError> {
        let TransferQuery { range, filter, .. } = query;
        let touched = seconds_touched(*range);
        let tasks = self.tasks_named(query, cancel)?;
        let is_for = |row: &TransferRow| {
            tasks.as_ref().is_none_or(|tasks| {
                let task = row.record.task;
                task.is_some_and(|id| tasks.contains(&(row.worker.clone(), row.epoch, id)))
            })
        };
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            *range,
            |state: &CollectorState, _: Range<Second>| {
                read(&state.telemetry).transfers(touched.start..Second(u32::MAX))
            },
            |_: &Coverage, seconds| Plan {
                pieces: Vec::new(),
                seconds,
            },
        );
        let mut offer = |row: &Arc<TransferRow>| {
            if filter.keeps(row) && is_for(row) {
                visit(row);
            }
        };
        view.rows.iter().for_each(&mut offer);
        let worker = match &filter.workers[..] {
            [worker] => Some(worker.as_str()),
            _ => None,
        };
        let span_ns = touched.start.start().unix_ns()..touched.end.start().unix_ns();
        let scan = RowScan {
            columns: ["start", "stop"],
            span_ns,
            worker,
        };
        stored.scan_rows(TableName::Transfers, &touched, &scan, offer)?;
        Ok(stored.damaged())
    }

    /// The tasks of the requested names; `None` for any task.
    fn tasks_named(
        &self,
        query: &TransferQuery,
        cancel: &Cancel,
    ) -> Result<Option<Tasks>, QueryError> {
        if query.tasks.is_empty() {
            return Ok(None);
        }
        let workers = query.filter.workers.clone();
        let filter = TaskFilter {
            names: query.tasks.clone(),
            workers,
            ..TaskFilter::default()
        };
        let mut tasks = Tasks::default();
        self.each_task(query.range, &filter, cancel, |row: &Arc<TaskRow>| {
            tasks.insert((row.worker.clone(), row.epoch, row.record.id));
        })?;
        Ok(Some(tasks))
    }
}

/// The transfers with the latest stops, in memory for twice the limit.
struct Newest {
    limit: usize,
    total: u64,
    rows: Vec<Arc<TransferRow>>,
}

impl Newest {
    fn new(limit: usize) -> Newest {
        Newest {
            limit,
            total: 0,
            rows: Vec::new(),
        }
    }

    fn offer(&mut self, row: &Arc<TransferRow>) {
        self.total += 1;
        self.rows.push(row.clone());
        if self.rows.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.rows.sort_by(|a, b| {
            let order = |row: &TransferRow| (row.record.stop, row.epoch, row.record.id);
            order(b)
                .cmp(&order(a))
                .then_with(|| a.worker.cmp(&b.worker))
        });
        self.rows.truncate(self.limit);
    }

    fn done(mut self) -> (Vec<Arc<TransferRow>>, u64) {
        self.cut();
        (self.rows, self.total)
    }
}

impl Name for Link {
    fn overflow(&self) -> Link {
        (OVERFLOW.into(), OVERFLOW.into(), self.2)
    }
}

/// Sums in progress.
struct Sums {
    links: ByName<LinkSum, Link>,
    types: ByName<LinkSum>,
}

impl Sums {
    fn new() -> Sums {
        Sums {
            links: ByName::new(LINKS_IN_ANSWER_MAX),
            types: ByName::new(LINKS_IN_ANSWER_MAX),
        }
    }

    fn count(&mut self, row: &TransferRow) {
        let record = &row.record;
        let link = (row.worker.0.clone(), record.peer.clone(), record.direction);
        let duration_ns = row.duration_ns();
        self.links.of(&link, duration_ns).count(row);
        self.types.of(&record.type_name, duration_ns).count(row);
    }

    /// Adds what a table has counted.
    fn add(&mut self, link: &Link, type_name: &Arc<str>, sum: (TransferMeasure, u64)) {
        let (measure, value) = sum;
        let duration_ns = if measure == TransferMeasure::DurationNs {
            value
        } else {
            0
        };
        self.links.of(link, duration_ns).add(measure, value);
        self.types.of(type_name, duration_ns).add(measure, value);
    }

    /// Whether all transfers must be visited again: then there are no sums yet.
    fn choose(&mut self) -> bool {
        let is_chosen = [self.links.choose(), self.types.choose()];
        let must_visit_again = is_chosen.contains(&true);
        if must_visit_again {
            self.links.names.clear();
            self.types.names.clear();
        }
        must_visit_again
    }

    fn summary(self, range: TimeRange, damaged: Vec<String>) -> TransferSummary {
        TransferSummary {
            range,
            links: self.links.names,
            types: self.types.names,
            damaged,
        }
    }
}
