//! The agent of this process: its start, its end, and its successor in a forked child.

use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::AgentBuilder;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::text::Label;
use crate::{errors, scopes, text};

/// The agent of [`start`], and reports under way, which have an agent too. For one load in each task.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// Part of the process's CPU time that sampling may take, unless a limit is set: fleets of Python have more processes
/// than processors.
const CPU_LIMIT_OF_PROCESS: f64 = 0.02;

static CURRENT: Mutex<Option<Running>> = Mutex::new(None);

struct Running {
    agent: agent::Agent,
    settings: Settings,
}

fn current() -> MutexGuard<'static, Option<Running>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether tasks are recorded.
#[pyfunction]
pub(crate) fn is_active() -> bool {
    USERS.load(Ordering::Relaxed) > 0
}

/// Records tasks until [`release`].
pub(crate) fn acquire() {
    USERS.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn release() {
    // A forked child starts at 0, whatever its parent had.
    let _ = USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |users| {
        users.checked_sub(1)
    });
}

/// Settings of a start; a forked child uses them again.
struct Settings {
    worker: Option<String>,
    collector: Option<String>,
    labels: Vec<Label>,
    token_file: Option<PathBuf>,
    interval: Option<Duration>,
    cpu_limit: Option<f64>,
    flush_timeout: Option<Duration>,
    default_task: Option<String>,
    is_forked: bool,
}

impl Settings {
    fn builder(&self) -> AgentBuilder {
        let mut builder = AgentBuilder::default();
        if let Some(worker) = &self.worker {
            // Only one process may have an id.
            builder = if self.is_forked {
                builder.worker(format!("{worker}-{}", std::process::id()))
            } else {
                builder.worker(worker)
            };
        }
        if let Some(collector) = &self.collector {
            builder = builder.collector(collector);
        }
        for Label { key, value } in &self.labels {
            builder = builder.label(key, value);
        }
        if let Some(file) = &self.token_file {
            builder = builder.token_file(file);
        }
        if let Some(interval) = self.interval {
            builder = builder.interval(interval);
        }
        builder = match self.cpu_limit {
            Some(part) => builder.cpu_limit(part),
            None => builder.cpu_limit_of_process(CPU_LIMIT_OF_PROCESS),
        };
        if let Some(timeout) = self.flush_timeout {
            builder = builder.flush_timeout(timeout);
        }
        if let Some(name) = &self.default_task {
            builder = builder.default_task(name);
        }
        builder
    }

    /// Starts an agent, without the GIL: its threads do not need it, but the start waits for them.
    fn start(self, py: Python<'_>) -> PyResult<()> {
        let builder = self.builder();
        let agent = py.detach(|| builder.start()).map_err(errors::of_start)?;
        *current() = Some(Running {
            agent,
            settings: self,
        });
        acquire();
        Ok(())
    }
}

/// How much of this process the sampler can see, as text; `stopped` if no agent runs.
#[pyfunction]
pub(crate) fn mode() -> String {
    let current = current();
    let mode = current.as_ref().map(|running| running.agent.mode());
    mode.map_or_else(|| "stopped".to_owned(), |mode| mode.to_string())
}

/// Starts the agent of this process.
#[pyfunction]
#[pyo3(signature = (worker=None, collector=None, *, labels=None, token_file=None, interval=None,
    cpu_limit=None, flush_timeout=None, default_task=None))]
#[expect(
    clippy::too_many_arguments,
    reason = "each is a keyword of the Python function"
)]
pub(crate) fn start(
    py: Python<'_>,
    worker: Option<&Bound<'_, PyString>>,
    collector: Option<&Bound<'_, PyString>>,
    labels: Option<&Bound<'_, PyAny>>,
    token_file: Option<PathBuf>,
    interval: Option<f64>,
    cpu_limit: Option<f64>,
    flush_timeout: Option<f64>,
    default_task: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let duration =
        |length: Option<f64>, of: &str| length.map(|length| text::seconds(length, of)).transpose();
    let settings = Settings {
        worker: worker.map(text::lossy),
        collector: collector.map(text::lossy),
        labels: text::labels(labels)?,
        token_file,
        interval: duration(interval, "interval")?,
        cpu_limit,
        flush_timeout: duration(flush_timeout, "flush_timeout")?,
        default_task: default_task
            .map(|name| text::name(name, "default task"))
            .transpose()?,
        is_forked: false,
    };
    settings.start(py)
}

/// Ends the agent and waits for its last flush, without the GIL. Does nothing if no agent runs.
#[pyfunction]
pub(crate) fn stop(py: Python<'_>) {
    let running = current().take();
    if let Some(running) = running {
        release();
        py.detach(|| running.agent.finish());
    }
}

/// Starts an agent in a forked child whose parent has one. Its process id is appended to a worker's given name.
/// Returns whether an agent runs.
#[pyfunction]
pub(crate) fn fork_in_child(py: Python<'_>) -> PyResult<bool> {
    USERS.store(0, Ordering::Relaxed);
    scopes::clear(py)?;
    let Some(Running { agent, settings }) = current().take() else {
        return Ok(false);
    };
    // Its threads and their locks are those of the parent.
    mem::forget(agent);
    let settings = Settings {
        is_forked: true,
        ..settings
    };
    settings.start(py)?;
    Ok(true)
}
