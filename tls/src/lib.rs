//! TLS between agents, command line and collector.
//!
//! [`ClientOptions`] says which collectors a client trusts: one pinned certificate, those of the
//! authorities in a file, or else those of the system. The system's authorities, not a list compiled
//! in, because an organization's own authority is installed there, and withdrawn ones are removed
//! there. [`explain`] turns errors into what is wrong and what helps.

mod client;
mod explain;
mod files;

use std::sync::Arc;

use profiler_core::Fingerprint;
use ring::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;

pub use client::{CA_VARIABLE, CERT_VARIABLE, ClientOptions, KEY_VARIABLE};
pub use explain::explain;
pub use files::{CertificateFiles, FileError, PEM_BYTES_MAX, certificates, private_key};

/// The fingerprint of a certificate: the SHA-256 hash of its DER form.
#[must_use]
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
    Fingerprint(bytes)
}

/// The algorithms of all connections.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is missing, too large or invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// Only one of certificate and key is given.
    #[error("{given} is set, but {missing} is not; a client's certificate needs both")]
    Half {
        /// The variable that is set.
        given: &'static str,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// Certificate and key do not work.
    #[error("the certificate in {cert} and the key in {key} cannot be used: {source}", cert = .files.cert.display(), key = .files.key.display())]
    Pair {
        /// Their files.
        files: CertificateFiles,
        /// The reason.
        source: rustls::Error,
    },
    /// The system has no authorities.
    #[error(
        "this system has no certificate authorities; set {CA_VARIABLE} to a file with one, or add the \
         collector's fingerprint to its URL: https://HOST:PORT#sha256=…"
    )]
    NoAuthorities,
    /// The host of the URL cannot be in a certificate.
    #[error("{host:?} is neither a host name nor an IP address")]
    Host {
        /// The host.
        host: String,
    },
    /// TLS itself rejects the settings.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}
