//! The system below the sampler: signals, the loader's list of modules, `/proc`. All unsafe code of
//! the project is in this folder; each file is small and states what it may rely on.
#![expect(unsafe_code, reason = "signals, the loader and raw registers have no safe interface")]

pub(super) mod modules;
pub(crate) mod process;
pub(super) mod signal;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the sampler knows Linux on x86-64 only, so far");
