//! Parameters of a run, drawn from its seed before it starts: number of agents and collectors, duration, and
//! severity of the faults.

use simulation::random::Random;

/// Nanoseconds of a second.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// Most that a clock is off, in nanoseconds.
const CLOCK_OFF_MAX: i64 = 6 * 3_600 * SECOND;

/// Probability of several collectors.
const SEVERAL_SHARE: f64 = 1.0 / 3.0;

/// A run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Simulated time until everything heals, in nanoseconds.
    pub(crate) length_ns: i64,
    /// Workers, each with one agent at a time.
    pub(crate) workers: usize,
    /// Collectors, each with a machine of its own.
    pub(crate) collectors: usize,
    /// Probability that a packet is lost and sent again.
    pub(crate) loss: f64,
    /// Probability that a message breaks its stream.
    pub(crate) break_share: f64,
    /// Probability that messages of a broken stream still arrive, after those of the next one.
    pub(crate) duplicates: f64,
    /// Longest partition, in nanoseconds.
    pub(crate) partition_max_ns: i64,
    /// Mean time between faults of a collector (crashes, pauses, disk, clock), in nanoseconds.
    pub(crate) fault_every_ns: i64,
    /// Mean time between partitions and between ends of agents.
    pub(crate) unrest_every_ns: i64,
    pub(crate) seal_every_ns: i64,
    /// Whether clocks are wrong.
    pub(crate) are_clocks_off: bool,
    pub(crate) outbox: OutboxLimits,
    pub(crate) log_file_bytes: u64,
    /// Whether log and tables are in a bucket.
    pub(crate) is_bucket: bool,
}

/// Limits of all agents' outboxes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutboxLimits {
    pub(crate) waiting_max: usize,
    pub(crate) bytes_max: usize,
    pub(crate) flush_bytes_max: usize,
}

impl Scenario {
    /// Draws a run.
    #[must_use]
    pub fn draw(random: &mut Random) -> Scenario {
        // One in twenty lasts for hours, with partitions as long.
        let is_long = random.chance(0.05);
        let length_ns = if is_long {
            minutes(random, 90, 180)
        } else {
            minutes(random, 4, 14)
        };
        let partition_max_ns = if is_long {
            minutes(random, 70, 120)
        } else {
            minutes(random, 1, 5)
        };
        let is_quiet = random.chance(0.1);
        let small = OutboxLimits {
            waiting_max: 20,
            bytes_max: 64 << 10,
            flush_bytes_max: 4 << 10,
        };
        let large = OutboxLimits {
            waiting_max: 3_600,
            bytes_max: 8 << 20,
            flush_bytes_max: 256 << 10,
        };
        Scenario {
            length_ns,
            workers: random.between(1, 4),
            collectors: if random.chance(SEVERAL_SHARE) {
                random.between(2, 3)
            } else {
                1
            },
            loss: if is_quiet { 0.0 } else { 0.3 },
            break_share: [0.0, 0.005, 0.02, 0.1][random.below(4)],
            duplicates: if is_quiet { 0.0 } else { 0.5 },
            partition_max_ns,
            fault_every_ns: minutes(random, 1, 4),
            unrest_every_ns: minutes(random, 1, 6),
            seal_every_ns: [15, 60, 120][random.below(3)] * SECOND,
            are_clocks_off: random.chance(0.7),
            outbox: if random.chance(0.3) { small } else { large },
            log_file_bytes: if random.chance(0.5) {
                4 << 10
            } else {
                64 << 20
            },
            is_bucket: random.chance(0.4),
        }
    }

    /// How far a clock is off.
    pub(crate) fn draw_clock(&self, random: &mut Random) -> i64 {
        if !self.are_clocks_off {
            return 0;
        }
        let fraction = random.fraction() * 2.0 - 1.0;
        (fraction * CLOCK_OFF_MAX as f64) as i64
    }
}

fn minutes(random: &mut Random, low: usize, high: usize) -> i64 {
    i64::try_from(random.between(low, high)).expect("it is small") * 60 * SECOND
}

/// A time around `mean_ns`, for events that happen at any time.
pub(crate) fn draw_delay(random: &mut Random, mean_ns: i64) -> i64 {
    let delay = -(1.0 - random.fraction()).ln() * mean_ns as f64;
    delay as i64
}
