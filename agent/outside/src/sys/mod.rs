//! The system's sampling of running threads: the only unsafe code of this crate.
#![expect(
    unsafe_code,
    reason = "events of the kernel and their memory have no safe interface"
)]

pub(crate) mod perf;
