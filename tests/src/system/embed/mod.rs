//! Programs in other languages that embed the agent through its C interface, each against a real collector.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, TEST_WORKER, emberline, output, try_output};

/// The library with its headers, laid out as an installation.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn include(&self) -> String {
        self.path("include").display().to_string()
    }

    fn lib(&self) -> String {
        self.path("lib").display().to_string()
    }
}

/// Version of the crates, which the file of pkg-config has.
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/c");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("include")).unwrap();
        fs::create_dir_all(at("lib/pkgconfig")).unwrap();
        for header in ["emberline.h", "emberline.hpp"] {
            let header = format!("include/{header}");
            fs::copy(source.join(&header), at(&header)).unwrap();
        }
        for library in ["libemberline.so", "libemberline.a"] {
            let built = Path::new(TEST_WORKER).with_file_name(library);
            assert!(
                built.exists(),
                "{} is missing: run `cargo xtask test --only build` first",
                built.display()
            );
            symlink(built, at("lib").join(library)).unwrap();
        }
        symlink("libemberline.so", at("lib/libemberline.so.0")).unwrap();
        let template = fs::read_to_string(source.join("emberline.pc.in")).unwrap();
        let prefix = folder.path().display().to_string();
        let text = template
            .replace("@PREFIX@", &prefix)
            .replace("@VERSION@", VERSION);
        fs::write(at("lib/pkgconfig/emberline.pc"), text).unwrap();
        Installed { folder }
    })
}

/// A source of this folder.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/system/embed")
        .join(name)
}

/// Compiles a source into a program of this name.
fn compiled(
    compiler: &str,
    name: &str,
    file: &str,
    options: &[&str],
    libraries: &[&str],
) -> PathBuf {
    let program = installed().path(name);
    let mut command = Command::new(compiler);
    command
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(options)
        .args(["-I", &installed().include()])
        .arg(source(file))
        .arg("-o")
        .arg(&program)
        .args(libraries);
    check_success(&output(&mut command));
    program
}

/// Options that link the shared library.
fn shared() -> Vec<String> {
    let lib = installed().lib();
    vec![
        format!("-L{lib}"),
        format!("-Wl,-rpath,{lib}"),
        "-lemberline".into(),
    ]
}

fn as_texts(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn check_success(output: &Output) {
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {says}", output.status);
}

/// Runs a program in an environment without settings of Emberline.
fn run(program: impl AsRef<OsStr>, arguments: &[&str]) -> Output {
    output(plain(program).args(arguments))
}

fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in ["EMBERLINE_URL", "EMBERLINE_LABELS", "LD_PRELOAD"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

fn check_done(output: &Output) {
    check_success(output);
    assert!(
        String::from_utf8_lossy(&output.stdout).ends_with("done\n"),
        "{output:?}"
    );
}

/// The rows of the worker's tasks of this name.
fn tasks(collector: &Collector, worker: &str, name: &str) -> Vec<Value> {
    let answer = collector.json(&format!(
        "/api/v1/tasks?from=-1h&limit=1000&worker={worker}"
    ));
    let rows = answer["tasks"].as_array().unwrap().iter();
    rows.filter(|row| row["name"] == name).cloned().collect()
}

/// The only row of a name.
fn task(collector: &Collector, worker: &str, name: &str) -> Value {
    let rows = tasks(collector, worker, name);
    assert_eq!(rows.len(), 1, "{name}: {rows:?}");
    rows[0].clone()
}

fn collapsed(collector: &Collector, worker: &str) -> String {
    let (status, text) = collector.get(&format!("/api/v1/profile.collapsed?worker={worker}"));
    assert_eq!(status, 200, "{text}");
    text
}

/// Checks that a task has stacks with this function, and that no other task has.
fn check_only_in(profile: &str, function: &str, task: &str) {
    let lines: Vec<_> = profile
        .lines()
        .filter(|line| line.contains(function))
        .collect();
    assert!(!lines.is_empty(), "no {function} in:\n{profile}");
    for line in lines {
        assert!(line.starts_with(&format!("{task};")), "{line}");
    }
}

fn reason_of_end(collector: &Collector, worker: &str) -> Value {
    let answer = collector.json(&format!("/api/v1/workers?worker={worker}"));
    answer["workers"][0]["epochs"][0]["disconnect"]["reason"].clone()
}

#[test]
fn a_c_program_tells_everything_by_either_library() {
    let collector = Collector::start();
    let shared = shared();
    let archive = installed().path("lib/libemberline.a");
    let libraries: [&[&str]; 2] = [
        &as_texts(&shared),
        &[
            archive.to_str().unwrap(),
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lm",
            "-ldl",
        ],
    ];
    for (name, libraries) in ["by-shared", "by-archive"].iter().zip(libraries) {
        let program = compiled("cc", name, "program.c", &["-std=gnu11"], libraries);
        check_done(&run(&program, &["tell", &collector.url()]));
        check_done(&run(&program, &["misuse", &collector.url()]));
    }
    let answer = collector.json("/api/v1/workers?worker=embedded-c");
    let epochs = answer["workers"][0]["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 2, "a life by each library: {answer}");
    for epoch in epochs {
        assert_eq!(epoch["disconnect"]["reason"], "clean", "{epoch}");
        assert_eq!(epoch["labels"]["zone"], "a", "{epoch}");
    }
    for row in tasks(&collector, "embedded-c", "load") {
        assert_eq!(
            (&row["key"], &row["outcome"]),
            (&"load-1".into(), &"ok".into())
        );
        assert_eq!(
            (&row["attempt"], &row["result_bytes"]),
            (&2.into(), &512.into())
        );
        assert_eq!(
            (&row["type_name"], &row["labels"]["table"]),
            (&"rows".into(), &"orders".into())
        );
        let phases: Vec<_> = row["phases"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(phases, ["queue", "disk-read"], "{row}");
    }
    let of_load = tasks(&collector, "embedded-c", "load");
    for row in tasks(&collector, "embedded-c", "part") {
        assert_eq!(row["outcome"], "cancelled");
        let is_parent =
            |load: &&Value| load["id"] == row["parent"] && load["epoch"] == row["epoch"];
        assert!(of_load.iter().any(|load| is_parent(&load)), "{row}");
    }
    for row in tasks(&collector, "embedded-c", "handed") {
        assert_eq!(
            (&row["outcome"], &row["cause"]),
            (&"failed".into(), &"no more rows".into())
        );
    }
    let profile = collapsed(&collector, "embedded-c");
    assert!(
        profile
            .lines()
            .any(|line| line.starts_with("load;") && line.contains("crunch_c")),
        "{profile}"
    );
    check_only_in(&profile, "work_for_job", "job");
    check_only_in(&profile, "tell;crunch_c", "load");
    check_transfers(&collector);
    let answer = collector.json("/api/v1/runs?name=nightly");
    let runs = answer["runs"].as_array().unwrap();
    assert!(
        runs.len() == 2 && runs.iter().all(|run| run["open"] == false),
        "{runs:?}"
    );
    let progress = collector.json("/api/v1/progress");
    let of_load = progress["names"]
        .as_array()
        .unwrap()
        .iter()
        .find(|name| name["name"] == "load");
    assert_eq!(of_load.unwrap()["expected"], 3, "{progress}");
    assert_eq!(
        task_outcomes(&collector, "child-c", "of-child"),
        ["ok", "ok"]
    );
}

fn check_transfers(collector: &Collector) {
    let answer = collector.json("/api/v1/transfers?from=-1h&worker=embedded-c");
    let transfers = answer["transfers"].as_array().unwrap();
    assert_eq!(transfers.len(), 4, "{answer}");
    for row in transfers {
        if row["peer"] == "worker-2" {
            assert_eq!(
                (&row["direction"], &row["outcome"]),
                (&"incoming".into(), &"ok".into())
            );
            assert_eq!(
                (&row["bytes"], &row["compressed_bytes"]),
                (&4096.into(), &1024.into())
            );
            assert_eq!(row["keys"], serde_json::json!(["x-1", "x-2"]));
        } else {
            assert_eq!(
                (&row["direction"], &row["cause"]),
                (&"outgoing".into(), &"reset".into())
            );
        }
    }
}

fn task_outcomes(collector: &Collector, worker: &str, name: &str) -> Vec<String> {
    let rows = tasks(collector, worker, name);
    rows.iter()
        .map(|row| row["outcome"].as_str().unwrap().to_owned())
        .collect()
}

/// Everything before an answered flush is stored, whatever happens to the process afterwards.
#[test]
fn a_flush_is_at_the_collector_although_the_program_dies() {
    let collector = Collector::start();
    let shared = shared();
    let program = compiled(
        "cc",
        "flushing",
        "program.c",
        &["-std=gnu11"],
        &as_texts(&shared),
    );
    let killed = run(&program, &["flush", &collector.url()]);
    assert_eq!(killed.status.code(), None, "{killed:?}");
    assert_eq!(
        task_outcomes(&collector, "flushed-c", "flushed"),
        ["ok", "ok"]
    );
}

#[test]
fn a_program_that_ends_without_a_stop_loses_no_task() {
    let collector = Collector::start();
    let shared = shared();
    let program = compiled(
        "cc",
        "ending",
        "program.c",
        &["-std=gnu11"],
        &as_texts(&shared),
    );
    let ended = run(&program, &["end", &collector.url()]);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert_eq!(
        task_outcomes(&collector, "ended-c", "ended"),
        vec!["ok"; 50]
    );
}

#[test]
fn guards_of_cpp_end_by_exceptions_and_pools_work_for_their_tasks() {
    let collector = Collector::start();
    let shared = shared();
    for (name, standard) in [("cpp-14", "-std=c++14"), ("cpp-20", "-std=c++20")] {
        let options = [standard, "-fopenmp"];
        compiled("c++", name, "program.cc", &options, &as_texts(&shared));
    }
    check_done(&run(installed().path("cpp-20"), &[&collector.url()]));
    let worker = "embedded-cpp";
    let profile = collapsed(&collector, worker);
    check_only_in(&profile, "crunch<1>", "threads");
    check_only_in(&profile, "crunch<2>", "pool");
    assert_eq!(task_outcomes(&collector, worker, "pool"), ["ok", "ok"]);
    let fails = task(&collector, worker, "fails");
    assert_eq!(
        (&fails["outcome"], &fails["cause"]),
        (&"failed".into(), &"an exception left the task".into())
    );
    assert_eq!(fails["phases"][0]["name"], "decode");
    assert_eq!(task_outcomes(&collector, worker, "cleanup"), ["ok"]);
    let moved = task(&collector, worker, "moved");
    assert_eq!(
        (&moved["outcome"], &moved["result_bytes"]),
        (&"ok".into(), &512.into())
    );
    assert_eq!(task_outcomes(&collector, worker, "refused"), ["cancelled"]);
    let transfers = collector.json("/api/v1/transfers?from=-1h&worker=embedded-cpp");
    assert_eq!(
        transfers["transfers"][0]["outcome"], "failed",
        "{transfers}"
    );
    assert_eq!(reason_of_end(&collector, worker), "clean");
}

/// Two copies of the library in a process, by `dlopen`: the second one does not start, and neither is unloaded.
#[test]
fn of_two_copies_in_a_process_one_runs_and_both_stay_loaded() {
    let collector = Collector::start();
    let loader = compiled("cc", "loader", "loader.c", &["-std=gnu11"], &["-ldl"]);
    let library = installed().path("lib/libemberline.so");
    let copy = installed().path("copy.so");
    fs::copy(&library, &copy).unwrap();
    let files = [library.to_str().unwrap(), copy.to_str().unwrap()];
    check_done(&run(
        &loader,
        &["two", files[0], files[1], &collector.url()],
    ));
    assert_eq!(task_outcomes(&collector, "loaded", "kept"), ["ok"]);
    assert_eq!(reason_of_end(&collector, "loaded-second"), "clean");

    // Next to the library of `emberline run`.
    let url = collector.url();
    let arguments = [
        "run",
        "--collector",
        &url,
        "--",
        loader.to_str().unwrap(),
        "one",
        files[0],
        &url,
    ];
    check_done(&run(emberline(), &arguments));
    assert_eq!(task_outcomes(&collector, "second", "kept"), ["ok"]);
    let workers = collector.json("/api/v1/workers");
    let lives = workers["workers"].as_array().unwrap();
    let time_of = |worker: &str, field: &str| {
        let named = |life: &&Value| life["worker"].as_str().unwrap().starts_with(worker);
        let life = lives.iter().find(named).unwrap();
        life["epochs"][0][field].as_str().unwrap().to_owned()
    };
    assert!(
        time_of("loader-", "last_seen") <= time_of("second", "started_at"),
        "one after the other: {workers}"
    );
}

/// A program that is linked with the library reports by itself under `emberline run`.
#[test]
fn a_program_with_the_library_needs_none_by_preload() {
    let collector = Collector::start();
    let shared = shared();
    let program = compiled(
        "cc",
        "under-run",
        "program.c",
        &["-std=gnu11"],
        &as_texts(&shared),
    );
    let url = collector.url();
    let arguments = [
        "run",
        "--collector",
        &url,
        "--",
        program.to_str().unwrap(),
        "tell",
        &url,
    ];
    check_done(&run(emberline(), &arguments));
    let answer = collector.json("/api/v1/workers");
    assert_eq!(answer["workers"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(task_outcomes(&collector, "embedded-c", "load"), ["ok"]);
}

#[test]
fn pkg_config_names_the_headers_and_the_library() {
    let pkgconfig = installed().path("lib/pkgconfig");
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", pkgconfig)
        .args(["--cflags", "--libs", "--static", "emberline"]);
    let Ok(answer) = try_output(&mut ask) else {
        println!("skipped: no pkg-config: apt-get install pkg-config");
        return;
    };
    check_success(&answer);
    let flags = String::from_utf8(answer.stdout).unwrap();
    for flag in [
        format!("-I{}", installed().include()),
        format!("-L{}", installed().lib()),
        "-lemberline".to_owned(),
        "-lgcc_s".to_owned(),
    ] {
        assert!(
            flags.split_whitespace().any(|word| word == flag),
            "{flag} in {flags}"
        );
    }
}

#[test]
fn a_go_program_tells_its_tasks_through_cgo() {
    let mut version = Command::new("go");
    if try_output(version.arg("version")).is_err() {
        println!("skipped: no go: apt-get install golang-go");
        return;
    }
    let collector = Collector::start();
    let folder = installed().path("go");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(source("main.go"), folder.join("main.go")).unwrap();
    fs::write(folder.join("go.mod"), "module example\n\ngo 1.21\n").unwrap();
    let mut build = plain("go");
    build
        .current_dir(&folder)
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", format!("-I{}", installed().include()))
        .env("CGO_LDFLAGS", shared().join(" "))
        .env("CGO_LDFLAGS_ALLOW", ".*")
        .env("GOFLAGS", "-mod=mod")
        .args(["build", "-o", "embedded", "."]);
    check_success(&output(&mut build));
    check_done(&run(folder.join("embedded"), &[&collector.url()]));
    let load = task(&collector, "embedded-go", "load");
    assert_eq!(
        (&load["key"], &load["outcome"]),
        (&"load-17".into(), &"ok".into())
    );
    let profile = collapsed(&collector, "embedded-go");
    assert!(
        profile.lines().any(|line| line.starts_with("load")),
        "{profile}"
    );
}
