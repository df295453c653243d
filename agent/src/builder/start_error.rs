//! The error of a start, with the bounds that it names.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::limits::{INTERVAL_MAX, INTERVAL_MIN, LABELS_MAX, WORKER_BYTES_MAX};

use super::naming::{SYMBOL_UPLOAD_VARIABLE, SYMBOLS_VARIABLE};

pub(crate) const CPU_LIMIT_MIN: f64 = 0.001;
pub(crate) const CPU_LIMIT_MAX: f64 = 1.0;
pub(crate) const RESOURCE_INTERVAL_MIN: Duration = Duration::from_millis(10);
pub(crate) const RESOURCE_INTERVAL_MAX: Duration = Duration::from_secs(3_600);

/// Adds labels to those of the program.
pub(crate) const LABELS_VARIABLE: &str = "EMBERLINE_LABELS";

/// Why an agent did not start. The program is unharmed, and it is not profiled.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another agent samples this process.
    #[error("an agent is already running in this process; one agent samples all its threads")]
    AlreadyRunning,
    /// Nothing can be sampled; only [`AgentBuilder::start_required`](crate::AgentBuilder::start_required) fails with this.
    #[error("this process cannot be sampled: {mode}")]
    Unsupported {
        /// The [`SamplerMode`](crate::SamplerMode), as text.
        mode: Arc<str>,
    },
    /// The sampling interval is out of bounds.
    #[error(
        "invalid sampling interval {interval:?}; expected {INTERVAL_MIN:?} to {INTERVAL_MAX:?}"
    )]
    Interval {
        /// The invalid interval.
        interval: Duration,
    },
    /// The CPU limit is out of bounds.
    #[error("invalid CPU limit {part}; expected {CPU_LIMIT_MIN} to {CPU_LIMIT_MAX} processors")]
    CpuLimit {
        /// The invalid part of one processor.
        part: f64,
    },
    /// The resource interval is out of bounds.
    #[error(
        "invalid resource interval {interval:?}; expected {RESOURCE_INTERVAL_MIN:?} to \
         {RESOURCE_INTERVAL_MAX:?}, or none"
    )]
    ResourceInterval {
        /// The invalid interval.
        interval: Duration,
    },
    /// The environment names nobody that names functions.
    #[error("invalid {SYMBOLS_VARIABLE} {value:?}; expected agent, collector or auto")]
    Symbols {
        /// The invalid value.
        value: String,
    },
    /// The environment neither allows nor forbids to send symbols.
    #[error("invalid {SYMBOL_UPLOAD_VARIABLE} {value:?}; expected on or off")]
    SymbolUpload {
        /// The invalid value.
        value: String,
    },
    /// The environment has an entry that is no label.
    #[error("invalid entry {entry:?} in {LABELS_VARIABLE}; expected KEY=VALUE,KEY=VALUE")]
    LabelsVariable {
        /// The invalid entry.
        entry: String,
    },
    /// The worker's id is empty or too long.
    #[error("invalid worker id of {bytes} bytes; expected 1 to {WORKER_BYTES_MAX} bytes")]
    Worker {
        /// Length of the invalid id.
        bytes: usize,
    },
    /// There are too many labels.
    #[error("{count} labels for one worker; at most {LABELS_MAX} are allowed")]
    Labels {
        /// Number of labels.
        count: usize,
    },
    /// The collector's URL is invalid.
    #[error(
        "invalid collector URL {url:?}: {reason}; expected http://HOST:PORT, https://HOST:PORT or unix:/PATH"
    )]
    Collector {
        /// The invalid URL.
        url: String,
        /// The problem found.
        reason: String,
    },
    /// The system did not start a thread.
    #[error("cannot start a thread of the agent: {source}")]
    Spawn {
        /// The system's reason.
        source: io::Error,
    },
    /// The process may use too little address space (`ulimit -v`): with an agent, the program could
    /// run out of it.
    #[error(
        "too little address space (ulimit -v): {free_mib} MiB are free; expected at least \
         {needed_mib} MiB"
    )]
    AddressSpace {
        /// Address space that the process may still use, in MiB.
        free_mib: u64,
        /// Address space that must be free, in MiB.
        needed_mib: u64,
    },
    /// Another library replaces a clock of the C library, as libfaketime does. The agent's times would be wrong, and its
    /// waits would not end.
    #[error(
        "another library replaces {clock}, as libfaketime does; expected the kernel's: start the program without that \
         library"
    )]
    Clock {
        /// Its name.
        clock: &'static str,
    },
    /// A thread of the agent panicked while it started, which is a bug in Emberline.
    #[error("a thread of the agent panicked while it started, which is a bug in Emberline")]
    Panicked,
}

/// The text for people, because a program prints the error that its `main` returns in this form.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_returns_the_error_prints_its_text() {
        let interval = Duration::from_secs(5);
        let error: Box<dyn std::error::Error> = StartError::Interval { interval }.into();
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
