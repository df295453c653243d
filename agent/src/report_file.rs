//! A report of a piece of code, as one HTML file.

mod error;
#[cfg(sampler)]
mod program;
#[cfg(sampler)]
mod recording;
#[cfg(not(sampler))]
#[path = "report_file/unsupported.rs"]
mod recording;

use std::io::Write as _;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub use error::ReportError;

use self::recording::Recording;
use crate::{fork, log};

/// Writes a report of everything until the guard is dropped, as the HTML file `file` and as JSON next to it.
///
/// ```no_run
/// # fn load_and_sort() {}
/// let report = emberline_agent::report("report.html");
/// load_and_sort();
/// drop(report); // report.html and report.json are there
/// ```
///
/// The program `emberline` writes it, which must be in `PATH` or named by the environment variable
/// `EMBERLINE_PROGRAM`.
///
/// - **No agent runs**: the report has a collector and an agent of its own, and is about this process.
///   `emberline record` is a child process that receives on a socket of this user. It ends with the
///   guard, and also with this process: even after `std::process::exit` the report is written.
/// - **An [`Agent`](crate::Agent) runs**: the guard marks a [run](crate::mark_run), and `emberline report` writes
///   it from the agent's collector. It is about the whole fleet during that time, and if the collector
///   has tokens, `emberline` needs one of a reader (`EMBERLINE_TOKEN_FILE`).
///
/// Nothing of this fails or ends the program. Without an agent this call takes at most 11 s, usually some tens
/// of milliseconds. The guard's end takes at most 31 s, after 10 s for a last flush if the agent is the
/// report's own; usually less than a second, or three if an agent was running. An error is
/// one line: an event of `tracing`, or on standard error without a subscriber. To handle it, call
/// [`ReportGuard::finish`].
pub fn report(file: impl AsRef<Path>) -> ReportGuard {
    fork::watch();
    // The directory of the process may be another one when the report is written.
    let file = file.as_ref();
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let recording = Recording::start(&file);
    ReportGuard {
        recording: Some(recording),
        file,
        generation: fork::generation(),
    }
}

/// Writes a report when it is dropped, on any thread.
///
/// In a forked child it does nothing.
#[derive(Debug)]
#[must_use = "the report ends when this guard is dropped"]
pub struct ReportGuard {
    /// `None` once it is finished.
    recording: Option<Result<Recording, ReportError>>,
    file: PathBuf,
    /// The [`fork::generation`] in which it started.
    generation: usize,
}

impl ReportGuard {
    /// Writes the report; returns its path.
    ///
    /// # Errors
    /// [`ReportError`]: why there is none. A file of that name is unchanged then.
    pub fn finish(mut self) -> Result<PathBuf, ReportError> {
        self.end()?;
        Ok(self.file.clone())
    }

    fn end(&mut self) -> Result<(), ReportError> {
        let Some(recording) = self.recording.take() else {
            return Ok(());
        };
        if self.generation != fork::generation() {
            // Its threads and their locks are those of the parent.
            mem::forget(recording);
            return Ok(());
        }
        recording?.finish(&self.file)
    }
}

impl Drop for ReportGuard {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // A subscriber may panic, and this thread may be panicking already.
            let _ = catch_unwind(AssertUnwindSafe(|| say(&self.file, &error)));
        }
    }
}

/// Reports on the program's own thread, which has the program's descriptors.
fn say(file: &Path, error: &ReportError) {
    let file = file.display();
    tracing::error!("no report {file}: {error}");
    if !tracing::dispatcher::has_been_set() && !log::is_silenced() {
        // There is nobody to tell if it fails.
        let _ = writeln!(std::io::stderr(), "emberline: no report {file}: {error}");
    }
}
