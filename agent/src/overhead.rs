//! Overhead of the agent in its process.

/// The cost of an agent since it started; times in nanoseconds.
///
/// Everything is measured, except for the system's work to deliver a signal: about 2 µs per sample
/// of a running thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Overhead {
    /// Ticks of the sampler.
    pub ticks: u64,
    /// Ticks that were skipped to stay within [the CPU limit](crate::AgentBuilder::cpu_limit).
    pub ticks_throttled: u64,
    /// Samples of running threads, each taken by a signal handler on the thread itself.
    pub samples: u64,
    /// Time in these handlers.
    pub handler_ns: u64,
    /// Median time of one handler, accurate to 3 %.
    pub handler_p50_ns: u64,
    /// 99th percentile of the time of one handler, accurate to 3 %.
    pub handler_p99_ns: u64,
    /// CPU time of the sampler's thread.
    pub sampler_cpu_ns: u64,
    /// CPU time of the agent's other threads, to which the CPU limit does not apply.
    pub other_cpu_ns: u64,
    /// The part of `other_cpu_ns` that symbolized addresses, each of them once.
    pub naming_cpu_ns: u64,
    /// How often the thread that talks to the collector looked for something to do.
    pub shipper_wakeups: u64,
}
