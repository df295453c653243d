//! TLS options of a client: the collectors that it trusts, and how it identifies itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use profiler_core::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

use crate::explain::WrongFingerprint;
use crate::files::{CertificateFiles, FileError, certificates, private_key};
use crate::{TlsError, fingerprint, provider};

/// The environment variable with a file of authorities.
pub const CA_VARIABLE: &str = "EMBERLINE_CA_FILE";

/// The environment variable with the file of the client's certificate.
pub const CERT_VARIABLE: &str = "EMBERLINE_CERT_FILE";

/// The environment variable with the file of the certificate's key.
pub const KEY_VARIABLE: &str = "EMBERLINE_KEY_FILE";

/// How a client connects by TLS.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClientOptions {
    /// The only certificate that is accepted, whatever its names, dates and authority.
    pub pin: Option<Fingerprint>,
    /// A file of authorities, instead of the system's. Not used with a pin.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate.
    pub certificate: Option<CertificateFiles>,
}

impl ClientOptions {
    /// Options from the environment: `variable` returns the value of a variable.
    ///
    /// # Errors
    /// [`TlsError::Half`] if only one of certificate and key is set.
    pub fn from_environment(
        pin: Option<Fingerprint>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<ClientOptions, TlsError> {
        let path = |name| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let certificate = match (path(CERT_VARIABLE), path(KEY_VARIABLE)) {
            (Some(cert), Some(key)) => Some(CertificateFiles { cert, key }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(TlsError::Half {
                    given: CERT_VARIABLE,
                    missing: KEY_VARIABLE,
                });
            }
            (None, Some(_)) => {
                return Err(TlsError::Half {
                    given: KEY_VARIABLE,
                    missing: CERT_VARIABLE,
                });
            }
        };
        Ok(ClientOptions {
            pin,
            ca_file: path(CA_VARIABLE),
            certificate,
        })
    }

    /// Reads the files, and returns settings for connections with one of these protocols.
    ///
    /// # Errors
    /// [`TlsError`] if a file cannot be used, or the system has no authorities.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsError> {
        let provider = provider();
        let verifier = self.verifier(&provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let chain = certificates(&files.cert)?;
                let key = private_key(&files.key)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|source| TlsError::Pair {
                        files: files.clone(),
                        source,
                    })?
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Connections live for hours; a cache of sessions would only take memory.
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        if let Some(pin) = self.pin {
            return Ok(Arc::new(PinVerifier {
                pin,
                provider: provider.clone(),
            }));
        }
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            Some(path) => {
                let (added, _) = roots.add_parsable_certificates(certificates(path)?);
                if added == 0 {
                    let kind = "certificate of an authority";
                    return Err(FileError::Missing {
                        path: path.clone(),
                        kind,
                    }
                    .into());
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err(TlsError::NoAuthorities);
                }
            }
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        // Fails without roots only.
        Ok(verifier.map_err(|_| TlsError::NoAuthorities)?)
    }
}

/// Accepts one certificate.
#[derive(Debug)]
struct PinVerifier {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = fingerprint(end_entity);
        if seen == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongFingerprint {
            expected: self.pin,
            seen,
        };
        Err(CertificateError::Other(OtherError(Arc::new(wrong))).into())
    }

    // The signature shows that the peer has the certificate's key.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_from_the_environment() {
        assert_eq!(options(&[]).unwrap(), ClientOptions::default());
        let all = options(&[CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE]).unwrap();
        assert_eq!(all.ca_file, Some("/EMBERLINE_CA_FILE".into()));
        let files = all.certificate.unwrap();
        assert_eq!(files.cert, PathBuf::from("/EMBERLINE_CERT_FILE"));
        assert_eq!(files.key, PathBuf::from("/EMBERLINE_KEY_FILE"));
        for (set, expected) in [
            (
                CERT_VARIABLE,
                "EMBERLINE_CERT_FILE is set, but EMBERLINE_KEY_FILE is not",
            ),
            (
                KEY_VARIABLE,
                "EMBERLINE_KEY_FILE is set, but EMBERLINE_CERT_FILE is not",
            ),
        ] {
            let error = options(&[set]).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    fn options(set: &[&str]) -> Result<ClientOptions, TlsError> {
        ClientOptions::from_environment(None, |name: &str| {
            set.contains(&name)
                .then(|| OsString::from(format!("/{name}")))
        })
    }

    #[test]
    fn a_file_without_an_authority_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, "nothing").unwrap();
        let options = ClientOptions {
            ca_file: Some(path),
            ..ClientOptions::default()
        };
        let error = options.config(&[b"h2"]).unwrap_err().to_string();
        assert!(error.contains("has no certificate in PEM form"), "{error}");
    }
}
