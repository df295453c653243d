//! Profiles a piece of code within the process: no collector, no network. Needs only
//! `emberline-agent`, which may be without its default features.

use std::collections::BTreeMap;

use emberline_agent::{AgentBuilder, task};

fn main() -> Result<(), emberline_agent::StartError> {
    let agent = AgentBuilder::default().start_local()?;
    for number in 0..200_u64 {
        let _task = task("sort").key(format!("sort-{number}")).start();
        sort_words(number);
    }
    println!("sampler: {}", agent.mode());
    let overhead = agent.overhead();
    let recording = agent.finish();

    println!(
        "{} tasks in {} ticks",
        recording.tasks.len(),
        recording.ticks.made
    );
    for (frame, weight) in recording.profile.top_level() {
        println!(
            "{:>8.1} ms  {}",
            weight.total_ns() as f64 / 1e6,
            frame.label()
        );
    }
    println!(
        "the sampler's thread used {} µs",
        overhead.sampler_cpu_ns / 1_000
    );
    Ok(())
}

fn sort_words(seed: u64) -> BTreeMap<String, u64> {
    let numbers = (0..20_000).map(|index: u64| (index + seed) * 2_654_435_761 % 65_537);
    numbers
        .map(|number| (format!("word-{number}"), number))
        .collect()
}
