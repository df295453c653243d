//! The end of a stream that an agent announces: its life is over, or it ships to another collector from now on.

use profiler_core::Timestamp;

use super::{Attachment, Ingest, StreamError};
use crate::session::SessionCell;
use store::wal::Hello;

impl Ingest {
    /// The agent ships to another collector from now on: what is open continues there. It is forgotten once
    /// the log has the move, or the next life of the collector would have it again.
    pub async fn receive_move(
        &self,
        attachment: &Attachment,
        now: Timestamp,
    ) -> Result<(), StreamError> {
        let SessionCell { worker, epoch, .. } = &*attachment.cell;
        let agent = attachment.session(now)?.agent.clone();
        match &self.log {
            Some(log) => {
                let moved = Hello {
                    moved: true,
                    ..Hello::of(worker, *epoch, now, &agent)
                };
                log.log_move(&attachment.account.identity, attachment.cell.clone(), moved)
                    .await?;
            }
            None => self.state.forget_open(worker, *epoch),
        }
        Ok(())
    }

    /// The agent has said Goodbye. The log has it for readers of the store, and for the next life of the collector.
    /// Without it, both wait for the agent to come back.
    pub async fn receive_end(
        &self,
        attachment: &Attachment,
        now: Timestamp,
    ) -> Result<(), StreamError> {
        let SessionCell { worker, epoch, .. } = &*attachment.cell;
        let agent = attachment.session(now)?.agent.clone();
        if let Some(log) = self.log.as_ref().filter(|_| worker.has_agent()) {
            let ended = Hello {
                ended: true,
                ..Hello::of(worker, *epoch, now, &agent)
            };
            log.log_hello(&attachment.account.identity, ended).await?;
        }
        Ok(())
    }
}
