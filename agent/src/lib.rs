//! Emberline's agent: samples every thread of the process it lives in, knows which task each one
//! runs, and ships both to a collector. The process should never notice.
//!
//! A worker needs one line in `main` and one for each kind of task:
//!
//! ```no_run
//! fn main() -> Result<(), emberline_agent::StartError> {
//!     let _agent = emberline_agent::Agent::builder().worker("worker-1").start()?;
//!     for number in 0..10 {
//!         let _task = emberline_agent::task("load").key(format!("load-{number}")).start();
//!         // … the work …
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The way of a sample: `sampler` (ticks, stacks as addresses) → `fold` (names, whole cycles) →
//! `ship` (outbox, one gRPC stream) or [`LocalAgent`] (this process's memory). The way of a task:
//! `task` (guards, futures, handles) → `registry` (a ring for each thread) → `fold`.
//!
//! A thread runs the task of its guard. Async code is wrapped in [`TaskBuilder::future`], closures for
//! a thread pool carry [`current_task`], and with the feature `tracing-layer` spans of `tracing`
//! become tasks by `TaskLayer`.
//!
//! [`diagnostics`] shows the same tasks without any agent: callbacks, profilers, a progress bar and a
//! picture of a run, in this process alone.
//!
//! Without the default feature `ship` there is no network code, no tokio and no tonic; then
//! [`AgentBuilder::start_local`] records into memory.

mod agent;
mod builder;
mod clock;
mod control;
mod cycle;
pub mod diagnostics;
mod fold;
mod fork;
mod local;
mod registry;
mod sampler;
#[cfg(feature = "ship")]
mod ship;
#[cfg(feature = "ship")]
mod shipping;
mod symbols;
mod sync;
mod task;
mod threads;

#[cfg(feature = "ship")]
pub use agent::Agent;
pub use agent::LocalAgent;
pub use builder::{AgentBuilder, StartError};
pub use local::Recording;
pub use sampler::Cost;
#[cfg(feature = "ship")]
pub use shipping::ShipReport;
#[cfg(feature = "tracing-layer")]
pub use task::TaskLayer;
pub use task::{
    TaskBuilder, TaskFuture, TaskFutureExt, TaskGuard, TaskHandle, TaskScope, current_task, task,
};
