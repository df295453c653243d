//! Requests to stop: Ctrl-C and SIGTERM.

use std::io;

use nix::sys::signal::{Signal, kill};
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

    /// Passes requests on to a process. A terminal sends Ctrl-C to it by itself.
    pub(crate) async fn forward(mut self, process: Pid) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {
                    // It may have just ended.
                    let _ = kill(process, Signal::SIGTERM);
                }
            }
        }
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Keeps SIGHUP from ending the process: it comes when a terminal closes or a service manager wants a
/// reload, and neither is a reason to stop. Must be called inside a runtime.
pub(crate) fn survive_hangup() -> io::Result<()> {
    // The handler stays installed when the stream is dropped.
    signal(SignalKind::hangup()).map(|_| ())
}
