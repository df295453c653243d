//! Few busy threads among many, and more busy threads than processors: where their time goes. The
//! threads' own clocks are the truth. Tests assert shares and sums, whatever else the machine does.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu"
))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, Recording, task};
use nix::time::ClockId;
use profiler_core::{NodeId, Profile, State};

use common::{TURN, lock};

const STACK_BYTES: usize = 64 << 10;
const NICE_MAX: i32 = 19;
/// CPU time that a busy thread may use after it read its clock: its task and the thread end.
const END: Duration = Duration::from_micros(200);

/// Threads that wait until they are released.
struct Crowd(Vec<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Crowd {
    fn start(count: usize) -> Crowd {
        let start = |_| {
            let released = Arc::new(AtomicBool::new(false));
            let is_released = released.clone();
            let body = move || {
                while !is_released.load(Ordering::Relaxed) {
                    thread::park();
                }
            };
            let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(body).unwrap();
            (released, thread)
        };
        Crowd((0..count).map(start).collect())
    }

    /// Lets the threads end, one after the other: so their number falls evenly, and the census is
    /// right even if it rarely gets a processor.
    fn end(self) {
        for (released, thread) in self.0 {
            released.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}

/// Sums the life times of all threads of this process, as the kernel counts threads: a thread cannot
/// tell when it starts and ends itself.
struct Census {
    stop: Arc<AtomicBool>,
    counter: JoinHandle<Duration>,
}

impl Census {
    fn start() -> Census {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let count_threads = || fs::metadata("/proc/self/task").unwrap().nlink() - 2;
        let counter = thread::spawn(move || {
            let mut sum = Duration::ZERO;
            let mut at = Instant::now();
            let mut count = count_threads();
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(2));
                let now = Instant::now();
                let counted = count_threads();
                sum += (now - at) * u32::try_from(count + counted).unwrap() / 2;
                at = now;
                count = counted;
            }
            sum
        });
        Census { stop, counter }
    }

    fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.counter.join().unwrap()
    }
}

/// What a busy thread knows of itself.
struct Truth {
    task: String,
    cpu: Duration,
}

#[inline(never)]
fn spin_until(stop: &AtomicBool) {
    let mut sum = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            sum = black_box(sum.wrapping_mul(31));
        }
    }
}

fn own_cpu() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Runs `count` threads that compute in a task each, for `length`. They begin their tasks before the
/// first of them computes, and at the lowest priority from then on: a thousand of these leave no
/// processor to the test itself, nor to threads that wait for a lock which one of them holds.
fn run_busy(count: usize, length: Duration) -> Vec<Truth> {
    let go = Arc::new(AtomicBool::new(false));
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let threads: Vec<JoinHandle<Truth>> = (0..count)
        .map(|number| {
            let go = go.clone();
            let stop = stop.clone();
            let ready = ready.clone();
            let body = move || {
                let name = format!("busy-{}", number % 8);
                let guard = task(&name).start();
                let before = own_cpu();
                ready.send(()).unwrap();
                while !go.load(Ordering::Relaxed) {
                    thread::park();
                }
                rustix::process::nice(NICE_MAX).unwrap();
                spin_until(&stop);
                let cpu = own_cpu() - before;
                drop(guard);
                Truth { task: name, cpu }
            };
            thread::Builder::new().stack_size(STACK_BYTES).spawn(body).unwrap()
        })
        .collect();
    (0..count).for_each(|_| is_ready.recv().unwrap());
    go.store(true, Ordering::Relaxed);
    threads.iter().for_each(|thread| thread.thread().unpark());
    thread::sleep(length);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// CPU time below each task that starts with `busy`, and the part of it in stacks with `spin_until`.
fn busy_cpu(profile: &Profile) -> (Duration, Duration) {
    let mut above = vec![(false, false)];
    let mut in_task = 0;
    let mut in_function = 0;
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let (busy, inside) = above[node.parent.index()];
        let busy = if node.parent == NodeId::ROOT { label.starts_with("busy") } else { busy };
        let inside = inside || label.contains("spin_until");
        if busy {
            let cpu = node.own.get(State::Cpu);
            in_task += cpu;
            in_function += if inside { cpu } else { 0 };
        }
        above.push((busy, inside));
    }
    (Duration::from_nanos(in_task), Duration::from_nanos(in_function))
}

fn print_tops(recording: &Recording) {
    for (frame, weight) in recording.profile.top_level() {
        println!("  {:12} {weight:?}", frame.label());
    }
    println!("  {:?}", recording.ticks);
}

/// What one run measured, and the truth.
struct Measured {
    cpu: Duration,
    /// Part of it in the busy tasks, and in their function.
    in_task: Duration,
    in_function: Duration,
}

/// `busy` threads compute next to `idle` ones: their CPU time is in their tasks, and all thread time
/// is in the profile.
fn check_busy_among_idle(busy: usize, idle: usize) -> Measured {
    let turn = lock(&TURN);
    let agent = AgentBuilder::default().start_local().unwrap();
    let census = Census::start();
    let crowd = Crowd::start(idle);
    let truths = run_busy(busy, Duration::from_secs(3));
    crowd.end();
    let expected = census.end();
    let overhead = agent.overhead();
    let recording = agent.finish();
    drop(turn);
    let cpu: Duration = truths.iter().map(|truth| truth.cpu).sum();
    let (in_task, in_function) = busy_cpu(&recording.profile);
    let measured = Duration::from_nanos(recording.profile.total().total_ns());
    println!(
        "{busy} busy, {idle} idle: {cpu:.3?}, in tasks {in_task:.3?}, in function {in_function:.3?}"
    );
    println!("  threads {expected:.3?}, measured {measured:.3?}; {overhead:?}");
    print_tops(&recording);
    assert!(truths.iter().all(|truth| truth.task.starts_with("busy")));
    assert!(share(in_task, cpu) > 0.99, "{in_task:?} of {cpu:?} is in the tasks");
    let ends = END * u32::try_from(busy).unwrap();
    assert!(share(in_task, cpu + ends) < 1.01, "{in_task:?} instead of {cpu:?} is in the tasks");
    let sum = share(measured, expected);
    assert!((sum - 1.0).abs() < 0.01, "{measured:?} instead of {expected:?} in all states");
    Measured { cpu, in_task, in_function }
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64()
}

/// Like [`check_busy_among_idle`], and the CPU time is where the threads ran.
fn check_stacks_of_busy_among_idle(busy: usize, idle: usize) {
    let Measured { cpu, in_task, in_function } = check_busy_among_idle(busy, idle);
    let with_stack = share(in_function, cpu);
    assert!(with_stack > 0.99, "{in_function:?} of {cpu:?} ({in_task:?} in tasks) has a stack");
}

#[test]
fn one_busy_thread_among_300() {
    check_stacks_of_busy_among_idle(1, 300);
}

#[test]
fn one_busy_thread_among_1000() {
    check_stacks_of_busy_among_idle(1, 1_000);
}

#[test]
fn one_busy_thread_among_5000() {
    check_stacks_of_busy_among_idle(1, 5_000);
}

#[test]
fn several_busy_threads_among_300() {
    check_stacks_of_busy_among_idle(7, 300);
}

#[test]
fn several_busy_threads_among_5000() {
    check_stacks_of_busy_among_idle(5, 5_000);
}

/// The limit of this system on threads that is too low for `count` of them.
fn limit_below(count: u64) -> Option<String> {
    let number = |text: &str| text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let of_file = |path: &str| number(&fs::read_to_string(path).ok()?);
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let processes = limits.lines().find(|line| line.starts_with("Max processes")).unwrap();
    let limits = [
        ("kernel.threads-max", of_file("/proc/sys/kernel/threads-max"), count),
        ("kernel.pid_max", of_file("/proc/sys/kernel/pid_max"), count),
        // A stack and its guard.
        ("vm.max_map_count", of_file("/proc/sys/vm/max_map_count"), 2 * count),
        ("pids.max", of_file("/sys/fs/cgroup/pids.max"), count),
        ("max user processes", number(processes), count),
    ];
    let too_low = |(name, limit, needed): (&str, Option<u64>, u64)| {
        limit.filter(|limit| *limit < needed + 1_000).map(|limit| format!("{name} is {limit}"))
    };
    limits.into_iter().find_map(too_low)
}

#[test]
fn busy_threads_among_10000() {
    match limit_below(10_000) {
        None => check_stacks_of_busy_among_idle(6, 9_994),
        Some(limit) => println!("skipped: {limit}, too low for 10,000 threads"),
    }
}

/// Each gets a processor for some milliseconds in all, so a thread may end before a clock interrupt
/// has found it running: then its time has no stack, but its task is right.
#[test]
fn a_thousand_threads_that_all_want_to_run() {
    check_busy_among_idle(1_000, 0);
}
