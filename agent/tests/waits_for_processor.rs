//! More threads than processors, in functions that compute and functions that block: where the time
//! goes in which a thread waits for a processor. The kernel's count of each thread's waits, read
//! around each function, is the truth.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu"
))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, task};
use profiler_core::{Profile, State};

use common::{CrowdRun, run_crowd};

const LENGTH: Duration = Duration::from_secs(8);
/// Largest part of the time that may be at other functions than the truth says, and largest error of
/// the sum. On processors that others use too, a thread gets one for shorter and later, and the agent
/// sees less of it: each bound grows by this much of the part that others take.
const DISTANCE_MAX: f64 = 0.10;
const DISTANCE_OF_OTHERS: f64 = 0.40;
const ERROR_MAX: f64 = 0.05;
const ERROR_OF_OTHERS: f64 = 0.10;
/// Most rounds that are summed.
const ROUNDS_MAX: usize = 4;

/// How long a thread computes before its last function, and in that one.
const COMPUTING_LENGTH: Duration = Duration::from_millis(1_800);
const LAST_LENGTH: Duration = Duration::from_millis(200);
/// Largest part of all waits that may be at the last function, beyond the truth.
const LAST_EXCESS_MAX: f64 = 0.03;

/// Functions of one kind under names of their own. Each has a number, or the linker would merge them.
macro_rules! functions {
    ($kind:ident: $($name:ident $number:literal),*) => {
        $(
            #[inline(never)]
            fn $name(length: Duration) {
                $kind(length);
                black_box($number);
            }
        )*
    };
}
functions!(compute: count_one 1, count_two 2, count_three 3, count_four 4);
functions!(block: wait_one 5, wait_two 6, wait_three 7, wait_four 8);

type Function = (&'static str, fn(Duration));
const COMPUTING: [Function; 4] = [
    ("count_one", count_one),
    ("count_two", count_two),
    ("count_three", count_three),
    ("count_four", count_four),
];
const BLOCKING: [Function; 4] = [
    ("wait_one", wait_one),
    ("wait_two", wait_two),
    ("wait_three", wait_three),
    ("wait_four", wait_four),
];

#[inline(always)]
fn compute(length: Duration) {
    let rounds = u64::try_from(length.as_micros()).unwrap();
    let mut sum = 1u64;
    for _ in 0..rounds * 300 {
        sum = black_box(sum.wrapping_mul(31));
    }
}

#[inline(always)]
fn block(length: Duration) {
    thread::sleep(length);
}

/// Where a thread waits between two functions.
const BETWEEN: &str = "waits_for_processor::run";

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Returns a function that reads for how long this thread has waited for a processor.
fn waits_of_own_thread() -> impl Fn() -> u64 {
    let schedstat = File::open("/proc/thread-self/schedstat").unwrap();
    move || {
        let mut text = [0; 128];
        let length = schedstat.read_at(&mut text, 0).unwrap();
        let text = std::str::from_utf8(&text[..length]).unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

/// Runs functions by chance; returns the time for which this thread waited for a processor in each,
/// and between them.
fn run(seed: u64) -> Waits {
    let waited_ns = waits_of_own_thread();
    let mut random = Random(seed * 7_919 + 1);
    let mut waited = BTreeMap::new();
    let all_before = waited_ns();
    let begin = Instant::now();
    while begin.elapsed() < LENGTH {
        let _task = task("mixed").start();
        let functions = if random.below(2) == 0 {
            &COMPUTING
        } else {
            &BLOCKING
        };
        let (name, function) = functions[random.below(4) as usize];
        let before = waited_ns();
        function(Duration::from_micros(1_000 + random.below(12_000)));
        *waited.entry(name).or_default() += waited_ns() - before;
    }
    let in_functions: u64 = waited.values().sum();
    waited.insert(BETWEEN, waited_ns() - all_before - in_functions);
    waited
}

/// Computes in one function, then shortly in another one, and ends.
fn run_without_blocks(_seed: u64) -> Waits {
    let waited_ns = waits_of_own_thread();
    let _task = task("computing").start();
    let begin = Instant::now();
    while begin.elapsed() < COMPUTING_LENGTH {
        count_one(Duration::from_millis(2));
    }
    let until_last = waited_ns();
    let begin = Instant::now();
    while begin.elapsed() < LAST_LENGTH {
        count_two(Duration::from_millis(2));
    }
    Waits::from([
        ("count_one", until_last),
        ("count_two", waited_ns() - until_last),
    ])
}

/// Runnable time by function, each node's at the innermost.
fn runnable_by_function(profile: &Profile) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    let mut above: Vec<Option<&'static str>> = vec![None];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let mut names = COMPUTING
            .iter()
            .chain(&BLOCKING)
            .map(|(name, _)| *name)
            .chain([BETWEEN]);
        let function = names
            .find(|name| label.contains(name))
            .or(above[node.parent.index()]);
        if let Some(name) = function {
            *sums.entry(name).or_default() += node.own.get(State::Runnable);
        }
        above.push(function);
    }
    sums
}

type Waits = BTreeMap<&'static str, u64>;

fn add_all(sums: &mut Waits, waits: Waits) {
    for (name, waited_ns) in waits {
        *sums.entry(name).or_default() += waited_ns;
    }
}

/// Rounds of the same work, summed.
#[derive(Default)]
struct Rounds {
    truth: Waits,
    measured: Waits,
}

impl Rounds {
    /// Runs a crowd of `body` once more. Returns the part of the processors that other programs took.
    fn add_round(&mut self, body: fn(u64) -> Waits) -> f64 {
        let agent = AgentBuilder::default().start_local().unwrap();
        let CrowdRun { results, others } = run_crowd(body);
        for truth in results {
            add_all(&mut self.truth, truth);
        }
        add_all(
            &mut self.measured,
            runnable_by_function(&agent.finish().profile),
        );
        others
    }

    /// The part of the time at other functions than the truth says, and the error of the sum.
    fn errors(&self) -> (f64, f64) {
        let total = self.truth.values().sum::<u64>() as f64;
        let measured_total = self.measured.values().sum::<u64>() as f64;
        let mut distance = 0.0;
        for (name, waited_ns) in &self.truth {
            let found_ns = self.measured.get(name).copied().unwrap_or(0);
            println!(
                "{name}: {:.2} s, measured {:.2} s",
                *waited_ns as f64 / 1e9,
                found_ns as f64 / 1e9
            );
            distance += (*waited_ns as f64 / total - found_ns as f64 / measured_total).abs() / 2.0;
        }
        (distance, (measured_total / total - 1.0).abs())
    }
}

/// A process has one agent, and a crowd needs all processors.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_wait_after_a_wake_up_belongs_to_the_function_that_blocked() {
    let _alone = alone();
    let mut rounds = Rounds::default();
    let mut others_sum = 0.0;
    let is_found = (1..=ROUNDS_MAX).any(|round| {
        others_sum += rounds.add_round(run);
        let others = others_sum / round as f64;
        let (distance, error) = rounds.errors();
        println!("distance {distance:.3}, error {error:.3}, other programs {others:.2}");
        distance <= DISTANCE_MAX + DISTANCE_OF_OTHERS * others
            && error <= ERROR_MAX + ERROR_OF_OTHERS * others
    });
    assert!(
        is_found,
        "the sum of {ROUNDS_MAX} rounds is not near the truth"
    );
}

/// A wait that has not ended is not reported yet, and looks like a block. If it counted as one, the
/// waits of a thread that never blocks would be left over for the place where it ends.
#[test]
fn the_last_function_of_a_thread_does_not_get_the_waits_of_earlier_ones() {
    let _alone = alone();
    let mut rounds = Rounds::default();
    let is_found = (1..=ROUNDS_MAX).any(|_| {
        let others = rounds.add_round(run_without_blocks);
        let total = rounds.truth.values().sum::<u64>() as f64;
        let part_of_last = |waits: &Waits| waits["count_two"] as f64 / total;
        let truth = part_of_last(&rounds.truth);
        let measured = part_of_last(&rounds.measured);
        println!("last function: {truth:.3}, measured {measured:.3}, other programs {others:.2}");
        measured <= truth + LAST_EXCESS_MAX
    });
    assert!(
        is_found,
        "the last function has more than its waits in {ROUNDS_MAX} rounds"
    );
}
