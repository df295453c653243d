//! Requests to a bucket, in an hour, of a collector with its store there, and their cost by a price list.

use std::time::Duration;

use anyhow::{Context as _, Result};
use simulation::agent::Agent;
use simulation::fleet::{Fleet, Pace, Plan};
use simulation::process::{Running, Serve};
use simulation::s3::{BUCKET, Product, Server};

use super::Options;
use crate::cluster::Programs;
use crate::ingest::{fleet_program, setup};
use crate::sampler::machine;

/// Limit on waiting for agents to attach.
const ATTACH_MAX: Duration = Duration::from_secs(180);

/// Agents that share a connection.
const AGENTS_PER_CONNECTION: usize = 20;

/// Amazon's list prices for S3 Standard in us-east-1, November 2026, in dollars: a thousand PUT or LIST requests, a thousand
/// GET requests, and a GB for a month. Deletions are free.
const PUTS_PRICE: f64 = 0.005;
const GETS_PRICE: f64 = 0.0004;
const GB_MONTH_PRICE: f64 = 0.023;

/// The kinds of requests, by their names in the collector's metrics.
const OPERATIONS: [&str; 4] = ["put", "get", "list", "delete"];

/// Requests to a bucket, with their bytes and CPU time.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    requests: [f64; OPERATIONS.len()],
    sent_bytes: f64,
    received_bytes: f64,
    table_bytes: f64,
    cpu_s: f64,
}

/// Measures and prints.
///
/// # Errors
/// If there is no S3 server, or the collector fails.
pub(super) fn run(options: &Options, programs: &Programs) -> Result<()> {
    let load = machine::load_average();
    let mut rows = Vec::new();
    for workers in &options.bucket_workers {
        for ack in ["disk", "store"] {
            let row = measure(options, programs, *workers as usize, ack)?;
            eprintln!("{row}");
            rows.push(row);
        }
    }
    println!(
        "\n{}, {} minutes each\n",
        machine::describe(&load),
        options.minutes
    );
    println!(
        "| workers | `--ack` | puts, gets, lists, deletions an hour | written, read an hour | tables grow by, an hour | dollars of \
         requests a month | CPU | memory at its peak |"
    );
    println!("|--:|---|--:|--:|--:|--:|--:|--:|");
    rows.iter().for_each(|row| println!("{row}"));
    println!(
        "\nA GB that is kept for a month costs {GB_MONTH_PRICE} dollars, a thousand puts or lists {PUTS_PRICE}, a thousand gets \
         {GETS_PRICE}."
    );
    Ok(())
}

/// One collector. Returns its row.
fn measure(options: &Options, programs: &Programs, workers: usize, ack: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let _entered = runtime.enter();
    let build = xtask::light()?;
    let server = Server::start(Product::SeaweedFs, &build)?.context("no S3 server")?;
    let folder = tempfile::Builder::new()
        .prefix("emberline-bench-")
        .tempdir()?;
    let data = folder
        .path()
        .to_str()
        .context("the folder's path is not UTF-8")?;
    let mut serve = Serve::new(&programs.emberline);
    let place = format!("s3://{BUCKET}/bench");
    let arguments = [
        "--store", &place, "--name", "c1", "--ack", ack, "--data", data,
    ];
    serve.arguments.extend(arguments.map(str::to_owned));
    serve.environment = server.environment();
    let running = serve.start()?;
    let (program, pattern, random) = fleet_program(options.seed, 70);
    let agents = (0..workers)
        .map(|index| {
            Ok(Agent::new(
                setup(index, &program, &pattern)?,
                random.fork(index),
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    let plan = Plan {
        pace: Pace::EVERY_SECOND,
        agents_per_connection: AGENTS_PER_CONNECTION,
        new_life: 0.0,
        flushes_max: u64::MAX,
    };
    let fleet = Fleet::start(agents, plan, &random);
    fleet.set_collector(running.address);
    let log = || format!("the collector's log ends:\n{}", running.process.log());
    runtime
        .block_on(fleet.attached(workers, ATTACH_MAX))
        .with_context(log)?;
    let before = Traffic::now(&running)?;
    let time = Duration::from_secs(60) * u32::from(options.minutes);
    runtime.block_on(tokio::time::sleep(time));
    let after = Traffic::now(&running)?;
    fleet.check().with_context(log)?;
    let memory = running.process.usage()?.memory_peak_bytes as f64 / 1e6;
    runtime.block_on(fleet.stop());
    let hours = time.as_secs_f64() / 3_600.0;
    let rate = |of: fn(&Traffic) -> f64| (of(&after) - of(&before)) / hours;
    let [puts, gets, lists, deletes] =
        [0, 1, 2, 3].map(|kind| (after.requests[kind] - before.requests[kind]) / hours);
    let dollars = ((puts + lists) * PUTS_PRICE + gets * GETS_PRICE) / 1e3 * 24.0 * 30.0;
    Ok(format!(
        "| {workers} | {ack} | {puts:.0}, {gets:.0}, {lists:.0}, {deletes:.0} | {:.0} MB, {:.0} MB | {:.0} MB | {dollars:.0} | \
         {:.0} % | {memory:.0} MB |",
        rate(|traffic| traffic.sent_bytes) / 1e6,
        rate(|traffic| traffic.received_bytes) / 1e6,
        rate(|traffic| traffic.table_bytes) / 1e6,
        rate(|traffic| traffic.cpu_s) / 36.0
    ))
}

/// The value of a metric.
///
/// # Errors
/// If the collector does not answer, or has no such metric.
pub(super) fn metric(running: &Running, name: &str) -> Result<f64> {
    let url = format!("http://{}/metrics", running.address);
    let text = ureq::get(&url).call()?.body_mut().read_to_string()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
        .with_context(|| format!("no metric {name}"))
}

impl Traffic {
    fn now(running: &Running) -> Result<Traffic> {
        let value = |name: &str| metric(running, name);
        let mut requests = [0.0; OPERATIONS.len()];
        for (count, operation) in requests.iter_mut().zip(OPERATIONS) {
            *count = value(&format!(
                "emberline_bucket_requests_total{{operation=\"{operation}\"}}"
            ))?;
        }
        let bytes = |direction| {
            value(&format!(
                "emberline_bucket_traffic_bytes_total{{direction=\"{direction}\"}}"
            ))
        };
        Ok(Traffic {
            requests,
            sent_bytes: bytes("sent")?,
            received_bytes: bytes("received")?,
            table_bytes: value("emberline_store_bytes")?,
            cpu_s: running.process.usage()?.cpu.as_secs_f64(),
        })
    }
}
