//! The collector's address, and the connection to it.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::uri::{Authority, Scheme};
use profiler_core::Endpoint;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::call::CallError;
use super::reactor::Reactor;
use super::socket::{Socket, SocketStream};

/// Port of a plain URL without one.
const HTTP_PORT: u16 = 80;

/// Host of requests over a Unix socket, which has none.
const SOCKET_HOST: &str = "localhost";

/// Where the collector listens.
#[derive(Clone, Debug)]
pub(super) struct Target {
    authority: Authority,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain,
    #[cfg(feature = "tls")]
    Tls(super::tls::Tls),
    Unix(PathBuf),
}

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// The problem with the URL, or with the environment variables of TLS.
    pub(super) fn parse(url: &str) -> Result<Target, String> {
        let endpoint = Endpoint::parse(url).map_err(|error| error.to_string())?;
        let (authority, kind) = match endpoint {
            Endpoint::Plain { authority } => (authority, Kind::Plain),
            #[cfg(feature = "tls")]
            Endpoint::Tls { authority, pin } => (authority, Kind::Tls(super::tls::Tls::new(pin)?)),
            #[cfg(not(feature = "tls"))]
            Endpoint::Tls { .. } => {
                return Err("this agent was built without its feature `tls`".to_owned());
            }
            Endpoint::Unix { path } => (SOCKET_HOST.to_owned(), Kind::Unix(path)),
        };
        let authority = authority
            .parse::<Authority>()
            .map_err(|error| error.to_string())?;
        Ok(Target { authority, kind })
    }

    /// Host and port, for requests.
    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) fn scheme(&self) -> Scheme {
        match self.kind {
            #[cfg(feature = "tls")]
            Kind::Tls(_) => Scheme::HTTPS,
            _ => Scheme::HTTP,
        }
    }

    /// Connects the socket.
    ///
    /// # Errors
    /// Why nobody answers.
    pub(super) async fn connect(&self, reactor: &Reactor) -> io::Result<Rc<Socket>> {
        let port_default = match &self.kind {
            Kind::Unix(path) => return Socket::connect_unix(reactor, path).await,
            #[cfg(feature = "tls")]
            Kind::Tls(_) => super::tls::HTTPS_PORT,
            Kind::Plain => HTTP_PORT,
        };
        let port = self.authority.port_u16().unwrap_or(port_default);
        Socket::connect(reactor, self.host(), port).await
    }

    /// Returns the bytes over a connected socket, after the handshake of TLS.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn open(&self, socket: Rc<Socket>) -> Result<ByteStream, CallError> {
        let socket = SocketStream(socket);
        match &self.kind {
            #[cfg(feature = "tls")]
            Kind::Tls(tls) => Ok(ByteStream::Tls(Box::new(
                tls.handshake(self.host(), socket).await?,
            ))),
            _ => Ok(ByteStream::Plain(socket)),
        }
    }

    fn host(&self) -> &str {
        self.authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
    }
}

/// The bytes of a connection, as `h2` uses them.
#[derive(Debug)]
pub(super) enum ByteStream {
    Plain(SocketStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<SocketStream>>),
}

/// Calls a method of the inner stream.
macro_rules! inner {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            ByteStream::Plain($stream) => $call,
            #[cfg(feature = "tls")]
            ByteStream::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for ByteStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        inner!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
