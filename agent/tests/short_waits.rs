//! Threads that wait in one function after another and run for some microseconds in between, so that
//! no clock interrupt finds them running. Each function measures for how long it waited; the profile
//! has these times.

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

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use profiler_core::Weight;

use common::{Times, by_function, distance, start};

const LENGTH: Duration = Duration::from_secs(12);
/// Largest part of a cycle's time that may be at other functions than the truth says.
const DISTANCE_MAX: f64 = 0.05;
/// Most rounds that are summed.
const ROUNDS_MAX: usize = 3;

/// Functions that wait, under names of their own. Each has a number, or the linker would merge them.
macro_rules! waits {
    ($($name:ident $number:literal),*) => {
        $(
            #[inline(never)]
            fn $name(length: Duration) {
                thread::sleep(length);
                black_box($number);
            }
        )*
    };
}
waits!(
    even_one 0, even_two 1, even_three 2, even_four 3, long 4, tenth 5, most 6, rest 7, first 8, second 9,
    third 10, seconds 11, once 12, again 13
);

/// A function that waits, and for how many milliseconds.
struct Wait {
    name: &'static str,
    function: fn(Duration),
    milliseconds: u64,
}

macro_rules! cycle {
    ($($function:ident $milliseconds:literal),*) => {
        &[$(Wait { name: stringify!($function), function: $function, milliseconds: $milliseconds }),*]
    };
}

/// Cycles of waits, each repeated by its threads.
const CYCLES: [&[Wait]; 5] = [
    cycle!(even_one 100, even_two 100, even_three 100, even_four 100),
    cycle!(long 900, tenth 100),
    cycle!(most 90, rest 10),
    cycle!(first 50, second 150, third 300),
    cycle!(seconds 2_000, once 100, again 100),
];

/// Waits until the time is over, from the wait `first` on. Returns how long each function took.
fn run(cycle: &[Wait], first: usize, begin: Instant) -> Times {
    let mut times = Times::new();
    for wait in cycle.iter().cycle().skip(first) {
        let entered = Instant::now();
        if entered - begin > LENGTH {
            break;
        }
        (wait.function)(Duration::from_millis(wait.milliseconds));
        *times.entry(wait.name).or_default() += entered.elapsed();
    }
    times
}

/// Times that the threads of a cycle measured, and those in the profile.
#[derive(Default)]
struct Account {
    truth: Times,
    found: Times,
}

/// Runs all cycles once, each by two threads that are at different waits.
fn add_round(accounts: &mut [Account; CYCLES.len()]) {
    let (agent, _turn) = start();
    let begin = Instant::now();
    let threads =
        CYCLES.map(|cycle| [0, 1].map(|first| thread::spawn(move || run(cycle, first, begin))));
    for (account, threads) in accounts.iter_mut().zip(threads) {
        for (name, time) in threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
        {
            *account.truth.entry(name).or_default() += time;
        }
    }
    let recording = agent.finish();
    for (account, cycle) in accounts.iter_mut().zip(CYCLES) {
        let names: Vec<_> = cycle.iter().map(|wait| wait.name).collect();
        for (name, time) in by_function(&recording.profile, &names, Weight::total_ns) {
            *account.found.entry(name).or_default() += time;
        }
    }
}

#[test]
fn waits_between_which_a_thread_hardly_runs_have_their_times() {
    let mut accounts: [Account; CYCLES.len()] = Default::default();
    let mut largest = 1.0;
    // A machine that others use delays the visits of threads: more rounds average that.
    for _ in 0..ROUNDS_MAX {
        add_round(&mut accounts);
        largest = 0.0;
        for Account { truth, found } in &accounts {
            let distance = distance(truth, found);
            println!("distance {distance:.3}: {truth:.1?}, found {found:.1?}");
            largest = distance.max(largest);
        }
        if largest <= DISTANCE_MAX {
            return;
        }
    }
    panic!("a distance of {largest:.3}");
}
