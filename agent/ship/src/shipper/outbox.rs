//! The queue of batches that the collector has not acknowledged: bounded in bytes, exact in weight.
//!
//! Batches wait until they are sent. Too many waiting ones are merged into coarser ones; weight is never
//! dropped. A batch gets its sequence number when it is first sent, and its content is frozen from then
//! on: after a reconnect the same number has the same content.
//!
//! # Accounts
//! All accepted weight is in exactly one place: waiting, in flight, delivered (acknowledged, or at or
//! below the sequence number of a [`Welcome`](profiler_core::wire::v1::Welcome)), rejected, or lost in
//! the sampler's queue. A collector that lost its memory no longer has a part of the delivered weight.
//! That part is *lost by the collector*; each Welcome sets it, so it shrinks if an older state of the
//! collector is restored.
//!
//! The account of a flush describes the state right after the collector has applied it. Unanswered by
//! then are only the flushes in flight up to this one, so
//!
//! ```text
//! accepted = delivered + rejected + lost in queue + in flight up to this flush
//!          = stored    + rejected + lost in queue + lost by the collector
//! ```
//!
//! Both lines use the agent's knowledge at the time of sending, also when a flush is sent again: without
//! rejections `accepted` is then the same, because the weight that was in flight is delivered now. One
//! case cannot be known: a flush that is already on the network when the collector rejects an earlier
//! one counts that one as stored. The next flush is right.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::sync::Arc;

use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::v1;

use super::resend::ResendState;
use crate::batch::Batch;

/// Most memory of all batches, by [`Batch::bytes`]: about an hour of a small worker's cycles. Only
/// the weights of the one batch that everything was merged into, at most a pair for each node of
/// the tree, and its sums of tasks, one for each name and outcome, may go beyond.
pub(crate) const OUTBOX_BYTES_MAX: usize = 8 << 20;

/// Most waiting batches: an hour of seconds. Keeps the search for batches to merge short.
pub(crate) const WAITING_MAX: usize = 3_600;

/// Most sent flushes without an answer.
pub(crate) const IN_FLIGHT_MAX: usize = 16;

/// Most bytes of records of running tasks, which may have to be sent again.
pub(crate) const RUNNING_BYTES_MAX: usize = 1 << 20;

/// The outbox's limits; the defaults are the constants of this module.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most memory of all batches, in bytes.
    pub outbox_bytes_max: usize,
    /// Most waiting batches.
    pub waiting_max: usize,
    /// Most sent flushes without an answer.
    pub in_flight_max: usize,
    /// Most bytes of records of running tasks.
    pub running_bytes_max: usize,
    /// Largest encoded flush, in bytes.
    pub flush_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            waiting_max: WAITING_MAX,
            in_flight_max: IN_FLIGHT_MAX,
            running_bytes_max: RUNNING_BYTES_MAX,
            flush_bytes_max: MESSAGE_BYTES_TARGET,
        }
    }
}

/// The present account of weight and rows.
/// `accepted = acked + unacked + lost_rejected + lost_by_collector + lost_queue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OutboxAccount {
    pub(crate) accepted_ns: u64,
    /// Acknowledged and, to the agent's knowledge, still stored by the collector.
    pub(crate) acked_ns: u64,
    /// Waiting or in flight. The collector may already have flushes in flight.
    pub(crate) unacked_ns: u64,
    pub(crate) lost_rejected_ns: u64,
    pub(crate) lost_by_collector_ns: u64,
    pub(crate) lost_queue_ns: u64,
    /// Thread time in it that the sampler has not counted.
    pub(crate) lost_unseen_ns: u64,
    /// Rows of tasks that were rejected, or had no room here or in an earlier queue.
    pub(crate) lost_tasks: u64,
    /// The same for telemetry.
    pub(crate) lost_telemetry: u64,
    /// Ended tasks that are in sums only.
    pub(crate) aggregated_tasks: u64,
    /// Running tasks for which [`ResendState`] had no room.
    pub(crate) untracked_tasks: u64,
}

impl AddAssign for OutboxAccount {
    fn add_assign(&mut self, other: OutboxAccount) {
        let OutboxAccount {
            accepted_ns,
            acked_ns,
            unacked_ns,
            lost_rejected_ns,
            lost_by_collector_ns,
            lost_queue_ns,
            lost_unseen_ns,
            lost_tasks,
            lost_telemetry,
            aggregated_tasks,
            untracked_tasks,
        } = self;
        let sums = [
            (accepted_ns, other.accepted_ns),
            (acked_ns, other.acked_ns),
            (unacked_ns, other.unacked_ns),
            (lost_rejected_ns, other.lost_rejected_ns),
            (lost_by_collector_ns, other.lost_by_collector_ns),
            (lost_queue_ns, other.lost_queue_ns),
            (lost_unseen_ns, other.lost_unseen_ns),
            (lost_tasks, other.lost_tasks),
            (lost_telemetry, other.lost_telemetry),
            (aggregated_tasks, other.aggregated_tasks),
            (untracked_tasks, other.untracked_tasks),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The collector acknowledges a sequence number that this epoch never sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the collector acknowledges flush {acked_seq} of this epoch, but only {sent} were sent")]
pub(crate) struct UnknownSeq {
    acked_seq: u64,
    sent: u64,
}

/// The collector answers a flush that is not the oldest one without an answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the collector answers flush {seq}, but the next answer is due to flush {due}")]
pub(crate) struct UnexpectedAnswer {
    seq: u64,
    due: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    limits: Limits,
    waiting: VecDeque<Batch>,
    waiting_bytes: usize,
    /// By rising sequence number.
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    next_seq: u64,
    /// Highest acknowledged number.
    acked_seq: u64,
    resend: ResendState,
    accepted_ns: u64,
    /// Weight of acknowledged flushes, whether or not the collector still has it.
    delivered_ns: u64,
    refused_ns: u64,
    /// Part of `delivered_ns`.
    lost_by_collector_ns: u64,
    /// Only of answered flushes.
    queue_ns: u64,
    lost_tasks: u64,
    lost_telemetry: u64,
    lost_unseen_ns: u64,
    aggregated_tasks: u64,
}

#[derive(Debug)]
struct InFlight {
    seq: u64,
    batch: Arc<Batch>,
    weight_ns: u64,
    bytes: usize,
    /// Whether it was sent on the present stream.
    sent_here: bool,
}

impl Outbox {
    pub(crate) fn new(limits: Limits) -> Self {
        Outbox {
            limits,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            next_seq: 1,
            acked_seq: 0,
            resend: ResendState::default(),
            accepted_ns: 0,
            delivered_ns: 0,
            refused_ns: 0,
            lost_by_collector_ns: 0,
            queue_ns: 0,
            lost_tasks: 0,
            lost_telemetry: 0,
            lost_unseen_ns: 0,
            aggregated_tasks: 0,
        }
    }

    /// Queues a cycle. Past the limits, waiting batches are merged; rows and telemetry that still do not
    /// fit are dropped and counted.
    pub(crate) fn push(&mut self, mut batch: Batch) {
        let lost_tasks = std::mem::take(&mut batch.lost_tasks);
        let lost_telemetry = std::mem::take(&mut batch.lost_telemetry);
        let lost_unseen_ns = std::mem::take(&mut batch.lost_unseen_ns);
        let aggregated_tasks = std::mem::take(&mut batch.aggregated_tasks);
        self.lost_tasks = self.lost_tasks.saturating_add(lost_tasks);
        self.lost_telemetry = self.lost_telemetry.saturating_add(lost_telemetry);
        self.lost_unseen_ns = self.lost_unseen_ns.saturating_add(lost_unseen_ns);
        self.aggregated_tasks = self.aggregated_tasks.saturating_add(aggregated_tasks);
        self.resend.update_telemetry(&batch.telemetry);
        for task in &batch.tasks {
            self.resend.update(task, self.limits.running_bytes_max);
        }
        let accepted_ns = batch.weight_ns().saturating_add(batch.lost_queue_ns);
        self.accepted_ns = self.accepted_ns.saturating_add(accepted_ns);
        self.waiting_bytes += batch.bytes();
        self.waiting.push_back(batch);
        self.enforce_limits();
    }

    /// Whether [`Outbox::next`] would return a flush.
    pub(crate) fn has_next(&self) -> bool {
        self.in_flight.iter().any(|flush| !flush.sent_here) || self.can_freeze()
    }

    /// Returns the next flush of the present stream: first the unanswered flushes of earlier streams, then
    /// waiting batches. `None` if there are none, or too many flushes are unanswered.
    pub(crate) fn next(&mut self) -> Option<(u64, Arc<Batch>)> {
        if self.in_flight.iter().all(|flush| flush.sent_here) && self.can_freeze() {
            self.freeze();
        }
        let flush = self.in_flight.iter_mut().find(|flush| !flush.sent_here)?;
        flush.sent_here = true;
        Some((flush.seq, flush.batch.clone()))
    }

    /// Returns the account to send with a flush, see the module; `None` if it is not in flight.
    pub(crate) fn account(&self, seq: u64) -> Option<v1::LossAccount> {
        let end = self
            .in_flight
            .binary_search_by_key(&seq, |flush| flush.seq)
            .ok()?;
        let mut in_flight_ns = 0u64;
        let mut queue_ns = self.queue_ns;
        for flush in self.in_flight.range(..=end) {
            in_flight_ns = in_flight_ns.saturating_add(flush.weight_ns);
            queue_ns = queue_ns.saturating_add(flush.batch.lost_queue_ns);
        }
        let settled_ns = self.delivered_ns.saturating_add(self.refused_ns);
        Some(v1::LossAccount {
            accepted_ns: settled_ns
                .saturating_add(in_flight_ns)
                .saturating_add(queue_ns),
            lost_rejected_ns: self.refused_ns,
            lost_by_collector_ns: self.lost_by_collector_ns,
            lost_tasks: self.lost_tasks,
            lost_queue_ns: queue_ns,
            lost_telemetry: self.lost_telemetry,
            aggregated_tasks: self.aggregated_tasks,
            lost_unseen_ns: self.lost_unseen_ns,
        })
    }

    /// The collector has stored a flush. An answer to an answered flush is a repeated one.
    ///
    /// # Errors
    /// If it is not the answer that is due; then nothing changes.
    pub(crate) fn ack(&mut self, seq: u64) -> Result<(), UnexpectedAnswer> {
        if self.is_due(seq)? {
            self.deliver(seq);
        }
        Ok(())
    }

    /// The collector has rejected a flush: its weight and rows are counted as lost.
    ///
    /// # Errors
    /// If it is not the answer that is due; then nothing changes.
    pub(crate) fn refuse(&mut self, seq: u64) -> Result<(), UnexpectedAnswer> {
        if !self.is_due(seq)? {
            return Ok(());
        }
        if let Some(flush) = self.remove_answered(seq) {
            self.refused_ns = self.refused_ns.saturating_add(flush.weight_ns);
            let telemetry = flush.batch.telemetry.count() as u64;
            self.lost_telemetry = self.lost_telemetry.saturating_add(telemetry);
            self.lost_tasks = self.lost_tasks.saturating_add(flush.batch.task_count());
        }
        Ok(())
    }

    /// Whether the answer to this flush is due; not if it was answered before. Answers come in the
    /// order of the flushes, or a collector could make a gap that no other one can fill.
    fn is_due(&self, seq: u64) -> Result<bool, UnexpectedAnswer> {
        let oldest = self.in_flight.front();
        let due = oldest.map_or(self.next_seq, |flush| flush.seq);
        if seq < due {
            return Ok(false);
        }
        match oldest {
            Some(flush) if flush.seq == seq && flush.sent_here => Ok(true),
            _ => Err(UnexpectedAnswer { seq, due }),
        }
    }

    fn deliver(&mut self, seq: u64) {
        if let Some(flush) = self.remove_answered(seq) {
            self.delivered_ns = self.delivered_ns.saturating_add(flush.weight_ns);
            self.acked_seq = self.acked_seq.max(seq);
        }
    }

    /// Starts a stream with a collector that has the flushes up to `acked_seq`, and `stored_ns` of their
    /// weight. These flushes are not sent again. Weight that the collector lost is counted, and then the
    /// [`ResendState`] is sent again, because its rows may be lost too.
    ///
    /// # Errors
    /// If it acknowledges flushes that were never sent; then nothing changes.
    pub(crate) fn welcome(&mut self, acked_seq: u64, stored_ns: u64) -> Result<(), UnknownSeq> {
        if acked_seq >= self.next_seq {
            return Err(UnknownSeq {
                acked_seq,
                sent: self.next_seq - 1,
            });
        }
        // Stored, but the acknowledgment was lost with an earlier stream.
        let first_seq = |outbox: &Outbox| outbox.in_flight.front().map(|flush| flush.seq);
        while let Some(seq) = first_seq(self).filter(|seq| *seq <= acked_seq) {
            self.deliver(seq);
        }
        // A restored older state may have flushes that a newer one rejected.
        let regained_ns = stored_ns
            .saturating_sub(self.delivered_ns)
            .min(self.refused_ns);
        self.refused_ns -= regained_ns;
        self.delivered_ns = self.delivered_ns.saturating_add(regained_ns);
        let lost_by_collector_ns = self.delivered_ns.saturating_sub(stored_ns);
        if acked_seq < self.acked_seq || lost_by_collector_ns > self.lost_by_collector_ns {
            self.resend_state();
        }
        self.lost_by_collector_ns = lost_by_collector_ns;
        self.acked_seq = acked_seq;
        for flush in &mut self.in_flight {
            flush.sent_here = false;
        }
        Ok(())
    }

    /// The flush up to which all are answered, by any collector.
    pub(crate) fn answered_seq(&self) -> u64 {
        self.in_flight
            .front()
            .map_or(self.next_seq, |flush| flush.seq)
            - 1
    }

    /// Whether all sent flushes are answered.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the outbox for another collector: what was never sent moves there, and the state that it must
    /// know. Flushes in flight stay here, because this collector may have them.
    pub(crate) fn move_unsent(&mut self) -> Outbox {
        let mut next = Outbox::new(self.limits);
        next.waiting = std::mem::take(&mut self.waiting);
        next.waiting_bytes = std::mem::take(&mut self.waiting_bytes);
        next.resend = std::mem::take(&mut self.resend);
        let moved = next
            .waiting
            .iter()
            .map(|batch| batch.weight_ns() + batch.lost_queue_ns);
        next.accepted_ns = moved.sum();
        self.accepted_ns -= next.accepted_ns;
        next.resend_state();
        next
    }

    /// Approximate memory of the flushes that are not answered.
    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Whether no batch waits and all sent flushes are answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Whether an answer to a sent flush is due.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.in_flight.iter().any(|flush| flush.sent_here)
    }

    /// Returns the present account.
    pub(crate) fn current_account(&self) -> OutboxAccount {
        let sum = |weights: &mut dyn Iterator<Item = u64>| weights.fold(0, u64::saturating_add);
        let in_flight_ns = sum(&mut self.in_flight.iter().map(|flush| flush.weight_ns));
        let waiting_ns = sum(&mut self.waiting.iter().map(Batch::weight_ns));
        let in_flight = self.in_flight.iter().map(|flush| &*flush.batch);
        let unsettled = in_flight
            .chain(&self.waiting)
            .map(|batch| batch.lost_queue_ns);
        OutboxAccount {
            accepted_ns: self.accepted_ns,
            acked_ns: self.delivered_ns - self.lost_by_collector_ns,
            unacked_ns: waiting_ns.saturating_add(in_flight_ns),
            lost_rejected_ns: self.refused_ns,
            lost_by_collector_ns: self.lost_by_collector_ns,
            lost_queue_ns: sum(&mut unsettled.chain([self.queue_ns])),
            lost_unseen_ns: self.lost_unseen_ns,
            lost_tasks: self.lost_tasks,
            lost_telemetry: self.lost_telemetry,
            aggregated_tasks: self.aggregated_tasks,
            untracked_tasks: self.resend.untracked,
        }
    }

    fn bytes(&self) -> usize {
        self.waiting_bytes + self.in_flight_bytes
    }

    /// Half of the memory is reserved for waiting batches, because only they can be merged.
    fn can_freeze(&self) -> bool {
        !self.waiting.is_empty()
            && self.in_flight.len() < self.limits.in_flight_max
            && self.in_flight_bytes < self.limits.outbox_bytes_max / 2
    }

    /// Assigns a number to the oldest waiting batch, or to the part of it that fits into a message.
    fn freeze(&mut self) {
        let Some(batch) = self.waiting.pop_front() else {
            return;
        };
        self.waiting_bytes -= batch.bytes();
        let (batch, rest) = batch.split(self.limits.flush_bytes_max);
        if let Some(rest) = rest {
            self.waiting_bytes += rest.bytes();
            self.waiting.push_front(rest);
        }
        let seq = self.next_seq;
        let weight_ns = batch.weight_ns();
        let bytes = batch.bytes();
        let batch = Arc::new(batch);
        self.next_seq += 1;
        self.in_flight_bytes += bytes;
        self.in_flight.push_back(InFlight {
            seq,
            batch,
            weight_ns,
            bytes,
            sent_here: false,
        });
        // Two batches take more than one.
        self.enforce_limits();
    }

    /// Removes an answered flush; the caller counts its weight.
    fn remove_answered(&mut self, seq: u64) -> Option<InFlight> {
        let index = self
            .in_flight
            .binary_search_by_key(&seq, |flush| flush.seq)
            .ok()?;
        let flush = self.in_flight.remove(index)?;
        self.in_flight_bytes -= flush.bytes;
        self.queue_ns = self.queue_ns.saturating_add(flush.batch.lost_queue_ns);
        Some(flush)
    }

    /// Queues the [`ResendState`] before all waiting batches, so that later states replace it.
    fn resend_state(&mut self) {
        let tasks: Vec<_> = self.resend.tasks.values().cloned().collect();
        let telemetry = self.resend.telemetry();
        if tasks.is_empty() && telemetry.is_empty() {
            return;
        }
        let rows = Batch {
            tasks,
            telemetry,
            ..Batch::default()
        };
        // A collector that restarts repeatedly must not fill the outbox with the same rows.
        let has_rows_only = self
            .waiting
            .front()
            .is_some_and(|front| front.span.is_none());
        let rows_only = if has_rows_only {
            self.waiting.pop_front()
        } else {
            None
        };
        let batch = match rows_only {
            Some(front) => {
                self.waiting_bytes -= front.bytes();
                rows.merge(front)
            }
            None => rows,
        };
        self.waiting_bytes += batch.bytes();
        self.waiting.push_front(batch);
        self.enforce_limits();
    }

    /// Merges, and at last drops rows, until the outbox is within its limits.
    fn enforce_limits(&mut self) {
        while self.waiting.len() > 1
            && (self.bytes() > self.limits.outbox_bytes_max
                || self.waiting.len() > self.limits.waiting_max)
        {
            self.merge_shortest();
        }
        let excess = self.bytes().saturating_sub(self.limits.outbox_bytes_max);
        if excess == 0 {
            return;
        }
        if let Some(only) = self.waiting.front_mut() {
            let before = only.bytes();
            self.lost_telemetry = self
                .lost_telemetry
                .saturating_add(only.shed_telemetry(excess));
            let excess = excess.saturating_sub(before - only.bytes());
            let without_telemetry = only.bytes();
            self.lost_tasks = self.lost_tasks.saturating_add(only.shed_tasks(excess));
            if without_telemetry - only.bytes() < excess {
                only.coarsen_totals();
            }
            self.waiting_bytes = self.waiting_bytes - before + only.bytes();
        }
    }

    /// Merges the two neighbors that cover the least time together, the oldest of equal ones, so that all
    /// of an outage keeps about the same detail.
    fn merge_shortest(&mut self) {
        let length_ns = |index: usize| self.waiting[index].length_ns();
        let shortest = (0..self.waiting.len() - 1)
            .min_by_key(|index: &usize| length_ns(*index).saturating_add(length_ns(index + 1)));
        let Some(index) = shortest else { return };
        let Some(later) = self.waiting.remove(index + 1) else {
            return;
        };
        let earlier = std::mem::take(&mut self.waiting[index]);
        self.waiting_bytes -= earlier.bytes() + later.bytes();
        self.waiting[index] = earlier.merge(later);
        self.waiting_bytes += self.waiting[index].bytes();
    }
}

#[cfg(test)]
mod tests;
