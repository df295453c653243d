//! Runs the fleet of `emberline demo` by itself, for SECONDS (10) with WORKERS (4):
//! `cargo run --release -p emberline-examples --example fleet -- [SECONDS [WORKERS]]`.

use std::{env, thread, time::Duration};

use anyhow::{bail, ensure};
use emberline_examples::fleet::{Fleet, FleetOptions, worker_main};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    // The fleet starts this same program for its workers, with the role as the first argument.
    if arguments.iter().any(|first| first == "fleet-worker") {
        let [_, _, index, _, workers, _, collector] = arguments.as_slice() else {
            bail!("fleet-worker --index I --workers N --collector URL");
        };
        return worker_main(index.parse()?, workers.parse()?, collector);
    }
    let seconds = arguments.first().map_or("10", String::as_str).parse()?;
    let workers = arguments.get(1).map_or("4", String::as_str).parse()?;
    let collector = env::var("EMBERLINE_URL").unwrap_or_else(|_| "http://127.0.0.1:4747".into());
    let options = FleetOptions::new(env::current_exe()?, collector);
    let fleet = Fleet::spawn(FleetOptions { workers, ..options })?;
    eprintln!("processes {:?} work for {seconds} s", fleet.pids());
    thread::sleep(Duration::from_secs(seconds));
    let summaries = fleet.stop()?;
    for summary in &summaries {
        let record = serde_json::to_string(&summary.record)?;
        println!("{}: {record}", summary.status);
    }
    let all_well = summaries.iter().all(|summary| summary.status.success());
    ensure!(all_well, "a worker ended badly");
    Ok(())
}
