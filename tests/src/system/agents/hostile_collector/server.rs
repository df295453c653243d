//! A collector that follows no rule: each connection is served by a function of the test.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::{self, agent_message, collector_message};
use prost::Message as _;

use super::frames::{
    self, ACK, DATA, Frame, HEADERS, PING, PREFACE, SETTINGS, STREAM, WINDOW_BYTES, WINDOW_UPDATE,
    frame, window_update,
};
use crate::harness::RESTARTABLE;

/// Serves one connection until it fails, which it does when the server is dropped.
pub(super) type Attack = fn(&mut Peer) -> io::Result<()>;

const GRPC_PREFIX_BYTES: usize = 5;

/// A frame with many messages.
const FRAME_BYTES_MIN: usize = 4_096;

/// Observed behavior of the agent.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: AtomicU64,
    /// Bytes that the agent has read, or the system has in its buffers.
    pub(super) written_bytes: AtomicU64,
    /// Acknowledgments of pings and settings.
    pub(super) replies: AtomicU64,
    /// Highest sequence number of a flush that was read.
    newest_seq: AtomicU64,
}

/// A running hostile collector. Dropping it frees its address.
pub(super) struct Server {
    pub(super) address: String,
    pub(super) counts: Arc<Counts>,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Server {
    pub(super) fn start(attack: Attack) -> Server {
        let listener = TcpListener::bind(RESTARTABLE).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counts: Arc<Counts> = Arc::default();
        let shared: Arc<Shared> = Arc::default();
        let accepting = {
            let counts = counts.clone();
            let shared = shared.clone();
            thread::spawn(move || accept(&listener, &shared, &counts, attack))
        };
        Server {
            address,
            counts,
            shared,
            accepting: Some(accepting),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Ends the wait for the next connection.
        let _ = TcpStream::connect(&self.address);
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, counts: &Arc<Counts>, attack: Attack) {
    let mut serving = Vec::new();
    for stream in listener.incoming() {
        if shared.is_over.load(Ordering::Acquire) {
            break;
        }
        let Ok(stream) = stream else { continue };
        counts.connections.fetch_add(1, Ordering::Relaxed);
        shared
            .open
            .lock()
            .unwrap()
            .push(stream.try_clone().unwrap());
        let mut peer = Peer::new(stream, shared.clone(), counts.clone());
        // An error is the end of the connection.
        serving.push(thread::spawn(move || {
            let _ = attack(&mut peer);
            let _ = peer.stream.shutdown(Shutdown::Both);
        }));
    }
    for stream in shared
        .open
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
    {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in serving {
        thread.join().unwrap();
    }
}

/// The hostile end of a connection.
pub(super) struct Peer {
    pub(super) stream: TcpStream,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    codec: FlushDeltaCodec,
    received: Vec<u8>,
    /// Bytes that may be sent on the agent's stream.
    room: Arc<AtomicI64>,
}

impl Peer {
    fn new(stream: TcpStream, shared: Arc<Shared>, counts: Arc<Counts>) -> Peer {
        // It fails if the connection is closed already.
        let _ = stream.set_nodelay(true);
        Peer {
            stream,
            shared,
            counts,
            codec: FlushDeltaCodec::default(),
            received: Vec::new(),
            room: Arc::new(AtomicI64::new(WINDOW_BYTES)),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.counts
            .written_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the same frames again and again.
    pub(super) fn flood(&mut self, frames: &[u8]) -> io::Result<()> {
        let many = frames.repeat((16 << 10) / frames.len() + 1);
        loop {
            self.write(&many)?;
        }
    }

    /// Sends messages, as many as the agent gives room for, in frames that are full: it ends
    /// connections of small ones. Needs [`Peer::drain`].
    pub(super) fn send_messages(
        &mut self,
        messages: impl Iterator<Item = collector_message::Kind>,
    ) -> io::Result<()> {
        let mut data = Vec::new();
        for message in messages {
            data.extend(frames::message_bytes(message));
            if data.len() >= FRAME_BYTES_MIN {
                self.await_room(data.len())?;
                self.write(&frame(DATA, 0, STREAM, &data))?;
                data.clear();
            }
        }
        Ok(())
    }

    /// Uses up the agent's room for data on its stream.
    fn await_room(&self, bytes: usize) -> io::Result<()> {
        let length = i64::try_from(bytes).unwrap();
        while self.room.load(Ordering::Relaxed) < length {
            if self.shared.is_over.load(Ordering::Acquire) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        self.room.fetch_sub(length, Ordering::Relaxed);
        Ok(())
    }

    /// Stays connected and reads nothing.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        while !self.shared.is_over.load(Ordering::Acquire) && self.stream.peek(&mut [0])? > 0 {
            thread::park_timeout(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Reads everything on another thread from now on, and counts the replies.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        let stream = self.stream.try_clone()?;
        let mut reader = Peer::new(stream, self.shared.clone(), self.counts.clone());
        reader.room = self.room.clone();
        thread::spawn(move || while reader.read_frame().is_ok() {});
        Ok(())
    }

    /// Reads the preface and sends settings.
    pub(super) fn greet(&mut self, settings: &[(u16, u32)]) -> io::Result<()> {
        let mut preface = [0; PREFACE.len()];
        self.stream.read_exact(&mut preface)?;
        assert_eq!(preface, PREFACE);
        self.write(&frames::settings(settings))
    }

    /// Like [`Peer::greet`], until the agent's request.
    pub(super) fn await_request(&mut self, settings: &[(u16, u32)]) -> io::Result<()> {
        self.greet(settings)?;
        while self.read_frame()?.kind != HEADERS {}
        Ok(())
    }

    /// Accepts the agent's call and its Hello, and sends Welcome.
    pub(super) fn welcome(&mut self, welcome: v1::Welcome) -> io::Result<()> {
        self.await_request(&[])?;
        self.write(&frames::response())?;
        let hello = self.next_message()?;
        assert!(matches!(hello, agent_message::Kind::Hello(_)), "{hello:?}");
        self.write(&frames::message(collector_message::Kind::Welcome(welcome)))
    }

    /// Returns the next message of the agent.
    pub(super) fn next_message(&mut self) -> io::Result<agent_message::Kind> {
        loop {
            if let Some(kind) = self.take_message() {
                return Ok(kind);
            }
            let frame = self.read_frame()?;
            if frame.kind == DATA && !frame.payload.is_empty() {
                let length = u32::try_from(frame.payload.len()).unwrap();
                self.received.extend(frame.payload);
                self.write(&window_update(0, length))?;
                self.write(&window_update(STREAM, length))?;
            }
        }
    }

    /// Returns the sequence number of the next flush.
    pub(super) fn next_flush(&mut self) -> io::Result<u64> {
        loop {
            if let agent_message::Kind::Flush(flush) = self.next_message()? {
                self.counts
                    .newest_seq
                    .fetch_max(flush.seq, Ordering::Relaxed);
                return Ok(flush.seq);
            }
        }
    }

    /// The highest sequence number that this or an earlier connection brought; 0 before the first.
    pub(super) fn newest_seq(&self) -> u64 {
        self.counts.newest_seq.load(Ordering::Relaxed)
    }

    /// Whether this is the first, third, … connection.
    pub(super) fn is_odd_connection(&self) -> bool {
        self.counts.connections.load(Ordering::Relaxed) % 2 == 1
    }

    /// Returns the build id of a module that the agent has sampled.
    pub(super) fn next_build_id(&mut self) -> io::Result<String> {
        loop {
            if let agent_message::Kind::Dictionary(dictionary) = self.next_message()? {
                let build_ids = dictionary.frames.iter().map(|frame| frame.build_id);
                let strings = build_ids.filter_map(|index| {
                    let index = index.checked_sub(dictionary.string_base)?;
                    dictionary
                        .strings
                        .get(index as usize)
                        .filter(|text| !text.is_empty())
                });
                if let Some(build_id) = strings.into_iter().next() {
                    return Ok(build_id.clone());
                }
            }
        }
    }

    /// Returns the next piece of symbols.
    pub(super) fn next_piece(&mut self) -> io::Result<v1::SymbolPiece> {
        loop {
            if let agent_message::Kind::SymbolPiece(piece) = self.next_message()? {
                return Ok(piece);
            }
        }
    }

    fn take_message(&mut self) -> Option<agent_message::Kind> {
        let prefix = self.received.first_chunk::<GRPC_PREFIX_BYTES>()?;
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let end = GRPC_PREFIX_BYTES + length;
        let body = self.received.get(GRPC_PREFIX_BYTES..end)?;
        let mut kind = v1::AgentMessage::decode(body).unwrap().kind.unwrap();
        self.received.drain(..end);
        if let agent_message::Kind::Flush(flush) = &mut kind {
            self.codec.decode(flush);
        }
        Some(kind)
    }

    /// Reads one frame; acknowledges settings and pings.
    fn read_frame(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let [kind, flags] = [head[3], head[4]];
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload)?;
        if matches!(kind, SETTINGS | PING) {
            if flags == ACK {
                self.counts.replies.fetch_add(1, Ordering::Relaxed);
            } else {
                let acked = if kind == PING { &payload[..] } else { &[] };
                self.write(&frame(kind, ACK, 0, acked))?;
            }
        }
        if kind == WINDOW_UPDATE && stream == STREAM {
            let increment = u32::from_be_bytes(payload[..4].try_into().unwrap());
            self.room.fetch_add(i64::from(increment), Ordering::Relaxed);
        }
        Ok(Frame { kind, payload })
    }
}
