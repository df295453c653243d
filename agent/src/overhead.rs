//! Overhead of the agent in its process.

/// The cost of an agent since it started; times in nanoseconds.
///
/// Everything is measured, except for the system's work to deliver a signal: about 2 µs per sample
/// of a running thread, and for handlers on threads that are in no task: these count as much as the
/// measured ones on average, or 1 µs. A thread outside of a task may be in a sandbox that ends it when
/// it reads a clock.
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
    /// Median time of one handler in a task, accurate to 3 %; 0 without any. Includes time for which
    /// the thread lost its processor in the handler, of which up to 1 ms counts.
    pub handler_p50_ns: u64,
    /// 99th percentile of that, accurate to 3 %. With more runnable threads than processors it is
    /// the length of a turn of another thread, not the cost of the handler.
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
