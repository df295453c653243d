//! Runs unmodified clients of other profilers against a real collector, and compares what it answers with
//! what they sent.
//!
//! The clients come from PyPI and npm, into folders below `target`, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::page::Collector;
use xtask::{announce, cargo, root};

/// Versions of `pyroscope-io`: the first pushes by `PusherService/Push`, the second to `/ingest`.
const PYTHON_CLIENTS: [&str; 2] = ["1.4.0", "0.8.16"];

/// The client of Node.js.
const NODE_CLIENT: &str = "@pyroscope/nodejs@0.6.4";

/// The client of Rust, in a package of its own, because the workspace needs none of its dependencies.
const RUST_CLIENT: &str = "crate 2.1.5";
const RUST_PACKAGE: &str = r#"
[package]
name = "pyroscope-client"
version = "0.0.0"
edition = "2024"
publish = false

[dependencies]
pyroscope = { version = "=2.1.5", features = ["backend-pprof-rs"] }

[workspace]
"#;

/// Senders of OTLP are generated from its definition.
const OTLP_CLIENT: [&str; 2] = ["opentelemetry-proto==1.45.2", "grpcio==1.85.1"];
const OTLP_PROGRAM: &str = include_str!("clients/otlp.py");

/// The client of Grafana's data source, for Node.js.
const GRAFANA_CLIENT: [&str; 3] =
    ["@bufbuild/protobuf@2.17.0", "@connectrpc/connect@2.2.0", "@connectrpc/connect-node@2.2.0"];
const GRAFANA_PROGRAM: &str = include_str!("clients/grafana.mjs");

/// Starts the collector and the clients, and compares.
const DRIVER: &str = include_str!("clients/driver.py");

/// The profiled programs.
const PYTHON_PROGRAM: &str = include_str!("clients/program.py");
const NODE_PROGRAM: &str = include_str!("clients/program.cjs");
const RUST_PROGRAM: &str = include_str!("clients/program.rs.txt");

/// Runs the clients against `emberline`. Returns which are missing.
pub(crate) fn run(emberline: &Path) -> Result<Option<String>> {
    announce("pushing with clients of Pyroscope");
    let folder = root().join("target/clients");
    fs::create_dir_all(&folder).context("creating the folder of the clients")?;
    let mut clients = Vec::new();
    let mut missing = Vec::new();
    for version in PYTHON_CLIENTS {
        let package = format!("pyroscope-io=={version}");
        let python = python(&folder.join(format!("python-{version}")), &[&package])?;
        clients.push(("python", version, python));
    }
    clients.push(("rust", RUST_CLIENT, rust(&folder)?));
    match node(&folder.join("node"), "program.cjs", NODE_PROGRAM, &[NODE_CLIENT])? {
        Some(program) => clients.push(("node", NODE_CLIENT, program)),
        None => missing.push("no npm: apt-get install npm"),
    }
    let python_program = folder.join("program.py");
    fs::write(&python_program, PYTHON_PROGRAM).context("writing the profiled program")?;
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(&data).context("removing the data of an earlier run")?;
    }
    let mut driver = Command::new("python3");
    driver.args(["-c", DRIVER]).arg(emberline).arg(&data);
    for (kind, version, program) in &clients {
        let line = match *kind {
            "python" => format!("{version}\t{}\t{}", program.display(), python_program.display()),
            "rust" => format!("{version}\tenv\t{}", program.display()),
            _ => format!("{version}\tnode\t{}", program.display()),
        };
        driver.arg(line);
    }
    let status = driver.status().context("starting python3")?;
    if !status.success() {
        bail!(
            "the collector answers other profiles than the clients sent; the difference is above"
        );
    }
    send_otlp(emberline, &folder)?;
    ask_as_grafana(emberline, &folder)?;
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

/// Sends profiles by OTLP to a collector of its own.
fn send_otlp(emberline: &Path, folder: &Path) -> Result<()> {
    announce("sending OTLP profiles");
    let python = python(&folder.join("python-otlp"), &OTLP_CLIENT)?;
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
    let folder = folder.join("grafana");
    let Some(program) = node(&folder, "grafana.mjs", GRAFANA_PROGRAM, &GRAFANA_CLIENT)? else {
        return Ok(());
    };
    announce("asking as Grafana's Pyroscope data source");
    let collector = Collector::start(emberline, &["serve", "--listen", "127.0.0.1:0"])?;
    let status = Command::new("node").arg(program).arg(&collector.url).status();
    if !status.context("starting node")?.success() {
        bail!("the collector answers Grafana otherwise than its own page; the difference is above");
    }
    Ok(())
}

/// The interpreter of an environment with these packages.
fn python(environment: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    // Written last, so that only a complete environment has it.
    let complete = environment.join("complete");
    let wanted = packages.join(" ");
    if fs::read_to_string(&complete).is_ok_and(|known| known == wanted) {
        return Ok(python);
    }
    let advice = "install python3 with its modules venv and pip, with access to PyPI";
    let mut make = Command::new("python3");
    step(make.args(["-m", "venv", "--clear"]).arg(environment), advice)?;
    let mut install = Command::new(&python);
    step(install.args(["-m", "pip", "install", "--quiet"]).args(packages), advice)?;
    fs::write(&complete, wanted).context("noting that the environment is complete")?;
    Ok(python)
}

/// A program with the client, compiled.
fn rust(folder: &Path) -> Result<PathBuf> {
    let folder = folder.join("rust");
    fs::create_dir_all(folder.join("src")).context("creating the folder of the client")?;
    fs::write(folder.join("Cargo.toml"), RUST_PACKAGE).context("writing the package")?;
    fs::write(folder.join("src/main.rs"), RUST_PROGRAM).context("writing the profiled program")?;
    let manifest = folder.join("Cargo.toml");
    let mut build = cargo(&["build", "--quiet", "--manifest-path"]);
    // It needs symbols, and a folder of its own.
    build.arg(&manifest).arg("--target-dir").arg(folder.join("target"));
    step(&mut build, "cargo needs access to its registry")?;
    Ok(folder.join("target/debug/pyroscope-client"))
}

/// The program of a folder with the packages it needs; `None` without npm.
fn node(folder: &Path, name: &str, text: &str, packages: &[&str]) -> Result<Option<PathBuf>> {
    if Command::new("npm").arg("--version").output().is_err() {
        return Ok(None);
    }
    fs::create_dir_all(folder).context("creating the folder of the client")?;
    let program = folder.join(name);
    fs::write(&program, text).context("writing the program")?;
    let complete = folder.join("complete");
    let wanted = packages.join(" ");
    if !fs::read_to_string(&complete).is_ok_and(|known| known == wanted) {
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]);
        step(install.arg(folder).args(packages), "npm needs access to its registry")?;
        fs::write(&complete, wanted).context("noting that the folder is complete")?;
    }
    Ok(Some(program))
}

fn step(command: &mut Command, advice: &str) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}; {advice}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status}); {advice}");
    }
    Ok(())
}
