//! System interfaces of Emberline's agent: the monotonic clock, fork handlers, descriptors, memory without the
//! program's allocator, queues without locks, and what the kernel knows about this process's threads.
//!
//! Programs use `emberline-agent`: this crate's items change without notice. Where the agent has no sampler, the
//! modules that guards and observers need are those of the standard library.

pub mod environment;
pub mod foreign;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu",
    not(emberline_no_sampler)
))]
mod linux;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu",
    not(emberline_no_sampler)
)))]
#[path = "portable.rs"]
mod linux;
#[expect(unsafe_code, reason = "the list has no safe interface to its links")]
pub mod push_list;
pub mod sync;

pub use linux::*;
