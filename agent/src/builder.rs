//! An agent's settings.

use std::io;
use std::time::Duration;

use profiler_core::limits::{INTERVAL_MAX, INTERVAL_MIN, LABELS_MAX, NAME_BYTES_MAX};

use crate::LocalAgent;
use crate::agent::FLUSH_TIMEOUT_DEFAULT;
use crate::sampler::SamplerOptions;

const CYCLE: Duration = Duration::from_secs(1);
const CPU_LIMIT_MIN: f64 = 0.001;
const CPU_LIMIT_MAX: f64 = 1.0;
const RESOURCE_INTERVAL_MIN: Duration = Duration::from_millis(10);
const RESOURCE_INTERVAL_MAX: Duration = Duration::from_secs(3_600);

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

/// Rows of ended tasks a second, unless set.
const TASK_ROWS_PER_SECOND: u32 = 20_000;

impl Default for AgentBuilder {
    fn default() -> Self {
        AgentBuilder {
            collector: None,
            worker: None,
            labels: Vec::new(),
            interval: Duration::from_millis(10),
            flush_timeout: FLUSH_TIMEOUT_DEFAULT,
            cpu_limit: 0.01,
            resource_interval: Some(Duration::from_millis(500)),
            task_rows_per_second: TASK_ROWS_PER_SECOND,
            phases: false,
        }
    }
}

impl AgentBuilder {
    /// Address of the collector, such as `http://127.0.0.1:4747`, which is the default unless the
    /// environment's `EMBERLINE_URL` gives another.
    pub fn collector(mut self, url: impl Into<String>) -> Self {
        self.collector = Some(url.into());
        self
    }

    /// The worker's id, by which profiles are asked for; one process should have it at a time. The
    /// default is the host's name and the process's id.
    pub fn worker(mut self, id: impl Into<String>) -> Self {
        self.worker = Some(id.into());
        self
    }

    /// Adds a label that is shown with the worker, such as `role` and `reader`.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Time between two samples of a thread: 10 ms unless set; from 1 ms to 1 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Most CPU time that sampling may use in the long run, as a part of one processor: 0.01, which is
    /// 1 %, unless set; from 0.001 to 1. It covers the sampler's thread and the handlers on the
    /// program's threads. What would cost more is sampled less often; weights stay true, and profiles
    /// say how many ticks were saved.
    pub fn cpu_limit(mut self, part: f64) -> Self {
        self.cpu_limit = part;
        self
    }

    /// Time between two samples of what the process, its control group and the machine use: half a
    /// second unless set; from 10 ms to 1 h, or `None` for no samples.
    pub fn resource_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.resource_interval = interval.into();
        self
    }

    /// Most rows of ended tasks that are kept for one second: 20,000 unless set. Tasks beyond are summed
    /// by name and outcome, with their durations and phases, so counts, sums and percentiles by name
    /// stay exact; how many have no row is counted. A tenth is kept for tasks that did not end well.
    pub fn task_rows_per_second(mut self, rows: u32) -> Self {
        self.task_rows_per_second = rows;
        self
    }

    /// Whether the phases of tasks are a level below the tasks in a local recording's profile, where they
    /// are not `execute`: `false` unless set. A collector is asked for it by each question
    /// (`emberline profile --phases`).
    pub fn phases(mut self, phases: bool) -> Self {
        self.phases = phases;
        self
    }

    /// How long the end of the agent may wait for the collector: 3 s unless set. A collector that was
    /// never there is tried three times more, which takes about 300 ms.
    pub fn flush_timeout(mut self, timeout: Duration) -> Self {
        self.flush_timeout = timeout;
        self
    }

    /// Lets the agent's clock go wrong, for tests of how the collector's is found; only before the
    /// process's first agent or task.
    #[doc(hidden)]
    pub fn clock_shift(self, shift: crate::ClockShift) -> Self {
        crate::clock::shift(shift);
        self
    }

    /// Starts sampling this process and shipping to the collector. Whether the collector can be
    /// reached makes no difference: the agent connects when it can.
    ///
    /// # Errors
    /// [`StartError`]: the program goes on unprofiled if it ignores it.
    #[cfg(feature = "ship")]
    pub fn start(self) -> Result<crate::Agent, StartError> {
        crate::Agent::start(self)
    }

    /// Starts sampling this process into its own memory; `collector` and labels are not used.
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

    /// The worker's id and the sampler's settings, checked.
    pub(crate) fn checked(&self) -> Result<(String, SamplerOptions), StartError> {
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
        let nanoseconds =
            |time: Duration| u64::try_from(time.as_nanos()).expect("a second at most");
        let options = SamplerOptions {
            interval_ns: nanoseconds(self.interval),
            cycle_ns: nanoseconds(CYCLE),
            cpu_limit: (self.cpu_limit * 1e9) as u64,
            resource_interval: self.resource_interval,
            task_rows_per_second: self.task_rows_per_second,
        };
        Ok((worker, options))
    }
}

fn default_worker() -> String {
    format!("{}:{}", host_name(), std::process::id())
}

pub(crate) fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// Why an agent did not start. The program is unharmed and unprofiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// One agent samples the whole process.
    #[error("an agent is already running in this process; one samples all its threads")]
    AlreadyRunning,
    /// The interval is out of bounds.
    #[error("the interval is {interval:?}; it must be from {INTERVAL_MIN:?} to {INTERVAL_MAX:?}")]
    Interval {
        /// The interval given.
        interval: Duration,
    },
    /// The limit on CPU time is out of bounds.
    #[error("the limit on CPU time is {part}; it must be from {CPU_LIMIT_MIN} to {CPU_LIMIT_MAX}")]
    CpuLimit {
        /// The part of one processor that was given.
        part: f64,
    },
    /// The interval of resources is out of bounds.
    #[error(
        "the interval of resources is {interval:?}; it must be from {RESOURCE_INTERVAL_MIN:?} to \
         {RESOURCE_INTERVAL_MAX:?}, or none"
    )]
    ResourceInterval {
        /// The interval given.
        interval: Duration,
    },
    /// The worker's id is empty or too long.
    #[error("the worker's id has {bytes} bytes; it must have from 1 to {NAME_BYTES_MAX}")]
    Worker {
        /// Its length in bytes.
        bytes: usize,
    },
    /// There are too many labels.
    #[error("there are {count} labels; at most {LABELS_MAX} are allowed")]
    Labels {
        /// How many were given.
        count: usize,
    },
    /// The collector's address is not one.
    #[error(
        "the collector's address `{url}` is not one ({reason}); an example: http://127.0.0.1:4747"
    )]
    Collector {
        /// The address given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A thread could not be started.
    #[error("a thread of the agent could not be started")]
    Spawn {
        /// The system's reason.
        source: io::Error,
    },
}
