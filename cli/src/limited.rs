//! Limits of a process that works for a collector: on a file or a query of somebody else.

use anyhow::Context as _;
use nix::sys::resource::{Resource, setrlimit};

/// Most address space: what a debug file of 3 GB needs, and a query with a large tree of stacks.
const ADDRESS_SPACE_MAX: u64 = 8 << 30;

/// Most seconds of CPU time of a query, or a debug file.
pub(crate) const CPU_SECONDS_MAX: u64 = 240;

/// Limits memory and CPU time of this process.
///
/// # Errors
/// If the system refuses.
pub(crate) fn limit_process(cpu_seconds: u64) -> anyhow::Result<()> {
    let limit = |resource, most| setrlimit(resource, most, most);
    limit(Resource::RLIMIT_AS, ADDRESS_SPACE_MAX).context("cannot limit memory")?;
    limit(Resource::RLIMIT_CPU, cpu_seconds).context("cannot limit CPU time")?;
    // A crash of this process is expected of hostile input, and its memory is the input's.
    limit(Resource::RLIMIT_CORE, 0).context("cannot disable core files")
}

/// Makes this process the first to end when the machine has no memory.
pub(crate) fn end_first() {
    // A container may not allow it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}
