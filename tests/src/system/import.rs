//! Profiles of files: two become two runs, are compared, survive a crash, and come in once.

mod pprof;
mod whole;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, emberline, number, output, run};
use crate::views::terminal::Terminal;

const BEFORE: &str = "load;main;parse 300000000\nload;main;read 100000000\n";
const AFTER: &str = "load;main;parse 900000000\nload;main;read 100000000\n";

struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Imports with these arguments and returns what it prints.
fn import(url: &str, arguments: &[&str]) -> String {
    let output = run(&[&["import", "--url", url], arguments].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Imports a file that is rejected, and returns the error.
fn rejected(url: &str, arguments: &[&str]) -> String {
    let output = run(&[&["import", "--url", url], arguments].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    text(&output.stderr)
}

fn stacks(collector: &Collector, query: &str) -> String {
    let (status, body) = collector.get(&format!("/api/v1/profile.collapsed?{query}"));
    assert_eq!(status, 200, "{body}");
    body
}

/// The bar is drawn on a terminal only, and is gone at the end.
#[test]
fn an_import_in_a_terminal_shows_its_progress() {
    let files = Files::new();
    let stacks: String = (0..80_000)
        .map(|at| format!("load;main;parse_{at} 20000\n"))
        .collect();
    let path = files.write("many.collapsed", &stacks);
    let collector = Collector::start();
    let url = collector.url();
    let command = format!("{} import --url {url} {path}", emberline().display());
    let mut terminal = Terminal::start(&command);
    let bar = terminal.until("run many: ");
    assert!(bar.contains("importing ["), "{bar}");
    assert!(terminal.process.wait().success());
    let piped = run(&["import", "--url", &url, &path, "--run", "piped"]);
    assert!(piped.status.success() && !text(&piped.stderr).contains("importing ["));
}

#[test]
fn two_files_become_runs_that_are_compared_and_outlive_a_crash() {
    let files = Files::new();
    let before = files.write("before.collapsed", BEFORE);
    let after = files.write("after.txt", AFTER);
    let data = files.path("data");
    let mut collector = Collector::start_with_data("127.0.0.1:0", &data);
    let printed = import(&collector.url(), &[&before, &after]);
    assert!(
        printed.contains("run before: 400 ms of thread time from collapsed\n"),
        "{printed}"
    );
    assert!(
        printed.contains("\n  worker import:after\n  emberline profile --run after\n"),
        "{printed}"
    );

    // The runs overlap in time, but each is one profile.
    for _ in 0..2 {
        assert_eq!(stacks(&collector, "run=before"), BEFORE);
        assert_eq!(stacks(&collector, "run=after"), AFTER);
        collector.process.kill();
        collector = Collector::start_with_data("127.0.0.1:0", &data);
    }

    let url = collector.url();
    let sides = [
        "compare",
        "--url",
        &url,
        "--before-run",
        "before",
        "--after-run",
        "after",
    ];
    let compared = run(&[&sides[..], &["--format", "json"]].concat());
    let compared: Value = serde_json::from_slice(&compared.stdout).unwrap();
    let [load] = &compared["names"].as_array().unwrap()[..] else {
        panic!("{compared}")
    };
    assert_eq!(load["name"], "load");
    assert_eq!(
        [
            number(&load["before"], "ended"),
            number(&load["after"], "ended")
        ],
        [1, 1]
    );
    let compared = text(&run(&[&sides[..], &["--task", "load"]].concat()).stdout);
    for (function, change) in [("parse", "+600 ms"), ("read", "+0 ")] {
        let mut lines = compared.lines().filter(|line| line.ends_with(function));
        assert!(lines.any(|line| line.contains(change)), "{compared}");
    }

    let labels = collector.json("/api/v1/workers");
    let workers = labels["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2);
    for worker in workers {
        assert!(
            worker["worker"].as_str().unwrap().starts_with("import:"),
            "{worker}"
        );
        let [epoch] = &worker["epochs"].as_array().unwrap()[..] else {
            panic!("{worker}")
        };
        assert_eq!(epoch["labels"]["source"], "import", "{epoch}");
        assert_eq!(epoch["account"]["balanced"], true, "{epoch}");
        // No process was lost.
        assert_eq!(epoch["disconnect"]["reason"], "clean", "{epoch}");
    }
    let threads = collector.json("/api/v1/thread-time?run=before");
    assert_eq!(
        number(&threads["threads"][0], "total_ns"),
        400_000_000,
        "{threads}"
    );
}

#[test]
fn an_export_comes_back_equal_and_only_once() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let before = files.write("before.collapsed", BEFORE);
    import(&url, &[&before, "--time", "-1h"]);
    for name in [
        "copy.pb.gz",
        "copy.speedscope.json",
        "copy.firefox.json",
        "copy.collapsed",
    ] {
        let file = files.path(name);
        let path = file.to_str().unwrap();
        let exported = run(&[
            "profile", "--url", &url, "--run", "before", "--stacks", "full", "-o", path,
        ]);
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        let printed = import(&url, &[path, "--run", name, "--time", "2 minutes ago"]);
        assert!(
            printed.starts_with(&format!("run {name}: 400 ms of thread time from ")),
            "{printed}"
        );
        assert_eq!(stacks(&collector, &format!("run={name}")), BEFORE, "{name}");
    }

    let time = ["--time", "-30m", "--run", "once", "--utc"];
    // A relative time differs each time, so the profile is a second one.
    import(&url, &[&[before.as_str()], &time[..]].concat());
    let runs = collector.json("/api/v1/runs?name=once");
    let start = runs["runs"][0]["start"].as_str().unwrap().to_owned();
    let again = [before.as_str(), "--time", &start, "--run", "twice"];
    assert!(!import(&url, &again).contains("there already"));
    assert!(import(&url, &again).contains("; it was there already\n"));
    assert_eq!(stacks(&collector, "run=twice"), BEFORE);
    let workers = collector.json("/api/v1/workers?worker=import:twice");
    assert_eq!(
        workers["workers"][0]["epochs"].as_array().unwrap().len(),
        1,
        "{workers}"
    );
}

#[test]
fn a_pipe_is_imported_with_its_times() {
    let collector = Collector::start();
    let url = collector.url();
    let mut perf = String::new();
    for tick in 0..30 {
        let [second, tenth] = [tick / 10, tick % 10];
        perf.push_str(&format!("app 5/6 [000] {second}.{tenth}00000: 100000000 cpu-clock:\n\t1f work+0x1 (/opt/app)\n\n"));
    }
    let files = Files::new();
    let path = files.write("perf.txt", &perf);
    let mut command = Command::new(emberline());
    command.args([
        "import", "-", "--url", &url, "--time", "-10m", "--task", "batch",
    ]);
    let done = output(command.stdin(fs::File::open(path).unwrap()));
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(stacks(&collector, "run=stdin"), "batch;work 3000000000\n");
    let timeline = collector.json("/api/v1/timeline?run=stdin&step=1s");
    let series = &timeline["series"][0];
    let busy: Vec<u64> = series["cpu_ns"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_u64)
        .filter(|cpu_ns| *cpu_ns > 0)
        .collect();
    assert_eq!(
        (series["name"].as_str(), busy),
        (Some("batch"), vec![1_000_000_000; 3])
    );
}

#[test]
fn bad_files_are_rejected_and_leave_no_run() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let good = files.write("good.collapsed", BEFORE);
    for (name, content, expected) in [
        (
            "unknown.bin",
            &b"hello"[..],
            "known are pprof, collapsed, perf, speedscope, firefox, chrome",
        ),
        ("empty", b"", "this is an empty file"),
        (
            "cut.json",
            br#"{"shared": {"frames": ["#,
            "invalid speedscope: EOF while parsing a list",
        ),
        ("cut.gz", &[0x1f, 0x8b, 8, 0], "invalid gzip"),
        (
            "one.collapsed",
            b"a;b 1\na;b x\n",
            "invalid collapsed: line 2 is not `frame;frame number`",
        ),
    ] {
        let path = files.write(name, content);
        let error = rejected(&url, &[&path]);
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(name), "{error}");
    }
    let old = rejected(&url, &[&good, "--time", "2001-01-01"]);
    assert!(
        old.contains("its --retention-rollups is 8760 hours, so nothing would be kept"),
        "{old}"
    );
    let future = rejected(&url, &[&good, "--time", "2100-01-01"]);
    assert!(future.contains("ms after the collector's now"), "{future}");
    let time = rejected(&url, &[&good, "--time", "yesterday"]);
    assert!(
        time.contains("invalid time \"yesterday\"; expected "),
        "{time}"
    );
    assert!(rejected(&url, &[&good, &good]).contains("several files would become the run good"));
    let folder = rejected(&url, &[files.0.path().to_str().unwrap()]);
    assert!(
        folder.contains("it is a folder: import the files"),
        "{folder}"
    );
    let missing = run(&["import", "--url", &url, "/no/such/file"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("could not import /no/such/file"));
    let nobody = run(&["import", "--url", "http://127.0.0.1:1", &good]);
    assert!(text(&nobody.stderr).contains("no response from a collector at http://127.0.0.1:1"));
    assert_eq!(
        collector.json("/api/v1/runs")["runs"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

/// bcc's `offcputime -f` says no unit, and its numbers look like those of samples.
#[test]
fn time_off_the_cpu_is_imported_with_its_unit() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let file = files.write(
        "waits.folded",
        "app;main;read;finish_task_switch 13567\napp;main;schedule 250\n",
    );
    let error = rejected(&url, &[&file]);
    assert!(
        error.contains("--unit microseconds --state other"),
        "{error}"
    );
    let options = ["--unit", "microseconds", "--state", "other"];
    let imported = import(&url, &[&[&*file], &options[..]].concat());
    assert!(imported.contains("13.8 ms of thread time"), "{imported}");
}

/// The sum of the weights of collapsed stacks.
fn sum(stacks: &str) -> u64 {
    let weights = stacks.lines().filter_map(|line| line.rsplit(' ').next());
    weights
        .filter_map(|weight| weight.parse::<u64>().ok())
        .sum()
}

#[test]
fn names_are_found_as_they_are_displayed() {
    const NAMES: [&str; 5] = [
        "operator()(int) const",
        "std::vector<int, std::allocator<int> >::push_back(int const&)",
        "/tmp/a.so (deleted)",
        "a.*b+[c]?(d|e)$",
        "-[NSObject performSelector:]",
    ];
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let line = |(number, name)| format!("root;{name} {}\n", 1_000_000 << number);
    let lines: String = NAMES.iter().enumerate().map(line).collect();
    let file = files.write("names.folded", lines);
    import(&url, &[&file, "--unit", "samples", "--interval", "1ns"]);
    for (number, name) in NAMES.iter().enumerate() {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let found = stacks(&collector, &format!("run=names&focus={encoded}"));
        assert_eq!(sum(&found), 1_000_000 << number, "{name}: {found}");
        let focus = format!("--focus={name}");
        let output = run(&[
            "profile",
            "--url",
            &url,
            "--run",
            "names",
            &focus,
            "--format",
            "collapsed",
        ]);
        let printed = text(&output.stdout);
        assert_eq!(sum(&printed), 1_000_000 << number, "{name}: {printed}");
    }
}

/// Runs `emberline` with the token of this file.
fn run_with(token: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(emberline());
    command
        .args(arguments)
        .env("EMBERLINE_TOKEN_FILE", token)
        .env("NO_COLOR", "1");
    output(command.stdin(Stdio::null()))
}

#[test]
fn an_import_needs_an_agents_token_that_covers_it() {
    let files = Files::new();
    let data = files.path("data");
    let token = |name: &str, arguments: &[&str]| {
        let path = files.path(name);
        let place = [
            "--data",
            data.to_str().unwrap(),
            "-o",
            path.to_str().unwrap(),
        ];
        let created = run(&[&["token", "new"], arguments, &place].concat());
        assert!(created.status.success(), "{}", text(&created.stderr));
        path
    };
    let reader = token("reader", &["--role", "reader"]);
    let other = token("other", &["--role", "agent", "--worker", "w-*"]);
    let importer = token("importer", &["--role", "agent", "--worker", "import:*"]);
    let collector = Collector::start_with_data("127.0.0.1:0", &data);
    let file = files.write("before.collapsed", BEFORE);
    let arguments = ["import", "--url", &collector.url(), &file];
    for token in [&reader, &other] {
        let denied = run_with(token, &arguments);
        assert_eq!(denied.status.code(), Some(2));
        let hint = "emberline token new --role agent --worker 'import:*'";
        assert!(
            text(&denied.stderr).contains(hint),
            "{}",
            text(&denied.stderr)
        );
    }
    let done = run_with(&importer, &arguments);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn an_import_goes_over_a_unix_socket_and_tls() {
    let files = Files::new();
    let file = files.write("before.collapsed", BEFORE);
    let socket = format!("unix:{}", files.path("socket").to_str().unwrap());
    let _collector = Collector::start_with(&["--listen", &socket]);
    assert!(import(&socket, &[&file]).contains("400 ms"));

    let folder = files.path("tls");
    let created = run(&[
        "tls",
        "self-signed",
        "--name",
        "127.0.0.1",
        "-o",
        folder.to_str().unwrap(),
    ]);
    let created = text(&created.stdout);
    let pin = created
        .lines()
        .find(|line| line.starts_with("sha256="))
        .unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.join(name));
    let collector = Collector::start_with(&[
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        cert.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ]);
    let url = format!("https://{}#{pin}", collector.address);
    assert!(import(&url, &[&file]).contains("400 ms"));
    let unpinned = run(&[
        "import",
        "--url",
        &format!("https://{}", collector.address),
        &file,
    ]);
    assert!(text(&unpinned.stderr).contains("is signed by no authority"));
    let plain = run(&["import", "--url", &collector.url(), &file]);
    let plain = text(&plain.stderr);
    assert!(plain.contains("are scheme and port right?"), "{plain}");
}
