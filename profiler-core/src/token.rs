//! Tokens, with which agents and readers identify themselves to a collector.
//!
//! The text of a token is `emb_<id>_<secret>`: the id has 8 hexadecimal digits and is no secret, the
//! secret has 64 (256 bits).

use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// Largest file that is read as one token: a token and some white space.
pub const TOKEN_FILE_BYTES_MAX: u64 = 1_024;

const PREFIX: &str = "emb_";
const ID_DIGITS: usize = 8;

/// The public part of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u32);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({self})")
    }
}

impl FromStr for TokenId {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<TokenId, TokenError> {
        if text.len() != ID_DIGITS || !is_lower_hex(text) {
            return Err(TokenError);
        }
        u32::from_str_radix(text, 16)
            .map(TokenId)
            .map_err(|_| TokenError)
    }
}

/// The text is not a token. It is not part of the error, because it may be one with a typing mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "not a token; a token starts with `emb_`, then 8 digits, `_` and 64 digits, 0 to 9 and a to f"
)]
pub struct TokenError;

/// A whole token, as its holder keeps it. Its text is overwritten when it is dropped, and `Debug` does
/// not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: TokenId,
    text: Zeroizing<String>,
}

impl Token {
    /// The token with this id and secret.
    #[must_use]
    pub fn new(id: TokenId, secret: &[u8; SECRET_BYTES]) -> Token {
        // Reserved, because growing would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(TEXT_BYTES));
        text.push_str(PREFIX);
        push_hex(&mut text, &id.0.to_be_bytes());
        text.push('_');
        push_hex(&mut text, secret);
        Token { id, text }
    }

    /// The token in a text; white space around it is ignored.
    ///
    /// # Errors
    /// [`TokenError`] if it is none.
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        let text = text.trim_ascii();
        let (id, secret) = text
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('_'))
            .ok_or(TokenError)?;
        if secret.len() != 2 * SECRET_BYTES || !is_lower_hex(secret) {
            return Err(TokenError);
        }
        Ok(Token {
            id: id.parse()?,
            text: Zeroizing::new(text.to_owned()),
        })
    }

    /// The public part.
    #[must_use]
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The text, which opens the collector to every reader.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The value of the header `authorization`.
    #[must_use]
    pub fn bearer(&self) -> Zeroizing<String> {
        let mut value = Zeroizing::new(String::with_capacity(BEARER.len() + TEXT_BYTES));
        value.push_str(BEARER);
        value.push_str(&self.text);
        value
    }

    /// The token in the value of the header `authorization`.
    ///
    /// # Errors
    /// [`TokenError`] if it has none.
    pub fn parse_bearer(value: &str) -> Result<Token, TokenError> {
        let (scheme, text) = value.split_at_checked(BEARER.len()).ok_or(TokenError)?;
        if !scheme.eq_ignore_ascii_case(BEARER) {
            return Err(TokenError);
        }
        Token::parse(text)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

const BEARER: &str = "Bearer ";
const TEXT_BYTES: usize = PREFIX.len() + ID_DIGITS + 1 + 2 * SECRET_BYTES;

fn is_lower_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).expect("four bits are one digit"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "emb_00c0ffee_abababababababababababababababababababababababababababababababab";

    #[test]
    fn a_token_is_parsed_as_it_is_written() {
        let token = Token::new(TokenId(0x00c0_ffee), &[0xab; SECRET_BYTES]);
        assert_eq!(token.expose(), TEXT);
        assert_eq!(token.text.capacity(), TEXT.len());
        let parsed = Token::parse(&format!(" {TEXT}\n")).unwrap();
        assert_eq!(parsed, token);
        assert_eq!(parsed.id().to_string(), "00c0ffee");
        assert_eq!(Token::parse_bearer(&token.bearer()), Ok(token.clone()));
        assert_eq!(Token::parse_bearer(&format!("bearer {TEXT}")), Ok(token));
    }

    #[test]
    fn other_texts_are_rejected_without_being_repeated() {
        let cut = &TEXT[..TEXT.len() - 1];
        let upper = TEXT.to_uppercase();
        let long_id = TEXT.replacen("00c0ffee", "00c0ffee0", 1);
        let signed = TEXT.replacen("00c0ffee", "+0c0ffee", 1);
        for text in [
            "",
            "emb_",
            "emb__",
            cut,
            &upper,
            &long_id,
            &signed,
            "emb_é_é",
        ] {
            let error = Token::parse(text).unwrap_err().to_string();
            assert!(text.len() < 9 || !error.contains(text), "{error}");
        }
        for value in ["", "Bearer", "Basic abc", TEXT, "Béarer x"] {
            assert_eq!(Token::parse_bearer(value), Err(TokenError), "{value}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", Token::parse(TEXT).unwrap());
        assert_eq!(shown, "Token { id: TokenId(00c0ffee), .. }");
    }
}
