//! Rows of the ledger, and their summary.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Outcome, PhaseInterval, TaskRecord, Timestamp};
use serde::Serialize;

use super::RangeBody;
use crate::ledger::{OutcomeCounts, PhaseTotal, Spread};
use crate::query::{SummaryRow, TaskAnswer, TaskQuery, TaskSummary, format_time};
use crate::rows::TaskRow;

/// Answer of `/api/v1/tasks`.
#[derive(Serialize)]
pub(crate) struct TasksBody {
    range: RangeBody,
    total: u64,
    truncated: bool,
    aggregated: u64,
    corrupt_files: Vec<String>,
    tasks: Vec<TaskBody>,
}

#[derive(Serialize)]
pub(crate) struct TaskBody {
    worker: String,
    epoch: String,
    id: u64,
    name: String,
    key: String,
    thread_id: u32,
    thread_name: String,
    parent: Option<u64>,
    start: String,
    start_ns: i64,
    stop: Option<String>,
    stop_ns: Option<i64>,
    duration_ns: u64,
    outcome: &'static str,
    cause: String,
    attempt: Option<u32>,
    result_bytes: Option<u64>,
    type_name: String,
    labels: BTreeMap<String, String>,
    phases: Vec<PhaseBody>,
}

#[derive(Serialize)]
struct PhaseBody {
    name: String,
    start_ns: i64,
    duration_ns: u64,
    count: u32,
}

impl PhaseBody {
    fn new(phase: &PhaseInterval, record: &TaskRecord) -> PhaseBody {
        PhaseBody {
            name: phase.name.to_string(),
            start_ns: record.start.shifted(phase.start_ns).unix_ns(),
            duration_ns: phase.duration_ns,
            count: phase.count,
        }
    }
}

impl TaskBody {
    pub(super) fn new(row: &TaskRow, now: Timestamp) -> TaskBody {
        let record = &row.record;
        let detail = record.detail.as_deref();
        let labels = detail.into_iter().flat_map(|detail| &detail.labels);
        let phases = detail.into_iter().flat_map(|detail| &detail.phases);
        TaskBody {
            worker: row.worker.to_string(),
            epoch: row.epoch.to_string(),
            id: record.id.0,
            name: record.name.to_string(),
            key: record.key.to_string(),
            thread_id: record.thread_id,
            thread_name: record.thread_name.to_string(),
            parent: record.parent.map(|parent| parent.0),
            start: format_time(record.start),
            start_ns: record.start.unix_ns(),
            stop: record.stop.map(format_time),
            stop_ns: record.stop.map(Timestamp::unix_ns),
            duration_ns: row.duration_ns().unwrap_or(now.since_ns(record.start)),
            outcome: record.outcome.name(),
            cause: record.cause.to_string(),
            attempt: detail.map(|detail| detail.attempt).filter(|attempt| *attempt > 0),
            result_bytes: detail.and_then(|detail| detail.result_bytes),
            type_name: detail.map_or(String::new(), |detail| detail.type_name.to_string()),
            labels: labels.map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            phases: phases.map(|phase| PhaseBody::new(phase, record)).collect(),
        }
    }
}

impl TasksBody {
    pub(crate) fn new(query: &TaskQuery, answer: &TaskAnswer, now: Timestamp) -> TasksBody {
        let rows = &answer.selection.rows;
        TasksBody {
            range: query.range.into(),
            total: answer.selection.total,
            truncated: answer.selection.total > rows.len() as u64,
            aggregated: answer.aggregated,
            corrupt_files: answer.damaged.clone(),
            tasks: rows.iter().map(|row| TaskBody::new(row, now)).collect(),
        }
    }
}

/// Answer of `/api/v1/tasks?summary=true`.
#[derive(Serialize)]
pub(crate) struct SummaryBody {
    range: Option<RangeBody>,
    aggregated: u64,
    corrupt_files: Vec<String>,
    names: Vec<SummaryRowBody>,
}

#[derive(Serialize)]
struct SummaryRowBody {
    name: String,
    running: u64,
    outcomes: BTreeMap<&'static str, u64>,
    durations: Option<SpreadBody>,
    phases: Vec<PhaseSumBody>,
}

#[derive(Serialize)]
struct PhaseSumBody {
    name: String,
    tasks: u64,
    duration_ns: u64,
}

#[derive(Serialize)]
pub(super) struct SpreadBody {
    count: u64,
    min_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    mean_ns: u64,
    total_ns: u64,
}

impl From<Spread> for SpreadBody {
    fn from(spread: Spread) -> Self {
        let Spread { count, min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, total_ns } = spread;
        SpreadBody { count, min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns, total_ns }
    }
}

impl From<&SummaryRow> for SummaryRowBody {
    fn from(row: &SummaryRow) -> Self {
        SummaryRowBody {
            name: row.name.to_string(),
            running: row.running,
            outcomes: ended(&row.outcomes),
            durations: row.spread.map(SpreadBody::from),
            phases: row.phases.iter().map(phase_sum).collect(),
        }
    }
}

fn phase_sum((name, total): &(Arc<str>, PhaseTotal)) -> PhaseSumBody {
    let PhaseTotal { count, duration_ns } = *total;
    PhaseSumBody { name: name.to_string(), tasks: count, duration_ns }
}

fn ended(outcomes: &OutcomeCounts) -> BTreeMap<&'static str, u64> {
    let ended = Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Running);
    ended.map(|outcome| (outcome.name(), outcomes.get(outcome))).collect()
}

impl SummaryBody {
    pub(crate) fn new(answer: &TaskSummary) -> SummaryBody {
        SummaryBody {
            range: answer.range.map(RangeBody::from),
            aggregated: answer.aggregated,
            corrupt_files: answer.damaged.clone(),
            names: answer.rows.iter().map(SummaryRowBody::from).collect(),
        }
    }
}
