//! The least there is to copy for async code: a future is its task on whatever thread it is polled,
//! and work for a pool of threads carries the task along.

use std::time::Duration;

use agent::{TaskFutureExt as _, current_task, task};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("EMBERLINE_URL").unwrap_or("http://127.0.0.1:4747".into());
    let _agent = agent::Agent::builder().collector(url).worker("minimal-async").start()?;

    for round in 0..20 {
        let requests = (0..8).map(|number| {
            let request = task("request").key(format!("request-{round}-{number}"));
            tokio::spawn(answer(number).in_try_task(request))
        });
        for request in requests.collect::<Vec<_>>() {
            // A request that fails ends in the ledger as `failed`, with its cause.
            match request.await? {
                Ok(sum) => println!("the answer is {sum}"),
                Err(error) => println!("{error}"),
            }
        }
    }
    Ok(())
}

async fn answer(number: u64) -> anyhow::Result<u64> {
    tokio::time::sleep(Duration::from_millis(20)).await; // A database, say.
    anyhow::ensure!(number != 7, "number 7 has no answer");
    let here = current_task();
    let sum = tokio::task::spawn_blocking(move || {
        let _in = here.enter(); // This thread now works for the request.
        (0..20_000_000).fold(number, |sum, next| sum ^ (next * 31))
    });
    Ok(sum.await?)
}
