//! What was sampled and is not safe with the collector yet: bounded in bytes, exact in weight.
//!
//! Parcels wait until they are sent. Too many waiting ones are merged into coarser ones; weight is
//! never dropped. A batch gets its sequence number when it is first handed out, and from then on
//! its content is frozen: after a reconnect the same number brings the same content.
//!
//! # Accounts
//! Every weight that came in is in exactly one place: waiting, in flight, delivered (acked, or at
//! or below the mark of a [`Welcome`](profiler_core::wire::v1::Welcome)), refused, or lost in the
//! queue before. Of what was delivered, a collector that lost its memory no longer holds a part;
//! that part is `forgotten` and known anew from each Welcome, so it can shrink again when an older
//! memory comes back.
//!
//! The account of a flush says what holds right after the collector applied it. All that is not
//! settled by then are the flushes in flight up to this one, so
//!
//! ```text
//! accepted = delivered + refused + lost in queue + in flight up to this flush
//!          = stored    + refused + lost in queue + forgotten
//! ```
//!
//! Both lines use what the agent knows when it sends, a second time too: on a stream without
//! refusals `accepted` is the same each time, for what was in flight is delivered now, and the
//! losses are today's. One thing cannot be known: a flush that was already on its way when the
//! collector refused an earlier one counts that one as if it were stored. The next flush is right.

use std::collections::VecDeque;
use std::sync::Arc;

use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::v1;

use super::running::Running;
use crate::batch::Batch;

/// Most memory of all batches, by [`Batch::bytes`]: about an hour of a small worker's cycles. Only
/// the weights of the one batch that everything was merged into, at most a pair for each node of
/// the tree, and its sums of tasks, one for each name and outcome, may go beyond.
pub(crate) const OUTBOX_BYTES_MAX: usize = 8 << 20;

/// Most batches that wait: an hour of seconds. Keeps the search for what to merge short.
pub(crate) const WAITING_MAX: usize = 3_600;

/// Most flushes that are sent and not answered.
pub(crate) const IN_FLIGHT_MAX: usize = 16;

/// Most memory of the records of running tasks that are kept to be sent again, in bytes.
pub(crate) const RUNNING_BYTES_MAX: usize = 1 << 20;

/// The outbox's limits; the default are the constants of this module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) outbox_bytes_max: usize,
    pub(crate) waiting_max: usize,
    pub(crate) in_flight_max: usize,
    pub(crate) running_bytes_max: usize,
    /// Largest encoded flush, in bytes.
    pub(crate) flush_bytes_max: usize,
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

/// Where the weight and the rows are.
/// `accepted = acked + unacked + lost_refused + lost_by_collector + lost_queue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) accepted_ns: u64,
    /// Acked and, as far as the agent knows, still held by the collector.
    pub(crate) acked_ns: u64,
    /// Waiting or in flight. In flight is what the collector may hold without the agent's knowing.
    pub(crate) unacked_ns: u64,
    pub(crate) lost_refused_ns: u64,
    pub(crate) lost_by_collector_ns: u64,
    pub(crate) lost_queue_ns: u64,
    /// Rows of tasks that had no room, here or before, or were refused.
    pub(crate) lost_tasks: u64,
    /// The same of transfers and what else is told.
    pub(crate) lost_telemetry: u64,
    /// Tasks that ended and are in sums only.
    pub(crate) aggregated_tasks: u64,
    /// Running tasks that had no room among those to be sent again to a collector that forgot.
    pub(crate) untracked_tasks: u64,
}

/// The collector claims a sequence number that this epoch never sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the collector says it holds flush {acked_seq} of this epoch, but only {sent} were sent")]
pub(crate) struct UnknownSeq {
    acked_seq: u64,
    sent: u64,
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
    /// Highest number that the collector is known to hold.
    acked_seq: u64,
    running: Running,
    accepted_ns: u64,
    /// Weight of the flushes that were acked, whether or not the collector still holds it.
    delivered_ns: u64,
    refused_ns: u64,
    /// Part of `delivered_ns`.
    forgotten_ns: u64,
    /// Only what came with flushes that are settled.
    queue_ns: u64,
    lost_tasks: u64,
    lost_telemetry: u64,
    aggregated_tasks: u64,
}

#[derive(Debug)]
struct InFlight {
    seq: u64,
    batch: Arc<Batch>,
    weight_ns: u64,
    bytes: usize,
    /// Whether it was handed out on the present stream.
    handed: bool,
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
            running: Running::default(),
            accepted_ns: 0,
            delivered_ns: 0,
            refused_ns: 0,
            forgotten_ns: 0,
            queue_ns: 0,
            lost_tasks: 0,
            lost_telemetry: 0,
            aggregated_tasks: 0,
        }
    }

    /// Queues a cycle. Past the limits, waiting batches are merged; rows and telemetry that still do not
    /// fit are dropped and counted.
    pub(crate) fn push(&mut self, mut batch: Batch) {
        let lost_tasks = std::mem::take(&mut batch.lost_tasks);
        let lost_telemetry = std::mem::take(&mut batch.lost_telemetry);
        let aggregated_tasks = std::mem::take(&mut batch.aggregated_tasks);
        self.lost_tasks = self.lost_tasks.saturating_add(lost_tasks);
        self.lost_telemetry = self.lost_telemetry.saturating_add(lost_telemetry);
        self.aggregated_tasks = self.aggregated_tasks.saturating_add(aggregated_tasks);
        self.running.update_records(&batch.telemetry);
        for task in &batch.tasks {
            self.running.update(task, self.limits.running_bytes_max);
        }
        let accepted_ns = batch.weight_ns().saturating_add(batch.lost_queue_ns);
        self.accepted_ns = self.accepted_ns.saturating_add(accepted_ns);
        self.waiting_bytes += batch.bytes();
        self.waiting.push_back(batch);
        self.squeeze();
    }

    /// Whether [`Outbox::next`] would give a flush.
    pub(crate) fn has_next(&self) -> bool {
        self.in_flight.iter().any(|flush| !flush.handed) || self.may_freeze()
    }

    /// The next flush of the present stream: first what a stream before left unanswered, then what
    /// waits. `None` if there is nothing, or too much is unanswered.
    pub(crate) fn next(&mut self) -> Option<(u64, Arc<Batch>)> {
        if self.in_flight.iter().all(|flush| flush.handed) && self.may_freeze() {
            self.freeze();
        }
        let flush = self.in_flight.iter_mut().find(|flush| !flush.handed)?;
        flush.handed = true;
        Some((flush.seq, flush.batch.clone()))
    }

    /// The account to send with a flush, as the module says; `None` if it is not in flight.
    pub(crate) fn account(&self, seq: u64) -> Option<v1::LossAccount> {
        let end = self.in_flight.binary_search_by_key(&seq, |flush| flush.seq).ok()?;
        let mut in_flight_ns = 0u64;
        let mut queue_ns = self.queue_ns;
        for flush in self.in_flight.range(..=end) {
            in_flight_ns = in_flight_ns.saturating_add(flush.weight_ns);
            queue_ns = queue_ns.saturating_add(flush.batch.lost_queue_ns);
        }
        let settled_ns = self.delivered_ns.saturating_add(self.refused_ns);
        Some(v1::LossAccount {
            accepted_ns: settled_ns.saturating_add(in_flight_ns).saturating_add(queue_ns),
            lost_refused_ns: self.refused_ns,
            lost_by_collector_ns: self.forgotten_ns,
            lost_tasks: self.lost_tasks,
            lost_queue_ns: queue_ns,
            lost_telemetry: self.lost_telemetry,
            aggregated_tasks: self.aggregated_tasks,
        })
    }

    /// The collector stored a flush. An answer to what is not in flight is a repeated one.
    pub(crate) fn ack(&mut self, seq: u64) {
        if let Some(flush) = self.settle(seq) {
            self.delivered_ns = self.delivered_ns.saturating_add(flush.weight_ns);
            self.acked_seq = self.acked_seq.max(seq);
        }
    }

    /// The collector will never store a flush: its weight and rows are lost, and counted.
    pub(crate) fn refuse(&mut self, seq: u64) {
        if let Some(flush) = self.settle(seq) {
            self.refused_ns = self.refused_ns.saturating_add(flush.weight_ns);
            let telemetry = flush.batch.telemetry.count() as u64;
            self.lost_telemetry = self.lost_telemetry.saturating_add(telemetry);
            self.lost_tasks = self.lost_tasks.saturating_add(flush.batch.task_count());
        }
    }

    /// A new stream begins, with a collector that holds the flushes up to `acked_seq`, and
    /// `stored_ns` of their weight. What it holds is not sent again; what it lost is counted; what
    /// still runs is sent again if it lost anything, for it may have lost those rows.
    ///
    /// # Errors
    /// If it claims what was never sent; nothing changes then.
    pub(crate) fn welcome(&mut self, acked_seq: u64, stored_ns: u64) -> Result<(), UnknownSeq> {
        if acked_seq >= self.next_seq {
            return Err(UnknownSeq { acked_seq, sent: self.next_seq - 1 });
        }
        // Stored, but the ack was lost with the stream before.
        while let Some(seq) = self.in_flight.front().map(|flush| flush.seq)
            && seq <= acked_seq
        {
            self.ack(seq);
        }
        // An older memory that is back may hold what a younger one refused.
        let regained_ns = stored_ns.saturating_sub(self.delivered_ns).min(self.refused_ns);
        self.refused_ns -= regained_ns;
        self.delivered_ns = self.delivered_ns.saturating_add(regained_ns);
        let forgotten_ns = self.delivered_ns.saturating_sub(stored_ns);
        if acked_seq < self.acked_seq || forgotten_ns > self.forgotten_ns {
            self.send_running_again();
        }
        self.forgotten_ns = forgotten_ns;
        self.acked_seq = acked_seq;
        for flush in &mut self.in_flight {
            flush.handed = false;
        }
        Ok(())
    }

    /// Whether nothing waits and everything sent is answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Where everything is.
    pub(crate) fn tally(&self) -> Tally {
        let sum = |weights: &mut dyn Iterator<Item = u64>| weights.fold(0, u64::saturating_add);
        let in_flight_ns = sum(&mut self.in_flight.iter().map(|flush| flush.weight_ns));
        let waiting_ns = sum(&mut self.waiting.iter().map(Batch::weight_ns));
        let in_flight = self.in_flight.iter().map(|flush| &*flush.batch);
        let unsettled = in_flight.chain(&self.waiting).map(|batch| batch.lost_queue_ns);
        Tally {
            accepted_ns: self.accepted_ns,
            acked_ns: self.delivered_ns - self.forgotten_ns,
            unacked_ns: waiting_ns.saturating_add(in_flight_ns),
            lost_refused_ns: self.refused_ns,
            lost_by_collector_ns: self.forgotten_ns,
            lost_queue_ns: sum(&mut unsettled.chain([self.queue_ns])),
            lost_tasks: self.lost_tasks,
            lost_telemetry: self.lost_telemetry,
            aggregated_tasks: self.aggregated_tasks,
            untracked_tasks: self.running.untracked,
        }
    }

    fn bytes(&self) -> usize {
        self.waiting_bytes + self.in_flight_bytes
    }

    /// Half of the memory stays with what waits, which alone can be merged.
    fn may_freeze(&self) -> bool {
        !self.waiting.is_empty()
            && self.in_flight.len() < self.limits.in_flight_max
            && self.in_flight_bytes < self.limits.outbox_bytes_max / 2
    }

    /// Gives the oldest that waits, or the part of it that fits into a message, its number.
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
        let (weight_ns, bytes) = (batch.weight_ns(), batch.bytes());
        let (seq, batch) = (self.next_seq, Arc::new(batch));
        self.next_seq += 1;
        self.in_flight_bytes += bytes;
        self.in_flight.push_back(InFlight { seq, batch, weight_ns, bytes, handed: false });
        // Two batches take more than one.
        self.squeeze();
    }

    /// Takes an answered flush out; its weight is the caller's to count.
    fn settle(&mut self, seq: u64) -> Option<InFlight> {
        let index = self.in_flight.binary_search_by_key(&seq, |flush| flush.seq).ok()?;
        let flush = self.in_flight.remove(index)?;
        self.in_flight_bytes -= flush.bytes;
        self.queue_ns = self.queue_ns.saturating_add(flush.batch.lost_queue_ns);
        Some(flush)
    }

    /// Puts the rows of running tasks, and what else still holds, before everything that waits, so
    /// that later states replace them.
    fn send_running_again(&mut self) {
        let tasks: Vec<_> = self.running.records.values().cloned().collect();
        let telemetry = self.running.records_again();
        if tasks.is_empty() && telemetry.is_empty() {
            return;
        }
        let rows = Batch { tasks, telemetry, ..Batch::default() };
        // A collector that restarts again and again must not fill the outbox with the same rows.
        let batch = match self.waiting.pop_front_if(|front| front.span.is_none()) {
            Some(front) => {
                self.waiting_bytes -= front.bytes();
                rows.merge(front)
            }
            None => rows,
        };
        self.waiting_bytes += batch.bytes();
        self.waiting.push_front(batch);
        self.squeeze();
    }

    /// Brings the outbox back within its limits.
    fn squeeze(&mut self) {
        while self.waiting.len() > 1
            && (self.bytes() > self.limits.outbox_bytes_max
                || self.waiting.len() > self.limits.waiting_max)
        {
            self.merge_shortest();
        }
        let excess = self.bytes().saturating_sub(self.limits.outbox_bytes_max);
        if excess > 0
            && let Some(only) = self.waiting.front_mut()
        {
            let before = only.bytes();
            self.lost_telemetry = self.lost_telemetry.saturating_add(only.shed_telemetry(excess));
            let excess = excess.saturating_sub(before - only.bytes());
            let without_telemetry = only.bytes();
            self.lost_tasks = self.lost_tasks.saturating_add(only.shed_tasks(excess));
            if without_telemetry - only.bytes() < excess {
                only.coarsen_totals();
            }
            self.waiting_bytes = self.waiting_bytes - before + only.bytes();
        }
    }

    /// Merges the two neighbours that cover the least time together, the oldest of equal ones, so
    /// that all of an outage keeps about the same detail.
    fn merge_shortest(&mut self) {
        let length_ns = |index: usize| self.waiting[index].length_ns();
        let pair_ns = |index: &usize| length_ns(*index).saturating_add(length_ns(index + 1));
        let shortest = (0..self.waiting.len() - 1).min_by_key(pair_ns);
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
