//! The system's sampling of running threads: the only unsafe code of this crate.
#![expect(
    unsafe_code,
    reason = "events of the kernel, their memory and signals by number have no safe interface"
)]

pub(crate) mod perf;
pub(crate) mod trace;
