//! Workers, their settings, and the data that the collector retains.

use std::time::Duration;

use profiler_core::limits::bounded;
use profiler_core::{StateSet, Timestamp, WorkerId};

use super::{state_names, time_range};
use api::Word;
use base::limits::CLOCK_OFFSET_SHOWN;
use base::limits::{AUDIT_TEXT_BYTES_MAX, PUSHED_IDLE_MAX, nanoseconds};
use query::{EpochView, FleetView, ServiceView, format_time};
use state::QuotaView;
use state::follow::StoreStatus;
use state::forward::OutletStatus;
use state::ingest::SettingsView;
use state::ingest_status::IngestBlocked;
use state::pushed::{PushCounts, Pushed, ScrapeStatus};
use state::session::Presence;
use store::rows::{Disconnect, DisconnectReason};

/// Answer of `/api/v1/workers`.
pub(crate) fn workers(
    fleet: &FleetView,
    quotas: &[QuotaView],
    pushed: &Pushed,
    forwards: &[OutletStatus],
    stores: &[StoreStatus],
    now: Timestamp,
) -> api::WorkersAnswer {
    let mut workers: Vec<api::WorkerEpochs> = Vec::new();
    for view in &fleet.epochs {
        let epoch = epoch(view);
        match workers.last_mut() {
            Some(last) if *last.worker == *view.worker.0 => last.epochs.push(epoch),
            _ => workers.push(api::WorkerEpochs {
                worker: view.worker.to_string(),
                epochs: vec![epoch],
            }),
        }
    }
    api::WorkersAnswer {
        now: format_time(now),
        now_ns: now.unix_ns(),
        ingest: ingest_status(fleet.blocked.as_ref()),
        workers,
        omitted: fleet.omitted,
        counts: fleet.counts,
        services: fleet.services.iter().map(service).collect(),
        quotas: quotas.iter().map(|view| quota_use(view, now)).collect(),
        pushes: pushes(pushed),
        scrapes: scrapes(pushed),
        forwards: forwards.iter().map(forward).collect(),
        stores: stores.iter().map(store).collect(),
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

fn service(view: &ServiceView) -> api::Service {
    api::Service {
        name: view.name.clone(),
        series: view.series,
        connected: view.connected,
        last_seen: format_time(view.last_seen),
    }
}

fn store(store: &StoreStatus) -> api::Store {
    api::Store {
        name: store.name.clone(),
        read_at: store.read_at.map(format_time),
        incomplete: store.incomplete.clone(),
        clock_ahead_ns: store.clock_ahead_ns,
        clock_warning: store.clock_ahead_ns.and_then(clock_warning),
    }
}

/// Effect of a difference between clocks on answers, if it is large.
fn clock_warning(ahead_ns: i64) -> Option<String> {
    let seconds = ahead_ns.unsigned_abs() as f64 / 1e9;
    let (direction, times) = if ahead_ns > 0 {
        ("ahead of", "late")
    } else {
        ("behind", "early")
    };
    (seconds > CLOCK_OFFSET_SHOWN.as_secs_f64()).then(|| {
        format!(
            "the clock of its collector is {seconds:.0} s {direction} that of the store's server, so its data is that much \
             too {times} in answers; set that clock (NTP)"
        )
    })
}

fn pushes(pushed: &Pushed) -> Vec<api::PushCounts> {
    pushed
        .counters
        .all()
        .into_iter()
        .map(
            |(source, counts): (&'static str, PushCounts)| api::PushCounts {
                source: source.into(),
                series: pushed.live_count(source) as u64,
                stored: counts.stored,
                stored_ns: counts.stored_ns,
                empty: counts.empty,
                without_time: counts.without_time,
                rejected: counts.rejected,
                last_rejection: counts.last_rejection,
            },
        )
        .collect()
}

fn scrapes(pushed: &Pushed) -> Vec<api::Scrape> {
    pushed
        .scrapes
        .all()
        .into_iter()
        .map(|(name, status): (String, ScrapeStatus)| api::Scrape {
            name,
            url: status.url,
            every_ns: nanoseconds(status.every).unsigned_abs(),
            stored: status.stored,
            stored_at: status.stored_at.map(format_time),
            failed: status.failed,
            failure: status.failure,
        })
        .collect()
}

fn forward(status: &OutletStatus) -> api::Forward {
    let counts = status.counts;
    api::Forward {
        url: status.url.clone(),
        protocol: status.protocol.name().into(),
        unit: status.protocol.unit().into(),
        accepted: counts.accepted,
        sent: counts.sent,
        waiting: counts.waiting(),
        waiting_bytes: status.waiting_bytes as u64,
        lost_queue: counts.lost_queue,
        lost_rejected: counts.lost_rejected,
        failed: status.failed,
        sent_at: status.sent_at.map(format_time),
        failure: status.failure.clone(),
    }
}

fn quota_use(view: &QuotaView, now: Timestamp) -> api::QuotaUse {
    let QuotaView {
        account,
        quota,
        counted,
    } = view;
    let age = counted.last.map_or(Duration::ZERO, |last| last.elapsed());
    let identity = account.identity.to_string();
    api::QuotaUse {
        identity: bounded(&identity, AUDIT_TEXT_BYTES_MAX).into_owned(),
        quota: quota.name().into(),
        value: account.value_of(*quota),
        refused: counted.refused,
        delayed: counted.delayed,
        last: format_time(now.shifted(-nanoseconds(age))),
    }
}

fn epoch(view: &EpochView) -> api::Epoch {
    let agent = &view.agent;
    let settings = view.applied.as_ref().map(|applied| applied.settings);
    let connected = view.presence == Presence::Connected;
    // The mode in Hello may precede the sampler's start, so it counts only until the agent reports
    // another on this stream.
    let first_mode = connected.then_some(&agent.sampler_mode);
    let mode = view
        .applied
        .as_ref()
        .map(|applied| &applied.mode)
        .or(first_mode);
    let blocked = view
        .applied
        .as_ref()
        .and_then(|applied| applied.signal_blocked);
    let offset_ns = view.clock.map_or(0, |clock| clock.offset_ns);
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
        signal_blocked_threads: blocked.map_or(0, |blocked| blocked.threads),
        signal_blocked_since: blocked.map(|blocked| format_time(blocked.since.shifted(offset_ns))),
        interval_ns: settings.map_or(agent.interval_ns, |settings| settings.interval_ns),
        enabled: settings.is_none_or(|settings| settings.enabled),
        states: state_names(settings.map_or(StateSet::ALL, |settings| settings.states)),
        settings_pending: view.settings_pending,
        started_at: format_time(agent.started_at),
        state: state.into(),
        connected,
        first_seen: format_time(view.first_seen),
        last_seen: format_time(view.last_seen),
        disconnect: view.presence.disconnect().map(|disconnect| {
            how_it_ended(EndOfLife {
                disconnect,
                worker: &view.worker,
                pid: agent.pid,
                host: &agent.host,
                last_seen: view.last_seen,
            })
        }),
        clock: view.clock.map(|clock| api::Clock {
            offset_ns: clock.offset_ns,
            error_ns: clock.error_ns,
        }),
        data_ahead_ns: view.data_ahead_ns,
        ticks: view.ticks.made,
        ticks_expected: view.ticks.expected,
        ticks_throttled: view.ticks.throttled,
        acked_seq: view.acked_seq,
        account: loss_account(view),
        rejected: view.rejected,
        last_rejection: view.last_rejection.clone(),
        running_tasks: view.running,
    }
}

/// The end of a life of a worker, with the facts that explain it.
#[derive(Clone, Copy)]
pub(super) struct EndOfLife<'a> {
    pub(super) disconnect: Disconnect,
    pub(super) worker: &'a WorkerId,
    pub(super) pid: u32,
    pub(super) host: &'a str,
    pub(super) last_seen: Timestamp,
}

impl EndOfLife<'_> {
    /// The reason in words.
    fn cause(&self) -> Word {
        let Disconnect { at, reason } = self.disconnect;
        if self.worker.has_agent() || reason != DisconnectReason::Clean {
            return reason.cause().into();
        }
        if self.worker.is_import() {
            return "the import ended".into();
        }
        if self.last_seen.shifted(nanoseconds(PUSHED_IDLE_MAX)) > at {
            return "its pushes ended".into();
        }
        let minutes = PUSHED_IDLE_MAX.as_secs() / 60;
        format!("no push for {minutes} min").into()
    }
}

/// How the stream of that life ended.
pub(super) fn how_it_ended(end: EndOfLife<'_>) -> api::Disconnect {
    let Disconnect { at, reason } = end.disconnect;
    api::Disconnect {
        reason: reason.name().into(),
        cause: end.cause(),
        next_step: reason.next_step(end.pid, end.host),
        at: format_time(at),
        at_ns: at.unix_ns(),
    }
}

fn loss_account(view: &EpochView) -> api::LossAccount {
    let account = &view.account;
    api::LossAccount {
        accepted_ns: account.accepted_ns,
        stored_ns: view.stored_ns,
        lost_rejected_ns: account.lost_rejected_ns,
        lost_by_collector_ns: account.lost_by_collector_ns,
        lost_queue_ns: account.lost_queue_ns,
        lost_unseen_ns: account.lost_unseen_ns,
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
        return api::IngestStatus {
            open: true,
            ..api::IngestStatus::default()
        };
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
    api::SettingsAnswer {
        workers: views.into_iter().map(worker_settings).collect(),
    }
}

fn worker_settings(view: SettingsView) -> api::WorkerSettings {
    api::WorkerSettings {
        worker: view.worker.to_string(),
        epoch: view.epoch.map(|epoch| epoch.to_string()),
        connected: view.epoch.is_some(),
        applied: view.applied,
        interval_ns: view.settings.map(|settings| settings.interval_ns),
        enabled: view.settings.map(|settings| settings.enabled),
        states: view.settings.map(|settings| state_names(settings.states)),
    }
}
