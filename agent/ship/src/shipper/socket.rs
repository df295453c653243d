//! The socket to the collector: the only descriptor that the shipper keeps.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::allowance::Allowance;
use super::network::Network as _;
use super::reactor::Reactor;
use system::file::CheckedFile;
use system::socket;

/// Timeout of a connection attempt.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that the collector may send at once, and per second after that. A collector sends a few
/// hundred bytes a second. Faster messages wait in the system's buffers, and then at its side.
const RECEIVE_BYTES_MAX: u32 = 64 << 10;
const RECEIVE_BYTES_PER_SECOND: u32 = 16 << 10;

/// The least that one read counts for: bytes that come one by one wake the thread each time.
const READ_BYTES_MIN: u32 = 512;

/// A connected socket that does not block. Each use checks that the descriptor is still this socket,
/// if the program could have closed it.
#[derive(Debug)]
pub(super) struct Socket {
    file: CheckedFile,
    /// The last attempt to read found nothing. Otherwise nobody reads at present, and waiting for data
    /// that is there already would be a busy loop.
    wants_data: Cell<bool>,
    /// The last attempt to write found no room.
    wants_room: Cell<bool>,
    receiving: RefCell<Allowance>,
    last_received: Cell<Instant>,
}

impl Socket {
    /// Connects to the first address of `host` that answers.
    ///
    /// # Errors
    /// If the name has no address, or none of them answers within [`CONNECT_TIMEOUT`].
    pub(super) async fn connect(
        reactor: &Reactor,
        host: &str,
        port: u16,
    ) -> io::Result<Rc<Socket>> {
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        // Waits for the name service, like nothing else on this thread. The end of the agent does
        // not wait for this thread for longer than its own limit.
        for address in (host, port).to_socket_addrs()? {
            match Socket::connect_to(reactor, &address).await {
                Ok(socket) => return Ok(socket),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    async fn connect_to(reactor: &Reactor, address: &SocketAddr) -> io::Result<Rc<Socket>> {
        Socket::connected(reactor, socket::connect(address)?).await
    }

    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// If nobody listens there, or this user may not use it.
    pub(super) async fn connect_unix(reactor: &Reactor, path: &Path) -> io::Result<Rc<Socket>> {
        Socket::connected(reactor, socket::connect_unix(path)?).await
    }

    /// Waits until the socket is connected.
    async fn connected(reactor: &Reactor, file: CheckedFile) -> io::Result<Rc<Socket>> {
        let socket = Rc::new(Socket::new(file));
        let _watched = reactor.watch(socket.clone());
        if !reactor
            .wait_until(CONNECT_TIMEOUT, || {
                socket.file().map_or(true, socket::is_writable)
            })
            .await
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket::take_error(socket.file()?)?;
        socket.wants_room.set(false);
        Ok(socket)
    }

    /// A socket that is about to be connected.
    fn new(file: CheckedFile) -> Socket {
        let now = Instant::now();
        let receiving = Allowance::new(RECEIVE_BYTES_MAX, RECEIVE_BYTES_PER_SECOND, now);
        Socket {
            file,
            wants_data: Cell::new(false),
            wants_room: Cell::new(true),
            receiving: RefCell::new(receiving),
            last_received: Cell::new(now),
        }
    }

    /// A socket that is connected already.
    #[cfg(emberline_fuzzing)]
    pub(super) fn of(file: File) -> Option<Rc<Socket>> {
        let socket = Socket::new(CheckedFile::new(file)?);
        socket.wants_room.set(false);
        Some(Rc::new(socket))
    }

    /// Whether the last attempt to read or write failed because the socket was not ready for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.wants_data.get() || self.wants_room.get()
    }

    /// Waits until the socket is ready for what failed.
    pub(super) fn wait(&self, limit: Duration) {
        // Without a file the next use fails, and ends the connection.
        if let Ok(file) = self.file() {
            socket::wait(file, self.wants_data.get(), self.wants_room.get(), limit);
        }
    }

    /// Whether the program has closed the descriptor.
    pub(super) fn is_stolen(&self) -> bool {
        self.file().is_err()
    }

    /// When the last bytes came.
    pub(super) fn last_received(&self) -> Instant {
        self.last_received.get()
    }

    fn file(&self) -> io::Result<&File> {
        self.file.if_same().ok_or_else(stolen)
    }
}

fn stolen() -> io::Error {
    io::Error::other("the program has closed the agent's descriptor")
}

/// The socket as `h2` uses it.
#[derive(Debug)]
pub(super) struct SocketStream(pub(super) Rc<Socket>);

impl AsyncRead for SocketStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let now = Instant::now();
        let mut receiving = self.0.receiving.borrow_mut();
        let left = receiving.left(now);
        self.0.wants_data.set(false);
        if left < READ_BYTES_MIN {
            // The reactor polls again after a while.
            return Poll::Pending;
        }
        let unfilled = buffer.initialize_unfilled_to(buffer.remaining().min(left as usize));
        match socket::receive(self.0.file()?, unfilled) {
            Ok(received) => {
                buffer.advance(received);
                receiving.spend(READ_BYTES_MIN.max(received as u32));
                self.0.last_received.set(now);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.0.wants_data.set(true);
                // The reactor polls again when there is something to read.
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for SocketStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = socket::send(self.0.file()?, bytes);
        let is_full = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.0.wants_room.set(is_full);
        // The reactor polls again when there is room.
        if is_full {
            Poll::Pending
        } else {
            Poll::Ready(sent)
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
