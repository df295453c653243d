//! `emberline_agent::report` in a real program, with the shipped binary: with a collector of its own, with
//! that of a running agent, and where something is missing. And `emberline record`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Collector, TEST_WORKER, Worker, emberline, number, output, run, wait_for};

/// Tasks within the guard, as `test-worker` has them.
const TASKS: u64 = 40;

/// A worker that puts a guard around its tasks.
fn worker(url: &str, file: &Path, program: &Path) -> Command {
    let mut command = Command::new(TEST_WORKER);
    command
        .args(["reported", "reported-1", url])
        .arg(file)
        .env("EMBERLINE_PROGRAM", program);
    // Nothing of the machine's own settings.
    for variable in ["EMBERLINE_URL", "EMBERLINE_TOKEN", "EMBERLINE_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    command
}

fn json_of(document: &Path) -> Value {
    serde_json::from_slice(&fs::read(document.with_extension("json")).unwrap()).unwrap()
}

/// Ended tasks by name, in the order of the names.
fn ended(json: &Value) -> Vec<(String, u64)> {
    let names = json["summary"]["names"].as_array().unwrap().iter();
    let mut ended: Vec<_> = names
        .map(|name| {
            (
                name["name"].as_str().unwrap().to_owned(),
                number(&name["outcomes"], "ok"),
            )
        })
        .collect();
    ended.sort();
    ended
}

/// The tasks of programs with guards: a shell that is profiled is a task too, unless it has become its command.
fn without_shell(mut tasks: Vec<(String, u64)>) -> Vec<(String, u64)> {
    tasks.retain(|(name, _)| name != "sh");
    tasks
}

fn cpu_ns(json: &Value) -> u64 {
    number(&json["profile"]["totals"], "cpu_ns")
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_guard_without_an_agent_writes_a_report_of_its_own_process() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let file = folder.path().join("own.html");
    let mut command = worker("none", &file, &emberline());
    let (record, _) = Worker::start_by(command.env("TMPDIR", sockets.path())).finish_with_log();
    assert_eq!(record["written"], file.to_str().unwrap(), "{record}");
    let json = json_of(&file);
    assert_eq!(
        ended(&json),
        [("inside".to_owned(), TASKS)],
        "only what the guard encloses"
    );
    let program = json["about"]["program"].as_str().unwrap();
    assert!(
        program.starts_with(TEST_WORKER) && program.contains(" reported "),
        "{program}"
    );
    assert!(cpu_ns(&json) > 0, "{}", json["profile"]["totals"]);
    let document = fs::read_to_string(&file).unwrap();
    assert!(document.contains("default-src 'none'") && document.contains("inside"));
    assert_eq!(entries(folder.path()), ["own.html", "own.json"]);
    assert_eq!(
        entries(sockets.path()),
        [""; 0],
        "the collector's folder is gone"
    );
    assert_eq!(
        record["descriptors_before"], record["descriptors_inside"],
        "{record}"
    );
}

#[test]
fn a_guard_of_a_running_agent_has_exactly_what_it_encloses() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.html");
    let mut command = worker(&collector.url(), &file, &emberline());
    let (record, log) = Worker::start_by(&mut command).finish_with_log();
    assert_eq!(record["written"], file.to_str().unwrap(), "{record} {log}");
    let json = json_of(&file);
    // The tasks before and after it are at the collector and not in the report.
    assert_eq!(ended(&json), [("inside".to_owned(), TASKS)]);
    let all = collector.json("/api/v1/tasks?from=-1h&summary=true");
    let mut names: Vec<_> = all["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["after", "before", "inside"]);
    assert!(cpu_ns(&json) > 0, "{}", json["profile"]["totals"]);
    let runs = collector.json("/api/v1/runs");
    let run = &runs["runs"][0];
    assert!(
        run["name"].as_str().unwrap().starts_with("fleet "),
        "{runs}"
    );
    assert_eq!(json["about"]["run"], run["name"]);
}

#[test]
fn a_program_that_exits_within_the_guard_leaves_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("exit.html");
    let sockets = tempfile::tempdir().unwrap();
    let mut command = worker("exit", &file, &emberline());
    let mut worker = Worker::start_by(command.env("TMPDIR", sockets.path()));
    wait_for("the first flush", || {
        let folder = sockets.path().join(entries(sockets.path()).first()?);
        let url = format!("unix:{}", folder.join("socket").display());
        let tasks = run(&["tasks", "--url", &url, "--from", "-1h", "--format", "json"]);
        let tasks: Value = serde_json::from_slice(&tasks.stdout).ok()?;
        (number(&tasks, "total") == TASKS).then_some(())
    });
    worker.end_input();
    assert_eq!(worker.process.wait().code(), Some(3));
    // It is written by a process that no longer has a parent.
    wait_for("the report", || file.exists().then_some(()));
    wait_for("the end of the collector", || {
        entries(sockets.path()).is_empty().then_some(())
    });
    assert_eq!(ended(&json_of(&file)), [("inside".to_owned(), TASKS)]);
}

#[test]
fn what_is_missing_is_one_line_and_the_program_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    fs::write(&file, "old").unwrap();
    let unrelated = folder.path().join("unrelated");
    fs::write(
        &unrelated,
        "#!/bin/sh\necho no such command: $1 >&2\nexit 2\n",
    )
    .unwrap();
    let mut mode = Command::new("chmod");
    assert!(output(mode.arg("755").arg(&unrelated)).status.success());
    let no_such = folder.path().join("no/such/program");
    let no_folder = folder.path().join("no/such/report.html");
    for (url, file, program, expected) in [
        (
            "none",
            &*file,
            &*no_such,
            "install emberline, or set EMBERLINE_PROGRAM to its path",
        ),
        (
            "none",
            &file,
            &unrelated,
            "emberline: no such command: record",
        ),
        ("none", &no_folder, &emberline(), "could not write"),
        (
            "http://127.0.0.1:1",
            &file,
            &emberline(),
            "no response from a collector",
        ),
        (
            "local",
            &file,
            &emberline(),
            "an agent of `start_local` samples this process",
        ),
    ] {
        let mut command = worker(url, file, program);
        let (record, _) = Worker::start_by(&mut command).finish_with_log();
        let error = record["error"]
            .as_str()
            .unwrap_or_else(|| panic!("{url}: {record}"));
        assert!(error.contains(expected), "{url}: {error}");
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(number(&record, "tasks"), TASKS);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[test]
fn record_runs_a_program_and_reports_it_even_if_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recorded.html");
    for (then, code, tells) in [("", 0, "wrote "), ("; exit 7", 7, "the program failed")] {
        let script = format!("\"$0\" traced traced-1 \"$EMBERLINE_URL\"{then}");
        let mut command = Command::new(emberline());
        command
            .args(["record", "-o"])
            .arg(&file)
            .args(["--", "sh", "-c", &script, TEST_WORKER]);
        let output = output(&mut command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(tells), "{said}");
        let expected = [("future", 3), ("inner", 20), ("outer", 20)];
        let json = json_of(&file);
        assert_eq!(
            json["about"]["program"],
            format!("sh -c {script} {TEST_WORKER}")
        );
        assert_eq!(
            without_shell(ended(&json)),
            expected.map(|(name, count)| (name.to_owned(), count))
        );
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn record_names_what_is_wrong_before_it_runs_a_program_or_why_there_is_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let file = folder.path().join("recorded.html");
    let no_folder = folder.path().join("no/such/recorded.html");
    let touch = format!("touch {}", ran.display());
    let failing = format!("{touch}; exit 7");
    for (file, program, has_run, expected) in [
        (
            &no_folder,
            &["sh", "-c", &touch][..],
            false,
            "could not write",
        ),
        (
            &file,
            &["/no/such/program"],
            false,
            "could not start /no/such/program",
        ),
        (
            &file,
            &["sh", "-c", &touch],
            true,
            "error: no agent reported",
        ),
        (
            &file,
            &["sh", "-c", &failing],
            true,
            "the program failed: exit status: 7\nerror: no agent reported",
        ),
    ] {
        let mut command = Command::new(emberline());
        command
            .args(["record", "-o"])
            .arg(file)
            .arg("--")
            .args(program);
        let output = output(&mut command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(expected),
            "{said}"
        );
        assert!(!said.contains("ERROR"), "{said}");
        assert_eq!(fs::remove_file(&ran).is_ok(), has_run, "{said}");
    }
    assert!(entries(folder.path()).is_empty());
}
