//! Addresses of a collector, as agents and the command line take them.
//!
//! ```text
//! http://HOST:PORT                     plain HTTP
//! https://HOST:PORT                    TLS, with a certificate of a known authority
//! https://HOST:PORT#sha256=FINGERPRINT TLS, with exactly this certificate
//! unix:/PATH                           a Unix socket of this machine
//! ```

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a Unix socket, in bytes: the system's limit without the final 0.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

const PIN_PREFIX: &str = "sha256=";

/// The address of a collector.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Endpoint {
    /// Plain HTTP.
    Plain {
        /// `HOST` or `HOST:PORT`.
        authority: String,
    },
    /// HTTP in TLS.
    Tls {
        /// `HOST` or `HOST:PORT`.
        authority: String,
        /// The only certificate that is accepted; `None`: those of known authorities.
        pin: Option<Fingerprint>,
    },
    /// A Unix socket.
    Unix {
        /// The absolute path of its file.
        path: PathBuf,
    },
}

/// Why a text is not the address of a collector.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The text is empty.
    #[error("empty string")]
    Empty,
    /// The scheme is unknown or missing.
    #[error("it does not start with http://, https:// or unix:/")]
    Scheme,
    /// Nothing follows the scheme.
    #[error("it has no host")]
    NoHost,
    /// It has a user name or a password, which would end up in logs.
    #[error("it contains credentials")]
    Credentials,
    /// The part after the host is not a port.
    #[error("its port is not a number from 1 to 65535")]
    Port,
    /// The path of a Unix socket is relative, or too long for the system.
    #[error(
        "the path of a Unix socket must be absolute, with at most {SOCKET_PATH_BYTES_MAX} bytes"
    )]
    SocketPath,
    /// A fingerprint without TLS.
    #[error("a fingerprint needs https://")]
    PinWithoutTls,
    /// The part after `#` is not a fingerprint.
    #[error("{0}")]
    Pin(#[from] FingerprintError),
}

impl Endpoint {
    /// Parses an address. A path after the host is ignored.
    ///
    /// # Errors
    /// [`EndpointError`] if it has none of the forms of this module.
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        if text.is_empty() {
            return Err(EndpointError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') || path.len() > SOCKET_PATH_BYTES_MAX {
                return Err(EndpointError::SocketPath);
            }
            return Ok(Endpoint::Unix { path: path.into() });
        }
        let (address, fragment) = match text.split_once('#') {
            Some((address, fragment)) => (address, Some(fragment)),
            None => (text, None),
        };
        let pin = fragment.map(str::parse);
        if let Some(rest) = address.strip_prefix("https://") {
            return Ok(Endpoint::Tls {
                authority: authority(rest)?,
                pin: pin.transpose()?,
            });
        }
        let rest = address
            .strip_prefix("http://")
            .ok_or(EndpointError::Scheme)?;
        if pin.is_some() {
            return Err(EndpointError::PinWithoutTls);
        }
        Ok(Endpoint::Plain {
            authority: authority(rest)?,
        })
    }
}

fn authority(rest: &str) -> Result<String, EndpointError> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match &rest[..end] {
        "" => Err(EndpointError::NoHost),
        authority if authority.contains('@') => Err(EndpointError::Credentials),
        authority => {
            check_port(authority)?;
            Ok(authority.to_owned())
        }
    }
}

/// Checks the port of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`, if there is one.
///
/// # Errors
/// [`EndpointError::Port`] if it is not a number from 1 to 65535.
pub fn check_port(authority: &str) -> Result<(), EndpointError> {
    let behind_host = authority
        .rsplit_once(']')
        .map_or(authority, |(_, rest)| rest);
    match behind_host.rsplit_once(':') {
        Some((_, port)) if !port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Err(EndpointError::Port)
        }
        _ => Ok(()),
    }
}

/// The SHA-256 hash of a certificate, written `sha256=` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// A text that is not a fingerprint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a fingerprint is `{PIN_PREFIX}` with 64 hexadecimal digits; `emberline tls self-signed` prints it"
)]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Digits may be in groups with colons, as other programs print them.
    fn from_str(text: &str) -> Result<Fingerprint, FingerprintError> {
        let digits = text
            .strip_prefix(PIN_PREFIX)
            .ok_or(FingerprintError)?
            .replace(':', "");
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(FingerprintError);
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = &digits[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| FingerprintError)?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(PIN_PREFIX)?;
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(authority: &str) -> Endpoint {
        Endpoint::Plain {
            authority: authority.to_owned(),
        }
    }

    fn tls(authority: &str, pin: Option<Fingerprint>) -> Endpoint {
        Endpoint::Tls {
            authority: authority.to_owned(),
            pin,
        }
    }

    #[test]
    fn each_form_is_parsed() {
        let digits = "0123456789abcdef".repeat(4);
        let bytes = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].repeat(4);
        let fingerprint = Fingerprint(bytes.try_into().unwrap());
        let pin = Some(fingerprint);
        let with_colons: Vec<String> = digits
            .to_uppercase()
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8_lossy(pair).into())
            .collect();
        for (text, expected) in [
            ("http://127.0.0.1:4747".to_owned(), plain("127.0.0.1:4747")),
            ("http://[::1]:4747/".to_owned(), plain("[::1]:4747")),
            ("http://host/prefix?x".to_owned(), plain("host")),
            ("https://host:4747".to_owned(), tls("host:4747", None)),
            (
                format!("https://host:4747#sha256={digits}"),
                tls("host:4747", pin),
            ),
            (
                format!("https://host/#sha256={}", with_colons.join(":")),
                tls("host", pin),
            ),
            (
                "unix:/run/e.sock".to_owned(),
                Endpoint::Unix {
                    path: "/run/e.sock".into(),
                },
            ),
            (
                "unix:///run/e.sock".to_owned(),
                Endpoint::Unix {
                    path: "/run/e.sock".into(),
                },
            ),
        ] {
            assert_eq!(Endpoint::parse(&text), Ok(expected), "{text}");
        }
        assert_eq!(fingerprint.to_string(), format!("sha256={digits}"));
    }

    #[test]
    fn anything_else_is_rejected_with_a_reason() {
        let long = format!("unix:/{}", "a".repeat(SOCKET_PATH_BYTES_MAX));
        let digits = "0".repeat(64);
        for (text, expected) in [
            ("", EndpointError::Empty),
            ("127.0.0.1:4747", EndpointError::Scheme),
            ("ftp://host", EndpointError::Scheme),
            ("http://", EndpointError::NoHost),
            ("https:///path", EndpointError::NoHost),
            ("http://me:secret@host", EndpointError::Credentials),
            ("unix:relative", EndpointError::SocketPath),
            ("unix:", EndpointError::SocketPath),
            (&long, EndpointError::SocketPath),
            (
                &format!("http://host#sha256={digits}"),
                EndpointError::PinWithoutTls,
            ),
            (
                &format!("https://host#{digits}"),
                EndpointError::Pin(FingerprintError),
            ),
            (
                &format!("https://host#sha256={digits}0"),
                EndpointError::Pin(FingerprintError),
            ),
            ("http://host:99999", EndpointError::Port),
            ("https://[::1]:65536/", EndpointError::Port),
            ("http://host:0", EndpointError::Port),
            ("http://host:", EndpointError::Port),
            ("http://host:port", EndpointError::Port),
            ("https://host#sha256=", EndpointError::Pin(FingerprintError)),
            (
                &format!("https://host#sha256=é{}", "0".repeat(62)),
                EndpointError::Pin(FingerprintError),
            ),
        ] {
            assert_eq!(Endpoint::parse(text), Err(expected), "{text}");
        }
    }
}
