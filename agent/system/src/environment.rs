//! Variables of the environment.
//!
//! In a program that does not know of the agent, no thread of the agent may read the environment: the program changes
//! it when it likes, or has a `getenv` of its own. There the agent reads a copy.

use std::ffi::OsString;
use std::sync::OnceLock;

/// Finds the value of a variable.
pub type Lookup = fn(&str) -> Option<OsString>;

static LOOKUP: OnceLock<Lookup> = OnceLock::new();

/// Replaces the environment by a copy of it. Only the first call has an effect.
pub fn replace(lookup: Lookup) {
    LOOKUP.get_or_init(|| lookup);
}

/// The value of a variable; `None` if it is not set.
pub fn variable(name: &str) -> Option<OsString> {
    match LOOKUP.get() {
        Some(lookup) => lookup(name),
        None => std::env::var_os(name),
    }
}
