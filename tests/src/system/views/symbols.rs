//! A stripped program: offsets, then names of the same past range, once its symbols are uploaded.

mod alike;
#[cfg(target_arch = "x86_64")]
mod kernel;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    Collector, TEST_WORKER, Worker, alone, emberline, number, output, run, unwrapped, wait_for,
};

/// The test worker, whole and stripped.
struct Programs(TempDir);

impl Programs {
    fn new() -> Programs {
        let programs = Programs(tempfile::tempdir().unwrap());
        fs::copy(TEST_WORKER, programs.whole()).unwrap();
        let stripped = programs.stripped();
        let done = output(
            Command::new("strip")
                .arg("-o")
                .arg(&stripped)
                .arg(programs.whole()),
        );
        assert!(done.status.success(), "{}", text(&done.stderr));
        programs
    }

    fn whole(&self) -> PathBuf {
        self.0.path().join("whole")
    }

    fn stripped(&self) -> PathBuf {
        self.0.path().join("stripped")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// The build id of both, as `emberline symbols reduce` prints it.
    fn build_id(&self) -> String {
        let symbols = self.0.path().join("worker.symbols");
        let whole = self.whole();
        let [symbols, whole] = [&symbols, &whole].map(|path| path.to_str().unwrap());
        let made = text(&run(&["symbols", "reduce", "--output", symbols, whole]).stdout);
        made.split("build id ")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .to_owned()
    }

    /// Runs a worker, which stays at known places for some seconds.
    fn work(&self, collector: &Collector, program: &Path, id: &str, symbols: &str) {
        let mut command = Command::new(program);
        command
            .args(["known", id, &collector.url()])
            .env("EMBERLINE_SYMBOLS", symbols);
        let worker = Worker::start_by(&mut command);
        wait_for("three seconds of samples", || {
            let profile = profile(collector, id);
            (number(&profile, "sampled_ns") >= 3_000_000_000).then_some(())
        });
        worker.finish();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn profile(collector: &Collector, worker: &str) -> Value {
    let (status, body) = collector.get(&format!("/api/v1/profile?from=-1h&worker={worker}"));
    match status {
        200 => serde_json::from_str(&body).unwrap(),
        // Not connected yet.
        _ => serde_json::json!({ "sampled_ns": 0 }),
    }
}

/// Each stack and its time.
fn stacks(collector: &Collector, worker: &str) -> Vec<(String, u64)> {
    let path = format!("/api/v1/profile.collapsed?from=-1h&worker={worker}");
    let (status, body) = collector.get(&path);
    assert_eq!(status, 200, "{body}");
    body.lines()
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()))
        .collect()
}

fn has_names(collector: &Collector, worker: &str) -> bool {
    stacks(collector, worker)
        .iter()
        .any(|(stack, _)| stack.contains("test_worker::"))
}

/// Returns the stacks of the program's own functions that have a tenth of the time or more: each of the
/// four threads of `known` stays in one place. Frames of other modules are left out, because the C library
/// has no symbols here.
fn places(collector: &Collector, worker: &str) -> BTreeSet<String> {
    let mut places: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, weight) in stacks(collector, worker) {
        let own: Vec<&str> = stack
            .split(';')
            .filter(|frame| frame.contains("test_worker"))
            .collect();
        // A thread that waits for its first turn on a busy machine has no stack yet.
        if !own.is_empty() {
            *places.entry(own.join(";")).or_default() += weight;
        }
    }
    let total: u64 = places.values().sum();
    places.retain(|_, weight| *weight * 10 >= total);
    places.into_keys().collect()
}

fn symbols(collector: &Collector, arguments: &[&str]) -> Output {
    run(&[
        &["symbols", arguments[0], "--url", &collector.url()],
        &arguments[1..],
    ]
    .concat())
}

fn upload(collector: &Collector, file: &Path) -> String {
    let done = symbols(collector, &["upload", file.to_str().unwrap()]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout)
}

#[test]
fn an_upload_names_the_functions_of_a_stripped_program_in_the_past() {
    let programs = Programs::new();
    let mut collector = Collector::start_with_data("127.0.0.1:0", &programs.data());
    programs.work(&collector, &programs.whole(), "named", "agent");
    programs.work(&collector, &programs.stripped(), "stripped", "collector");

    let before = profile(&collector, "stripped");
    // The C library has no names either.
    let modules = before["unnamed"]["modules"].as_array().unwrap();
    let module = modules
        .iter()
        .find(|module: &&Value| module["module"].as_str().unwrap().ends_with("/stripped"))
        .unwrap();
    assert_eq!(module["reason"], "no_file", "{before}");
    let build_id = module["build_id"].as_str().unwrap();
    assert!(
        module["help"]
            .as_str()
            .unwrap()
            .contains("emberline symbols upload FILE")
    );
    assert!(!has_names(&collector, "stripped"));
    let doctor = unwrapped(&run(&["doctor", "--url", &collector.url()]).stdout);
    assert!(doctor.contains("of the time has no names"), "{doctor}");

    let printed = upload(&collector, &programs.whole());
    assert!(printed.contains(build_id), "{printed}");
    let after = profile(&collector, "stripped");
    assert_eq!(
        number(&after["totals"], "total_ns"),
        number(&before["totals"], "total_ns")
    );
    assert!(
        unnamed_ns(&after) < unnamed_ns(&before),
        "{}",
        after["unnamed"]
    );
    let named = places(&collector, "named");
    assert_eq!(named.len(), 4, "{named:?}");
    assert_eq!(places(&collector, "stripped"), named);

    let again = upload(&collector, &programs.whole());
    assert!(again.contains("already there"), "{again}");
    collector.process.kill();
    collector = Collector::start_with_data("127.0.0.1:0", &programs.data());
    assert_eq!(
        unnamed_ns(&profile(&collector, "stripped")),
        unnamed_ns(&after)
    );
    let list = text(&symbols(&collector, &["list"]).stdout);
    assert!(list.contains("1 symbol file, "), "{list}");
    assert!(symbols(&collector, &["verify"]).status.success());
    let removed = text(&symbols(&collector, &["gc"]).stdout);
    assert!(removed.contains("0 symbol files removed"), "{removed}");
}

fn unnamed_ns(profile: &Value) -> u64 {
    number(&profile["unnamed"], "total_ns")
}

#[test]
fn a_folder_of_debug_files_names_functions_by_itself() {
    let programs = Programs::new();
    let debug = programs.0.path().join("debug");
    let build_id = programs.build_id();
    let folder = debug.join(".build-id").join(&build_id[..2]);
    fs::create_dir_all(&folder).unwrap();
    fs::copy(
        programs.whole(),
        folder.join(format!("{}.debug", &build_id[2..])),
    )
    .unwrap();

    let data = programs.data();
    let [data, debug] = [&data, &debug].map(|path| path.to_str().unwrap());
    let collector = Collector::start_with(&[
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--symbols",
        debug,
    ]);
    programs.work(&collector, &programs.stripped(), "stripped", "collector");
    wait_for("names from the folder", || {
        has_names(&collector, "stripped").then_some(())
    });
    let list = text(&symbols(&collector, &["list"]).stdout);
    assert!(list.contains("1 symbol file, "), "{list}");
}

/// Answers requests for these paths, and no others, until the test ends.
fn serve_files(files: BTreeMap<String, Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let lines = stream.by_ref().lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let path = head[0].split(' ').nth(1).unwrap();
            let (status, body) = match files.get(path) {
                Some(file) => ("200 OK", &**file),
                None => ("404 Not Found", &b""[..]),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let stream = stream.get_mut();
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body).unwrap();
        }
    });
    format!("http://{address}")
}

#[test]
fn a_debuginfod_server_is_asked_for_names() {
    let programs = Programs::new();
    let build_id = programs.build_id();
    let path = format!("/buildid/{build_id}/debuginfo");
    let none = serve_files(BTreeMap::new());
    let server = serve_files(BTreeMap::from([(
        path,
        fs::read(programs.whole()).unwrap(),
    )]));

    let folder = programs.data();
    let data = folder.to_str().unwrap();
    let servers = format!("{none} {server}");
    let arguments = [
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--debuginfod",
        &servers,
    ];
    let collector = Collector::start_with(&arguments);
    programs.work(&collector, &programs.stripped(), "stripped", "collector");
    wait_for("names from the server", || {
        has_names(&collector, "stripped").then_some(())
    });
    // The C library is nowhere.
    let list = text(&symbols(&collector, &["list"]).stdout);
    assert!(list.contains("1 symbol file, "), "{list}");
}

/// The debug sections are compressed by zstd, which no agent reads itself.
#[test]
fn a_worker_sends_its_symbols_when_it_is_asked() {
    let programs = Programs::new();
    let compressed = programs.0.path().join("compressed");
    let done = output(
        Command::new("objcopy")
            .arg("--compress-debug-sections=zstd")
            .args([programs.whole(), compressed.clone()]),
    );
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut collector = Collector::start_with_data("127.0.0.1:0", &programs.data());
    programs.work(&collector, &programs.whole(), "named", "agent");
    let named = places(&collector, "named");
    assert_eq!(named.len(), 4, "{named:?}");

    let build_id = programs.build_id();
    let nobody = symbols(&collector, &["fetch", &build_id]);
    assert!(
        text(&nobody.stderr).contains("no connected worker"),
        "{}",
        text(&nobody.stderr)
    );
    let worker = start_compressed(&compressed, &collector, "asked");
    assert!(!has_names(&collector, "asked"));
    let fetches = &collector.json("/api/v1/symbols")["fetches"];
    assert_eq!(
        fetches.as_array().unwrap().len(),
        0,
        "nobody is asked by itself"
    );
    let fetched = symbols(&collector, &["fetch", &build_id]);
    assert!(fetched.status.success(), "{}", text(&fetched.stderr));
    assert!(text(&fetched.stdout).contains(&format!("{build_id}: lines")));
    assert!(
        text(&fetched.stderr).contains("worker asked has sent"),
        "{}",
        text(&fetched.stderr)
    );
    assert_eq!(places(&collector, "asked"), named);
    let again = symbols(&collector, &["fetch", &build_id]);
    assert!(
        text(&again.stderr).contains("already"),
        "{}",
        text(&again.stderr)
    );
    worker.finish();
    collector.process.kill();

    let folder = programs.0.path().join("other-data");
    let data = folder.to_str().unwrap();
    let collector = Collector::start_with(&[
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
        "--symbols-from-agents",
    ]);
    let worker = start_compressed(&compressed, &collector, "by-itself");
    wait_for("names from the worker", || {
        has_names(&collector, "by-itself").then_some(())
    });
    assert_eq!(places(&collector, "by-itself"), named);
    worker.finish();
}

fn start_compressed(program: &Path, collector: &Collector, id: &str) -> Worker {
    let mut command = Command::new(program);
    command
        .args(["known", id, &collector.url()])
        .env("EMBERLINE_SYMBOLS", "collector");
    let worker = Worker::start_by(&mut command);
    wait_for("three seconds of samples", || {
        (number(&profile(collector, id), "sampled_ns") >= 3_000_000_000).then_some(())
    });
    worker
}

#[test]
fn files_that_are_no_symbols_are_rejected_with_the_reason() {
    let programs = Programs::new();
    let collector = Collector::start_with_data("127.0.0.1:0", &programs.data());
    let write = |name: &str, content: &[u8]| {
        let path = programs.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = fs::read(programs.whole()).unwrap();
    let script = write("script", b"#!/bin/sh\n");
    let half = write("half", &whole[..whole.len() / 2]);
    assert!(rejected(&collector, &script).contains("it is not an ELF file"));
    assert!(rejected(&collector, &half).contains("it is truncated"));
    assert!(rejected(&collector, "/none").contains("No such file"));
    let list = text(&symbols(&collector, &["list"]).stdout);
    assert!(list.contains("0 symbol files, "), "{list}");

    let forgetful = Collector::start();
    let whole = programs.whole();
    let done = symbols(&forgetful, &["upload", whole.to_str().unwrap()]);
    assert!(
        text(&done.stderr).contains("start it with --data DIR"),
        "{}",
        text(&done.stderr)
    );
}

fn rejected(collector: &Collector, file: &str) -> String {
    let done = symbols(collector, &["upload", file]);
    assert!(!done.status.success());
    text(&done.stderr)
}

/// Compiles a program with a package of split debug information next to it.
fn compile_split(folder: &Path, name: &str, constant: u64) -> PathBuf {
    let source = folder.join(format!("{name}.rs"));
    let code = format!(
        "#[inline(always)] fn mixed(value: u64) -> u64 {{ value.rotate_left(9) ^ {constant} }}
         #[inline(never)] fn total(values: &[u64]) -> u64 {{ values.iter().map(|v| mixed(*v)).sum() }}
         fn main() {{ println!(\"{{}}\", total(&[std::process::id().into()])); }}"
    );
    fs::write(&source, code).unwrap();
    let program = folder.join(name);
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let done = output(
        Command::new(rustc)
            .args([
                "-O",
                "-g",
                "-Csplit-debuginfo=packed",
                "-Clink-arg=-Wl,--build-id",
                "-o",
            ])
            .args([&program, &source]),
    );
    assert!(done.status.success(), "{}", text(&done.stderr));
    program
}

#[test]
fn split_debug_information_is_uploaded_with_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let program = compile_split(folder.path(), "program", 1);
    let package = path("program.dwp");
    let collector = Collector::start_with_data("127.0.0.1:0", &path("data"));

    fs::rename(&package, path("elsewhere.dwp")).unwrap();
    let partial = symbols(&collector, &["upload", program.to_str().unwrap()]);
    assert!(partial.status.success(), "{}", text(&partial.stderr));
    let warning = text(&partial.stderr);
    assert!(
        warning.contains("the split debug information of 1 of 1 units is missing"),
        "{warning}"
    );
    assert!(text(&partial.stdout).contains(", lines without inlined functions, "));
    let alone = symbols(
        &collector,
        &["upload", path("elsewhere.dwp").to_str().unwrap()],
    );
    let reason = text(&alone.stderr);
    assert!(
        reason.contains("its program must be next to it, as"),
        "{reason}"
    );

    compile_split(folder.path(), "other", 2);
    fs::copy(path("other.dwp"), &package).unwrap();
    let other = symbols(&collector, &["upload", package.to_str().unwrap()]);
    let reason = text(&other.stderr);
    assert!(
        reason.contains("is of another build: it has none of the 1 units"),
        "{reason}"
    );

    // It replaces what has less.
    fs::rename(path("elsewhere.dwp"), &package).unwrap();
    let whole = upload(&collector, &package);
    assert!(whole.contains(", lines, "), "{whole}");
    assert!(upload(&collector, &program).contains("already there"));
    let stripped = path("stripped");
    fs::copy(&package, path("stripped.dwp")).unwrap();
    let strip = output(
        Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .args([&stripped, &program]),
    );
    assert!(strip.status.success());
    let done = symbols(
        &collector,
        &["upload", path("stripped.dwp").to_str().unwrap()],
    );
    assert!(
        text(&done.stderr).contains("was it stripped?"),
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn a_worker_that_refuses_sends_no_symbols() {
    let programs = Programs::new();
    let collector = Collector::start_with_data("127.0.0.1:0", &programs.data());
    let build_id = programs.build_id();
    let mut command = Command::new(programs.whole());
    command.args(["known", "refuses", &collector.url()]);
    command
        .env("EMBERLINE_SYMBOLS", "collector")
        .env("EMBERLINE_SYMBOL_UPLOAD", "off");
    let worker = Worker::start_by(&mut command);
    wait_for("samples", || {
        (number(&profile(&collector, "refuses"), "sampled_ns") >= 1_000_000_000).then_some(())
    });
    let refused = symbols(&collector, &["fetch", &build_id]);
    assert!(!refused.status.success());
    let reason = text(&refused.stderr);
    assert!(
        reason.contains("set to send no symbols (EMBERLINE_SYMBOL_UPLOAD)"),
        "{reason}"
    );
    worker.finish();
}

/// The part of the time below each function.
fn shares(collector: &Collector) -> BTreeMap<String, f64> {
    let (status, body) = collector.get("/api/v1/profile.collapsed?from=-1h");
    assert_eq!(status, 200, "{body}");
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    let mut total = 0.0;
    for line in body.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let weight: f64 = weight.parse().unwrap();
        let functions: BTreeSet<&str> = stack.split(';').collect();
        for function in functions {
            *times.entry(function.to_owned()).or_default() += weight;
        }
        total += weight;
    }
    assert!(total > 0.0, "the fleet has samples");
    times.values_mut().for_each(|time| *time /= total);
    times
}

/// The C library of this machine: a worker that ends in haste leaves its names to the collector too.
fn c_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split(' ').next_back());
    let mut libraries = paths.filter(|path| path.ends_with("/libc.so.6"));
    libraries.next().expect("the C library is mapped").into()
}

/// The demo's program as built and stripped, at the same time on the same machine.
#[test]
#[ignore = "long"]
fn a_stripped_fleet_with_uploaded_symbols_has_the_flame_graph_of_an_unstripped_one() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let stripped = path("emberline");
    let done = output(
        Command::new("strip")
            .arg("-o")
            .arg(&stripped)
            .arg(emberline()),
    );
    assert!(done.status.success(), "{}", text(&done.stderr));
    let demo = |program: &Path, name: &str| {
        let done = output(
            Command::new(program)
                .args([
                    "demo",
                    "--seconds",
                    "8",
                    "--listen",
                    "127.0.0.1:0",
                    "--data",
                ])
                .args([path(name), "--out".into(), path(&format!("{name}-out"))])
                .env("XDG_RUNTIME_DIR", folder.path()),
        );
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    thread::scope(|scope| {
        scope.spawn(|| demo(&emberline(), "whole"));
        scope.spawn(|| demo(&stripped, "stripped"));
    });
    let whole_collector = Collector::start_with_data("127.0.0.1:0", &path("whole"));
    // One worker names its own functions. The others leave that to the collector, which may not have fetched
    // the symbols when they end.
    upload(&whole_collector, &emberline());
    upload(&whole_collector, &c_library());
    let whole = shares(&whole_collector);
    let collector = Collector::start_with_data("127.0.0.1:0", &path("stripped"));
    // A frame without a name is shown by its module.
    let is_unnamed = |function: &str| function == "emberline";
    assert!(
        shares(&collector)
            .keys()
            .any(|function| is_unnamed(function))
    );
    upload(&collector, &emberline());
    upload(&collector, &c_library());
    let named = shares(&collector);
    assert!(
        !named.keys().any(|function| is_unnamed(function)),
        "all of the program has names"
    );

    let mut compared = 0;
    for (one, other) in [(&whole, &named), (&named, &whole)] {
        for (function, share) in one.iter().filter(|(_, share)| **share >= 0.02) {
            let expected = other.get(function).copied().unwrap_or(0.0);
            let is_close = (share - expected).abs() <= 0.05 + 0.3 * share.max(expected);
            assert!(
                is_close && expected > 0.0,
                "{function}: {share} and {expected}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 40, "{compared} functions");
}
