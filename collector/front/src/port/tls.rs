//! The collector's side of TLS: its certificate, which may be replaced while it serves, and those of
//! clients.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use profiler_core::Fingerprint;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tls::{CertificateFiles, TlsError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use base::sync::{Mutex, lock, rank};
use shares::identity::CertificateNames;

/// How often the files are checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Protocols in the order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The first byte of a connection that speaks TLS.
const HANDSHAKE_RECORD: u8 = 22;

/// The first bytes of HTTP/2 without TLS.
const HTTP2_PREFACE: &[u8] = b"PRI";

/// Most bytes that are read from a client that speaks no TLS, so that it receives the answer.
const UNREAD_BYTES_MAX: u64 = 64 << 10;

const USE_HTTPS: &str = "this port speaks TLS: use https:// instead of http://";

/// The files that TLS needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsOptions {
    /// The collector's certificate and key.
    pub certificate: CertificateFiles,
    /// Authorities of the clients' certificates. `None`: clients have none.
    pub client_ca: Option<PathBuf>,
}

/// The present certificate.
#[derive(Debug)]
pub struct Certificate {
    options: TlsOptions,
    current: Mutex<Current, rank::Certificate>,
    names: watch::Sender<CertificateNames>,
}

#[derive(Clone, Debug)]
struct Current {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    names: CertificateNames,
    /// Versions of the files when they were read last, successfully or not.
    version: Vec<Option<FileVersion>>,
}

/// Changes with the content of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified_ns: i64,
    changed_ns: i64,
}

impl FileVersion {
    fn of(path: &Path) -> Option<FileVersion> {
        path.metadata().ok().map(|metadata: Metadata| FileVersion {
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: metadata.mtime_nsec() + metadata.mtime() * 1_000_000_000,
            changed_ns: metadata.ctime_nsec() + metadata.ctime() * 1_000_000_000,
        })
    }
}

impl Certificate {
    pub fn load(options: TlsOptions) -> Result<Certificate, TlsError> {
        let current = read(&options)?;
        let names = watch::Sender::new(current.names.clone());
        Ok(Certificate {
            options,
            current: Mutex::new(current),
            names,
        })
    }

    /// The host names in the present certificate, which browsers accept under these names only.
    pub fn names(&self) -> watch::Receiver<CertificateNames> {
        self.names.subscribe()
    }

    /// The fingerprint of the certificate, which clients pin in their URLs.
    pub fn fingerprint(&self) -> Fingerprint {
        lock(&self.current).fingerprint
    }

    /// Reads the files again. Open connections keep what they have; if the files cannot be used, so do
    /// new ones.
    pub fn reload(&self) {
        match read(&self.options) {
            Ok(new) => {
                tracing::info!(fingerprint = %new.fingerprint, "the certificate was loaded again");
                self.names.send_replace(new.names.clone());
                *lock(&self.current) = new;
            }
            Err(error) => {
                tracing::error!(%error, "the certificate stays as it was");
                lock(&self.current).version = versions(&self.options);
            }
        }
    }

    fn reload_if_changed(&self) {
        let found = versions(&self.options);
        if lock(&self.current).version != found {
            self.reload();
        }
    }

    /// Reloads the files when they change, forever.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut ticks = interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let certificate = self.clone();
            let checked =
                tokio::task::spawn_blocking(move || certificate.reload_if_changed()).await;
            if checked.is_err() {
                tracing::error!("loading the certificate panicked: a bug in Emberline");
            }
        }
    }

    /// Performs the handshake. Returns the names in the client's certificate.
    ///
    /// # Errors
    /// Why there is no connection. A client without TLS has received an answer that says so.
    pub(super) async fn accept(
        &self,
        mut stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Option<CertificateNames>)> {
        let mut first = [0; 3];
        let length = stream.peek(&mut first).await?;
        if length > 0 && first[0] != HANDSHAKE_RECORD {
            let is_http2 = HTTP2_PREFACE.starts_with(&first[..length]);
            answer_without_tls(&mut stream, is_http2).await?;
            return Err(io::Error::other("plain HTTP on a port for TLS"));
        }
        let config = lock(&self.current).config.clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let client = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(names);
        Ok((stream, client))
    }
}

fn versions(options: &TlsOptions) -> Vec<Option<FileVersion>> {
    let CertificateFiles { cert, key } = &options.certificate;
    [Some(cert), Some(key), options.client_ca.as_ref()]
        .into_iter()
        .flatten()
        .map(|path| FileVersion::of(path))
        .collect()
}

fn read(options: &TlsOptions) -> Result<Current, TlsError> {
    // Before they are read, so that a later change is noticed.
    let version = versions(options);
    let files = &options.certificate;
    let chain = tls::certificates(&files.cert)?;
    let key = tls::private_key(&files.key)?;
    let fingerprint = tls::fingerprint(&chain[0]);
    let names = names(&chain[0]);
    let builder = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in tls::certificates(path)? {
                roots.add(authority)?;
            }
            // Readers and browsers may come without one: tokens and roles say what they may do.
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| rustls::Error::General(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|source| TlsError::Pair {
            files: files.clone(),
            source,
        })?;
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Current {
        config: Arc::new(config),
        fingerprint,
        names,
        version,
    })
}

/// The DNS names in a certificate.
fn names(certificate: &CertificateDer<'_>) -> CertificateNames {
    match webpki::EndEntityCert::try_from(certificate) {
        Ok(parsed) => CertificateNames(parsed.valid_dns_names().map(str::to_owned).collect()),
        Err(_) => CertificateNames(Arc::default()),
    }
}

/// Says that the port speaks TLS, in the client's protocol.
async fn answer_without_tls(stream: &mut TcpStream, is_http2: bool) -> io::Result<()> {
    let answer = if is_http2 {
        http2_goodbye()
    } else {
        http1_goodbye()
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    // With unread bytes, closing would take the answer back.
    let mut unread = stream.take(UNREAD_BYTES_MAX);
    tokio::io::copy(&mut unread, &mut tokio::io::sink()).await?;
    Ok(())
}

fn http1_goodbye() -> Vec<u8> {
    let length = USE_HTTPS.len() + 1;
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close";
    format!("{head}\r\ncontent-length: {length}\r\n\r\n{USE_HTTPS}\n").into_bytes()
}

/// Empty settings, and a GOAWAY that says INADEQUATE_SECURITY.
fn http2_goodbye() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    bytes.extend([0, 0, 8 + USE_HTTPS.len() as u8, 7, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 12]);
    bytes.extend(USE_HTTPS.as_bytes());
    bytes
}
