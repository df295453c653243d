//! TLS over the socket. rustls encrypts on this thread and never waits: like plain bytes, the stream
//! is polled again when the socket can be read or written.

use profiler_core::Fingerprint;
use system::environment;
use tls::{ClientOptions, TlsError};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::call::CallError;
use super::socket::SocketStream;

/// Port of an https URL without one.
pub(super) const HTTPS_PORT: u16 = 443;

/// How TLS is spoken with the collector.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    options: ClientOptions,
}

impl Tls {
    /// Options from the environment. Files are read on the agent's own thread, for each connection, so
    /// that renewed certificates are found.
    ///
    /// # Errors
    /// The problem with the variables.
    pub(super) fn new(pin: Option<Fingerprint>) -> Result<Tls, String> {
        let options = ClientOptions::from_environment(pin, environment::variable);
        options
            .map(|options| Tls { options })
            .map_err(|error| error.to_string())
    }

    /// # Errors
    /// Why the collector cannot be trusted, or does not trust this worker.
    pub(super) async fn handshake(
        &self,
        host: &str,
        socket: SocketStream,
    ) -> Result<TlsStream<SocketStream>, CallError> {
        let failed = |error: TlsError| CallError::Tls(error.to_string());
        let config = self.options.config(&[b"h2"]).map_err(failed)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            failed(TlsError::Host {
                host: host.to_owned(),
            })
        })?;
        let connected = TlsConnector::from(config).connect(name, socket).await;
        connected.map_err(|error| match tls::explain(&error) {
            Some(reason) => CallError::Tls(reason),
            None => CallError::Connect(error),
        })
    }
}
