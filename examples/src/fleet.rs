//! A fleet of worker processes on this machine, as `emberline demo` starts it.
//!
//! ```text
//! Fleet::spawn ─▶ N × worker_main    each prints its addresses
//!              ─▶ roster ─▶ stdin    each joins its group and works
//! Fleet::stop  ─▶ close stdin        each ends its tasks, flushes its agent, prints its record
//! ```
//! A closed stdin is the request to stop, so that the fleet ends with its parent however the parent
//! ends.

pub(crate) mod context;
pub(crate) mod link;
mod pace;
pub(crate) mod pool;
mod record;
mod worker;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use emberline_profiler_core::Token;

pub use record::{FleetEvent, LOG_VARIABLE, TaskCounts, WorkerRecord};
pub use worker::worker_main;
use worker::{Addresses, Roster, WORKERS_MAX, WORKERS_MIN};

/// Time for a new process to print its addresses.
const READY_WAIT: Duration = Duration::from_secs(30);
/// Time for a worker to end its tasks and flush its agent; then it is killed.
const STOP_WAIT: Duration = Duration::from_secs(15);
const STOP_POLL: Duration = Duration::from_millis(10);
/// Environment variables from which an agent takes its token.
const TOKEN_VARIABLE: &str = "EMBERLINE_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "EMBERLINE_TOKEN_FILE";
/// Bytes kept of a worker's stdout; a record is a few KB.
const STDOUT_BYTES_MAX: u64 = 1 << 20;

/// Options of a fleet.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// The program that a worker process runs; it must end in [`worker_main`].
    pub exe: PathBuf,
    /// Arguments before `--index I --workers N --collector URL`.
    pub args: Vec<String>,
    /// Number of workers, 4 to 64: half of them compute, the others handle data.
    pub workers: usize,
    /// Collector URL for the agents.
    pub collector: String,
    /// Token for the agents, in their environment; `None`: that of this process.
    pub token: Option<Token>,
    /// Seed of the random matrices.
    pub seed: u64,
}

impl FleetOptions {
    /// Four workers that run `exe fleet-worker`.
    pub fn new(exe: impl Into<PathBuf>, collector: impl Into<String>) -> Self {
        let args = vec!["fleet-worker".to_owned()];
        Self {
            exe: exe.into(),
            args,
            workers: 4,
            collector: collector.into(),
            token: None,
            seed: 0,
        }
    }
}

/// Running worker processes. Dropping it without [`Fleet::stop`] kills them.
#[derive(Debug)]
pub struct Fleet {
    workers: Vec<Worker>,
}

/// How a worker ended.
#[derive(Debug)]
pub struct WorkerSummary {
    /// The worker's number: it reported as `worker-<index>`.
    pub index: usize,
    /// Its process id; the process has ended.
    pub pid: u32,
    /// Success, unless a result was wrong or the process died.
    pub status: ExitStatus,
    /// Whether it had to be killed.
    pub was_killed: bool,
    /// The worker's own record; `None` if it died before it could print one.
    pub record: Option<WorkerRecord>,
}

impl Fleet {
    /// Starts the workers and returns once all of them know each other.
    ///
    /// # Errors
    /// If the number of workers is out of range, or if a process could not be started or did not
    /// become ready; then none is left running.
    pub fn spawn(options: FleetOptions) -> anyhow::Result<Self> {
        let workers = options.workers;
        if !(WORKERS_MIN..=WORKERS_MAX).contains(&workers) {
            bail!("{workers} workers asked for; {WORKERS_MIN} to {WORKERS_MAX} are allowed");
        }
        let mut fleet = Self {
            workers: Vec::with_capacity(workers),
        };
        for index in 0..workers {
            fleet.workers.push(Worker::spawn(&options, index)?);
        }
        let addresses = fleet
            .workers
            .iter()
            .map(Worker::addresses)
            .collect::<Result<_, _>>()?;
        let roster = Roster {
            seed: options.seed,
            workers: addresses,
        };
        let mut line = serde_json::to_string(&roster)?;
        line.push('\n');
        for worker in &mut fleet.workers {
            let stdin = worker
                .stdin
                .as_mut()
                .context("stdin was closed before the start")?;
            stdin
                .write_all(line.as_bytes())
                .with_context(|| format!("worker {} died when it was started", worker.index))?;
        }
        Ok(fleet)
    }

    /// The process ids of the workers, in the order of their numbers.
    pub fn pids(&self) -> Vec<u32> {
        self.workers
            .iter()
            .map(|worker| worker.child.id())
            .collect()
    }

    /// Asks all workers to stop and waits for them. Work in progress takes up to 2 s; a worker that
    /// is not done after 15 s is killed.
    ///
    /// # Errors
    /// If the operating system cannot report how a process ended.
    pub fn stop(mut self) -> anyhow::Result<Vec<WorkerSummary>> {
        for worker in &mut self.workers {
            worker.stdin = None;
        }
        let deadline = Instant::now() + STOP_WAIT;
        self.workers
            .drain(..)
            .map(|worker| worker.finish(deadline))
            .collect()
    }
}

/// One process, as its parent sees it.
#[derive(Debug)]
struct Worker {
    index: usize,
    child: Child,
    /// Open while the worker should work.
    stdin: Option<ChildStdin>,
    ready: Receiver<String>,
    /// Reads stdout to its end and returns the last line.
    stdout: Option<JoinHandle<String>>,
}

impl Worker {
    fn spawn(options: &FleetOptions, index: usize) -> anyhow::Result<Self> {
        let mut command = Command::new(&options.exe);
        if let Some(token) = &options.token {
            // The file has priority.
            command
                .env_remove(TOKEN_FILE_VARIABLE)
                .env(TOKEN_VARIABLE, token.expose());
        }
        let mut child = command
            .args(&options.args)
            .args([
                "--index",
                &index.to_string(),
                "--workers",
                &options.workers.to_string(),
            ])
            .args(["--collector", &options.collector])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C goes to the terminal's whole process group. In a group of its own, a worker
            // lives to see its stdin closed and can flush.
            .process_group(0)
            .spawn()
            .with_context(|| could_not_start(&options.exe, index))?;
        let stdin = child.stdin.take();
        let (announce, ready) = mpsc::sync_channel(1);
        let stdout = child.stdout.take().context("a worker without stdout")?;
        let reader = Builder::new()
            .name(format!("stdout-{index}"))
            .spawn(move || read_lines(stdout, announce));
        let mut worker = Self {
            index,
            child,
            stdin,
            ready,
            stdout: None,
        };
        worker.stdout = Some(reader?);
        Ok(worker)
    }

    fn addresses(&self) -> anyhow::Result<Addresses> {
        let line = self.ready.recv_timeout(READY_WAIT).with_context(|| {
            format!(
                "worker {} did not become ready; its stderr may say why",
                self.index
            )
        })?;
        serde_json::from_str(&line)
            .with_context(|| format!("worker {} is no fleet worker; it said {line:?}", self.index))
    }

    fn finish(mut self, deadline: Instant) -> anyhow::Result<WorkerSummary> {
        let mut was_killed = false;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                was_killed = true;
                self.child.kill()?;
                break self.child.wait()?;
            }
            std::thread::sleep(STOP_POLL);
        };
        let last_line = self.stdout.take().and_then(|reader| reader.join().ok());
        let record = last_line.and_then(|line| serde_json::from_str(&line).ok());
        Ok(WorkerSummary {
            index: self.index,
            pid: self.child.id(),
            status,
            was_killed,
            record,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The standard library does nothing for a process that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn could_not_start(exe: &Path, index: usize) -> String {
    format!("could not start worker {index}: {}", exe.display())
}

/// Sends the first line as soon as it arrives; returns the last one.
fn read_lines(stdout: ChildStdout, announce: SyncSender<String>) -> String {
    let mut lines = BufReader::new(stdout.take(STDOUT_BYTES_MAX))
        .lines()
        .map_while(Result::ok);
    if let Some(first) = lines.next() {
        // Nobody listens if the fleet's start was given up.
        let _ = announce.send(first);
    }
    drop(announce);
    lines.last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_has_four_to_sixty_four_workers() {
        check_refused(3, "/bin/true", "3 workers asked for; 4 to 64 are allowed");
        check_refused(65, "/bin/true", "65 workers asked for; 4 to 64 are allowed");
    }

    /// A missing program, one that ends at once, and one that prints something else.
    #[test]
    fn a_fleet_of_wrong_programs_does_not_start() {
        check_refused(
            4,
            "/nowhere/emberline",
            "could not start worker 0: /nowhere/emberline",
        );
        check_refused(4, "/bin/true", "worker 0 did not become ready");
        check_refused(
            4,
            "/bin/echo",
            "worker 0 is no fleet worker; it said \"fleet-worker --index",
        );
    }

    #[test]
    fn a_worker_refuses_a_number_outside_its_fleet() {
        let error = worker_main(4, 4, "http://127.0.0.1:9")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "worker 4 of 4: a fleet has 4 to 64 workers");
    }

    fn check_refused(workers: usize, exe: &str, why: &str) {
        let options = FleetOptions {
            workers,
            ..FleetOptions::new(exe, "http://127.0.0.1:9")
        };
        let error = Fleet::spawn(options).unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}
