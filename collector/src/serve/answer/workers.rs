//! Workers, their settings, and the data that the collector retains.

use profiler_core::{StateSet, Timestamp};

use super::{state_names, time_range};
use crate::ingest::SettingsView;
use crate::ingest_status::IngestBlocked;
use crate::query::{EpochView, FleetView, format_time};
use crate::session::Presence;

/// Answer of `/api/v1/workers`.
pub(crate) fn workers(fleet: &FleetView, now: Timestamp) -> api::WorkersAnswer {
    let mut workers: Vec<api::WorkerEpochs> = Vec::new();
    for view in &fleet.epochs {
        let epoch = epoch(view);
        match workers.last_mut() {
            Some(last) if *last.worker == *view.worker.0 => last.epochs.push(epoch),
            _ => workers
                .push(api::WorkerEpochs { worker: view.worker.to_string(), epochs: vec![epoch] }),
        }
    }
    api::WorkersAnswer {
        now: format_time(now),
        now_ns: now.unix_ns(),
        ingest: ingest_status(fleet.blocked.as_ref()),
        workers,
        retained: api::Retained {
            data: fleet.data.map(time_range),
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

fn epoch(view: &EpochView) -> api::Epoch {
    let agent = &view.agent;
    let settings = view.applied.as_ref().map(|applied| applied.settings);
    let connected = view.presence == Presence::Connected;
    // The mode in Hello may precede the sampler's start, so it counts only until the agent reports
    // another on this stream.
    let first_mode = connected.then_some(&agent.sampler_mode);
    let mode = view.applied.as_ref().map(|applied| &applied.mode).or(first_mode);
    let state = match view.presence {
        Presence::Connected => "connected",
        Presence::Away(_) => "away",
        Presence::Gone(_) => "gone",
    };
    api::Epoch {
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
        state: state.into(),
        connected,
        first_seen: format_time(view.first_seen),
        last_seen: format_time(view.last_seen),
        clock: view
            .clock
            .map(|clock| api::Clock { offset_ns: clock.offset_ns, error_ns: clock.error_ns }),
        ticks: view.ticks.made,
        ticks_expected: view.ticks.expected,
        ticks_throttled: view.ticks.throttled,
        acked_seq: view.acked_seq,
        account: loss_account(view),
        refused: view.refused,
        last_refusal: view.last_refusal.clone(),
        running_tasks: view.running,
    }
}

fn loss_account(view: &EpochView) -> api::LossAccount {
    let account = &view.account;
    api::LossAccount {
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

/// Whether flushes are accepted; `None` if nothing blocks them.
pub(super) fn ingest_status(blocked: Option<&IngestBlocked>) -> api::IngestStatus {
    let Some(blocked) = blocked else {
        return api::IngestStatus { open: true, ..api::IngestStatus::default() };
    };
    let disk = blocked.disk.as_ref();
    api::IngestStatus {
        open: false,
        cause: Some(blocked.cause.name().into()),
        reason: Some(blocked.reason.clone()),
        since: Some(format_time(blocked.since)),
        since_ns: Some(blocked.since.unix_ns()),
        folder: disk.and_then(|disk| disk.folder.clone()),
        free_bytes: disk.and_then(|disk| disk.free_bytes),
        disk_bytes: disk.and_then(|disk| disk.disk_bytes),
        needed_bytes: disk.map(|disk| disk.needed_bytes),
    }
}

/// Answer of `PUT /api/v1/workers/settings`.
pub(crate) fn settings(views: Vec<SettingsView>) -> api::SettingsAnswer {
    let worker = |view: SettingsView| api::WorkerSettings {
        worker: view.worker.to_string(),
        epoch: view.epoch.map(|epoch| epoch.to_string()),
        connected: view.epoch.is_some(),
        applied: view.applied,
        interval_ns: view.settings.map(|settings| settings.interval_ns),
        enabled: view.settings.map(|settings| settings.enabled),
        states: view.settings.map(|settings| state_names(settings.states)),
    };
    api::SettingsAnswer { workers: views.into_iter().map(worker).collect() }
}
