//! Clients of both protocols, by hand: this crate has no generated gRPC client, and wants to see
//! HTTP as it is on the wire.

use std::net::SocketAddr;

use profiler_core::Token;
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::wire::v1::{self, AgentMessage, CollectorMessage, agent_message};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::in_time;

/// One agent's stream.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) welcome: v1::Welcome,
    messages: mpsc::Sender<AgentMessage>,
    deltas: FlushDeltaCodec,
    answers: Streaming<CollectorMessage>,
}

impl Client {
    /// Sends Hello and receives Welcome.
    pub(super) async fn attach(address: SocketAddr, hello: v1::Hello) -> Client {
        Client::attach_with(address, hello, None).await.unwrap()
    }

    /// The same with a token, or how the stream ends.
    pub(super) async fn attach_with(
        address: SocketAddr,
        hello: v1::Hello,
        token: Option<&Token>,
    ) -> Result<Client, Status> {
        let (messages, receiver) = mpsc::channel(16);
        let hello = AgentMessage {
            kind: Some(agent_message::Kind::Hello(hello)),
        };
        messages.send(hello).await.unwrap();
        let mut answers = open_with(address, ReceiverStream::new(receiver), token).await?;
        let first = in_time(answers.message()).await?.unwrap().kind;
        let Some(Kind::Welcome(welcome)) = first else {
            panic!("{first:?}")
        };
        Ok(Client {
            welcome,
            messages,
            deltas: FlushDeltaCodec::default(),
            answers,
        })
    }

    /// How a stream of these messages ends.
    pub(super) async fn refused(address: SocketAddr, messages: Vec<AgentMessage>) -> Status {
        attach(address, messages).await.unwrap_err()
    }

    pub(super) async fn send(&mut self, mut kind: agent_message::Kind) {
        if let agent_message::Kind::Flush(flush) = &mut kind {
            self.deltas.encode(flush);
        }
        self.messages
            .send(AgentMessage { kind: Some(kind) })
            .await
            .unwrap();
    }

    /// The next answer; `None` at the end of the stream.
    pub(super) async fn receive(&mut self) -> Option<Kind> {
        in_time(self.answers.message())
            .await
            .unwrap()
            .map(|message| message.kind.unwrap())
    }

    /// Sends a message, and returns the answer in words.
    pub(super) async fn ask(&mut self, kind: agent_message::Kind) -> String {
        self.send(kind).await;
        match self.receive().await {
            Some(Kind::Ack(ack)) => format!("ack {}", ack.seq),
            Some(Kind::Refusal(refusal)) => format!("refused {}: {}", refusal.seq, refusal.reason),
            other => format!("{other:?}"),
        }
    }

    /// The status of a stream that ends with an error.
    pub(super) async fn status(&mut self) -> Status {
        loop {
            match in_time(self.answers.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without an error"),
                Err(status) => return status,
            }
        }
    }
}

/// A message whose first field is a number, where an agent sends a Hello.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Malformed {
    #[prost(uint64, tag = "1")]
    pub(super) hello: u64,
}

/// Sends messages of any type, and returns when the collector ends the stream.
pub(super) async fn attach<M: prost::Message + Default + 'static>(
    address: SocketAddr,
    messages: Vec<M>,
) -> Result<(), Status> {
    let messages = tokio_stream::iter(messages).chain(tokio_stream::pending());
    let mut answers = open(address, messages).await?;
    while answers.message().await?.is_some() {}
    Ok(())
}

async fn open<M: prost::Message + Default + 'static>(
    address: SocketAddr,
    messages: impl Stream<Item = M> + Send + 'static,
) -> Result<Streaming<CollectorMessage>, Status> {
    open_with(address, messages, None).await
}

async fn open_with<M: prost::Message + Default + 'static>(
    address: SocketAddr,
    messages: impl Stream<Item = M> + Send + 'static,
    token: Option<&Token>,
) -> Result<Streaming<CollectorMessage>, Status> {
    let endpoint: Endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/emberline.v1.Ingest/Attach");
    let codec = ProstCodec::<M, CollectorMessage>::default();
    let mut request = Request::new(messages);
    if let Some(token) = token {
        request
            .metadata_mut()
            .insert("authorization", token.bearer().parse().unwrap());
    }
    Ok(grpc.streaming(request, path, codec).await?.into_inner())
}

/// A raw HTTP response.
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    /// As text; bytes that are none are replaced.
    pub(super) body: String,
    pub(super) bytes: Vec<u8>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields
            .into_iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }
}

pub(super) async fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path).await
}

/// Sends a request on a new connection.
pub(super) async fn request(address: SocketAddr, method: &str, path: &str) -> Answer {
    send(address, &format!("{method} {path}"), "text/plain", "").await
}

/// The same, with a body.
pub(super) async fn send(
    address: SocketAddr,
    line: &str,
    content_type: &str,
    body: &str,
) -> Answer {
    let host = address.to_string();
    send_with(
        address,
        line,
        &[("host", &host), ("content-type", content_type)],
        body,
    )
    .await
}

/// The same, with exactly these headers and those of the body's length.
pub(super) async fn send_with(
    address: SocketAddr,
    line: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    send_bytes(address, line, headers, body.as_bytes()).await
}

/// The same, with a body that need not be text.
pub(super) async fn send_bytes(
    address: SocketAddr,
    line: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let text = format!(
        "{line} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream
        .write_all(&[text.as_bytes(), body].concat())
        .await
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let head_bytes = answer
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap();
    let head = str::from_utf8(&answer[..head_bytes]).unwrap();
    let bytes = answer[head_bytes + 4..].to_vec();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = String::from_utf8_lossy(&bytes).into_owned();
    Answer {
        status,
        head: head.to_owned(),
        body,
        bytes,
    }
}
