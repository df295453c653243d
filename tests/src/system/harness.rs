//! Starts and queries the real programs. Every process ends with its test.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(90);

/// Longest life of a process, so that a blocking read of its output ends too.
const PROCESS_MAX: Duration = Duration::from_secs(300);

/// The worker as built, with symbols and line tables.
pub(crate) const TEST_WORKER: &str = env!("CARGO_BIN_EXE_test-worker");

/// Names the program to test, with other features than the shipped one.
const PROGRAM_VARIABLE: &str = "EMBERLINE_TEST_PROGRAM";

/// The shipped binary, which `cargo xtask test` builds first.
pub(crate) fn emberline() -> PathBuf {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return path.into();
    }
    let worker = PathBuf::from(TEST_WORKER);
    let path = worker.with_file_name("emberline");
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask test --only build` first",
        path.display()
    );
    path
}

/// Reserves the machine for one test at a time, if its figures or deadlines depend on it.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    // A test that failed while holding the lock left nothing behind.
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `emberline` with these arguments to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    output(
        Command::new(emberline())
            .args(arguments)
            .env_remove("EMBERLINE_URL")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null()),
    )
}

/// Runs a command to its end; kills it after [`PROCESS_MAX`].
pub(crate) fn output(command: &mut Command) -> Output {
    try_output(command).unwrap()
}

/// Like [`output`], for a program that may be missing.
pub(crate) fn try_output(command: &mut Command) -> io::Result<Output> {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let _watchdog = Watchdog::of(&child);
    child.wait_with_output()
}

/// Kills a process that lives longer than [`PROCESS_MAX`], unless it is dropped before.
struct Watchdog {
    _cancel: Sender<()>,
}

impl Watchdog {
    fn of(child: &Child) -> Watchdog {
        let pid = Pid::from_raw(child.id().cast_signed());
        let (cancel, canceled) = mpsc::channel();
        thread::spawn(move || {
            if canceled.recv_timeout(PROCESS_MAX) == Err(RecvTimeoutError::Timeout) {
                // It fails if the process has just ended.
                let _ = kill(pid, Signal::SIGKILL);
            }
        });
        Watchdog { _cancel: cancel }
    }
}

/// Polls until `answer` returns a value.
pub(crate) fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        // Paces queries to another process; does not replace one.
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// A running process; killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    _watchdog: Watchdog,
}

impl Running {
    /// A process that is killed after [`PROCESS_MAX`].
    pub(crate) fn new(child: Child) -> Running {
        let _watchdog = Watchdog::of(&child);
        Running { child, _watchdog }
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id().cast_signed()), signal).unwrap();
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words of an output, whose long lines are wrapped.
pub(crate) fn unwrapped(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where a collector listens that is started again at its address. Meanwhile no client's socket takes its port: those are
/// at 127.0.0.1.
pub(crate) const RESTARTABLE: &str = "127.0.0.2:0";

/// A collector of the test's own.
pub(crate) struct Collector {
    pub(crate) process: Running,
    pub(crate) address: String,
    log: Arc<Mutex<String>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let collector = Collector::start_at("127.0.0.1:0");
        let log = collector.log();
        let first = log.lines().find(|line| !line.contains(" INFO "));
        assert_eq!(
            first,
            Some(&*format!("Open {} in a browser", collector.url())),
            "{log}"
        );
        collector
    }

    /// Starts `emberline serve` and reads its address from its first lines.
    pub(crate) fn start_at(listen: &str) -> Collector {
        Collector::start_with(&["--listen", listen])
    }

    /// Like `start_at`, with its data in `folder`.
    pub(crate) fn start_with_data(listen: &str, folder: &Path) -> Collector {
        Collector::start_with(&["--listen", listen, "--data", folder.to_str().unwrap()])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Collector {
        Collector::start_by(Command::new(emberline()).arg("serve").args(arguments))
    }

    /// Like `start_with`, in a process that may have this many descriptors.
    pub(crate) fn start_with_descriptors(descriptors: u64, arguments: &[&str]) -> Collector {
        let script = format!("ulimit -n {descriptors} && exec \"$0\" serve \"$@\"");
        Collector::start_by(
            Command::new("sh")
                .arg("-c")
                .arg(script)
                .arg(emberline())
                .args(arguments),
        )
    }

    /// Like `start_with`, with a command that ends with `serve` and its options.
    pub(crate) fn start_by(command: &mut Command) -> Collector {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let process = Running::new(child);
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(
                lines.read_line(&mut line).unwrap() > 0,
                "no address in:\n{said}"
            );
            said += &line;
            let said_on = ["collector on ", "reader on "];
            let rest = said_on
                .iter()
                .find_map(|said| Some(line.split_once(said)?.1));
            let url = rest.and_then(|rest| rest.split_once(';'));
            if let Some((url, _)) = url {
                break url
                    .split_once("://")
                    .map_or(url, |(_, address)| address)
                    .to_owned();
            }
        };
        // Keeps reading, or the collector would eventually block on a full pipe.
        let log = Arc::new(Mutex::new(said));
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                *kept += &line;
                kept.push('\n');
            }
        });
        Collector {
            process,
            address,
            log,
        }
    }

    /// Its stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `GET path`: status and body, whatever the status.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.url(), path)
    }

    /// `GET path` as JSON; must succeed.
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Every epoch of every worker.
    pub(crate) fn epochs(&self) -> Vec<Value> {
        let answer = self.json("/api/v1/workers");
        let workers = answer["workers"].as_array().unwrap();
        workers
            .iter()
            .flat_map(|worker| worker["epochs"].as_array().unwrap().clone())
            .collect()
    }
}

pub(crate) fn get(url: &str, path: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .build()
        .into();
    let mut response = agent.get(format!("{url}{path}")).call().unwrap();
    let mut body = String::new();
    response
        .body_mut()
        .as_reader()
        .read_to_string(&mut body)
        .unwrap();
    (response.status().as_u16(), body)
}

/// `GET path`: the body, which may be binary.
pub(crate) fn get_bytes(url: &str, path: &str) -> Vec<u8> {
    let mut response = ureq::get(format!("{url}{path}")).call().unwrap();
    response.body_mut().read_to_vec().unwrap()
}

/// A `test-worker` in one of its modes.
pub(crate) struct Worker {
    pub(crate) process: Running,
    stdin: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
    /// Its log, to read when the worker has ended.
    log: std::process::ChildStderr,
}

impl Worker {
    pub(crate) fn start(mode: &str, id: &str, url: &str, rest: &[&str]) -> Worker {
        Worker::start_copy(Path::new(TEST_WORKER), mode, id, url, rest)
    }

    /// Starts another file that holds the same program.
    pub(crate) fn start_copy(
        program: &Path,
        mode: &str,
        id: &str,
        url: &str,
        rest: &[&str],
    ) -> Worker {
        Worker::start_by(Command::new(program).args([mode, id, url]).args(rest))
    }

    /// Starts a worker whose token is in this file, which may not exist yet.
    pub(crate) fn start_with_token(mode: &str, id: &str, url: &str, token: &Path) -> Worker {
        let mut command = Command::new(TEST_WORKER);
        Worker::start_by(
            command
                .args([mode, id, url])
                .env("EMBERLINE_TOKEN_FILE", token),
        )
    }

    /// Starts a worker by a command that may have variables of its own.
    pub(crate) fn start_by(command: &mut Command) -> Worker {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let log = child.stderr.take().unwrap();
        Worker {
            process: Running::new(child),
            stdin,
            output,
            log,
        }
    }

    /// Waits for its next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Closes its input.
    pub(crate) fn end_input(&mut self) {
        drop(self.stdin.take());
    }

    /// Closes its input, waits for its end, and returns its record.
    pub(crate) fn finish(self) -> Value {
        self.finish_with_log().0
    }

    /// Like `finish`, with its whole log.
    pub(crate) fn finish_with_log(mut self) -> (Value, String) {
        self.end_input();
        let record = self.line();
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        assert!(self.process.wait().success(), "{log}");
        (serde_json::from_str(&record).unwrap(), log)
    }
}

/// A number of a JSON record.
pub(crate) fn number(record: &Value, field: &str) -> u64 {
    record[field]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {field} in {record}"))
}
