//! The system below the sampler: signals, the loader's list of modules, `/proc`. All unsafe code of
//! the project is in this folder; each file is small and states what it may rely on.
#![expect(unsafe_code, reason = "signals, the loader and raw registers have no safe interface")]

pub(crate) mod clock;
#[cfg(test)]
mod differential;
pub(super) mod fork;
pub(super) mod maps;
pub(super) mod modules;
pub(super) mod probe;
pub(crate) mod process;
mod protocol;
pub(super) mod request;
mod signal;
pub(super) mod slots;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the sampler knows Linux on x86-64 only, so far");
