//! Memory and processor of the process and its children, over time.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use profiler_core::Timestamp;

use super::callback::Callback;
use super::run::{RunInfo, State};
use super::usage::{self, Usage};
use super::{Watched, epoch_seconds};
use crate::clock;
use crate::spawn::spawn;
use crate::sync::lock;

/// Rows that are kept: eleven days at one a second. Later ones are counted.
const ROWS_MAX: usize = 1_000_000;

/// The shortest time between two rows.
const DT_MIN: Duration = Duration::from_millis(1);

/// Looks at the process's memory and processor time again and again, with a thread of its own.
///
/// Values are sums over the process and all processes that it started, directly or not; of the
/// processor's time, all but that of the thread that looks. In a [`scope`](super::scope) it looks
/// from beginning to end; [registered](super::register), during runs. The first row of each such
/// time and the last are at its ends, however short it is. Clones are handles of the same results.
///
/// ```
/// use emberline_agent::diagnostics::{self, ResourceProfiler};
///
/// let resources = ResourceProfiler::new();
/// drop(diagnostics::scope(resources.clone()));
/// let rows = resources.results();
/// assert!(rows[0].memory_mb > 0.0 && rows[0].cpu_percent.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct ResourceProfiler {
    dt: Duration,
    kept: Arc<Mutex<Kept>>,
    tracking: Arc<Mutex<Tracking>>,
}

#[derive(Debug, Default)]
struct Kept {
    results: Vec<ResourceData>,
    omitted: u64,
    watched: Watched,
}

#[derive(Debug, Default)]
struct Tracking {
    scopes: usize,
    tracker: Option<Tracker>,
}

/// One look at what was used.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct ResourceData {
    /// When, in seconds since the Unix epoch.
    pub time: f64,
    /// When, to the nanosecond.
    pub at: Timestamp,
    /// Resident memory, in millions of bytes.
    pub memory_mb: f64,
    /// Processor time since the last look, in percent of one processor: 200 is two processors in full
    /// use. `None` at the first look, which has nothing to compare with.
    pub cpu_percent: Option<f64>,
}

impl Default for ResourceProfiler {
    fn default() -> ResourceProfiler {
        ResourceProfiler::new()
    }
}

impl ResourceProfiler {
    /// Looks once a second.
    #[must_use]
    pub fn new() -> ResourceProfiler {
        let dt = Duration::from_secs(1);
        ResourceProfiler { dt, kept: Arc::default(), tracking: Arc::default() }
    }

    /// The time between two looks, at least a millisecond. A look takes some 50 µs, and more if the
    /// process has many threads or children.
    #[must_use]
    pub fn dt(mut self, dt: Duration) -> ResourceProfiler {
        self.dt = dt.max(DT_MIN);
        self
    }

    /// The rows so far, in the order of time.
    #[must_use]
    pub fn results(&self) -> Vec<ResourceData> {
        lock(&self.kept).results.clone()
    }

    /// How many rows had no room: a million are kept.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        lock(&self.kept).omitted
    }

    /// Forgets all rows.
    pub fn clear(&self) {
        *lock(&self.kept) = Kept::default();
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&[ResourceData], u64, Watched) -> T) -> T {
        let kept = lock(&self.kept);
        read(&kept.results, kept.omitted, kept.watched)
    }

    fn track(&self, tracking: &mut Tracking) {
        if tracking.tracker.is_none() {
            tracking.tracker = Tracker::start(self.dt, self.kept.clone());
        }
    }

    /// Ends the tracking, unless a scope wants it.
    fn end_unless_in_scope(&self) {
        let mut tracking = lock(&self.tracking);
        let scopes = tracking.scopes;
        if let Some(tracker) = tracking.tracker.take_if(|_| scopes == 0) {
            tracker.stop();
        }
    }
}

impl Callback for ResourceProfiler {
    fn start(&self, _: &RunInfo) {
        self.track(&mut lock(&self.tracking));
    }

    fn finish(&self, _: &RunInfo, _: &State, _: bool) {
        self.end_unless_in_scope();
    }

    fn enter(&self) {
        let mut tracking = lock(&self.tracking);
        tracking.scopes += 1;
        if tracking.scopes == 1 {
            *lock(&self.kept) = Kept { watched: Watched::begun_now(), ..Kept::default() };
        }
        self.track(&mut tracking);
    }

    // Also if a run goes on, whose end will not be told any more.
    fn exit(&self) {
        let mut tracking = lock(&self.tracking);
        tracking.scopes = tracking.scopes.saturating_sub(1);
        drop(tracking);
        self.end_unless_in_scope();
        lock(&self.kept).watched.end_now();
    }
}

/// The thread that looks, from its first look to its last.
struct Tracker {
    /// Dropping it ends the thread.
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Tracker {
    /// `None` if the system has no thread to give, which the log says.
    fn start(dt: Duration, kept: Arc<Mutex<Kept>>) -> Option<Tracker> {
        let (stop, stopped) = sync_channel::<()>(0);
        let (begun, has_begun) = sync_channel::<()>(1);
        let body = move || {
            let mut rate = Rate::default();
            kept.keep(rate.row(usage::of_process_and_children(), clock::now()));
            let _ = begun.send(());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(dt) {
                kept.keep(rate.row(usage::of_process_and_children(), clock::now()));
            }
            kept.keep(rate.row(usage::of_process_and_children(), clock::now()));
        };
        match spawn("resources", body) {
            Ok(thread) => {
                // What the program does from here on lies after the first row.
                let _ = has_begun.recv();
                Some(Tracker { stop, thread })
            }
            Err(error) => {
                tracing::warn!("resources are not recorded: {error}");
                None
            }
        }
    }

    /// Returns after the last row.
    fn stop(self) {
        drop(self.stop);
        // A panic of the thread is in the log.
        let _ = self.thread.join();
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tracker").finish_non_exhaustive()
    }
}

trait Keep {
    fn keep(&self, row: ResourceData);
}

impl Keep for Mutex<Kept> {
    fn keep(&self, row: ResourceData) {
        let mut kept = lock(self);
        match kept.results.len() < ROWS_MAX {
            true => kept.results.push(row),
            false => kept.omitted += 1,
        }
    }
}

/// Makes rows of looks.
#[derive(Default)]
struct Rate {
    before: Option<(Usage, Timestamp)>,
}

impl Rate {
    fn row(&mut self, now: Usage, at: Timestamp) -> ResourceData {
        let cpu_percent = self.before.map(|(before, then)| {
            // Less than before if a child is gone that nobody waited for.
            let used_ns = now.processor_ns.saturating_sub(before.processor_ns);
            100.0 * used_ns as f64 / at.since_ns(then).max(1) as f64
        });
        self.before = Some((now, at));
        let memory_mb = now.resident_bytes as f64 / 1e6;
        ResourceData { time: epoch_seconds(at), at, memory_mb, cpu_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_of_the_time_between_two_looks() {
        let mut rate = Rate::default();
        let mut look = |processor_ms: u64, at_ms: i64| {
            let usage = Usage { resident_bytes: 2_500_000, processor_ns: processor_ms * 1_000_000 };
            let row = rate.row(usage, Timestamp::from_unix_ns(at_ms * 1_000_000));
            (row.time, row.memory_mb, row.cpu_percent)
        };
        assert_eq!(look(5_000, 1_000), (1.0, 2.5, None));
        assert_eq!(look(5_500, 1_500), (1.5, 2.5, Some(100.0)));
        assert_eq!(look(7_500, 2_500), (2.5, 2.5, Some(200.0)));
        assert_eq!(look(7_400, 3_500), (3.5, 2.5, Some(0.0)));
        assert_eq!(look(7_500, 4_500), (4.5, 2.5, Some(10.0)));
    }
}
