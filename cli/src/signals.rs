//! Requests to stop: Ctrl-C and SIGTERM; and the signals of a program that a command runs.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{self, SignalKind, signal};

/// The exit code that shells report for a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: i32 = 130;

/// Listens from its creation on, so that no request is missed.
pub(crate) struct StopRequests {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl StopRequests {
    /// Starts to listen; must be called inside a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(StopRequests {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Resolves at the first request. A second one then exits the process at once.
    pub(crate) async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The signals that end a command, in one that runs a program: what they end is the program, and the command completes
/// its report.
pub(crate) struct ProgramSignals {
    listening: Vec<Listening>,
}

struct Listening {
    signal: Signal,
    stream: unix::Signal,
}

impl ProgramSignals {
    const ALL: [Signal; 4] = [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ];

    /// Starts to listen for those that the command does not ignore, as after `nohup`; must be called inside a runtime, of
    /// which another thread is interrupted by them: on this one they would end requests to the collector.
    pub(crate) fn listen(is_ignored: impl Fn(Signal) -> bool) -> io::Result<Self> {
        let expected = Self::ALL.into_iter().filter(|signal| !is_ignored(*signal));
        let streams = expected.map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal as i32))?;
            Ok(Listening { signal, stream })
        });
        let listening = streams.collect::<io::Result<_>>()?;
        Self::ALL.into_iter().collect::<SigSet>().thread_block()?;
        Ok(ProgramSignals { listening })
    }

    /// Resolves at the first one. A second one then exits the process at once.
    pub(crate) async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }

    /// Passes them on to a process, which a terminal sends its own to by itself.
    pub(crate) async fn forward(mut self, process: Pid) {
        loop {
            let signal = self.next().await;
            let is_of_keyboard = [Signal::SIGINT, Signal::SIGQUIT].contains(&signal);
            if !is_of_keyboard || !is_in_foreground() {
                // It may have just ended.
                let _ = kill(process, signal);
            }
        }
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let received = self.listening.iter_mut().find_map(|listening| {
                let is_received = listening.stream.poll_recv(context).is_ready();
                is_received.then_some(listening.signal)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Whether the keys of a terminal send signals to this process.
fn is_in_foreground() -> bool {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    has_group_of_terminal(&stat)
}

/// Whether the process group in a line of `/proc/PID/stat` is the one in the foreground of its terminal.
fn has_group_of_terminal(stat: &str) -> bool {
    let after_name = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = after_name.split_ascii_whitespace();
    let group = fields.nth(2);
    let of_terminal = fields.nth(2);
    group.is_some() && group == of_terminal
}

/// Keeps SIGHUP from ending the process: it comes when a terminal closes or a service manager wants a
/// reload, and neither is a reason to stop. Must be called inside a runtime.
pub(crate) fn survive_hangup() -> io::Result<()> {
    // The handler stays installed when the stream is dropped.
    signal(SignalKind::hangup()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_group_in_the_foreground_has_keys() {
        assert!(has_group_of_terminal(
            "7 (a ) b) S 1 70 70 34816 70 4194304"
        ));
        assert!(!has_group_of_terminal(
            "7 (a ) b) S 1 70 70 34816 71 4194304"
        ));
        assert!(!has_group_of_terminal("7 (a) S 1 70 70 0 -1 4194304"));
        assert!(!has_group_of_terminal(""));
    }
}
