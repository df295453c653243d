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

use std::collections::BTreeMap;
use std::hint::black_box;
use std::thread;
use std::time::Duration;

use emberline_agent::{AgentBuilder, task};
use profiler_core::{Profile, State};

use common::{processor_time, work};

/// CPU time of a thread.
const LENGTH: Duration = Duration::from_secs(6);
/// Bytes of a frame of the recursion, and its depth: less than the 512 addresses of a stack.
const FRAME_BYTES: usize = 1_024;
const DEPTH: usize = 150;
/// Largest part of the time that may be at other functions than the truth says.
const DISTANCE_MAX: f64 = 0.08;

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

/// Functions that compute, under names of their own. Each has a number, or the linker would merge them.
macro_rules! functions {
    ($($name:ident $number:literal),*) => {
        $(
            #[inline(never)]
            fn $name(length: Duration) {
                work(length);
                black_box($number);
            }
        )*
    };
}
functions!(deep 0, first 1, second 2);

fn enter_deep(length: Duration) {
    below(DEPTH, length);
}

type Function = (&'static str, fn(Duration));
const FUNCTIONS: [Function; 3] = [("deep", enter_deep), ("first", first), ("second", second)];

type Times = BTreeMap<&'static str, Duration>;

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

fn by_function(profile: &Profile) -> Times {
    let mut times = Times::new();
    let mut above: Vec<Option<&'static str>> = vec![None];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let called = FUNCTIONS
            .iter()
            .find(|(name, _)| label.ends_with(&format!("deep_stacks::{name}")));
        let function = above[node.parent.index()].or(called.map(|(name, _)| *name));
        if let Some(name) = function {
            *times.entry(name).or_default() += Duration::from_nanos(node.own.get(State::Cpu));
        }
        above.push(function);
    }
    times
}

/// The part of the time that is at other functions than the truth says.
fn distance(truth: &Times, found: &Times) -> f64 {
    let part = |times: &Times, name| {
        let sum = times.values().sum::<Duration>().as_secs_f64();
        times.get(name).map_or(0.0, |time| time.as_secs_f64() / sum)
    };
    truth
        .keys()
        .map(|name| (part(truth, name) - part(found, name)).abs() / 2.0)
        .sum()
}

#[test]
fn deep_and_shallow_functions_in_turn_have_their_cpu_times() {
    let agent = AgentBuilder::default().start_local().unwrap();
    let truth = thread::spawn(run).join().unwrap();
    let found = by_function(&agent.finish().profile);
    let distance = distance(&truth, &found);
    println!("distance {distance:.3}: {truth:.2?}, found {found:.2?}");
    assert!(distance <= DISTANCE_MAX, "{distance:.3}");
}
