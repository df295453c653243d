//! Settings of an agent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::limits::{INTERVAL_MAX, INTERVAL_MIN, LABELS_MAX, NAME_BYTES_MAX};

use crate::LocalAgent;
use crate::sys::process;

const INTERVAL_DEFAULT: Duration = Duration::from_millis(10);
const CPU_LIMIT_DEFAULT: f64 = 0.01;
const CPU_LIMIT_MIN: f64 = 0.001;
const CPU_LIMIT_MAX: f64 = 1.0;
const RESOURCE_INTERVAL_DEFAULT: Duration = Duration::from_millis(500);
const RESOURCE_INTERVAL_MIN: Duration = Duration::from_millis(10);
const RESOURCE_INTERVAL_MAX: Duration = Duration::from_secs(3_600);
const TASK_ROWS_PER_SECOND_DEFAULT: u32 = 20_000;
const FLUSH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);

/// Settings of an [`Agent`](crate::Agent); start from [`Agent::builder`](crate::Agent::builder).
#[derive(Clone, Debug)]
#[must_use = "an agent starts with `start`"]
pub struct AgentBuilder {
    pub(crate) collector: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) interval: Duration,
    pub(crate) flush_timeout: Duration,
    pub(crate) cpu_limit: f64,
    pub(crate) resource_interval: Option<Duration>,
    pub(crate) task_rows_per_second: u32,
    pub(crate) phases: bool,
}

impl Default for AgentBuilder {
    fn default() -> Self {
        AgentBuilder {
            collector: None,
            worker: None,
            labels: Vec::new(),
            interval: INTERVAL_DEFAULT,
            flush_timeout: FLUSH_TIMEOUT_DEFAULT,
            cpu_limit: CPU_LIMIT_DEFAULT,
            resource_interval: Some(RESOURCE_INTERVAL_DEFAULT),
            task_rows_per_second: TASK_ROWS_PER_SECOND_DEFAULT,
            phases: false,
        }
    }
}

impl AgentBuilder {
    /// Sets the collector's URL. The default is the environment variable `EMBERLINE_URL`, or else
    /// `http://127.0.0.1:4747`.
    pub fn collector(mut self, url: impl Into<String>) -> Self {
        self.collector = Some(url.into());
        self
    }

    /// Sets the worker's id, by which profiles are selected. Only one process should have an id at a
    /// time. The default is `HOST:PID`.
    pub fn worker(mut self, id: impl Into<String>) -> Self {
        self.worker = Some(id.into());
        self
    }

    /// Adds a label that is shown with the worker, for example `role` and `reader`.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the time between two samples of a thread, from 1 ms to 1 s. The default is 10 ms.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Limits the CPU time of sampling in the long run, as a part of one processor, from 0.001 to 1.
    /// The default is 0.01, which is 1 %.
    ///
    /// The limit covers the sampler's thread and the signal handlers on the program's threads. Past
    /// it the sampler skips ticks; weights stay true, and profiles show how many ticks were skipped.
    pub fn cpu_limit(mut self, part: f64) -> Self {
        self.cpu_limit = part;
        self
    }

    /// Sets the time between two samples of the resources that the process, its control group and
    /// the machine use, from 10 ms to 1 h. `None` disables them. The default is half a second.
    pub fn resource_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.resource_interval = interval.into();
        self
    }

    /// Limits the rows of ended tasks per second. The default is 20,000; a tenth is reserved for
    /// tasks that did not end well.
    ///
    /// Tasks past the limit are summed by name and outcome, with their durations and phases. Counts,
    /// sums and percentiles by name stay exact, and the number of tasks without a row is known.
    pub fn task_rows_per_second(mut self, rows: u32) -> Self {
        self.task_rows_per_second = rows;
        self
    }

    /// Makes phases a level below the tasks in the profile of a local recording, except for the
    /// phase `execute`. The default is `false`. A collector decides this for each query
    /// (`emberline profile --phases`).
    pub fn phases(mut self, phases: bool) -> Self {
        self.phases = phases;
        self
    }

    /// Limits how long the agent flushes when it ends. The default is 3 s. A collector that was
    /// never reached is tried three more times, which takes about 300 ms.
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.flush_timeout = timeout;
        self
    }

    /// Makes the agent's clock wrong, for tests of the collector's clock correction. Call it before
    /// the process's first agent or task.
    #[doc(hidden)]
    pub fn clock_shift(self, shift: crate::ClockShift) -> Self {
        crate::clock::shift(shift);
        self
    }

    /// Starts sampling this process and shipping to the collector. The agent connects when it can;
    /// the program never waits for a collector.
    ///
    /// Where nothing can be sampled the agent does nothing: see [`SamplerMode`](crate::SamplerMode)
    /// and [`AgentBuilder::start_required`].
    ///
    /// # Errors
    /// [`StartError`]: a setting is invalid, or a thread cannot be started. The program continues
    /// without a profile if it ignores the error.
    #[cfg(feature = "ship")]
    pub fn start(self) -> Result<crate::Agent, StartError> {
        crate::Agent::start(self)
    }

    /// Like [`AgentBuilder::start`], but fails where nothing can be sampled.
    ///
    /// # Errors
    /// [`StartError::Unsupported`] if there is no sampler for this platform, or the system refuses
    /// everything that it needs; otherwise as for [`AgentBuilder::start`].
    #[cfg(feature = "ship")]
    pub fn start_required(self) -> Result<crate::Agent, StartError> {
        let agent = self.start()?;
        let mode = agent.mode();
        if mode.is_sampling() {
            Ok(agent)
        } else {
            Err(StartError::Unsupported { mode: mode.to_string().into() })
        }
    }

    /// Starts sampling this process into its own memory. The collector's URL and labels are not
    /// used.
    ///
    /// ```
    /// # fn main() -> Result<(), emberline_agent::StartError> {
    /// let agent = emberline_agent::AgentBuilder::default().start_local()?;
    /// let task = emberline_agent::task("sum").start();
    /// assert_eq!((0..1000).sum::<u64>(), 499_500);
    /// drop(task);
    /// let recording = agent.finish();
    /// assert_eq!(&*recording.tasks[0].name, "sum");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StartError`], as for [`AgentBuilder::start`].
    pub fn start_local(self) -> Result<LocalAgent, StartError> {
        LocalAgent::start(&self)
    }

    /// Checks the settings and returns the worker's id.
    pub(crate) fn check(&self) -> Result<String, StartError> {
        let worker = self.worker.clone().unwrap_or_else(default_worker);
        if worker.is_empty() || worker.len() > NAME_BYTES_MAX {
            return Err(StartError::Worker { bytes: worker.len() });
        }
        if self.labels.len() > LABELS_MAX {
            return Err(StartError::Labels { count: self.labels.len() });
        }
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&self.interval) {
            return Err(StartError::Interval { interval: self.interval });
        }
        if !(CPU_LIMIT_MIN..=CPU_LIMIT_MAX).contains(&self.cpu_limit) {
            return Err(StartError::CpuLimit { part: self.cpu_limit });
        }
        if let Some(interval) = self.resource_interval
            && !(RESOURCE_INTERVAL_MIN..=RESOURCE_INTERVAL_MAX).contains(&interval)
        {
            return Err(StartError::ResourceInterval { interval });
        }
        Ok(worker)
    }

    /// Returns the sampler's part of settings that have passed the check.
    #[cfg(sampler)]
    pub(crate) fn sampler_options(&self) -> crate::sampler::SamplerOptions {
        crate::sampler::SamplerOptions {
            interval_ns: u64::try_from(self.interval.as_nanos()).expect("a second at most"),
            cycle_ns: 1_000_000_000,
            cpu_limit: (self.cpu_limit * 1e9) as u64,
            resource_interval: self.resource_interval,
            task_rows_per_second: self.task_rows_per_second,
        }
    }
}

fn default_worker() -> String {
    format!("{}:{}", host_name(), std::process::id())
}

pub(crate) fn host_name() -> String {
    process::host_name().unwrap_or_else(|| "localhost".to_owned())
}

/// Why an agent did not start. The program is unharmed, and it is not profiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another agent samples this process.
    #[error("an agent is already running in this process; one agent samples all its threads")]
    AlreadyRunning,
    /// Nothing can be sampled; only [`AgentBuilder::start_required`] fails with this.
    #[error("this process cannot be sampled: {mode}")]
    Unsupported {
        /// The [`SamplerMode`](crate::SamplerMode), as text.
        mode: Arc<str>,
    },
    /// The sampling interval is out of bounds.
    #[error(
        "invalid sampling interval {interval:?}; expected {INTERVAL_MIN:?} to {INTERVAL_MAX:?}"
    )]
    Interval {
        /// The invalid interval.
        interval: Duration,
    },
    /// The CPU limit is out of bounds.
    #[error("invalid CPU limit {part}; expected {CPU_LIMIT_MIN} to {CPU_LIMIT_MAX} processors")]
    CpuLimit {
        /// The invalid part of one processor.
        part: f64,
    },
    /// The resource interval is out of bounds.
    #[error(
        "invalid resource interval {interval:?}; expected {RESOURCE_INTERVAL_MIN:?} to \
         {RESOURCE_INTERVAL_MAX:?}, or none"
    )]
    ResourceInterval {
        /// The invalid interval.
        interval: Duration,
    },
    /// The worker's id is empty or too long.
    #[error("invalid worker id of {bytes} bytes; expected 1 to {NAME_BYTES_MAX} bytes")]
    Worker {
        /// Length of the invalid id.
        bytes: usize,
    },
    /// There are too many labels.
    #[error("{count} labels for one worker; at most {LABELS_MAX} are allowed")]
    Labels {
        /// Number of labels.
        count: usize,
    },
    /// The collector's URL is invalid.
    #[error("invalid collector URL {url:?}: {reason}; expected http://HOST:PORT")]
    Collector {
        /// The invalid URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system did not start a thread.
    #[error("cannot start a thread of the agent")]
    Spawn {
        /// The system's reason.
        source: io::Error,
    },
}
