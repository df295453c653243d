//! System interfaces that several modules need: the monotonic clock, fork handlers, and what the
//! kernel knows about this process's threads. `portable.rs` stands in for this module on platforms
//! without a sampler. The sampler's own system code is in `sampler::sys`.
#![expect(unsafe_code, reason = "these calls have no safe interface")]

pub(crate) mod clock;
pub(crate) mod file;
pub(crate) mod fork;
pub(crate) mod process;
pub(crate) mod signals;
