//! A task of the ledger as the API has it.

use profiler_core::{PhaseInterval, TaskRecord, Timestamp};

use crate::parameters::time::format_time;
use store::rows::TaskRow;

/// A row; `now` is where a running task ends so far.
pub fn task_body(row: &TaskRow, now: Timestamp) -> api::Task {
    let record = &row.record;
    let detail = record.detail.as_deref();
    let labels = detail.into_iter().flat_map(|detail| &detail.labels);
    let phases = detail.into_iter().flat_map(|detail| &detail.phases);
    api::Task {
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
        outcome: record.outcome.name().into(),
        cause: record.cause.to_string(),
        attempt: detail
            .map(|detail| detail.attempt)
            .filter(|attempt| *attempt > 0),
        result_bytes: detail.and_then(|detail| detail.result_bytes),
        type_name: detail.map_or(String::new(), |detail| detail.type_name.to_string()),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        phases: phases.map(|interval| phase(interval, record)).collect(),
    }
}

fn phase(phase: &PhaseInterval, record: &TaskRecord) -> api::Phase {
    api::Phase {
        name: phase.name.to_string(),
        start_ns: record.start.shifted(phase.start_ns).unix_ns(),
        duration_ns: phase.duration_ns,
        count: phase.count,
    }
}
