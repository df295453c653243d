//! Connections to the agents' port of a collector: TCP, TLS or a Unix socket.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use profiler_core::Endpoint;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tls::ClientOptions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::body::Body;

use crate::client::{ClientError, with_scheme};

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Requests over a Unix socket are addressed to this host.
const SOCKET_HOST: &str = "localhost";

/// Sends requests over one connection.
pub(super) type Sender = hyper::client::conn::http2::SendRequest<Body>;

/// Where a collector listens.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: String,
    /// Host and port, for requests.
    pub(super) authority: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain,
    Tls(Arc<ClientConfig>),
    Unix(PathBuf),
}

/// The bytes of a connection.
trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Bytes for T {}

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`ClientError::Url`] if it is no URL of a collector, [`ClientError::Setup`] if TLS cannot be used.
    pub(super) fn parse(url: &str) -> Result<Target, ClientError> {
        let invalid = |reason: String| ClientError::Url {
            url: url.to_owned(),
            reason,
        };
        let endpoint =
            Endpoint::parse(&with_scheme(url)).map_err(|error| invalid(error.to_string()))?;
        let (authority, kind) = match endpoint {
            Endpoint::Plain { authority } => (authority, Kind::Plain),
            Endpoint::Tls { authority, pin } => {
                let options = ClientOptions::from_environment(pin, |name| std::env::var_os(name))?;
                (authority, Kind::Tls(options.config(&[b"h2"])?))
            }
            Endpoint::Unix { path } => (SOCKET_HOST.to_owned(), Kind::Unix(path)),
        };
        Ok(Target {
            url: url.to_owned(),
            authority,
            kind,
        })
    }

    /// The address of requests.
    pub(super) fn origin(&self) -> String {
        let scheme = if matches!(self.kind, Kind::Tls(_)) {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.authority)
    }

    /// Connects. The connection is driven by a task of the runtime.
    ///
    /// # Errors
    /// Why nobody answers.
    pub(super) async fn connect(&self) -> io::Result<Sender> {
        let bytes: Box<dyn Bytes> = match &self.kind {
            Kind::Plain => Box::new(self.connect_tcp(HTTP_PORT).await?),
            Kind::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Kind::Tls(config) => {
                let socket = self.connect_tcp(HTTPS_PORT).await?;
                let host = self.host().to_owned();
                let host = ServerName::try_from(host).map_err(io::Error::other)?;
                Box::new(
                    TlsConnector::from(config.clone())
                        .connect(host, socket)
                        .await?,
                )
            }
        };
        let handshake =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(bytes));
        let (sender, connection) = handshake.await.map_err(io::Error::other)?;
        // Its error is that of the request, too.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    async fn connect_tcp(&self, port_default: u16) -> io::Result<TcpStream> {
        let has_port = self
            .authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let socket = if has_port {
            TcpStream::connect(&self.authority).await?
        } else {
            TcpStream::connect((self.host(), port_default)).await?
        };
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    fn host(&self) -> &str {
        let port = self
            .authority
            .rsplit_once(':')
            .filter(|(_, port)| port.parse::<u16>().is_ok());
        let host = port.map_or(self.authority.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}
