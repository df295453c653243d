//! Profiles a process that already runs, without a change of it and without stopping it.
//!
//! A hundred times a second it reads the kernel's counts of each thread ([`thread_files`]). Where a thread is blocked is in its files in
//! `/proc`, and its stack in its memory; the kernel samples a thread that runs ([`sys::perf`]), or it is stopped for a
//! moment on request ([`stopped`]). Unwinding, names, the account of time and shipping are those of the agent
//! ([`agent::outside`]), so the profile is the same as from inside.
//!
//! Reading order: [`target`] (which process), [`recording`] (the loop), [`thread_changes`] (starts
//! and ends), [`watched`] (one thread in one tick),
//! [`running`] (sources of samples of running threads).

mod interpreter;
mod random;
mod recording;
mod running;
mod stopped;
mod sys;
mod target;
mod thread_changes;
mod thread_files;
mod watched;

pub use agent::outside::SymbolPattern;
pub use python_stacks::Unsupported;
pub use recording::{Recorded, Recording, RecordingError, RecordingOptions};
pub use running::{RunningSamples, RunningSource};
pub use target::{Obstacle, Target, TargetError, parent_of};
