//! An agent in this process, tested through its API: the attribution of samples, and the ends of tasks.
//! A process has one agent, so these tests take turns.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, SamplerMode, StartError, task};
use profiler_core::{FrameKind, Outcome, State};

use common::{TURN, ends, lock, only_top, start, tops_of, wait_until, work, work_function};

work_function!(work_outside, 1);
work_function!(work_inside, 2);

const SLICE: Duration = Duration::from_millis(400);

#[test]
fn samples_go_to_the_innermost_running_task() {
    let (agent, _turn) = start();
    let outer = task("outer").key("outer-1").start();
    work_outside(SLICE);
    let inner = task("inner").start();
    work_inside(SLICE);
    drop(inner);
    drop(outer);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_outside"), "outer");
    assert_eq!(only_top(&recording, "work_inside"), "inner");
    let [outer, inner] = &recording.tasks[..] else {
        panic!("{:?}", recording.tasks)
    };
    assert_eq!(
        (&*outer.name, &*outer.key, outer.parent),
        ("outer", "outer-1", None)
    );
    assert_eq!(
        (&*inner.name, &*inner.key, inner.parent),
        ("inner", "", Some(outer.id))
    );
    assert!(outer.start <= inner.start && inner.stop <= outer.stop);
}

/// Also a thread whose time an earlier agent has counted is counted from the start on.
#[test]
fn a_task_right_after_another_start_is_counted_from_its_beginning() {
    const STARTS: u32 = 10;
    const TASK: Duration = Duration::from_millis(30);
    let _turn = lock(&TURN);
    let mut counted_ns = 0;
    for _ in 0..STARTS {
        let agent = AgentBuilder::default().start_local().unwrap();
        let again = task("again").start();
        work_inside(TASK);
        drop(again);
        counted_ns += agent
            .finish()
            .profile
            .top_level()
            .filter(|(frame, _)| frame.function == "again")
            .map(|(_, weight)| weight.get(State::Cpu))
            .sum::<u64>();
    }
    let part = counted_ns as f64 / (TASK * STARTS).as_nanos() as f64;
    assert!((0.95..1.1).contains(&part), "{part} of the CPU time");
}

#[test]
fn threads_outside_of_tasks_belong_to_the_default_task() {
    let _turn = lock(&TURN);
    let agent = AgentBuilder::default()
        .default_task("sort")
        .start_local()
        .unwrap();
    work_outside(SLICE);
    let inner = task("inner").start();
    work_inside(SLICE);
    drop(inner);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_outside"), "sort");
    assert_eq!(only_top(&recording, "work_inside"), "inner");
    let names: Vec<_> = recording
        .profile
        .top_level()
        .map(|(frame, _)| frame.function)
        .collect();
    assert!(!names.contains(&"[no task]"), "{names:?}");
}

#[test]
fn a_panic_of_the_agents_thread_is_its_mode() {
    let _turn = lock(&TURN);
    let agent = AgentBuilder::default()
        .tasks_by_symbol(|name| panic!("no task for {name}"))
        .start_local()
        .unwrap();
    wait_until("the mode", || !agent.mode().is_sampling());
    let mode = agent.mode().to_string();
    assert!(
        mode.starts_with("off: the agent's thread emberline-syms panicked: no task for "),
        "{mode}"
    );
    let _ = agent.finish();
}

/// Guards may be dropped in any order: tasks that still run keep their samples.
#[test]
fn the_outer_task_may_end_first() {
    let (agent, _turn) = start();
    let outer = task("outer").start();
    let inner = task("inner").start();
    drop(outer);
    work_inside(SLICE);
    drop(inner);
    work_outside(SLICE);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "work_inside"), "inner");
    assert_eq!(only_top(&recording, "work_outside"), "[no task]");
}

/// A blocked thread is sampled where it waits, for all of its time, without a signal.
#[test]
fn a_blocked_thread_counts_as_waiting() {
    let (agent, _turn) = start();
    let (sender, receiver) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let blocked = thread::spawn(move || {
        let _task = task("blocked").start();
        ready.send(()).unwrap();
        receiver.recv()
    });
    is_ready.recv().unwrap();
    work_outside(SLICE);
    drop(sender);
    assert!(blocked.join().unwrap().is_err());
    let profile = agent.finish().profile;
    let (_, weight) = profile
        .top_level()
        .find(|(frame, _)| frame.function == "blocked")
        .unwrap();
    assert!(weight.wait_ns() >= 300_000_000, "{weight:?}");
    assert!(weight.wait_ns() * 10 > weight.total_ns() * 9, "{weight:?}");
    assert_eq!(
        tops_of(&profile, "recv")
            .iter()
            .filter(|(top, _)| top == "blocked")
            .count(),
        1
    );
}

/// Code of the kernel in this process, which has no file.
#[cfg(target_arch = "x86_64")]
#[test]
fn reading_the_clock_has_the_name_that_the_kernel_gives_it() {
    let (agent, _turn) = start();
    let begin = Instant::now();
    let task = task("clock").start();
    while begin.elapsed() < SLICE {
        std::hint::black_box(Instant::now());
    }
    drop(task);
    let profile = agent.finish().profile;
    let tops = tops_of(&profile, "__vdso_clock_gettime");
    assert!(tops.iter().any(|(top, _)| top == "clock"), "{tops:?}");
}

/// The agent's own threads are separate in the profile, with the cost of the sampler.
#[test]
fn the_agents_threads_are_separate() {
    let (agent, _turn) = start();
    work_outside(SLICE);
    let recording = agent.finish();
    assert_eq!(only_top(&recording, "sampler thread"), "[agent]");
    assert_eq!(
        only_top(&recording, "emberline_agent::spawn::spawn"),
        "[agent]"
    );
    assert_eq!(tops_of(&recording.profile, "work_outside").len(), 1);
    assert!(recording.ticks.made > 0 && recording.ticks.expected > 0);
}

/// Runs a task when it is dropped.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(task("cleaned").start());
    }
}

#[test]
fn tasks_have_the_outcome_of_their_end() {
    let (agent, _turn) = start();
    drop(task("a").start());
    task("b").start().fail("no such file");
    task("c").start().cancel();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _task = task("d").start();
        let _cleaner = Cleaner;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    let running = task("e").start();
    let recording = agent.finish();
    drop(running);
    let end = |name: &str, outcome, cause: &str| (name.to_owned(), outcome, cause.to_owned());
    assert_eq!(
        ends(&recording),
        [
            end("a", Outcome::Ok, ""),
            end("b", Outcome::Failed, "no such file"),
            end("c", Outcome::Cancelled, ""),
            end("d", Outcome::Panicked, ""),
            end("cleaned", Outcome::Ok, ""),
            end("e", Outcome::Running, ""),
        ]
    );
    assert_eq!(recording.lost_tasks, 0);
}

/// A thousand threads that run one task each and end immediately lose no row.
#[test]
fn rows_of_ended_threads_are_kept() {
    let (agent, _turn) = start();
    for batch in 0..10 {
        let threads: Vec<_> = (0..100)
            .map(|number| {
                let key = format!("{batch}-{number}");
                thread::spawn(move || drop(task("short").key(key).start()))
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
    let recording = agent.finish();
    assert_eq!((recording.tasks.len(), recording.lost_tasks), (1_000, 0));
    assert!(
        recording
            .tasks
            .iter()
            .all(|task| task.outcome == Outcome::Ok)
    );
}

/// With a task, and without one.
#[test]
fn a_thread_that_changes_its_name_late_has_both_names() {
    let (agent, _turn) = start();
    let rename = |before: &'static str, after: &std::ffi::CStr, has_task: bool| {
        nix::sys::prctl::set_name(&std::ffi::CString::new(before).unwrap()).unwrap();
        let work = |length| {
            let _task = has_task.then(|| task("named").start());
            work(length);
        };
        work(3 * SLICE);
        nix::sys::prctl::set_name(after).unwrap();
        work(4 * SLICE);
    };
    thread::spawn(move || {
        rename("in-task-1", c"in-task-2", true);
        rename("outside-1", c"outside-2", false);
    })
    .join()
    .unwrap();
    let threads = agent.finish().threads;
    let labels: Vec<String> = threads
        .nodes()
        .iter()
        .map(|node| threads.frame(node.frame).label())
        .collect();
    for name in ["in-task-1", "in-task-2", "outside-1", "outside-2"] {
        assert!(
            labels.iter().any(|label| label.contains(name)),
            "{name}: {labels:?}"
        );
    }
}

/// A burst that is faster than the agent reads: ends have priority over starts, and tasks without room
/// are summed. No task stays running.
#[test]
fn a_burst_of_tasks_is_kept_or_summed() {
    const TASKS: usize = 50_000;
    let (agent, _turn) = start();
    for number in 0..TASKS {
        drop(task("burst").key(number.to_string()).start());
    }
    let recording = agent.finish();
    assert_eq!(
        recording.tasks.len() + usize::try_from(recording.aggregated_tasks).unwrap(),
        TASKS
    );
    assert_eq!(recording.lost_tasks, 0);
    assert!(
        recording
            .tasks
            .iter()
            .all(|task| task.outcome == Outcome::Ok)
    );
    assert!(
        recording.tasks.len() >= 2_000,
        "one ring at the least: {}",
        recording.tasks.len()
    );
}

/// Each thread waits in one kind of call until the program has worked for a while; all its time except
/// its start counts as waiting of that kind.
#[test]
fn waits_are_counted_by_kind() {
    let (agent, _turn) = start();
    let (sender, receiver) = mpsc::channel::<()>();
    let (pipe_out, pipe_in) = std::io::pipe().unwrap();
    let (socket, peer) = UnixStream::pair().unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let sleeping = over.clone();
    type Wait = Box<dyn FnOnce() + Send>;
    let waits: [(&str, State, Wait); 4] = [
        (
            "locked",
            State::Lock,
            Box::new(move || assert!(receiver.recv().is_err())),
        ),
        (
            "piped",
            State::Other,
            Box::new(move || assert!((&pipe_out).read(&mut [0]).is_ok())),
        ),
        (
            "connected",
            State::Network,
            Box::new(move || assert!((&socket).read(&mut [0]).is_ok())),
        ),
        (
            "asleep",
            State::Sleep,
            Box::new(move || {
                while !sleeping.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(50));
                }
            }),
        ),
    ];
    let expected: Vec<(&str, State)> = waits
        .iter()
        .map(|(name, state, _)| (*name, *state))
        .collect();
    let threads = waits.map(|(name, _, wait)| {
        thread::spawn(move || {
            let _task = task(name).start();
            wait();
        })
    });
    work(Duration::from_millis(500));
    over.store(true, Ordering::Relaxed);
    drop((sender, pipe_in, peer));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let recording = agent.finish();
    for (name, state) in expected {
        let mut tops = recording.profile.top_level();
        let (_, weight) = tops.find(|(frame, _)| frame.function == name).unwrap();
        let of_kind = weight.get(state);
        assert!(
            of_kind * 10 > weight.wait_ns() * 9 && of_kind > 200_000_000,
            "{name}: {weight:?}"
        );
    }
}

/// Works at a depth of at least 400 KiB below `top`, an address on the same stack. Counts bytes, not
/// calls, because a call takes twice as much without optimizations.
#[inline(never)]
fn descend(top: usize) -> u8 {
    let kept = std::hint::black_box([1u8; 8192]);
    if top - kept.as_ptr().addr() >= 400 << 10 {
        work(SLICE);
        return kept[0];
    }
    descend(top) | kept[0]
}

/// A running thread's stack that does not fit a normal buffer is copied again into a larger one.
#[test]
fn a_stack_of_four_hundred_kilobytes_is_whole() {
    let (agent, _turn) = start();
    let deep = task("deep").start();
    let top = 0u8;
    std::hint::black_box(descend(std::ptr::from_ref(&top).addr()));
    drop(deep);
    let recording = agent.finish();
    let mut whole = 0;
    let mut cut = 0;
    // Of each node: whether it is below the task, and below `[truncated]`.
    let mut above = vec![(false, false)];
    for node in recording.profile.nodes() {
        let frame = recording.profile.frame(node.frame);
        let (of_task, truncated) = above[node.parent.index()];
        let of_task = of_task || frame.function == "deep";
        let truncated = truncated || frame.kind == FrameKind::Truncated;
        above.push((of_task, truncated));
        if of_task {
            *(if truncated { &mut cut } else { &mut whole }) += node.own.get(State::Cpu);
        }
    }
    // The first few are truncated until the larger buffer is available, which takes a while on a busy
    // machine. Without it all of them would be.
    assert!(
        whole > 200_000_000 && cut < whole,
        "{whole} ns whole, {cut} ns cut off"
    );
}

/// Calls itself `calls` times, then works.
#[inline(never)]
fn recurse(calls: u32) -> u32 {
    if calls == 0 {
        work(SLICE);
        return 0;
    }
    std::hint::black_box(recurse(calls - 1)) + 1
}

/// The innermost 512 frames of a stack of 100,000 are kept below `[truncated]`, with all of its time.
#[test]
fn a_recursion_of_a_hundred_thousand_calls_keeps_its_time() {
    let (agent, _turn) = start();
    let begin = Instant::now();
    thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(|| {
            let _guard = task("recursive").start();
            std::hint::black_box(recurse(100_000))
        })
        .unwrap()
        .join()
        .unwrap();
    let elapsed_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap();
    let recording = agent.finish();
    let top = recording
        .profile
        .top_level()
        .find(|(frame, _)| frame.function == "recursive");
    let (_, weight) = top.expect("the task was sampled");
    // The time between the task's ends and the nearest samples may count elsewhere.
    assert!(
        (elapsed_ns / 2..elapsed_ns * 3 / 2).contains(&weight.total_ns()),
        "{weight:?} of {elapsed_ns}"
    );
    let mut depths = vec![0u32];
    for node in recording.profile.nodes() {
        depths.push(depths[node.parent.index()] + 1);
    }
    let deepest = depths.into_iter().max().unwrap();
    assert!((512..1_000).contains(&deepest), "{deepest} levels");
}

/// An agent that may use a thousandth of a processor skips most of its ticks and reports it; weights are
/// still elapsed time.
#[test]
fn the_cpu_limit_skips_ticks_and_loses_no_time() {
    let _turn = lock(&TURN);
    let builder = AgentBuilder::default()
        .interval(Duration::from_millis(1))
        .cpu_limit(0.001);
    let agent = builder.start_local().unwrap();
    let begin = Instant::now();
    let working = task("limited").start();
    work(Duration::from_millis(1_500));
    drop(working);
    let elapsed_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap();
    let overhead = agent.overhead();
    assert_eq!(agent.mode(), SamplerMode::Full);
    let recording = agent.finish();
    assert!(
        overhead.ticks > 0 && overhead.ticks_throttled > overhead.ticks,
        "{overhead:?}"
    );
    assert!(
        recording.ticks.throttled > recording.ticks.made,
        "{:?}",
        recording.ticks
    );
    let mut tops = recording.profile.top_level();
    let (_, weight) = tops.find(|(frame, _)| frame.function == "limited").unwrap();
    // The time between the task's ends and the nearest ticks may count elsewhere.
    assert!(
        weight.total_ns() > elapsed_ns / 2,
        "{weight:?} of {elapsed_ns} ns"
    );
}

#[test]
fn one_agent_at_a_time_and_settings_within_bounds() {
    let (agent, _turn) = start();
    let second = AgentBuilder::default().start_local();
    assert!(matches!(second, Err(StartError::AlreadyRunning)));
    drop(agent);
    let refused = |builder: AgentBuilder| builder.start_local().unwrap_err().to_string();
    assert_eq!(
        refused(AgentBuilder::default().interval(Duration::from_micros(10))),
        "invalid sampling interval 10µs; expected 1ms to 1s"
    );
    for part in [0.0, 2.0, f64::NAN] {
        assert_eq!(
            refused(AgentBuilder::default().cpu_limit(part)),
            format!("invalid CPU limit {part}; expected 0.001 to 1 processors")
        );
    }
    assert_eq!(
        refused(AgentBuilder::default().worker("")),
        "invalid worker id of 0 bytes; expected 1 to 256 bytes"
    );
    // The rejected starts have left nothing behind.
    let agent = AgentBuilder::default().start_local().unwrap();
    drop(task("after").start());
    assert_eq!(agent.finish().tasks.len(), 1);
}

/// A thread with a name, which waits.
struct NamedThread {
    end: mpsc::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl NamedThread {
    fn start(name: &str) -> NamedThread {
        let (end, wait) = mpsc::channel();
        let (started, is_started) = mpsc::channel();
        let named = thread::Builder::new().name(name.into());
        let body = move || {
            started.send(()).unwrap();
            let _ = wait.recv();
        };
        let thread = named.spawn(body).unwrap();
        is_started.recv().unwrap();
        NamedThread { end, thread }
    }

    fn end(self) {
        drop(self.end);
        self.thread.join().unwrap();
    }
}

/// Two libraries of a program may each have a copy of the crate, with statics of its own.
#[test]
fn an_agent_of_another_copy_is_an_agent_too() {
    let _turn = lock(&TURN);
    let other_copy = NamedThread::start("emberline-tick");
    let start = || AgentBuilder::default().start_local();
    assert!(matches!(start(), Err(StartError::AlreadyRunning)));
    // The agent of `emberline record` must not change what the program does.
    let of_record = NamedThread::start("emberline-keep");
    drop(start().unwrap());
    let alone = AgentBuilder::default().alone().start_local();
    assert!(matches!(alone, Err(StartError::AlreadyRunning)));
    of_record.end();
    other_copy.end();
    for _ in 0..3 {
        drop(AgentBuilder::default().start_local().unwrap());
    }
}

#[test]
fn without_an_agent_guards_do_nothing() {
    let _turn = lock(&TURN);
    let before = task("nothing").key("x").start();
    let agent = AgentBuilder::default().start_local().unwrap();
    drop(before);
    assert!(agent.finish().tasks.is_empty());
}
