//! Errors of TLS in words that say what helps.

use std::fmt;
use std::io;

use profiler_core::Fingerprint;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::client::CA_VARIABLE;

/// The collector's certificate is not the pinned one.
#[derive(Debug)]
pub(crate) struct WrongFingerprint {
    pub(crate) expected: Fingerprint,
    pub(crate) seen: Fingerprint,
}

impl fmt::Display for WrongFingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongFingerprint { expected, seen } = self;
        write!(
            formatter,
            "the collector's certificate has the fingerprint {seen}, but the URL expects {expected}; \
             if the certificate was replaced on purpose, change the URL, otherwise another server \
             answers"
        )
    }
}

impl std::error::Error for WrongFingerprint {}

/// Explains an error of a connection if it is one of TLS: what is wrong, and what helps.
#[must_use]
pub fn explain(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(reason) => certificate(reason),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the port does not speak TLS; use http://".to_owned()
        }
        Error::AlertReceived(alert) => received(*alert),
        Error::NoApplicationProtocol => {
            "the server speaks TLS, but is not an Emberline collector".to_owned()
        }
        other => other.to_string(),
    })
}

fn certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::Other(other) => other.0.to_string(),
        CertificateError::Expired => "the collector's certificate has expired; renew it".to_owned(),
        CertificateError::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            format!("the collector's certificate expired {days} days ago; renew it")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the collector's certificate is not valid yet; check the clocks of both machines"
                .to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "the collector's certificate is not for {}; it is for {}",
            expected.to_str(),
            presented.join(", ")
        ),
        CertificateError::UnknownIssuer => format!(
            "the collector's certificate is signed by no authority that this system knows; set \
             {CA_VARIABLE} to the file of its authority, or add its fingerprint to the URL: \
             https://HOST:PORT#sha256=…"
        ),
        other => format!("the collector's certificate is invalid: {other}"),
    }
}

fn received(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    match alert {
        Alert::CertificateRequired
        | Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateUnknown => format!(
            "the collector rejects the client's certificate ({alert:?}); EMBERLINE_CERT_FILE and \
             EMBERLINE_KEY_FILE must name one that its --client-ca has signed"
        ),
        Alert::NoApplicationProtocol => {
            "the server speaks TLS, but is not an Emberline collector".to_owned()
        }
        other => format!("the server ended the TLS handshake ({other:?})"),
    }
}
