//! The token for a collector: a running demo's, or that of the environment. Command lines are seen by all
//! users of a machine.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use profiler_core::Token;
use profiler_core::token::TOKEN_FILE_BYTES_MAX;
use zeroize::Zeroizing;

use crate::demo_tokens;
use crate::exit::BadInput;

const TOKEN_VARIABLE: &str = "EMBERLINE_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "EMBERLINE_TOKEN_FILE";

/// The token for the collector at `url`: that of this user's demo, if one runs there, because it knows no
/// other; else the token in the file that the environment names, or in the environment itself.
pub(crate) fn token(url: &str) -> Result<Option<Token>, BadInput> {
    if let Some(token) = demo_tokens::find(url) {
        return Ok(Some(token));
    }
    if let Some(path) = variable(TOKEN_FILE_VARIABLE).map(PathBuf::from) {
        let invalid = |error: &dyn std::error::Error| {
            BadInput(format!(
                "{TOKEN_FILE_VARIABLE} names {}: {error}",
                path.display()
            ))
        };
        let read = File::open(&path).and_then(|file| read_token(&file));
        return read.map(Some).map_err(|error| invalid(&error));
    }
    let Some(text) = variable(TOKEN_VARIABLE) else {
        return Ok(None);
    };
    let token = text
        .to_str()
        .ok_or(profiler_core::token::TokenError)
        .and_then(Token::parse);
    token
        .map(Some)
        .map_err(|error| BadInput(format!("{TOKEN_VARIABLE}: {error}")))
}

/// A variable of the environment that is set and not empty.
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Reads a token and leaves no copy of the secret behind.
pub(crate) fn read_token(file: &File) -> io::Result<Token> {
    // Reserved, because growing would leave copies behind.
    let capacity = usize::try_from(TOKEN_FILE_BYTES_MAX).unwrap_or(usize::MAX);
    let mut text = Zeroizing::new(String::with_capacity(capacity));
    file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Token::parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
