//! The program `emberline` as a child process.
//!
//! A thread of the agent owns it, with a descriptor table of its own, so that no pipe is among the host's
//! descriptors. The host's thread waits for that thread's replies, never for the system.
//!
//! ```text
//! host's thread ── finish ──▶ emberline-rept ── end of stdin ──▶ emberline
//!               ◀─ replies ──       ▲                                │
//!                                   └──── lines ── emberline-pipe ◀──┘ stdout, stderr
//! ```

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use super::error::ReportError;
use crate::spawn::spawn;
use system::descriptors;

/// Most time until the program has a collector.
const START_MAX: Duration = Duration::from_secs(10);

/// Most time until the report is written, once the input of the program has ended.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// Time by which the host's wait exceeds that of the thread that kills the program.
const REPLY_RESERVE: Duration = Duration::from_secs(1);

/// Most of the program's output that is read.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

/// How the program says where its collector listens.
const SOCKET_PREFIX: &str = "unix:";

/// How its last line begins if there is a report.
const WROTE_PREFIX: &str = "wrote ";

/// How its error begins, and each further line of it.
const ERROR_PREFIX: &str = "error: ";
const CAUSE_PREFIX: &str = "  ";

/// The program, as the host sees it. If it is dropped, the program ends by itself.
#[derive(Debug)]
pub(super) struct Program {
    events: Sender<Event>,
    replies: Receiver<Reply>,
}

/// Event that the thread that owns the program waits for.
#[derive(Debug)]
enum Event {
    Line(String),
    /// The program has closed its output.
    OutputEnded,
    /// The host wants the report.
    Finish,
}

#[derive(Debug)]
enum Reply {
    /// Its collector listens there.
    Listens(String),
    /// It has ended.
    Ended(Result<(), ReportError>),
}

impl Program {
    /// Starts it on a thread of its own; returns before it runs.
    pub(super) fn start(command: Command) -> Result<Program, ReportError> {
        let (events, received) = channel();
        // Both replies fit, so the thread never waits for the host.
        let (replies, received_replies) = sync_channel(2);
        let owner = Owner {
            events: events.clone(),
            received,
            replies,
        };
        let started = spawn("rept", move || owner.run(command));
        started.map_err(|source| ReportError::Start { source })?;
        Ok(Program {
            events,
            replies: received_replies,
        })
    }

    /// Waits until its collector listens; returns the URL.
    pub(super) fn url(&self) -> Result<String, ReportError> {
        match self.reply(START_MAX)? {
            Reply::Listens(url) => Ok(url),
            Reply::Ended(result) => {
                result?;
                Err(ReportError::Failed {
                    message: "it ended at once".to_owned(),
                })
            }
        }
    }

    /// Ends its standard input and waits for the report.
    pub(super) fn finish(self) -> Result<(), ReportError> {
        // Fails only if the program has ended, whose reply says why.
        let _ = self.events.send(Event::Finish);
        match self.reply(WRITE_MAX)? {
            Reply::Ended(result) => result,
            Reply::Listens(_) => self.finish(),
        }
    }

    fn reply(&self, limit: Duration) -> Result<Reply, ReportError> {
        match self.replies.recv_timeout(limit + REPLY_RESERVE) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(ReportError::TooLate { limit }),
            Err(RecvTimeoutError::Disconnected) => {
                let message = "the thread that attends to it panicked".to_owned();
                Err(ReportError::Failed { message })
            }
        }
    }
}

impl Drop for Program {
    /// Ends the program if nobody has, without waiting for it.
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.events.send(Event::Finish);
    }
}

/// The thread that owns the program.
struct Owner {
    /// For the thread that reads its output.
    events: Sender<Event>,
    received: Receiver<Event>,
    replies: SyncSender<Reply>,
}

impl Owner {
    fn run(self, command: Command) {
        // Where the system refuses it, the pipes are in the program's table.
        let _ = descriptors::leave_table();
        let Owner {
            events,
            received,
            replies,
        } = self;
        let ended = match launch(command, events) {
            Ok(running) => running.attend(&received, &replies),
            Err(error) => Err(error),
        };
        // Fails only if the host no longer waits.
        let _ = replies.send(Reply::Ended(ended));
    }
}

/// The running program and the other end of its standard input.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Its error, or else its last line.
    message: String,
    has_failed: bool,
    has_written: bool,
}

fn launch(mut command: Command, events: Sender<Event>) -> Result<Running, ReportError> {
    let program = PathBuf::from(command.get_program());
    let failed = |source| ReportError::Program { program, source };
    let spawned = UnixStream::pair().and_then(|(output, writer)| {
        let stdout = OwnedFd::from(writer.try_clone()?);
        let stderr = OwnedFd::from(writer);
        // A process group of its own: Ctrl-C ends the host, whose end is that of the program's input.
        command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        Ok((command.spawn()?, output))
    });
    // With its ends of the stream, or else the output would never end.
    drop(command);
    let (mut child, output) = spawned.map_err(failed)?;
    let stdin = child.stdin.take();
    let mut running = Running {
        child,
        stdin,
        message: String::new(),
        has_failed: false,
        has_written: false,
    };
    if let Err(source) = spawn("pipe", move || read_lines(output, &events)) {
        running.kill();
        return Err(ReportError::Start { source });
    }
    Ok(running)
}

fn read_lines(output: UnixStream, events: &Sender<Event>) {
    let lines = BufReader::new(output.take(OUTPUT_BYTES_MAX)).lines();
    for line in lines.map_while(Result::ok) {
        // Fails only if nobody waits any longer.
        let _ = events.send(Event::Line(line));
    }
    let _ = events.send(Event::OutputEnded);
}

impl Running {
    /// Passes events on until the program ends or takes too long.
    fn attend(
        mut self,
        received: &Receiver<Event>,
        replies: &SyncSender<Reply>,
    ) -> Result<(), ReportError> {
        let mut limit = Some(START_MAX);
        let mut since = Instant::now();
        loop {
            let event = match limit {
                Some(limit) => received.recv_timeout(limit.saturating_sub(since.elapsed())),
                None => received.recv().map_err(RecvTimeoutError::from),
            };
            match event {
                Ok(Event::Line(line)) if line.starts_with(SOCKET_PREFIX) => {
                    // The host finishes when it wants to.
                    limit = None;
                    let _ = replies.send(Reply::Listens(line));
                }
                Ok(Event::Line(line)) => self.read_line(&line),
                Ok(Event::OutputEnded) => return self.result(),
                Ok(Event::Finish) | Err(RecvTimeoutError::Disconnected) => {
                    self.stdin = None;
                    limit = Some(WRITE_MAX);
                    since = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.kill();
                    return Err(ReportError::TooLate {
                        limit: limit.unwrap_or(WRITE_MAX),
                    });
                }
            }
        }
    }

    fn read_line(&mut self, line: &str) {
        self.has_written |= line.starts_with(WROTE_PREFIX);
        if let Some(error) = line.strip_prefix(ERROR_PREFIX) {
            error.clone_into(&mut self.message);
            self.has_failed = true;
        } else if self.has_failed && line.starts_with(CAUSE_PREFIX) {
            self.message.push_str("; ");
            self.message.push_str(line.trim_start());
        } else if !self.has_failed && !line.trim().is_empty() {
            line.clone_into(&mut self.message);
        }
    }

    /// How it ended. A host that waits for all its children may have taken the status.
    fn result(mut self) -> Result<(), ReportError> {
        self.stdin = None;
        let status = self.child.wait();
        let succeeded = status
            .as_ref()
            .map_or(self.has_written, |status| status.success());
        if succeeded {
            return Ok(());
        }
        if self.message.is_empty() {
            self.message =
                status.map_or_else(|error| error.to_string(), |it| format!("no message, {it}"));
        }
        Err(ReportError::Failed {
            message: self.message,
        })
    }

    fn kill(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
