//! The ends of streams and of lives.

use profiler_core::Timestamp;

use super::{Attachment, Ingest};
use crate::events::EventKind;
use crate::session::Presence;
use base::limits::{TRANSLATION_KEPT, nanoseconds};
use base::sync::lock;
use store::rows::{Disconnect, DisconnectReason};

impl Ingest {
    /// Handles the end of a stream. If it owned its session, the agent is away from now on.
    pub fn detach(&self, attachment: &Attachment, reason: DisconnectReason, now: Timestamp) {
        let cell = &attachment.cell;
        let mut session = lock(&cell.state);
        if !session.is_owned_by(attachment.generation) {
            return;
        }
        let disconnect = cell.disconnect(now, reason);
        session.presence = Presence::Away(disconnect);
        // Ends the wait of pending requests.
        session.control = None;
        let events = &self.state.events;
        // Without an agent, nothing comes back to a life.
        if cell.worker.has_agent() {
            events.worker(EventKind::WorkerAway, cell, &session, now);
        }
        if disconnect.reason == DisconnectReason::Clean || self.grace_ns == 0 {
            self.state.end_life(cell, &mut session, disconnect);
        }
    }

    /// Ends the lives of agents that are away for longer than the grace period, and frees the
    /// dictionaries of sessions that ended a while ago.
    pub fn sweep(&self, now: Timestamp) {
        let sessions = lock(&self.state.registry).all();
        for cell in sessions {
            let mut session = lock(&cell.state);
            match session.presence {
                Presence::Away(disconnect) if disconnect.at.shifted(self.grace_ns) <= now => {
                    self.state.end_life(&cell, &mut session, disconnect);
                }
                Presence::Gone(Disconnect { at, .. })
                    if at.shifted(nanoseconds(TRANSLATION_KEPT)) <= now =>
                {
                    session.translation = Default::default();
                }
                _ => {}
            }
        }
    }
}
