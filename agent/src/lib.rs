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
//! Beside tasks the program may tell of its transfers ([`transfer`](transfer())), of what is still to
//! come ([`expect_tasks`]), of its memory ([`report_memory`]), and give periods a name ([`mark_run`]); what
//! it and its machine use is measured by itself. All of it goes `records` → `fold` → `ship`.
//!
//! [`diagnostics`] shows the same tasks without any agent: callbacks, profilers, a progress bar and a
//! picture of a run, in this process alone.
//!
//! Without the default feature `ship` there is no network code, no tokio and no tonic; then
//! [`AgentBuilder::start_local`] records into memory.

#![cfg_attr(
    not(sampler),
    allow(dead_code, reason = "without a sampler nobody reads what guards record")
)]

#[cfg(sampler)]
mod agent;
#[cfg(not(sampler))]
#[path = "unsupported.rs"]
mod agent;
mod builder;
mod clock;
#[cfg(sampler)]
mod control;
#[cfg(sampler)]
mod cycle;
mod detail;
#[cfg(feature = "diagnostics")]
pub mod diagnostics;
#[cfg(sampler)]
mod fold;
mod fork;
#[cfg(sampler)]
mod ledger;
#[cfg(sampler)]
mod local;
mod memory_report;
mod mode;
mod overhead;
mod progress;
mod recording;
mod records;
mod registry;
#[cfg(feature = "ship")]
mod report;
#[cfg(sampler)]
mod resources;
mod run;
#[cfg(sampler)]
mod sampler;
#[cfg(all(sampler, feature = "ship"))]
mod ship;
#[cfg(all(sampler, feature = "ship"))]
mod shipping;
#[cfg(any(sampler, feature = "diagnostics"))]
mod spawn;
mod spill;
#[cfg(sampler)]
mod symbols;
mod sync;
#[cfg(sampler)]
mod sys;
#[cfg(not(sampler))]
#[path = "sys/portable.rs"]
mod sys;
mod task;
mod threads;
#[cfg(sampler)]
mod totals;
mod transfer;
mod wanted;

/// Types of the model that this crate's functions take and return.
#[doc(inline)]
pub use profiler_core::{
    Direction, Epoch, ExpectedTasks, Filter, Frame, FrameId, FrameKind, NodeId, Outcome,
    PhaseInterval, Profile, ProfileDiff, Resource, ResourceSample, RunId, RunMarker, State,
    TaskDetail, TaskId, TaskRecord, TaskTotals, Telemetry, ThreadKind, Ticks, Timestamp,
    TransferEvent, TransferId, Weight,
};

#[cfg(feature = "ship")]
pub use agent::Agent;
pub use agent::LocalAgent;
pub use builder::{AgentBuilder, StartError};
#[doc(hidden)]
pub use clock::ClockShift;
pub use memory_report::report_memory;
pub use mode::SamplerMode;
pub use overhead::Overhead;
pub use progress::expect_tasks;
pub use recording::Recording;
#[cfg(feature = "ship")]
pub use report::ShipReport;
pub use run::{RunGuard, mark_run};
#[cfg(feature = "tracing-layer")]
pub use task::TaskLayer;
pub use task::{
    Phase, PhaseFuture, PhaseFutureExt, PhaseGuard, TaskBuilder, TaskFuture, TaskFutureExt,
    TaskGuard, TaskHandle, TaskScope, current_task, phase, task,
};
pub use transfer::{TransferBuilder, TransferGuard, TransferReader, TransferWriter, transfer};
