//! Thread dump as text: the current stack of every thread.

use std::fmt::Write as _;

use api::{StackFrame, ThreadDumpAnswer, ThreadGroup, ThreadSnapshot};
use flamegraph::symbols::{is_own, is_python, short_name};
use flamegraph::text::{cell, duration, printable, wrapped_words};
use profiler_core::Frame;

use super::counted;
use crate::args::Stacks;
use crate::grid::line_columns;

/// Threads of one group that are named; the rest is counted.
const NAMED_MAX: usize = 6;
/// Parts of a file's path that are shown, from its end.
const PATH_PARTS: usize = 3;
/// An observation older than this is shown with its age.
const OLD_NS: u64 = 1_000_000_000;

/// How many workers did not respond.
pub(crate) fn silent_workers(dump: &ThreadDumpAnswer) -> usize {
    dump.workers
        .iter()
        .filter(|worker| worker.reason.is_some())
        .count()
}

/// Returns notes on missing workers and threads, with the reasons.
pub(crate) fn notes(dump: &ThreadDumpAnswer) -> Vec<String> {
    let mut notes = Vec::new();
    if dump.workers.is_empty() {
        notes.push("no agent is connected".to_owned());
    }
    for worker in &dump.workers {
        let name = printable(&worker.worker);
        if let Some(reason) = &worker.reason {
            notes.push(format!("{name}: {}", printable(reason)));
        } else if worker.groups.is_empty() {
            notes.push(format!("{name}: no matching thread"));
        }
        if worker.omitted > 0 {
            notes.push(format!(
                "{name}: {} omitted",
                counted(worker.omitted, "more thread")
            ));
        }
    }
    notes
}

/// A paragraph for each group of threads, or for each thread: its threads, what they do, and the stack
/// with the innermost function first.
pub(crate) fn text(dump: &ThreadDumpAnswer, grouped: bool, stacks: Stacks) -> String {
    let mut text = String::new();
    for worker in dump
        .workers
        .iter()
        .filter(|worker| !worker.groups.is_empty())
    {
        let threads = worker.groups.iter().map(|group| group.threads.len()).sum();
        let _ = writeln!(
            text,
            "{}: {}",
            printable(&worker.worker),
            thread_count(threads)
        );
        for group in &worker.groups {
            if grouped {
                write_group(&mut text, group, &group.threads, stacks);
            } else {
                for one in group.threads.chunks(1) {
                    write_group(&mut text, group, one, stacks);
                }
            }
        }
    }
    text
}

fn write_group(text: &mut String, group: &ThreadGroup, threads: &[ThreadSnapshot], stacks: Stacks) {
    let mut names = threads
        .iter()
        .take(NAMED_MAX)
        .map(thread_name)
        .collect::<Vec<_>>()
        .join(", ");
    if threads.len() > NAMED_MAX {
        let _ = write!(names, " and {} more", threads.len() - NAMED_MAX);
    }
    let activity = activity(group, threads);
    let header = match threads {
        [_] => format!("{names}: {activity}"),
        _ => format!("{}: {activity}: {names}", thread_count(threads.len())),
    };
    let _ = writeln!(text, "\n{}", wrapped_words(&header, 2, line_columns()));
    if group.stack.is_empty() {
        text.push_str("    not seen yet\n");
        return;
    }
    // A stack of which all would be omitted is shown.
    let omitted = group
        .stack
        .iter()
        .filter(|frame| is_omitted(frame, stacks))
        .count();
    let stacks = if omitted == group.stack.len() {
        Stacks::Full
    } else {
        stacks
    };
    for frame in group
        .stack
        .iter()
        .filter(|frame| !is_omitted(frame, stacks))
    {
        text.push_str(&frame_line(frame));
    }
    if stacks != Stacks::Full && omitted > 0 {
        let frames = counted(omitted as u64, "frame");
        let whose = match stacks {
            Stacks::Own => "others",
            Stacks::Python => "native code",
            Stacks::Native => "Python",
            Stacks::Simple | Stacks::Full => "the runtime",
        };
        let _ = writeln!(text, "    … {frames} of {whose} (--stacks full)");
    }
}

fn is_omitted(frame: &StackFrame, stacks: Stacks) -> bool {
    let function = Frame {
        module: &frame.module[..],
        ..Frame::function(&frame.name[..], &frame.file, 0)
    };
    match stacks {
        Stacks::Full => false,
        Stacks::Simple => frame.plumbing,
        Stacks::Own => !is_own(&function),
        Stacks::Python => !is_python(&function),
        Stacks::Native => is_python(&function),
    }
}

/// The function and its place, below each other if they do not fit a line.
fn frame_line(frame: &StackFrame) -> String {
    let columns = line_columns();
    let name = cell(&short_name(&frame.name, &frame.module), columns - 4);
    if frame.file.is_empty() {
        return format!("    {name}\n");
    }
    let line = format!("    {name} ({})", location(frame));
    if line.chars().count() <= columns {
        return line + "\n";
    }
    format!(
        "    {name}\n      {}\n",
        cell(&location(frame), columns - 6)
    )
}

/// Such as `load, lock for 2.00 s to 3.50 s`.
fn activity(group: &ThreadGroup, threads: &[ThreadSnapshot]) -> String {
    let mut text = match (&group.task, &*group.kind) {
        (Some(task), _) => printable(task).into_owned(),
        (None, "agent") => "the agent".to_owned(),
        (None, "overflow") => "a task beyond the limit on names".to_owned(),
        (None, _) => "no task".to_owned(),
    };
    if let Some(state) = &group.state {
        let _ = write!(text, ", {}", printable(state));
    }
    let blocked_ns = || threads.iter().map(|thread| thread.blocked_ns);
    let shortest_ns = blocked_ns().min().unwrap_or(0);
    if shortest_ns > 0 {
        let shortest = duration(shortest_ns);
        let longest = duration(blocked_ns().max().unwrap_or(0));
        let _ = write!(text, " for {shortest}");
        if longest != shortest {
            let _ = write!(text, " to {longest}");
        }
    }
    let age_ns = threads
        .iter()
        .map(|thread| thread.age_ns)
        .max()
        .unwrap_or(0);
    if age_ns > OLD_NS {
        let _ = write!(text, ", seen {} ago", duration(age_ns));
    }
    text
}

fn thread_name(thread: &ThreadSnapshot) -> String {
    let name = if thread.name.is_empty() {
        "[exited]".into()
    } else {
        printable(&thread.name)
    };
    format!("{name} ({})", thread.id)
}

/// Such as `src/main.rs:3`; of a long path its end.
fn location(frame: &StackFrame) -> String {
    let parts: Vec<&str> = frame.file.split('/').collect();
    let file = match parts.len().checked_sub(PATH_PARTS) {
        None | Some(0) => frame.file.clone(),
        Some(omitted) => format!("…/{}", parts[omitted..].join("/")),
    };
    format!("{}:{}", printable(&file), frame.line)
}

fn thread_count(threads: usize) -> String {
    counted(threads as u64, "thread")
}

#[cfg(test)]
mod tests {
    use api::WorkerThreads;
    use expect_test::expect;
    use flamegraph::symbols::{is_plumbing, is_start};

    use super::*;

    fn dump() -> ThreadDumpAnswer {
        let pool = (20..29).map(|id| thread(id, "pool\u{1b}", 2_000_000_000 + u64::from(id), 5));
        let stack = vec![
            frame("__GI___libc_read", ""),
            frame("app::input::{impl#3}::parse::{closure#0}", "/a/b/c/d/x.rs"),
            frame(
                "std::sys::backtrace::__rust_begin_short_backtrace<app::start>",
                "/rustc/x.rs",
            ),
            frame("app::start", "src/main.rs"),
            frame("libc.so+0x10", ""),
            frame("start_thread", ""),
        ];
        let groups = vec![
            group("task", Some("cpu"), stack, vec![thread(7, "main", 0, 9)]),
            group(
                "no_task",
                Some("wait"),
                vec![frame("park", "y.rs")],
                pool.collect(),
            ),
            group(
                "agent",
                Some("runnable"),
                vec![frame("run", "y.rs")],
                vec![thread(9, "", 1_500_000, 3_000_000_000)],
            ),
            group(
                "not_seen",
                None,
                Vec::new(),
                vec![thread(30, "young", 0, 0)],
            ),
        ];
        let workers = vec![
            worker("w-1", None, 0, groups),
            worker("w-2", Some("sampling is off"), 0, Vec::new()),
            worker("w-3", None, 4, Vec::new()),
        ];
        ThreadDumpAnswer {
            workers,
            ..ThreadDumpAnswer::default()
        }
    }

    fn frame(name: &str, file: &str) -> StackFrame {
        StackFrame {
            name: name.to_owned(),
            module: "/usr/lib/libc.so.6".to_owned(),
            file: file.to_owned(),
            line: 3,
            inlined: false,
            plumbing: is_plumbing(name) || is_start(name),
        }
    }

    fn thread(id: u32, name: &str, blocked_ns: u64, age_ns: u64) -> ThreadSnapshot {
        ThreadSnapshot {
            id,
            name: name.to_owned(),
            blocked_ns,
            age_ns,
        }
    }

    fn group(
        kind: &'static str,
        state: Option<&'static str>,
        stack: Vec<StackFrame>,
        threads: Vec<ThreadSnapshot>,
    ) -> ThreadGroup {
        ThreadGroup {
            kind: kind.into(),
            task: (kind == "task").then(|| "load".to_owned()),
            state: state.map(Into::into),
            stack,
            threads,
        }
    }

    fn worker(
        worker: &str,
        reason: Option<&str>,
        omitted: u64,
        groups: Vec<ThreadGroup>,
    ) -> WorkerThreads {
        WorkerThreads {
            worker: worker.to_owned(),
            responded: reason.is_none(),
            reason: reason.map(str::to_owned),
            omitted,
            groups,
            ..WorkerThreads::default()
        }
    }

    #[test]
    fn threads_with_the_same_stack_are_grouped() {
        expect![[r#"
            w-1: 12 threads

            main (7): load, cpu
                read
                input::parse::{closure} (…/c/d/x.rs:3)
                app::start (src/main.rs:3)
                libc.so+0x10
                … 2 frames of the runtime (--stacks full)

            9 threads: no task, wait for 2.00 s: pool\u{1b} (20), pool\u{1b} (21),
              pool\u{1b} (22), pool\u{1b} (23), pool\u{1b} (24), pool\u{1b} (25) and 3 more
                park (y.rs:3)

            [exited] (9): the agent, runnable for 1.50 ms, seen 3.00 s ago
                run (y.rs:3)

            young (30): no task
                not seen yet
        "#]]
        .assert_eq(&text(&dump(), true, Stacks::Simple));
        assert!(
            text(&dump(), true, Stacks::Simple)
                .lines()
                .all(|line| line.chars().count() <= 80)
        );
    }

    #[test]
    fn frames_that_are_omitted_are_counted() {
        let stack = |stacks| {
            let text = text(&dump(), true, stacks);
            let group = text.split("\n\n").nth(1).unwrap();
            group.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            stack(Stacks::Own),
            [
                "    input::parse::{closure} (…/c/d/x.rs:3)",
                "    app::start (src/main.rs:3)",
                "    … 4 frames of others (--stacks full)",
            ]
        );
        assert_eq!(
            stack(Stacks::Full),
            [
                "    read",
                "    input::parse::{closure} (…/c/d/x.rs:3)",
                "    backtrace::__rust_begin_short_backtrace<…> (/rustc/x.rs:3)",
                "    app::start (src/main.rs:3)",
                "    libc.so+0x10",
                "    start_thread",
            ]
        );
    }

    #[test]
    fn without_groups_each_thread_has_its_stack() {
        let text = text(&dump(), false, Stacks::Simple);
        assert_eq!(text.matches("    park (y.rs:3)\n").count(), 9);
        assert!(
            text.contains("(28): no task, wait for 2.00 s\n    park"),
            "{text}"
        );
    }

    #[test]
    fn notes_name_silent_workers_and_count_omitted_threads() {
        let dump = dump();
        assert_eq!(silent_workers(&dump), 1);
        expect![[r#"
            w-2: sampling is off
            w-3: no matching thread
            w-3: 4 more threads omitted"#]]
        .assert_eq(&notes(&dump).join("\n"));
        let none = ThreadDumpAnswer::default();
        assert_eq!(notes(&none), ["no agent is connected"]);
        assert_eq!(text(&none, true, Stacks::Simple), "");
    }
}
