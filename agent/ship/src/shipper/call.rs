//! The gRPC call to the collector: one HTTP/2 stream, whose messages are length-prefixed.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::{fmt, io};

use bytes::{Buf, Bytes, BytesMut};
use h2::client::{Builder, Connection};
use h2::{RecvStream, SendStream};
use http::uri::Uri;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use profiler_core::Token;
use profiler_core::limits::{ANSWER_BYTES_MAX, CAUSE_BYTES_MAX, MESSAGE_BYTES_MAX, bounded};
use profiler_core::wire::v1;
use prost::Message as _;

use super::network::MessageStream;
use super::socket::Socket;
use super::target::{ByteStream, Target};

const METHOD: &str = "/emberline.v1.Ingest/Attach";
const CONTENT_TYPE: &str = "application/grpc";

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Most bytes between the session and the socket. Few, because they count as sent, and a message
/// gets its time stamp when it is put there.
const SEND_BUFFER_BYTES: usize = 32 << 10;

/// Most bytes of the decoded headers of a response, and of its trailers.
const HEADER_BYTES_MAX: u32 = 8 << 10;

/// Why a call ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// TLS cannot be used, or there is no trust.
    #[cfg(feature = "tls")]
    #[error("{0}")]
    Tls(String),
    #[error("the collector's port speaks TLS; use https:// in the URL")]
    NeedsTls,
    #[error("connection lost")]
    Http2(#[source] h2::Error),
    #[error("the connection was closed")]
    Closed,
    #[error("unexpected response ({status}): not an Emberline collector, or another version")]
    NotACollector { status: http::StatusCode },
    #[error("{0}")]
    Status(Status),
    #[error("invalid message from the collector: {0}")]
    Message(String),
    #[error("message of {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong { bytes: usize, bytes_max: usize },
}

impl From<h2::Error> for CallError {
    fn from(error: h2::Error) -> CallError {
        // A collector ends plain connections to a port for TLS with this reason.
        if error.is_remote() && error.reason() == Some(h2::Reason::INADEQUATE_SECURITY) {
            return CallError::NeedsTls;
        }
        CallError::Http2(error)
    }
}

/// A gRPC status other than 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Status {
    code: u32,
    message: String,
    /// When the collector wants the next attempt, if it says so.
    pub(super) retry_after: Option<Duration>,
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            write!(
                formatter,
                "the collector ended the call with status {}",
                self.code
            )
        } else {
            formatter.write_str(&self.message)
        }
    }
}

/// An open call. It makes progress only while one of its `poll` functions is called.
#[derive(Debug)]
pub(super) struct Call {
    connection: Connection<ByteStream, Bytes>,
    outgoing: SendStream<Bytes>,
    incoming: RecvStream,
    /// The part of the last message that had no room yet.
    unsent: Bytes,
    /// Received bytes that are not a whole message yet.
    received: BytesMut,
    pings: Option<h2::PingPong>,
}

impl Call {
    /// Opens the call and sends its first message.
    ///
    /// # Errors
    /// If the peer is not a collector, or rejects the call.
    pub(super) async fn open(
        socket: Rc<Socket>,
        target: &Target,
        token: Option<&Token>,
        first: &v1::AgentMessage,
    ) -> Result<Call, CallError> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .max_send_buffer_size(SEND_BUFFER_BYTES);
        builder.max_header_list_size(HEADER_BYTES_MAX);
        let stream = target.open(socket).await?;
        let (requests, mut connection) = builder.handshake::<_, Bytes>(stream).await?;
        let mut requests = driven(&mut connection, requests.ready()).await??;
        let (mut response, mut outgoing) = requests.send_request(request(target, token)?, false)?;
        outgoing.send_data(encode(first)?, false)?;
        let answer = poll_fn(|context| {
            // `h2` keeps these until they are polled.
            if let Poll::Ready(Some(interim)) = response.poll_informational(context) {
                let status = interim?.status();
                return Poll::Ready(Err(CallError::NotACollector { status }));
            }
            response.poll_unpin(context).map_err(CallError::from)
        });
        let response = driven(&mut connection, answer).await??;
        let incoming = check_response(response)?;
        let pings = connection.ping_pong();
        let unsent = Bytes::new();
        Ok(Call {
            connection,
            outgoing,
            incoming,
            unsent,
            received: BytesMut::new(),
            pings,
        })
    }
}

impl MessageStream for Call {
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<v1::CollectorMessage>, CallError>> {
        loop {
            if let Some(message) = decode(&mut self.received)? {
                return Poll::Ready(Ok(Some(message)));
            }
            // Reads from the socket; the end of the call may be among what it has read.
            let connection = self.connection.poll_unpin(context);
            match self.incoming.poll_data(context) {
                Poll::Ready(Some(data)) => {
                    let data = data?;
                    self.incoming.flow_control().release_capacity(data.len())?;
                    self.received.extend_from_slice(&data);
                }
                Poll::Ready(None) => {
                    let trailers = ready!(self.incoming.poll_trailers(context))?;
                    check_status(&trailers.unwrap_or_default())?;
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending => {
                    ready!(connection)?;
                    return Poll::Ready(Err(CallError::Closed));
                }
            }
        }
    }

    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        while !self.unsent.is_empty() {
            self.outgoing.reserve_capacity(self.unsent.len());
            if self.outgoing.capacity() == 0 {
                ready!(self.outgoing.poll_capacity(context)).ok_or(CallError::Closed)??;
                continue;
            }
            let length = self.outgoing.capacity().min(self.unsent.len());
            self.outgoing
                .send_data(self.unsent.split_to(length), false)?;
        }
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, message: &v1::AgentMessage) -> Result<(), CallError> {
        self.unsent = encode(message)?;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), CallError> {
        poll_fn(|context| self.poll_room(context)).await?;
        self.outgoing.send_data(Bytes::new(), true)?;
        Ok(())
    }

    fn ping(&mut self) -> Result<(), CallError> {
        if let Some(pings) = &mut self.pings {
            pings.send_ping(h2::Ping::opaque())?;
        }
        Ok(())
    }
}

trait PollUnpin: Future + Unpin {
    fn poll_unpin(&mut self, context: &mut Context<'_>) -> Poll<Self::Output> {
        std::pin::Pin::new(self).poll(context)
    }
}

impl<F: Future + Unpin> PollUnpin for F {}

/// Runs `future`, which needs the connection to make progress.
async fn driven<F: Future>(
    connection: &mut Connection<ByteStream, Bytes>,
    future: F,
) -> Result<F::Output, CallError> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        let connection = connection.poll_unpin(context);
        // The last frames of a connection may hold what the future waits for.
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        ready!(connection)?;
        Poll::Ready(Err(CallError::Closed))
    })
    .await
}

fn request(target: &Target, token: Option<&Token>) -> Result<Request<()>, CallError> {
    let uri = Uri::builder()
        .scheme(target.scheme())
        .authority(target.authority().clone())
        .path_and_query(METHOD)
        .build();
    let mut request = Request::post(uri.map_err(|error| CallError::Message(error.to_string()))?)
        .version(http::Version::HTTP_2)
        .header(header::CONTENT_TYPE, CONTENT_TYPE)
        .header(header::TE, "trailers")
        .header(
            header::USER_AGENT,
            concat!("emberline-agent/", env!("CARGO_PKG_VERSION")),
        )
        .body(())
        .map_err(|error| CallError::Message(error.to_string()))?;
    if let Some(token) = token {
        let mut bearer = HeaderValue::from_str(&token.bearer())
            .map_err(|error| CallError::Message(error.to_string()))?;
        // Not in HTTP/2's table of headers to repeat, and hidden in debug output.
        bearer.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    Ok(request)
}

fn check_response(response: Response<RecvStream>) -> Result<RecvStream, CallError> {
    let status = response.status();
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let is_grpc = content_type.is_some_and(|it| it.as_bytes().starts_with(CONTENT_TYPE.as_bytes()));
    if status != http::StatusCode::OK || !is_grpc {
        return Err(CallError::NotACollector { status });
    }
    // A call that is rejected at once has its status here.
    check_status(response.headers())?;
    Ok(response.into_body())
}

fn check_status(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name: &str| headers.get(name).map(|value| value.as_bytes());
    let code = text("grpc-status").and_then(|it| std::str::from_utf8(it).ok()?.parse().ok());
    match code {
        None | Some(0) => Ok(()),
        Some(code) => {
            let message = percent_decoded(text("grpc-message").unwrap_or_default());
            let message = printable(&message);
            let delay_ms =
                text("grpc-retry-pushback-ms").and_then(|it| std::str::from_utf8(it).ok());
            let retry_after = delay_ms
                .and_then(|it| it.parse().ok())
                .map(Duration::from_millis);
            Err(CallError::Status(Status {
                code,
                message,
                retry_after,
            }))
        }
    }
}

/// gRPC encodes the text of a status like a URL.
fn percent_decoded(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(code) => {
                decoded.push(code);
                rest = &tail[2..];
            }
            None => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Bounds a text of the collector and escapes what would control the terminal of the program's log.
fn printable(text: &str) -> String {
    let mut escaped = String::new();
    for character in bounded(text, CAUSE_BYTES_MAX).chars() {
        match character {
            '"' | '\'' | '\\' => escaped.push(character),
            _ => escaped.extend(character.escape_debug()),
        }
    }
    escaped
}

fn encode(message: &v1::AgentMessage) -> Result<Bytes, CallError> {
    let length = message.encoded_len();
    let prefix = u32::try_from(length)
        .ok()
        .filter(|_| length <= MESSAGE_BYTES_MAX)
        .ok_or(CallError::TooLong {
            bytes: length,
            bytes_max: MESSAGE_BYTES_MAX,
        })?;
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + length);
    bytes.push(0);
    bytes.extend_from_slice(&prefix.to_be_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    Ok(bytes.into())
}

/// Takes the first whole message from `received`.
pub(super) fn decode(received: &mut BytesMut) -> Result<Option<v1::CollectorMessage>, CallError> {
    let Some([compressed, length @ ..]) = received.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    if *compressed != 0 {
        return Err(CallError::Message("it is compressed".to_owned()));
    }
    let length = u32::from_be_bytes(*length) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(CallError::TooLong {
            bytes: length,
            bytes_max: ANSWER_BYTES_MAX,
        });
    }
    if received.len() < PREFIX_BYTES + length {
        return Ok(None);
    }
    received.advance(PREFIX_BYTES);
    let message = v1::CollectorMessage::decode(received.split_to(length));
    message
        .map(Some)
        .map_err(|error| CallError::Message(error.to_string()))
}

impl CallError {
    /// The error with its causes, as one line.
    pub(super) fn describe(&self) -> String {
        let causes = std::iter::successors(self.source(), |cause| (*cause).source());
        let text = causes
            .map(ToString::to_string)
            .fold(self.to_string(), |text, cause| {
                if text.contains(&cause) {
                    text
                } else {
                    format!("{text}: {cause}")
                }
            });
        bounded(&text, CAUSE_BYTES_MAX).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::v1::{Ack, agent_message, collector_message};

    use super::*;

    fn ack(seq: u64) -> v1::CollectorMessage {
        let kind = Some(collector_message::Kind::Ack(Ack { seq, receipt: None }));
        v1::CollectorMessage { kind }
    }

    fn framed(message: &v1::CollectorMessage) -> Vec<u8> {
        let body = message.encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0], &length[..], &body].concat()
    }

    #[test]
    fn messages_are_decoded_wherever_chunks_end() {
        let bytes = [framed(&ack(7)), framed(&ack(8))].concat();
        for chunk_bytes in 1..bytes.len() {
            let mut received = BytesMut::new();
            let mut messages = Vec::new();
            for chunk in bytes.chunks(chunk_bytes) {
                received.extend_from_slice(chunk);
                while let Some(message) = decode(&mut received).unwrap() {
                    messages.push(message);
                }
            }
            assert_eq!(messages, [ack(7), ack(8)], "{chunk_bytes}");
            assert!(received.is_empty());
        }
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let check = |bytes: &[u8], expected: &str| {
            let error = decode(&mut BytesMut::from(bytes)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&[1, 0, 0, 0, 0], "it is compressed");
        check(
            &[0, 0xff, 0xff, 0xff, 0xff],
            "message of 4294967295 bytes; at most 65536 are",
        );
        check(&[0, 0, 0, 0, 1, 0xff], "invalid message from the collector");
    }

    #[test]
    fn a_message_has_a_prefix_of_its_length() {
        let kind = Some(agent_message::Kind::Goodbye(v1::Goodbye::default()));
        let message = v1::AgentMessage { kind };
        let bytes = encode(&message).unwrap();
        let length = u8::try_from(message.encoded_len()).unwrap();
        assert_eq!(bytes[..PREFIX_BYTES], [0, 0, 0, 0, length]);
        assert_eq!(
            v1::AgentMessage::decode(&bytes[PREFIX_BYTES..]).unwrap(),
            message
        );
    }

    #[test]
    fn a_status_is_decoded_from_trailers() {
        let trailers = |code: &str, message: &str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", code.parse().unwrap());
            trailers.insert("grpc-message", message.parse().unwrap());
            trailers
        };
        assert!(check_status(&trailers("0", "")).is_ok());
        assert!(check_status(&HeaderMap::new()).is_ok());
        let rejected = check_status(&trailers("3", "epoch%20%22x%22: 100%")).unwrap_err();
        assert_eq!(rejected.describe(), "epoch \"x\": 100%");
        let hostile = check_status(&trailers("3", "a%1B[2J%0A%E2%80%AE%C3%A9")).unwrap_err();
        assert_eq!(hostile.describe(), "a\\u{1b}[2J\\n\\u{202e}é");
        let silent = check_status(&trailers("14", "")).unwrap_err();
        assert_eq!(
            silent.describe(),
            "the collector ended the call with status 14"
        );
    }

    #[test]
    fn a_status_may_say_when_to_retry() {
        let retry_after = |delay: &str| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "8".parse().unwrap());
            trailers.insert("grpc-retry-pushback-ms", delay.parse().unwrap());
            match check_status(&trailers) {
                Err(CallError::Status(status)) => status.retry_after,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(retry_after("5000"), Some(Duration::from_secs(5)));
        assert_eq!(retry_after("-1"), None);
    }

    #[test]
    fn an_error_names_its_cause_once() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = CallError::Connect(refused).describe();
        assert_eq!(error, "cannot connect: connection refused");
    }
}
