//! Settings of an agent.

mod naming;
mod start_error;

use std::path::PathBuf;
use std::time::Duration;

use profiler_core::limits::{INTERVAL_MAX, INTERVAL_MIN, LABELS_MAX, WORKER_BYTES_MAX};

pub use self::naming::Symbols;
#[cfg(feature = "ship")]
use self::start_error::LABELS_VARIABLE;
pub use self::start_error::StartError;
use self::start_error::{
    CPU_LIMIT_MAX, CPU_LIMIT_MIN, RESOURCE_INTERVAL_MAX, RESOURCE_INTERVAL_MIN,
};
use crate::LocalAgent;
#[cfg(sampler)]
use crate::foreign;
#[cfg(sampler)]
use crate::registry::{self, NameId};
use crate::symbol_pattern::SymbolPattern;
#[cfg(feature = "ship")]
use system::environment;
use system::process;

const INTERVAL_DEFAULT: Duration = Duration::from_millis(10);
const CPU_LIMIT_DEFAULT: f64 = 0.01;
const RESOURCE_INTERVAL_DEFAULT: Duration = Duration::from_millis(500);
const TASK_ROWS_PER_SECOND_DEFAULT: u32 = 20_000;
const FLUSH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);

/// Settings of an [`Agent`](crate::Agent); start from [`Agent::builder`](crate::Agent::builder).
#[derive(Clone, Debug)]
#[must_use = "an agent starts with `start`"]
pub struct AgentBuilder {
    pub(crate) collector: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) worker: Option<String>,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) interval: Duration,
    pub(crate) flush_timeout: Duration,
    pub(crate) cpu_limit: f64,
    pub(crate) cpu_limit_of_process: Option<f64>,
    pub(crate) resource_interval: Option<Duration>,
    pub(crate) task_rows_per_second: u32,
    pub(crate) phases: bool,
    pub(crate) symbols: Option<Symbols>,
    pub(crate) default_task: Option<String>,
    pub(crate) tasks_by_thread: bool,
    pub(crate) names_task: Option<SymbolPattern>,
    #[cfg(feature = "ship")]
    pub(crate) symbol_upload: Option<bool>,
    #[cfg(feature = "ship")]
    pub(crate) is_silent: bool,
    pub(crate) has_log: bool,
    /// Whether the agent of `emberline record` counts as another one.
    pub(crate) is_alone: bool,
}

impl Default for AgentBuilder {
    fn default() -> Self {
        AgentBuilder {
            collector: None,
            token_file: None,
            worker: None,
            labels: Vec::new(),
            interval: INTERVAL_DEFAULT,
            flush_timeout: FLUSH_TIMEOUT_DEFAULT,
            cpu_limit: CPU_LIMIT_DEFAULT,
            cpu_limit_of_process: None,
            resource_interval: Some(RESOURCE_INTERVAL_DEFAULT),
            task_rows_per_second: TASK_ROWS_PER_SECOND_DEFAULT,
            phases: false,
            symbols: None,
            default_task: None,
            tasks_by_thread: false,
            names_task: None,
            #[cfg(feature = "ship")]
            symbol_upload: None,
            #[cfg(feature = "ship")]
            is_silent: false,
            has_log: true,
            is_alone: false,
        }
    }
}

impl AgentBuilder {
    /// Sets the collector's URL. The default is the environment variable `EMBERLINE_URL`, or else
    /// `http://127.0.0.1:4747`.
    ///
    /// Several collectors are separated by commas, at most 16. Each worker has an order of its own, ships to
    /// the first one, goes on to the next one if it does not answer for 5 seconds, and returns. Samples
    /// stay at the collector that acknowledged them: none counts at two of them.
    pub fn collector(mut self, url: impl Into<String>) -> Self {
        self.collector = Some(url.into());
        self
    }

    /// Sets the file with the token for the collector. It is read for each attempt to connect, so that a
    /// new token needs no restart. The default is the file named by the environment variable
    /// `EMBERLINE_TOKEN_FILE`, or else the token in `EMBERLINE_TOKEN`.
    ///
    /// If the collector rejects the token, the agent says so once and keeps trying.
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token_file = Some(file.into());
        self
    }

    /// Sets the worker's id, by which profiles are selected. Only one process should have an id at a
    /// time. The default is `HOST:PID`.
    pub fn worker(mut self, id: impl Into<String>) -> Self {
        self.worker = Some(id.into());
        self
    }

    /// Adds a label that is shown with the worker, for example `role` and `reader`. The environment variable
    /// `EMBERLINE_LABELS` (`KEY=VALUE,KEY=VALUE`) adds further ones, such as the node on which a container
    /// runs; keys that the program sets keep the program's values.
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

    /// Limits the CPU time of sampling as well to a part of what the process itself uses, from 0.001 to 1, for fleets of
    /// processes that share processors. A quarter of [`AgentBuilder::cpu_limit`] is always allowed. The default is no
    /// such limit.
    pub fn cpu_limit_of_process(mut self, part: f64) -> Self {
        self.cpu_limit_of_process = Some(part);
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

    /// Sets the task of threads that are in none, so that profiles of a program without guards are by task too.
    /// Only samples belong to it: it is no row among the tasks.
    pub fn default_task(mut self, name: impl Into<String>) -> Self {
        self.default_task = Some(name.into());
        self
    }

    /// Makes the name of each thread the task of its time outside of tasks, in place of the default task. Past
    /// 1,280 threads and names, further ones share the task of other threads. The default is `false`.
    pub fn tasks_by_thread(mut self, by_thread: bool) -> Self {
        self.tasks_by_thread = by_thread;
        self
    }

    /// Makes functions tasks: time belongs to the outermost function of its stack whose name `matches`, and only if
    /// there is none to the task that its thread is in. The agent's own thread calls `matches` once for each place in
    /// the tree of stacks; a panic in it ends profiling, as [`Agent::mode`](crate::Agent::mode) then says.
    ///
    /// ```
    /// use emberline_agent::Agent;
    ///
    /// let builder = Agent::builder().tasks_by_symbol(|name| name.starts_with("shop::handlers::"));
    /// ```
    pub fn tasks_by_symbol(
        mut self,
        matches: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.names_task = Some(SymbolPattern::new(matches));
        self
    }

    /// Sets who names functions. The default is the environment variable `EMBERLINE_SYMBOLS` (`agent`,
    /// `collector` or `auto`), or else [`Symbols::Agent`]. Local recordings always have names.
    ///
    /// ```no_run
    /// # use emberline_agent::{Agent, StartError, Symbols};
    /// # fn main() -> Result<(), StartError> {
    /// let _agent = Agent::builder().symbols(Symbols::Collector).start()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn symbols(mut self, symbols: Symbols) -> Self {
        self.symbols = Some(symbols);
        self
    }

    /// Sets whether the agent sends the symbols of this program's files when the collector asks for them
    /// (`emberline symbols fetch`). They have the names of functions and source files, and no code. The
    /// default is the environment variable `EMBERLINE_SYMBOL_UPLOAD` (`on` or `off`), or else `true`.
    #[cfg(feature = "ship")]
    pub fn symbol_upload(mut self, allowed: bool) -> Self {
        self.symbol_upload = Some(allowed);
        self
    }

    /// Keeps the agent from writing to standard error if no collector is reached, like `EMBERLINE_LOG=off`.
    #[cfg(feature = "ship")]
    pub fn silent(mut self) -> Self {
        self.is_silent = true;
        self
    }

    /// Starts no thread for log lines: for a program that has no subscriber of `tracing`.
    #[doc(hidden)]
    #[cfg(feature = "ship")]
    pub fn without_log(mut self) -> Self {
        self.has_log = false;
        self
    }

    /// Fails to start next to any other agent: for that of `emberline record` itself. By default that agent does not count,
    /// because a program must run as it does alone; and it ends before an agent that ships to the same collector starts.
    #[doc(hidden)]
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }

    /// Limits how long the end of the agent takes, with all its threads. The default is 3 s. A
    /// collector that was never reached is tried three more times, which takes about 300 ms. Only
    /// [`LocalAgent::finish`] has no limit, because its result must be complete.
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
            Err(StartError::Unsupported {
                mode: mode.to_string().into(),
            })
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

    /// Completes what the environment says and the program does not.
    #[cfg(feature = "ship")]
    pub(crate) fn with_environment(mut self) -> Result<Self, StartError> {
        if self.symbols.is_none() {
            let symbols = Symbols::from_environment();
            self.symbols = Some(symbols.map_err(|value| StartError::Symbols { value })?);
        }
        if self.symbol_upload.is_none() {
            let allowed = naming::symbol_upload_from_environment();
            self.symbol_upload = Some(allowed.map_err(|value| StartError::SymbolUpload { value })?);
        }
        if let Some(labels) = environment::variable(LABELS_VARIABLE) {
            self.add_labels(&labels.to_string_lossy())?;
        }
        Ok(self)
    }

    /// Adds labels in the form of the variable.
    #[cfg(any(feature = "ship", test))]
    fn add_labels(&mut self, text: &str) -> Result<(), StartError> {
        for entry in text.split(',').filter(|entry| !entry.trim().is_empty()) {
            let label = entry
                .split_once('=')
                .filter(|(key, _)| !key.trim().is_empty());
            let Some((key, value)) = label else {
                return Err(StartError::LabelsVariable {
                    entry: entry.to_owned(),
                });
            };
            let key = key.trim();
            if !self.labels.iter().any(|(known, _)| known == key) {
                self.labels.push((key.to_owned(), value.trim().to_owned()));
            }
        }
        Ok(())
    }

    /// Checks the settings and returns the worker's id.
    pub(crate) fn check(&self) -> Result<String, StartError> {
        let worker = self.worker.clone().unwrap_or_else(default_worker);
        if worker.is_empty() || worker.len() > WORKER_BYTES_MAX {
            return Err(StartError::Worker {
                bytes: worker.len(),
            });
        }
        if self.labels.len() > LABELS_MAX {
            return Err(StartError::Labels {
                count: self.labels.len(),
            });
        }
        if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&self.interval) {
            return Err(StartError::Interval {
                interval: self.interval,
            });
        }
        let limits = [Some(self.cpu_limit), self.cpu_limit_of_process];
        for part in limits.into_iter().flatten() {
            if !(CPU_LIMIT_MIN..=CPU_LIMIT_MAX).contains(&part) {
                return Err(StartError::CpuLimit { part });
            }
        }
        match self.resource_interval {
            Some(interval)
                if !(RESOURCE_INTERVAL_MIN..=RESOURCE_INTERVAL_MAX).contains(&interval) =>
            {
                Err(StartError::ResourceInterval { interval })
            }
            _ => Ok(worker),
        }
    }

    /// Returns the sampler's part of settings that have passed the check.
    #[cfg(sampler)]
    pub(crate) fn sampler_options(&self) -> crate::sampler::SamplerOptions {
        crate::sampler::SamplerOptions {
            interval_ns: u64::try_from(self.interval.as_nanos()).expect("a second at most"),
            cycle_ns: 1_000_000_000,
            cpu_limit: (self.cpu_limit * 1e9) as u64,
            cpu_limit_of_process: self.cpu_limit_of_process.map(|part| (part * 1e9) as u64),
            resource_interval: self.resource_interval,
            task_rows_per_second: self.task_rows_per_second,
            symbols: self.symbols.unwrap_or_default(),
            walker: foreign::walker(),
            default_task: self
                .default_task
                .as_deref()
                .map_or(NameId::NONE, registry::name_id),
            tasks_by_thread: self.tasks_by_thread,
            #[cfg(feature = "ship")]
            symbol_upload: self.symbol_upload.unwrap_or(true),
        }
    }
}

fn default_worker() -> String {
    format!("{}:{}", host_name(), std::process::id())
}

pub(crate) fn host_name() -> String {
    process::host_name().unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_the_environment_do_not_replace_those_of_the_program() {
        let mut builder = AgentBuilder::default().label("zone", "a");
        builder.add_labels("node=n1, zone=b,path=x=y,").unwrap();
        let expected = [("zone", "a"), ("node", "n1"), ("path", "x=y")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(builder.labels, expected);
        for entry in ["node", "=n1", " "] {
            let added = builder.add_labels(&format!("a=b,{entry}"));
            let is_blank = entry.trim().is_empty();
            assert_eq!(added.is_ok(), is_blank, "{entry:?}");
        }
        let error = builder.add_labels("node").unwrap_err().to_string();
        let expected = "invalid entry \"node\" in EMBERLINE_LABELS; expected KEY=VALUE,KEY=VALUE";
        assert_eq!(error, expected);
    }
}
