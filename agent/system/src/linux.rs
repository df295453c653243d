//! Linux with glibc on x86-64 or aarch64, where the agent has a sampler.
#![expect(unsafe_code, reason = "these calls have no safe interface")]

pub mod address_space;
pub mod clock;
pub mod descriptors;
pub mod directory;
pub mod file;
pub mod fork;
pub mod marker;
pub mod newest_id;
pub mod page_vec;
pub mod pages;
pub mod preloaded;
pub mod probe;
pub mod process;
pub mod processor;
pub mod queue;
pub mod signals;
#[cfg(feature = "socket")]
pub mod socket;
pub mod task_list;
