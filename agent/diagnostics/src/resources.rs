//! Records memory and CPU time of the process and its children.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use profiler_core::Timestamp;

use super::callback::Callback;
use super::run::{RunInfo, State};
use super::usage::{self, Usage};
use super::{ObservedPeriod, epoch_seconds};
use crate::sync::lock;
use emberline_agent::observe;
use emberline_agent::observe::spawn_thread;

/// Most rows: eleven days at one per second. Later ones are only counted.
const ROWS_MAX: usize = 1_000_000;

/// The shortest time between two rows.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Samples the process's memory and CPU time on a thread of its own.
///
/// Values are sums over the process and all its descendants, without the CPU time of the sampling
/// thread. A [`scope`](super::scope) is sampled from start to end; a [registered](super::register)
/// profiler samples during runs. The first and the last row of each such period are at its ends, even
/// if it is short. Clones share their results.
///
/// ```
/// use emberline_diagnostics::{self as diagnostics, ResourceProfiler};
///
/// let resources = ResourceProfiler::new();
/// drop(diagnostics::scope(resources.clone()));
/// let rows = resources.results();
/// assert!(rows[0].memory_mb > 0.0 && rows[0].cpu_percent.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct ResourceProfiler {
    interval: Duration,
    results: Arc<Mutex<Results>>,
    tracking: Arc<Mutex<Tracking>>,
}

#[derive(Debug, Default)]
struct Results {
    rows: Vec<ResourceData>,
    omitted: u64,
    observed: ObservedPeriod,
}

#[derive(Debug, Default)]
struct Tracking {
    scopes: usize,
    tracker: Option<Tracker>,
}

/// One sample.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct ResourceData {
    /// Time, in seconds since the Unix epoch.
    pub time: f64,
    /// Time, to the nanosecond.
    pub at: Timestamp,
    /// Resident memory, in millions of bytes.
    pub memory_mb: f64,
    /// CPU time since the previous sample, in percent of one processor: 200 is two fully used
    /// processors. `None` for the first sample.
    pub cpu_percent: Option<f64>,
}

impl Default for ResourceProfiler {
    fn default() -> ResourceProfiler {
        ResourceProfiler::new()
    }
}

impl ResourceProfiler {
    /// Returns a profiler that samples once a second.
    #[must_use]
    pub fn new() -> ResourceProfiler {
        let interval = Duration::from_secs(1);
        ResourceProfiler {
            interval,
            results: Arc::default(),
            tracking: Arc::default(),
        }
    }

    /// Sets the time between two samples, at least a millisecond. A sample takes about 50 µs, more with
    /// many threads or children.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> ResourceProfiler {
        self.interval = interval.max(INTERVAL_MIN);
        self
    }

    /// Returns the samples so far, in the order of time.
    #[must_use]
    pub fn results(&self) -> Vec<ResourceData> {
        lock(&self.results).rows.clone()
    }

    /// Returns the number of samples past the limit of a million.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        lock(&self.results).omitted
    }

    /// Drops all results.
    pub fn clear(&self) {
        *lock(&self.results) = Results::default();
    }

    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&[ResourceData], u64, ObservedPeriod) -> T,
    ) -> T {
        let results = lock(&self.results);
        read(&results.rows, results.omitted, results.observed)
    }

    fn track(&self, tracking: &mut Tracking) {
        if tracking.tracker.is_none() {
            tracking.tracker = Tracker::start(self.interval, self.results.clone());
        }
    }

    /// Stops the thread, unless a scope needs it.
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
            *lock(&self.results) = Results {
                observed: ObservedPeriod::starting_now(),
                ..Results::default()
            };
        }
        self.track(&mut tracking);
    }

    // Also stops during a run, because `finish` is not called after `exit`.
    fn exit(&self) {
        let mut tracking = lock(&self.tracking);
        tracking.scopes = tracking.scopes.saturating_sub(1);
        drop(tracking);
        self.end_unless_in_scope();
        lock(&self.results).observed.end_now();
    }
}

/// The sampling thread.
struct Tracker {
    /// Dropping it ends the thread.
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl Tracker {
    /// Returns `None`, after logging it, if the system does not start the thread.
    fn start(interval: Duration, results: Arc<Mutex<Results>>) -> Option<Tracker> {
        let (stop, stopped) = sync_channel::<()>(0);
        let (started, has_started) = sync_channel::<()>(1);
        let body = move || {
            let mut rate = Rate::default();
            results.keep(rate.row(usage::of_process_and_children(), observe::now()));
            let _ = started.send(());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                results.keep(rate.row(usage::of_process_and_children(), observe::now()));
            }
            results.keep(rate.row(usage::of_process_and_children(), observe::now()));
        };
        match spawn_thread("resources", body) {
            Ok(thread) => {
                // The first row is before anything that the program does from here on.
                let _ = has_started.recv();
                Some(Tracker { stop, thread })
            }
            Err(error) => {
                tracing::warn!("resources are not recorded: {error}");
                None
            }
        }
    }

    /// Returns after the last sample.
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

trait KeepRow {
    fn keep(&self, row: ResourceData);
}

impl KeepRow for Mutex<Results> {
    fn keep(&self, row: ResourceData) {
        let mut results = lock(self);
        if results.rows.len() < ROWS_MAX {
            results.rows.push(row);
        } else {
            results.omitted += 1;
        }
    }
}

/// Computes rows from consecutive samples.
#[derive(Default)]
struct Rate {
    before: Option<(Usage, Timestamp)>,
}

impl Rate {
    fn row(&mut self, now: Usage, at: Timestamp) -> ResourceData {
        let cpu_percent = self.before.map(|(before, then)| {
            // Less than before if a child ended for which nobody waited.
            let used_ns = now.processor_ns.saturating_sub(before.processor_ns);
            100.0 * used_ns as f64 / at.since_ns(then).max(1) as f64
        });
        self.before = Some((now, at));
        let memory_mb = now.resident_bytes as f64 / 1e6;
        ResourceData {
            time: epoch_seconds(at),
            at,
            memory_mb,
            cpu_percent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_of_the_time_between_two_samples() {
        let mut rate = Rate::default();
        let mut sample = |processor_ms: u64, at_ms: i64| {
            let usage = Usage {
                resident_bytes: 2_500_000,
                processor_ns: processor_ms * 1_000_000,
            };
            let row = rate.row(usage, Timestamp::from_unix_ns(at_ms * 1_000_000));
            (row.time, row.memory_mb, row.cpu_percent)
        };
        assert_eq!(sample(5_000, 1_000), (1.0, 2.5, None));
        assert_eq!(sample(5_500, 1_500), (1.5, 2.5, Some(100.0)));
        assert_eq!(sample(7_500, 2_500), (2.5, 2.5, Some(200.0)));
        assert_eq!(sample(7_400, 3_500), (3.5, 2.5, Some(0.0)));
        assert_eq!(sample(7_500, 4_500), (4.5, 2.5, Some(10.0)));
    }
}
