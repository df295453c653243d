//! Sends an imported profile over the agents' stream, again if the stream breaks.

use std::io;
use std::time::Duration;

use profiler_core::limits::ANSWER_BYTES_MAX;
use profiler_core::wire::v1::{self, agent_message, collector_message};
use profiler_core::wire::{FlushDeltaCodec, Marks};
use profiler_core::{Timestamp, Token};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::connect::Target;
use super::worker::ImportedWorker;
use crate::client::ClientError;

/// Path of the one method of the service.
const ATTACH_PATH: &str = "/emberline.v1.Ingest/Attach";

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for an answer: a collector waits this long for a sealing before it ends the stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most flushes without an answer.
const IN_FLIGHT_MAX: u64 = 32;
/// Streams in a row that end without any progress before the import fails.
const ATTEMPTS_MAX: u32 = 5;
/// Pause before the next stream.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a profile was not imported, or not wholly.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    /// The URL or the setup of TLS.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Nobody answers.
    #[error(
        "no response from a collector at {url}\nstart one with `emberline serve` or `emberline demo`, \
         or set --url or EMBERLINE_URL"
    )]
    Unreachable {
        url: String,
        #[source]
        source: io::Error,
    },
    /// The collector does not let this client report as this worker.
    #[error(
        "{0}\nan import needs a token of role agent: emberline token new --role agent --worker 'import:*'"
    )]
    Denied(String),
    /// The collector rejects the data.
    #[error("the collector rejects the profile: {0}")]
    Rejected(String),
    /// There was never a stream.
    #[error("no stream to {url}: {reason}\nis it a collector, and are scheme and port right?")]
    NoStream { url: String, reason: String },
    /// The stream broke too often.
    #[error(
        "the import stopped after {received} of {flushes} messages: {reason}\nit is stored whole or not at all: \
         run the command again with --time {start}, which stores it once"
    )]
    Interrupted {
        received: u64,
        flushes: u64,
        reason: String,
        start: String,
    },
}

/// How a stream ended before all was acknowledged.
enum Ended {
    /// A retry may succeed.
    Broken(String),
    Failed(UploadError),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        let text = status.message().to_owned();
        // Of the connection, whose code is not the collector's.
        if std::error::Error::source(&status).is_some() {
            return Ended::Broken(text);
        }
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                Ended::Failed(UploadError::Denied(text))
            }
            Code::InvalidArgument | Code::Unimplemented => {
                Ended::Failed(UploadError::Rejected(text))
            }
            _ => Ended::Broken(text),
        }
    }
}

/// Outcome of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Uploaded {
    /// The collector has it now, durably if it has a folder.
    Stored,
    /// The collector had it before.
    Known,
}

/// Sends a profile to the collector at `url`. Calls `progress` with the number of acknowledged flushes.
///
/// # Errors
/// [`UploadError`]; nothing is stored, unless the answer to the last message was lost.
pub(crate) fn upload(
    url: &str,
    token: Option<&Token>,
    worker: &ImportedWorker,
    progress: &dyn Fn(u64),
) -> anyhow::Result<Uploaded> {
    let target = Target::parse(url).map_err(UploadError::from)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let upload = Upload {
        target,
        token,
        worker,
        progress,
    };
    Ok(runtime.block_on(upload.run())?)
}

struct Upload<'a> {
    target: Target,
    token: Option<&'a Token>,
    worker: &'a ImportedWorker,
    progress: &'a dyn Fn(u64),
}

impl Upload<'_> {
    async fn run(&self) -> Result<Uploaded, UploadError> {
        // The most that a stream sent; known after the first Welcome.
        let mut received = None;
        let mut attempts = 0;
        let mut uploaded = Uploaded::Known;
        loop {
            let before = received;
            let reason = match self.stream(&mut received, &mut uploaded).await {
                Ok(()) => return Ok(uploaded),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Broken(reason)) => reason,
            };
            attempts = if received > before { 0 } else { attempts + 1 };
            if attempts == ATTEMPTS_MAX && received.is_none() {
                return Err(UploadError::NoStream {
                    url: self.target.url.clone(),
                    reason,
                });
            }
            if attempts == ATTEMPTS_MAX {
                let received = received.unwrap_or(0);
                let flushes = self.worker.flushes();
                let start = api::time::format_time(self.worker.placement.start.unix_ns());
                return Err(UploadError::Interrupted {
                    received,
                    flushes,
                    reason,
                    start,
                });
            }
            sleep(RETRY_AFTER).await;
        }
    }

    /// Runs one stream to its end. The collector drops an unfinished import when its stream ends, so a stream
    /// continues where Welcome says. `received` is the highest acknowledged sequence number of all streams.
    async fn stream(
        &self,
        received: &mut Option<u64>,
        uploaded: &mut Uploaded,
    ) -> Result<(), Ended> {
        let (outgoing, receiver) = mpsc::channel(1);
        let hello = agent_message::Kind::Hello(self.worker.hello(now()));
        let _ = outgoing.try_send(v1::AgentMessage { kind: Some(hello) });
        let mut incoming = self.open(ReceiverStream::new(receiver)).await?;
        let Some(collector_message::Kind::Welcome(welcome)) = answer(&mut incoming).await? else {
            return Err(Ended::Broken("it did not answer with Welcome".to_owned()));
        };
        let mut acked = welcome.acked_seq;
        let flushes = self.worker.flushes();
        let held = Marks {
            strings: welcome.strings,
            frames: welcome.frames,
            nodes: welcome.nodes,
        };
        let mut next = Outgoing {
            worker: self.worker,
            held,
            codec: FlushDeltaCodec::default(),
            seq: acked + 1,
        };
        loop {
            *received = (*received).max(Some(acked));
            (self.progress)(acked);
            if acked >= flushes {
                break;
            }
            *uploaded = Uploaded::Stored;
            let may_send = next.seq <= flushes && next.seq - acked <= IN_FLIGHT_MAX;
            tokio::select! {
                answer = answer(&mut incoming) => acked = taken(answer?, acked)?,
                permit = outgoing.reserve(), if may_send => match permit {
                    Ok(permit) => permit.send(next.message()),
                    // The stream broke, and the answers have the reason.
                    Err(_) => acked = taken(answer(&mut incoming).await?, acked)?,
                },
            }
        }
        // Without it, the worker would count as lost instead of ended.
        let goodbye = agent_message::Kind::Goodbye(v1::Goodbye::default());
        let _ = outgoing
            .send(v1::AgentMessage {
                kind: Some(goodbye),
            })
            .await;
        drop(outgoing);
        let _ = timeout(CONNECT_TIMEOUT, async {
            while let Ok(Some(_)) = incoming.message().await {}
        })
        .await;
        Ok(())
    }

    async fn open(
        &self,
        messages: ReceiverStream<v1::AgentMessage>,
    ) -> Result<Streaming<v1::CollectorMessage>, Ended> {
        let connected = timeout(CONNECT_TIMEOUT, self.target.connect())
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let sender = connected.map_err(|source| self.unreachable(source))?;
        let service = tower::service_fn(move |request| sender.clone().send_request(request));
        let origin = self
            .target
            .origin()
            .parse::<hyper::Uri>()
            .map_err(|error| {
                let url = self.target.url.clone();
                Ended::Failed(
                    ClientError::Url {
                        url,
                        reason: error.to_string(),
                    }
                    .into(),
                )
            })?;
        let mut client = tonic::client::Grpc::with_origin(service, origin)
            .max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut request = Request::new(messages);
        if let Some(token) = self.token
            && let Ok(mut value) = MetadataValue::try_from(token.bearer().as_str())
        {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        client
            .ready()
            .await
            .map_err(|error: hyper::Error| Ended::Broken(error.to_string()))?;
        let path = hyper::http::uri::PathAndQuery::from_static(ATTACH_PATH);
        let codec = ProstCodec::<v1::AgentMessage, v1::CollectorMessage>::default();
        Ok(client.streaming(request, path, codec).await?.into_inner())
    }

    fn unreachable(&self, source: io::Error) -> Ended {
        let url = self.target.url.clone();
        Ended::Failed(match tls::explain(&source) {
            Some(reason) => ClientError::Tls { url, reason }.into(),
            None => UploadError::Unreachable { url, source },
        })
    }
}

/// The messages of an upload: names and stacks first, then flushes.
struct Outgoing<'a> {
    worker: &'a ImportedWorker,
    held: Marks,
    codec: FlushDeltaCodec,
    seq: u64,
}

impl Outgoing<'_> {
    fn message(&mut self) -> v1::AgentMessage {
        let kind = match self.worker.dictionary(&mut self.held) {
            Some(dictionary) => agent_message::Kind::Dictionary(dictionary),
            None => {
                let mut flush = self.worker.flush(self.seq, now());
                self.codec.encode(&mut flush);
                self.seq += 1;
                agent_message::Kind::Flush(flush)
            }
        };
        v1::AgentMessage { kind: Some(kind) }
    }
}

/// The next answer.
async fn answer(
    incoming: &mut Streaming<v1::CollectorMessage>,
) -> Result<Option<collector_message::Kind>, Ended> {
    let message = timeout(ANSWER_TIMEOUT, incoming.message()).await;
    match message.map_err(|_| Ended::Broken(format!("no answer within {ANSWER_TIMEOUT:?}")))?? {
        Some(message) => Ok(message.kind),
        None => Err(Ended::Broken("the collector ended the stream".to_owned())),
    }
}

/// The highest acknowledged sequence number after an answer.
fn taken(answer: Option<collector_message::Kind>, acked: u64) -> Result<u64, Ended> {
    match answer {
        Some(collector_message::Kind::Ack(ack)) => Ok(acked.max(ack.seq)),
        Some(collector_message::Kind::Refusal(refusal)) => {
            Err(Ended::Failed(UploadError::Rejected(refusal.reason)))
        }
        // Settings and thread dumps are for agents of running programs.
        _ => Ok(acked),
    }
}

fn now() -> Timestamp {
    let now_ns = jiff::Timestamp::now().as_nanosecond();
    Timestamp::from_unix_ns(i64::try_from(now_ns).unwrap_or(i64::MAX))
}
