//! Connections other than plain TCP: TLS with our own choice of certificates, and Unix sockets.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Puts TLS on a connection.
#[derive(Debug)]
pub(super) struct TlsConnector {
    pub(super) config: Arc<ClientConfig>,
    pub(super) host: ServerName<'static>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Stream<StreamOwned<ClientConnection, TransportAdapter>>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        let transport: Box<dyn Transport> = Box::new(transport);
        let mut sock = TransportAdapter::new(transport, details.current_time.clone());
        sock.set_timeout(details.timeout);
        let mut conn = ClientConnection::new(self.config.clone(), self.host.clone())
            .map_err(io::Error::other)?;
        conn.complete_io(&mut sock)?;
        Ok(Some(Stream::new(details, StreamOwned::new(conn, sock))))
    }
}

/// Connects to a Unix socket, whatever the host of the request.
#[derive(Debug)]
pub(super) struct UnixConnector {
    pub(super) path: PathBuf,
}

impl Connector<()> for UnixConnector {
    type Out = Stream<UnixStream>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _chained: Option<()>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        Ok(Some(Stream::new(details, UnixStream::connect(&self.path)?)))
    }
}

/// Operations on a stream that requests need, in addition to reading and writing bytes.
pub(super) trait Connection: Read + Write + Send + Sync + 'static {
    const IS_TLS: bool;

    /// Limits the next read or write.
    fn set_timeout(&mut self, timeout: NextTimeout) -> io::Result<()>;

    /// Whether another request can be sent.
    fn is_open(&mut self) -> bool;
}

impl Connection for StreamOwned<ClientConnection, TransportAdapter> {
    const IS_TLS: bool = true;

    fn set_timeout(&mut self, timeout: NextTimeout) -> io::Result<()> {
        self.get_mut().set_timeout(timeout);
        Ok(())
    }

    fn is_open(&mut self) -> bool {
        self.get_mut().get_mut().is_open()
    }
}

impl Connection for UnixStream {
    const IS_TLS: bool = false;

    fn set_timeout(&mut self, timeout: NextTimeout) -> io::Result<()> {
        let is_limited = !timeout.after.is_not_happening();
        let limit = is_limited.then(|| (*timeout.after).max(Duration::from_millis(1)));
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }

    /// A new connection costs nothing.
    fn is_open(&mut self) -> bool {
        false
    }
}

/// A stream with the buffers of requests and responses.
pub(super) struct Stream<S> {
    buffers: LazyBuffers,
    stream: S,
}

impl<S> Stream<S> {
    fn new(details: &ConnectionDetails, stream: S) -> Stream<S> {
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Stream { buffers, stream }
    }
}

impl<S> std::fmt::Debug for Stream<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Stream")
    }
}

impl<S: Connection> Transport for Stream<S> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.set_timeout(timeout)?;
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.set_timeout(timeout)?;
        let amount = match self.stream.read(self.buffers.input_append_buf()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ureq::Error::Timeout(timeout.reason));
            }
            read => read?,
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.is_open()
    }

    fn is_tls(&self) -> bool {
        S::IS_TLS
    }
}
