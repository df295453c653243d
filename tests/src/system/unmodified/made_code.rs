//! Code that a runtime makes while the program runs has names, and the callers that lead to the thread's root.

use super::outside::compiled_from;
use super::*;
use crate::harness::try_output;

const SCRIPT: &str = "
function hottest(rounds) {
    let sum = 0;
    for (let round = 0; round < rounds; round++) sum += Math.sqrt(round % 7 + sum % 3);
    return sum;
}
const until = process.cpuUsage().user + 1500000;
while (process.cpuUsage().user < until) hottest(100000);
console.log('done');
";

#[test]
fn functions_of_javascript_have_names_and_callers() {
    if try_output(Command::new("node").arg("--version")).is_err() {
        println!("skipped: no node: apt-get install nodejs");
        return;
    }
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.js");
    fs::write(&script, SCRIPT).unwrap();
    let mut command = under_emberline(&collector.url(), &[]);
    // V8 writes a log into the present folder.
    command.current_dir(folder.path());
    let done = output(command.args(["node", "--perf-basic-prof"]).arg(&script));
    assert_eq!(
        (&*done.stdout, done.status.code()),
        (&b"done\n"[..], Some(0)),
        "{done:?}"
    );
    let (worker, epoch) = &ended_workers(&collector, "node", 1)[0];
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", epoch["pid"]));
    let text = collapsed(&collector, worker);
    let named: Vec<_> = text
        .lines()
        .filter(|line| line.contains(";hottest"))
        .collect();
    assert!(!named.is_empty(), "{text}");
    for line in named {
        assert!(line.contains(";node::Start"), "{line}");
    }
}

const CLASS: &str = "
public class Main {
    static long hottest(int rounds) {
        long sum = 0;
        for (int round = 0; round < rounds; round++) sum = (sum ^ round) * 0x9E3779B97F4A7C15L + (sum >>> 7);
        return sum;
    }
    public static void main(String[] arguments) {
        long sum = 0;
        for (int turn = 0; turn < 1_500; turn++) sum |= hottest(1_000_000);
        System.out.println((sum != 0 ? \"done \" : \"\") + ProcessHandle.current().pid());
    }
}
";

/// The stacks of a recorded Java program with these options, and what was said.
fn recorded_java(options: &[&str]) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let class = folder.path().join("Main.java");
    fs::write(&class, CLASS).unwrap();
    let compiled = try_output(Command::new("javac").arg(&class));
    if !compiled.is_ok_and(|done| done.status.success()) {
        println!("skipped: no javac: apt-get install openjdk-17-jdk-headless");
        return None;
    }
    let file = folder.path().join("java.collapsed");
    let mut command = plain(emberline());
    command
        .args(["record", "-o"])
        .arg(&file)
        .args(["--", "java"]);
    command.args([
        "-XX:CompileCommand=quiet",
        "-XX:CompileCommand=dontinline,Main.hottest",
    ]);
    command
        .args(options)
        .arg("-cp")
        .arg(folder.path())
        .arg("Main");
    let done = output(&mut command);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let process = text.trim_end().strip_prefix("done ").expect(&text);
    let _ = fs::remove_file(format!("/tmp/perf-{process}.map"));
    Some((fs::read_to_string(&file).unwrap(), unwrapped(&done.stderr)))
}

/// Java writes the names at its end, when their addresses were sent.
#[test]
fn methods_of_java_have_names_and_callers() {
    let options = [
        "-XX:+PreserveFramePointer",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:+DumpPerfMapAtExit",
    ];
    let Some((stacks, said)) = recorded_java(&options) else {
        return;
    };
    let total = sum(&stacks, |_| true);
    let named = sum(&stacks, |stack| stack.ends_with(";Main.hottest"));
    let whole = sum(&stacks, |stack| {
        stack.ends_with(";Main.hottest") && stack.contains(";JavaCalls::call_helper;")
    });
    assert!(named > total / 2, "{named} of {total}: {stacks}");
    assert!(whole * 100 > named * 95, "{whole} of {named}: {stacks}");
    assert!(!said.contains("of CPU time is"), "{said}");
}

#[test]
fn code_of_java_without_frame_pointers_has_no_false_callers() {
    let Some((stacks, said)) = recorded_java(&[]) else {
        return;
    };
    let made = "[java: code made at run time]";
    let total = sum(&stacks, |_| true);
    let all = sum(&stacks, |stack| stack.contains(made));
    let cut = sum(&stacks, |stack| {
        stack.starts_with(&format!("java;[truncated];{made}"))
    });
    assert!(
        all > total / 2 && cut == all,
        "{cut} and {all} of {total}: {stacks}"
    );
    assert!(
        said.contains("java: ") && said.contains("-XX:+PreserveFramePointer"),
        "{said}"
    );
}

/// As V8 does with its built-in functions, which have a frame pointer, as functions do without optimization.
#[test]
fn code_that_a_program_maps_once_more_has_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from("own_mapping.c", folder.path(), "own-mapping", &["-O0"]);
    let file = folder.path().join("cpu.collapsed");
    let mut command = plain(emberline());
    command.args(["record", "-o"]).arg(&file).arg("--");
    let done = output(command.arg(&program));
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let stacks = fs::read_to_string(&file).unwrap();
    let total = sum(&stacks, |_| true);
    let named = sum(&stacks, |stack| stack.ends_with(";main;mapped_twice"));
    assert!(named * 10 > total * 9, "{named} of {total}: {stacks}");
}

#[test]
fn assembly_without_tables_has_no_callers_that_have_returned() {
    let collector = Collector::start();
    check_same(&collector.url(), &programs().assembly, &[]);
    let (worker, _) = &ended_workers(&collector, "assembly", 1)[0];
    let text = collapsed(&collector, worker);
    let all = sum(&text, |stack| stack.ends_with(";kernel"));
    let right = sum(&text, |stack| stack.ends_with(";main;compute;kernel"));
    assert!(all > 1_000_000_000, "{all}: {text}");
    assert!(100 * right > 98 * all, "{right} of {all}: {text}");
}
