//! Python programs that do not know of Emberline.

use super::*;

/// The system's Python, not one of a version manager, which is a shell script.
const PYTHON: &str = "/usr/bin/python3";

const POOL: &str = "
import multiprocessing, os, sys, time
def work(number):
    end = time.process_time() + 0.3
    while time.process_time() < end: pass
    return number * number
if __name__ == '__main__':
    multiprocessing.set_start_method('fork')
    begin = multiprocessing.Barrier(2).wait
    with multiprocessing.Pool(2, begin) as pool: print(pool.map(work, range(4), 1))
    child = os.fork()
    if child == 0: work(1); os._exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sys.exit(6)
";

/// Two threads that need the interpreter's lock at all times, one of them in a recursion.
const THREADS: &str = "
import threading, time
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(1_000): pass
class Job:
    def run(self): spin(0.8)
def below(depth):
    if depth == 0: spin(0.8)
    else: below(depth - 1)
threads = [threading.Thread(target=run) for run in (Job().run, lambda: below(30))]
for thread in threads: thread.start()
for thread in threads: thread.join()
";

#[test]
fn python_and_its_forked_pool_are_profiled_by_function() {
    let collector = Collector::start();
    check_same(&collector.url(), Path::new(PYTHON), &["-c", POOL]);
    // The parent, two of the pool and the forked child.
    let mut text = String::new();
    for (name, epoch) in ended_workers(&collector, "python3", 4) {
        assert_eq!(epoch["sampler_mode"], "full", "{epoch}");
        text += &in_state(&collector, &name, "cpu");
    }
    let all = sum(&text, |_| true);
    let named = sum(&text, |stack| stack.contains(";work"));
    assert!(10 * named > 9 * all, "{named} of {all}: {text}");
    let answer = collector.json("/api/v1/tasks?task=python3");
    let tasks = answer["tasks"].as_array().unwrap().iter();
    let mut failures: Vec<&str> = tasks
        .filter(|task| task["outcome"] == "failed")
        .map(|task| task["cause"].as_str().unwrap())
        .collect();
    failures.sort_unstable();
    assert_eq!(failures, ["exit status 5", "exit status 6"], "{answer}");
}

#[test]
fn functions_of_python_are_seen_while_they_run_and_while_they_wait_for_the_lock() {
    let collector = Collector::start();
    check_same(&collector.url(), Path::new(PYTHON), &["-c", THREADS]);
    let (worker, _) = &ended_workers(&collector, "python3", 1)[0];
    let text = in_state(&collector, worker, "cpu");
    let all = sum(&text, |_| true);
    for caller in [";Job.run;spin", ";below;below;spin"] {
        let named = sum(&text, |stack| stack.contains(caller));
        assert!(10 * named > 4 * all, "{caller}: {named} of {all}: {text}");
    }
    let text = in_state(&collector, worker, "interpreter");
    let all = sum(&text, |_| true);
    let named = sum(&text, |stack| {
        stack.contains(";spin;") && stack.contains("[waiting for the GIL]")
    });
    let is_seen = 10 * named > 9 * all && all > 500_000_000;
    assert!(is_seen, "{named} of {all}: {text}");
}

/// Stacks of a worker's threads in a state.
fn in_state(collector: &Collector, worker: &str, state: &str) -> String {
    let path = format!("/api/v1/profile.collapsed?worker={worker}&state={state}");
    let (status, text) = collector.get(&path);
    assert_eq!(status, 200, "{text}");
    text
}
