//! The sampler's system code: signals and their buffers, CPU-clock timers, the loader's list of
//! modules, `/proc/self/maps`. All unsafe code of the agent is here and in the crate `emberline-system`;
//! each file is small and states what it relies on.
#![expect(
    unsafe_code,
    reason = "signals, the loader and raw registers have no safe interface"
)]

mod alternate;
#[cfg(test)]
mod differential;
pub(super) mod maps;
pub(super) mod modules;
pub(super) mod probe;
mod protocol;
pub(super) mod request;
pub(super) mod signal;
pub(super) mod slots;
