//! A pipeline on a thread pool: the pool does not know for which task its threads work, so each
//! closure carries it along. Needs `rayon`.

use std::time::{Duration, Instant};

use emberline_agent::{Agent, current_task, phase, task};
use rayon::prelude::*;

fn main() -> Result<(), emberline_agent::StartError> {
    let _agent = Agent::builder()
        .worker("thread-pool")
        .label("role", "example")
        .start()?;

    let start = Instant::now();
    let mut batch = 0;
    while start.elapsed() < Duration::from_secs(5) {
        let mut batch_task = task("batch").key(format!("batch-{batch}")).start();
        let numbers = {
            // A phase tells where within a task its time goes.
            let _phase = phase("load");
            load(batch)
        };
        let sum = sum_of_squares(&numbers);
        batch_task.result_bytes(size_of_val(&sum) as u64);
        drop(batch_task);
        println!("batch {batch}: {sum}");
        batch += 1;
    }
    Ok(())
}

fn load(batch: u64) -> Vec<u64> {
    (0..2_000_000)
        .map(|number| (number * batch) % 1_009)
        .collect()
}

fn sum_of_squares(numbers: &[u64]) -> u64 {
    let task = current_task();
    let sum_of_chunk = |chunk: &[u64]| -> u64 {
        let _scope = task.enter(); // until it is dropped, this thread works for the batch
        chunk.iter().map(|number| number * number).sum()
    };
    numbers.par_chunks(100_000).map(sum_of_chunk).sum()
}
