//! A thread that computes in turn with and without its signals blocked: the sampler's signal comes only when it unblocks
//! them, from another function than the one that computed.

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

use std::thread;
use std::time::Duration;

use emberline_agent::task;
use nix::sys::signal::SigSet;
use profiler_core::{State, Weight};

use common::{by_function, start, work_function};

const TURNS: u32 = 40;
const SLICE: Duration = Duration::from_millis(50);
/// Most of the CPU time that may be elsewhere.
const ERROR_MAX: f64 = 0.12;

work_function!(open_work, 0);
work_function!(blocked_work, 1);

fn run() {
    let _task = task("turns").start();
    for _ in 0..TURNS {
        open_work(SLICE);
        SigSet::all().thread_block().unwrap();
        blocked_work(SLICE);
        SigSet::all().thread_unblock().unwrap();
    }
}

fn cpu_ns(weight: &Weight) -> u64 {
    weight.get(State::Cpu)
}

#[test]
fn time_with_blocked_signals_counts_at_no_other_function() {
    let (agent, _turn) = start();
    thread::spawn(run).join().unwrap();
    let profile = agent.finish().profile;
    let all_ns = cpu_ns(&profile.total()) as f64;
    let open = by_function(&profile, &["open_work"], cpu_ns)["open_work"].as_nanos() as f64;
    let without_stack: u64 = profile
        .nodes()
        .iter()
        .filter(|node| profile.frame(node.frame).label() == "[no stack: signal blocked]")
        .map(|node| cpu_ns(&node.own))
        .sum();
    let found = [open / all_ns, without_stack as f64 / all_ns];
    println!("{found:.3?}");
    for part in found {
        assert!((part - 0.5).abs() <= ERROR_MAX, "{found:.3?}");
    }
}
