//! Work on stored tables: compaction, retention and checks.

pub(crate) mod compact;
pub(crate) mod inspect;
pub(crate) mod maintain;
pub(crate) mod retention;
