//! Processes that already run, profiled from outside (`--pid`, `--name`).

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Child;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// A process that runs until it is dropped.
pub(super) struct Target(Child);

impl Target {
    /// Starts a program and waits for its first line.
    pub(super) fn start(program: &Path, arguments: &[&str]) -> Target {
        let mut command = plain(program);
        command.args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        // The program wrote nothing else yet, so nothing is lost with the buffer.
        child.stdout = Some(lines.into_inner());
        Target(child)
    }

    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// CPU time of all threads in nanoseconds, to the last change of threads.
    fn exact_cpu_ns(&self) -> u64 {
        let folder = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let threads = folder.map(|entry| {
            let counts = fs::read_to_string(entry.unwrap().path().join("schedstat")).unwrap();
            counts.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        threads.sum()
    }

    /// CPU time in nanoseconds.
    fn cpu_ns(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks: u64 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        // The kernel's unit here is 10 ms.
        ticks * 10_000_000
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compiles the program that divides its time.
fn compiled(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    compiled_from("split.c", folder, name, options)
}

/// Compiles a file of this folder.
pub(super) fn compiled_from(source: &str, folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/unmodified");
    let program = folder.join(name);
    let mut command = Command::new("cc");
    command
        .args(["-O1", "-g", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(sources.join(source));
    let done = output(&mut command);
    assert!(done.status.success(), "{done:?}");
    program
}

/// Profiles a process into a collector until it has used that much CPU time: so a busy machine takes longer and has as
/// many samples. Returns what the command said.
fn attach(collector: &Collector, target: &Target, options: &[&str], cpu_ns: u64) -> String {
    let mut command = plain("env");
    command.arg("--default-signal").arg(emberline());
    command
        .args([
            "run",
            "--collector",
            &collector.url(),
            "--pid",
            &target.id(),
        ])
        .args(options)
        .stderr(Stdio::piped());
    let before = target.cpu_ns();
    let running = command.spawn().unwrap();
    wait_for("CPU time", || {
        (target.cpu_ns() > before + cpu_ns).then_some(())
    });
    kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGINT).unwrap();
    let done = running.wait_with_output().unwrap();
    let said = unwrapped(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    said
}

/// Profiles a process that waits for `SIGUSR1` to begin, until it ends. Returns what it wrote.
pub(super) fn attach_until_the_end(collector: &Collector, target: Target) -> String {
    let mut command = plain(emberline());
    command.args(["run", "--collector", &collector.url()]);
    command.args(["--pid", &target.id()]).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap());
    let mut said = String::new();
    lines.read_line(&mut said).unwrap();
    assert!(said.contains("from outside"), "{said}");
    let mut target = target;
    kill(Pid::from_raw(target.0.id().cast_signed()), Signal::SIGUSR1).unwrap();
    let mut written = String::new();
    let mut stdout = target.0.stdout.take().unwrap();
    stdout.read_to_string(&mut written).unwrap();
    target.0.wait().unwrap();
    assert!(running.wait().unwrap().success());
    written
}

/// Time of the lines of a profile that have all these parts, in its unit.
pub(super) fn time_of(collapsed: &str, parts: &[&str]) -> u64 {
    let matching = collapsed
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)));
    let time = matching.map(|line| {
        let (_, time) = line.rsplit_once(' ').unwrap();
        time.parse::<u64>().unwrap()
    });
    time.sum()
}

/// Deviation of a share of 3 : 1 that 300 samples almost never exceed: their standard error is 0.025.
const SHARE_ERROR_MAX: f64 = 0.08;

/// The same for work whose period is that of samples: four samples in a row may see almost one phase of it.
const PERIODIC_ERROR_MAX: f64 = 0.15;

/// Checks that the CPU time of two functions is divided 3 : 1, below `main`, and that they have almost all of it.
fn check_split(text: &str, names: [&str; 2], root: &str) {
    let [heavy, light] = names.map(|name| time_of(text, &[root, name]));
    let share = heavy as f64 / (heavy + light) as f64;
    assert!((share - 0.75).abs() < SHARE_ERROR_MAX, "{share}: {text}");
    let named = (heavy + light) as f64 / time_of(text, &[""]) as f64;
    assert!(named > 0.97, "{named}: {text}");
}

fn cpu_profile(collector: &Collector) -> String {
    let (status, text) = collector.get("/api/v1/profile.collapsed?state=cpu");
    assert_eq!(status, 200, "{text}");
    text
}

/// As a runtime does that reserves addresses.
#[test]
fn a_process_whose_first_mapping_has_no_access_is_profiled() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "reserved", &["-DRESERVED"]);
    let target = Target::start(&program, &[]);
    let collector = Collector::start();
    attach(&collector, &target, &[], SECOND_NS / 2);
    let text = cpu_profile(&collector);
    assert!(time_of(&text, &["main;heavy "]) > 0, "{text}");
}

#[test]
fn the_split_of_running_and_waiting_time_is_that_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&compiled(folder.path(), "split", &[]), &[]);
    let collector = Collector::start();
    let before = target.cpu_ns();
    let begin = Instant::now();
    let said = attach(&collector, &target, &[], 3 * SECOND_NS);
    let elapsed_ns = begin.elapsed().as_nanos() as u64;
    let used = target.cpu_ns() - before;
    assert!(said.contains("(split) from outside"), "{said}");
    assert!(said.contains(" 0 s of it lost"), "{said}");
    let text = cpu_profile(&collector);
    check_split(&text, [";heavy ", ";light "], "split;");
    assert!(time_of(&text, &["main;heavy "]) > 0, "{text}");
    let cpu_ns = time_of(&text, &[""]);
    // The program's own count has whole 10 ms, and goes on while this command starts and ends.
    assert!(cpu_ns <= used + 30_000_000, "{cpu_ns} of {used}");
    let (_, sleep) = collector.get("/api/v1/profile.collapsed?state=sleep");
    let slept = time_of(&sleep, &["sleep_on;rest;"]);
    // It does nothing else, but the command needs a while to start and to end.
    assert!(
        slept > elapsed_ns / 2 && slept <= elapsed_ns,
        "{slept} of {elapsed_ns}: {sleep}"
    );
    assert!(time_of(&sleep, &["main;rest;"]) > 0, "{sleep}");
    let (worker, epoch) = &workers_of(&collector, "split")[0];
    assert!(worker.starts_with(&format!("split-{}-", target.id())));
    assert_eq!(reason(epoch), "clean");
    let (_, threads) = collector.get("/api/v1/thread-time");
    assert!(threads.contains("sleeper"), "{threads}");
}

/// Samples of one period would see one phase of the work only: a share of 0 or 1.
#[test]
fn work_with_the_period_of_samples_has_its_share() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let program = compiled_from("periodic.c", folder.path(), "periodic", &[]);
    let target = Target::start(&program, &[]);
    attach(&collector, &target, &[], 4 * SECOND_NS);
    let text = cpu_profile(&collector);
    let (_, sleep) = collector.get("/api/v1/profile.collapsed?state=sleep");
    for (text, names, expected) in [
        (&text, ["work_long", "work_short"], 0.75),
        (&sleep, ["rest_first", "rest_second"], 0.5),
    ] {
        let [first, second] = names.map(|name| time_of(text, &[name]));
        let share = first as f64 / (first + second) as f64;
        assert!(
            (share - expected).abs() < PERIODIC_ERROR_MAX,
            "{share}: {text}"
        );
    }
}

/// The end of a burst is sampled as often as its beginning, and does not count for the beginning of the next one.
#[test]
fn work_in_bursts_has_its_share_from_inside_and_outside() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    for (name, link) in [("inside", "-rdynamic"), ("outside", "-static")] {
        let program = compiled(folder.path(), name, &["-DHEAVY_NS=12000000l", link]);
        let mut command = plain(emberline());
        command.args(["record", "-o"]).arg(&file).arg("--");
        let done = output(command.arg(&program).arg("180"));
        assert!(done.status.success(), "{done:?}");
        let text = fs::read_to_string(&file).unwrap();
        check_split(&text, [";heavy ", ";light "], name);
    }
}

#[test]
fn static_programs_have_stacks_and_names() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let program = compiled(folder.path(), "whole", &["-static"]);
    let target = Target::start(&program, &[]);
    attach(&collector, &target, &[], 3 * SECOND_NS);
    let text = cpu_profile(&collector);
    check_split(&text, [";heavy ", ";light "], ";main;");
}

#[test]
fn record_profiles_a_program_from_outside_that_the_library_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let program = compiled(folder.path(), "whole", &["-static"]);
    let mut command = plain(emberline());
    command.args(["record", "-o"]).arg(&file).arg("--");
    let done = output(command.arg(&program).arg("30"));
    let said = unwrapped(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert_eq!(done.stdout, b"ready\n");
    let line = "is profiled from outside: it is statically linked";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    let text = fs::read_to_string(&file).unwrap();
    check_split(&text, [";heavy ", ";light "], "whole;");
}

/// They build programs.
#[test]
#[ignore = "long"]
fn programs_in_go_have_stacks_and_names() {
    check_go("0", "import \"fmt\"");
}

/// It has tables for unwinding, of the code of C only.
#[test]
#[ignore = "long"]
fn programs_in_go_that_are_linked_with_c_have_stacks_and_names() {
    check_go("1", "import \"C\"\n\nimport \"fmt\"");
}

fn check_go(cgo: &str, import: &str) {
    let folder = tempfile::tempdir().unwrap();
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/system/unmodified/split.go");
    let source = folder.path().join("split.go");
    let text = fs::read_to_string(template).unwrap();
    fs::write(&source, text.replace("import \"fmt\"", import)).unwrap();
    let program = folder.path().join("gopher");
    let mut command = Command::new("go");
    command
        .env("GOCACHE", folder.path().join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("CGO_ENABLED", cgo)
        .args(["build", "-o"])
        .arg(&program)
        .arg(source);
    // Go is not on every machine.
    if !command.output().is_ok_and(|done| done.status.success()) {
        return;
    }
    let target = Target::start(&program, &[]);
    let collector = Collector::start();
    attach(&collector, &target, &[], 3 * SECOND_NS);
    let text = cpu_profile(&collector);
    // Its scheduler takes 3 to 13% of the CPU time, by perf's count too.
    let is_of_scheduler = |line: &&str| line.contains(";runtime.") && !line.contains("main.main;");
    let (of_scheduler, others): (Vec<&str>, Vec<&str>) = text.lines().partition(is_of_scheduler);
    let scheduler_ns = time_of(&of_scheduler.join("\n"), &[""]);
    assert!(scheduler_ns < time_of(&text, &[""]) / 4, "{text}");
    check_split(
        &others.join("\n"),
        ["main.heavy ", "main.light "],
        "main.main;",
    );
}

/// The process is stopped by a signal before and after: so the kernel's count has exactly the recorded time.
#[test]
fn counted_and_lost_time_is_what_the_kernel_shows() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&compiled(folder.path(), "exact", &[]), &[]);
    let process = Pid::from_raw(target.0.id().cast_signed());
    kill(process, Signal::SIGSTOP).unwrap();
    let before = target.exact_cpu_ns();
    let collector = Collector::start();
    let mut command = plain("env");
    command.arg("--default-signal").arg(emberline());
    command.args(["run", "--collector", &collector.url()]);
    command.args(["--pid", &target.id()]).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap());
    let mut said = String::new();
    lines.read_line(&mut said).unwrap();
    assert!(said.contains("from outside"), "{said}");
    kill(process, Signal::SIGCONT).unwrap();
    wait_for("CPU time", || {
        (target.exact_cpu_ns() > before + 3 * SECOND_NS / 2).then_some(())
    });
    kill(process, Signal::SIGSTOP).unwrap();
    wait_for("the stop", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", target.id())).unwrap();
        stat.contains(") T ").then_some(())
    });
    let used = target.exact_cpu_ns() - before;
    kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGINT).unwrap();
    assert!(running.wait().unwrap().success());
    let counted = time_of(&cpu_profile(&collector), &[""]);
    let (worker, epoch) = &workers_of(&collector, "exact")[0];
    let lost = epoch["account"]["lost_queue_ns"].as_u64().unwrap_or(0);
    let difference = (counted + lost).abs_diff(used);
    assert!(
        difference < used / 100 + 2_000_000,
        "{counted} and {lost} of {used}: {worker} {epoch}"
    );
}

#[test]
fn functions_are_tasks_if_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&compiled(folder.path(), "served", &[]), &[]);
    let collector = Collector::start();
    let options = ["--task-by", "symbol:^hea"];
    attach(&collector, &target, &options, SECOND_NS / 2);
    let text = cpu_profile(&collector);
    let all = time_of(&text, &["heavy"]);
    let below = text.lines().filter(|line| line.starts_with("heavy;"));
    assert!(
        below.count() > 0 && all == time_of(&text, &["main;heavy "]),
        "{text}"
    );
    let others = text.lines().filter(|line| line.contains(";light "));
    assert!(others.clone().count() > 0, "{text}");
    assert!(
        others.into_iter().all(|line| line.starts_with("served;")),
        "{text}"
    );
}

/// Where the kernel refuses to sample running threads, they may be stopped for a moment.
#[test]
fn stopped_threads_show_the_same_split() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&compiled(folder.path(), "split", &[]), &[]);
    let collector = Collector::start();
    let said = attach(&collector, &target, &["--ptrace"], 3 * SECOND_NS);
    assert!(said.contains("stopping running threads"), "{said}");
    let text = cpu_profile(&collector);
    let [heavy, light] = ["heavy", "light"].map(|name| time_of(&text, &["main;", name]));
    let share = heavy as f64 / (heavy + light) as f64;
    assert!((share - 0.75).abs() < SHARE_ERROR_MAX, "{share}: {text}");
}

/// Two threads that need the interpreter's lock, and one that sleeps. The sleep outlives the test:
/// a thread that woke up would wait for the lock too, on a busy machine for long.
const PYTHON: &str = "
import threading, time
def spin(number):
    while True: number * number
def rest():
    time.sleep(3600)
for run in (lambda: spin(1), lambda: spin(2), rest): threading.Thread(target=run, daemon=True).start()
print('ready', flush=True)
threading.Event().wait()
";

#[test]
fn functions_of_a_python_process_are_shown_where_it_waits_and_by_stops_where_it_runs() {
    let target = Target::start(Path::new("/usr/bin/python3"), &["-c", PYTHON]);
    let in_state = |collector: &Collector, state: &str| {
        let path = format!("/api/v1/profile.collapsed?state={state}");
        let (status, text) = collector.get(&path);
        assert_eq!(status, 200, "{text}");
        text
    };
    let is_most = |text: &str, parts: &[&str]| {
        let [part, all] = [time_of(text, parts), time_of(text, &[""])];
        assert!(
            10 * part > 9 * all && part > 0,
            "{parts:?}: {part} of {all}: {text}"
        );
    };
    let collector = Collector::start();
    let said = attach(&collector, &target, &[], 2 * SECOND_NS);
    let way_on = "shown where its threads wait; with --ptrace also where they run";
    assert_eq!(said.matches(way_on).count(), 1, "{said}");
    let waits = in_state(&collector, "interpreter");
    is_most(&waits, &["spin;", "[waiting for the GIL]"]);
    is_most(&in_state(&collector, "sleep"), &[";rest;"]);

    let collector = Collector::start();
    let said = attach(&collector, &target, &["--ptrace"], 2 * SECOND_NS);
    assert!(!said.contains(way_on), "{said}");
    is_most(&in_state(&collector, "cpu"), &[";spin"]);
}

#[test]
fn a_report_is_written_when_the_process_ends_and_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "split", &[]);
    let file = folder.path().join("report.html");
    let record = |target: &Target| {
        let mut command = plain("env");
        command.arg("--default-signal").arg(emberline());
        command
            .args(["record", "--pid", &target.id(), "-o"])
            .arg(&file)
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let check = |child: Child, what: &str| {
        let done = child.wait_with_output().unwrap();
        let said = unwrapped(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{what}: {said}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.trim_end().ends_with("</html>"), "{what}");
        let data = fs::read_to_string(file.with_extension("json")).unwrap();
        assert!(data.contains("heavy"), "{what}: {said}");
        fs::remove_file(&file).unwrap();
    };
    let mut target = Target::start(&program, &["8"]);
    let recording = record(&target);
    target.0.wait().unwrap();
    check(recording, "the process ended");
    let mut target = Target::start(&program, &[]);
    let mut recording = record(&target);
    let mut lines = BufReader::new(recording.stderr.take().unwrap());
    let mut said = String::new();
    lines.read_line(&mut said).unwrap();
    assert!(said.contains("from outside"), "{said}");
    // Enough for some samples.
    let before = target.cpu_ns();
    wait_for("CPU time", || {
        (target.cpu_ns() > before + SECOND_NS / 2).then_some(())
    });
    kill(Pid::from_raw(recording.id().cast_signed()), Signal::SIGINT).unwrap();
    check(recording, "a signal");
    assert!(target.0.try_wait().unwrap().is_none(), "it goes on");
}

#[test]
fn processes_are_found_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "found-by-name", &[]);
    let targets = [(); 2].map(|()| Target::start(&program, &[]));
    let collector = Collector::start();
    let mut command = plain(emberline());
    command.args(["run", "--collector", &collector.url(), "-d", "2"]);
    let done = output(command.args(["--name", "^found-by-.ame$"]));
    let said = unwrapped(&done.stderr);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let workers = workers_of(&collector, "found-by-name");
    for target in &targets {
        let name = format!("found-by-name-{}-", target.id());
        assert!(
            workers.iter().any(|(worker, _)| worker.starts_with(&name)),
            "{name}: {said}"
        );
    }
}

#[test]
fn what_is_no_process_to_profile_is_said_with_the_way_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    for (arguments, expected) in [
        (&["--pid", "4194303"][..], "process 4194303 does not exist"),
        (
            &["--pid", "0"],
            "expected the id of a process, 1 to 4194304",
        ),
        (&["--name", "^no-such-program$"], "no process of this user"),
        (&["--name", "("], "open group without closing"),
        (&["--pid", "1", "-d", "0"], "expected seconds, more than 0"),
        (&["--pid", "1", "--", "true"], "cannot be used with"),
    ] {
        let mut command = plain(emberline());
        command.args(["record", "-o"]).arg(&file).args(arguments);
        let done = output(&mut command);
        let said = unwrapped(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

/// The rights of users, containers and namespaces, as far as this one may lower them.
#[test]
fn refusals_of_the_system_are_one_line_with_the_way_on() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&compiled(folder.path(), "split", &[]), &[]);
    let refuse = compiled_from("refuse.c", folder.path(), "refuse", &[]);
    let emberline = emberline();
    let file = folder.path().join("report.html");
    for (before, process, code, expected) in [
        (
            &[refuse.to_str().unwrap()][..],
            target.id(),
            1,
            "with --cap-add PERFMON; or use --ptrace",
        ),
        (
            &[
                "setpriv",
                "--bounding-set",
                "-sys_ptrace",
                "--inh-caps",
                "-all",
            ],
            "1".to_owned(),
            2,
            "this command needs the capability SYS_PTRACE",
        ),
        (
            &["unshare", "--pid", "--fork"],
            target.id(),
            2,
            "/proc is that of another pid namespace than this command's",
        ),
        (
            &["unshare", "--pid", "--fork", "--mount-proc"],
            target.id(),
            2,
            "does not exist in the pid namespace of this command",
        ),
    ] {
        let can_run = before.len() == 1 || {
            let tried = plain(before[0]).args(&before[1..]).arg("true").output();
            tried.is_ok_and(|tried| tried.status.success())
        };
        if !can_run {
            // A container that may not make namespaces.
            continue;
        }
        let mut command = plain(before[0]);
        command
            .args(&before[1..])
            .arg(&emberline)
            .args(["record", "-o"]);
        let done = output(command.arg(&file).args(["-d", "1", "--pid", &process]));
        let said = unwrapped(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{before:?}: {said}");
        assert!(said.contains(expected), "{before:?}: {said}");
        assert_eq!(said.matches("error:").count(), 1, "{before:?}: {said}");
    }
    assert!(!file.exists());
}

#[test]
fn the_extension_decides_the_format_and_an_unknown_one_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&compiled(folder.path(), "split", &[]), &[]);
    let record = |name: &str| {
        let file = folder.path().join(name);
        let mut command = plain(emberline());
        command.args(["record", "-d", "2", "--pid", &target.id(), "-o"]);
        let done = output(command.arg(&file));
        (unwrapped(&done.stderr), fs::read_to_string(file))
    };
    let (said, text) = record("cpu.collapsed");
    let text = text.unwrap_or_else(|error| panic!("{error}: {said}"));
    assert!(time_of(&text, &["split;main;heavy "]) > 0, "{text}");
    let (said, text) = record("cpu.png");
    assert!(text.is_err());
    assert!(said.contains("expected .svg, .html, .collapsed"), "{said}");
    assert!(!said.contains("from outside"), "{said}");
}

/// Starts a thread for each half millisecond of work, as some servers do for each request, and prints its CPU time.
const SHORT_THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <time.h>
static long since(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}
static void *work(void *argument) {
    long end = since(CLOCK_THREAD_CPUTIME_ID) + 500000;
    while (since(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
    return argument;
}
int main(void) {
    long end = since(CLOCK_MONOTONIC) + 3000000000L;
    while (since(CLOCK_MONOTONIC) < end) {
        pthread_t thread;
        pthread_create(&thread, 0, work, 0);
        pthread_join(thread, 0);
    }
    printf("%ld\n", since(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
"#;

#[test]
fn cpu_time_of_short_threads_is_not_more_than_the_process_used() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("short.c");
    fs::write(&source, SHORT_THREADS).unwrap();
    let program = folder.path().join("short");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&program);
    assert!(output(compiler.arg(&source)).status.success());
    let file = folder.path().join("cpu.collapsed");
    let child = plain(&program).stdout(Stdio::piped()).spawn().unwrap();
    let mut command = plain(emberline());
    command.args(["record", "--pid", &child.id().to_string(), "-o"]);
    let done = output(command.arg(&file));
    let said = unwrapped(&done.stderr);
    let printed = child.wait_with_output().unwrap().stdout;
    let used_ns: u64 = String::from_utf8_lossy(&printed).trim().parse().unwrap();
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {said}"));
    let shown_ns = time_of(&text, &[""]);
    // The recording begins a little later than the program.
    let expected = used_ns / 2..used_ns + used_ns / 20;
    assert!(
        expected.contains(&shown_ns),
        "{shown_ns} of {used_ns}: {text}"
    );
}
