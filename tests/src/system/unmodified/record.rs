//! Programs under `emberline record`.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use super::*;

pub(super) fn recorded(file: &Path, program: &[&str]) -> Output {
    let mut command = plain(emberline());
    output(
        command
            .args(["record", "-o"])
            .arg(file)
            .arg("--")
            .args(program),
    )
}

#[test]
fn the_report_names_functions_and_the_exit_code_is_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let done = recorded(&file, &[programs().cpp.to_str().unwrap()]);
    assert_eq!(
        (&*done.stdout, done.status.code()),
        (&b"done\n"[..], Some(7))
    );
    let json: Value =
        serde_json::from_slice(&fs::read(file.with_extension("json")).unwrap()).unwrap();
    let names = json["profile"]["profile"]["functions"]["names"].to_string();
    assert!(names.contains("hottest"), "{names}");
}

#[test]
fn the_agents_threads_are_not_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let done = recorded(&file, &["sleep", "1"]);
    assert!(done.status.success(), "{done:?}");
    let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let threads = json["threads"]["threads"].as_array().unwrap();
    let time_of = |is_ours: bool| -> u64 {
        let wanted = threads.iter().filter(|thread| {
            thread["thread"].as_str().unwrap().starts_with("emberline-") == is_ours
        });
        wanted
            .map(|thread| thread["total_ns"].as_u64().unwrap())
            .sum()
    };
    let of_program = time_of(false);
    let of_agent = time_of(true);
    assert!(of_program > 500_000_000, "{threads:?}");
    // The thread that starts the agent also begins the program's task.
    assert!(of_agent < of_program / 10, "{threads:?}");
}

/// Starts a program with an environment that no shell would make.
const ODD_ENVIRONMENT: &str = r#"
#include <unistd.h>
int main(int argc, char **argv) {
    char *odd[] = {"Z=1", "NO-VARIABLE", PATH, "A=first", "A=second", "B=", NULL};
    return execve(argv[argc > 1], argv + 1, odd);
}
"#;

#[test]
fn a_program_has_the_environment_of_record_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("odd.c");
    fs::write(&source, ODD_ENVIRONMENT).unwrap();
    let odd = folder.path().join("odd");
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let mut compiler = Command::new("cc");
    compiler
        .arg("-o")
        .args([&odd, &source])
        .arg(format!("-DPATH={path:?}"));
    let compiled = output(&mut compiler);
    assert!(compiled.status.success(), "{compiled:?}");
    let file = folder.path().join("cpu.collapsed");
    let mut command = plain(&odd);
    command
        .arg(emberline())
        .args(["record", "-o"])
        .arg(file)
        .args(["--", "env"]);
    let done = output(&mut command);
    let written = String::from_utf8_lossy(&done.stdout);
    let own: Vec<&str> = written
        .lines()
        .filter(|line| !line.starts_with("LD_PRELOAD=") && !line.starts_with("EMBERLINE_"))
        .collect();
    assert_eq!(
        own,
        ["Z=1", "NO-VARIABLE", &path, "A=first", "A=second", "B="]
    );
}

#[test]
fn the_extension_decides_the_format() {
    let folder = tempfile::tempdir().unwrap();
    for (name, start) in [
        ("cpu.collapsed", ""),
        ("cpu.svg", "<?xml"),
        ("cpu.speedscope.json", "{"),
        ("data.json", "{\n\"about\""),
    ] {
        let file = folder.path().join(name);
        let done = recorded(&file, &[programs().cpp.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(7), "{name}: {said}");
        assert!(
            said.contains(&format!("wrote {}\n", file.display())),
            "{said}"
        );
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(start), "{name}: {text:.100}");
        assert!(text.contains("hottest"), "{name}: {text:.1000}");
    }
    // Each is one file.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    let bytes = |name: &str| {
        let file = folder.path().join(name);
        recorded(&file, &[programs().cpp.to_str().unwrap()]);
        fs::read(file).unwrap()
    };
    assert_eq!(bytes("cpu.pb.gz")[..2], [0x1f, 0x8b]);
    assert_eq!(bytes("cpu.parquet")[..4], *b"PAR1");
}

#[test]
fn an_unknown_extension_is_refused_before_the_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    for name in ["report", "cpu.png", "cpu.htm"] {
        let file = folder.path().join(name);
        let done = recorded(&file, &["touch", started.to_str().unwrap()]);
        let said = unwrapped(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{name}: {said}");
        let expected = "expected .svg, .html, .collapsed, .txt, .json, .pb.gz, .pprof, .speedscope.json, \
                        .firefox.json, .nested.json, .csv, .parquet";
        assert!(said.contains(expected), "{name}: {said}");
        assert!(!file.exists() && !started.exists(), "{name}");
    }
}

/// A write past the limit of a process would end it by a signal.
#[test]
fn programs_that_may_write_no_file_end_as_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let script = "sleep 0.3; ulimit -f 0; /bin/echo done; exec /bin/echo more";
    let done = recorded(&file, &["sh", "-c", script]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(
        (&*done.stdout, done.status.code()),
        (&b"done\nmore\n"[..], Some(0)),
        "{said}"
    );
}

#[test]
fn a_signal_ends_record_too_and_there_is_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let alone = output(plain(&programs().c).arg("sigterm"));
    let done = recorded(&file, &[programs().c.to_str().unwrap(), "sigterm"]);
    assert_eq!(done.status, alone.status);
    assert!(file.exists());
}

/// Also those that come while the report is written.
#[test]
fn signals_to_record_end_the_program_and_the_report_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let file = folder.path().join(format!("{signal}.html"));
        // A shell starts its background commands with some of these ignored, which `record` would leave to the program.
        let mut command = plain("env");
        command.arg("--default-signal").arg(emberline());
        command.args(["record", "-o"]).arg(&file).arg("--");
        command.arg(&programs().c).arg("until-signal");
        // No terminal sends signals to this group.
        command.stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        let record = Pid::from_raw(child.id().cast_signed());
        let status = wait_for("the end of record", || {
            kill(record, signal).unwrap();
            child.try_wait().unwrap()
        });
        assert_eq!(status.signal(), Some(signal as i32), "{status}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.trim_end().ends_with("</html>"), "{signal}");
        let data = fs::read_to_string(file.with_extension("json")).unwrap();
        assert!(data.contains("crunch"), "{signal}");
    }
}

#[test]
fn what_is_not_profiled_is_said_in_a_line_with_the_way_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let c = programs().c.to_str().unwrap();
    let empty = folder.path().join("empty");
    fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let limited = format!(
        "ulimit -v 4000000; \"$0\" record -o {} -- {c} return",
        file.display()
    );
    for (program, code, expected) in [
        (
            &["no-such-program"][..],
            127,
            "no such program; name one that is in PATH",
        ),
        (&[empty], 126, "it is not executable; run: chmod +x"),
        (
            &[c, "short"],
            2,
            "profiled 0 of 1 programs (1 ended within 50 ms, or changed user or root)",
        ),
        (
            &[c, "filter"],
            3,
            "is not profiled: it confines itself by seccomp",
        ),
        (
            &[c, "limit"],
            2,
            "is not profiled: its address space is limited",
        ),
    ] {
        let done = recorded(&file, program);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{program:?}: {said}");
        let lines = said.lines().filter(|line| line.contains(expected));
        assert_eq!(lines.count(), 1, "{program:?}: {said}");
    }
    let mut shell = plain("sh");
    let done = output(shell.args(["-c", &limited]).arg(emberline()));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("its address space is limited"), "{said}");
    assert_eq!(done.status.code(), Some(7), "{said}");
}

#[test]
fn run_names_what_is_wrong_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    for (options, code, expected) in [
        (&["--collector", "https://a.example:1"][..], 2, "has no TLS"),
        (&["--collector", "nonsense:///"], 2, "invalid collector URL"),
        (
            &["--label", "zone"],
            2,
            "expected KEY=VALUE without a comma",
        ),
        (&["--worker", ""], 2, "--worker"),
    ] {
        let mut command = plain(emberline());
        let done = output(
            command
                .arg("run")
                .args(options)
                .args(["--", "touch"])
                .arg(&started),
        );
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    }
    assert!(!started.exists());
}

/// As servers do that are started by root.
#[test]
fn a_child_that_becomes_another_user_is_profiled() {
    if !geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let done = recorded(&file, &[programs().c.to_str().unwrap(), "other-user"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "code 4\n", "{said}");
    let text = fs::read_to_string(&file).unwrap();
    // The parent only waits.
    let crunch = text.lines().filter(|line| line.contains(";crunch"));
    let crunch_ns: u64 = crunch
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert!(crunch_ns > 400_000_000, "{text}");
}

#[test]
fn silence_is_said_while_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    // Without the library in its environment, as after sudo.
    let done = recorded(
        &file,
        &[
            "env",
            "-u",
            "LD_PRELOAD",
            "sh",
            "-c",
            "sleep 6; echo end >&2",
        ],
    );
    let said = String::from_utf8_lossy(&done.stderr);
    let silence = said.find("no agent has reported yet");
    assert!(silence.is_some() && silence < said.find("end\n"), "{said}");
}
