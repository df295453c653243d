//! What every thread is doing.

use std::fmt::Write as _;

use flamegraph::text::{duration, printable, short_name};
use serde::Deserialize;

/// Threads of one group that are named; the rest is counted.
const NAMED_MAX: usize = 6;
/// Parts of a file's path that are shown, from its end.
const PATH_PARTS: usize = 3;
/// What was seen longer ago is said to be.
const OLD_NS: u64 = 1_000_000_000;

/// The workers that were asked.
#[derive(Deserialize, Debug)]
pub(crate) struct ThreadDump {
    workers: Vec<Worker>,
}

#[derive(Deserialize, Debug)]
struct Worker {
    worker: String,
    reason: Option<String>,
    omitted: u64,
    groups: Vec<Group>,
}

#[derive(Deserialize, Debug)]
struct Group {
    kind: String,
    task: Option<String>,
    state: Option<String>,
    stack: Vec<Frame>,
    threads: Vec<Thread>,
}

#[derive(Deserialize, Debug)]
struct Frame {
    name: String,
    file: String,
    line: u32,
}

#[derive(Deserialize, Debug)]
struct Thread {
    id: u32,
    name: String,
    blocked_ns: u64,
    age_ns: u64,
}

impl ThreadDump {
    /// How many workers were asked.
    pub(crate) fn count(&self) -> usize {
        self.workers.len()
    }

    /// How many of them did not answer.
    pub(crate) fn unanswered(&self) -> usize {
        self.workers.iter().filter(|worker| worker.reason.is_some()).count()
    }

    /// What is missing, and why.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.workers.is_empty() {
            notes.push("no agent is connected".to_owned());
        }
        for worker in &self.workers {
            let name = printable(&worker.worker);
            if let Some(reason) = &worker.reason {
                notes.push(format!("{name}: {}", printable(reason)));
            } else if worker.groups.is_empty() {
                notes.push(format!("{name}: no such thread"));
            }
            if worker.omitted > 0 {
                notes.push(format!("{name}: {} more threads are left out", worker.omitted));
            }
        }
        notes
    }

    /// A paragraph for each group of threads, or for each thread: who, what, and the stack with the
    /// innermost function first.
    pub(crate) fn text(&self, grouped: bool) -> String {
        let mut text = String::new();
        for worker in self.workers.iter().filter(|worker| !worker.groups.is_empty()) {
            let threads = worker.groups.iter().map(|group| group.threads.len()).sum();
            let _ = writeln!(text, "{}: {}", printable(&worker.worker), counted(threads));
            for group in &worker.groups {
                if grouped {
                    group.write(&group.threads, &mut text);
                } else {
                    group.threads.chunks(1).for_each(|one| group.write(one, &mut text));
                }
            }
        }
        text
    }
}

impl Group {
    fn write(&self, threads: &[Thread], text: &mut String) {
        let names: Vec<String> = threads.iter().take(NAMED_MAX).map(Thread::text).collect();
        let mut names = names.join(", ");
        if let Some(more) = threads.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
            let _ = write!(names, " and {more} more");
        }
        let what = self.what(threads);
        let _ = match threads {
            [_] => writeln!(text, "\n{names}: {what}"),
            _ => writeln!(text, "\n{}: {what}: {names}", counted(threads.len())),
        };
        for frame in &self.stack {
            let name = short_name(&frame.name);
            let _ = match frame.file.is_empty() {
                true => writeln!(text, "    {}", printable(&name)),
                false => writeln!(text, "    {} ({})", printable(&name), frame.place()),
            };
        }
        if self.stack.is_empty() {
            let _ = writeln!(text, "    not seen yet");
        }
    }

    /// Such as `load, wait for 2.00 s to 3.50 s`.
    fn what(&self, threads: &[Thread]) -> String {
        let mut what = match (&self.task, &*self.kind) {
            (Some(task), _) => printable(task).into_owned(),
            (None, "agent") => "the agent".to_owned(),
            (None, "overflow") => "one of too many tasks".to_owned(),
            (None, _) => "no task".to_owned(),
        };
        if let Some(state) = &self.state {
            let _ = write!(what, ", {}", printable(state));
        }
        let times = || threads.iter().map(|thread| thread.blocked_ns);
        let (least, most) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        let (least, most) = ((least > 0).then(|| duration(least)), duration(most));
        let _ = match least {
            None => Ok(()),
            Some(least) if least == most => write!(what, " for {least}"),
            Some(least) => write!(what, " for {least} to {most}"),
        };
        let ago_ns = threads.iter().map(|thread| thread.age_ns).max().unwrap_or(0);
        if ago_ns > OLD_NS {
            let _ = write!(what, ", seen {} ago", duration(ago_ns));
        }
        what
    }
}

impl Thread {
    fn text(&self) -> String {
        let name = if self.name.is_empty() { "[gone]".into() } else { printable(&self.name) };
        format!("{name} ({})", self.id)
    }
}

impl Frame {
    /// Such as `src/main.rs:3`; of a long path the end.
    fn place(&self) -> String {
        let parts: Vec<&str> = self.file.split('/').collect();
        let file = match parts.len().checked_sub(PATH_PARTS) {
            None | Some(0) => self.file.clone(),
            Some(omitted) => format!("…/{}", parts[omitted..].join("/")),
        };
        format!("{}:{}", printable(&file), self.line)
    }
}

fn counted(threads: usize) -> String {
    match threads {
        1 => "1 thread".to_owned(),
        _ => format!("{threads} threads"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    fn stacks() -> ThreadDump {
        let frame = |name: &str, file: &str| json!({"name": name, "file": file, "line": 3});
        let thread = |id: u32, name: &str, blocked_ns: u64, age_ns: u64| json!({"id": id, "name": name, "blocked_ns": blocked_ns, "age_ns": age_ns});
        let pool = (20..29).map(|id| thread(id, "pool\u{1b}", 2_000_000_000 + u64::from(id), 5));
        serde_json::from_value(json!({"now": "", "workers": [
            {"worker": "w-1", "responded": true, "reason": null, "omitted": 0, "groups": [
                {"kind": "task", "task": "load", "state": "cpu", "threads": [thread(7, "main", 0, 9)],
                    "stack": [frame("parse", "/a/b/c/d/x.rs"), frame("start", "src/main.rs"),
                        frame("libc.so+0x10", "")]},
                {"kind": "no_task", "task": null, "state": "wait", "stack": [frame("park", "y.rs")],
                    "threads": pool.collect::<Vec<_>>()},
                {"kind": "agent", "task": null, "state": "runnable", "stack": [frame("run", "y.rs")],
                    "threads": [thread(9, "", 1_500_000, 3_000_000_000)]},
                {"kind": "not_seen", "task": null, "state": null, "stack": [],
                    "threads": [thread(30, "young", 0, 0)]},
            ]},
            {"worker": "w-2", "responded": false, "reason": "sampling is off", "omitted": 0,
                "groups": []},
            {"worker": "w-3", "responded": true, "reason": null, "omitted": 4, "groups": []},
        ]}))
        .unwrap()
    }

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(text);
    }

    #[test]
    fn threads_at_the_same_place_stand_together() {
        check(
            &stacks().text(true),
            expect![[r#"
            w-1: 12 threads

            main (7): load, cpu
                parse (…/c/d/x.rs:3)
                start (src/main.rs:3)
                libc.so+0x10

            9 threads: no task, wait for 2.00 s: pool\u{1b} (20), pool\u{1b} (21), pool\u{1b} (22), pool\u{1b} (23), pool\u{1b} (24), pool\u{1b} (25) and 3 more
                park (y.rs:3)

            [gone] (9): the agent, runnable for 1.50 ms, seen 3.00 s ago
                run (y.rs:3)

            young (30): no task
                not seen yet
        "#]],
        );
    }

    #[test]
    fn without_groups_each_thread_has_its_stack() {
        let text = stacks().text(false);
        assert_eq!(text.matches("    park (y.rs:3)\n").count(), 9);
        assert!(text.contains("(28): no task, wait for 2.00 s\n    park"), "{text}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let stacks = stacks();
        assert_eq!((stacks.count(), stacks.unanswered()), (3, 1));
        check(
            &stacks.notes().join("\n"),
            expect![[r#"
            w-2: sampling is off
            w-3: no such thread
            w-3: 4 more threads are left out"#]],
        );
        let none = ThreadDump { workers: Vec::new() };
        assert_eq!(
            (none.notes(), none.text(true)),
            (vec!["no agent is connected".into()], "".into())
        );
    }
}
