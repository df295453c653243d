//! Connections between workers, interrupted when the fleet stops or the peer falls silent.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use emberline_agent::{Direction, Phase};

use super::context::Context;
use crate::wire::{Message, WireError, await_frame, decode_body, encode_frame, read_body};

/// How often a blocked read or write checks the stop flag.
const STOP_POLL: Duration = Duration::from_millis(50);
/// A silent peer counts as lost after this time; no worker needs it, even on a crowded machine.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Time for the first message of an accepted connection; a silent stranger delays us no longer.
const HELLO_WAIT: Duration = Duration::from_secs(2);
/// Peer of a connection that has not identified itself.
const UNKNOWN_PEER: usize = usize::MAX;
/// Time for all workers of a group to connect; all have bound their sockets before the first
/// connects.
const JOIN_WAIT: Duration = Duration::from_secs(10);

/// A connection to one other worker.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: usize,
    stream: TcpStream,
    context: Context,
    patience: Duration,
    /// Bytes in both directions.
    bytes: u64,
}

impl Link {
    /// Connects to `peer`.
    pub(crate) fn dial(context: &Context, peer: usize, address: SocketAddr) -> io::Result<Self> {
        Self::new(
            context,
            peer,
            TcpStream::connect_timeout(&address, JOIN_WAIT)?,
        )
    }

    fn new(context: &Context, peer: usize, stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STOP_POLL))?;
        stream.set_write_timeout(Some(STOP_POLL))?;
        Ok(Self {
            peer,
            stream,
            context: context.clone(),
            patience: SILENCE_MAX,
            bytes: 0,
        })
    }

    /// Sends a message. A phase covers encoding; another phase and a transfer cover sending.
    ///
    /// # Errors
    /// [`WireError::TooLong`] before a byte is written; otherwise the connection's error.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), WireError> {
        let frame = {
            let _phase = self.context.phase(Phase::Serialize);
            encode_frame(message)?
        };
        self.send_bytes(&frame, message.kind_name())
    }

    /// Sends bytes without framing.
    ///
    /// # Errors
    /// The connection's error.
    pub(crate) fn send_bytes(
        &mut self,
        bytes: &[u8],
        type_name: &'static str,
    ) -> Result<(), WireError> {
        let from = self.bytes;
        self.transfer(Direction::Outgoing, type_name, from, |link| {
            link.write_all(bytes).map_err(WireError::Io)
        })
    }

    /// Waits for a message. The transfer starts with its first bytes; the time before is the
    /// peer's.
    ///
    /// # Errors
    /// [`WireError`], [`WireError::Closed`] if the peer ended the connection between two frames.
    pub(crate) fn receive(&mut self) -> Result<Message, WireError> {
        let from = self.bytes;
        let prefix = await_frame(self)?;
        let body = self.transfer(Direction::Incoming, "message", from, |link| {
            read_body(prefix, link)
        })?;
        let _phase = self.context.phase(Phase::Deserialize);
        decode_body(&body)
    }

    /// Bytes sent and received so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A transfer of all bytes sent and received since `from`.
    pub(crate) fn transfer<T>(
        &mut self,
        direction: Direction,
        type_name: &'static str,
        from: u64,
        work: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let _phase = self.context.phase(Phase::Transfer);
        let peer = match self.peer {
            UNKNOWN_PEER => "[unknown]".to_owned(),
            peer => format!("worker-{peer}"),
        };
        let mut transfer = emberline_agent::transfer(direction, peer)
            .type_name(type_name)
            .start();
        let done = work(self);
        transfer.add_bytes(self.bytes - from);
        if let Err(cause) = &done {
            transfer.fail(cause);
        }
        done
    }

    /// Repeats a socket operation that timed out, until the stop or the final timeout.
    fn patiently(
        &mut self,
        mut operation: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            match operation(&mut self.stream) {
                Err(error) if is_retryable(error.kind()) => {}
                result => return result,
            }
            if self.context.stop.is_set() {
                return Err(io::Error::new(
                    ErrorKind::ConnectionAborted,
                    "asked to stop",
                ));
            }
            if begun.elapsed() > self.patience {
                return Err(io::Error::new(ErrorKind::TimedOut, "silent for too long"));
            }
        }
    }
}

fn is_retryable(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.patiently(|stream| stream.read(buffer))?;
        self.context.recorder.received(bytes);
        self.bytes += bytes as u64;
        Ok(bytes)
    }
}

impl Write for Link {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let bytes = self.patiently(|stream| stream.write(buffer))?;
        self.context.recorder.sent(bytes);
        self.bytes += bytes as u64;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects to the peers in `connected` and accepts those in `awaited`; returns the links in the
/// order of their peers. A peer that does not connect is logged and left out.
pub(crate) fn join(
    context: &Context,
    listener: &TcpListener,
    connected: &[(usize, SocketAddr)],
    awaited: impl IntoIterator<Item = usize>,
) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    for &(peer, address) in connected {
        match introduce(context, peer, address) {
            Ok(link) => links.push(link),
            Err(error) => context.note(format!("worker-{peer} can't be reached: {error}")),
        }
    }
    let mut awaited: BTreeSet<usize> = awaited.into_iter().collect();
    listener.set_nonblocking(true)?;
    let begun = Instant::now();
    while !awaited.is_empty() && begun.elapsed() < JOIN_WAIT && !context.stop.is_set() {
        match listener.accept() {
            Ok((stream, _)) => links.extend(admit(context, stream, &mut awaited)?),
            Err(error) if is_retryable(error.kind()) => {
                context.stop.wait_for(STOP_POLL);
            }
            Err(error) => return Err(error),
        }
    }
    if !context.stop.is_set() {
        awaited
            .iter()
            .for_each(|peer| context.note(format!("worker-{peer} did not dial in")));
    }
    links.sort_by_key(|link| link.peer);
    Ok(links)
}

fn introduce(context: &Context, peer: usize, address: SocketAddr) -> Result<Link, WireError> {
    let mut link = Link::dial(context, peer, address).map_err(WireError::Io)?;
    link.send(&Message::Hello {
        worker: context.index as u32,
    })?;
    Ok(link)
}

/// Accepts the connection if an awaited peer is at its other end: any local program can connect.
fn admit(
    context: &Context,
    stream: TcpStream,
    awaited: &mut BTreeSet<usize>,
) -> io::Result<Option<Link>> {
    let mut link = Link::new(context, UNKNOWN_PEER, stream)?;
    link.patience = HELLO_WAIT;
    match link.receive() {
        Ok(Message::Hello { worker }) if awaited.remove(&(worker as usize)) => {
            let peer = worker as usize;
            Ok(Some(Link {
                peer,
                patience: SILENCE_MAX,
                ..link
            }))
        }
        _ => Ok(None),
    }
}

/// Both ends of one loopback connection, for tests.
#[cfg(test)]
pub(crate) fn pair(left: &Context, right: &Context) -> (Link, Link) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = Link::dial(left, right.index, listener.local_addr().unwrap()).unwrap();
    let accepted = Link::new(right, left.index, listener.accept().unwrap().0).unwrap();
    (connected, accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strangers and workers of another group are rejected; the awaited worker is admitted after
    /// them.
    #[test]
    fn only_awaited_workers_are_admitted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let context = Context::new(0, 0);
        let other = Context::new(9, 0);
        let mut stranger = TcpStream::connect(address).unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _uninvited = introduce(&other, 0, address).unwrap();
        let _expected = introduce(&Context::new(1, 0), 0, address).unwrap();
        let links = join(&context, &listener, &[], [1]).unwrap();
        assert_eq!(links.iter().map(|link| link.peer).collect::<Vec<_>>(), [1]);
    }

    /// A stop ends a read that would wait forever; a closed connection is not a stop.
    #[test]
    fn a_stop_ends_a_blocked_read() {
        let left = Context::new(0, 0);
        let right = Context::new(1, 0);
        let (mut reading, writing) = pair(&left, &right);
        drop(writing);
        assert_eq!(reading.read(&mut [0; 8]).unwrap(), 0);
        let (mut reading, _open) = pair(&left, &right);
        left.stop.set();
        let error = reading.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    }
}
