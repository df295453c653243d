//! A service in Go with `net/http/pprof`, which a collector scrapes, and Pyroscope's client for Go.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use xtask::announce;
use xtask::page::Collector;

use crate::packages::text_of;
use crate::readers::get;

const PROGRAM: &str = include_str!("service.go");

/// A program with Pyroscope's client, which pushes all its profile types, and its module.
const PUSHING_PROGRAM: &str = include_str!("pyroscope.go");
const PUSHING_MODULE: &str =
    "module client\n\ngo 1.22\n\nrequire github.com/grafana/pyroscope-go v1.5.0\n";

/// Profiles to wait for, and how long.
const PROFILES: u64 = 3;
const PROFILES_MAX: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// The function that computes has at least this share of the time, in percent.
const SHARE_MIN: u64 = 90;

/// The service, which ends with the comparison.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(program: &Path) -> Result<Service> {
        let process = Command::new(program)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut service = Service {
            process,
            address: String::new(),
        };
        let stdout = service
            .process
            .stdout
            .take()
            .context("its output is piped")?;
        BufReader::new(stdout).read_line(&mut service.address)?;
        service.address.truncate(service.address.trim_end().len());
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns how to get Go if it is missing.
pub(super) fn run(emberline: &Path, folder: &Path) -> Result<Option<String>> {
    if Command::new("go").arg("version").output().is_err() {
        return Ok(Some("no go: apt-get install golang-go".to_owned()));
    }
    announce("asking a service in Go for profiles");
    let folder = folder.join("go");
    fs::create_dir_all(&folder).context("creating the folder of the service")?;
    fs::write(folder.join("service.go"), PROGRAM).context("writing the service")?;
    let mut build = Command::new("go");
    build
        .current_dir(&folder)
        .args(["build", "-o", "service", "service.go"]);
    text_of(build.env("GO111MODULE", "off")).context("go builds a program without modules")?;
    let service = Service::start(&folder.join("service"))?;
    let target = format!("http://{},name=go,every=1s", service.address);
    let options = ["serve", "--listen", "127.0.0.1:0", "--scrape", &target];
    let collector = Collector::start(emberline, &options)?;
    wait_for_profiles(&collector.url)?;
    check_profile(&collector.url)?;
    push(emberline, &folder.join("pyroscope"))?;
    Ok(None)
}

/// Pushes with Pyroscope's client, which fails if a push is refused.
fn push(emberline: &Path, folder: &Path) -> Result<()> {
    announce("pushing all profile types of Pyroscope's client for Go");
    fs::create_dir_all(folder).context("creating the folder of the client")?;
    fs::write(folder.join("main.go"), PUSHING_PROGRAM).context("writing the client")?;
    fs::write(folder.join("go.mod"), PUSHING_MODULE).context("writing its module")?;
    for arguments in [&["mod", "tidy"][..], &["build", "-o", "client", "."]] {
        let mut go = Command::new("go");
        text_of(go.current_dir(folder).args(arguments)).context("go needs access to its proxy")?;
    }
    let collector = Collector::start(emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    text_of(Command::new(folder.join("client")).arg(&collector.url))
        .context("the client logs no error")?;
    for (state, function) in [("cpu", "main.compute"), ("lock", "main.waitForMutex")] {
        let query = format!("from=-5m&format=collapsed&state={state}");
        let stacks = get(&format!("{}/api/v1/profile?{query}", collector.url))?;
        ensure!(
            stacks.contains(function),
            "no time of {function} in state {state}:\n{stacks}"
        );
    }
    let workers: Value = serde_json::from_str(&get(&format!("{}/api/v1/workers", collector.url))?)?;
    let pushes = &workers["pushes"][0];
    ensure!(pushes["rejected"] == 0, "pushes were rejected: {pushes}");
    ensure!(
        pushes["without_time"].as_u64() > Some(0),
        "heap profiles have no time: {pushes}"
    );
    Ok(())
}

fn wait_for_profiles(url: &str) -> Result<()> {
    let deadline = Instant::now() + PROFILES_MAX;
    loop {
        let workers: Value = serde_json::from_str(&get(&format!("{url}/api/v1/workers"))?)?;
        let scrape = &workers["scrapes"][0];
        if scrape["stored"].as_u64() >= Some(PROFILES) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the collector has not asked {PROFILES} times: {scrape}");
        }
        thread::sleep(RETRY_EVERY);
    }
}

fn check_profile(url: &str) -> Result<()> {
    let query = "from=-5m&format=collapsed&label=service_name=go";
    let stacks = get(&format!("{url}/api/v1/profile?{query}"))?;
    let mut total_ns = 0;
    let mut computing_ns = 0;
    for line in stacks.lines() {
        let (stack, weight) = line
            .rsplit_once(' ')
            .context("a line of a stack and its time")?;
        let weight: u64 = weight.parse()?;
        total_ns += weight;
        if stack
            .split(';')
            .any(|function| function == "main.fibonacci")
        {
            computing_ns += weight;
        }
    }
    let share = (100 * computing_ns).checked_div(total_ns).unwrap_or(0);
    ensure!(
        share >= SHARE_MIN,
        "main.fibonacci has {share} % of the time:\n{stacks}"
    );
    let seconds = total_ns as f64 / 1e9;
    println!("profiles of a service in Go: {seconds:.2} s, {share} % in main.fibonacci");
    Ok(())
}
