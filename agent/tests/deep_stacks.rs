//! A thread that computes in turn below a deep recursion, whose stack is larger than the usual copy, and in two functions
//! near its root. Its CPU clock, read around each function, is the truth.

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
use std::time::Duration;

use emberline_agent::task;
use profiler_core::{State, Weight};

use common::{Times, by_function, distance, processor_time, start, work_function};

/// CPU time of a thread.
const LENGTH: Duration = Duration::from_secs(6);
/// Bytes of an array in each frame of the recursion, and its depth: less than the 512 addresses of a stack. Without
/// optimization a frame takes four times as much.
const FRAME_BYTES: usize = 512;
const DEPTH: usize = 150;
/// Largest part of the time that may be at other functions than the truth says.
const DISTANCE_MAX: f64 = 0.08;
/// Threads that are deep at the same time, the CPU time of each, and the largest part of it that may lack the outer frames.
const THREADS: usize = 6;
const LENGTH_TOGETHER: Duration = Duration::from_millis(500);
const TRUNCATED_MAX: f64 = 0.05;

#[inline(never)]
fn below(depth: usize, length: Duration) {
    let room = black_box([0u8; FRAME_BYTES]);
    if depth == 0 {
        deep(length);
    } else {
        below(depth - 1, length);
    }
    black_box(&room);
}

work_function!(deep, 0);
work_function!(first, 1);
work_function!(second, 2);

fn enter_deep(length: Duration) {
    below(DEPTH, length);
}

type Function = (&'static str, fn(Duration));
const FUNCTIONS: [Function; 3] = [("deep", enter_deep), ("first", first), ("second", second)];

/// Calls the functions in turn, for 2 to 9 ms each: rarely is one sampled twice. Returns the CPU time of each.
fn run() -> Times {
    let _task = task("turns").start();
    let mut times = Times::new();
    let begin = processor_time();
    for (turn, (name, function)) in (0..).zip(FUNCTIONS.iter().cycle()) {
        let entered = processor_time();
        if entered - begin > LENGTH {
            break;
        }
        function(Duration::from_millis(2 + turn * 5 % 8));
        *times.entry(*name).or_default() += processor_time() - entered;
    }
    times
}

#[test]
fn deep_and_shallow_functions_in_turn_have_their_cpu_times() {
    let (agent, _turn) = start();
    let truth = thread::spawn(run).join().unwrap();
    let names = FUNCTIONS.map(|(name, _)| name);
    let found = by_function(&agent.finish().profile, &names, cpu_ns);
    let distance = distance(&truth, &found);
    println!("distance {distance:.3}: {truth:.2?}, found {found:.2?}");
    assert!(distance <= DISTANCE_MAX, "{distance:.3}");
}

/// From the first tick on.
#[test]
fn threads_that_are_deep_at_the_same_time_keep_their_whole_stacks() {
    let (agent, _turn) = start();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| thread::spawn(|| enter_deep(LENGTH_TOGETHER)))
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let profile = agent.finish().profile;
    let totals = profile.totals();
    let truncated: u64 = profile
        .nodes()
        .iter()
        .zip(&totals)
        .filter(|(node, _)| profile.frame(node.frame).label() == "[truncated]")
        .map(|(_, total)| cpu_ns(total))
        .sum();
    let part = truncated as f64 / cpu_ns(&profile.total()) as f64;
    println!("{part:.3} truncated");
    assert!(part <= TRUNCATED_MAX, "{part:.3}");
}

fn cpu_ns(weight: &Weight) -> u64 {
    weight.get(State::Cpu)
}
