//! The sender of one series: it lives like an agent, whose messages are calls instead of a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use import::{Imported, ImportedSample, Labels};
use profiler_core::wire::v1::{self, collector_message::Kind};
use profiler_core::wire::{PROTOCOL, Translation};
use profiler_core::{SessionKey, TimeRange, Timestamp};
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use super::PushError;
use super::parts::{Part, parts};
use crate::ingest::{
    AttachError, Attachment, Ingest, KnownNames, OpenStream, ReceivedFlush, StreamError,
};
use base::limits::DICTIONARY_SLICE_ENTRIES;
use base::sync::{lock, read};
use shares::{Account, DecodeBudget};
use store::rows::DisconnectReason;

/// Memory of a sample of a flush: its node and its thread, encoded and decoded.
const SAMPLE_BYTES: usize = 64;

/// Samples that are divided into flushes without a thread of their own: below 100 µs.
const SAMPLES_AT_ONCE: usize = 1 << 10;

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

/// A profile that is pushed, of any number of series.
#[derive(Debug)]
pub struct PushedProfile {
    pub imported: Imported,
    /// Those of them that the collector's tree had when it was parsed.
    known: KnownNames,
    /// Those of its names and stacks that its samples copied, in the collector's tree: its first series looks up or
    /// adds them.
    translation: OnceCell<Arc<Translation>>,
}

impl PushedProfile {
    /// A profile of which the tree has the names and stacks in `known`.
    pub fn new(imported: Imported, known: KnownNames) -> PushedProfile {
        let whole = known.whole(&imported.symbols, &imported.trie);
        let translation = whole.map(|whole| Arc::new(whole.clone()));
        PushedProfile {
            imported,
            known,
            translation: OnceCell::new_with(translation),
        }
    }
}

/// The samples of one series in a profile.
#[derive(Clone, Debug)]
pub struct PushedSeries {
    pub description: Description,
    /// The series without the labels of its samples, in which they count past the limit.
    pub base: Description,
    pub profile: Arc<PushedProfile>,
    /// Selects the samples of the profile that belong to the series.
    pub label_set: u16,
    pub range: TimeRange,
}

impl PushedSeries {
    /// The samples as flushes of nodes of the collector's tree. `translation` has those of the profile.
    fn parts(&self, translation: &Translation) -> Vec<Part> {
        let Imported {
            samples,
            known_samples,
            ..
        } = &self.profile.imported;
        let node = |own| {
            let node = translation.node(own);
            node.expect("all nodes of the profile are translated")
        };
        let translated = |sample: &ImportedSample| ImportedSample {
            node: node(sample.node),
            thread: node(sample.thread),
            ..*sample
        };
        let of_series = |sample: &&ImportedSample| sample.labels == self.label_set;
        let own = samples.iter().filter(of_series).map(translated);
        let known = known_samples.iter().filter(of_series).copied();
        parts(&own.chain(known).collect::<Vec<_>>(), self.range)
    }
}

/// Parts of the collector that a push needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inlet<'a> {
    pub(super) ingest: &'a Arc<Ingest>,
    pub(super) account: &'a Arc<Account>,
    pub(super) memory: &'a DecodeBudget,
    pub(super) now: Timestamp,
    /// Whether a push that is not stored does not come again.
    pub(super) is_final: bool,
}

/// Sends what is pushed of one series, as one life of an agent or several in a row. It keeps no names and no
/// stacks: those of a service are the same for all of its series.
#[derive(Debug, Default)]
pub(super) struct Sender {
    /// `None` before the first push and after a failure of the collector's own.
    attachment: Option<Attachment>,
    answered: Answered,
}

/// The flushes of a life that were answered.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    seq: u64,
    /// Weight of all of them.
    accepted_ns: u64,
    /// Weight of those that were refused for good.
    rejected_ns: u64,
}

impl Answered {
    fn add(&mut self, weight_ns: u64) {
        self.seq += 1;
        self.accepted_ns = self.accepted_ns.saturating_add(weight_ns);
    }

    /// One that was refused for good.
    fn reject(&mut self, weight_ns: u64) {
        self.seq += 1;
        self.lose(weight_ns);
    }

    /// The rest of a push, which is not sent.
    fn lose(&mut self, weight_ns: u64) {
        self.accepted_ns = self.accepted_ns.saturating_add(weight_ns);
        self.rejected_ns = self.rejected_ns.saturating_add(weight_ns);
    }

    /// The flush after them.
    fn next(&mut self, cycle: v1::Cycle, weight_ns: u64, now: Timestamp) -> v1::Flush {
        self.add(weight_ns);
        v1::Flush {
            seq: self.seq,
            sent_at_ns: now.unix_ns(),
            clock: Some(v1::Clock::default()),
            account: Some(v1::LossAccount {
                accepted_ns: self.accepted_ns,
                lost_rejected_ns: self.rejected_ns,
                ..v1::LossAccount::default()
            }),
            cycle: Some(cycle),
            ..v1::Flush::default()
        }
    }
}

impl Sender {
    /// Stores one push. Returns its weight when it is acknowledged. While nothing can be logged, the life goes on:
    /// a client that pushes is connected, whether its pushes are stored or not.
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
        let goes_on = matches!(
            sent,
            Ok(_)
                | Err(PushError::Refused { .. }
                    | PushError::Attach(AttachError::NotLogged(_))
                    | PushError::Stream(StreamError::NotLogged(_)))
        );
        if !goes_on {
            self.end(inlet.ingest, inlet.now);
        }
        sent
    }

    /// Notes that a push is not stored, and why. `lost_ns` is its weight if it does not come again.
    pub(super) fn note_refused(&mut self, reason: &str, lost_ns: Option<u64>, now: Timestamp) {
        let Some(attachment) = &self.attachment else {
            return;
        };
        let Ok(mut session) = attachment.session(now) else {
            return;
        };
        session.note_refusal(reason);
        if let Some(lost_ns) = lost_ns {
            session.refuse_next_flush(lost_ns);
            self.answered.reject(lost_ns);
        }
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
        let profile = &pushed.profile;
        let translation = profile
            .translation
            .get_or_try_init(|| translated(inlet, profile.clone()))
            .await?;
        let nodes = read(&inlet.ingest.state.tree).node_count();
        let of_tree = Arc::new(Translation::of_receiver(nodes));
        let mut waiting = VecDeque::new();
        let mut weights_ns = VecDeque::new();
        let mut sent = self.answered;
        for Part {
            cycle,
            weight_ns,
            samples,
        } in parts_of(pushed, translation).await?
        {
            weights_ns.push_back(weight_ns);
            let flush = sent.next(cycle, weight_ns, inlet.now);
            let charge = inlet
                .memory
                .charge(inlet.account, samples * SAMPLE_BYTES)
                .await;
            waiting.push_back(ReceivedFlush {
                flush,
                at: inlet.now,
                charge: Some(charge),
                translation: Some(of_tree.clone()),
            });
        }
        if self.attachment.is_none() {
            check_first(inlet, pushed, &of_tree, &waiting)?;
        }
        let attachment = match &self.attachment {
            Some(attachment) => attachment.clone(),
            None => self.attachment.insert(attach(inlet, pushed).await?).clone(),
        };
        let total_ns = weights_ns.iter().sum();
        while !waiting.is_empty() {
            let received = inlet
                .ingest
                .receive_flushes(&attachment, &mut waiting)
                .await;
            if let Err(StreamError::NotLogged(reason)) = &received {
                let lost_ns = inlet.is_final.then(|| weights_ns.iter().sum());
                self.note_refused(&reason.to_string(), lost_ns, inlet.now);
            }
            for answer in received? {
                let weight_ns = weights_ns.pop_front().unwrap_or_default();
                if let Kind::Refusal(refusal) = answer {
                    self.answered.reject(weight_ns);
                    self.answered.lose(weights_ns.iter().sum());
                    return Err(PushError::Refused {
                        reason: refusal.reason,
                    });
                }
                self.answered.add(weight_ns);
            }
        }
        Ok(total_ns)
    }
}

/// Looks up or adds the names and stacks of a profile in the collector's tree.
async fn translated(
    inlet: Inlet<'_>,
    profile: Arc<PushedProfile>,
) -> Result<Arc<Translation>, PushError> {
    let is_large = profile.imported.trie.node_count() as usize > DICTIONARY_SLICE_ENTRIES;
    let mut turn = None;
    if is_large {
        turn = Some(inlet.ingest.large_turns.take(inlet.account).await);
    }
    let state = inlet.ingest.state.clone();
    let account = inlet.account.clone();
    let work = move || {
        let _turn = turn;
        let Imported { symbols, trie, .. } = &profile.imported;
        state.translate(symbols, trie, profile.known.clone(), &account)
    };
    match spawn_blocking(work).await {
        Ok(Ok(translation)) => Ok(Arc::new(translation)),
        Ok(Err(error)) => Err(PushError::Refused {
            reason: error.to_string(),
        }),
        Err(_) => Err(PushError::Panicked),
    }
}

/// Checks all flushes of a series that is not live, before it becomes a worker.
fn check_first(
    inlet: Inlet<'_>,
    pushed: &PushedSeries,
    translation: &Translation,
    waiting: &VecDeque<ReceivedFlush>,
) -> Result<(), PushError> {
    let worker = &pushed.description.worker;
    waiting.iter().try_for_each(|received| {
        let checked = inlet.ingest.check_first(worker, translation, received);
        checked.map_err(|error| PushError::Refused {
            reason: error.to_string(),
        })
    })
}

/// The samples of a series, as flushes.
async fn parts_of(
    pushed: &PushedSeries,
    translation: &Arc<Translation>,
) -> Result<Vec<Part>, PushError> {
    let Imported {
        samples,
        known_samples,
        ..
    } = &pushed.profile.imported;
    if samples.len() + known_samples.len() <= SAMPLES_AT_ONCE {
        return Ok(pushed.parts(translation));
    }
    let pushed = pushed.clone();
    let translation = translation.clone();
    spawn_blocking(move || pushed.parts(&translation))
        .await
        .map_err(|_| PushError::Panicked)
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
