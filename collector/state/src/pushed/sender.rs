//! The sender of one series: it lives like an agent, whose messages are calls instead of a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use import::{Imported, Labels};
use profiler_core::wire::PROTOCOL;
use profiler_core::wire::v1::{self, collector_message::Kind};
use profiler_core::{SessionKey, TimeRange, Timestamp};
use tokio::task::spawn_blocking;

use super::PushError;
use super::tables::{Part, Tables, parts};
use crate::ingest::{Attachment, Ingest, OpenStream, ReceivedFlush, StreamError};
use base::limits::DICTIONARY_SLICE_ENTRIES;
use base::sync::{Mutex, lock, rank};
use shares::{Account, DecodeBudget};
use store::rows::DisconnectReason;

/// Memory of a sample of a flush: its node and its thread, encoded and decoded.
const SAMPLE_BYTES: usize = 64;

/// A series, as its worker is described.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// The worker's id.
    pub worker: String,
    pub labels: Labels,
    /// The client that sends it.
    pub client: String,
    /// How it came.
    pub mode: String,
    /// Time between two samples; 0 if it is not known.
    pub interval_ns: u64,
}

impl Description {
    fn hello(&self, key: &SessionKey, range: TimeRange, now: Timestamp) -> v1::Hello {
        let host = ["host.name", "hostname", "host"]
            .into_iter()
            .find_map(|key| self.labels.get(key));
        v1::Hello {
            protocol: PROTOCOL,
            worker: self.worker.clone(),
            epoch: key.epoch().0,
            session_key: key.as_bytes().to_vec(),
            labels: self.labels.clone().into_iter().collect(),
            host: host.cloned().unwrap_or_default(),
            agent_version: self.client.clone(),
            sampler_mode: self.mode.clone(),
            interval_ns: self.interval_ns,
            started_at_ns: range.start().unix_ns(),
            sent_at_ns: now.unix_ns(),
            ..v1::Hello::default()
        }
    }
}

/// The samples of one series in a profile.
#[derive(Clone, Debug)]
pub struct PushedSeries {
    pub description: Description,
    /// The series without the labels of its samples, in which they count past the limit.
    pub base: Description,
    pub imported: Arc<Imported>,
    /// Selects the samples of the profile that belong to the series.
    pub label_set: u16,
    pub range: TimeRange,
}

/// Parts of the collector that a push needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inlet<'a> {
    pub(super) ingest: &'a Arc<Ingest>,
    pub(super) account: &'a Arc<Account>,
    pub(super) memory: &'a DecodeBudget,
    pub(super) now: Timestamp,
}

/// Sends what is pushed of one series, as one life of an agent or several in a row.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// `None` before the first push and after a failure.
    attachment: Option<Attachment>,
    /// Used on threads that may block, by one push at a time.
    tables: Arc<Mutex<Tables, rank::PushedTables>>,
    seq: u64,
    accepted_ns: u64,
}

impl Sender {
    /// Stores one push. Returns its weight when it is acknowledged.
    pub(super) async fn send(
        &mut self,
        inlet: Inlet<'_>,
        pushed: &PushedSeries,
    ) -> Result<u64, PushError> {
        let mut sent = self.try_send(inlet, pushed).await;
        if matches!(sent, Err(PushError::Stream(StreamError::Stale(_)))) {
            // The session made room for another one since the last push.
            self.end(inlet.ingest, inlet.now);
            sent = self.try_send(inlet, pushed).await;
        }
        if sent.is_err() || lock(&self.tables).is_full() {
            self.end(inlet.ingest, inlet.now);
        }
        sent
    }

    /// Ends the life. The next push begins another one.
    pub(super) fn end(&mut self, ingest: &Ingest, now: Timestamp) {
        if let Some(attachment) = self.attachment.take() {
            ingest.detach(&attachment, DisconnectReason::Clean, now);
        }
        *self = Sender::default();
    }

    async fn try_send(
        &mut self,
        inlet: Inlet<'_>,
        pushed: &PushedSeries,
    ) -> Result<u64, PushError> {
        let attachment = match &self.attachment {
            Some(attachment) => attachment.clone(),
            None => self.attachment.insert(attach(inlet, pushed).await?).clone(),
        };
        let mut waiting = VecDeque::new();
        let mut total_ns = 0;
        for Part {
            cycle,
            weight_ns,
            samples,
        } in self.parts(inlet, &attachment, pushed).await?
        {
            total_ns += weight_ns;
            let flush = self.flush(cycle, weight_ns, inlet.now);
            let charge = inlet
                .memory
                .charge(inlet.account, samples * SAMPLE_BYTES)
                .await;
            waiting.push_back(ReceivedFlush {
                flush,
                at: inlet.now,
                charge: Some(charge),
            });
        }
        while !waiting.is_empty() {
            for answer in inlet
                .ingest
                .receive_flushes(&attachment, &mut waiting)
                .await?
            {
                if let Kind::Refusal(refusal) = answer {
                    return Err(PushError::Refused {
                        reason: refusal.reason,
                    });
                }
            }
        }
        Ok(total_ns)
    }

    fn flush(&mut self, cycle: v1::Cycle, weight_ns: u64, now: Timestamp) -> v1::Flush {
        self.seq += 1;
        self.accepted_ns = self.accepted_ns.saturating_add(weight_ns);
        let accepted_ns = self.accepted_ns;
        v1::Flush {
            seq: self.seq,
            sent_at_ns: now.unix_ns(),
            clock: Some(v1::Clock::default()),
            account: Some(v1::LossAccount {
                accepted_ns,
                ..v1::LossAccount::default()
            }),
            cycle: Some(cycle),
            ..v1::Flush::default()
        }
    }

    /// Sends the names and stacks that are new. Returns the samples.
    async fn parts(
        &self,
        inlet: Inlet<'_>,
        attachment: &Attachment,
        pushed: &PushedSeries,
    ) -> Result<Vec<Part>, PushError> {
        let is_large = pushed.imported.trie.node_count() as usize > DICTIONARY_SLICE_ENTRIES;
        let mut turn = None;
        if is_large {
            turn = Some(inlet.ingest.large_turns.take(inlet.account).await);
        }
        let work = {
            let tables = self.tables.clone();
            let ingest = inlet.ingest.clone();
            let attachment = attachment.clone();
            let pushed = pushed.clone();
            let now = inlet.now;
            move || {
                let _turn = turn;
                let mut tables = lock(&tables);
                let samples = tables.add(&pushed.imported, pushed.label_set);
                while let Some(dictionary) = tables.dictionary() {
                    let answer = ingest.receive_dictionary(&attachment, &dictionary, now);
                    match answer.map_err(StreamError::from)? {
                        Some(Kind::Refusal(refusal)) => {
                            return Err(PushError::Refused {
                                reason: refusal.reason,
                            });
                        }
                        _ => continue,
                    }
                }
                Ok(parts(&samples, pushed.range))
            }
        };
        spawn_blocking(work)
            .await
            .unwrap_or(Err(PushError::Panicked))
    }
}

/// Opens the session of a new life.
async fn attach(inlet: Inlet<'_>, pushed: &PushedSeries) -> Result<Attachment, PushError> {
    let mut random = [0; SessionKey::BYTES];
    getrandom::fill(&mut random).map_err(PushError::Random)?;
    let hello = pushed
        .description
        .hello(&SessionKey::new(random), pushed.range, inlet.now);
    let opened = inlet.ingest.attach(inlet.account, hello, inlet.now).await?;
    let OpenStream { attachment, .. } = opened;
    // It has no stream on which requests could reach a sampler.
    lock(&attachment.cell.state).control = None;
    Ok(attachment)
}
