//! Limits of a process that works for a collector: on a file or a query of somebody else.

use std::{fs, io};

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::limits::{SQL_ADDRESS_SPACE_MAX, SQL_ADDRESS_SPACE_MIN};

/// Begins the line on standard error by which `emberline-sql --limited` names a damaged file.
pub const SQL_CORRUPT_FILE: &str = "corrupt file: ";

/// The system does not limit this process.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct ProcessLimitError {
    doing: &'static str,
    source: io::Error,
}

/// Limits address space and CPU time of this process.
///
/// # Errors
/// If the system refuses.
pub fn limit_process(memory_bytes: u64, cpu_seconds: u64) -> Result<(), ProcessLimitError> {
    limit(Resource::RLIMIT_AS, memory_bytes, "cannot limit memory")?;
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

/// Most address space of a query in SQL on this machine: a quarter of the memory that it or its control group has.
#[must_use]
pub fn sql_address_space() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let group_max = fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    let of_group = group_max.trim().parse().ok();
    let known = machine_memory(&meminfo).into_iter().chain(of_group);
    sql_address_space_of(known.min())
}

fn sql_address_space_of(memory_bytes: Option<u64>) -> u64 {
    memory_bytes.map_or(SQL_ADDRESS_SPACE_MAX, |bytes| {
        (bytes / 4).clamp(SQL_ADDRESS_SPACE_MIN, SQL_ADDRESS_SPACE_MAX)
    })
}

/// The machine's memory, by the text of `/proc/meminfo`.
fn machine_memory(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// Makes this process the first to end when the machine has no memory.
pub fn end_first() {
    // A container may not allow it.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_takes_a_quarter_of_a_small_machine() {
        const GIB: u64 = 1 << 30;
        for (memory, expected) in [
            (None, 2 * GIB),
            (Some(64 * GIB), 2 * GIB),
            (Some(4 * GIB), GIB),
            (Some(GIB), SQL_ADDRESS_SPACE_MIN),
        ] {
            assert_eq!(sql_address_space_of(memory), expected, "{memory:?}");
        }
        let text = "MemTotal:        4028016 kB\nMemFree:  1 kB\n";
        assert_eq!(machine_memory(text), Some(4_028_016 * 1_024));
        for text in [
            "",
            "MemTotal:\n",
            "MemTotal: x kB\n",
            "MemTotal: 18446744073709551615 kB\n",
        ] {
            assert_eq!(machine_memory(text), None, "{text}");
        }
        assert!((SQL_ADDRESS_SPACE_MIN..=SQL_ADDRESS_SPACE_MAX).contains(&sql_address_space()));
    }
}
