//! Cost of the agent, and the limit on the cost of sampling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Overhead;

/// Time that the kernel spends on delivering a signal, in addition to the handler: measured at 1 to
/// 4 µs.
const DELIVERY_NS: u64 = 2_000;
/// The time of a handler, until some were measured.
const HANDLER_NS: u64 = 1_000;
/// Most that one handler counts as spent: in longer ones the thread had lost its processor.
const HANDLER_NS_MAX: u64 = 20_000;
/// Unspent time that can be saved up, in nanoseconds of the process's life.
const BURST_NS: u64 = 2_000_000_000;
/// At its start an agent may spend a part of what it would earn in this time; in return it earns only
/// the rest until the time has passed. If that took less time, an agent that costs most of the limit would
/// skip ticks until then.
const START_NS: u64 = 600_000_000_000;
const START_PART: i64 = 20;
/// Longest time between two ticks. A tick in debt costs little, because it visits few known threads and
/// asks only two, so even at this rate the debt is paid off.
const PAUSE_NS_MAX: u64 = 20_000_000;
/// Most debt that the agent's other threads leave, in nanoseconds of the process's life.
const DEBT_NS_MAX: u64 = 1_000_000_000;
/// Part of a tick's interval that visits may take at most.
const VISITING_PART: u64 = 50;
/// Saved time that visits leave for samples of running threads, in nanoseconds of the process's
/// life; a tick's visits take no more than this part of the rest.
const RESERVE_NS: u64 = 500_000_000;
const VISITING_CREDIT_PART: u64 = 4;
/// The part of what is earned that visits get in any case: without them, the time of a thread that
/// waits here and there stays at one place. Ticks are skipped for it.
const VISITING_SHARE: i64 = 4;
/// Longest time for which visits can save that up, in nanoseconds of the process's life.
const VISITING_SAVED_NS: u64 = 200_000_000;
/// The part of the limit that is earned however little the process itself runs.
const RATE_PART_MIN: u64 = 4;
/// Longest time for visits of new threads in a tick, and the same while in debt.
const NEW_NS_MAX: u64 = 2_000_000;
const NEW_IN_DEBT_NS_MAX: u64 = 50_000;

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
        let naming_cpu_ns = read(&self.naming_cpu_ns);
        Overhead {
            ticks: read(&self.ticks),
            ticks_throttled: read(&self.ticks_throttled),
            samples: read(&self.samples),
            handler_ns: read(&self.handler_ns),
            handler_p50_ns: self.quantile_ns(50),
            handler_p99_ns: self.quantile_ns(99),
            sampler_cpu_ns: read(&self.sampler_cpu_ns),
            // It is counted once per cycle, and the part of it at once.
            other_cpu_ns: read(&self.other_cpu_ns).max(naming_cpu_ns),
            naming_cpu_ns,
            shipper_wakeups: 0,
        }
    }

    /// Adds CPU time of resolving names.
    pub(crate) fn add_naming(&self, nanoseconds: u64) {
        self.naming_cpu_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn add_sample(&self, nanoseconds: u64, is_measured: bool) {
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.handler_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        if is_measured {
            self.buckets[bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The upper end of the bucket that holds the sample at `percent`; 0 without samples.
    fn quantile_ns(&self, percent: u64) -> u64 {
        let counts = self
            .buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
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

/// A time, and the CPU time that the process had used without the agent by then.
#[derive(Clone, Copy, Debug)]
struct ProcessReading {
    ns: u64,
    cpu_ns: u64,
}

/// Limits on the time of visits in one tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct VisitBudget {
    /// For threads that were visited before.
    pub(super) known_ns: u64,
    /// For new threads, including visits of other threads before them.
    pub(super) new_ns: u64,
}

/// The sampler's side: measures what the agent costs, and keeps it within the limit by fewer visits,
/// fewer requests, and last by fewer ticks.
#[derive(Debug)]
pub(super) struct Meter {
    counters: Arc<OverheadCounters>,
    /// Part of one processor that may be spent, in billionths.
    limit: u64,
    /// Part of one processor that is earned now: the limit, or less while the process runs little.
    rate: u64,
    /// Part of the process's own CPU time that may be spent, in billionths.
    limit_of_process: Option<u64>,
    /// When the process's own CPU time was counted last, and how long that was.
    process: ProcessReading,
    /// Time that the sampler and the handlers may spend now; a debt if negative.
    own_ns: i64,
    /// Time that all threads of the agent may spend now.
    all_ns: i64,
    /// Time that may be spent once, on what is done once: first visits and first names.
    start_ns: i64,
    /// Time that visits may take, even while in debt.
    visiting_ns: i64,
    earned_to_ns: u64,
    sampler_cpu_ns: u64,
    others_cpu_ns: u64,
    /// When the meter was created.
    first: ClockReading,
    /// When the current tick began.
    tick: ClockReading,
    ns_per_stamp: f64,
    /// Handlers whose time is known, and that time.
    handlers: u64,
    handler_ns: u64,
}

impl Meter {
    /// `limit` is the part of one processor, in billionths.
    pub(super) fn new(counters: Arc<OverheadCounters>, limit: u64, now: ClockReading) -> Self {
        Meter {
            counters,
            limit,
            rate: limit,
            limit_of_process: None,
            process: ProcessReading {
                ns: now.ns,
                cpu_ns: 0,
            },
            own_ns: share_of(BURST_NS, limit),
            all_ns: share_of(BURST_NS, limit),
            start_ns: share_of(START_NS, limit) / START_PART,
            visiting_ns: 0,
            earned_to_ns: now.ns,
            sampler_cpu_ns: 0,
            others_cpu_ns: 0,
            first: now,
            tick: now,
            ns_per_stamp: 0.0,
            handlers: 1,
            handler_ns: HANDLER_NS,
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
        let passed_ns = now.ns.saturating_sub(self.earned_to_ns);
        let mut earned = share_of(passed_ns, self.rate);
        // Visits keep their part: a process that runs little is one that waits.
        let mut earned_for_visits = share_of(passed_ns, self.limit) / VISITING_SHARE;
        if now.ns.saturating_sub(self.first.ns) < START_NS {
            earned -= earned / START_PART;
            earned_for_visits -= earned_for_visits / START_PART;
        }
        self.earned_to_ns = now.ns;
        let saved_max = share_of(BURST_NS, self.limit);
        self.own_ns = (self.own_ns + earned).min(saved_max);
        self.all_ns = (self.all_ns + earned).min(saved_max);
        let visiting_max = share_of(VISITING_SAVED_NS, self.limit);
        self.visiting_ns = (self.visiting_ns + earned_for_visits).min(visiting_max);
    }

    /// Limits what is earned to a part of the process's own CPU time.
    pub(super) fn limit_by_process(&mut self, part: Option<u64>) {
        self.limit_of_process = part;
    }

    /// The process has used so much CPU time, that of the agent included. What is earned until the next call depends on
    /// how much of it is new.
    pub(super) fn count_process(&mut self, now_ns: u64, cpu_ns: u64) {
        let Some(part) = self.limit_of_process else {
            return;
        };
        let now = ProcessReading {
            ns: now_ns,
            cpu_ns: cpu_ns.saturating_sub(self.sampler_cpu_ns + self.others_cpu_ns),
        };
        let before = std::mem::replace(&mut self.process, now);
        let passed_ns = now_ns.saturating_sub(before.ns).max(1);
        let used_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
        let rate = u128::from(used_ns) * u128::from(part) / u128::from(passed_ns);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.rate = rate.clamp(self.limit / RATE_PART_MIN, self.limit);
    }

    /// The time of a `stamp` that was read before this tick began.
    pub(super) fn time_of(&self, stamp: u64) -> u64 {
        let before = self.tick.stamp.saturating_sub(stamp) as f64 * self.ns_per_stamp;
        self.tick.ns.saturating_sub(before as u64)
    }

    /// Adds a handler that took `stamps` ticks of the time-stamp counter; `None` if it did not read it,
    /// and counts as much as the others on average.
    pub(super) fn count_sample(&mut self, stamps: Option<u64>) {
        let nanoseconds = match stamps {
            // The counter may jump when a virtual machine migrates; cap it.
            Some(stamps) => ((stamps as f64 * self.ns_per_stamp) as u64).min(1_000_000),
            None => self.handler_ns / self.handlers,
        };
        if stamps.is_some() {
            self.handler_ns += nanoseconds;
            self.handlers += 1;
        }
        self.counters.add_sample(nanoseconds, stamps.is_some());
        self.spend(nanoseconds.min(HANDLER_NS_MAX) + DELIVERY_NS);
    }

    /// Sets the CPU time of the sampler's thread so far.
    pub(super) fn count_sampler(&mut self, cpu_ns: u64) {
        self.spend(cpu_ns.saturating_sub(self.sampler_cpu_ns));
        self.sampler_cpu_ns = cpu_ns;
        self.counters
            .sampler_cpu_ns
            .store(cpu_ns, Ordering::Relaxed);
    }

    /// Of the sampler's CPU time, `nanoseconds` were spent on what is done once.
    pub(super) fn count_start(&mut self, nanoseconds: u64) {
        let paid = self.pay_at_start(nanoseconds);
        self.own_ns += paid;
        self.all_ns += paid;
    }

    /// Sets the CPU time of the agent's other threads so far: they name, record and ship what the
    /// program did. They leave a limited debt, because fewer samples would not make that cheaper.
    pub(super) fn count_others(&mut self, cpu_ns: u64) {
        let new = cpu_ns.saturating_sub(self.others_cpu_ns);
        self.others_cpu_ns = cpu_ns;
        let paid = self.pay_at_start(new).unsigned_abs();
        self.all_ns = self.all_ns.saturating_sub_unsigned(new - paid);
        self.all_ns = self.all_ns.max(-share_of(DEBT_NS_MAX, self.limit));
        self.counters.other_cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    /// Pays as much of this time as is left of the start's; returns how much.
    fn pay_at_start(&mut self, nanoseconds: u64) -> i64 {
        let paid = self
            .start_ns
            .min(i64::try_from(nanoseconds).unwrap_or(i64::MAX));
        self.start_ns -= paid;
        paid
    }

    fn spend(&mut self, nanoseconds: u64) {
        self.own_ns = self.own_ns.saturating_sub_unsigned(nanoseconds);
        self.all_ns = self.all_ns.saturating_sub_unsigned(nanoseconds);
    }

    /// Whether more was spent than the limit allows.
    pub(super) fn is_in_debt(&self) -> bool {
        self.own_ns.min(self.all_ns) < 0
    }

    /// How long the visits of this tick may take.
    pub(super) fn visit_budget(&self, interval_ns: u64) -> VisitBudget {
        let balance_ns = self.own_ns.min(self.all_ns) - share_of(RESERVE_NS, self.limit);
        let saved = balance_ns.max(0).unsigned_abs();
        let known_ns = (saved / VISITING_CREDIT_PART)
            .max(self.visiting_ns.unsigned_abs())
            .min(interval_ns / VISITING_PART);
        let is_rich = self.start_ns > 0 || saved > 0;
        let new_ns = if is_rich {
            NEW_NS_MAX
        } else {
            NEW_IN_DEBT_NS_MAX
        };
        VisitBudget { known_ns, new_ns }
    }

    /// The visits of known threads in a tick took this long.
    pub(super) fn count_visits(&mut self, nanoseconds: u64) {
        self.visiting_ns = self.visiting_ns.saturating_sub_unsigned(nanoseconds).max(0);
    }

    /// The number of ticks to skip now to pay off the debt.
    pub(super) fn throttle_ticks(&mut self, interval_ns: u64) -> u64 {
        let interval_ns = interval_ns.max(1);
        let earned_per_tick = share_of(interval_ns, self.rate).max(1).unsigned_abs();
        let debt = self.own_ns.min(self.all_ns).min(0).unsigned_abs();
        let skipped_max = (PAUSE_NS_MAX / interval_ns).saturating_sub(1);
        let skipped = debt.div_ceil(earned_per_tick).min(skipped_max);
        self.counters
            .ticks_throttled
            .fetch_add(skipped, Ordering::Relaxed);
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

    #[test]
    fn resolving_names_is_a_part_of_the_other_threads_time_between_two_counts() {
        let meter = meter();
        meter.counters.add_naming(7_000_000);
        let overhead = meter.counters.report();
        assert_eq!(
            (overhead.other_cpu_ns, overhead.naming_cpu_ns),
            (7_000_000, 7_000_000)
        );
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_to_a_sixteenth(value in 0..u64::from(u32::MAX)) {
            let end = bucket_end(bucket_of(value));
            prop_assert!(end >= value && end - value <= value / 16, "{} in {}", value, end);
        }

        #[test]
        fn the_limit_holds_over_time_whatever_ticks_cost_outside_of_debt(
            costs in prop::collection::vec(0..2_000_000u64, 2_000..4_000),
        ) {
            let mut meter = meter();
            let mut now = 0;
            let mut spent = 0;
            for cost in costs {
                meter.begin_tick(at(now));
                spent += if meter.is_in_debt() { cost / 30 } else { cost };
                meter.count_sampler(spent);
                now += TICK_NS * (1 + meter.throttle_ticks(TICK_NS));
            }
            let earned = now / 100 + BURST_NS / 100;
            prop_assert!(spent <= earned, "{} of {} ns", spent, earned);
        }

        #[test]
        fn visits_take_what_is_left_and_at_least_a_quarter(
            fixed in prop::collection::vec(5_000..80_000u64, 60_000..60_001),
            others in 0..40_000u64,
        ) {
            let mut meter = meter();
            let mut now = 0;
            let mut own = 0;
            let mut visiting = 0;
            let mut of_others = 0;
            let mut skipped = 0;
            for (tick, cost) in (0..).zip(fixed) {
                meter.begin_tick(at(now));
                let visits = meter.visit_budget(TICK_NS).known_ns;
                meter.count_visits(visits);
                visiting += visits;
                own += cost + visits;
                meter.count_sampler(own);
                if tick % 100 == 0 {
                    of_others = now / TICK_NS * others;
                    meter.count_others(of_others);
                }
                let skipped_now = meter.throttle_ticks(TICK_NS);
                skipped += skipped_now;
                now += TICK_NS * (1 + skipped_now);
            }
            // At least ten minutes: a part of what they earn may be spent at their start.
            let earned = now / 100;
            let spent = own + of_others;
            prop_assert!(spent <= earned + BURST_NS / 100, "{spent} of {earned} ns");
            prop_assert!(visiting >= earned * 23 / 100, "{visiting} of {earned} ns");
            // With a quarter for visits, ticks that cost less on average fit into the limit.
            let fits = others + 42_500 < 65_000;
            prop_assert!(skipped == 0 || !fits, "{skipped} ticks are skipped");
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
    fn a_process_that_runs_little_earns_a_part_of_its_own_time() {
        /// Ticks that are skipped in a minute if each costs 0.6% of its interval, and the process uses this time in each
        /// besides.
        fn skipped(limit_of_process: Option<u64>, used_per_tick_ns: u64) -> u64 {
            let mut meter = meter();
            meter.limit_by_process(limit_of_process);
            let mut own_ns = 0;
            let mut now_ns = 0;
            let mut skipped = 0;
            while now_ns < 60_000_000_000 {
                meter.begin_tick(at(now_ns));
                own_ns += 60_000;
                meter.count_sampler(own_ns);
                if now_ns % 1_000_000_000 < TICK_NS {
                    let used_ns = now_ns / TICK_NS * used_per_tick_ns;
                    meter.count_process(now_ns, used_ns + own_ns);
                }
                let skipped_now = meter.throttle_ticks(TICK_NS);
                skipped += skipped_now;
                now_ns += TICK_NS * (1 + skipped_now);
            }
            skipped
        }
        let part = Some(2 * PERCENT);
        assert_eq!(skipped(None, 0), 0);
        assert_eq!(skipped(part, TICK_NS), 0, "a whole processor");
        assert_eq!(skipped(part, TICK_NS / 2), 0, "half of one");
        assert!(skipped(part, TICK_NS / 5) > 1_000, "0.4 % are earned");
        assert!(skipped(part, 0) > 2_000, "0.25 % are earned");
    }

    #[test]
    fn what_is_done_once_borrows_from_the_first_ten_minutes() {
        let mut meter = meter();
        meter.count_sampler(290_000_000);
        meter.count_start(290_000_000);
        assert!(!meter.is_in_debt());
        meter.count_others(20_000_000);
        meter.count_others(40_000_000);
        assert!(
            meter.is_in_debt(),
            "0.3 s and the saved two seconds are spent"
        );
        assert_eq!(meter.visit_budget(TICK_NS).known_ns, 0);
        for tick in 1..=6_000 {
            meter.begin_tick(at(tick * TICK_NS));
        }
        assert!(!meter.is_in_debt());
        assert!(meter.visit_budget(TICK_NS).known_ns > 0);
    }

    #[test]
    fn ticks_stay_frequent_whatever_was_spent() {
        let mut meter = meter();
        meter.count_others(10_000_000_000);
        assert_eq!(
            meter.throttle_ticks(TICK_NS),
            1,
            "at least fifty ticks a second"
        );
        meter.count_sampler(10_000_000_000);
        assert_eq!(meter.throttle_ticks(TICK_NS), 1);
        assert_eq!(meter.throttle_ticks(1_000_000), 19);
        assert_eq!(meter.throttle_ticks(50_000_000), 0);
    }

    #[test]
    fn handler_times_are_reported_as_median_and_p99() {
        let counters = OverheadCounters::default();
        assert_eq!(counters.report(), Overhead::default());
        (0..98).for_each(|_| counters.add_sample(500, true));
        (0..2).for_each(|_| counters.add_sample(20_000, true));
        let report = counters.report();
        assert!((500..=531).contains(&report.handler_p50_ns), "{report:?}");
        assert!(
            (20_000..=21_250).contains(&report.handler_p99_ns),
            "{report:?}"
        );
        assert_eq!(report.samples, 100);
    }
}
