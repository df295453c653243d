//! Transfers, resources, progress, runs and events.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Outcome, Timestamp};
use serde::Serialize;

use super::RangeBody;
use super::fleet::IngestStatusBody;
use super::tasks::{SpreadBody, TaskBody};
use crate::events::{Event, EventKind, Subject, WorkerIdentity};
use crate::ledger::Spread;
use crate::query::{
    ProgressAnswer, ProgressRow, ResourceAnswer, ResourceQuery, ResourceSeries, TransferAnswer,
    TransferQuery, TransferSummary, displayed_unit, format_time,
};
use crate::rows::{RunRow, TransferRow};
use crate::telemetry::LinkSum;

/// Answer of `/api/v1/transfers`.
#[derive(Serialize)]
pub(crate) struct TransfersBody {
    range: RangeBody,
    total: u64,
    truncated: bool,
    corrupt_files: Vec<String>,
    transfers: Vec<TransferBody>,
}

#[derive(Serialize)]
struct TransferBody {
    worker: String,
    epoch: String,
    id: u64,
    direction: &'static str,
    peer: String,
    keys: Vec<String>,
    more_keys: u64,
    type_name: String,
    bytes: u64,
    compressed_bytes: Option<u64>,
    start: String,
    start_ns: i64,
    stop: String,
    stop_ns: i64,
    duration_ns: u64,
    bandwidth: Option<u64>,
    task_id: Option<u64>,
    thread_id: u32,
    outcome: &'static str,
    cause: String,
}

impl TransferBody {
    fn new(row: &TransferRow) -> TransferBody {
        let record = &row.record;
        TransferBody {
            worker: row.worker.to_string(),
            epoch: row.epoch.to_string(),
            id: record.id.0,
            direction: record.direction.name(),
            peer: record.peer.to_string(),
            keys: record.keys.iter().map(ToString::to_string).collect(),
            more_keys: record.more_keys,
            type_name: record.type_name.to_string(),
            bytes: record.bytes,
            compressed_bytes: record.compressed_bytes,
            start: format_time(record.start),
            start_ns: record.start.unix_ns(),
            stop: format_time(record.stop),
            stop_ns: record.stop.unix_ns(),
            duration_ns: row.duration_ns(),
            bandwidth: row.bandwidth(),
            task_id: record.task.map(|task| task.0),
            thread_id: record.thread_id,
            outcome: record.outcome.name(),
            cause: record.cause.to_string(),
        }
    }
}

impl TransfersBody {
    pub(crate) fn new(query: &TransferQuery, answer: &TransferAnswer) -> TransfersBody {
        TransfersBody {
            range: query.range.into(),
            total: answer.total,
            truncated: answer.total > answer.rows.len() as u64,
            corrupt_files: answer.damaged.clone(),
            transfers: answer.rows.iter().map(|row| TransferBody::new(row)).collect(),
        }
    }
}

/// Answer of `/api/v1/transfers?summary=true`.
#[derive(Serialize)]
pub(crate) struct TransferSummaryBody {
    range: RangeBody,
    corrupt_files: Vec<String>,
    links: Vec<LinkBody>,
    types: Vec<TypeBody>,
}

#[derive(Serialize)]
struct LinkBody {
    worker: String,
    peer: String,
    direction: &'static str,
    #[serde(flatten)]
    sums: LinkSumBody,
}

#[derive(Serialize)]
struct TypeBody {
    type_name: String,
    #[serde(flatten)]
    sums: LinkSumBody,
}

#[derive(Serialize)]
struct LinkSumBody {
    count: u64,
    failed: u64,
    bytes: u64,
    compressed_bytes: u64,
    duration_ns: u64,
    bandwidth: Option<BandwidthBody>,
    durations: Option<SpreadBody>,
}

#[derive(Serialize)]
struct BandwidthBody {
    mean: u64,
    p50: u64,
    p90: u64,
    p99: u64,
}

impl From<&LinkSum> for LinkSumBody {
    fn from(sum: &LinkSum) -> LinkSumBody {
        let spread = sum.bandwidths.spread().zip(sum.bandwidth_mean());
        let bandwidth = spread.map(|(spread, mean)| {
            let Spread { p50_ns: p50, p90_ns: p90, p99_ns: p99, .. } = spread;
            BandwidthBody { mean, p50, p90, p99 }
        });
        LinkSumBody {
            count: sum.count,
            failed: sum.failed,
            bytes: sum.bytes,
            compressed_bytes: sum.compressed_bytes,
            duration_ns: sum.duration_ns,
            bandwidth,
            durations: sum.durations.spread().map(SpreadBody::from),
        }
    }
}

impl TransferSummaryBody {
    pub(crate) fn new(summary: &TransferSummary) -> TransferSummaryBody {
        let links = summary.links.iter().map(|((worker, peer, direction), sum)| LinkBody {
            worker: worker.to_string(),
            peer: peer.to_string(),
            direction: direction.name(),
            sums: sum.into(),
        });
        let types = summary.types.iter();
        let types =
            types.map(|(name, sum)| TypeBody { type_name: name.to_string(), sums: sum.into() });
        TransferSummaryBody {
            range: summary.range.into(),
            corrupt_files: summary.damaged.clone(),
            links: links.collect(),
            types: types.collect(),
        }
    }
}

/// Answer of `/api/v1/resources`.
#[derive(Serialize)]
pub(crate) struct ResourcesBody {
    range: RangeBody,
    corrupt_files: Vec<String>,
    step_ns: u64,
    align: bool,
    series: Vec<SeriesBody>,
}

#[derive(Serialize)]
struct SeriesBody {
    worker: String,
    host: String,
    run: Option<String>,
    measure: &'static str,
    unit: &'static str,
    cumulative: bool,
    points: Vec<(i64, f64, f64, f64)>,
    peak: f64,
}

impl From<ResourceSeries> for SeriesBody {
    fn from(series: ResourceSeries) -> SeriesBody {
        SeriesBody {
            worker: series.worker.to_string(),
            host: series.host,
            run: series.run,
            measure: series.resource.name(),
            unit: displayed_unit(series.resource),
            cumulative: series.resource.is_counted(),
            points: series.points,
            peak: series.peak,
        }
    }
}

impl ResourcesBody {
    pub(crate) fn new(query: &ResourceQuery, answer: ResourceAnswer) -> ResourcesBody {
        ResourcesBody {
            range: query.range.into(),
            corrupt_files: answer.damaged,
            step_ns: query.step_ns,
            align: query.align,
            series: answer.series.into_iter().map(SeriesBody::from).collect(),
        }
    }
}

/// Answer of `/api/v1/progress`.
#[derive(Serialize)]
pub(crate) struct ProgressBody {
    now: String,
    now_ns: i64,
    corrupt_files: Vec<String>,
    names: Vec<ProgressRowBody>,
}

#[derive(Serialize)]
struct ProgressRowBody {
    name: String,
    expected: Option<u64>,
    done: u64,
    running: u64,
    failed: u64,
    lost: u64,
    cancelled: u64,
    since: String,
    since_ns: i64,
    rate_per_s: Option<f64>,
    remaining_ns: Option<u64>,
    state: &'static str,
}

impl From<&ProgressRow> for ProgressRowBody {
    fn from(row: &ProgressRow) -> ProgressRowBody {
        ProgressRowBody {
            name: row.name.to_string(),
            expected: row.expected,
            done: row.outcomes.get(Outcome::Ok),
            running: row.running,
            failed: row.failed(),
            lost: row.outcomes.get(Outcome::Lost),
            cancelled: row.outcomes.get(Outcome::Cancelled),
            since: format_time(row.start),
            since_ns: row.start.unix_ns(),
            rate_per_s: row.rate_per_s(),
            remaining_ns: row.remaining_ns(),
            state: row.state(),
        }
    }
}

impl ProgressBody {
    pub(crate) fn new(answer: &ProgressAnswer) -> ProgressBody {
        ProgressBody {
            now: format_time(answer.now),
            now_ns: answer.now.unix_ns(),
            corrupt_files: answer.damaged.clone(),
            names: answer.rows.iter().map(ProgressRowBody::from).collect(),
        }
    }
}

/// Answer of `/api/v1/runs`.
#[derive(Serialize)]
pub(crate) struct RunsBody {
    runs: Vec<RunBody>,
}

/// One run.
#[derive(Serialize)]
pub(crate) struct RunBody {
    id: String,
    name: String,
    worker: Option<String>,
    start: String,
    start_ns: i64,
    stop: Option<String>,
    stop_ns: Option<i64>,
    duration_ns: u64,
    open: bool,
    lost: bool,
}

impl RunBody {
    pub(crate) fn new(row: &RunRow, now: Timestamp) -> RunBody {
        let (run, stop) = (&row.run, row.stop());
        RunBody {
            id: row.id(),
            name: run.name.to_string(),
            worker: row.worker.as_ref().map(ToString::to_string),
            start: format_time(run.start),
            start_ns: run.start.unix_ns(),
            stop: stop.map(format_time),
            stop_ns: stop.map(Timestamp::unix_ns),
            duration_ns: stop.unwrap_or(now).since_ns(run.start),
            open: stop.is_none(),
            lost: run.stop.is_none() && row.lost_at.is_some(),
        }
    }
}

impl RunsBody {
    pub(crate) fn new(runs: &[Arc<RunRow>], now: Timestamp) -> RunsBody {
        RunsBody { runs: runs.iter().map(|run| RunBody::new(run, now)).collect() }
    }
}

/// Answer of `/api/v1/events/recent`.
#[derive(Serialize)]
pub(crate) struct EventsBody {
    events: Vec<EventBody>,
}

#[derive(Serialize)]
struct EventBody {
    id: u64,
    kind: &'static str,
    at: String,
    at_ns: i64,
    data: SubjectBody,
}

/// What an event is about: a row as in the answers about tasks, runs and workers.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum SubjectBody {
    Task(Box<TaskBody>),
    Worker(WorkerFactsBody),
    Run(Box<RunBody>),
    Damage { name: String, reason: String },
    IngestStatus(Box<IngestStatusBody>),
}

#[derive(Serialize)]
pub(crate) struct WorkerFactsBody {
    worker: String,
    epoch: String,
    host: String,
    pid: u32,
    labels: BTreeMap<String, String>,
}

impl SubjectBody {
    pub(crate) fn new(event: &Event) -> SubjectBody {
        match &event.subject {
            Subject::Task(row) => SubjectBody::Task(Box::new(TaskBody::new(row, event.at))),
            Subject::Worker(facts) => {
                let WorkerIdentity { worker, epoch, host, pid, labels } = &**facts;
                SubjectBody::Worker(WorkerFactsBody {
                    worker: worker.to_string(),
                    epoch: epoch.to_string(),
                    host: host.clone(),
                    pid: *pid,
                    labels: labels.clone(),
                })
            }
            Subject::Run(row) => SubjectBody::Run(Box::new(RunBody::new(row, event.at))),
            Subject::Damage { name, reason } => {
                SubjectBody::Damage { name: name.clone(), reason: reason.clone() }
            }
            Subject::IngestStatus(blocked) => {
                let mut body = IngestStatusBody::new(Some(blocked));
                body.open = event.kind == EventKind::IngestResumed;
                SubjectBody::IngestStatus(Box::new(body))
            }
        }
    }
}

impl EventsBody {
    pub(crate) fn new(events: &[Arc<Event>]) -> EventsBody {
        let body = |event: &Arc<Event>| EventBody {
            id: event.id,
            kind: event.kind.name(),
            at: format_time(event.at),
            at_ns: event.at.unix_ns(),
            data: SubjectBody::new(event),
        };
        EventsBody { events: events.iter().map(body).collect() }
    }
}
