//! A busy thread that must not allocate while it is sampled: the sampler's handler runs on it, and
//! the first allocation ends the process. With `alone` it allocates itself, to prove the check.

#[path = "sys/aborting.rs"]
mod allocator;

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent::AgentBuilder;
use anyhow::{Context, Result, ensure};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: allocator::Aborting = allocator::Aborting;

/// Samples of the thread, each taken by the handler.
const SAMPLES: u64 = 500;

/// Deadline for them.
const PATIENCE: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(1);

static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> Result<()> {
    let alone = std::env::args()
        .nth(1)
        .is_some_and(|argument| argument == "alone");
    let agent = AgentBuilder::default()
        .interval(INTERVAL)
        .cpu_limit(1.0)
        .start_local()?;
    let busy = thread::spawn(move || {
        let task = agent::task("promised").start();
        allocator::promise(true);
        while !STOP.load(Ordering::Acquire) {
            hint::black_box((0..1_000u64).fold(1, |sum, step| hint::black_box(sum ^ step)));
            if alone {
                hint::black_box(Box::new(1));
            }
        }
        allocator::promise(false);
        drop(task);
    });
    // On a busy machine ticks are not samples, but weight is: it comes with samples only.
    let begin = Instant::now();
    let sampled = loop {
        ensure!(
            begin.elapsed() < PATIENCE,
            "too few samples within {PATIENCE:?}"
        );
        thread::park_timeout(Duration::from_millis(100));
        let recording = agent.recording();
        let mut tops = recording.profile.top_level();
        let weight = tops
            .find(|(frame, _)| frame.function == "promised")
            .map(|(_, weight)| weight);
        let sampled_ns = weight.map_or(0, |weight| weight.total_ns());
        if recording.ticks.made >= 2 * SAMPLES
            && u128::from(sampled_ns) >= u128::from(SAMPLES) * INTERVAL.as_nanos()
        {
            break sampled_ns;
        }
    };
    STOP.store(true, Ordering::Release);
    busy.join().ok().context("the thread does not panic")?;
    println!(
        "{}",
        json!({ "sampled_ns": sampled, "ticks": agent.finish().ticks.made })
    );
    Ok(())
}
