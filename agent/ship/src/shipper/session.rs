//! The protocol of one stream, without its transport: the next message to send, and the effect of each
//! received one.

use std::sync::Mutex;
use std::time::Duration;

use profiler_core::limits::{CAUSE_BYTES_MAX, bounded};
use profiler_core::wire::v1::{self, agent_message, collector_message};
use profiler_core::wire::{
    Marks, WireError, dictionary_since, encode_cycle, encode_task, encode_telemetry, with_threads,
};
use profiler_core::{Telemetry, Timestamp};

use super::LogEvent;
use super::clock::{Exchange, OffsetEstimator};
use super::control::{ControlError, ControlStream, SETTINGS_PER_SECOND};
use super::outbox::{Outbox, UnexpectedAnswer, UnknownSeq};
use crate::batch::Batch;
use crate::tables::Tables;
use system::sync::lock;

/// Most dictionaries that a collector may reject on one stream, or ask for again by other rejections.
/// The first may be a disagreement about what the collector has; repeating does not heal one that
/// persists.
const DICTIONARY_REFUSALS_MAX: u32 = 3;

/// Approximate bytes of one dictionary message: the collector's buffers for a stream stay as large as
/// the largest chunk received on it, and it has a pair of them for each of ten thousand agents.
const DICTIONARY_BYTES_MAX: usize = 4 << 10;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SessionError {
    /// The collector's state is not of this epoch.
    #[error(transparent)]
    UnknownSeq(#[from] UnknownSeq),
    /// It answers a flush whose turn has not come.
    #[error(transparent)]
    UnexpectedAnswer(#[from] UnexpectedAnswer),
    /// It rejected too many dictionaries.
    #[error(
        "the collector rejected {DICTIONARY_REFUSALS_MAX} dictionaries; last reason: {reason:?}"
    )]
    DictionaryRefused {
        /// The collector's last reason.
        reason: String,
    },
    /// It requested invalid settings.
    #[error("invalid settings from the collector")]
    Settings(#[source] WireError),
    /// It requested settings too often.
    #[error("the collector changes settings too often; at most {SETTINGS_PER_SECOND} a second")]
    SettingsTooOften,
    /// The first message, and only the first, must be Welcome.
    #[error("unexpected message from the collector: {got}; expected {expected}")]
    OutOfOrder {
        /// The received message.
        got: &'static str,
        /// Messages that the protocol allows.
        expected: &'static str,
    },
}

/// The state of one stream, from the Welcome on.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    outbox: &'a Mutex<Outbox>,
    tables: &'a Mutex<Tables>,
    log: fn(LogEvent),
    offsets: &'a mut OffsetEstimator,
    control: ControlStream<'a>,
    /// The part of the tables that the collector has.
    marks: Marks,
    /// The next message, which waits until the dictionary that it needs is sent.
    ready: Option<EncodedMessage>,
    dictionary_refusals: u32,
    flush_refused: bool,
}

/// The data to ship.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutboxRefs<'a> {
    pub(crate) outbox: &'a Mutex<Outbox>,
    pub(crate) tables: &'a Mutex<Tables>,
    /// Logs an event.
    pub(crate) log: fn(LogEvent),
}

#[derive(Debug)]
pub(crate) struct EncodedMessage {
    kind: agent_message::Kind,
    needs: Marks,
}

#[cfg(test)]
impl EncodedMessage {
    /// Bytes of the message.
    pub(crate) fn encoded_len(self) -> usize {
        prost::Message::encoded_len(&message(self.kind))
    }
}

impl<'a> Session<'a> {
    /// Starts with the collector's first message, received at `now`.
    ///
    /// # Errors
    /// If it is not a Welcome, or acknowledges flushes that this epoch never sent.
    pub(crate) fn open(
        OutboxRefs {
            outbox,
            tables,
            log,
        }: OutboxRefs<'a>,
        offsets: &'a mut OffsetEstimator,
        control: ControlStream<'a>,
        first: v1::CollectorMessage,
        now: Timestamp,
    ) -> Result<Self, SessionError> {
        let welcome = match first.kind {
            Some(collector_message::Kind::Welcome(welcome)) => welcome,
            other => {
                let got = kind_name(other.as_ref());
                return Err(SessionError::OutOfOrder {
                    got,
                    expected: "Welcome",
                });
            }
        };
        lock(outbox).welcome(welcome.acked_seq, welcome.stored_ns)?;
        let mut session = Session {
            outbox,
            tables,
            log,
            offsets,
            control,
            marks: Marks::default(),
            ready: None,
            dictionary_refusals: 0,
            flush_refused: false,
        };
        session.measure(welcome.receipt, now);
        session.set_marks([welcome.strings, welcome.frames, welcome.nodes]);
        Ok(session)
    }

    /// Whether [`Session::next_message`] would return one.
    pub(crate) fn has_next(&self) -> bool {
        self.ready.is_some() || self.control.has_next() || lock(self.outbox).has_next()
    }

    /// Returns how long to wait for an event before checking [`Session::has_next`] again.
    pub(crate) fn poll_interval(&self) -> Duration {
        self.control.poll_interval()
    }

    /// Nothing was received or sent for [`Session::poll_interval`].
    pub(crate) fn poll_timeout(&mut self) {
        self.control.repeat_settings();
    }

    /// Returns the next message: a piece of the dictionary, or the answer or flush that needs it. Its
    /// sending time is not set yet; it is about `now`. `None` if there is nothing to send.
    pub(crate) fn next_message(&mut self, now: Timestamp) -> Option<v1::AgentMessage> {
        if self.ready.is_none() {
            self.ready = self.next_control().or_else(|| self.next_flush());
        }
        let needs = self.ready.as_ref()?.needs;
        if !self.has_dictionary(needs) {
            if let Some(dictionary) = self.next_dictionary() {
                return Some(message(agent_message::Kind::Dictionary(dictionary)));
            }
        }
        Some(message(match self.ready.take()?.kind {
            agent_message::Kind::Flush(flush) => {
                agent_message::Kind::Flush(self.complete(flush, now))
            }
            other => other,
        }))
    }

    /// These go before flushes, because people wait for them.
    fn next_control(&mut self) -> Option<EncodedMessage> {
        let kind = self.control.next()?;
        let needs = match &kind {
            agent_message::Kind::ThreadDump(_) => marks_of(&lock(self.tables)),
            _ => Marks::default(),
        };
        Some(EncodedMessage { kind, needs })
    }

    fn next_flush(&mut self) -> Option<EncodedMessage> {
        // Two statements, because encoding must not hold the outbox's lock, for which `push` waits.
        let next = lock(self.outbox).next();
        next.map(|(seq, batch)| encode(seq, &batch, self.tables))
    }

    /// Handles a message of the collector, received at `now`.
    ///
    /// # Errors
    /// If the session cannot continue.
    pub(crate) fn receive(
        &mut self,
        message: v1::CollectorMessage,
        now: Timestamp,
    ) -> Result<(), SessionError> {
        match message.kind {
            Some(collector_message::Kind::Ack(ack)) => {
                self.measure(ack.receipt, now);
                Ok(lock(self.outbox).ack(ack.seq)?)
            }
            Some(collector_message::Kind::Refusal(refusal)) => {
                self.measure(refusal.receipt, now);
                self.refused(refusal)
            }
            Some(collector_message::Kind::Settings(settings)) => {
                let changed = self.control.settings(&settings);
                changed.map_err(|error| match error {
                    ControlError::Invalid(error) => SessionError::Settings(error),
                    ControlError::TooOften => SessionError::SettingsTooOften,
                })
            }
            Some(collector_message::Kind::ThreadDumpRequest(request)) => {
                self.control.request_dump(request);
                Ok(())
            }
            Some(collector_message::Kind::SymbolRequest(request)) => {
                self.control.request_symbols(&request);
                Ok(())
            }
            other => {
                let got = kind_name(other.as_ref());
                Err(SessionError::OutOfOrder {
                    got,
                    expected: "an answer or a request",
                })
            }
        }
    }

    fn refused(&mut self, refusal: v1::Refusal) -> Result<(), SessionError> {
        let v1::Refusal {
            seq,
            reason,
            strings,
            frames,
            nodes,
            ..
        } = refusal;
        let reason = bounded(&reason, CAUSE_BYTES_MAX);
        let before = self.marks;
        self.set_marks([strings, frames, nodes]);
        let is_dictionary_refused = seq == 0 || !self.has_dictionary(before);
        self.dictionary_refusals += u32::from(is_dictionary_refused);
        if seq > 0 {
            lock(self.outbox).refuse(seq)?;
            // Once per stream: a collector that rejects everything would fill the host's log.
            if !std::mem::replace(&mut self.flush_refused, true) {
                let reason = reason.clone().into_owned();
                (self.log)(Box::new(move || {
                    tracing::warn!(
                        seq,
                        ?reason,
                        "the collector rejected samples; they count as lost"
                    );
                }));
            }
        } else {
            let reason = reason.clone().into_owned();
            (self.log)(Box::new(move || {
                tracing::debug!(
                    ?reason,
                    "the collector rejected a dictionary; sending it again"
                );
            }));
        }
        if is_dictionary_refused && self.dictionary_refusals >= DICTIONARY_REFUSALS_MAX {
            return Err(SessionError::DictionaryRefused {
                reason: reason.into_owned(),
            });
        }
        Ok(())
    }

    /// Sets the part of the tables that the collector has. At least the entries of empty tables, because
    /// 0 means nothing, and at most the entries that exist, because the next dictionary starts there.
    fn set_marks(&mut self, [strings, frames, nodes]: [u32; 3]) {
        let least = Marks::default();
        let most = marks_of(&lock(self.tables));
        self.marks = Marks {
            strings: strings.clamp(least.strings, most.strings),
            frames: frames.clamp(least.frames, most.frames),
            nodes: nodes.clamp(least.nodes, most.nodes),
        };
    }

    fn has_dictionary(&self, needs: Marks) -> bool {
        let Marks {
            strings,
            frames,
            nodes,
        } = self.marks;
        strings >= needs.strings && frames >= needs.frames && nodes >= needs.nodes
    }

    fn next_dictionary(&mut self) -> Option<v1::Dictionary> {
        let tables = lock(self.tables);
        dictionary_since(
            &tables.symbols,
            &tables.trie,
            &mut self.marks,
            DICTIONARY_BYTES_MAX,
        )
    }

    /// Adds the values that are known only when sending.
    fn complete(&mut self, mut flush: v1::Flush, now: Timestamp) -> v1::Flush {
        let clock = self.offsets.current(now);
        for task in &mut flush.tasks {
            self.correct(&mut task.start_ns);
            // 0 while it runs.
            if task.stop_ns != 0 {
                self.correct(&mut task.stop_ns);
            }
        }
        v1::Flush {
            clock: clock.map(|best| v1::Clock {
                offset_ns: best.offset_ns,
                error_ns: best.error_ns,
            }),
            account: lock(self.outbox).account(flush.seq),
            ..flush
        }
    }

    /// Keeps the order of tasks that are sent with different offsets.
    fn correct(&self, time_ns: &mut i64) {
        *time_ns = self
            .offsets
            .corrected(Timestamp::from_unix_ns(*time_ns))
            .unix_ns();
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

/// Encodes the part of a flush that does not depend on when it is sent. The same batch always gives the
/// same bytes, because ids of the tables never change.
pub(crate) fn encode(seq: u64, batch: &Batch, tables: &Mutex<Tables>) -> EncodedMessage {
    let cycle = batch.span.map(|span| {
        let samples = encode_cycle(&batch.delta, span.range, span.quantum_ns);
        v1::Cycle {
            ticks: span.ticks.made,
            ticks_expected: span.ticks.expected,
            ticks_throttled: span.ticks.throttled,
            ..with_threads(samples, &batch.threads)
        }
    });
    let mut tables = lock(tables);
    let mut index = |text: &str| tables.string_id(text).0;
    let tasks = batch
        .tasks
        .iter()
        .map(|task| encode_task(task, &mut index))
        .collect();
    let mut flush = v1::Flush {
        seq,
        cycle,
        tasks,
        ..Default::default()
    };
    encode_telemetry(&batch.telemetry, &mut flush, &mut index);
    let mut totals_only = v1::Flush::default();
    let totals = Telemetry {
        totals: batch.totals.clone(),
        ..Telemetry::default()
    };
    encode_telemetry(&totals, &mut totals_only, &mut index);
    flush.totals = totals_only.totals;
    let needs = marks_of(&tables);
    drop(tables);
    EncodedMessage {
        kind: agent_message::Kind::Flush(flush),
        needs,
    }
}

fn kind_name(kind: Option<&collector_message::Kind>) -> &'static str {
    match kind {
        Some(collector_message::Kind::Welcome(_)) => "Welcome",
        Some(collector_message::Kind::Ack(_)) => "Ack",
        Some(collector_message::Kind::Refusal(_)) => "Refusal",
        Some(collector_message::Kind::Settings(_)) => "Settings",
        Some(collector_message::Kind::ThreadDumpRequest(_)) => "ThreadDumpRequest",
        Some(collector_message::Kind::SymbolRequest(_)) => "SymbolRequest",
        None => "an unknown message",
    }
}

#[cfg(test)]
mod tests;
