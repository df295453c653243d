//! Why there is no report.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::StartError;

/// Why [`report()`](crate::report()) wrote no file. The program is unharmed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// There is no sampler for this platform.
    #[error("this platform has no sampler")]
    Unsupported,
    /// The program `emberline` cannot be started.
    #[error(
        "cannot start {}: {source}; install emberline, or set EMBERLINE_PROGRAM to its path",
        program.display()
    )]
    Program {
        /// The program to start.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// An agent records into this process's memory, and one process has one agent.
    #[error("an agent of `start_local` samples this process; a report needs an agent that ships")]
    RecordsLocally,
    /// The agent cannot be started.
    #[error("cannot sample this process: {source}")]
    Start {
        /// The agent's reason.
        source: StartError,
    },
    /// The program `emberline` failed.
    #[error("emberline: {message}")]
    Failed {
        /// Its message.
        message: String,
    },
    /// The program `emberline` took too long, and was killed.
    #[error("emberline was not ready within {limit:?}")]
    TooLate {
        /// Most time that it may take.
        limit: Duration,
    },
}
