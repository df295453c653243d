//! The answer about the caller: role and token.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::Word;

/// Answer of `/api/v1/session`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SessionAnswer {
    /// `reader` or `operator`; `operator` too if the collector needs no token.
    pub role: Word,
    /// Id of the caller's token; `None` without one.
    pub token: Option<String>,
    /// Note of the token.
    pub note: String,
    /// Whether the token is that of a browser's login, which a logout ends.
    pub logged_in: bool,
    /// Whether the caller may ask in SQL, and the collector answers.
    pub sql: bool,
    /// When the token or the login expires; `None`: never.
    pub expires: Option<String>,
    /// When the token or the login expires, since the Unix epoch.
    pub expires_ns: Option<i64>,
}
