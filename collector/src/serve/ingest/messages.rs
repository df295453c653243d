//! The messages of one agent's stream, read from the body of its request.
//!
//! gRPC's framing is five bytes before each message: whether it is compressed, and its length. It is read
//! here and not by `tonic`, which can neither wait for memory before it decodes nor bound what half
//! messages take: it reserves the announced length at once, and keeps it for the stream's life.
//!
//! A message that arrives in one piece, as nearly all do, is decoded in place. The parts of others are
//! [`MemoryPool`], and each message's memory is charged to the [`DecodeBudget`] before it is decoded.

use std::sync::Arc;

use axum::body::{Body, BodyDataStream, Bytes};
use profiler_core::limits::MESSAGE_BYTES_MAX;
use profiler_core::wire::measure;
use profiler_core::wire::v1::AgentMessage;
use prost::Message as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::Status;

use crate::serve::ingest::retry::{resource_exhausted, too_fast};
use base::limits::{BEGUN_BYTES_MIN, BEGUN_WINDOW};
use shares::{Account, Charge, DecodeBudget, Full, MemoryPool, Reservation, Turns};

/// Bytes before each message.
const HEADER_BYTES: usize = 5;

/// A decoded message.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: AgentMessage,
    pub(crate) encoded_bytes: usize,
    /// Its memory; to be dropped when the message is applied.
    pub(crate) charge: Charge,
}

/// The next message of a stream, `None` at its end, or why it broke.
pub(crate) type NextMessage = Result<Option<Received>, Status>;

/// The memory that all streams share.
#[derive(Clone, Debug)]
pub(crate) struct MessageMemory {
    pub(crate) begun: Arc<MemoryPool>,
    pub(crate) decoded: Arc<DecodeBudget>,
    /// For messages that take long to decode.
    pub(crate) large_turns: Arc<Turns>,
}

/// Reads messages from the body of a request.
pub(crate) struct MessageStream {
    body: BodyDataStream,
    account: Arc<Account>,
    memory: MessageMemory,
    /// The unread rest of what arrived last.
    chunk: Bytes,
    begun: Option<Begun>,
    /// When the whole message that has arrived may be used: its bytes are charged. `None` before.
    due: Option<Instant>,
}

/// A message of which only a part arrived.
struct Begun {
    /// The part of header and body that has arrived.
    buffer: Vec<u8>,
    held: Reservation,
    revoked: Arc<Notify>,
    /// Since when the bytes below are counted.
    window_start: Instant,
    window_bytes: usize,
}

impl MessageStream {
    pub(crate) fn new(body: Body, account: Arc<Account>, memory: MessageMemory) -> MessageStream {
        let body = body.into_data_stream();
        MessageStream {
            body,
            account,
            memory,
            chunk: Bytes::new(),
            begun: None,
            due: None,
        }
    }

    /// Awaits the next message. Cancel-safe: what has arrived stays here.
    pub(crate) async fn next(&mut self) -> NextMessage {
        loop {
            self.gather().await?;
            if self.has_message()? {
                break;
            }
            match self.next_chunk().await? {
                Some(chunk) => self.chunk = chunk,
                None if self.begun.is_none() => return Ok(None),
                None => return Err(Status::cancelled("the stream ended within a message")),
            }
        }
        let whole = match &self.begun {
            Some(begun) => &begun.buffer[..],
            None => &self.chunk[..],
        };
        let length = body_length(whole)?.expect("a whole message has a header");
        let due = match self.due {
            Some(due) => due,
            None => {
                let wait = self.account.charge_bytes(length).map_err(too_fast)?;
                *self.due.insert(Instant::now() + wait)
            }
        };
        // Most messages are due at once. Not awaited then, so that a stream that has several waiting
        // gets them in one poll.
        if due > Instant::now() {
            sleep_until(due).await;
        }
        let encoded = &whole[HEADER_BYTES..HEADER_BYTES + length];
        let bytes =
            measure(encoded).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let charge = self.memory.decoded.charge(&self.account, bytes).await;
        let message = self
            .memory
            .large_turns
            .run(&self.account, bytes, || AgentMessage::decode(encoded))
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        self.due = None;
        if self.begun.take().is_none() {
            // Not advanced: an empty rest would hold the buffer into which the connection has read it.
            drop(self.chunk.split_to(HEADER_BYTES + length));
        }
        Ok(Some(Received {
            message,
            encoded_bytes: length,
            charge,
        }))
    }

    /// Whether a whole message is in `begun`, or else at the start of `chunk`.
    fn has_message(&self) -> Result<bool, Status> {
        let bytes = self
            .begun
            .as_ref()
            .map_or(&self.chunk[..], |begun| &begun.buffer);
        let length = body_length(bytes)?;
        Ok(length.is_some_and(|length| bytes.len() >= HEADER_BYTES + length))
    }

    /// Awaits the next bytes; `None` at the end of the body.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(begun) = &mut self.begun else {
            return self.body.next().await.transpose().map_err(broken);
        };
        loop {
            let window_stop = begun.window_start + BEGUN_WINDOW;
            let next = tokio::select! {
                next = timeout_at(window_stop, self.body.next()) => next,
                () = begun.revoked.notified() => return Err(gave_way(Full)),
            };
            if let Ok(next) = next {
                return next.transpose().map_err(broken);
            }
            if begun.window_bytes < BEGUN_BYTES_MIN {
                let text = format!(
                    "a message is sent too slowly: {} bytes in {BEGUN_WINDOW:?}; at least \
                     {BEGUN_BYTES_MIN} are needed",
                    begun.window_bytes
                );
                return Err(Status::deadline_exceeded(text));
            }
            begun.window_start = window_stop;
            begun.window_bytes = 0;
        }
    }

    /// Unless `chunk` begins with a whole message, moves its bytes to the message that has begun.
    async fn gather(&mut self) -> Result<(), Status> {
        if self.chunk.is_empty() || self.begun.is_none() && self.has_message()? {
            return Ok(());
        }
        let begun = match &mut self.begun {
            Some(begun) => begun,
            None => self
                .begun
                .insert(Begun::new(&self.memory.begun, &self.account)),
        };
        loop {
            let whole =
                body_length(&begun.buffer)?.map_or(HEADER_BYTES, |length| HEADER_BYTES + length);
            let count = self.chunk.len().min(whole - begun.buffer.len());
            if count == 0 {
                return Ok(());
            }
            begun
                .held
                .grow(count, BEGUN_WINDOW)
                .await
                .map_err(gave_way)?;
            begun.buffer.extend_from_slice(&self.chunk.split_to(count));
            begun.window_bytes += count;
        }
    }
}

impl Begun {
    fn new(pool: &Arc<MemoryPool>, account: &Arc<Account>) -> Begun {
        let revoked = Arc::new(Notify::new());
        let on_revoke = revoked.clone();
        Begun {
            buffer: Vec::new(),
            held: pool.hold_none(account, move || on_revoke.notify_one()),
            revoked,
            window_start: Instant::now(),
            window_bytes: 0,
        }
    }
}

/// The length of a message by its header; `None` if the header is not whole.
fn body_length(bytes: &[u8]) -> Result<Option<usize>, Status> {
    let Some([compressed, length @ ..]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    if *compressed != 0 {
        return Err(Status::unimplemented("messages must not be compressed"));
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > MESSAGE_BYTES_MAX {
        let text = format!("a message has {length} bytes; at most {MESSAGE_BYTES_MAX} are allowed");
        return Err(Status::out_of_range(text));
    }
    Ok(Some(length))
}

fn broken(error: axum::Error) -> Status {
    Status::cancelled(format!("the stream broke: {error}"))
}

fn gave_way(_: Full) -> Status {
    resource_exhausted("too many messages arrive slowly at once; send again later")
}

#[cfg(test)]
mod tests;
