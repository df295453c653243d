//! Requests to connected agents: settings, thread dumps and symbols.

use std::sync::Arc;

use profiler_core::wire::{ThreadDump, decode_applied, decode_thread_dump, encode_settings, v1};
use profiler_core::{Epoch, Settings, SettingsChange, ThreadSnapshot, Timestamp, WorkerId};
use tokio::sync::{oneshot, watch};

use super::rejection::note_rejection;
use super::{Attachment, Ingest, StaleStream};
use crate::agent_control::{ControlStream, ThreadDumpResult, control_channel};
use crate::session::{Presence, Session, SessionCell};
use base::sync::{lock, read};
use store::rows::Names;

/// A request to one agent for a thread dump.
#[derive(Debug)]
pub struct PendingThreadDump {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub answer: oneshot::Receiver<ThreadDumpResult>,
}

/// The settings of one connected agent, or of a worker that has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsView {
    pub worker: WorkerId,
    /// `None`: no agent of the worker is connected.
    pub epoch: Option<Epoch>,
    pub settings: Option<Settings>,
    /// Whether the agent has applied the desired settings.
    pub applied: bool,
}

impl Ingest {
    /// Opens the control channel of a session's new stream.
    pub(super) fn open_control(&self, cell: &SessionCell, session: &mut Session) -> ControlStream {
        let (control, stream) = control_channel();
        session.control = Some(control);
        session.applied = None;
        self.send_settings(cell, session);
        stream
    }

    fn send_settings(&self, cell: &SessionCell, session: &Session) {
        let desired = lock(&self.state.desired).of(&cell.worker);
        if let Some(control) = &session.control
            && desired.revision > control.sent_revision()
        {
            control.send_settings(encode_settings(desired.revision, desired.change));
        }
    }

    /// Changes the desired settings of these workers (of all workers, connected or not, if none is
    /// named) and sends them to the connected agents.
    pub fn change_settings(&self, workers: &Names, change: SettingsChange) {
        let ids: Vec<WorkerId> = workers
            .iter()
            .map(|id| WorkerId(id.as_str().into()))
            .collect();
        let known = self.state.workers();
        let mut desired = lock(&self.state.desired);
        desired.retain_workers(&known);
        desired.add(
            (!ids.is_empty()).then_some(&ids),
            change,
            self.state.clock.now(),
        );
        drop(desired);
        for cell in self.state.sessions(workers) {
            let session = lock(&cell.state);
            self.send_settings(&cell, &session);
        }
    }

    /// The settings of the connected agents of these workers (of all if none is named). A named worker
    /// without a connected agent is in the list too.
    pub fn settings(&self, workers: &Names) -> Vec<SettingsView> {
        let mut views = Vec::new();
        for cell in self.state.sessions(workers) {
            let session = lock(&cell.state);
            // A service that pushes profiles has no agent that could apply them.
            if session.presence == Presence::Connected && session.control.is_some() {
                let desired = lock(&self.state.desired).of(&cell.worker);
                let applied = session.applied.as_ref();
                views.push(SettingsView {
                    worker: cell.worker.clone(),
                    epoch: Some(cell.epoch),
                    settings: applied.map(|applied| applied.settings),
                    applied: desired.is_applied_by(applied),
                });
            }
        }
        for id in workers.iter() {
            if !views.iter().any(|view| *view.worker.0 == **id) {
                let worker = WorkerId(id.as_str().into());
                views.push(SettingsView {
                    worker,
                    epoch: None,
                    settings: None,
                    applied: false,
                });
            }
        }
        views
    }

    /// Notified after each report of applied settings.
    pub fn settings_changes(&self) -> watch::Receiver<()> {
        self.settings_changed.subscribe()
    }

    /// Records the settings that an agent reports as applied. An invalid report is noted as a refusal.
    pub fn receive_applied_settings(
        &self,
        attachment: &Attachment,
        message: v1::AppliedSettings,
        received_at: Timestamp,
    ) -> Result<(), StaleStream> {
        let mut session = attachment.session(received_at)?;
        match decode_applied(message) {
            Ok(applied) => session.applied = Some(applied),
            Err(error) => note_rejection(&attachment.cell, &mut session, &error.to_string()),
        }
        drop(session);
        self.settings_changed.send_replace(());
        Ok(())
    }

    /// Requests thread dumps from the connected agents of these workers (of all if none is named).
    pub fn request_thread_dumps(&self, workers: &Names) -> Vec<PendingThreadDump> {
        let mut requests = Vec::new();
        for cell in self.state.sessions(workers) {
            let mut session = lock(&cell.state);
            if session.presence == Presence::Connected
                && let Some(control) = &mut session.control
            {
                let answer = control.request_thread_dump();
                let worker = cell.worker.clone();
                requests.push(PendingThreadDump {
                    worker,
                    epoch: cell.epoch,
                    answer,
                });
            }
        }
        requests
    }

    /// The connected agents that have this build id in their stacks.
    pub fn agents_with_build(&self, build_id: &str) -> Vec<Arc<SessionCell>> {
        let id = read(&self.state.tree).symbols.string_id(build_id);
        let Some(id) = id else {
            return Vec::new();
        };
        let mut cells = self.state.sessions(&Names::default());
        cells.retain(|cell| {
            let session = lock(&cell.state);
            let is_connected = session.presence == Presence::Connected && session.control.is_some();
            is_connected && session.translation.has_string(id)
        });
        cells
    }

    /// Requests a piece of a module's symbols from the agent of a session; `None` if it is not connected.
    pub fn request_symbols(
        &self,
        cell: &SessionCell,
        build_id: &str,
        offset: u64,
    ) -> Option<oneshot::Receiver<v1::SymbolPiece>> {
        let mut session = lock(&cell.state);
        let is_connected = session.presence == Presence::Connected;
        let control = session.control.as_mut().filter(|_| is_connected)?;
        Some(control.request_symbols(build_id, offset))
    }

    /// Passes a piece of symbols to the request that it answers. Without such a request it is dropped.
    pub fn receive_symbol_piece(
        &self,
        attachment: &Attachment,
        piece: v1::SymbolPiece,
        received_at: Timestamp,
    ) -> Result<(), StaleStream> {
        let mut session = attachment.session(received_at)?;
        let pending = session.control.as_mut();
        if let Some(pending) = pending.and_then(|control| control.take_pending_symbols(piece.id)) {
            // The requester may have given up.
            let _ = pending.send(piece);
        }
        Ok(())
    }

    /// Passes a thread dump to the request that it answers. Without such a request it is dropped.
    pub fn receive_thread_dump(
        &self,
        attachment: &Attachment,
        message: &v1::ThreadDump,
        received_at: Timestamp,
    ) -> Result<(), StaleStream> {
        let mut session = attachment.session(received_at)?;
        let pending = session
            .control
            .as_mut()
            .and_then(|control| control.take_pending(message.id));
        let Some(pending) = pending else {
            return Ok(());
        };
        let answer = if message.unavailable.is_empty() {
            translate(&session, message)
        } else {
            Err(profiler_core::limits::bounded_name(&message.unavailable).into_owned())
        };
        // The requester may have disconnected.
        let _ = pending.send(answer);
        Ok(())
    }
}

/// Decodes a thread dump and translates its nodes to the collector's.
fn translate(session: &Session, message: &v1::ThreadDump) -> ThreadDumpResult {
    let translation = &session.translation;
    let dump = decode_thread_dump(message, translation.marks().nodes)
        .map_err(|error| format!("invalid thread dump: {error}"))?;
    let threads = dump.threads.into_iter().map(|thread| {
        let node = translation.node(thread.node);
        ThreadSnapshot {
            node: node.expect("decode_thread_dump rejects unknown nodes"),
            ..thread
        }
    });
    Ok(ThreadDump {
        threads: threads.collect(),
        omitted: dump.omitted,
    })
}
