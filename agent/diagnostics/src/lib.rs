//! Local diagnostics: observe this process's tasks without a collector, a network or an agent.
//!
//! They use the same instrumentation as the agent: [`task`](emberline_agent::task()) guards, futures, handles and
//! spans. Without a callback they cost each task one load.
//!
//! ```no_run
//! use emberline_diagnostics::{self as diagnostics, ProgressBar, Profiler, ResourceProfiler, visualize};
//! use emberline_agent::task;
//!
//! let profiler = Profiler::new();
//! let resources = ResourceProfiler::new();
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
//! # Ok::<(), emberline_diagnostics::VisualizeError>(())
//! ```
//!
//! | | |
//! |---|---|
//! | observe tasks and runs | [`Callback`], [`Callbacks`] with [`scope`] or [`register`] |
//! | group tasks and announce their number | [`run`] |
//! | record when each task ran, and on which thread | [`Profiler`] |
//! | record memory and CPU time | [`ResourceProfiler`] |
//! | record the contents of caches over time | [`cache`](cache()), [`CacheProfiler`] |
//! | show progress in the terminal | [`ProgressBar`] |
//! | plot all of it in one picture | [`visualize`] |
//!
//! # A stream of task transitions
//! Callbacks see every start and end of a task, also while an agent runs, and the same ones that the
//! agent records. So they are the way to subscribe within the process. A callback that only forwards
//! the relevant tasks delays them least:
//!
//! ```
//! use std::sync::mpsc::sync_channel;
//!
//! use emberline_diagnostics::{self as diagnostics, Callbacks, Outcome};
//! use emberline_agent::task;
//!
//! let (sender, failures) = sync_channel(1_000);
//! let subscription = diagnostics::scope(Callbacks::new().posttask(move |task, _state| {
//!     if &*task.name == "load" && task.outcome == Outcome::Failed {
//!         // If the channel is full nobody reads it, and the task does not wait.
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
//! Times are by the agent's clock: the real time at which the process first read it, advanced by the
//! monotonic clock. A forked child starts without callbacks.

mod bar;
mod cache;
mod cache_event;
mod cache_profiler;
mod callback;
mod period;
mod plot;
mod process;
mod profiler;
mod registry;
mod resources;
mod run;
mod sync;
#[cfg(target_os = "linux")]
mod usage;
#[cfg(not(target_os = "linux"))]
#[path = "usage_unsupported.rs"]
mod usage;

pub use profiler_core::{Outcome, TaskId, TaskRecord, Timestamp};

pub use self::bar::ProgressBar;
pub use self::cache::{Cache, CachedValue, cache};
pub use self::cache_event::{CacheEvent, CacheItem};
pub use self::cache_profiler::{CacheCounts, CacheData, CacheProfiler};
pub use self::callback::{Callback, Callbacks, Registration, Scope, register, scope, unregister};
use self::period::ObservedPeriod;
pub use self::plot::{Plot, VisualizeError, visualize};
pub use self::profiler::{Profiler, TaskData};
pub use self::resources::{ResourceData, ResourceProfiler};
pub use self::run::{Counts, Run, RunBuilder, RunInfo, State, run};

/// Compiles and runs the example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Seconds since the Unix epoch, to about a quarter of a microsecond, the precision of an `f64`.
fn epoch_seconds(time: Timestamp) -> f64 {
    time.unix_ns() as f64 / 1e9
}
