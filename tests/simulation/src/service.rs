//! A process of somebody else's program that serves until it is stopped.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longest wait until a process is ready, on a busy machine.
const READY_MAX: Duration = Duration::from_secs(120);

/// Time between SIGTERM and SIGKILL: workers end their tasks, collectors write what is in memory.
const TERMINATION_MAX: Duration = Duration::from_secs(40);

/// Pause between two looks at a process.
const POLL: Duration = Duration::from_millis(50);

/// Lines of a log that an error shows.
const LOG_LINES_SHOWN: usize = 20;

/// A process; killed when it is dropped.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts it, with its output in a file of this folder.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(name: &str, mut command: Command, folder: &Path) -> Result<Service> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C in a terminal goes to the whole group; we end each part in its turn.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(Service {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it ended before, or does not end.
    pub fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended by itself ({status}):\n{}",
                self.name,
                self.end_of_log()
            );
        }
        kill(
            Pid::from_raw(self.child.id().cast_signed()),
            Signal::SIGTERM,
        )?;
        let begin = Instant::now();
        while self.is_running() {
            if begin.elapsed() > TERMINATION_MAX {
                bail!(
                    "{} does not end, and is killed:\n{}",
                    self.name,
                    self.end_of_log()
                );
            }
            std::thread::park_timeout(POLL);
        }
        Ok(())
    }

    /// Waits until `/readyz` at this port says that it is ready.
    ///
    /// # Errors
    /// If it ends, or takes too long.
    pub fn ready_by_http(&mut self, port: u16) -> Result<()> {
        let url = format!("http://127.0.0.1:{port}/readyz");
        self.wait_until(|| ureq::get(&url).call().is_ok())
    }

    /// Waits until it accepts connections at this port.
    ///
    /// # Errors
    /// If it ends, or takes too long.
    pub fn ready_by_tcp(&mut self, port: u16) -> Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        self.wait_until(|| TcpStream::connect_timeout(&address, POLL).is_ok())
    }

    fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<()> {
        let begin = Instant::now();
        while !is_ready() {
            if !self.is_running() || begin.elapsed() > READY_MAX {
                bail!("{} does not get ready:\n{}", self.name, self.end_of_log());
            }
            std::thread::park_timeout(POLL);
        }
        Ok(())
    }

    fn end_of_log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
