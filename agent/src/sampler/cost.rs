//! What the agent costs, and the limit on that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Overhead;

/// What the system does around each handler, beside the handler itself: measured at 1 to 4 µs.
const DELIVERY_NS: u64 = 2_000;
/// What may be spent at once after a time of spending less, in nanoseconds of the process's life.
const BURST_NS: u64 = 2_000_000_000;
/// Most time between two ticks, whatever they cost.
const REST_NS_MAX: u64 = 250_000_000;

/// Handler times are counted by sixteenths of an octave: to 3 %.
const STEPS_PER_OCTAVE: u64 = 16;
const BUCKETS: usize = 512;

/// The sums behind [`Overhead`]. Written by the agent's threads, read by anybody.
#[derive(Debug)]
pub(crate) struct Costs {
    ticks: AtomicU64,
    ticks_throttled: AtomicU64,
    samples: AtomicU64,
    handler_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
    sampler_cpu_ns: AtomicU64,
    other_cpu_ns: AtomicU64,
    naming_cpu_ns: AtomicU64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
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

impl Costs {
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

    /// Adds CPU time that went into names.
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
        let found = sums.enumerate().find(|(_, sum)| *sum >= rank.max(1));
        found.map_or(0, |(bucket, _)| bucket_end(bucket))
    }
}

/// Below 16 a bucket a value; above, 16 buckets an octave.
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

/// The sampler's side: what it spends, and when it must rest.
#[derive(Debug)]
pub(super) struct Meter {
    costs: Arc<Costs>,
    /// Part of one processor that may be spent, in billionths.
    limit: u64,
    /// What may be spent now; below 0, a debt.
    credit_ns: i64,
    earned_to_ns: u64,
    sampler_cpu_ns: u64,
    /// Readings of the time-stamp counter and the clock when this began.
    began: (u64, u64),
    /// Of this tick.
    begun: (u64, u64),
    ns_per_stamp: f64,
}

impl Meter {
    /// `limit` is the part of one processor, in billionths.
    pub(super) fn new(costs: Arc<Costs>, limit: u64, began: (u64, u64)) -> Self {
        let mut meter = Meter {
            costs,
            limit,
            credit_ns: 0,
            earned_to_ns: began.1,
            sampler_cpu_ns: 0,
            began,
            begun: began,
            ns_per_stamp: 0.0,
        };
        meter.credit_ns = meter.burst_ns();
        meter
    }

    fn burst_ns(&self) -> i64 {
        share_of(BURST_NS, self.limit)
    }

    /// A tick begins: `stamp` and `now_ns` are read together.
    pub(super) fn begin_tick(&mut self, stamp: u64, now_ns: u64) {
        self.costs.ticks.fetch_add(1, Ordering::Relaxed);
        let (first_stamp, first_ns) = self.began;
        let stamps = stamp.wrapping_sub(first_stamp);
        if stamps > 0 {
            self.ns_per_stamp = now_ns.saturating_sub(first_ns) as f64 / stamps as f64;
        }
        self.begun = (stamp, now_ns);
        let earned = share_of(now_ns.saturating_sub(self.earned_to_ns), self.limit);
        self.earned_to_ns = now_ns;
        self.credit_ns = (self.credit_ns + earned).min(self.burst_ns());
    }

    /// When the counter stood at `stamp`, a little before this tick began.
    pub(super) fn time_of(&self, stamp: u64) -> u64 {
        let (begun_stamp, begun_ns) = self.begun;
        let before = begun_stamp.saturating_sub(stamp) as f64 * self.ns_per_stamp;
        begun_ns.saturating_sub(before as u64)
    }

    /// A handler took so many of the counter's ticks.
    pub(super) fn count_sample(&mut self, stamps: u64) {
        // A counter that jumped, on a machine that moved, is no measurement.
        let nanoseconds = ((stamps as f64 * self.ns_per_stamp) as u64).min(1_000_000);
        self.costs.add_sample(nanoseconds);
        self.spend(nanoseconds + DELIVERY_NS);
    }

    /// What the sampler's thread has used so far went into its start, which comes once.
    pub(super) fn forgive_start(&mut self, cpu_ns: u64) {
        self.sampler_cpu_ns = cpu_ns;
    }

    /// The sampler's thread has used so much CPU time in all.
    pub(super) fn count_sampler(&mut self, cpu_ns: u64) {
        self.spend(cpu_ns.saturating_sub(self.sampler_cpu_ns));
        self.sampler_cpu_ns = cpu_ns;
        self.costs.sampler_cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    /// The agent's other threads have used so much CPU time in all. It is told, and not limited: they
    /// name, record and ship what the program did, and fewer samples would not make that less.
    pub(super) fn count_others(&self, cpu_ns: u64) {
        self.costs.other_cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    fn spend(&mut self, nanoseconds: u64) {
        self.credit_ns = self.credit_ns.saturating_sub_unsigned(nanoseconds);
    }

    /// Ticks to leave out now, so that the debt is paid by rest.
    pub(super) fn save_ticks(&mut self, interval_ns: u64) -> u64 {
        let debt = self.credit_ns.min(0).unsigned_abs();
        let earned_a_tick = share_of(interval_ns, self.limit).max(1).unsigned_abs();
        let saved = debt.div_ceil(earned_a_tick).min(REST_NS_MAX / interval_ns.max(1));
        self.costs.ticks_throttled.fetch_add(saved, Ordering::Relaxed);
        saved
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
        Meter::new(Arc::default(), PERCENT, (0, 0))
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_to_a_sixteenth(value in 0..u64::from(u32::MAX)) {
            let end = bucket_end(bucket_of(value));
            prop_assert!(end >= value && end - value <= value / 16, "{} in {}", value, end);
        }

        #[test]
        fn over_time_the_limit_holds_whatever_ticks_cost(
            costs in prop::collection::vec(0..2_000_000u64, 200..400),
        ) {
            let mut meter = meter();
            let (mut now, mut spent) = (0, 0);
            for cost in costs {
                meter.begin_tick(now, now);
                spent += cost;
                meter.count_sampler(spent);
                now += TICK_NS * (1 + meter.save_ticks(TICK_NS));
            }
            let earned = now / 100 + BURST_NS / 100;
            prop_assert!(spent <= earned, "{} of {} ns", spent, earned);
        }
    }

    #[test]
    fn who_stays_within_the_limit_leaves_out_nothing() {
        let mut meter = meter();
        for tick in 1..=1000 {
            meter.begin_tick(tick * TICK_NS, tick * TICK_NS);
            meter.count_sampler(tick * 90_000);
            assert_eq!(meter.save_ticks(TICK_NS), 0);
        }
    }

    #[test]
    fn what_is_not_sampling_is_free_and_a_rest_is_never_long() {
        let mut meter = meter();
        meter.count_others(10_000_000_000);
        meter.forgive_start(5_000_000_000);
        meter.count_sampler(5_000_000_000);
        assert_eq!(meter.save_ticks(TICK_NS), 0);
        meter.count_sampler(10_000_000_000);
        assert_eq!(meter.save_ticks(TICK_NS), 25);
    }

    #[test]
    fn handler_times_are_told_by_median_and_tail() {
        let costs = Costs::default();
        assert_eq!(costs.report(), Overhead::default());
        (0..98).for_each(|_| costs.add_sample(500));
        (0..2).for_each(|_| costs.add_sample(20_000));
        let report = costs.report();
        assert!((500..=531).contains(&report.handler_p50_ns), "{report:?}");
        assert!((20_000..=21_250).contains(&report.handler_p99_ns), "{report:?}");
        assert_eq!(report.samples, 100);
    }
}
