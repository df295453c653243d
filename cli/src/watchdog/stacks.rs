//! Stacks and states of all threads of this process, as lines for the log.

use std::fs;
use std::thread;
use std::time::Duration;

use agent::AgentBuilder;
use flamegraph::text::printable;

/// Lines at most of each kind.
const LINES_MAX: usize = 200;

/// An agent's first recording is complete after a second, and later where names take long to read.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOKS_MAX: u32 = 60;

/// A line for each stack that threads have: a collector samples itself as it samples workers, without signals to
/// threads that wait. Threads with one stack share a line.
pub(super) fn stacks() -> Vec<String> {
    let agent = match AgentBuilder::default()
        .resource_interval(None)
        .start_local()
    {
        Ok(agent) => agent,
        Err(error) => return vec![format!("no stacks: {error}")],
    };
    for _ in 0..LOOKS_MAX {
        thread::sleep(LOOK_EVERY);
        let collapsed = flamegraph::collapsed(&agent.recording().profile);
        let stacks = collapsed
            .lines()
            .filter(|stack| !stack.starts_with("[agent]"));
        let lines: Vec<String> = stacks
            .take(LINES_MAX)
            .map(|stack: &str| format!("stack: {}", printable(stack)))
            .collect();
        if !lines.is_empty() {
            return lines;
        }
    }
    vec![format!(
        "no stacks: the sampler found none; its mode is {:?}",
        agent.mode()
    )]
}

/// The name, state and place in the kernel of each thread.
pub(super) fn threads() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .take(LINES_MAX)
        .map(|entry| thread_line(entry.path()))
        .collect()
}

fn thread_line(folder: std::path::PathBuf) -> String {
    let status = read_or_empty(&folder, "status");
    let system_call = read_or_empty(&folder, "syscall");
    let call = system_call.split_whitespace().next().unwrap_or("?");
    let name = status_field(&status, "Name:");
    let id = status_field(&status, "Pid:");
    let state = status_field(&status, "State:");
    let kernel = read_or_empty(&folder, "wchan");
    printable(&format!(
        "thread {name} ({id}): {state}, system call {call} {kernel}"
    ))
    .into_owned()
}

fn read_or_empty(folder: &std::path::Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

fn status_field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_line() {
        let (release, waiting) = std::sync::mpsc::channel::<()>();
        let (named, started) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name("a waiter".to_owned())
            .spawn(move || {
                named.send(()).unwrap();
                waiting.recv().unwrap_err()
            })
            .unwrap();
        // A thread sets its name before its body runs.
        started.recv().unwrap();
        let lines = threads();
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("thread a waiter (")),
            "{lines:?}"
        );
        drop(release);
        thread.join().unwrap();
    }
}
