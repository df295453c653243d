//! Memory use that the program reports by its own count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::fork;

static MANAGED_BYTES: AtomicU64 = AtomicU64::new(0);
static SPILLED_BYTES: AtomicU64 = AtomicU64::new(0);
/// Fork generation of the process that reported last, plus one; 0 before the first report.
static REPORTED_BY: AtomicUsize = AtomicUsize::new(0);

/// The values of the latest [`report_memory`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryReport {
    pub(crate) managed_bytes: u64,
    pub(crate) spilled_bytes: u64,
}

/// Reports how much data the program keeps in memory by its own count, and how much of it it has
/// spilled to disk, both in bytes. Resource samples carry the latest values next to the resident
/// memory of the process.
///
/// ```
/// let (managed_bytes, spilled_bytes) = (3 << 20, 1 << 20);
/// emberline_agent::report_memory(managed_bytes, spilled_bytes);
/// ```
pub fn report_memory(managed_bytes: u64, spilled_bytes: u64) {
    MANAGED_BYTES.store(managed_bytes, Ordering::Relaxed);
    SPILLED_BYTES.store(spilled_bytes, Ordering::Relaxed);
    REPORTED_BY.store(fork::generation() + 1, Ordering::Release);
}

/// Returns the latest report of this process; a forked child does not have its parent's.
pub(crate) fn latest() -> Option<MemoryReport> {
    (REPORTED_BY.load(Ordering::Acquire) == fork::generation() + 1).then(|| MemoryReport {
        managed_bytes: MANAGED_BYTES.load(Ordering::Relaxed),
        spilled_bytes: SPILLED_BYTES.load(Ordering::Relaxed),
    })
}
