//! What the agent costs, and the limit on the cost of sampling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Overhead;

/// Time that the kernel spends on delivering a signal, in addition to the handler: measured at 1 to
/// 4 µs.
const DELIVERY_NS: u64 = 2_000;
/// Unspent time that can be saved up, in nanoseconds of the process's life.
const BURST_NS: u64 = 2_000_000_000;
/// Longest time between two ticks, whatever they cost.
const REST_NS_MAX: u64 = 250_000_000;

/// Handler times are counted in sixteenths of an octave, so to 3 %.
const STEPS_PER_OCTAVE: u64 = 16;
const BUCKETS: usize = 512;

/// The counters behind [`Overhead`]. Written by the agent's threads, read by any thread.
#[derive(Debug)]
pub(crate) struct OverheadCounters {
    ticks: AtomicU64,
    ticks_throttled: AtomicU64,
    samples: AtomicU64,
    handler_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
    sampler_cpu_ns: AtomicU64,
    other_cpu_ns: AtomicU64,
    naming_cpu_ns: AtomicU64,
}

impl Default for OverheadCounters {
    fn default() -> Self {
        OverheadCounters {
            ticks: AtomicU64::new(0),
            ticks_throttled: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            handler_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sampler_cpu_ns: AtomicU64::new(0),
            other_cpu_ns: AtomicU64::new(0),
            naming_cpu_ns: AtomicU64::new(0),
        }
    }
}

impl OverheadCounters {
    pub(crate) fn report(&self) -> Overhead {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Overhead {
            ticks: read(&self.ticks),
            ticks_throttled: read(&self.ticks_throttled),
            samples: read(&self.samples),
            handler_ns: read(&self.handler_ns),
            handler_p50_ns: self.quantile_ns(50),
            handler_p99_ns: self.quantile_ns(99),
            sampler_cpu_ns: read(&self.sampler_cpu_ns),
            other_cpu_ns: read(&self.other_cpu_ns),
            naming_cpu_ns: read(&self.naming_cpu_ns),
        }
    }

    /// Adds CPU time of resolving names.
    pub(crate) fn add_naming(&self, nanoseconds: u64) {
        self.naming_cpu_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn add_sample(&self, nanoseconds: u64) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.handler_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        self.buckets[bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// The upper end of the bucket that holds the sample at `percent`; 0 without samples.
    fn quantile_ns(&self, percent: u64) -> u64 {
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        let all: u64 = counts.clone().sum();
        let rank = (all * percent).div_ceil(100);
        let sums = counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let at_rank = sums.enumerate().find(|(_, sum)| *sum >= rank.max(1));
        at_rank.map_or(0, |(bucket, _)| bucket_end(bucket))
    }
}

/// One bucket per value below 16; 16 buckets per octave above.
fn bucket_of(value: u64) -> usize {
    let octave = u64::from(value.max(STEPS_PER_OCTAVE).ilog2()) - 4;
    let step = value >> octave;
    usize::try_from(octave * STEPS_PER_OCTAVE + step).map_or(BUCKETS - 1, |it| it.min(BUCKETS - 1))
}

/// The largest value in a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let octave = (bucket / STEPS_PER_OCTAVE).saturating_sub(1);
    let step = bucket - octave * STEPS_PER_OCTAVE;
    ((step + 1) << octave) - 1
}

/// The time-stamp counter and the monotonic clock, read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    pub(super) stamp: u64,
    pub(super) ns: u64,
}

/// The sampler's side: measures what sampling costs, and skips ticks to stay within the limit.
#[derive(Debug)]
pub(super) struct Meter {
    counters: Arc<OverheadCounters>,
    /// Part of one processor that may be spent, in billionths.
    limit: u64,
    /// Time that may be spent now; a debt if negative.
    credit_ns: i64,
    earned_to_ns: u64,
    sampler_cpu_ns: u64,
    /// When the meter was created.
    first: ClockReading,
    /// When the current tick began.
    tick: ClockReading,
    ns_per_stamp: f64,
}

impl Meter {
    /// `limit` is the part of one processor, in billionths.
    pub(super) fn new(counters: Arc<OverheadCounters>, limit: u64, now: ClockReading) -> Self {
        Meter {
            counters,
            limit,
            credit_ns: share_of(BURST_NS, limit),
            earned_to_ns: now.ns,
            sampler_cpu_ns: 0,
            first: now,
            tick: now,
            ns_per_stamp: 0.0,
        }
    }

    /// A tick begins.
    pub(super) fn begin_tick(&mut self, now: ClockReading) {
        self.counters.ticks.fetch_add(1, Ordering::Relaxed);
        let stamps = now.stamp.wrapping_sub(self.first.stamp);
        if stamps > 0 {
            self.ns_per_stamp = now.ns.saturating_sub(self.first.ns) as f64 / stamps as f64;
        }
        self.tick = now;
        let earned = share_of(now.ns.saturating_sub(self.earned_to_ns), self.limit);
        self.earned_to_ns = now.ns;
        self.credit_ns = (self.credit_ns + earned).min(share_of(BURST_NS, self.limit));
    }

    /// The time of a `stamp` that was read before this tick began.
    pub(super) fn time_of(&self, stamp: u64) -> u64 {
        let before = self.tick.stamp.saturating_sub(stamp) as f64 * self.ns_per_stamp;
        self.tick.ns.saturating_sub(before as u64)
    }

    /// Adds a handler that took `stamps` ticks of the time-stamp counter.
    pub(super) fn count_sample(&mut self, stamps: u64) {
        // The counter may jump when a virtual machine migrates; cap it.
        let nanoseconds = ((stamps as f64 * self.ns_per_stamp) as u64).min(1_000_000);
        self.counters.add_sample(nanoseconds);
        self.spend(nanoseconds + DELIVERY_NS);
    }

    /// Excludes the CPU time of the sampler's start, which is spent only once.
    pub(super) fn exclude_startup(&mut self, cpu_ns: u64) {
        self.sampler_cpu_ns = cpu_ns;
    }

    /// Sets the CPU time of the sampler's thread so far.
    pub(super) fn count_sampler(&mut self, cpu_ns: u64) {
        self.spend(cpu_ns.saturating_sub(self.sampler_cpu_ns));
        self.sampler_cpu_ns = cpu_ns;
        self.counters.sampler_cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    /// Sets the CPU time of the agent's other threads so far. It is reported but not limited: they
    /// name, record and ship what the program did, and fewer samples would not make that cheaper.
    pub(super) fn count_others(&self, cpu_ns: u64) {
        self.counters.other_cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    fn spend(&mut self, nanoseconds: u64) {
        self.credit_ns = self.credit_ns.saturating_sub_unsigned(nanoseconds);
    }

    /// The number of ticks to skip now to pay off the debt.
    pub(super) fn throttle_ticks(&mut self, interval_ns: u64) -> u64 {
        let debt = self.credit_ns.min(0).unsigned_abs();
        let earned_per_tick = share_of(interval_ns, self.limit).max(1).unsigned_abs();
        let skipped = debt.div_ceil(earned_per_tick).min(REST_NS_MAX / interval_ns.max(1));
        self.counters.ticks_throttled.fetch_add(skipped, Ordering::Relaxed);
        skipped
    }
}

fn share_of(nanoseconds: u64, limit: u64) -> i64 {
    let share = u128::from(nanoseconds) * u128::from(limit) / 1_000_000_000;
    i64::try_from(share).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK_NS: u64 = 10_000_000;
    const PERCENT: u64 = 10_000_000;

    fn meter() -> Meter {
        Meter::new(Arc::default(), PERCENT, at(0))
    }

    fn at(ns: u64) -> ClockReading {
        ClockReading { stamp: ns, ns }
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_to_a_sixteenth(value in 0..u64::from(u32::MAX)) {
            let end = bucket_end(bucket_of(value));
            prop_assert!(end >= value && end - value <= value / 16, "{} in {}", value, end);
        }

        #[test]
        fn the_limit_holds_over_time_whatever_ticks_cost(
            costs in prop::collection::vec(0..2_000_000u64, 200..400),
        ) {
            let mut meter = meter();
            let mut now = 0;
            let mut spent = 0;
            for cost in costs {
                meter.begin_tick(at(now));
                spent += cost;
                meter.count_sampler(spent);
                now += TICK_NS * (1 + meter.throttle_ticks(TICK_NS));
            }
            let earned = now / 100 + BURST_NS / 100;
            prop_assert!(spent <= earned, "{} of {} ns", spent, earned);
        }
    }

    #[test]
    fn no_tick_is_skipped_within_the_limit() {
        let mut meter = meter();
        for tick in 1..=1000 {
            meter.begin_tick(at(tick * TICK_NS));
            meter.count_sampler(tick * 90_000);
            assert_eq!(meter.throttle_ticks(TICK_NS), 0);
        }
    }

    #[test]
    fn startup_and_other_threads_are_free_and_a_pause_is_bounded() {
        let mut meter = meter();
        meter.count_others(10_000_000_000);
        meter.exclude_startup(5_000_000_000);
        meter.count_sampler(5_000_000_000);
        assert_eq!(meter.throttle_ticks(TICK_NS), 0);
        meter.count_sampler(10_000_000_000);
        assert_eq!(meter.throttle_ticks(TICK_NS), 25);
    }

    #[test]
    fn handler_times_are_reported_as_median_and_p99() {
        let counters = OverheadCounters::default();
        assert_eq!(counters.report(), Overhead::default());
        (0..98).for_each(|_| counters.add_sample(500));
        (0..2).for_each(|_| counters.add_sample(20_000));
        let report = counters.report();
        assert!((500..=531).contains(&report.handler_p50_ns), "{report:?}");
        assert!((20_000..=21_250).contains(&report.handler_p99_ns), "{report:?}");
        assert_eq!(report.samples, 100);
    }
}
