//! Async code: a future is its task on whichever thread polls it, and a blocking closure carries
//! the task along. Needs `tokio` with `macros`, `rt-multi-thread` and `time`.

use std::time::{Duration, Instant};

use emberline_agent::{Agent, TaskFutureExt as _, current_task, task};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _agent = Agent::builder().worker("async").start()?;

    let start = Instant::now();
    for round in 0.. {
        if start.elapsed() > Duration::from_secs(5) {
            break;
        }
        let requests: Vec<_> = (0..8)
            .map(|number| {
                let request = task("request").key(format!("request-{round}-{number}"));
                tokio::spawn(answer(number).in_try_task(request))
            })
            .collect();
        for request in requests {
            // A request that returns an error ends as `failed`, with the error as its cause.
            match request.await? {
                Ok(sum) => println!("the answer is {sum}"),
                Err(error) => println!("{error}"),
            }
        }
    }
    Ok(())
}

async fn answer(number: u64) -> Result<u64, String> {
    tokio::time::sleep(Duration::from_millis(20)).await; // for example a database
    if number == 7 {
        return Err("number 7 has no answer".to_owned());
    }
    let request = current_task();
    let sum = tokio::task::spawn_blocking(move || {
        let _scope = request.enter(); // until it is dropped, this thread works for the request
        (0..20_000_000).fold(number, |sum, next| sum ^ (next * 31))
    });
    sum.await.map_err(|error| error.to_string())
}
