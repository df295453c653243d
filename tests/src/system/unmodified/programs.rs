//! Programs under `emberline run`.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

#[test]
fn ends_of_all_kinds_are_the_same_and_the_last_samples_arrive() {
    let collector = Collector::start();
    let ways = [
        "return",
        "_exit",
        "quick_exit",
        "exit_group",
        "sigterm",
        "abort",
    ];
    for way in ways {
        check_same(&collector.url(), &programs().c, &[way]);
    }
    for (worker, epoch) in ended_workers(&collector, "program", ways.len()) {
        let is_crashed = reason(&epoch) == "crashed";
        let text = collapsed(&collector, &worker);
        if !is_crashed {
            assert_eq!(reason(&epoch), "clean", "{worker}: {epoch}");
            assert!(text.contains("crunch"), "{worker}: {text}");
        }
    }
    let reasons: Vec<_> = workers_of(&collector, "program")
        .iter()
        .map(|(_, epoch)| reason(epoch).to_owned())
        .collect();
    let crashed = reasons.iter().filter(|reason| *reason == "crashed").count();
    assert_eq!(crashed, 2, "only those that a signal ended: {reasons:?}");
}

/// PostgreSQL reads `SIGURG` from a descriptor.
#[test]
fn a_program_that_blocks_the_samplers_signal_has_it_and_stacks() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().c, &["urgent-blocked"]);
    let (worker, _) = &ended_workers(&collector, "program", 1)[0];
    let text = collapsed(&collector, worker);
    let stacks = sum(&text, |stack| stack.contains(";crunch"));
    let none = sum(&text, |stack| stack.contains("[no stack: "));
    assert!(stacks > none, "{stacks} and {none}: {text}");
}

/// By default all time of a program is one task, which has its name.
#[test]
fn threads_or_functions_are_tasks_if_that_is_wanted() {
    for (task_by, task) in [
        ("process", "threads;"),
        ("thread", "shop;"),
        ("symbol:^shop::h.*t", "shop::hottest<double>;"),
    ] {
        let options = &["--task-by", task_by];
        let collector = Collector::start();
        let done = output(under_emberline(&collector.url(), options).arg(&programs().cpp));
        assert_eq!(done.status.code(), Some(7), "{done:?}");
        let (worker, _) = &ended_workers(&collector, "threads", 1)[0];
        let text = collapsed(&collector, worker);
        let check = |function: &str, task: &str| {
            let lines: Vec<_> = text
                .lines()
                .filter(|line| line.contains(function))
                .collect();
            assert!(!lines.is_empty(), "{function}: {text}");
            assert!(
                lines.iter().all(|line| line.starts_with(task)),
                "{task}: {text}"
            );
        };
        check("shop::hottest", task);
        check(";main;std::thread::join", "threads;");
    }
}

#[test]
fn new_programs_and_processes_are_workers_of_their_own() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().c, &["exec"]);
    let images = ended_workers(&collector, "program", 2);
    let mut names: Vec<_> = images.iter().map(|(name, _)| name).collect();
    names.dedup();
    assert!(
        names.len() >= 2,
        "one name for each image of the process: {names:?}"
    );
    assert!(
        images.iter().all(|(_, epoch)| reason(epoch) == "clean"),
        "{images:?}"
    );

    check_same(&collector.url(), &programs().c, &["family"]);
    // The parent, three forked children, and a program after vfork.
    let before = images.len();
    let family = ended_workers(&collector, "program", before + 5);
    let run_of = |epoch: &Value| epoch["labels"]["run"].as_str().unwrap().to_owned();
    let runs: Vec<_> = family.iter().map(|(_, epoch)| run_of(epoch)).collect();
    let last = runs.iter().filter(|run| **run != run_of(&images[0].1));
    assert_eq!(last.count(), 5, "one label for all of a command: {runs:?}");
    for (worker, epoch) in &family {
        let pid = epoch["pid"].as_u64().unwrap().to_string();
        let labels = &epoch["labels"];
        assert!(worker.starts_with(&format!("program-{pid}-")), "{worker}");
        assert!(
            labels["parent"].as_str().unwrap().parse::<u32>().is_ok(),
            "{labels}"
        );
    }
}

/// As `gcc -pg` and other profilers have.
#[test]
fn signals_of_timers_of_the_process_reach_the_thread_that_works() {
    let collector = Collector::start();
    for timer in ["profiling", "virtual"] {
        check_same(&collector.url(), &programs().timers, &[timer]);
    }
}

#[test]
fn programs_that_live_by_a_narrow_margin_are_the_same() {
    let collector = Collector::start();
    for way in [
        "short",
        "close-all",
        "no-clock",
        "no-clock-child",
        "strict",
        "filter",
        "listener",
        "child-filter",
        "raw-child-filter",
        "filter-exec",
        "child-filter-exec",
        "asks-for-filters",
        "limit",
        "first-thread-ends",
        "only-thread-ends",
        "buffered-thread",
        "raw-end",
        "invalid",
        "unshare",
        "raw-unshare",
    ] {
        check_same(&collector.url(), &programs().c, &[way]);
    }
    check_same(&collector.url(), &programs().c, &["unshare", "late"]);
    let workers = ended_workers(&collector, "program", 20);
    let crashed = workers
        .iter()
        .filter(|(_, epoch)| reason(epoch) == "crashed");
    assert_eq!(crashed.count(), 0, "{workers:?}");
}

#[test]
fn a_program_inherits_what_it_would_without_emberline() {
    let collector = Collector::start();
    check_same(
        &collector.url(),
        &programs().c,
        &["inherited", "", "a b", "--help"],
    );
    // Through a shell, with a descriptor and an ignored signal.
    let script = r#"trap '' USR1 HUP; exec 7</dev/null; ulimit -n 99; exec "$0" inherited"#;
    let program = programs().c.to_str().unwrap();
    check_same(
        &collector.url(),
        Path::new("/bin/sh"),
        &["-c", script, program],
    );
}

/// Signals that are ignored or blocked, and limits that a collector would raise.
#[test]
fn a_program_has_the_signals_and_limits_of_its_caller() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let c = programs().c.to_str().unwrap();
    let program = [c, "inherited"];
    let alone = output(plain(c).arg("with-signals").args(program));
    let command_line = emberline();
    let emberline = command_line.to_str().unwrap();
    let url = collector.url();
    let by_run = ["run", "--collector", &url, "--"];
    let by_record = ["record", "-o", file.to_str().unwrap(), "--"];
    for by in [by_run, by_record] {
        let mut command = plain(c);
        command.args(["with-signals", emberline]).args(by);
        let profiled = output(command.args(program));
        let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&profiled), text(&alone), "{by:?}");
        assert_eq!(profiled.status, alone.status, "{profiled:?}");
    }
    assert!(file.exists());
}

fn sorted_lines(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn closed_streams_stay_closed() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let command_line = emberline();
    let emberline = command_line.to_str().unwrap();
    let url = collector.url();
    let by_run = [emberline, "run", "--collector", &url, "--"];
    let by_record = [emberline, "record", "-o", file.to_str().unwrap(), "--"];
    for closing in ["<&-", "2>&-", "<&- 2>&-"] {
        let inherited = |by: &[&str]| {
            let mut shell = plain("sh");
            let script = format!(r#"exec "$@" {closing}"#);
            shell.args(["-c", &script, "sh"]).args(by);
            output(shell.arg(&programs().c).arg("inherited"))
        };
        let alone = inherited(&[]);
        for by in [&by_run[..], &by_record] {
            let profiled = inherited(by);
            assert_eq!(
                sorted_lines(&profiled.stdout),
                sorted_lines(&alone.stdout),
                "{closing} {by:?}"
            );
            assert_eq!(profiled.status, alone.status, "{profiled:?}");
        }
    }
}

#[test]
fn the_allocator_of_a_program_is_its_own() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().allocator, &[]);
    // The parent before and after the call that failed, and the child.
    let workers = ended_workers(&collector, "allocator", 3);
    assert!(
        workers.iter().all(|(_, epoch)| reason(epoch) == "clean"),
        "{workers:?}"
    );
}

#[test]
fn threads_of_ours_have_no_real_time_policy() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().c, &["real-time"]);
}

/// Programs switch capabilities for each request, and give some up before they become another user.
#[test]
fn capabilities_are_switched_without_a_stop_and_given_up_by_all_threads() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().c, &["capabilities"]);
    // The parent, and the child before and after it has given some up.
    let workers = ended_workers(&collector, "program", 3);
    let profiles = workers.iter().map(|(name, _)| collapsed(&collector, name));
    let has_switches = |text: &String| text.contains("switch_capabilities");
    assert_eq!(profiles.filter(has_switches).count(), 1, "{workers:?}");
}

/// As of a service or a container, whose filter ends a program at a call of ours.
#[test]
fn filters_of_the_caller_forbid_nothing_that_the_program_does() {
    let collector = Collector::start();
    let c = programs().c.to_str().unwrap();
    let alone = output(plain(c).args(["without-reads", c, "exec"]));
    let mut command = plain(c);
    command.arg("without-reads").arg(emberline());
    command.args(["run", "--collector", &collector.url(), "--"]);
    let profiled = output(command.args([c, "exec"]));
    assert_eq!(visible(&profiled), visible(&alone));
    ended_workers(&collector, "program", 2);
}

#[test]
fn a_small_stack_is_enough_to_become_another_program() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other-processor");
    let mut bytes = fs::read(&programs().c).unwrap();
    bytes[18] = 40;
    fs::write(&file, bytes).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let file = file.to_str().unwrap();
    check_same(&collector.url(), &programs().c, &["small-stack", file]);
}

/// The kernel refuses only some namespaces to a process with several threads.
#[test]
fn an_agent_runs_on_where_a_namespace_permits_it() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().c, &["setns"]);
    let workers = ended_workers(&collector, "program", 2);
    assert_eq!(
        workers.len(),
        2,
        "the mount namespace stops the agent once: {workers:?}"
    );
}

#[test]
fn the_hottest_function_of_three_threads_is_named() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().cpp, &[]);
    let workers = ended_workers(&collector, "threads", 1);
    let text = collapsed(&collector, &workers[0].0);
    let mut self_ns: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let function = stack.rsplit(';').next().unwrap();
        *self_ns.entry(function).or_default() += weight.parse::<u64>().unwrap();
    }
    let hottest = self_ns.iter().max_by_key(|(_, ns)| **ns).unwrap();
    assert_eq!(*hottest.0, "shop::hottest<double>", "{self_ns:?}");
    assert!(
        text.lines()
            .all(|line| line.starts_with("threads;") || line.starts_with("[agent]")),
        "{text}"
    );
}

#[test]
fn a_daemon_reports_from_both_of_its_processes() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out");
    let mut command = under_emberline(&collector.url(), &[]);
    let started = output(command.arg(&programs().c).arg("daemon").arg(&file));
    assert!(started.status.success());
    let workers = ended_workers(&collector, "program", 2);
    assert!(
        workers.iter().all(|(_, epoch)| reason(epoch) == "clean"),
        "{workers:?}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "done");
}

#[test]
fn a_child_with_a_terminal_reports_too() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().c, &["terminal"]);
    let workers = ended_workers(&collector, "program", 2);
    assert!(
        workers.iter().all(|(_, epoch)| reason(epoch) == "clean"),
        "{workers:?}"
    );
}

#[test]
fn tools_and_pipelines_give_the_same_bytes() {
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let file = big_file(folder.path());
    let path = file.to_str().unwrap();
    check_same(&collector.url(), Path::new("sort"), &[path]);
    check_same(&collector.url(), Path::new("gzip"), &["-9", "-c", path]);
    let script = r#"sort "$0" | gzip -6 | gzip -dc | tac | head -n 1000 | md5sum; (exit 3) || echo $?; exit 4"#;
    check_same(&collector.url(), Path::new("bash"), &["-c", script, path]);
    assert!(ended_workers(&collector, "sort", 2).len() >= 2);
    assert!(!ended_workers(&collector, "gzip", 2).is_empty());
}

#[test]
fn names_labels_and_other_libraries_are_kept() {
    let collector = Collector::start();
    let options = [
        "--worker",
        "loader",
        "--label",
        "zone=a",
        "--label",
        "run=nightly",
    ];
    let mut command = under_emberline(&collector.url(), &options);
    command
        .env("EMBERLINE_LABELS", "rack=7")
        .env("LD_PRELOAD", "libm.so.6")
        .args(["sh", "-c", "\"$0\" return; echo \"$LD_PRELOAD\""])
        .arg(&programs().c);
    let done = output(&mut command);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("libm.so.6:/"), "{said}");
    let workers = ended_workers(&collector, "program", 1);
    let (name, epoch) = &workers[0];
    assert!(name.starts_with("loader-"), "{name}");
    let labels = &epoch["labels"];
    assert_eq!(
        (&labels["zone"], &labels["run"], &labels["rack"]),
        (&"a".into(), &"nightly".into(), &"7".into())
    );
}

#[test]
fn without_a_collector_a_program_is_the_same() {
    // A port at which nobody listens, and one that is closed in the middle.
    check_same("http://127.0.0.1:9", &programs().c, &["return"]);
    let mut collector = Collector::start();
    let url = collector.url();
    let alone = output(plain(&programs().c).arg("sigterm"));
    let mut command = under_emberline(&url, &[]);
    command
        .arg(&programs().c)
        .arg("sigterm")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let profiled = command.spawn().unwrap();
    wait_for("the worker", || {
        (!collector.epochs().is_empty()).then_some(())
    });
    collector.process.kill();
    let profiled = profiled.wait_with_output().unwrap();
    assert_eq!(visible(&profiled), visible(&alone));
}
