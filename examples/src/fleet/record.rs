//! A worker's own bookkeeping, independent of the agent, so that the agent's reports can be checked
//! against it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use emberline_agent::Phase;
use serde::{Deserialize, Serialize};

/// Directory in which each worker writes `<worker>.jsonl`, one [`FleetEvent`] a line, and at its
/// end `<worker>.json`, its [`WorkerRecord`].
pub const LOG_VARIABLE: &str = "EMBERLINE_FLEET_LOG";

/// Log lines that a worker keeps; later lines go to stderr only.
const NOTES_MAX: usize = 64;

/// A worker's own account: the last line of its stdout, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// The id under which the worker's agent reports, such as `worker-0`.
    pub worker: String,
    /// By task name.
    pub tasks: BTreeMap<String, TaskCounts>,
    /// Bytes written to other workers.
    pub bytes_sent: u64,
    /// Bytes read from other workers.
    pub bytes_received: u64,
    /// Log lines of the worker, oldest first, at most 64.
    pub notes: Vec<String>,
}

/// Number of tasks of one name that were started, by how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// Started; at a worker's end the sum of the others.
    pub started: u64,
    /// Ended without an error.
    pub ok: u64,
    /// Ended with a failure.
    pub failed: u64,
    /// Cancelled because the fleet was stopping.
    pub cancelled: u64,
    /// Ended by a panic.
    pub panicked: u64,
}

/// A task or phase that ended, as recorded by the worker itself. A moment is a pair of times in
/// nanoseconds since the Unix epoch: right before and right after the call to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetEvent {
    /// Name of the phase; `None` for a task.
    pub phase: Option<String>,
    /// Name of the task; `None` for a phase, which belongs to its thread's task.
    pub task: Option<String>,
    /// Key of the task.
    pub key: Option<String>,
    /// The operating system's id of the thread.
    pub thread_id: i32,
    /// Time in a queue before the start.
    pub queued_ns: Option<u64>,
    /// Start.
    pub start_ns: (u64, u64),
    /// End.
    pub stop_ns: (u64, u64),
}

/// The record under construction, shared by a worker's threads.
#[derive(Debug)]
pub(crate) struct Recorder {
    record: Mutex<WorkerRecord>,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    folder: PathBuf,
    events: Mutex<BufWriter<File>>,
}

impl Recorder {
    pub(crate) fn new(worker: String) -> Self {
        let record = Mutex::new(WorkerRecord {
            worker,
            ..WorkerRecord::default()
        });
        Self {
            record,
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
            log: None,
        }
    }

    /// Creates a record that also writes each event to a file in `folder`.
    pub(crate) fn with_log(worker: String, folder: &Path) -> io::Result<Self> {
        let file = File::create(folder.join(format!("{worker}.jsonl")))?;
        let log = Log {
            folder: folder.to_owned(),
            events: Mutex::new(BufWriter::new(file)),
        };
        Ok(Self {
            log: Some(log),
            ..Self::new(worker)
        })
    }

    /// Writes the buffered part of the log, and the record.
    pub(crate) fn finish_log(&self) -> io::Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        log.events
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flush()?;
        let record = self.snapshot();
        let path = log.folder.join(format!("{}.json", record.worker));
        std::fs::write(path, serde_json::to_vec(&record)?)
    }

    fn log(&self, event: &FleetEvent) {
        let Some(log) = &self.log else { return };
        let Ok(line) = serde_json::to_string(event) else {
            return;
        };
        // The reader of the file detects a missing event.
        let _ = writeln!(
            log.events.lock().unwrap_or_else(PoisonError::into_inner),
            "{line}"
        );
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Relaxed);
    }

    /// Logs one line to stderr and into the record.
    pub(crate) fn note(&self, line: String) {
        let mut record = self.lock();
        // Not `eprintln`: it panics when stderr is closed, as after a terminal has gone.
        let _ = writeln!(std::io::stderr(), "{}: {line}", record.worker);
        if record.notes.len() < NOTES_MAX {
            record.notes.push(line);
        }
    }

    pub(crate) fn snapshot(&self) -> WorkerRecord {
        WorkerRecord {
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            ..self.lock().clone()
        }
    }

    fn count(&self, name: &'static str, change: impl FnOnce(&mut TaskCounts)) {
        let mut record = self.lock();
        match record.tasks.get_mut(name) {
            Some(counts) => change(counts),
            None => change(record.tasks.entry(name.to_owned()).or_default()),
        }
    }

    /// Counts stay true after a panic elsewhere, so a poisoned lock is used anyway.
    fn lock(&self) -> MutexGuard<'_, WorkerRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One task, reported to the agent and counted in our own record.
#[must_use]
pub(crate) struct Task {
    /// Taken when the task ends, so that dropping it afterwards counts nothing.
    guard: Option<emberline_agent::TaskGuard>,
    recorder: Arc<Recorder>,
    name: &'static str,
    key: String,
    queued_ns: Option<u64>,
    start_ns: (u64, u64),
}

impl Task {
    /// `queued`: start of its wait for a thread.
    pub(crate) fn start(
        recorder: &Arc<Recorder>,
        name: &'static str,
        key: String,
        queued: Option<Instant>,
    ) -> Self {
        recorder.count(name, |counts| counts.started += 1);
        let task = emberline_agent::task(name).key(key.clone());
        let before_ns = now_ns();
        let queued_ns = queued.map(|since| since.elapsed().as_nanos() as u64);
        let guard = match queued {
            Some(since) => task.queued_since(since).start(),
            None => task.start(),
        };
        let start_ns = (before_ns, now_ns());
        Self {
            guard: Some(guard),
            recorder: Arc::clone(recorder),
            name,
            key,
            queued_ns,
            start_ns,
        }
    }

    /// Reports the task's result.
    pub(crate) fn result(&mut self, bytes: u64, type_name: &'static str) {
        if let Some(guard) = &mut self.guard {
            guard.result_bytes(bytes);
            guard.result_type(type_name);
        }
    }

    /// Ends the task as failed.
    pub(crate) fn fail(mut self, cause: impl Display) {
        self.end(|guard| guard.fail(cause), |counts| counts.failed += 1);
    }

    /// Ends the task as cancelled.
    pub(crate) fn cancel(mut self) {
        self.end(emberline_agent::TaskGuard::cancel, |counts| {
            counts.cancelled += 1
        });
    }

    /// Ends the task and counts it, once.
    fn end(
        &mut self,
        end: impl FnOnce(emberline_agent::TaskGuard),
        count: impl FnOnce(&mut TaskCounts),
    ) {
        let Some(guard) = self.guard.take() else {
            return;
        };
        let before_ns = now_ns();
        end(guard);
        let stop_ns = (before_ns, now_ns());
        self.recorder.count(self.name, count);
        self.recorder.log(&FleetEvent {
            phase: None,
            task: Some(self.name.to_owned()),
            key: Some(std::mem::take(&mut self.key)),
            thread_id: nix::unistd::gettid().as_raw(),
            queued_ns: self.queued_ns,
            start_ns: self.start_ns,
            stop_ns,
        });
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end(drop, |counts| {
            if std::thread::panicking() {
                counts.panicked += 1;
            } else {
                counts.ok += 1;
            }
        });
    }
}

/// One phase, reported to the agent and to our own log.
#[must_use]
pub(crate) struct PhaseSpan {
    guard: Option<emberline_agent::PhaseGuard>,
    recorder: Arc<Recorder>,
    name: String,
    start_ns: (u64, u64),
}

impl PhaseSpan {
    pub(crate) fn start(recorder: &Arc<Recorder>, phase: Phase<'static>) -> Self {
        let before_ns = now_ns();
        let guard = Some(emberline_agent::phase(phase));
        let start_ns = (before_ns, now_ns());
        let name = phase.name().to_owned();
        Self {
            guard,
            recorder: Arc::clone(recorder),
            name,
            start_ns,
        }
    }
}

impl Drop for PhaseSpan {
    fn drop(&mut self) {
        let before_ns = now_ns();
        drop(self.guard.take());
        self.recorder.log(&FleetEvent {
            phase: Some(std::mem::take(&mut self.name)),
            task: None,
            key: None,
            thread_id: nix::unistd::gettid().as_raw(),
            queued_ns: None,
            start_ns: self.start_ns,
            stop_ns: (before_ns, now_ns()),
        });
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way to end a task is counted once, under its own outcome.
    #[test]
    fn every_task_is_counted_once_by_its_outcome() {
        let recorder = Arc::new(Recorder::new("worker-0".into()));
        drop(Task::start(&recorder, "qr", "qr-0".into(), None));
        Task::start(&recorder, "qr", "qr-1".into(), None).fail("why");
        Task::start(&recorder, "qr", "qr-2".into(), None).cancel();
        let panicking = Arc::clone(&recorder);
        let ended = std::thread::spawn(move || {
            let _task = Task::start(&panicking, "qr", "qr-3".into(), None);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(ended.join().is_err());
        let expected = TaskCounts {
            started: 4,
            ok: 1,
            failed: 1,
            cancelled: 1,
            panicked: 1,
        };
        assert_eq!(
            recorder.snapshot().tasks,
            BTreeMap::from([("qr".to_owned(), expected)])
        );
    }
}
