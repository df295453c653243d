//! Output of the sampler for the symbolizer: addresses, and times of the monotonic clock.

use profiler_core::limits::DUMP_THREADS_MAX;
use profiler_core::{StateSet, Ticks};

use super::addresses::TreeDelta;
use super::audit::Difference;
use super::thread::{LastCounted, Thread};
use system::page_vec::PageVec;

/// One cycle of samples.
#[derive(Debug)]
pub(crate) struct RawCycle {
    pub(crate) start_ns: u64,
    pub(crate) stop_ns: u64,
    /// Regular ticks: made, due, and skipped to stay within the limit on CPU time.
    pub(crate) ticks: Ticks,
    /// Every weight is a multiple of it.
    pub(crate) quantum_ns: u64,
    /// States whose weight is wanted.
    pub(crate) states: StateSet,
    pub(crate) tree: TreeDelta,
    /// Between what was counted and what the kernel shows.
    pub(crate) difference: Difference,
    /// The latest request to flush before the cycle ended.
    pub(crate) flush_request: u64,
    /// The thread dump that was requested, by nodes of this tree and earlier ones.
    pub(crate) dump: Option<RawThreadDump>,
}

/// The state of every thread.
#[derive(Debug)]
pub(crate) struct RawThreadDump {
    /// Number of the request; the dump answers earlier requests too.
    pub(crate) request: u64,
    pub(crate) threads: PageVec<RawThread>,
    /// Number of threads past the limit.
    pub(crate) omitted: u64,
}

#[derive(Debug)]
pub(crate) struct RawThread {
    pub(crate) id: u32,
    /// `None` if it was not counted yet.
    pub(crate) last: Option<LastCounted>,
    /// Time since it was last counted.
    pub(crate) age_ns: u64,
    /// How long it has been blocked at the same place.
    pub(crate) blocked_ns: u64,
}

impl RawThreadDump {
    pub(super) fn new(request: u64, threads: &[Thread], now: u64) -> RawThreadDump {
        let thread = |thread: &Thread| RawThread {
            id: thread.id,
            last: thread.last,
            age_ns: thread.last.map_or(0, |last| now.saturating_sub(last.at_ns)),
            blocked_ns: thread
                .last
                .map_or(0, |last| last.at_ns.saturating_sub(last.since_ns)),
        };
        RawThreadDump {
            request,
            threads: threads.iter().take(DUMP_THREADS_MAX).map(thread).collect(),
            omitted: threads.len().saturating_sub(DUMP_THREADS_MAX) as u64,
        }
    }
}
