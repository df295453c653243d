//! A small program with the agent: how much memory it takes more than before the agent started.
//!
//! The program is this test again, in a process of its own, because tests of one process share
//! their memory.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use emberline_agent::{Agent, task};

const IN_CHILD: &str = "EMBERLINE_TEST_MEMORY_CHILD";
/// Long enough for the first cycles, whose names are the most work.
const WORK: Duration = Duration::from_secs(4);
const PRIVATE_MAX: u64 = 10 << 20;
const RESIDENT_MAX: u64 = 25 << 20;

/// Bytes of this process's memory.
#[derive(Clone, Copy, Debug)]
struct Memory {
    private: u64,
    resident: u64,
}

fn memory() -> Memory {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let bytes = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        line.trim()
            .strip_suffix(" kB")
            .unwrap()
            .parse::<u64>()
            .unwrap()
            << 10
    };
    Memory {
        private: bytes("Private_Clean:") + bytes("Private_Dirty:"),
        resident: bytes("Rss:"),
    }
}

/// Work with many different addresses: strings, maps, sorting.
fn work(seed: u64) -> u64 {
    let words = (0..400_u64).map(|number| format!("{:x}", number.wrapping_mul(seed | 1)));
    let mut by_length: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for word in words {
        by_length.entry(word.len()).or_default().push(word);
    }
    by_length.values_mut().for_each(|words| words.sort());
    by_length
        .values()
        .flatten()
        .map(|word| word.len() as u64)
        .sum::<u64>()
        ^ seed
}

/// The program: prints the memory that it took more.
fn program() {
    // The program's own memory is there before the agent is.
    work(1);
    let before = memory();
    let agent = Agent::builder().worker("small").start_local().unwrap();
    let end = Instant::now() + WORK;
    let busy = |seed| {
        thread::spawn(move || {
            let mut sum = seed;
            while Instant::now() < end {
                let _task = task("work");
                sum = work(sum);
            }
            sum
        })
    };
    let threads = [busy(3), busy(5)];
    for thread in threads {
        thread.join().unwrap();
    }
    let after = memory();
    let samples = agent.overhead().samples;
    println!("private {}", after.private.saturating_sub(before.private));
    println!(
        "resident {}",
        after.resident.saturating_sub(before.resident)
    );
    println!("samples {samples}");
}

#[test]
fn a_small_program_grows_by_little() {
    if env::var_os(IN_CHILD).is_some() {
        return program();
    }
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", "a_small_program_grows_by_little", "--nocapture"])
        .env(IN_CHILD, "1");
    let output = child.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    assert!(value("samples ") > 0, "{text}");
    assert!(value("private ") <= PRIVATE_MAX, "{text}");
    assert!(value("resident ") <= RESIDENT_MAX, "{text}");
}
