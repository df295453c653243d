//! Workers, and what the collector holds.

use std::collections::BTreeMap;

use profiler_core::{StateSet, Timestamp};
use serde::Serialize;

use super::{RangeBody, state_names};
use crate::ingest_status::IngestBlocked;
use crate::query::{EpochView, FleetView, format_time};
use crate::session::Presence;

/// Answer of `/api/v1/workers`.
#[derive(Serialize)]
pub(crate) struct WorkersBody {
    now: String,
    now_ns: i64,
    ingest: IngestStatusBody,
    workers: Vec<WorkerBody>,
    retained: RetainedBody,
}

/// Whether anything is taken in.
#[derive(Serialize)]
pub(crate) struct IngestStatusBody {
    pub(super) open: bool,
    cause: Option<&'static str>,
    reason: Option<String>,
    since: Option<String>,
    since_ns: Option<i64>,
    folder: Option<String>,
    free_bytes: Option<u64>,
    disk_bytes: Option<u64>,
    needed_bytes: Option<u64>,
}

#[derive(Serialize)]
struct WorkerBody {
    worker: String,
    epochs: Vec<EpochBody>,
}

#[derive(Serialize)]
struct EpochBody {
    epoch: String,
    labels: BTreeMap<String, String>,
    host: String,
    pid: u32,
    agent_version: String,
    sampler_mode: Option<String>,
    interval_ns: u64,
    enabled: bool,
    states: Vec<&'static str>,
    settings_pending: bool,
    started_at: String,
    state: &'static str,
    connected: bool,
    first_seen: String,
    last_seen: String,
    clock: Option<ClockBody>,
    ticks: u64,
    ticks_expected: u64,
    ticks_throttled: u64,
    acked_seq: u64,
    account: AccountBody,
    refused: u64,
    last_refusal: Option<String>,
    running_tasks: usize,
}

#[derive(Serialize)]
struct ClockBody {
    offset_ns: i64,
    error_ns: u64,
}

#[derive(Serialize)]
struct AccountBody {
    accepted_ns: u64,
    stored_ns: u64,
    lost_refused_ns: u64,
    lost_by_collector_ns: u64,
    lost_queue_ns: u64,
    lost_tasks: u64,
    lost_telemetry: u64,
    aggregated_tasks: u64,
    unaccounted_ns: i128,
    balanced: bool,
}

/// What the collector holds.
#[derive(Serialize)]
struct RetainedBody {
    data: Option<RangeBody>,
    unsealed_windows: usize,
    unsealed_bytes: usize,
    files: usize,
    file_bytes: u64,
    nodes: u32,
    task_rows: usize,
    task_rows_aggregated: u64,
}

impl EpochBody {
    fn new(view: &EpochView) -> EpochBody {
        let agent = &view.agent;
        let settings = view.applied.as_ref().map(|applied| applied.settings);
        // A agent may come before the agent knows, so it says how things are only until more is
        // said on the stream.
        let is_connected = view.presence == Presence::Connected;
        let greeted = is_connected.then_some(&agent.sampler_mode);
        let mode = view.applied.as_ref().map(|applied| &applied.mode).or(greeted);
        EpochBody {
            epoch: view.epoch.to_string(),
            labels: agent.labels.clone(),
            host: agent.host.clone(),
            pid: agent.pid,
            agent_version: agent.agent_version.clone(),
            sampler_mode: mode.cloned(),
            interval_ns: settings.map_or(agent.interval_ns, |settings| settings.interval_ns),
            enabled: settings.is_none_or(|settings| settings.enabled),
            states: state_names(settings.map_or(StateSet::ALL, |settings| settings.states)),
            settings_pending: view.settings_pending,
            started_at: format_time(agent.started_at),
            state: match view.presence {
                Presence::Connected => "connected",
                Presence::Away(_) => "away",
                Presence::Gone(_) => "gone",
            },
            connected: is_connected,
            first_seen: format_time(view.first_seen),
            last_seen: format_time(view.last_seen),
            clock: view
                .clock
                .map(|clock| ClockBody { offset_ns: clock.offset_ns, error_ns: clock.error_ns }),
            ticks: view.ticks.made,
            ticks_expected: view.ticks.expected,
            ticks_throttled: view.ticks.throttled,
            acked_seq: view.acked_seq,
            account: AccountBody::new(view),
            refused: view.refused,
            last_refusal: view.last_refusal.clone(),
            running_tasks: view.running,
        }
    }
}

impl IngestStatusBody {
    pub(crate) fn new(blocked: Option<&IngestBlocked>) -> IngestStatusBody {
        let disk = blocked.and_then(|found| found.disk.as_ref());
        IngestStatusBody {
            open: blocked.is_none(),
            cause: blocked.map(|found| found.cause.name()),
            reason: blocked.map(|found| found.reason.clone()),
            since: blocked.map(|found| format_time(found.since)),
            since_ns: blocked.map(|found| found.since.unix_ns()),
            folder: disk.and_then(|disk| disk.folder.clone()),
            free_bytes: disk.and_then(|disk| disk.free_bytes),
            disk_bytes: disk.and_then(|disk| disk.disk_bytes),
            needed_bytes: disk.map(|disk| disk.needed_bytes),
        }
    }
}

impl AccountBody {
    fn new(view: &EpochView) -> AccountBody {
        let account = &view.account;
        AccountBody {
            accepted_ns: account.accepted_ns,
            stored_ns: view.stored_ns,
            lost_refused_ns: account.lost_refused_ns,
            lost_by_collector_ns: account.lost_by_collector_ns,
            lost_queue_ns: account.lost_queue_ns,
            lost_tasks: account.lost_tasks,
            lost_telemetry: account.lost_telemetry,
            aggregated_tasks: account.aggregated_tasks,
            unaccounted_ns: view.unaccounted_ns(),
            balanced: view.unaccounted_ns() == 0,
        }
    }
}

impl WorkersBody {
    pub(crate) fn new(fleet: &FleetView, now: Timestamp) -> WorkersBody {
        let mut workers: Vec<WorkerBody> = Vec::new();
        for view in &fleet.epochs {
            let epoch = EpochBody::new(view);
            match workers.last_mut() {
                Some(last) if *last.worker == *view.worker.0 => last.epochs.push(epoch),
                _ => workers
                    .push(WorkerBody { worker: view.worker.to_string(), epochs: vec![epoch] }),
            }
        }
        WorkersBody {
            now: format_time(now),
            now_ns: now.unix_ns(),
            ingest: IngestStatusBody::new(fleet.blocked.as_ref()),
            workers,
            retained: RetainedBody {
                data: fleet.data.map(RangeBody::from),
                unsealed_windows: fleet.windows,
                unsealed_bytes: fleet.window_bytes,
                files: fleet.files,
                file_bytes: fleet.file_bytes,
                nodes: fleet.nodes,
                task_rows: fleet.task_rows,
                task_rows_aggregated: fleet.task_rows_aggregated,
            },
        }
    }
}
