//! A process that is stopped for a while by a signal: no thread of it is short of processors then.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu"
))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::hint::black_box;
use std::process::Command;

use emberline_agent::{AgentBuilder, task};
use profiler_core::State;

/// Seconds of the stop.
const STOP_S: u64 = 3;
/// Part of it that must be `other`: the sampler may have waited for a processor in the second before.
const OTHER_NS_MIN: u64 = STOP_S * 1_000_000_000 / 2;

#[test]
fn a_stopped_process_is_not_short_of_processors() {
    let agent = AgentBuilder::default().start_local().unwrap();
    let computing = task("computing").start();
    let process = std::process::id();
    let script =
        format!("sleep 2; kill -STOP {process}; sleep {STOP_S}; kill -CONT {process}; sleep 2");
    let mut stopping = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let mut sum = 1_u64;
    while stopping.try_wait().unwrap().is_none() {
        for _ in 0..1_000_000 {
            sum = black_box(sum.wrapping_mul(31));
        }
    }
    drop(computing);
    let recording = agent.finish();
    let (_, weight) = recording
        .profile
        .top_level()
        .find(|(frame, _)| frame.function == "computing")
        .unwrap();
    let other_ns = weight.get(State::Other);
    assert!(other_ns >= OTHER_NS_MIN, "{weight:?}");
}
