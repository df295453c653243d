//! Memory of a command that ends by itself.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use simulation::process::Usage;

/// How often it is looked at: the most memory that it ever took stands in its status until it ends.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Runs it to its end: its peak of memory in bytes, and how long it took.
pub(super) fn peak_bytes(command: &mut Command) -> Result<(u64, Duration)> {
    let begin = Instant::now();
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    let mut peak_bytes = 0;
    let status = loop {
        // One that has just ended has no status any more.
        let usage = Usage::of(child.id()).unwrap_or_default();
        peak_bytes = usage.memory_peak_bytes.max(peak_bytes);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::park_timeout(LOOK_EVERY);
    };
    ensure!(status.success(), "{command:?} failed");
    Ok((peak_bytes, begin.elapsed()))
}
