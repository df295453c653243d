//! Tokens and roles: who may do what.
//!
//! ```text
//! TokenFile ─▶ TokenSet ─▶ Tokens ─▶ serve::access ─▶ route
//!  (hashes)    verifies    current    role of route
//! ```
//!
//! As long as there is no token file, everyone who reaches the collector may do everything. As soon as
//! there is one, even without any token in it, every request needs a valid token.

mod audit;
mod file;
mod pattern;
mod record;
mod sessions;
mod tokens;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use file::{NewToken, TokenFile, TokenFileError};
pub use pattern::{WorkerPattern, WorkerPatternError};
pub use record::{TokenHash, TokenRecord};
pub use tokens::TokenSource;

pub use audit::DeniedLog;
pub use record::{Denied, TokenSet};
pub use sessions::{Session, SessionSecret, Sessions};
pub use tokens::Tokens;

/// Permissions of the holder of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Send profiles as the workers of its patterns, and nothing else.
    Agent,
    /// Read everything; change nothing.
    Reader,
    /// Read everything, change settings, mark runs, take thread dumps.
    Operator,
}

impl Role {
    /// The name, as it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Reader => "reader",
            Role::Operator => "operator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Requirement of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing.
    Open,
    /// [`Role::Agent`]: other roles may not write.
    Agent,
    /// [`Role::Reader`] or [`Role::Operator`].
    Reader,
    /// [`Role::Operator`].
    Operator,
}

impl Access {
    pub const fn is_granted_to(self, role: Role) -> bool {
        match self {
            Access::Open => true,
            Access::Agent => matches!(role, Role::Agent),
            Access::Reader => matches!(role, Role::Reader | Role::Operator),
            Access::Operator => matches!(role, Role::Operator),
        }
    }

    /// The least role that has it.
    pub const fn role(self) -> Role {
        match self {
            Access::Agent => Role::Agent,
            Access::Open | Access::Reader => Role::Reader,
            Access::Operator => Role::Operator,
        }
    }
}
