//! Rejected messages: counted for people, logged, and answered.

use profiler_core::wire::cycle_weight_ns;
use profiler_core::wire::v1::{self, collector_message::Kind};

use super::{Attachment, Ingest, ReceivedFlush, StaleStream};
use crate::session::{FlushError, Session, SessionCell};
use base::log_limit::{Admitted, LineLimit};

/// Any agent can cause these lines.
static REJECTED: LineLimit = LineLimit::new();

impl Ingest {
    /// Refuses the next flush of a session.
    pub(super) fn refuse_flush(
        &self,
        attachment: &Attachment,
        ReceivedFlush { flush, at, .. }: &ReceivedFlush,
        error: &FlushError,
    ) -> Result<Kind, StaleStream> {
        let reason = error.to_string();
        let mut session = attachment.session(*at)?;
        session.refuse_next_flush(flush.cycle.as_ref().map_or(0, cycle_weight_ns));
        let cell = &attachment.cell;
        if cell.worker.is_import() {
            session.staged.refuse(&reason);
        }
        let receipt = Some(self.receipt(flush.sent_at_ns, *at));
        Ok(refuse(cell, &mut session, flush.seq, reason, receipt))
    }
}

/// Refuses a message. The refusal carries the size of the dictionary that the collector holds.
pub(super) fn refuse(
    cell: &SessionCell,
    session: &mut Session,
    seq: u64,
    reason: String,
    receipt: Option<v1::Receipt>,
) -> Kind {
    note_rejection(cell, session, &reason);
    let marks = session.translation.marks();
    Kind::Refusal(v1::Refusal {
        seq,
        reason,
        strings: marks.strings,
        frames: marks.frames,
        nodes: marks.nodes,
        receipt,
    })
}

/// Counts and logs that a message was rejected, whole or in part.
pub(super) fn note_rejection(cell: &SessionCell, session: &mut Session, reason: &str) {
    session.note_refusal(reason);
    if let Some(Admitted { suppressed }) = REJECTED.admit() {
        let worker = &*cell.worker.0;
        let epoch = cell.epoch;
        tracing::warn!(worker, %epoch, reason, suppressed, "rejected a message of an agent");
    }
}
