//! Local diagnostics: what this process's tasks did, without a collector, a network or an agent.
//!
//! They hang on the same instrumentation as the fleet's: [`task`](crate::task()) guards, futures,
//! handles and spans. Without a callback they cost a task nothing but the one load that asks for it.
//!
//! ```no_run
//! use emberline_agent::diagnostics::{self, ProgressBar, Profiler, ResourceProfiler, visualize};
//! use emberline_agent::task;
//!
//! let (profiler, resources) = (Profiler::new(), ResourceProfiler::new());
//! {
//!     let _profiler = diagnostics::scope(profiler.clone());
//!     let _resources = diagnostics::scope(resources.clone());
//!     let _bar = diagnostics::scope(ProgressBar::new());
//!     diagnostics::run("sums").expect("add", 100).during(|| {
//!         for number in 0..100 {
//!             let _task = task("add").key(format!("add-{number}")).start();
//!             // … the work …
//!         }
//!     });
//! }
//! visualize(&[&profiler, &resources], "sums.html")?;
//! # Ok::<(), diagnostics::VisualizeError>(())
//! ```
//!
//! | | |
//! |---|---|
//! | hear of tasks and runs | [`Callback`], [`Callbacks`] with [`scope`] or [`register`] |
//! | say what belongs together, and how much of it there is | [`run`] |
//! | when each task ran, and where | [`Profiler`] |
//! | memory and processor | [`ResourceProfiler`] |
//! | what lay in caches from when to when | [`cache`](cache()), [`CacheProfiler`] |
//! | how far it is, in the terminal | [`ProgressBar`] |
//! | all of it in one picture | [`visualize`] |
//!
//! # A stream of task transitions
//! Callbacks hear of every start and end of a task while an agent runs too, and of the same ones that
//! it records, so they are the way to subscribe in process. One that only passes on what it is looking
//! for keeps the task waiting least:
//!
//! ```
//! use std::sync::mpsc::sync_channel;
//!
//! use emberline_agent::diagnostics::{self, Callbacks, Outcome};
//! use emberline_agent::task;
//!
//! let (sender, failures) = sync_channel(1_000);
//! let subscription = diagnostics::scope(Callbacks::new().posttask(move |task, _state| {
//!     if &*task.name == "load" && task.outcome == Outcome::Failed {
//!         // A full channel means that nobody listens: the task does not wait for it.
//!         let _ = sender.try_send(task.clone());
//!     }
//! }));
//! task("load").key("load-1").start().fail("no such file");
//! task("sort").key("sort-1").start().fail("not of interest");
//! drop(subscription);
//! let failures: Vec<_> = failures.iter().collect();
//! assert_eq!((failures.len(), &*failures[0].cause), (1, "no such file"));
//! ```
//!
//! Times are the agent's clock: real time when the process first read it, steadily advanced. A forked
//! child begins without callbacks, whatever its parent had.

mod bar;
mod cache;
mod cache_event;
mod cache_profiler;
mod callback;
pub(crate) mod hooks;
mod plot;
mod profiler;
mod resources;
mod run;
#[cfg(sampler)]
mod usage;
#[cfg(not(sampler))]
#[path = "usage_unsupported.rs"]
mod usage;
mod watched;

pub use profiler_core::{Outcome, TaskId, TaskRecord, Timestamp};

pub use self::bar::ProgressBar;
pub use self::cache::{Cache, Held, cache};
pub use self::cache_event::{CacheEvent, CacheItem};
pub use self::cache_profiler::{CacheCounts, CacheData, CacheProfiler};
pub use self::callback::{Callback, Callbacks, Registration, Scope, register, scope, unregister};
pub use self::plot::{Plot, VisualizeError, visualize};
pub use self::profiler::{Profiler, TaskData};
pub use self::resources::{ResourceData, ResourceProfiler};
pub use self::run::{Counts, Run, RunBuilder, RunInfo, State, run};
use self::watched::Watched;

/// Seconds since the Unix epoch, to about a quarter of a microsecond: what an `f64` holds.
fn epoch_seconds(time: Timestamp) -> f64 {
    time.unix_ns() as f64 / 1e9
}
