//! `cargo xtask fuzz`: builds the targets of `fuzz/` with instrumentation, and runs them.
//!
//! The compiler is the stable one: libFuzzer needs only counters of edges, which are a pass of LLVM.
//! Sanitizers would need a nightly one; the code that they are for is in `agent/system`, which no
//! target runs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use xtask::{announce, cargo, root};

use crate::test::table::{self, Outcome, Stopwatch};

/// Selection of the targets and inputs to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only these targets.
    #[arg(long = "target", value_name = "NAME", value_delimiter = ',', value_parser = names())]
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Inputs for each target, if they take less time.
    #[arg(long)]
    runs: Option<u64>,
    /// Seed of all mutations; another one each time by default.
    #[arg(long)]
    seed: Option<u32>,
    /// Run only this input, such as one that ended an earlier run.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// Length of a run in `cargo xtask test --all`, in seconds for each target.
const SHORT_SECONDS: u32 = 2;

struct Target {
    name: &'static str,
    /// The program that has it.
    program: &'static str,
    /// Most bytes of an input.
    bytes_max: u32,
}

const fn of_agent(name: &'static str, bytes_max: u32) -> Target {
    Target {
        name,
        program: "fuzz-agent",
        bytes_max,
    }
}

const fn of_collector(name: &'static str, bytes_max: u32) -> Target {
    Target {
        name,
        program: "fuzz-collector",
        bytes_max,
    }
}

/// All targets, those with the most inputs a second first.
const TARGETS: [Target; 15] = [
    of_agent("messages", 4 << 10),
    of_agent("unwind", 4 << 10),
    of_agent("replies", 2 << 10),
    of_agent("http2", 2 << 10),
    of_agent("symbols", 16 << 10),
    of_agent("reduce", 16 << 10),
    of_agent("symbol-files", 16 << 10),
    of_agent("split", 48 << 10),
    of_collector("imports", 8 << 10),
    of_collector("wire", 8 << 10),
    of_collector("parameters", 1 << 10),
    of_collector("requests", 2 << 10),
    of_collector("records", 8 << 10),
    of_collector("manifest", 24 << 10),
    of_collector("tables", 16 << 10),
];

fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

/// Build scripts and procedural macros are compiled without the flags only if a platform is named.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Counters of edges, which are what libFuzzer asks for.
const FLAGS: [&str; 5] = [
    "--cfg=emberline_fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
];

/// Memory of a run, in megabytes, which is also the limit in `fuzz/src/target.rs`.
const MEMORY_MB_MAX: u32 = 512;

/// Longest time of an input, in seconds.
const INPUT_SECONDS_MAX: u32 = 20;

/// Time to look for a smaller input that ends a target too, in seconds.
const MINIMIZE_SECONDS: u32 = 20;

/// Builds and runs the targets, and prints a table of them.
///
/// # Errors
/// If the build fails or a target finds a defect; then the input, and the command that runs it again.
pub(crate) fn run(options: &Options) -> Result<()> {
    build("3")?;
    run_targets(options)
}

fn run_targets(options: &Options) -> Result<()> {
    let targets: Vec<&Target> = TARGETS
        .iter()
        .filter(|target: &&Target| {
            options.targets.is_empty() || options.targets.iter().any(|name| name == target.name)
        })
        .collect();
    if let Some(input) = &options.replay {
        ensure!(
            targets.len() == 1,
            "an input belongs to one target: name it with --target"
        );
        return targets[0].replay(input);
    }
    let mut rows = Vec::new();
    let mut failure = None;
    for target in targets {
        let stopwatch = Stopwatch::start()?;
        let ran = target.run(options)?;
        let outcome = match ran.defect {
            None => Outcome::Note(ran.summary),
            Some(_) => Outcome::Failed,
        };
        rows.push(stopwatch.stop(target.name.to_owned(), outcome)?);
        failure = failure.or(ran.defect);
    }
    eprint!("\n{}", table::render(&rows));
    failure.map_or(Ok(()), Err)
}

/// A short run of each target, for `cargo xtask test --all`. The seed is always the same, and the targets are
/// not optimized, because compiling them takes longer than running them.
///
/// # Errors
/// Like [`run`].
pub(crate) fn run_short() -> Result<()> {
    build("0")?;
    run_targets(&Options {
        targets: Vec::new(),
        seconds: SHORT_SECONDS,
        runs: None,
        seed: Some(1),
        replay: None,
    })
}

/// The folder of everything that fuzzing leaves: builds, inputs, logs.
fn folder() -> PathBuf {
    root().join("target/fuzz")
}

fn build(opt_level: &str) -> Result<()> {
    let compiler = Command::new("c++").arg("--version").output();
    if !compiler.is_ok_and(|output| output.status.success()) {
        bail!(
            "libFuzzer needs a C++ compiler: install `g++` or `clang`, so that `c++` is in the path"
        );
    }
    // The versions that are shipped; cargo adds libFuzzer's.
    fs::copy(root().join("Cargo.lock"), root().join("fuzz/Cargo.lock"))?;
    announce("building the fuzz targets");
    let mut build = cargo(&[
        "build",
        "--release",
        "--quiet",
        "--manifest-path",
        "fuzz/Cargo.toml",
    ]);
    build
        .args(["--target", PLATFORM, "--target-dir"])
        .arg(folder().join("build"));
    build
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", opt_level);
    let status = build.status().context("starting cargo")?;
    ensure!(status.success(), "the fuzz targets do not compile");
    Ok(())
}

/// A run of a target.
struct Ran {
    summary: String,
    defect: Option<anyhow::Error>,
}

impl Target {
    fn command(&self) -> Command {
        let program = folder()
            .join(format!("build/{PLATFORM}/release"))
            .join(self.program);
        let mut command = Command::new(program);
        command
            .current_dir(root())
            .env("EMBERLINE_FUZZ_TARGET", self.name);
        command
    }

    /// A folder of the target, which is created.
    fn folder(&self, what: &str) -> Result<PathBuf> {
        let folder = folder().join(what).join(self.name);
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(folder)
    }

    fn run(&self, options: &Options) -> Result<Ran> {
        announce(&format!("fuzzing {}", self.name));
        let seeds = self.folder("seeds")?;
        let status = self
            .command()
            .env("EMBERLINE_FUZZ_SEEDS", &seeds)
            .status()?;
        ensure!(
            status.success(),
            "the seeds of {} cannot be made, or show a defect",
            self.name
        );
        let crashes = self.folder("crashes")?;
        let mut command = self.command();
        command
            .arg(self.folder("corpus")?)
            .arg(&seeds)
            .args(self.limits());
        command.arg(with_path("-artifact_prefix=", &crashes.join("")));
        command
            .arg(format!("-max_total_time={}", options.seconds))
            .arg("-print_final_stats=1");
        command.args(options.runs.map(|runs| format!("-runs={runs}")));
        command.args(options.seed.map(|seed| format!("-seed={seed}")));
        let before = inputs_in(&crashes)?;
        let log = self.folder("logs")?.join("last.log");
        let started = std::time::Instant::now();
        command
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        let status = command
            .status()
            .with_context(|| format!("starting {}", self.program))?;
        let seconds = started.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let summary = summary(&text, seconds);
        if status.success() {
            return Ok(Ran {
                summary,
                defect: None,
            });
        }
        eprintln!("{}", last_lines(&text, 40));
        let after = inputs_in(&crashes)?;
        let found = after.into_iter().find(|input| !before.contains(input));
        let defect = match found {
            Some(input) => self.defect(&self.minimized(&input)?),
            None => anyhow::anyhow!("{} ended ({status}): see {}", self.name, log.display()),
        };
        Ok(Ran {
            summary,
            defect: Some(defect),
        })
    }

    fn limits(&self) -> [String; 4] {
        [
            format!("-max_len={}", self.bytes_max),
            format!("-rss_limit_mb={MEMORY_MB_MAX}"),
            format!("-malloc_limit_mb={MEMORY_MB_MAX}"),
            format!("-timeout={INPUT_SECONDS_MAX}"),
        ]
    }

    /// A smaller input that ends the target too, if one is found in time.
    fn minimized(&self, input: &Path) -> Result<PathBuf> {
        announce("minimizing the input");
        let smaller = input.with_extension("min");
        let mut command = self.command();
        command
            .args(self.limits())
            .args(["-minimize_crash=1"])
            .arg(input);
        command.arg(format!("-max_total_time={MINIMIZE_SECONDS}"));
        command.arg(with_path("-exact_artifact_path=", &smaller));
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok(if smaller.exists() {
            smaller
        } else {
            input.to_owned()
        })
    }

    fn defect(&self, input: &Path) -> anyhow::Error {
        anyhow::anyhow!(
            "the target {} found a defect; run its input again with\n    cargo xtask fuzz --target \
             {} --replay {}",
            self.name,
            self.name,
            input.display()
        )
    }

    fn replay(&self, input: &Path) -> Result<()> {
        let input = input
            .canonicalize()
            .with_context(|| input.display().to_string())?;
        let status = self
            .command()
            .env("RUST_BACKTRACE", "1")
            .args(self.limits())
            .arg(&input)
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(self.defect(&input))
        }
    }
}

fn with_path(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}

fn inputs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Formats the final statistics of libFuzzer: inputs, edges, memory.
fn summary(log: &str, seconds: f64) -> String {
    let inputs = number_after(log, "stat::number_of_executed_units:").unwrap_or(0);
    let memory_mb = number_after(log, "stat::peak_rss_mb:").unwrap_or(0);
    let edges = number_after(log, " cov: ").unwrap_or(0);
    let a_second = inputs as f64 / seconds;
    format!("{inputs} inputs ({a_second:.0} a second), {edges} edges, {memory_mb} MB")
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(name)?;
    rest.split_whitespace().next()?.parse::<u64>().ok()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_last_counts_of_a_log() {
        let log = "#2\tINITED cov: 10 ft: 9 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                   #8\tDONE   cov: 12 ft: 11 corp: 3/9b lim: 4 exec/s: 4 rss: 31Mb\n\
                   stat::number_of_executed_units: 8\nstat::peak_rss_mb:              31\n";
        assert_eq!(summary(log, 2.0), "8 inputs (4 a second), 12 edges, 31 MB");
        assert_eq!(summary("", 1.0), "0 inputs (0 a second), 0 edges, 0 MB");
    }
}
