//! One stream's conversation, without the stream: what to say next, and what an answer changes.

use std::sync::Mutex;
use std::time::Duration;

use profiler_core::limits::{CAUSE_BYTES_MAX, bounded};
use profiler_core::wire::v1::{self, agent_message, collector_message};
use profiler_core::wire::{
    Marks, WireError, dictionary_since, encode_cycle, encode_task, encode_telemetry, encode_weights,
};
use profiler_core::{Telemetry, Timestamp};

use super::clock::{Exchange, OffsetEstimator};
use super::live::Live;
use super::outbox::{Outbox, UnknownSeq};
use crate::batch::Batch;
use crate::sync::lock;
use crate::tables::Tables;

/// Most dictionaries that a collector may refuse on one stream. The first may be a difference in
/// what both believe is held; one that persists does not heal by repeating.
const DICTIONARY_REFUSALS_MAX: u32 = 3;

/// About how many bytes one dictionary has: a collector's buffers for a stream stay as large as what
/// came at once on it, and ten thousand agents have a pair of them each.
const DICTIONARY_BYTES_MAX: usize = 4 << 10;

/// Why a conversation ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SessionError {
    /// The collector's memory is not of this epoch.
    #[error(transparent)]
    UnknownSeq(#[from] UnknownSeq),
    /// It refused too many dictionaries.
    #[error("the collector refused {DICTIONARY_REFUSALS_MAX} dictionaries, at last: {reason:?}")]
    DictionaryRefused {
        /// What the collector said at last.
        reason: String,
    },
    /// It asked for settings that cannot be.
    #[error("the collector's settings cannot be")]
    Settings(#[from] WireError),
    /// Its first answer must be Welcome, and no other may be.
    #[error("the collector answered {got} where {expected} was due")]
    OutOfOrder {
        /// What came.
        got: &'static str,
        /// What the protocol allows.
        expected: &'static str,
    },
}

/// One conversation, from the Welcome on.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    outbox: &'a Mutex<Outbox>,
    tables: &'a Mutex<Tables>,
    offsets: &'a mut OffsetEstimator,
    live: Live<'a>,
    /// How much of the tables was sent, or the collector held before.
    marks: Marks,
    /// Encoded, and not sent before the dictionary that it needs.
    ready: Option<Ready>,
    dictionary_refusals: u32,
    flush_refused: bool,
}

/// What is shipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) outbox: &'a Mutex<Outbox>,
    pub(crate) tables: &'a Mutex<Tables>,
}

#[derive(Debug)]
pub(crate) struct Ready {
    kind: agent_message::Kind,
    needs: Marks,
}

#[cfg(test)]
impl Ready {
    /// Bytes of the message.
    pub(crate) fn encoded_len(self) -> usize {
        prost::Message::encoded_len(&message(self.kind))
    }
}

impl<'a> Session<'a> {
    /// Begins with the collector's first message, which came at `now`.
    ///
    /// # Errors
    /// If it is not a Welcome, or one that claims what this epoch never sent.
    pub(crate) fn open(
        Held { outbox, tables }: Held<'a>,
        offsets: &'a mut OffsetEstimator,
        live: Live<'a>,
        first: v1::CollectorMessage,
        now: Timestamp,
    ) -> Result<Self, SessionError> {
        let welcome = match first.kind {
            Some(collector_message::Kind::Welcome(welcome)) => welcome,
            other => {
                let got = kind_name(other.as_ref());
                return Err(SessionError::OutOfOrder { got, expected: "Welcome" });
            }
        };
        lock(outbox).welcome(welcome.acked_seq, welcome.stored_ns)?;
        let marks = Marks::default();
        let (ready, dictionary_refusals, flush_refused) = (None, 0, false);
        let mut session = Session {
            outbox,
            tables,
            offsets,
            live,
            marks,
            ready,
            dictionary_refusals,
            flush_refused,
        };
        session.measure(welcome.receipt, now);
        session.set_marks([welcome.strings, welcome.frames, welcome.nodes]);
        Ok(session)
    }

    /// Whether [`Session::next_message`] would give one.
    pub(crate) fn has_next(&self) -> bool {
        self.ready.is_some() || self.live.has_next() || lock(self.outbox).has_next()
    }

    /// When to ask [`Session::has_next`] again, though nothing came.
    pub(crate) fn next_look(&self) -> Duration {
        self.live.next_look()
    }

    /// Nothing came or went for as long as [`Session::next_look`] said.
    pub(crate) fn look(&mut self) {
        self.live.break_silence();
    }

    /// The next message: a piece of the dictionary, or what needed it: an answer, or a flush. When it is sent is
    /// left 0; it is about `now`. `None` if there is nothing to say.
    pub(crate) fn next_message(&mut self, now: Timestamp) -> Option<v1::AgentMessage> {
        if self.ready.is_none() {
            self.ready = self.next_live().or_else(|| self.next_flush());
        }
        let needs = self.ready.as_ref()?.needs;
        if !self.holds(needs)
            && let Some(dictionary) = self.next_dictionary()
        {
            return Some(message(agent_message::Kind::Dictionary(dictionary)));
        }
        Some(message(match self.ready.take()?.kind {
            agent_message::Kind::Flush(flush) => {
                agent_message::Kind::Flush(self.complete(flush, now))
            }
            other => other,
        }))
    }

    /// People wait for these, so they go before flushes.
    fn next_live(&mut self) -> Option<Ready> {
        let kind = self.live.next()?;
        let needs = match &kind {
            agent_message::Kind::ThreadDump(_) => marks_of(&lock(self.tables)),
            _ => Marks::default(),
        };
        Some(Ready { kind, needs })
    }

    fn next_flush(&mut self) -> Option<Ready> {
        // Two statements, for encoding must not hold the outbox's lock: `push` waits for it.
        let next = lock(self.outbox).next();
        next.map(|(seq, batch)| encode(seq, &batch, self.tables))
    }

    /// Takes in what the collector said; it came at `now`.
    ///
    /// # Errors
    /// If the conversation cannot go on.
    pub(crate) fn receive(
        &mut self,
        message: v1::CollectorMessage,
        now: Timestamp,
    ) -> Result<(), SessionError> {
        match message.kind {
            Some(collector_message::Kind::Ack(ack)) => {
                self.measure(ack.receipt, now);
                lock(self.outbox).ack(ack.seq);
                Ok(())
            }
            Some(collector_message::Kind::Refusal(refusal)) => {
                self.measure(refusal.receipt, now);
                self.refused(refusal)
            }
            Some(collector_message::Kind::Settings(settings)) => {
                Ok(self.live.settings(&settings)?)
            }
            Some(collector_message::Kind::ThreadDumpRequest(request)) => {
                self.live.ask(request);
                Ok(())
            }
            other => {
                let got = kind_name(other.as_ref());
                Err(SessionError::OutOfOrder { got, expected: "an answer or a question" })
            }
        }
    }

    fn refused(&mut self, refusal: v1::Refusal) -> Result<(), SessionError> {
        let v1::Refusal { seq, reason, strings, frames, nodes, .. } = refusal;
        let reason = bounded(&reason, CAUSE_BYTES_MAX);
        self.set_marks([strings, frames, nodes]);
        if seq > 0 {
            lock(self.outbox).refuse(seq);
            // Once a stream: a collector that refuses all would fill the host's log.
            if !std::mem::replace(&mut self.flush_refused, true) {
                tracing::warn!(seq, ?reason, "the collector refused samples; they count as lost");
            }
            return Ok(());
        }
        self.dictionary_refusals += 1;
        if self.dictionary_refusals < DICTIONARY_REFUSALS_MAX {
            tracing::debug!(?reason, "the collector refused a dictionary; sending it again");
            return Ok(());
        }
        Err(SessionError::DictionaryRefused { reason: reason.into_owned() })
    }

    /// What the collector says it holds. Never less than what no table is without, for 0 means
    /// nothing; never more than there is, for then there would be nothing to count on from.
    fn set_marks(&mut self, [strings, frames, nodes]: [u32; 3]) {
        let least = Marks::default();
        let most = marks_of(&lock(self.tables));
        self.marks = Marks {
            strings: strings.clamp(least.strings, most.strings),
            frames: frames.clamp(least.frames, most.frames),
            nodes: nodes.clamp(least.nodes, most.nodes),
        };
    }

    fn holds(&self, needs: Marks) -> bool {
        let Marks { strings, frames, nodes } = self.marks;
        strings >= needs.strings && frames >= needs.frames && nodes >= needs.nodes
    }

    fn next_dictionary(&mut self) -> Option<v1::Dictionary> {
        let tables = lock(self.tables);
        dictionary_since(&tables.symbols, &tables.trie, &mut self.marks, DICTIONARY_BYTES_MAX)
    }

    /// Adds what is true only at the time of sending.
    fn complete(&self, flush: v1::Flush, now: Timestamp) -> v1::Flush {
        let clock = self.offsets.best(now);
        v1::Flush {
            clock: clock
                .map(|best| v1::Clock { offset_ns: best.offset_ns, error_ns: best.error_ns }),
            account: lock(self.outbox).account(flush.seq),
            ..flush
        }
    }

    fn measure(&mut self, receipt: Option<v1::Receipt>, now: Timestamp) {
        let Some(receipt) = receipt else { return };
        self.offsets.add(Exchange {
            sent: Timestamp::from_unix_ns(receipt.agent_sent_at_ns),
            received: Timestamp::from_unix_ns(receipt.received_at_ns),
            answered: Timestamp::from_unix_ns(receipt.sent_at_ns),
            returned: now,
        });
    }
}

pub(crate) fn message(kind: agent_message::Kind) -> v1::AgentMessage {
    v1::AgentMessage { kind: Some(kind) }
}

fn marks_of(tables: &Tables) -> Marks {
    Marks::of(&tables.symbols, &tables.trie)
}

/// Encodes what a flush holds whenever it is sent. The same batch gives the same bytes, for an id
/// of the tables never changes.
pub(crate) fn encode(seq: u64, batch: &Batch, tables: &Mutex<Tables>) -> Ready {
    let cycle = batch.span.map(|span| v1::Cycle {
        ticks: span.ticks.made,
        ticks_expected: span.ticks.expected,
        ticks_throttled: span.ticks.throttled,
        threads: encode_weights(&batch.threads, span.quantum_ns),
        ..encode_cycle(&batch.delta, span.range, span.quantum_ns)
    });
    let mut tables = lock(tables);
    let mut index = |text: &str| tables.symbols.intern_string(text).0;
    let tasks = batch.tasks.iter().map(|task| encode_task(task, &mut index)).collect();
    let mut flush = v1::Flush { seq, cycle, tasks, ..Default::default() };
    encode_telemetry(&batch.telemetry, &mut flush, &mut index);
    let mut of_tasks = v1::Flush::default();
    let totals = Telemetry { totals: batch.totals.clone(), ..Telemetry::default() };
    encode_telemetry(&totals, &mut of_tasks, &mut index);
    flush.totals = of_tasks.totals;
    let needs = marks_of(&tables);
    drop(tables);
    Ready { kind: agent_message::Kind::Flush(flush), needs }
}

fn kind_name(kind: Option<&collector_message::Kind>) -> &'static str {
    match kind {
        Some(collector_message::Kind::Welcome(_)) => "Welcome",
        Some(collector_message::Kind::Ack(_)) => "Ack",
        Some(collector_message::Kind::Refusal(_)) => "Refusal",
        Some(collector_message::Kind::Settings(_)) => "Settings",
        Some(collector_message::Kind::ThreadDumpRequest(_)) => "ThreadDumpRequest",
        None => "a message that this agent does not know",
    }
}

#[cfg(test)]
mod tests;
