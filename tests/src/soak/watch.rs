//! Watches a worker from outside: how it ends, and whether it makes progress.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

/// A worker whose counters stand still for this long hangs.
const STILL_MAX: Duration = Duration::from_secs(60);

/// How a worker ended.
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
    /// Killed: its last line had not changed for too long.
    Hang(String),
}

/// Result of a worker.
pub(crate) struct Watched {
    pub(crate) end: End,
    /// Its last line of JSON; null if there is none.
    pub(crate) record: Value,
}

/// Runs a worker to its end, or until it hangs.
pub(crate) fn watch(command: &mut Command) -> Result<Watched> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let output = child.stdout.take().context("its output is a pipe")?;
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let mut last = String::new();
    let mut record = Value::Null;
    let mut moved = Instant::now();
    let hangs = loop {
        match lines.recv_timeout(STILL_MAX.saturating_sub(moved.elapsed())) {
            Ok(line) if line != last => {
                moved = Instant::now();
                if line.starts_with('{') {
                    record = serde_json::from_str(&line).unwrap_or(Value::Null);
                }
                last = line;
            }
            Ok(_) if moved.elapsed() < STILL_MAX => {}
            Ok(_) | Err(RecvTimeoutError::Timeout) => break true,
            Err(RecvTimeoutError::Disconnected) => break false,
        }
    };
    if hangs {
        child.kill().context("killing a worker that hangs")?;
    }
    let status = child.wait()?;
    drop(lines);
    let _ = reader.join();
    let end = match (hangs, status.signal()) {
        (true, _) => End::Hang(last),
        (false, Some(signal)) => End::Signal(signal),
        (false, None) => End::Exit(status.code().unwrap_or(-1)),
    };
    Ok(Watched { end, record })
}
