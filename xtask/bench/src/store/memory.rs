//! Peak memory of a command.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use simulation::process::Usage;

/// Interval of reading the status, which shows the peak until the process ends.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Runs the command to its end; returns its peak memory in bytes and its time.
pub(super) fn peak_bytes(command: &mut Command) -> Result<(u64, Duration)> {
    let begin = Instant::now();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    let mut peak_bytes = 0;
    let status = loop {
        // A process that has just ended has no status.
        let usage = Usage::of(child.id()).unwrap_or_default();
        peak_bytes = usage.memory_peak_bytes.max(peak_bytes);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::park_timeout(POLL_INTERVAL);
    };
    ensure!(status.success(), "{command:?} failed");
    Ok((peak_bytes, begin.elapsed()))
}
