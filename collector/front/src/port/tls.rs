//! The collector's side of TLS: its certificate, which may be replaced while it serves, and those of
//! clients.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use profiler_core::Fingerprint;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
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

/// How often the certificate of a connected client is checked again.
const CLIENT_CHECK_EVERY: Duration = Duration::from_secs(30);

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
    /// Checks clients' certificates; `None`: clients have none.
    clients: Option<Arc<dyn ClientCertVerifier>>,
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

    /// Resolves when a client's certificate, with those that it was sent with, would be rejected: it has expired, or an
    /// authority is no longer among the present ones.
    pub(super) async fn rejected(&self, client: &[CertificateDer<'static>]) {
        let mut ticks = interval(CLIENT_CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.admits(client, UnixTime::now()) {
                return;
            }
        }
    }

    fn admits(&self, client: &[CertificateDer<'static>], now: UnixTime) -> bool {
        let verifier = lock(&self.current).clients.clone();
        match (verifier, client) {
            (Some(verifier), [first, others @ ..]) => {
                verifier.verify_client_cert(first, others, now).is_ok()
            }
            _ => false,
        }
    }

    /// Performs the handshake. Returns the client's certificate, followed by those that it was sent with.
    ///
    /// # Errors
    /// Why there is no connection. A client without TLS has received an answer that says so.
    pub(super) async fn accept(
        &self,
        mut stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Vec<CertificateDer<'static>>)> {
        let mut first = [0; 3];
        let length = stream.peek(&mut first).await?;
        if length > 0 && first[0] != HANDSHAKE_RECORD {
            let is_http2 = HTTP2_PREFACE.starts_with(&first[..length]);
            answer_without_tls(&mut stream, is_http2).await?;
            return Err(io::Error::other("plain HTTP on a port for TLS"));
        }
        let config = lock(&self.current).config.clone();
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let client = (stream.get_ref().1.peer_certificates())
            .into_iter()
            .flatten()
            .map(|certificate| certificate.clone().into_owned())
            .collect();
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
    let clients = options.client_ca.as_deref().map(verifier).transpose()?;
    let builder = match &clients {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
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
        clients,
        version,
    })
}

/// Checks clients' certificates by the authorities in a file.
fn verifier(authorities: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in tls::certificates(authorities)? {
        roots.add(authority)?;
    }
    // Readers and browsers may come without one: tokens and roles say what they may do.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider())
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    Ok(verifier)
}

/// The DNS names in a certificate.
pub(super) fn names(certificate: &CertificateDer<'_>) -> CertificateNames {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

    use super::*;

    /// An authority, and its certificate as text.
    fn authority() -> (Issuer<'static, KeyPair>, String) {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        (Issuer::new(params, key), cert.pem())
    }

    #[tokio::test]
    async fn a_connected_client_is_rejected_once_its_certificate_would_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (issuer, authority_text) = authority();
        let own = rcgen::generate_simple_self_signed(["collector".to_owned()]).unwrap();
        fs::write(path("cert.pem"), own.cert.pem()).unwrap();
        fs::write(path("key.pem"), own.signing_key.serialize_pem()).unwrap();
        fs::write(path("ca.pem"), &authority_text).unwrap();
        let certificate = Certificate::load(TlsOptions {
            certificate: CertificateFiles {
                cert: path("cert.pem"),
                key: path("key.pem"),
            },
            client_ca: Some(path("ca.pem")),
        })
        .unwrap();
        let mut params = CertificateParams::new(["worker-1".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &issuer).unwrap();
        let client = [signed.der().clone()];

        let now = UnixTime::now();
        let in_year = |year: u64| Duration::from_secs((year - 1970) * 365 * 86_400);
        assert!(certificate.admits(&client, now));
        assert!(!certificate.admits(&client, UnixTime::since_unix_epoch(in_year(2110))));
        assert!(!certificate.admits(&[], now));

        // Another authority takes the place of the client's.
        fs::write(path("ca.pem"), authority().1).unwrap();
        certificate.reload();
        assert!(!certificate.admits(&client, now));
        certificate.rejected(&client).await;

        // Both count while one replaces the other.
        fs::write(path("ca.pem"), authority().1 + &authority_text).unwrap();
        certificate.reload();
        assert!(certificate.admits(&client, now));
    }
}
