//! Tokens as the collector knows them: hashes, roles, expiry.

use std::fmt;
use std::sync::Arc;

use profiler_core::{Timestamp, Token, TokenId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{Role, WorkerPattern};
use shares::QuotaSettings;

/// The SHA-256 of a token's text. A secret of 256 random bits cannot be guessed from it, so nothing
/// slower is needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token.
    #[must_use]
    pub fn of(token: &Token) -> TokenHash {
        TokenHash(Sha256::digest(token.expose().as_bytes()).into())
    }

    fn parse(text: &str) -> Option<TokenHash> {
        let digits = text.as_bytes();
        let mut hash = [0; 32];
        if digits.len() != 2 * hash.len() {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        Some(TokenHash(hash))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(..)")
    }
}

/// A token in the token file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The public part of the token.
    #[serde(with = "as_text")]
    pub id: TokenId,
    /// Role of its holder.
    pub role: Role,
    /// Workers as which an agent may report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerPattern>,
    /// The hash of the token.
    #[serde(with = "hash_text")]
    pub sha256: TokenHash,
    /// When it was created.
    pub created: jiff::Timestamp,
    /// From when on it is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<jiff::Timestamp>,
    /// Its holder and purpose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Its quotas, where they differ from the collector's.
    #[serde(default, skip_serializing_if = "QuotaSettings::is_empty")]
    pub quotas: QuotaSettings,
}

impl TokenRecord {
    /// Whether it is rejected at this time.
    #[must_use]
    pub fn is_expired(&self, now: jiff::Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether an agent may report as this worker.
    #[must_use]
    pub fn covers(&self, worker: &str) -> bool {
        self.workers.iter().any(|pattern| pattern.matches(worker))
    }
}

/// Why a token is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// There is none.
    Missing,
    /// It is unknown, revoked, or its secret is wrong. These are not told apart, so that nobody learns
    /// which tokens exist.
    Invalid,
    /// Its secret is right, but it has expired.
    Expired,
}

impl Denied {
    /// The reason, without what to do about it.
    pub const fn reason(self) -> &'static str {
        match self {
            Denied::Missing => "this collector needs a token",
            Denied::Invalid => "the token is not valid",
            Denied::Expired => "the token has expired",
        }
    }
}

/// All tokens of a collector.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TokenSet(Vec<Arc<TokenRecord>>);

impl TokenSet {
    pub fn new(records: Vec<TokenRecord>) -> TokenSet {
        TokenSet(records.into_iter().map(Arc::new).collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Ids of the tokens that `other` does not have, the oldest first.
    pub fn ids_without<'a>(&'a self, other: &'a TokenSet) -> impl Iterator<Item = TokenId> {
        self.0
            .iter()
            .filter(|record: &&Arc<TokenRecord>| other.get(record.id).is_none())
            .map(|record| record.id)
    }

    /// The record of a token.
    pub fn authenticate(&self, token: &Token, now: Timestamp) -> Result<Arc<TokenRecord>, Denied> {
        let hash = TokenHash::of(token);
        let record = self.get(token.id());
        // Compared even if the id is unknown, so that both take the same time.
        let expected = record.map_or([0; 32], |record| record.sha256.0);
        let is_right = bool::from(hash.0.ct_eq(&expected));
        match record {
            Some(record) if is_right => valid(record, now),
            _ => Err(Denied::Invalid),
        }
    }

    /// The record of an id whose holder was authenticated before.
    pub fn still_valid(&self, id: TokenId, now: Timestamp) -> Result<Arc<TokenRecord>, Denied> {
        self.get(id)
            .map_or(Err(Denied::Invalid), |record| valid(record, now))
    }

    fn get(&self, id: TokenId) -> Option<&Arc<TokenRecord>> {
        self.0.iter().find(|record| record.id == id)
    }
}

fn valid(record: &Arc<TokenRecord>, now: Timestamp) -> Result<Arc<TokenRecord>, Denied> {
    let now = jiff::Timestamp::from_nanosecond(now.unix_ns().into());
    if now.is_ok_and(|now| !record.is_expired(now)) {
        Ok(record.clone())
    } else {
        Err(Denied::Expired)
    }
}

mod as_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(id: &TokenId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TokenId, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|_| serde::de::Error::custom("an id has 8 hexadecimal digits"))
    }
}

mod hash_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(hash: &TokenHash, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(hash)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TokenHash, D::Error> {
        let text = String::deserialize(from)?;
        TokenHash::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("a hash has 64 hexadecimal digits"))
    }
}
