//! A real worker, with the real agent.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Longest wait for a worker's end: it flushes for up to a minute.
const END_MAX: Duration = Duration::from_secs(240);
const POLL_EVERY: Duration = Duration::from_millis(20);

/// A running worker; killed when it is dropped.
pub(super) struct Worker {
    pub(super) id: String,
    child: Child,
}

/// A worker's own account.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Tasks that it ran.
    pub(super) tasks: u64,
    pub(super) accepted_ns: u64,
    /// Acknowledged.
    pub(super) stored_ns: u64,
    pub(super) unacked_ns: u64,
    /// All that counts as lost: time, and tasks.
    pub(super) lost: u64,
}

impl Record {
    fn parse(text: &str) -> Result<Record> {
        let record: Value = serde_json::from_str(text)?;
        let report = &record["report"];
        let mut lost = 0;
        for name in [
            "lost_rejected_ns",
            "lost_by_collector_ns",
            "lost_queue_ns",
            "lost_tasks",
            "aggregated_tasks",
        ] {
            lost += number(report, name)?;
        }
        Ok(Record {
            tasks: number(&record, "tasks")?,
            accepted_ns: number(report, "accepted_ns")?,
            stored_ns: number(report, "stored_ns")?,
            unacked_ns: number(report, "unacked_ns")?,
            lost,
        })
    }
}

/// A number of an answer or a record.
pub(super) fn number(value: &Value, name: &str) -> Result<u64> {
    value[name]
        .as_u64()
        .with_context(|| format!("no number {name} in {value}"))
}

impl Worker {
    pub(super) fn start(program: &Path, id: String, urls: &str) -> Result<Worker> {
        let child = Command::new(program)
            .args(["patient", &id, urls])
            .env("EMBERLINE_LOG", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Worker { id, child })
    }

    /// Closes its input, so that it flushes and ends.
    pub(super) fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Waits for its end and returns its record.
    pub(super) fn record(&mut self) -> Result<Record> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begin.elapsed() > END_MAX {
                bail!("{} does not end within {END_MAX:?}", self.id);
            }
            std::thread::park_timeout(POLL_EVERY);
        };
        if !status.success() {
            bail!("{} failed ({status})", self.id);
        }
        let mut text = String::new();
        // A line, which the pipe holds.
        self.child
            .stdout
            .take()
            .context("it is read once")?
            .read_to_string(&mut text)?;
        Record::parse(&text).with_context(|| format!("the record of {}: {text}", self.id))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
