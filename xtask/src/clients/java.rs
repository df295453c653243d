//! Recordings of the JDK's Flight Recorder, whose numbers are compared with those of the JDK's own reader, and
//! pushes of Pyroscope's agent for Java.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use xtask::announce;
use xtask::page::Collector;

use crate::packages::text_of;
use crate::readers::get;

/// The agent, and the hash of its file.
const AGENT_URL: &str = "https://repo1.maven.org/maven2/io/pyroscope/agent/2.1.2/agent-2.1.2.jar";
const AGENT_SHA256: &str = "bbf88777b8241934ce24447cd6bd1be3f80497d153972d32a716fb21b1e12b32";

/// The recorded program, and one with labels, which needs the agent.
const PROGRAM: &str = include_str!("Work.java");
const LABELED_PROGRAM: &str = include_str!("Labeled.java");

/// How long the programs run.
const SECONDS: &str = "6";

/// Events with a duration, and the state that their time has.
const WAITS: [(&str, &str); 9] = [
    ("jdk.JavaMonitorEnter", "lock"),
    ("jdk.JavaMonitorWait", "lock"),
    ("jdk.ThreadPark", "lock"),
    ("jdk.ThreadSleep", "sleep"),
    ("jdk.SocketRead", "network"),
    ("jdk.SocketWrite", "network"),
    ("jdk.FileRead", "disk"),
    ("jdk.FileWrite", "disk"),
    ("jdk.FileForce", "disk"),
];

/// The JDK computes lengths in floating point.
const ROUNDING_NS: u64 = 2;

/// The time of a sample of the JDK: `period` of its settings `profile`, which differs between versions.
const PERIODS_MS: [u64; 2] = [10, 20];

/// Returns how to get Java if it is missing.
pub(super) fn run(emberline: &Path, folder: &Path) -> Result<Option<String>> {
    if Command::new("javac").arg("-version").output().is_err() {
        let advice = "no javac: apt-get install default-jdk-headless";
        return Ok(Some(advice.to_owned()));
    }
    let folder = folder.join("java");
    fs::create_dir_all(&folder).context("creating the folder of the programs")?;
    let agent = agent(&folder)?;
    let sources = [("Work.java", PROGRAM), ("Labeled.java", LABELED_PROGRAM)];
    for (name, text) in sources {
        fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    let mut javac = Command::new("javac");
    javac.current_dir(&folder).arg("-cp").arg(&agent);
    text_of(javac.args(sources.map(|(name, _)| name)))?;
    compare_recording(emberline, &folder)?;
    for event in ["itimer", "wall"] {
        push(emberline, &folder, &agent, event)?;
    }
    Ok(None)
}

/// The agent's file, which is downloaded once.
fn agent(folder: &Path) -> Result<PathBuf> {
    let agent = folder.join("agent.jar");
    if !agent.exists() {
        let part = folder.join("agent.part");
        let mut curl = Command::new("curl");
        curl.args(["-fsSL", "-o"]).arg(&part).arg(AGENT_URL);
        text_of(&mut curl).context("curl needs access to Maven Central")?;
        let hash = text_of(Command::new("sha256sum").arg(&part))?;
        ensure!(
            hash.starts_with(AGENT_SHA256),
            "{AGENT_URL} has another hash than {AGENT_SHA256}: {hash}"
        );
        fs::rename(&part, &agent).context("naming the agent")?;
    }
    Ok(agent)
}

/// A recording, as the JDK's reader has it.
#[derive(Default)]
struct Expected {
    /// Numbers of events by type.
    counts: BTreeMap<String, u64>,
    /// Durations by state.
    waits_ns: BTreeMap<&'static str, u64>,
}

/// Records the program, and compares what the import stores with the numbers of `jfr print`.
fn compare_recording(emberline: &Path, folder: &Path) -> Result<()> {
    announce("comparing a recording of the JDK with `jfr print`");
    let recording = folder.join("work.jfr");
    let file = recording.display();
    let mut java = Command::new("java");
    java.current_dir(folder);
    java.arg(format!(
        "-XX:StartFlightRecording=filename={file},settings=profile"
    ));
    text_of(java.args(["Work", SECONDS]))?;
    let expected = Expected::read(&recording)?;
    let collector = Collector::start(emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    let mut import = Command::new(emberline);
    import.args(["import", "--url", &collector.url]);
    let output = import
        .arg(&recording)
        .output()
        .context("starting emberline")?;
    let notes = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "importing failed: {notes}");
    // Notes are wrapped.
    let notes: String = notes.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, _) in WAITS {
        let count = expected.counts.get(name).copied().unwrap_or(0);
        let is_noted = notes.contains(&format!("{count} {name}"));
        ensure!(
            is_noted || count == 0,
            "expected {count} {name} in: {notes}"
        );
    }
    for (state, expected_ns) in &expected.waits_ns {
        let found_ns = time_ns(&collector.url, state)?;
        let events: u64 = WAITS
            .iter()
            .filter(|(_, of)| of == state)
            .filter_map(|(name, _)| expected.counts.get(*name))
            .sum();
        ensure!(
            found_ns.abs_diff(*expected_ns) <= ROUNDING_NS * events,
            "{state}: {found_ns} ns are stored; jfr print has {expected_ns} ns"
        );
        println!("{state}: {events} events of {found_ns} ns, as jfr print has them");
    }
    let samples = expected
        .counts
        .get("jdk.ExecutionSample")
        .copied()
        .context("the recording has no samples")?;
    let cpu_ns = time_ns(&collector.url, "cpu")?;
    let periods_ns = PERIODS_MS.map(|period_ms| period_ms * 1_000_000);
    ensure!(
        periods_ns.contains(&(cpu_ns / samples)) && cpu_ns % samples == 0,
        "{samples} samples are {cpu_ns} ns"
    );
    println!("cpu: {samples} samples of {cpu_ns} ns");
    Ok(())
}

impl Expected {
    fn read(recording: &Path) -> Result<Expected> {
        let mut names = WAITS.map(|(name, _)| name).join(",");
        names.push_str(",jdk.ExecutionSample");
        let mut jfr = Command::new("jfr");
        jfr.args(["print", "--json", "--stack-depth", "1", "--events", &names]);
        let printed: Value = serde_json::from_str(&text_of(jfr.arg(recording))?)?;
        let mut expected = Expected::default();
        let events = printed["recording"]["events"].as_array();
        for event in events.context("jfr print has events")? {
            let name = event["type"].as_str().context("an event has a type")?;
            *expected.counts.entry(name.to_owned()).or_default() += 1;
            if let Some((_, state)) = WAITS.iter().find(|(known, _)| *known == name) {
                let duration = event["values"]["duration"].as_str();
                let duration_ns = duration_ns(duration.context("a wait has a duration")?);
                *expected.waits_ns.entry(state).or_default() += duration_ns
                    .with_context(|| format!("{duration:?} is no duration of ISO 8601"))?;
            }
        }
        for state in ["lock", "sleep", "network"] {
            ensure!(
                expected.waits_ns.contains_key(state),
                "the program does not wait in state {state}"
            );
        }
        Ok(expected)
    }
}

/// The nanoseconds of `PT1H2M3.000000004S`.
fn duration_ns(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix("PT")?;
    let mut total_ns = 0;
    while !rest.is_empty() {
        let end = rest.find(|unit: char| unit.is_ascii_uppercase())?;
        let (number, unit) = rest.split_at(end);
        let seconds = match &unit[..1] {
            "H" => 3_600,
            "M" => 60,
            "S" => 1,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let fraction_ns: u64 = format!("{fraction:0<9}").parse().ok()?;
        total_ns += whole.parse::<u64>().ok()? * seconds * 1_000_000_000 + fraction_ns;
        rest = &unit[1..];
    }
    Some(total_ns)
}

/// Stored time in a state.
fn time_ns(url: &str, state: &str) -> Result<u64> {
    let stacks = stacks(url, &format!("state={state}"))?;
    let weights: Result<Vec<u64>, _> = stacks
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap_or_default())
        .map(str::parse)
        .collect();
    Ok(weights.context("a line has its time")?.iter().sum())
}

fn stacks(url: &str, filter: &str) -> Result<String> {
    get(&format!(
        "{url}/api/v1/profile?from=-1h&format=collapsed&{filter}"
    ))
}

/// Pushes with the agent, as it is configured by its documents.
fn push(emberline: &Path, folder: &Path, agent: &Path, event: &str) -> Result<()> {
    announce(&format!(
        "pushing with Pyroscope's agent for Java, event {event}"
    ));
    let collector = Collector::start(emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    let path = format!("{}:.", agent.display());
    let mut java = Command::new("java");
    java.current_dir(folder)
        .arg(format!("-javaagent:{}", agent.display()))
        .args(["-cp", &path, "Labeled", SECONDS])
        .env("PYROSCOPE_APPLICATION_NAME", "shop")
        .env("PYROSCOPE_SERVER_ADDRESS", &collector.url)
        .env("PYROSCOPE_FORMAT", "jfr")
        .env("PYROSCOPE_PROFILER_EVENT", event)
        .env("PYROSCOPE_PROFILER_ALLOC", "512k")
        .env("PYROSCOPE_PROFILER_LOCK", "10ms")
        .env("PYROSCOPE_UPLOAD_INTERVAL", "2s");
    text_of(&mut java)?;
    let mut expected = vec![
        ("state=cpu&task=shop", "Work.compute"),
        ("state=lock&task=shop", "Work.waitForLock"),
    ];
    if event == "wall" {
        expected.push(("state=other&task=shop", "java.lang.Thread.sleep"));
    } else {
        // The agent's samples of all threads have no labels.
        expected.push(("state=cpu&task=checkout", "Work.compute"));
        expected.push(("state=cpu&label=region=eu", "Work.compute"));
    }
    for (filter, function) in expected {
        let stacks = stacks(&collector.url, filter)?;
        ensure!(
            stacks.contains(function),
            "no time of {function} in {filter}:\n{stacks}"
        );
    }
    let workers = get(&format!("{}/api/v1/workers", collector.url))?;
    let workers: Value = serde_json::from_str(&workers)?;
    let pushes = &workers["pushes"][0];
    ensure!(pushes["rejected"] == 0, "pushes were rejected: {pushes}");
    let stored = &pushes["stored"];
    ensure!(
        stored.as_u64() > Some(1),
        "fewer than two pushes are stored: {pushes}"
    );
    println!("{stored} pushes of {event} are stored");
    Ok(())
}
