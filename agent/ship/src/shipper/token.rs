//! The token with which the agent identifies itself.
//!
//! A file is read for each attempt to connect, so a rotated token needs no restart.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use profiler_core::Token;
use profiler_core::token::{TOKEN_FILE_BYTES_MAX, TokenError};

/// Where the token is.
#[derive(Clone, Default, Debug)]
pub enum TokenSource {
    /// There is none.
    #[default]
    None,
    /// In the environment, read at the start.
    Environment(Result<Token, TokenError>),
    /// In a file.
    File(PathBuf),
}

/// Why there is no token although one was named.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenReadError {
    #[error("cannot read the token file {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} has no token: {source}", path.display())]
    Content { path: PathBuf, source: TokenError },
    #[error("EMBERLINE_TOKEN has no token: {0}")]
    Environment(TokenError),
}

impl TokenSource {
    /// The present token.
    pub(super) fn read(&self) -> Result<Option<Token>, TokenReadError> {
        match self {
            TokenSource::None => Ok(None),
            TokenSource::Environment(token) => {
                token.clone().map(Some).map_err(TokenReadError::Environment)
            }
            TokenSource::File(path) => read_file(path).map(Some),
        }
    }
}

fn read_file(path: &Path) -> Result<Token, TokenReadError> {
    let text = read_text(path).map_err(|source| TokenReadError::File {
        path: path.to_owned(),
        source,
    })?;
    Token::parse(&text).map_err(|source| TokenReadError::Content {
        path: path.to_owned(),
        source,
    })
}

fn read_text(path: &Path) -> io::Result<zeroize::Zeroizing<String>> {
    // A FIFO without a writer must not block the thread.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    }
    // Reserved, because growing would leave copies of the secret behind.
    let capacity = usize::try_from(TOKEN_FILE_BYTES_MAX).unwrap_or(usize::MAX);
    let mut text = zeroize::Zeroizing::new(String::with_capacity(capacity));
    file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use profiler_core::TokenId;

    use super::*;

    #[test]
    fn a_file_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let source = TokenSource::File(path.clone());
        assert!(matches!(source.read(), Err(TokenReadError::File { .. })));
        for byte in [1, 2] {
            let token = Token::new(TokenId(7), &[byte; 32]);
            std::fs::write(&path, format!("{}\n", token.expose())).unwrap();
            assert_eq!(source.read().unwrap(), Some(token));
        }
        std::fs::write(&path, "secret").unwrap();
        let error = source.read().unwrap_err().to_string();
        assert!(
            error.contains("has no token") && !error.contains("secret"),
            "{error}"
        );
        let folder = TokenSource::File(folder.path().to_owned());
        assert!(matches!(folder.read(), Err(TokenReadError::File { .. })));
    }
}
