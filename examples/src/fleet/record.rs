//! A worker's own bookkeeping, kept apart from the agent: what the agent reports can be checked
//! against it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Lines a worker keeps of what it logged; what comes later goes to stderr only.
const NOTES_MAX: usize = 64;

/// What a worker says that it did: the last line of its stdout, as JSON.
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
    /// What the worker logged, oldest first, at most 64 lines.
    pub notes: Vec<String>,
}

/// How many tasks of one name were started, and how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// After a worker's end, the sum of the others.
    pub started: u64,
    /// Ended without a complaint.
    pub ok: u64,
    /// Ended with a cause of failure.
    pub erred: u64,
    /// Given up because the fleet was told to stop.
    pub cancelled: u64,
    /// Ended by a panic.
    pub panicked: u64,
}

/// The record while it is being written, shared by a worker's threads.
#[derive(Debug)]
pub(crate) struct Recorder {
    record: Mutex<WorkerRecord>,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

impl Recorder {
    pub(crate) fn new(worker: String) -> Self {
        let record = Mutex::new(WorkerRecord { worker, ..WorkerRecord::default() });
        Self { record, bytes_sent: AtomicU64::new(0), bytes_received: AtomicU64::new(0) }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Relaxed);
    }

    /// Logs one line: to stderr for whoever watches, and into the record.
    pub(crate) fn note(&self, line: String) {
        let mut record = self.lock();
        // Not `eprintln`: it panics when stderr is closed, as it is once a terminal has gone.
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

    /// A panic elsewhere leaves counts that are still true, so a poisoned lock is no obstacle.
    fn lock(&self) -> MutexGuard<'_, WorkerRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One task, told to the agent and counted in our own record.
#[must_use]
pub(crate) struct Task {
    /// Taken when the task ends, so that dropping it afterwards counts nothing.
    guard: Option<agent::TaskGuard>,
    recorder: Arc<Recorder>,
    name: &'static str,
}

impl Task {
    pub(crate) fn start(recorder: &Arc<Recorder>, name: &'static str, key: String) -> Self {
        recorder.count(name, |counts| counts.started += 1);
        let guard = Some(agent::task(name).key(key).start());
        Self { guard, recorder: Arc::clone(recorder), name }
    }

    /// Ends the task as erred.
    pub(crate) fn fail(mut self, cause: impl Display) {
        if let Some(guard) = self.guard.take() {
            guard.fail(cause);
            self.recorder.count(self.name, |counts| counts.erred += 1);
        }
    }

    /// Ends the task as cancelled.
    pub(crate) fn cancel(mut self) {
        if let Some(guard) = self.guard.take() {
            guard.cancel();
            self.recorder.count(self.name, |counts| counts.cancelled += 1);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            drop(guard);
            self.recorder.count(self.name, |counts| match std::thread::panicking() {
                true => counts.panicked += 1,
                false => counts.ok += 1,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way to end a task is counted once, under its own outcome.
    #[test]
    fn every_task_is_counted_once_by_its_outcome() {
        let recorder = Arc::new(Recorder::new("worker-0".into()));
        drop(Task::start(&recorder, "qr", "qr-0".into()));
        Task::start(&recorder, "qr", "qr-1".into()).fail("why");
        Task::start(&recorder, "qr", "qr-2".into()).cancel();
        let panicking = Arc::clone(&recorder);
        let ended = std::thread::spawn(move || {
            let _task = Task::start(&panicking, "qr", "qr-3".into());
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(ended.join().is_err());
        let expected = TaskCounts { started: 4, ok: 1, erred: 1, cancelled: 1, panicked: 1 };
        assert_eq!(recorder.snapshot().tasks, BTreeMap::from([("qr".to_owned(), expected)]));
    }
}
