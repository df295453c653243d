//! The least there is to copy: one line starts the agent, and one line names what a thread works
//! on. Needs only `emberline-agent`.
//!
//! Start a collector with `emberline serve` to see the profile; the program runs without one too.

use std::time::{Duration, Instant};

use emberline_agent::{Agent, task};

fn main() -> Result<(), emberline_agent::StartError> {
    let _agent = Agent::builder().worker("minimal").start()?;

    let start = Instant::now();
    for limit in (0..).step_by(1_000) {
        if start.elapsed() > Duration::from_secs(5) {
            break;
        }
        let _task = task("primes").key(format!("primes-{limit}")).start();
        println!("{} primes below {limit}", count_primes(limit));
    }
    Ok(())
}

fn count_primes(limit: u64) -> usize {
    (2..limit).filter(|number| is_prime(*number)).count()
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    divisors.all(|divisor| number % divisor != 0)
}
