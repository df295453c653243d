//! A program that has spans of `tracing` already: a layer makes them tasks. Needs `tracing`,
//! `tracing-subscriber` and the feature `tracing-layer` of `emberline-agent`.

use std::time::{Duration, Instant};

use emberline_agent::{Agent, TaskLayer};
use tracing::{error, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _agent = Agent::builder().worker("tracing").start()?;
    // Spans of other crates do not become tasks.
    let layer = TaskLayer::new().with_target_prefix(module_path!());
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;

    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < Duration::from_secs(5) {
        // The span's name is the task's name, and the field `task.key` its key.
        let _request = info_span!("request", task.key = format!("request-{number}")).entered();
        answer(number);
        number += 1;
    }
    println!("{number} requests");
    Ok(())
}

fn answer(number: u64) {
    let digest = info_span!("digest").in_scope(|| digest(number));
    if digest % 10 == 0 {
        // An event of level ERROR ends the task as `failed`, with the text as its cause.
        error!("the digest {digest} of {number} is not allowed");
    }
}

fn digest(number: u64) -> u64 {
    (0..5_000_000).fold(number, |digest, next| digest.rotate_left(5) ^ next)
}
