//! The collector as a separate process: started, measured, killed.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::agent::lock;

/// Longest wait for the collector to listen, and for it to end after a request: on a busy machine
/// it may have minutes of backdated data to seal.
const START_MAX: Duration = Duration::from_secs(600);

/// Last lines of its log, kept for an error.
const LOG_LINES_MAX: usize = 40;

/// How to start a collector.
#[derive(Clone, Debug)]
pub struct Serve {
    /// The `emberline` binary.
    pub program: PathBuf,
    /// Arguments after `serve --listen 127.0.0.1:0`.
    pub arguments: Vec<String>,
    /// Further variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Log filter, as in `EMBERLINE_LOG`.
    pub log: &'static str,
    /// Pins it to this CPU.
    pub processor: Option<usize>,
}

impl Serve {
    /// A collector without extra arguments.
    #[must_use]
    pub fn new(program: &Path) -> Serve {
        Serve {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            log: "warn",
            processor: None,
        }
    }

    /// Whether `serve` accepts these arguments, including hidden ones: it rejects an unknown one
    /// before it shows its help.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn takes(&self, arguments: &[&str]) -> Result<bool> {
        let mut command = Command::new(&self.program);
        command.arg("serve").args(arguments).arg("--help");
        let output = command
            .stdin(Stdio::null())
            .output()
            .with_context(|| self.missing())?;
        Ok(output.status.success())
    }

    fn missing(&self) -> String {
        format!(
            "starting {}: run `cargo xtask test --only build` first",
            self.program.display()
        )
    }

    /// Starts it without waiting.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self) -> Result<Process> {
        let mut command = Command::new(&self.program);
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("EMBERLINE_LOG", self.log)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let begin = Instant::now();
        let mut child = match self.processor {
            None => command.spawn(),
            Some(processor) => spawn_on(&mut command, processor)?,
        }
        .with_context(|| self.missing())?;
        let stderr = child.stderr.take().context("its stderr is a pipe")?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, address) = channel();
        let lines = log.clone();
        let reader = std::thread::spawn(move || {
            let mut panics = 0;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some(address) = address_in(&line) {
                    // No receiver is left if the process was killed first.
                    let _ = sender.send(address);
                }
                panics += usize::from(line.contains("panicked at"));
                let mut lines = lock(&lines);
                if lines.len() == LOG_LINES_MAX {
                    lines.pop_front();
                }
                lines.push_back(line);
            }
            panics
        });
        Ok(Process {
            child,
            begin,
            address,
            log,
            reader: Some(reader),
        })
    }

    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// If it does not get that far.
    pub fn start(&self) -> Result<Running> {
        self.spawn()?.listening()
    }
}

/// Threads and processes inherit their CPU affinity: a separate thread starts the process, so that
/// ours keep theirs.
fn spawn_on(command: &mut Command, processor: usize) -> Result<std::io::Result<Child>> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut set = CpuSet::new();
            set.set(processor)?;
            sched_setaffinity(Pid::from_raw(0), &set)?;
            anyhow::Ok(command.spawn())
        });
        thread.join().expect("it does not panic")
    })
}

/// The last CPU that this process may use.
#[must_use]
pub fn last_processor() -> Option<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
    (0..CpuSet::count())
        .rev()
        .find(|index| set.is_set(*index).unwrap_or(false))
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let said_on = ["collector on http", "reader on http"];
    let (_, rest) = said_on.iter().find_map(|said| line.split_once(said))?;
    let rest = rest.trim_start_matches('s').strip_prefix("://")?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || ".:".contains(c)));
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// A collector that may not listen yet; killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    begin: Instant,
    address: Receiver<SocketAddr>,
    log: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<usize>>,
}

/// A collector that listens.
#[derive(Debug)]
pub struct Running {
    /// The process.
    pub process: Process,
    /// Its address.
    pub address: SocketAddr,
    /// Time from its start until it listened.
    pub took: Duration,
}

impl Process {
    /// Waits until it listens.
    ///
    /// # Errors
    /// If it ends first or takes longer than two minutes; with the end of its log.
    pub fn listening(self) -> Result<Running> {
        match self.address.recv_timeout(START_MAX) {
            Ok(address) => Ok(Running {
                took: self.begin.elapsed(),
                address,
                process: self,
            }),
            Err(_) => bail!(
                "the collector does not listen; end of its log:\n{}",
                self.log()
            ),
        }
    }

    /// Whether it has printed its address, which [`Process::listening`] then does not.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.address.try_recv().is_ok()
    }

    /// The end of its log.
    #[must_use]
    pub fn log(&self) -> String {
        let lines = lock(&self.log);
        lines
            .iter()
            .fold(String::new(), |text, line| text + "  " + line + "\n")
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// If it had ended by itself.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.check_alive()?;
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?;
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                bail!(
                    "the collector ended by itself ({status}); end of its log:\n{}",
                    self.log()
                )
            }
        }
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// If it had ended by itself, or panicked before.
    pub fn kill(mut self) -> Result<()> {
        self.check_alive()?;
        self.child.kill()?;
        self.child.wait()?;
        self.had_no_panic()
    }

    /// Ends it with SIGINT, and waits.
    ///
    /// # Errors
    /// If it does not end successfully.
    pub fn stop(mut self) -> Result<Duration> {
        let begin = Instant::now();
        kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            Signal::SIGTERM,
        )?;
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > START_MAX {
                bail!(
                    "the collector does not shut down; end of its log:\n{}",
                    self.log()
                );
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        let took = begin.elapsed();
        let status = self.child.wait()?;
        if !status.success() {
            bail!(
                "the collector failed ({status}); end of its log:\n{}",
                self.log()
            );
        }
        self.had_no_panic()?;
        Ok(took)
    }

    fn had_no_panic(&mut self) -> Result<()> {
        let panics = self
            .reader
            .take()
            .map_or(0, |reader| reader.join().unwrap_or(1));
        match panics {
            0 => Ok(()),
            _ => bail!("the collector panicked; end of its log:\n{}", self.log()),
        }
    }

    /// Its resource usage so far.
    ///
    /// # Errors
    /// If it has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id())
    }

    /// CPU time of its threads of that name that still run.
    ///
    /// # Errors
    /// If it has ended.
    pub fn thread_cpu(&self, name: &str) -> Result<Duration> {
        let threads = format!("/proc/{}/task", self.child.id());
        let mut sum = Duration::ZERO;
        for thread in fs::read_dir(&threads).with_context(|| threads.clone())? {
            let path = thread?.path();
            // A thread that ends meanwhile counts as none.
            let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
            if read("comm").trim_end() == name {
                let on_cpu_ns = read("schedstat")
                    .split(' ')
                    .next()
                    .and_then(|ns| ns.parse().ok());
                sum += Duration::from_nanos(on_cpu_ns.unwrap_or(0));
            }
        }
        Ok(sum)
    }

    /// Bytes that it wrote so far, to files and pipes; 0 if it has ended.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/io", self.child.id())).unwrap_or_default();
        field(&text, "wchar:").unwrap_or(0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resource usage of a process since its start.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// CPU time.
    pub cpu: Duration,
    /// Peak memory.
    pub memory_peak_bytes: u64,
    /// Current memory.
    pub memory_bytes: u64,
    /// Bytes written to disks.
    pub written_bytes: u64,
}

impl Usage {
    /// Of this process.
    ///
    /// # Errors
    /// If its clock or `/proc` cannot be read.
    pub fn own() -> Result<Usage> {
        Usage::of(std::process::id())
    }

    /// Of the process with that id.
    ///
    /// # Errors
    /// If its clock or `/proc` cannot be read, for example because the process has ended.
    pub fn of(id: u32) -> Result<Usage> {
        let read = |file: &str| {
            let path = format!("/proc/{id}/{file}");
            fs::read_to_string(&path).with_context(|| path)
        };
        let status = read("status")?;
        let io = read("io")?;
        Ok(Usage {
            cpu: cpu_time(id)?,
            memory_peak_bytes: field(&status, "VmHWM:").unwrap_or(0) << 10,
            memory_bytes: field(&status, "VmRSS:").unwrap_or(0) << 10,
            written_bytes: field(&io, "write_bytes:").unwrap_or(0),
        })
    }
}

/// User and system time, also of threads that have ended.
fn cpu_time(id: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(id.cast_signed()))?;
    Ok(clock.now()?.into())
}

fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Bytes of all files below a directory.
///
/// # Errors
/// If a directory cannot be read; a file that vanishes meanwhile is not an error.
pub fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes += folder_bytes(&entry.path())?,
            Ok(metadata) => bytes += metadata.len(),
            Err(_) => {}
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_status_is_parsed() {
        assert_eq!(
            field("VmPeak:\t 9 kB\nVmHWM:\t 12 kB\n", "VmHWM:"),
            Some(12)
        );
        let own = Usage::own().unwrap();
        assert!(own.memory_peak_bytes > 1 << 20, "{own:?}");
        assert!(own.cpu > Duration::ZERO, "{own:?}");
    }

    #[test]
    fn the_address_is_parsed_from_the_first_line() {
        let line = "collector on http://127.0.0.1:4747; agents report there";
        assert_eq!(address_in(line), Some("127.0.0.1:4747".parse().unwrap()));
        assert_eq!(
            address_in("open http://127.0.0.1:4747/api/v1/profile"),
            None
        );
    }
}
