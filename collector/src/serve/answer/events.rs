//! Events.

use std::sync::Arc;

use super::telemetry::run;
use super::workers::{EndOfLife, how_it_ended, ingest_status};
use query::{format_time, task_body};
use state::events::{Event, EventKind, Subject, WorkerIdentity};

/// Most further workers that an event names.
const WORKERS_NAMED_MAX: usize = 5;

/// Answer of `/api/v1/events/recent`.
pub(crate) fn events(events: &[Arc<Event>]) -> api::EventsAnswer {
    api::EventsAnswer {
        events: events.iter().map(fleet_event).collect(),
    }
}

fn fleet_event(event: &Arc<Event>) -> api::FleetEvent {
    api::FleetEvent {
        id: event.id,
        kind: event.kind.name().into(),
        at: format_time(event.at),
        at_ns: event.at.unix_ns(),
        data: subject(event),
    }
}

/// Subject of an event.
pub(crate) fn subject(event: &Event) -> api::Subject {
    match &event.subject {
        Subject::Task(row) => api::Subject::Task(Box::new(task_body(row, event.at))),
        Subject::Worker(facts) => {
            let WorkerIdentity {
                worker,
                epoch,
                host,
                pid,
                labels,
                last_seen,
                disconnect,
            } = &**facts;
            api::Subject::Worker(Box::new(api::WorkerIdentity {
                worker: worker.to_string(),
                epoch: epoch.to_string(),
                host: host.clone(),
                pid: *pid,
                labels: labels.clone(),
                last_seen: format_time(*last_seen),
                disconnect: disconnect.map(|disconnect| {
                    how_it_ended(EndOfLife {
                        disconnect,
                        worker,
                        pid: *pid,
                        host,
                        last_seen: *last_seen,
                    })
                }),
                others: event.others.len() as u64,
                other_workers: event
                    .others
                    .iter()
                    .take(WORKERS_NAMED_MAX)
                    .map(|other| other.worker.to_string())
                    .collect(),
            }))
        }
        Subject::Run(row) => api::Subject::Run(Box::new(run(row, event.at))),
        Subject::Damage { name, reason } => api::Subject::CorruptFile(api::CorruptFile {
            name: name.clone(),
            reason: reason.clone(),
        }),
        Subject::IngestStatus(blocked) => {
            let mut status = ingest_status(Some(blocked));
            status.open = event.kind == EventKind::IngestResumed;
            api::Subject::IngestStatus(Box::new(status))
        }
    }
}
