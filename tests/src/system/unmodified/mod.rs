//! `emberline run` and `emberline record` with programs that do not know of Emberline: they do the same as without
//! it, and each of their processes is a worker with samples.

mod damage;
mod made_code;
mod outside;
mod programs;
mod python;
mod record;
mod refused;
mod reloaded;
mod truth;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, emberline, output, unwrapped, wait_for};

/// Programs that are compiled once for all tests.
struct Programs {
    c: PathBuf,
    allocator: PathBuf,
    cpp: PathBuf,
    timers: PathBuf,
    assembly: PathBuf,
    _folder: TempDir,
}

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/unmodified");
        let compile = |compiler: &str, file: &str| {
            let program = folder.path().join(file.split('.').next().unwrap());
            let mut command = Command::new(compiler);
            command
                .args(["-O1", "-g", "-pthread", "-o"])
                .arg(&program)
                .arg(source.join(file));
            let done = output(&mut command);
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
            program
        };
        Programs {
            c: compile("cc", "program.c"),
            allocator: compile("cc", "allocator.c"),
            cpp: compile("c++", "threads.cc"),
            timers: compile("cc", "timers.c"),
            assembly: compile("cc", "assembly.c"),
            _folder: folder,
        }
    })
}

/// A command in an environment without settings of Emberline.
fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in [
        "EMBERLINE_URL",
        "EMBERLINE_LABELS",
        "EMBERLINE_WORKER",
        "LD_PRELOAD",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// `emberline run` of a program, which reports to this collector.
fn under_emberline(url: &str, options: &[&str]) -> Command {
    let mut command = plain(emberline());
    command
        .args(["run", "--collector", url])
        .args(options)
        .arg("--");
    command
}

/// Output, errors and status of a program.
fn visible(output: &Output) -> (Vec<u8>, String, String) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.stdout.clone(), stderr, output.status.to_string())
}

/// Runs a program alone and under Emberline, which must not be visible.
fn check_same(url: &str, program: &Path, arguments: &[&str]) {
    let alone = output(plain(program).args(arguments));
    let profiled = output(under_emberline(url, &[]).arg(program).args(arguments));
    assert_eq!(
        visible(&profiled),
        visible(&alone),
        "{} {arguments:?}",
        program.display()
    );
}

/// The lives of all workers of this command, with their names.
fn workers_of(collector: &Collector, command: &str) -> Vec<(String, Value)> {
    let answer = collector.json("/api/v1/workers");
    let workers = answer["workers"].as_array().unwrap().iter();
    let lives = workers.flat_map(|worker| {
        let name = worker["worker"].as_str().unwrap();
        let epochs = worker["epochs"].as_array().unwrap();
        epochs.iter().map(|epoch| (name.to_owned(), epoch.clone()))
    });
    lives
        .filter(|(_, epoch)| epoch["labels"]["command"] == command)
        .collect()
}

/// Waits until this many workers of a command have ended, and returns them.
fn ended_workers(collector: &Collector, command: &str, count: usize) -> Vec<(String, Value)> {
    wait_for(&format!("{count} workers of {command}"), || {
        let workers = workers_of(collector, command);
        let ended = workers
            .iter()
            .filter(|(_, epoch)| epoch["connected"] == false);
        (ended.count() >= count).then_some(workers)
    })
}

/// How a worker's agent ended.
fn reason(epoch: &Value) -> &str {
    epoch["disconnect"]["reason"].as_str().unwrap_or_default()
}

fn collapsed(collector: &Collector, worker: &str) -> String {
    let (status, text) = collector.get(&format!("/api/v1/profile.collapsed?worker={worker}"));
    assert_eq!(status, 200, "{text}");
    text
}

/// Nanoseconds of the stacks that a test selects.
fn sum(stacks: &str, selects: impl Fn(&str) -> bool) -> u64 {
    let lines = stacks.lines().filter_map(|line| line.rsplit_once(' '));
    let selected = lines.filter(|(stack, _)| selects(stack));
    selected.map(|(_, time)| time.parse::<u64>().unwrap()).sum()
}

/// Writes lines to sort.
fn big_file(folder: &Path) -> PathBuf {
    let file = folder.join("big.txt");
    let mut state = 1u64;
    let mut text = String::new();
    for line in 0..150_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text += &format!("{state} line {line}\n");
    }
    fs::write(&file, text).unwrap();
    file
}
