//! One way each to be hard to profile. Each mode's result is a JSON object.

use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{hint, thread};

use agent::{AgentBuilder, LocalAgent, Recording};
use nix::sys::signal::SigSet;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::sys::{self, confine, fiber};

const BUSY: Duration = Duration::from_millis(500);
/// Number of programs that one process becomes, one after the other.
const EXECS: u32 = 200;

/// Runs a mode; `None` if the name is unknown.
pub(crate) fn run(mode: &str, rest: &[&str]) -> Option<Value> {
    let record = match mode {
        "fork" => fork(),
        "exec" => exec(
            rest.first()
                .map_or(EXECS, |left| left.parse().expect("a number")),
        ),
        "deaf" => deaf(),
        "handler-before" => handler_before(),
        "handler-after" => handler_after(),
        "recursion" => recursion(),
        "overflow" => overflow(),
        "fibers" => fibers(),
        "no-descriptors" => no_descriptors(),
        "no-pending" => refused(|| assert!(confine::limit(libc::RLIMIT_SIGPENDING, 0) > 0)),
        "nobody" => refused(confine::become_nobody),
        "no-proc" => hidden_proc(),
        "no-vm-read" => done_without(libc::SYS_process_vm_readv),
        "no-timer" => done_without(libc::SYS_timer_create),
        "no-queue" => refused(|| confine::refuse(libc::SYS_rt_tgsigqueueinfo)),
        "filter-after" => filter_after(),
        "no-sigaction" => refused(|| confine::refuse(libc::SYS_rt_sigaction)),
        "sums" => sums(),
        _ => return None,
    };
    Some(record)
}

fn start() -> LocalAgent {
    let interval = Duration::from_millis(1);
    let agent = AgentBuilder::default()
        .interval(interval)
        .cpu_limit(1.0)
        .start_local();
    agent.expect("nothing is refused yet")
}

/// Works on a CPU, or waits for one.
#[inline(never)]
fn busy(length: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < length {
        hint::black_box((0..5_000u64).fold(1, |sum, step| hint::black_box(sum ^ step)));
    }
}

/// Nanoseconds of all samples below the task `top`.
fn of_task(recording: &Recording, top: &str) -> u64 {
    let tops = recording.profile.top_level();
    tops.filter(|(frame, _)| frame.function == top)
        .map(|(_, weight)| weight.total_ns())
        .sum()
}

/// Nanoseconds below the frame `name` of the task `top`.
fn of_task_below(recording: &Recording, top: &str, name: &str) -> u64 {
    let mut tops: Vec<(bool, bool)> = vec![(false, false)];
    let mut sum = 0;
    for node in recording.profile.nodes() {
        let label = recording.profile.frame(node.frame).label();
        let (of_task, below) = tops[node.parent.index()];
        let of_task = of_task || label == top;
        let below = below || label == name;
        sum += if of_task && below {
            node.own.total_ns()
        } else {
            0
        };
        tops.push((of_task, below));
    }
    sum
}

/// Nanoseconds of all samples of the program's own threads.
fn of_program(recording: &Recording) -> u64 {
    recording.profile.total().total_ns() - of_task(recording, "[agent]")
}

/// The parent is sampled. A forked child is not, until it starts its own agent.
fn fork() -> Value {
    let agent = start();
    {
        // The parent's agent knows this thread; the child's must learn it again.
        let _task = agent::task("of the parent").start();
        busy(BUSY);
    }
    let mut agent = Some(agent);
    let mut child = || {
        // The parent's agent, dropped by a forked child that ends: its threads do not exist here.
        let inherited = agent.take().expect("each child has its own copy").finish();
        busy(BUSY);
        let own = start();
        {
            let _task = agent::task("of the child").start();
            busy(BUSY);
        }
        let recording = own.finish();
        let sampled = of_task(&recording, "of the child");
        i32::from(inherited.ticks.made == 0 && sampled == 0) + i32::from(sampled < 400_000_000) * 2
    };
    let with_agent = sys::fork(&mut child);
    let silent = sys::fork(|| {
        busy(BUSY);
        0
    });
    let exit = |child| match waitpid(child, None).expect("our child") {
        WaitStatus::Exited(_, code) => code,
        other => panic!("{other:?}"),
    };
    let exits = [exit(with_agent), exit(silent)];
    let recording = agent.take().expect("the child took its copy").finish();
    json!({ "exits": exits, "ticks": recording.ticks.made })
}

/// Executes the same program again and again while its threads are sampled.
fn exec(left: u32) -> Value {
    let agent = start();
    for _ in 0..3 {
        thread::spawn(|| busy(BUSY));
    }
    busy(Duration::from_millis(5));
    if left == 0 {
        return json!({ "ticks": agent.finish().ticks.made });
    }
    let this = std::env::current_exe().expect("its own path");
    let error = Command::new(this)
        .args(["exec", &(left - 1).to_string()])
        .exec();
    panic!("{error}");
}

/// A thread that blocks all signals: its time is in the profile anyway.
fn deaf() -> Value {
    let agent = start();
    let deaf = thread::spawn(|| {
        SigSet::all().thread_block().expect("a valid mask");
        let _task = agent::task("deaf").start();
        let begin = Instant::now();
        // Longer than the sampler takes to notice; CPU time shows that too.
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("own"));
        while used() < Duration::from_secs(3) {
            busy(Duration::from_millis(1));
        }
        begin.elapsed()
    });
    let elapsed = deaf.join().expect("it does not panic");
    let recording = agent.finish();
    let sampled = of_task(&recording, "deaf");
    let without_stack = of_task_below(&recording, "deaf", "[no stack: signal blocked]");
    json!({
        "ticks": recording.ticks.made,
        "share": sampled as f64 * 1e-9 / elapsed.as_secs_f64(),
        "sampled_ns": sampled,
        "signal_blocked_ns": without_stack,
    })
}

/// A filter takes the timers away while the agent runs.
fn filter_after() -> Value {
    let agent = start();
    let before = agent.mode().to_string();
    confine::refuse_everywhere(libc::SYS_timer_create);
    let begin = Instant::now();
    while agent.mode().to_string() == before && begin.elapsed() < Duration::from_secs(20) {
        busy(Duration::from_millis(1));
    }
    thread::spawn(|| {
        let _task = agent::task("filtered").start();
        busy(BUSY);
    })
    .join()
    .expect("it does not panic");
    let after = agent.mode().to_string();
    let recording = agent.finish();
    json!({
        "before": before,
        "after": after,
        "sampled_ns": of_task(&recording, "filtered"),
        "sampler_mode_ns": of_task_below(&recording, "filtered", "[no stack: sampler mode]"),
    })
}

const OWN_SIGNALS: u64 = 1_000;

fn raise_own(signals: &[i32]) {
    for _ in 0..OWN_SIGNALS {
        signals.iter().for_each(|signal| sys::raise(*signal));
        busy(Duration::from_micros(200));
    }
}

/// The program handles both signals that the agent may use: it gets all of its own.
fn handler_before() -> Value {
    let signals = [libc::SIGURG, libc::SIGWINCH];
    signals.into_iter().for_each(sys::handle);
    let agent = start();
    raise_own(&signals);
    let recording = agent.finish();
    json!({
        "ticks": recording.ticks.made,
        "raised": OWN_SIGNALS,
        "seen": signals.map(sys::seen),
        "program_ns": of_program(&recording),
    })
}

/// The program takes the agent's signal while it runs: it gets its own signals, and possibly some
/// of the agent's.
fn handler_after() -> Value {
    let agent = start();
    busy(BUSY);
    sys::handle(libc::SIGURG);
    raise_own(&[libc::SIGURG]);
    let recording = agent.finish();
    let seen = sys::seen(libc::SIGURG);
    json!({ "ticks": recording.ticks.made, "raised": OWN_SIGNALS, "seen": seen })
}

#[inline(never)]
fn recurse(depth: u64, work: &dyn Fn()) -> u64 {
    if depth == 0 {
        work();
        return 0;
    }
    recurse(hint::black_box(depth - 1), work) + hint::black_box(1)
}

/// Stacks beyond both limits: frames and bytes.
fn recursion() -> Value {
    let agent = start();
    let builder = thread::Builder::new().stack_size(256 << 20);
    let deep = builder.spawn(|| {
        for (name, depth) in [("600 frames", 600), ("100000 frames", 100_000)] {
            let _task = agent::task(name).start();
            recurse(depth, &|| busy(BUSY));
        }
    });
    deep.expect("room for its stack")
        .join()
        .expect("it does not panic");
    let recording = agent.finish();
    let truncated = |top: &str| of_task_below(&recording, top, "[truncated]");
    let of = |top| json!({ "ns": of_task(&recording, top), "truncated_ns": truncated(top) });
    json!({ "600": of("600 frames"), "100000": of("100000 frames") })
}

/// Ends as a program without an agent does: with the standard library's message and SIGABRT.
fn overflow() -> Value {
    let _agent = start();
    busy(BUSY);
    json!({ "depth": recurse(u64::MAX, &|| ()) })
}

/// Works on a heap-allocated stack.
fn fibers() -> Value {
    let agent = start();
    let begin = Instant::now();
    let fiber = thread::spawn(|| {
        let _task = agent::task("fibers").start();
        for _ in 0..100 {
            fiber::run(|| busy(Duration::from_millis(10)));
        }
    });
    fiber.join().expect("it does not panic");
    let elapsed = begin.elapsed();
    let recording = agent.finish();
    let share = of_task(&recording, "fibers") as f64 * 1e-9 / elapsed.as_secs_f64();
    json!({ "ticks": recording.ticks.made, "share": share })
}

/// No descriptor is free while threads start, end, run and wait.
fn no_descriptors() -> Value {
    let agent = start();
    let begin = Instant::now();
    // The sampler knows this thread by then.
    busy(BUSY);
    let before = confine::limit(libc::RLIMIT_NOFILE, 0);
    while begin.elapsed() < BUSY * 3 {
        thread::spawn(|| busy(Duration::from_millis(1)))
            .join()
            .expect("it does not panic");
    }
    confine::limit(libc::RLIMIT_NOFILE, before);
    busy(BUSY);
    let elapsed = begin.elapsed();
    let recording = agent.finish();
    let share = of_program(&recording) as f64 * 1e-9 / elapsed.as_secs_f64();
    json!({ "ticks": recording.ticks.made, "share": share })
}

/// Drops a permission before the agent starts: it starts and samples what it can, or reports why
/// not.
fn refused(take_away: impl FnOnce()) -> Value {
    take_away();
    sampled(BUSY * 2, 0)
}

/// Duration of a task with more threads than CPUs, so that running threads wait for one too. Long
/// enough that unobserved time at a task's ends is a small part.
fn done_without(call: libc::c_long) -> Value {
    confine::refuse(call);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    sampled(BUSY * 6, processors)
}

/// Runs a task for this long next to others, with one that waits meanwhile.
fn sampled(length: Duration, others: usize) -> Value {
    let interval = Duration::from_millis(1);
    let agent = match AgentBuilder::default()
        .interval(interval)
        .cpu_limit(1.0)
        .start_local()
    {
        Ok(agent) => agent,
        Err(error) => return json!({ "refused": error.to_string() }),
    };
    let (tell, told) = mpsc::channel::<()>();
    let waiting = thread::spawn(move || {
        let _task = agent::task("waiting").start();
        let _ = told.recv();
    });
    let others: Vec<_> = (0..others)
        .map(|_| {
            thread::spawn(move || {
                let _task = agent::task("other").start();
                busy(length);
            })
        })
        .collect();
    {
        let _task = agent::task("busy").start();
        busy(length);
    }
    drop(tell);
    for thread in others.into_iter().chain([waiting]) {
        thread.join().expect("it does not panic");
    }
    let mode = agent.mode();
    let recording = agent.finish();
    json!({
        "mode": mode.to_string(),
        "ticks": recording.ticks.made,
        "length_ns": length.as_nanos() as u64,
        "busy_ns": of_task(&recording, "busy"),
        "waiting_ns": of_task(&recording, "waiting"),
    })
}

fn hidden_proc() -> Value {
    if !confine::hide_proc() {
        return json!({ "skipped": "a mount namespace needs rights that this process does not have" });
    }
    refused(|| ())
}

/// More threads than CPUs, in all states. Each keeps its own account of its life, which begins when
/// it is started, not when it first gets a CPU.
fn sums() -> Value {
    let agent = start();
    let begin = Instant::now();
    let lock = Arc::new(Mutex::new(()));
    let length = Duration::from_secs(4);
    let mut threads = Vec::new();
    for _ in 0..8 {
        threads.push(lived("busy", Box::new(move || busy(length))));
    }
    for _ in 0..8 {
        threads.push(lived(
            "asleep",
            Box::new(move || thread::park_timeout(length)),
        ));
        let lock = lock.clone();
        threads.push(lived(
            "locking",
            Box::new(move || {
                let begin = Instant::now();
                while begin.elapsed() < length {
                    let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
                    busy(Duration::from_micros(500));
                    drop(held);
                }
            }),
        ));
    }
    let lives = threads
        .into_iter()
        .map(|thread| thread.join().expect("it does not panic"));
    let lived: Duration = lives.sum::<Duration>() + begin.elapsed();
    let recording = agent.finish();
    json!({ "lived_ns": lived.as_nanos() as f64, "sampled_ns": of_program(&recording) })
}

fn lived(name: &'static str, body: Box<dyn FnOnce() + Send>) -> thread::JoinHandle<Duration> {
    let born = Instant::now();
    thread::spawn(move || {
        let _task = agent::task(name).start();
        body();
        born.elapsed()
    })
}
