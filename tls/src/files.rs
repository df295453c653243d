//! Certificates and keys in PEM files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Largest file that is read. The authorities of a whole system take 300 KiB.
pub const PEM_BYTES_MAX: u64 = 4 << 20;

/// The files of a certificate and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// The certificate, followed by those between it and its authority.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why a PEM file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is too large.
    #[error("{} has more than {PEM_BYTES_MAX} bytes", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It lacks what is needed.
    #[error("{} has no {kind} in PEM form (`-----BEGIN …`)", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Kind of the missing item.
        kind: &'static str,
    },
    /// It is damaged.
    #[error("{} is not valid PEM: {source}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: pem::Error,
    },
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(PEM_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(FileError::TooLarge {
            path: path.to_owned(),
        });
    }
    Ok(bytes)
}

/// The certificates in a file, at least one.
///
/// # Errors
/// [`FileError`] if it cannot be read, is damaged or has none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match parsed {
        Ok(certificates) if certificates.is_empty() => Err(FileError::Missing {
            path: path.to_owned(),
            kind: "certificate",
        }),
        Ok(certificates) => Ok(certificates),
        Err(source) => Err(FileError::Invalid {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The first private key in a file.
///
/// # Errors
/// As for [`certificates`].
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|source| match source {
        pem::Error::NoItemsFound => FileError::Missing {
            path: path.to_owned(),
            kind: "private key",
        },
        source => FileError::Invalid {
            path: path.to_owned(),
            source,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &[u8], certificate: &str, key: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.pem");
        std::fs::write(&path, content).unwrap();
        let shown = path.display().to_string();
        let text = |error: FileError| error.to_string().replace(&shown, "FILE");
        assert_eq!(text(certificates(&path).unwrap_err()), certificate);
        assert_eq!(text(private_key(&path).unwrap_err()), key);
    }

    #[test]
    fn files_without_content_are_named() {
        check(
            b"hello",
            "FILE has no certificate in PEM form (`-----BEGIN …`)",
            "FILE has no private key in PEM form (`-----BEGIN …`)",
        );
        let large = "FILE has more than 4194304 bytes";
        check(&vec![b'a'; 5 << 20], large, large);
        let missing = certificates(Path::new("/no/such/file"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            missing,
            "cannot read /no/such/file: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_generated_pair_is_read() {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("both.pem");
        std::fs::write(&path, pair.cert.pem() + &pair.signing_key.serialize_pem()).unwrap();
        assert_eq!(certificates(&path).unwrap(), [pair.cert.der().clone()]);
        assert_eq!(
            private_key(&path).unwrap().secret_der(),
            pair.signing_key.serialize_der()
        );
    }
}
