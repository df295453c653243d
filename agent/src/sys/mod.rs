//! System interfaces that several modules need: the monotonic clock, fork handlers, descriptors, and
//! what the kernel knows about this process's threads. `portable.rs` stands in for this module on platforms
//! without a sampler. The sampler's own system code is in `sampler::sys`.
#![expect(unsafe_code, reason = "these calls have no safe interface")]

pub(crate) mod address_space;
pub(crate) mod clock;
pub(crate) mod descriptors;
pub(crate) mod directory;
pub(crate) mod file;
pub(crate) mod fork;
pub(crate) mod page_vec;
pub(crate) mod pages;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod processor;
pub(crate) mod push_list;
pub(crate) mod queue;
pub(crate) mod signals;
#[cfg(feature = "ship")]
pub(crate) mod socket;
pub(crate) mod task_list;
