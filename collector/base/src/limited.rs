//! Limits of a process that works for a collector: on a file or a query of somebody else.

use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::limits::PROCESS_ADDRESS_SPACE_MAX;

/// Begins the line on standard error by which `emberline-sql --limited` names a damaged file.
pub const SQL_CORRUPT_FILE: &str = "corrupt file: ";

/// The system does not limit this process.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct ProcessLimitError {
    doing: &'static str,
    source: io::Error,
}

/// Limits memory and CPU time of this process.
///
/// # Errors
/// If the system refuses.
pub fn limit_process(cpu_seconds: u64) -> Result<(), ProcessLimitError> {
    limit(
        Resource::RLIMIT_AS,
        PROCESS_ADDRESS_SPACE_MAX,
        "cannot limit memory",
    )?;
    limit(Resource::RLIMIT_CPU, cpu_seconds, "cannot limit CPU time")?;
    // A crash of this process is expected of hostile input, and its memory is the input's.
    limit(Resource::RLIMIT_CORE, 0, "cannot disable core files")
}

fn limit(resource: Resource, most: u64, doing: &'static str) -> Result<(), ProcessLimitError> {
    setrlimit(resource, most, most).map_err(|errno: Errno| ProcessLimitError {
        doing,
        source: errno.into(),
    })
}

/// Makes this process the first to end when the machine has no memory.
pub fn end_first() {
    // A container may not allow it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}
