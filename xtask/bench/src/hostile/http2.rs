//! Streams of agents frame by frame, so that they can be left half sent.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Method, Request};
use profiler_core::wire::v1::{AgentMessage, CollectorMessage, agent_message};
use prost::Message as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// An attempt to connect that takes longer has failed.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Bytes before a message.
const PREFIX_BYTES: usize = 5;

/// The attackers' address.
pub(super) const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A connection from a local address.
pub(super) async fn connect(
    source: Ipv4Addr,
    address: SocketAddr,
    receive_bytes: Option<u32>,
) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(timeout(CONNECT_MAX, socket.connect(address))
        .await
        .context("connecting")??)
}

/// A connection for many streams.
#[derive(Clone)]
pub(super) struct Connection {
    requests: SendRequest<Bytes>,
}

impl Connection {
    pub(super) async fn open(source: Ipv4Addr, address: SocketAddr) -> Result<Connection> {
        let stream = connect(source, address, None).await?;
        let opened = timeout(CONNECT_MAX, Builder::new().handshake::<_, Bytes>(stream)).await;
        let (requests, connection) = opened.context("the handshake")??;
        tokio::spawn(connection);
        Ok(Connection { requests })
    }

    /// Opens a stream without a message.
    pub(super) async fn stream(&self) -> Result<AgentStream> {
        let request = Request::builder()
            .method(Method::POST)
            .uri("http://127.0.0.1/emberline.v1.Ingest/Attach")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let mut requests = timeout(CONNECT_MAX, self.requests.clone().ready())
            .await
            .context("no room")??;
        let (response, outgoing) = requests.send_request(request, false)?;
        Ok(AgentStream {
            response: Some(response),
            outgoing,
            incoming: None,
            received: BytesMut::new(),
        })
    }
}

/// One stream.
pub(super) struct AgentStream {
    response: Option<h2::client::ResponseFuture>,
    outgoing: SendStream<Bytes>,
    incoming: Option<RecvStream>,
    received: BytesMut,
}

impl AgentStream {
    /// Sends bytes as the collector makes room for them.
    pub(super) async fn send_bytes(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            self.outgoing.reserve_capacity(bytes.len());
            while self.outgoing.capacity() == 0 {
                let room = std::future::poll_fn(|context| self.outgoing.poll_capacity(context));
                room.await.context("the stream is closed")??;
            }
            let length = self.outgoing.capacity().min(bytes.len());
            self.outgoing.send_data(bytes.split_to(length), false)?;
        }
        Ok(())
    }

    pub(super) async fn send(&mut self, kind: agent_message::Kind) -> Result<()> {
        self.send_bytes(framed(kind)?).await
    }

    /// The next message of the collector.
    pub(super) async fn receive(&mut self) -> Result<CollectorMessage> {
        if let Some(response) = self.response.take() {
            self.incoming = Some(response.await?.into_body());
        }
        let incoming = self.incoming.as_mut().context("the stream failed before")?;
        loop {
            if let Some(message) = decode(&mut self.received)? {
                return Ok(message);
            }
            let Some(data) = incoming.data().await else {
                bail!("the collector ended the stream")
            };
            let data = data?;
            incoming.flow_control().release_capacity(data.len())?;
            self.received.extend_from_slice(&data);
        }
    }
}

/// A length-prefixed message.
pub(super) fn framed(kind: agent_message::Kind) -> Result<Bytes> {
    let body = AgentMessage { kind: Some(kind) }.encode_to_vec();
    let length = u32::try_from(body.len())?.to_be_bytes();
    Ok([&[0], length.as_slice(), &body].concat().into())
}

/// The start of a message of 4 MiB, and so many bytes of it.
pub(super) fn half_message(bytes: usize) -> Bytes {
    let mut start = vec![0];
    start.extend((4u32 << 20).to_be_bytes());
    start.resize(PREFIX_BYTES + bytes, 0x0a);
    start.into()
}

fn decode(received: &mut BytesMut) -> Result<Option<CollectorMessage>> {
    let Some([_, length @ ..]) = received.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if received.len() < PREFIX_BYTES + length {
        return Ok(None);
    }
    received.advance(PREFIX_BYTES);
    Ok(Some(CollectorMessage::decode(received.split_to(length))?))
}
