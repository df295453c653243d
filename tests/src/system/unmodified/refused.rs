//! Programs that cannot have the library or begin without it: they run as alone, and `record` says what is missing.

use super::record::recorded;
use super::*;

/// Says whether `LD_PRELOAD` is set, and works for half a second: in a child that a bare system call makes, if that is
/// the argument. Ends with 3, or with 9 if it is a zygote with a second thread.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void crunch(void) {
    clock_t end = clock() + CLOCKS_PER_SEC / 2;
    while (clock() < end) {
    }
}
int main(int count, char **arguments) {
    puts(getenv("LD_PRELOAD") ? "library" : "plain");
    fflush(stdout);
    if (count > 1 && strcmp(arguments[1], "cloned") == 0) {
        long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            crunch();
            _exit(0);
        }
        waitpid(child, 0, 0);
    } else {
        crunch();
    }
    struct stat threads;
    if (count > 1 && strcmp(arguments[1], "--type=zygote") == 0 && !stat("/proc/self/task", &threads)) {
        return threads.st_nlink == 3 ? 3 : 9;
    }
    return 3;
}
"#;

/// Compiles [`PROGRAM`]; `None` if what the options need is not installed.
fn compiled(folder: &Path, name: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    let source = folder.join("main.c");
    fs::write(&source, PROGRAM).unwrap();
    let program = folder.join(name);
    let mut command = Command::new(compiler);
    let done = command
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .output();
    done.is_ok_and(|done| done.status.success())
        .then_some(program)
}

/// Options for a program whose loader has the name of another C library's.
fn with_other_loader(folder: &Path) -> String {
    let loader = if cfg!(target_arch = "aarch64") {
        "/lib/ld-linux-aarch64.so.1"
    } else {
        "/lib64/ld-linux-x86-64.so.2"
    };
    let copy = folder.join("ld-musl.so.1");
    fs::copy(loader, &copy).unwrap();
    format!("-Wl,--dynamic-linker={}", copy.display())
}

#[test]
fn programs_that_cannot_have_the_library_start_as_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name, compiler, options: &[&str]| compiled(folder.path(), name, compiler, options);
    let other_loader = with_other_loader(folder.path());
    let programs = [
        at("other-loader", "cc", &[&other_loader]),
        // The compiler of musl and the library of the sanitizer are packages of their own.
        at("musl", "musl-gcc", &[]),
        at("sanitized", "cc", &["-fsanitize=address"]),
    ];
    let collector = Collector::start();
    for program in programs.iter().flatten() {
        let program = program.to_str().unwrap();
        let file = folder.path().join("cpu.collapsed");
        let mut under_run = under_emberline(&collector.url(), &[]);
        for done in [recorded(&file, &[program]), output(under_run.arg(program))] {
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(String::from_utf8_lossy(&done.stdout), "plain\n", "{said}");
            assert_eq!(done.status.code(), Some(3), "{said}");
            assert!(
                said.contains(" is profiled from outside: ") || said.contains(" is not profiled: "),
                "{said}"
            );
        }
    }
}

#[test]
fn children_without_the_library_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let compiled_program = compiled(folder.path(), "program", "cc", &[]).unwrap();
    let program = compiled_program.to_str().unwrap();
    for script in [
        r#"env -i "$0""#,
        r#"exec env -i "$0""#,
        r#"unset LD_PRELOAD; "$0""#,
        r#"LD_PRELOAD= "$0"; exit $?"#,
    ] {
        let done = recorded(&file, &["sh", "-c", script, program]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{script}: {said}");
        let expected = format!("{program} is not profiled: it began without LD_PRELOAD");
        assert_eq!(said.matches(&expected).count(), 1, "{script}: {said}");
    }
    if let Some(program) = compiled(folder.path(), "static", "cc", &["-static"]) {
        let program = program.to_str().unwrap();
        let done = recorded(&file, &["sh", "-c", r#""$0"; "$0"; exit 4"#, program]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{said}");
        let expected = format!("{program} is not profiled: it is statically linked");
        assert_eq!(said.matches(&expected).count(), 1, "{said}");
    }
}

/// Functions with names of the C library that do anything else.
const NAMESAKES: &str = r#"
#include <stdio.h>
#include <time.h>
int syscall(int number) { printf("syscall %d\n", number); return 0; }
int connect(int number) { printf("connect %d\n", number); return 0; }
int main(void) {
    clock_t end = clock() + CLOCKS_PER_SEC / 4;
    while (clock() < end) {
    }
    puts("done");
    return 3;
}
"#;

/// A function pointer of the C library, whose address is the program's own without position independence.
const POINTERS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    void *volatile pointers[] = {(void *)write, (void *)open, (void *)clock_gettime};
    clock_t end = clock() + CLOCKS_PER_SEC / 2;
    while (clock() < end) {
    }
    return pointers[0] && pointers[1] && pointers[2] ? 3 : 4;
}
"#;

/// A clock of its own, as libfaketime has.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    long result = syscall(SYS_clock_gettime, clock, time);
    time->tv_sec -= 864000;
    return result;
}
"#;

#[test]
fn processes_in_which_an_agent_would_do_harm_or_err_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let program = compiled(folder.path(), "program", "cc", &[]).unwrap();
    let source = folder.path().join("clock.c");
    fs::write(&source, CLOCK).unwrap();
    let clock = folder.path().join("clock.so");
    let mut compiler = Command::new("cc");
    let done = output(
        compiler
            .args(["-shared", "-fPIC", "-o"])
            .arg(&clock)
            .arg(&source),
    );
    assert!(done.status.success(), "{done:?}");
    let clock = format!(r#"LD_PRELOAD={}:$LD_PRELOAD exec "$0""#, clock.display());
    let mut unshare = Command::new("unshare");
    let may_unshare = output(unshare.args(["-p", "-f", "true"])).status.success();
    let in_namespace = may_unshare.then_some((
        r#"unshare -p -f "$0""#,
        "its /proc is of another PID namespace",
    ));
    let cases = [
        (r#""$0" --type=zygote"#, "it is a zygote"),
        (&clock, "another library replaces its clock"),
    ];
    for (script, expected) in cases.into_iter().chain(in_namespace) {
        let done = recorded(&file, &["sh", "-c", script, program.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{script}: {said}");
        let expected = format!("program is not profiled: {expected}");
        assert_eq!(said.matches(&expected).count(), 1, "{script}: {said}");
    }
}

#[test]
fn a_program_may_have_functions_with_names_of_the_c_library() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let said_of = |source: &str, options: &[&str]| {
        let main = folder.path().join("main.c");
        fs::write(&main, source).unwrap();
        let program = folder.path().join("program");
        let mut compiler = Command::new("cc");
        let done = output(compiler.args(options).arg("-o").arg(&program).arg(&main));
        assert!(done.status.success(), "{done:?}");
        let done = recorded(&file, &[program.to_str().unwrap()]);
        assert_eq!(done.status.code(), Some(3), "{done:?}");
        let text = [done.stdout, done.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let said = said_of(NAMESAKES, &["-fno-builtin"]);
    assert!(said.starts_with("done\n"), "{said}");
    assert!(
        said.contains("program is not profiled: it has functions of its own"),
        "{said}"
    );
    let said = said_of(POINTERS, &["-no-pie", "-fno-pie"]);
    assert!(!said.contains("is not profiled"), "{said}");
}

#[test]
fn cpu_time_that_is_not_in_the_report_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.collapsed");
    let compiled_program = compiled(folder.path(), "program", "cc", &[]).unwrap();
    let program = compiled_program.to_str().unwrap();
    for (arguments, is_said) in [(&[program][..], false), (&[program, "cloned"], true)] {
        let done = recorded(&file, arguments);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(3), "{said}");
        let found = said.contains(" s of CPU time is not in the report: ");
        assert_eq!(found, is_said, "{said}");
    }
}

#[test]
fn children_that_cannot_have_the_library_run_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("main.c");
    fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { puts(\"sane\"); return 3; }",
    )
    .unwrap();
    let program = folder.path().join("sanitized");
    let mut compiler = Command::new("cc");
    let compiled = output(
        compiler
            .args(["-fsanitize=address", "-o"])
            .arg(&program)
            .arg(&source),
    );
    if !compiled.status.success() {
        // Its library is a package of its own.
        return;
    }
    let file = folder.path().join("report.html");
    let c = &programs().c;
    // By exec of a shell, by a search of PATH, and by a program that becomes it, in all ways.
    let script = r#""$0"; echo $?; PATH="$1:$PATH"; env sanitized; echo $?; "$2" return; echo
for way in fexecve execveat execveat-opened raw-execveat raw-execve posix_spawn; do
"$2" become-by $way "$0"; echo $?
done
exec "$0""#;
    let arguments = [
        "sh",
        "-c",
        script,
        program.to_str().unwrap(),
        folder.path().to_str().unwrap(),
        c.to_str().unwrap(),
    ];
    let done = recorded(&file, &arguments);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        format!(
            "sane\n3\nsane\n3\nbuffered\n{}sane\n",
            "sane\n3\n".repeat(6)
        ),
        "{said}"
    );
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(
        said.contains("is not profiled: it is built with a sanitizer"),
        "{said}"
    );
}
