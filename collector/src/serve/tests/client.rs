//! Clients of both protocols, by hand: this crate has no generated gRPC client, and wants to see
//! HTTP as it is on the wire.

use std::net::SocketAddr;

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
pub(super) struct Client {
    pub(super) welcome: v1::Welcome,
    messages: mpsc::Sender<AgentMessage>,
    deltas: FlushDeltaCodec,
    answers: Streaming<CollectorMessage>,
}

impl Client {
    /// Sends Hello and receives Welcome.
    pub(super) async fn attach(address: SocketAddr, hello: v1::Hello) -> Client {
        let (messages, receiver) = mpsc::channel(16);
        let hello = AgentMessage { kind: Some(agent_message::Kind::Hello(hello)) };
        messages.send(hello).await.unwrap();
        let mut answers = open(address, ReceiverStream::new(receiver)).await.unwrap();
        let first = answers.message().await.unwrap().unwrap().kind;
        let Some(Kind::Welcome(welcome)) = first else { panic!("{first:?}") };
        Client { welcome, messages, deltas: FlushDeltaCodec::default(), answers }
    }

    /// How a stream of these messages ends.
    pub(super) async fn refused(address: SocketAddr, messages: Vec<AgentMessage>) -> Status {
        attach(address, messages).await.unwrap_err()
    }

    pub(super) async fn send(&mut self, mut kind: agent_message::Kind) {
        if let agent_message::Kind::Flush(flush) = &mut kind {
            self.deltas.encode(flush);
        }
        self.messages.send(AgentMessage { kind: Some(kind) }).await.unwrap();
    }

    /// The next answer; `None` at the end of the stream.
    pub(super) async fn receive(&mut self) -> Option<Kind> {
        in_time(self.answers.message()).await.unwrap().map(|message| message.kind.unwrap())
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
    let endpoint: Endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/emberline.v1.Ingest/Attach");
    let codec = ProstCodec::<M, CollectorMessage>::default();
    Ok(grpc.streaming(Request::new(messages), path, codec).await?.into_inner())
}

/// A raw HTTP response.
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| *field == name).map(|(_, value)| value)
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
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
