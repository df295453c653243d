//! Emberline's agent: samples every thread of the process it lives in, knows which task each thread
//! runs, and ships both to a collector.
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
//! # Tasks
//! A thread's samples belong to the task of its innermost guard. A thread pool does not know for
//! which task its threads work: its closures carry [`current_task`]. Async code is wrapped in
//! [`TaskBuilder::future`]. With the feature `tracing-layer`, spans of `tracing` become tasks by
//! `TaskLayer`.
//!
//! The program may also report transfers ([`transfer`](transfer())), how many tasks are still to come
//! ([`expect_tasks`]), its own memory accounting ([`report_memory`]), and named periods
//! ([`mark_run`]). [`report()`] writes a piece of code's profile, tasks and resources as one HTML file. The agent measures the resources of the process and the machine by itself.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `ship` | yes | `Agent`: shipping to a collector over gRPC |
//! | `tokio-io` | with `ship` | [`TransferReader`] and [`TransferWriter`] around tokio's readers and writers |
//! | `tracing-layer` | no | `TaskLayer`: spans of `tracing` as tasks |
//!
//! The crate `emberline-diagnostics` has callbacks, profilers, a progress bar and plots in this process, without a
//! collector.
//!
//! Without `ship` there is no network code, and [`AgentBuilder::start_local`] records into memory.
//!
//! # Platforms
//! The sampler needs Linux on x86-64 or aarch64 with glibc. On every other platform the crate compiles, agents
//! start and do nothing, and only `AgentBuilder::start_required` fails. [`SamplerMode`] tells how
//! much is sampled.
//!
//! # Inside
//! Samples: `sampler` (ticks, stacks as addresses) → `symbolizer` (names, whole cycles) → the crate `emberline-ship`
//! (outbox, one gRPC stream) or [`LocalAgent`] (this process's memory). Tasks: `task` (guards, futures,
//! handles) → `registry` (a ring for each thread) → `symbolizer`. Transfers and the like: `telemetry` (a
//! ring for each thread) → `symbolizer`.

#![cfg_attr(
    not(sampler),
    allow(
        dead_code,
        reason = "without a sampler nobody reads what guards record"
    )
)]

#[cfg(sampler)]
mod agent;
#[cfg(not(sampler))]
#[path = "unsupported.rs"]
mod agent;
mod builder;
mod clock;
mod detail;
pub mod foreign;
mod fork;
#[cfg(all(sampler, emberline_fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod log;
pub mod observe;
#[cfg(all(sampler, feature = "outside"))]
#[doc(hidden)]
pub mod outside;
mod overhead;
mod recording;
mod registry;
#[cfg(feature = "ship")]
mod report_file;
#[cfg(sampler)]
mod resources;
#[cfg(sampler)]
mod sampler;
mod spawn;
mod symbol_pattern;
#[cfg(sampler)]
mod symbolizer;
mod task;
mod telemetry;
mod threads;
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
pub use builder::{AgentBuilder, StartError, Symbols};
#[doc(hidden)]
pub use clock::ClockShift;
pub use overhead::Overhead;
pub use recording::Recording;
#[cfg(feature = "ship")]
pub use report_file::{ReportError, ReportGuard, report};
#[doc(inline)]
pub use ship::SamplerMode;
#[cfg(feature = "ship")]
#[doc(inline)]
pub use ship::ShipReport;
#[cfg(feature = "tracing-layer")]
pub use task::TaskLayer;
pub use task::{
    DetachedTask, Phase, PhaseFuture, PhaseFutureExt, PhaseGuard, TaskBuilder, TaskFuture,
    TaskFutureExt, TaskGuard, TaskHandle, TaskScope, current_task, phase, task,
};
pub use telemetry::{
    RunGuard, TransferBuilder, TransferGuard, TransferReader, TransferWriter, expect_tasks,
    mark_run, report_memory, transfer,
};
/// Shows the calling thread as the agent's, for libraries that start an agent on a thread of their own.
#[doc(hidden)]
pub use threads::{any_left_exists as any_left_thread_exists, enter as mark_agent_thread};

/// Compiles and runs the examples of the crate's README.
#[cfg(all(doctest, feature = "ship"))]
#[doc = include_str!("../README.md")]
struct Readme;
