//! Tokens, logins and denied requests.

use std::time::Duration;

/// Most tokens of a collector.
pub const TOKENS_MAX: usize = 1_000;

/// Largest token file: [`TOKENS_MAX`] with notes and patterns of a usual length.
pub const TOKEN_FILE_BYTES_MAX: u64 = 4 << 20;

/// Longest note of a token, in bytes.
pub const TOKEN_NOTE_BYTES_MAX: usize = 200;

/// Most patterns of workers of one token.
pub const WORKER_PATTERNS_MAX: usize = 64;

/// Longest pattern of workers, in bytes.
pub const WORKER_PATTERN_BYTES_MAX: usize = 256;

/// Longest session of a browser, from its login.
pub const LOGIN_MAX: Duration = Duration::from_secs(12 * 3_600);

/// Longest time without a request or an open stream of a session.
pub const LOGIN_IDLE_MAX: Duration = Duration::from_secs(2 * 3_600);

/// Most sessions of all browsers, at about 300 bytes each.
pub const LOGINS_MAX: usize = 4_096;

/// Most sessions of one token's holders.
pub const LOGINS_PER_TOKEN_MAX: usize = 32;

/// Largest body of a login: a token and a path of [`RETURN_PATH_BYTES_MAX`], each byte as `%XX`.
pub const LOGIN_BODY_BYTES_MAX: usize = 16 << 10;

/// Longest path and query to which a browser returns after a login; past it, the start page.
pub const RETURN_PATH_BYTES_MAX: usize = 4_096;

/// Period in which lines about rejected requests are counted.
pub const DENIED_PERIOD: Duration = Duration::from_secs(60);

/// Most lines about rejected requests in a [`DENIED_PERIOD`].
pub const DENIALS_LOGGED: u32 = 60;

/// Most of them about one peer.
pub const DENIALS_LOGGED_PER_PEER: u32 = 5;

/// Most peers whose lines are counted; requests of further ones are not logged one by one.
pub const DENIED_PEERS_MAX: usize = 1_000;
