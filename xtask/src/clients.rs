//! Runs unmodified clients of other profilers against a real collector, and compares what it answers with
//! what they sent.
//!
//! The clients come from PyPI, npm and Maven Central, into folders below `target`, once.

mod go;
mod java;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::page::Collector;
use xtask::{announce, cargo, light, root};

use crate::packages::{self, text_of};

/// Versions of `pyroscope-io`: the first pushes by `PusherService/Push`, the second to `/ingest`.
const PYTHON_CLIENTS: [&str; 2] = ["1.4.0", "0.8.16"];

/// The client of Node.js.
const NODE_CLIENT: &str = "@pyroscope/nodejs@0.6.4";

/// The client of Rust, in a package of its own, because the workspace needs none of its dependencies. Its
/// library has functions that another profiler and our agent sample at once. And a reader of our exports with
/// the types of the crate `pprof`.
const RUST_CLIENT: &str = "crate 2.1.5";
const RUST_PACKAGE: &str = r#"
[package]
name = "pyroscope-client"
version = "0.0.0"
edition = "2024"
publish = false

[lib]
name = "shares"
path = "src/shares.rs"
crate-type = ["cdylib", "rlib"]

[dependencies]
emberline-agent = { path = "../../../agent" }
flate2 = "1"
pprof = { version = "=0.15.0", default-features = false, features = ["prost-codec"] }
pyroscope = { version = "=2.1.5", features = ["backend-pprof-rs"] }

# The shares are by function, and names of functions are in the symbol table.
[profile.dev]
incremental = false
[profile.dev.package."*"]
debug = false

# The agent has to keep up with its sampler.
[profile.dev.package.emberline-agent]
opt-level = 1
[profile.dev.package.emberline-profiler-core]
opt-level = 1
[profile.dev.package.emberline-symbols]
opt-level = 1
[profile.dev.package.framehop]
opt-level = 1
[profile.dev.package.gimli]
opt-level = 1

[workspace]
"#;

/// Senders of OTLP are generated from its definition.
const OTLP_CLIENT: [&str; 2] = ["opentelemetry-proto==1.45.2", "grpcio==1.85.1"];
const OTLP_PROGRAM: &str = include_str!("clients/otlp.py");

/// The client of Grafana's data source, for Node.js.
const GRAFANA_CLIENT: [&str; 3] = [
    "@bufbuild/protobuf@2.17.0",
    "@connectrpc/connect@2.2.0",
    "@connectrpc/connect-node@2.2.0",
];
const GRAFANA_PROGRAM: &str = include_str!("clients/grafana.mjs");

/// Starts the collector and the clients, and compares.
const DRIVER: &str = include_str!("clients/driver.py");

/// The profiled programs.
const PYTHON_PROGRAM: &str = include_str!("clients/program.py");
const NODE_PROGRAM: &str = include_str!("clients/program.cjs");
const RUST_PROGRAM: &str = include_str!("clients/program.rs.txt");

/// Programs that two profilers sample at once, and the library of their functions.
const PYTHON_PROGRAM_OF_BOTH: &str = include_str!("clients/both.py");
const RUST_PROGRAM_OF_BOTH: &str = include_str!("clients/both.rs.txt");
const SHARES: &str = include_str!("clients/shares.rs.txt");

/// Reads an export.
const PPROF_READER: &str = include_str!("clients/read_pprof.rs.txt");

/// The folder of the clients, which is created.
fn folder() -> Result<PathBuf> {
    let folder = root().join("target/clients");
    fs::create_dir_all(&folder).context("creating the folder of the clients")?;
    Ok(folder)
}

/// Runs the clients against `emberline`. Returns which are missing.
pub(crate) fn run(emberline: &Path) -> Result<Option<String>> {
    announce("pushing with clients of Pyroscope");
    let folder = folder()?;
    let mut clients = Vec::new();
    let mut missing = Vec::new();
    for version in PYTHON_CLIENTS {
        clients.push(("python", version, pyroscope_python(&folder, version)?));
    }
    let rust = rust(&folder)?;
    clients.push(("rust", RUST_CLIENT, rust.join("pyroscope-client")));
    match pyroscope_node(&folder)? {
        Some(program) => clients.push(("node", NODE_CLIENT, program)),
        None => missing.push("no npm: apt-get install npm".to_owned()),
    }
    let python_program = folder.join("program.py");
    fs::write(&python_program, PYTHON_PROGRAM).context("writing the profiled program")?;
    let python_program_of_both = folder.join("both.py");
    fs::write(&python_program_of_both, PYTHON_PROGRAM_OF_BOTH)
        .context("writing the program of two profilers")?;
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(&data).context("removing the data of an earlier run")?;
    }
    let mut driver = Command::new("python3");
    driver.args(["-c", DRIVER]).arg(emberline).arg(&data);
    for (kind, version, program) in &clients {
        let line = match *kind {
            "python" => format!(
                "{version}\t{}\t{}",
                program.display(),
                python_program.display()
            ),
            "rust" => format!("{version}\tenv\t{}", program.display()),
            _ => format!("{version}\tnode\t{}", program.display()),
        };
        driver.arg(line);
        let of_both = match *kind {
            "python" => format!(
                "both\t{version}\t{}\t{}\t{}",
                program.display(),
                python_program_of_both.display(),
                rust.join("libshares.so").display(),
            ),
            "rust" => format!("both\t{version}\tenv\t{}", rust.join("both").display()),
            _ => continue,
        };
        driver.arg(of_both);
    }
    let status = driver.status().context("starting python3")?;
    if !status.success() {
        bail!(
            "the collector answers other profiles than the clients sent; the difference is above"
        );
    }
    read_with_pprof_crate(&rust.join("read_pprof"), &folder)?;
    send_otlp(emberline, &folder)?;
    ask_as_grafana(emberline, &folder)?;
    missing.extend(go::run(emberline, &folder)?);
    missing.extend(java::run(emberline, &folder)?);
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

/// Reads the pprof file of `flamegraph/examples/formats.rs`, and compares the totals with those of the profile.
fn read_with_pprof_crate(reader: &Path, folder: &Path) -> Result<()> {
    announce("reading an export with the crate pprof");
    let files = folder.join("exports");
    let example = light()?.join("examples/formats");
    let written = text_of(Command::new(&example).arg(&files))?;
    let found = text_of(Command::new(reader).arg(files.join("large.pb.gz")))?;
    // `100000 nodes, wall 5 ns, cpu 3 ns`
    let totals = written
        .lines()
        .next()
        .and_then(|line| line.split_once(", "));
    let (_, totals) = totals.context("the example does not begin with its totals")?;
    if found.trim_end() != format!("{totals}, 10 tasks") {
        bail!("the crate pprof reads {found:?}; expected {totals}, 10 tasks");
    }
    Ok(())
}

/// Sends profiles by OTLP to a collector of its own.
fn send_otlp(emberline: &Path, folder: &Path) -> Result<()> {
    announce("sending OTLP profiles");
    let python = otlp_python(folder)?;
    let collector = Collector::start(emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    let mut client = Command::new(python);
    let status = client.args(["-c", OTLP_PROGRAM, &collector.url]).status();
    if !status.context("starting python")?.success() {
        bail!("the collector answers other profiles than were sent; the difference is above");
    }
    Ok(())
}

/// Asks a collector of its own what Grafana's data source asks. Without npm it does nothing.
fn ask_as_grafana(emberline: &Path, folder: &Path) -> Result<()> {
    let Some(program) = grafana_node(folder)? else {
        return Ok(());
    };
    announce("asking as Grafana's Pyroscope data source");
    let collector = Collector::start(emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    let status = Command::new("node")
        .arg(program)
        .arg(&collector.url)
        .status();
    if !status.context("starting node")?.success() {
        bail!("the collector answers Grafana otherwise than its own page; the difference is above");
    }
    Ok(())
}

/// The interpreter with a version of `pyroscope-io`.
fn pyroscope_python(folder: &Path, version: &str) -> Result<PathBuf> {
    let package = format!("pyroscope-io=={version}");
    packages::python(&folder.join(format!("python-{version}")), &[&package])
}

fn otlp_python(folder: &Path) -> Result<PathBuf> {
    packages::python(&folder.join("python-otlp"), &OTLP_CLIENT)
}

fn pyroscope_node(folder: &Path) -> Result<Option<PathBuf>> {
    node(
        &folder.join("node"),
        "program.cjs",
        NODE_PROGRAM,
        &[NODE_CLIENT],
    )
}

fn grafana_node(folder: &Path) -> Result<Option<PathBuf>> {
    node(
        &folder.join("grafana"),
        "grafana.mjs",
        GRAFANA_PROGRAM,
        &GRAFANA_CLIENT,
    )
}

/// The folder of the compiled programs with the client, and of their library.
fn rust(folder: &Path) -> Result<PathBuf> {
    let folder = folder.join("rust");
    fs::create_dir_all(folder.join("src/bin")).context("creating the folder of the client")?;
    for (path, text) in [
        ("Cargo.toml", RUST_PACKAGE),
        ("src/main.rs", RUST_PROGRAM),
        ("src/shares.rs", SHARES),
        ("src/bin/both.rs", RUST_PROGRAM_OF_BOTH),
        ("src/bin/read_pprof.rs", PPROF_READER),
    ] {
        fs::write(folder.join(path), text).with_context(|| format!("writing {path}"))?;
    }
    let manifest = folder.join("Cargo.toml");
    let mut build = cargo(&["build", "--quiet", "--manifest-path"]);
    // It needs symbols, and a folder of its own.
    build
        .arg(&manifest)
        .arg("--target-dir")
        .arg(folder.join("target"));
    text_of(&mut build).context("cargo needs access to its registry")?;
    Ok(folder.join("target/debug"))
}

/// The program of a folder with the packages it needs; `None` without npm.
fn node(folder: &Path, name: &str, text: &str, packages: &[&str]) -> Result<Option<PathBuf>> {
    if !packages::npm(folder, &[], packages)? {
        return Ok(None);
    }
    let program = folder.join(name);
    fs::write(&program, text).context("writing the program")?;
    Ok(Some(program))
}
