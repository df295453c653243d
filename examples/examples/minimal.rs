//! The least there is to copy: one line starts the agent, one line names what a thread works on.

use std::time::{Duration, Instant};

fn main() -> anyhow::Result<()> {
    let url = std::env::var("EMBERLINE_URL").unwrap_or("http://127.0.0.1:4747".into());
    let _agent = agent::Agent::builder().collector(url).worker("minimal").start()?;

    let begun = Instant::now();
    for limit in (0u64..).step_by(1_000).take_while(|_| begun.elapsed() < Duration::from_secs(10)) {
        let _task = agent::task("primes").key(format!("primes-{limit}")).start();
        println!("{} primes below {limit}", count_primes(limit));
    }
    Ok(())
}

fn count_primes(limit: u64) -> usize {
    (2..limit).filter(|number| is_prime(*number)).count()
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    divisors.all(|divisor| !number.is_multiple_of(divisor))
}
