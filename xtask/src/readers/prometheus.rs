//! Checks `/metrics` and the alert rules with Prometheus: its tool, and a server that scrapes a collector.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use xtask::page::Collector;
use xtask::{light, root};

use super::get;

/// Longest wait until Prometheus has scraped the collector.
const SCRAPED_MAX: Duration = Duration::from_secs(60);
const RETRY_EVERY: Duration = Duration::from_millis(200);

/// A metric that every collector has, with its value in a collector without workers.
const QUERY: &str = "emberline_sessions{state=\"connected\"}";
const QUERY_ENCODED: &str = "emberline_sessions%7Bstate%3D%22connected%22%7D";

/// A server that ends with the comparison.
struct Server {
    process: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns how to get the tools if they are missing.
pub(super) fn run(folder: &Path) -> Result<Option<String>> {
    if is_missing("promtool") || is_missing("prometheus") {
        return Ok(Some(
            "no promtool or prometheus: apt-get install prometheus".to_owned(),
        ));
    }
    check_rules()?;
    let folder = folder.join("prometheus");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let emberline = light()?.join("emberline");
    let collector = Collector::start(&emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    check_metrics(&collector.url)?;
    scrape(&folder, &collector.url)?;
    Ok(None)
}

fn is_missing(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_err()
}

fn check_rules() -> Result<()> {
    let mut rules = Command::new("promtool");
    rules
        .args(["test", "rules"])
        .arg(root().join("deploy/prometheus/alerts-test.yml"));
    let output = rules.output()?;
    ensure!(
        output.status.success(),
        "promtool: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Both formats that a scraper may ask for are answered; promtool reads the older one only.
fn check_metrics(url: &str) -> Result<()> {
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let metrics = get(&format!("{url}/metrics"))?;
    let mut stdin = check.stdin.take().context("it is piped")?;
    stdin.write_all(metrics.as_bytes())?;
    drop(stdin);
    let output = check.wait_with_output()?;
    let found = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "promtool check metrics: {found}\n{metrics}"
    );
    println!(
        "promtool accepts {} lines of /metrics and the alert rules",
        metrics.lines().count()
    );
    Ok(())
}

/// Prometheus, which asks for OpenMetrics, scrapes the collector and answers with its metrics.
fn scrape(folder: &Path, url: &str) -> Result<()> {
    let (_, target) = url.split_once("://").context("a URL")?;
    let config = folder.join("prometheus.yml");
    let rules = root().join("deploy/prometheus/alerts.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s }}\n\
         scrape_configs:\n  - job_name: emberline\n    static_configs: [{{ targets: [{target:?}] }}]\n\
         rule_files: [{rules:?}]\n"
    );
    fs::write(&config, text)?;
    let port = free_port()?;
    let log = folder.join("prometheus.log");
    let process = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log)?)
        .spawn()
        .context("starting prometheus")?;
    let prometheus = Server {
        process,
        url: format!("http://127.0.0.1:{port}"),
    };
    let address = format!("{}/api/v1/query?query={QUERY_ENCODED}", prometheus.url);
    let deadline = Instant::now() + SCRAPED_MAX;
    loop {
        let values = get(&address)
            .and_then(|text| Ok(serde_json::from_str::<Value>(&text)?))
            .unwrap_or_default();
        let value = &values["data"]["result"][0]["value"][1];
        if value == "0" {
            println!("Prometheus scrapes a collector: {QUERY} is 0");
            return Ok(());
        }
        if Instant::now() > deadline {
            let targets = get(&format!("{}/api/v1/targets", prometheus.url)).unwrap_or_default();
            bail!(
                "Prometheus has no {QUERY}: {targets}; its log: {}",
                log.display()
            );
        }
        std::thread::sleep(RETRY_EVERY);
    }
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
