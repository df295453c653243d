//! `cargo xtask soak`: workers that wear out the sampler, watched from outside. Prints a table and
//! fails on any crash, hang, death by signal or `EINTR`.

mod watch;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;

use crate::watch::{End, Watched};

/// Wears out the sampler and counts what goes wrong.
#[derive(Parser)]
struct Arguments {
    /// Run a twentieth of the long form.
    #[arg(long)]
    short: bool,
    /// Another build of the worker, run at a tenth: NAME=PATH.
    #[arg(long = "also")]
    also: Vec<String>,
    /// Show the machine's behavior without an agent.
    #[arg(long)]
    unsampled: bool,
}

/// Spawns, loads, fork+execs, and concurrent threads of the long form.
const LONG: [u64; 4] = [1_000_000, 100_000, 10_000, 10_000];
const SHORT_PART: u64 = 20;
const VARIANT_PART: u64 = 10;
/// Smallest crowd, also in the short form.
const CROWD_MIN: u64 = 2_000;

/// One build of the worker.
struct Build {
    name: String,
    path: PathBuf,
    part: u64,
    /// A static program has no loader.
    loads: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = compile_library(folder.path())?;
    let form = if arguments.short { SHORT_PART } else { 1 };
    let mut wrong = Vec::new();
    let titles = [
        "spawns",
        "dlopens",
        "execs",
        "at once",
        "host calls",
        "EINTR",
        "ticks",
        "s",
    ];
    println!(
        "{:12}{}",
        "build",
        titles.map(|title| format!("{title:>11}")).concat()
    );
    for build in builds(arguments)? {
        let [spawns, loads, execs, crowd] = LONG.map(|amount| amount / form / build.part);
        let crowd = crowd.max(CROWD_MIN);
        let mut command = Command::new(&build.path);
        command
            .arg("soak")
            .args([spawns, loads, execs, crowd].map(|amount| amount.to_string()));
        if build.loads {
            command.arg(&library)
        } else {
            command.arg("-")
        };
        if arguments.unsampled {
            command.arg("unsampled");
        }
        let Watched { end, record } = watch::watch(&mut command)?;
        print_row(&build.name, &record);
        wrong.extend(faults(&build.name, end, &record));
    }
    let count = |kind| wrong.iter().filter(|(found, _)| *found == kind).count();
    println!(
        "crashes {}, hangs {}, signal deaths {}, wrong results {}",
        count(Fault::Crash),
        count(Fault::Hang),
        count(Fault::SignalDeath),
        count(Fault::Result)
    );
    for (_, text) in &wrong {
        println!("{text}");
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("{} faults", wrong.len())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Crash,
    Hang,
    SignalDeath,
    Result,
}

fn faults(build: &str, end: End, record: &Value) -> Vec<(Fault, String)> {
    let mut faults = Vec::new();
    match end {
        End::Exit(0) => {}
        End::Exit(code) => faults.push((Fault::Crash, format!("{build}: exit {code}"))),
        End::Signal(signal) => {
            faults.push((Fault::SignalDeath, format!("{build}: signal {signal}")));
        }
        End::Hang(last) => faults.push((Fault::Hang, format!("{build}: stood still at `{last}`"))),
    }
    for (field, what) in [
        ("interrupted", "calls of the program failed with EINTR"),
        ("bad_execs", "processes ended badly"),
    ] {
        let count = record[field].as_u64().unwrap_or(0);
        if count > 0 {
            let detail = &record["interrupted_in"];
            faults.push((Fault::Result, format!("{build}: {count} {what} {detail}")));
        }
    }
    faults
}

fn print_row(name: &str, record: &Value) {
    let number = |field: &str| record[field].as_f64().unwrap_or(f64::NAN).round();
    let fields = [
        "spawns",
        "loads",
        "execs",
        "crowd",
        "calls",
        "interrupted",
        "ticks",
        "seconds",
    ];
    println!(
        "{name:12}{}",
        fields
            .map(|field| format!("{:>11}", number(field)))
            .concat()
    );
}

fn builds(arguments: &Arguments) -> Result<Vec<Build>> {
    let worker = std::env::current_exe()?.with_file_name("hostile-worker");
    if !worker.exists() {
        bail!(
            "{} is missing: run `cargo xtask soak`, which builds it",
            worker.display()
        );
    }
    let mut builds = vec![build("plain", worker, 1)];
    for also in &arguments.also {
        let (name, path) = also.rsplit_once('=').context("--also needs NAME=PATH")?;
        let loads = !name.starts_with("static");
        builds.push(Build {
            loads,
            ..build(name, path.into(), VARIANT_PART)
        });
    }
    Ok(builds)
}

fn build(name: &str, path: PathBuf, part: u64) -> Build {
    Build {
        name: name.into(),
        path,
        part,
        loads: true,
    }
}

/// Compiles a library with one function, with the compiler that also links Rust programs.
fn compile_library(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("soak.c");
    let library = folder.join("libsoak.so");
    let code = "unsigned long soak_work(unsigned long n) {\n    volatile unsigned long sum = 0;\n    \
                while (n--) sum += n;\n    return sum;\n}\n";
    std::fs::write(&source, code)?;
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status()
        .context("starting the C compiler `cc`")?;
    if !status.success() {
        bail!("`cc` could not compile the soak's library: {status}");
    }
    Ok(library)
}
