//! Few busy threads among many, and more busy threads than processors: where their time goes. The
//! threads' own clocks are the truth. Tests assert shares and sums, whatever else the machine does.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu"
))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, Recording, task};
use nix::sys::signal::SigSet;
use nix::time::ClockId;
use profiler_core::{FrameKind, NodeId, Profile, State};

use common::{TURN, lock, wait_until};

const STACK_BYTES: usize = 64 << 10;
const NICE_MAX: i32 = 19;
/// CPU time that a busy thread may use after it read its clock: its task and the thread end.
const END: Duration = Duration::from_micros(200);
/// A thread may have a processor for this long until the sampler sees that it has left its task.
const TURN_MAX: Duration = Duration::from_millis(4);
/// Threads that start or end between two counts of all threads.
const COUNTED_EACH: usize = 25;
/// Busy threads compute for this long, and longer until each had a processor for [`CPU_MIN`], which
/// takes a while on a busy machine.
const LENGTH: Duration = Duration::from_secs(3);
const CPU_MIN: Duration = Duration::from_millis(100);
const LENGTH_MAX: Duration = Duration::from_secs(60);

/// Threads that wait until they are released.
struct Crowd(Vec<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Crowd {
    fn start(count: usize, census: &Census) -> Crowd {
        let start = |number: usize| {
            let released = Arc::new(AtomicBool::new(false));
            let is_released = released.clone();
            let body = move || {
                while !is_released.load(Ordering::Relaxed) {
                    thread::park();
                }
            };
            let thread = thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn(body)
                .unwrap();
            census.count_each(number);
            (released, thread)
        };
        Crowd((0..count).map(start).collect())
    }

    /// Lets the threads end, one after the other.
    fn end(self, census: &Census) {
        for (number, (released, thread)) in self.0.into_iter().enumerate() {
            released.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            thread.join().unwrap();
            census.count_each(number);
        }
    }
}

/// Sums the life times of all threads of this process, as the kernel counts threads: a thread cannot
/// tell when it starts and ends itself. A crowd that starts or ends counts in between, so that the sum
/// is right even if the counter rarely gets a processor.
struct Census {
    sum: Arc<Mutex<LifeSum>>,
    stop: Arc<AtomicBool>,
    counter: JoinHandle<()>,
}

/// The sum of all life times until the last count.
struct LifeSum {
    sum: Duration,
    at: Instant,
    count: u64,
}

impl LifeSum {
    fn count_threads() -> u64 {
        fs::metadata("/proc/self/task").unwrap().nlink() - 2
    }

    fn count(&mut self) {
        let now = Instant::now();
        let counted = LifeSum::count_threads();
        self.sum += (now - self.at) * u32::try_from(self.count + counted).unwrap() / 2;
        self.at = now;
        self.count = counted;
    }
}

impl Census {
    fn start() -> Census {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let first = LifeSum {
            sum: Duration::ZERO,
            at: Instant::now(),
            count: LifeSum::count_threads(),
        };
        let sum = Arc::new(Mutex::new(first));
        let counted = sum.clone();
        let counter = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(2));
                lock(&counted).count();
            }
        });
        Census { sum, stop, counter }
    }

    fn count(&self) {
        lock(&self.sum).count();
    }

    /// Counts at every [`COUNTED_EACH`]th call.
    fn count_each(&self, number: usize) {
        if number % COUNTED_EACH == 0 {
            self.count();
        }
    }

    fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.counter.join().unwrap();
        lock(&self.sum).sum
    }
}

/// A busy thread's own measurement: its CPU time in its task.
struct Truth {
    task: String,
    cpu: Duration,
}

#[inline(never)]
fn spin_until(stop: &AtomicBool, cpu_ns: &AtomicU64) {
    let mut sum = 1u64;
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..100_000 {
            sum = black_box(sum.wrapping_mul(31));
        }
        cpu_ns.store(nanoseconds(own_cpu()), Ordering::Relaxed);
    }
}

fn own_cpu() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

/// Threads that compute in a task each. They begin their tasks before the first of them computes, and
/// run at the lowest priority from then on: a thousand of these leave no processor to the test itself,
/// nor to threads that wait for a lock which one of them holds. They end [a few](COUNTED_EACH) at a time,
/// and only when all have computed: a thread records its end, and among a thousand that compute or end it
/// may then wait for a second to exit.
struct BusyThreads {
    go: Arc<AtomicBool>,
    /// Ends the tasks, and then the work after them.
    stop: Arc<AtomicBool>,
    rest: Arc<AtomicBool>,
    truths: mpsc::Receiver<Truth>,
    threads: Vec<BusyThread>,
}

struct BusyThread {
    cpu_ns: Arc<AtomicU64>,
    released: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl BusyThreads {
    /// Starts threads that wait. `blocks_signals`: until they compute, they block all signals, as the C
    /// library does while a thread starts.
    fn start(count: usize, blocks_signals: bool, census: &Census) -> BusyThreads {
        let go = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let rest = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let (truth, truths) = mpsc::channel();
        let start = |number: usize| {
            let go = go.clone();
            let stop = stop.clone();
            let rest = rest.clone();
            let released = Arc::new(AtomicBool::new(false));
            let is_released = released.clone();
            let ready = ready.clone();
            let truth = truth.clone();
            let cpu_ns = Arc::new(AtomicU64::new(0));
            let own_cpu_ns = cpu_ns.clone();
            let body = move || {
                if blocks_signals {
                    SigSet::all().thread_block().unwrap();
                }
                let name = format!("busy-{}", number % 8);
                let guard = task(&name).start();
                let before = own_cpu();
                ready.send(()).unwrap();
                while !go.load(Ordering::Relaxed) {
                    thread::park();
                }
                SigSet::all().thread_unblock().unwrap();
                rustix::process::nice(NICE_MAX).unwrap();
                spin_until(&stop, &own_cpu_ns);
                let cpu = own_cpu() - before;
                drop(guard);
                spin_until(&rest, &own_cpu_ns);
                truth.send(Truth { task: name, cpu }).unwrap();
                while !is_released.load(Ordering::Relaxed) {
                    thread::park();
                }
            };
            let thread = thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn(body)
                .unwrap();
            census.count_each(number);
            BusyThread {
                cpu_ns,
                released,
                thread,
            }
        };
        let threads = (0..count).map(start).collect();
        (0..count).for_each(|_| is_ready.recv().unwrap());
        BusyThreads {
            go,
            stop,
            rest,
            truths,
            threads,
        }
    }

    /// Lets them compute in their tasks until each has used `cpu_min`, and for `afterwards` after them.
    fn run(self, cpu_min: Duration, afterwards: Duration, census: &Census) -> Vec<Truth> {
        self.go.store(true, Ordering::Relaxed);
        self.threads
            .iter()
            .for_each(|busy| busy.thread.thread().unpark());
        let begin = Instant::now();
        let have_run = || {
            let mut cpu = self
                .threads
                .iter()
                .map(|busy| busy.cpu_ns.load(Ordering::Relaxed));
            cpu.all(|cpu_ns| cpu_ns >= nanoseconds(cpu_min))
        };
        thread::sleep(LENGTH);
        while !have_run() {
            assert!(begin.elapsed() < LENGTH_MAX, "the threads get no processor");
            thread::sleep(Duration::from_millis(20));
        }
        // A clock interrupt between the two ends would count the time before it outside of the task.
        self.rest.store(afterwards.is_zero(), Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
        thread::sleep(afterwards);
        self.rest.store(true, Ordering::Relaxed);
        let truth = |_| {
            self.truths
                .recv_timeout(LENGTH_MAX)
                .expect("the threads get no processor")
        };
        let truths = (0..self.threads.len()).map(truth).collect();
        let mut threads = self.threads;
        while !threads.is_empty() {
            let few = threads.split_off(threads.len().saturating_sub(COUNTED_EACH));
            for busy in &few {
                busy.released.store(true, Ordering::Relaxed);
                busy.thread.thread().unpark();
            }
            few.into_iter().for_each(|busy| busy.thread.join().unwrap());
            census.count();
        }
        truths
    }
}

/// CPU time below each task that starts with `busy`, and the part of it in stacks with `spin_until`.
fn busy_cpu(profile: &Profile) -> (Duration, Duration) {
    let mut above = vec![(false, false)];
    let mut in_task = 0;
    let mut in_function = 0;
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let (busy, inside) = above[node.parent.index()];
        let busy = if node.parent == NodeId::ROOT {
            label.starts_with("busy")
        } else {
            busy
        };
        let inside = inside || label.contains("spin_until");
        if busy {
            let cpu = node.own.get(State::Cpu);
            in_task += cpu;
            in_function += if inside { cpu } else { 0 };
        }
        above.push((busy, inside));
    }
    (
        Duration::from_nanos(in_task),
        Duration::from_nanos(in_function),
    )
}

/// Prints where the time is, and the CPU time without a stack by its reason.
fn print_tops(recording: &Recording) {
    for (frame, weight) in recording.profile.top_level() {
        println!("  {:12} {weight:?}", frame.label());
    }
    for node in recording.profile.nodes() {
        let frame = recording.profile.frame(node.frame);
        let cpu = Duration::from_nanos(node.own.get(State::Cpu));
        if frame.kind == FrameKind::NoStack && !cpu.is_zero() {
            println!("  {} {cpu:.3?}", frame.label());
        }
    }
    println!("  {:?}", recording.ticks);
}

/// A program whose busy threads start among idle ones.
#[derive(Clone, Copy)]
struct Program {
    busy: usize,
    /// Idle threads that start before the busy ones, and after them.
    idle_before: usize,
    idle_after: usize,
    /// Whether the agent has spent more than it may before the busy threads start.
    in_debt: bool,
    /// Whether the busy threads block all signals until they compute.
    blocks_signals: bool,
    /// How long the busy threads compute after their tasks.
    afterwards: Duration,
}

impl Program {
    fn new(busy: usize, idle: usize) -> Program {
        Program {
            busy,
            idle_before: idle,
            idle_after: 0,
            in_debt: false,
            blocks_signals: false,
            afterwards: Duration::ZERO,
        }
    }
}

/// Measurements of one run, and the truth.
struct Measured {
    cpu: Duration,
    /// Part of it in the busy tasks, and in their function.
    in_task: Duration,
    in_function: Duration,
}

/// Busy threads compute next to idle ones: their CPU time is in their tasks, and all thread time is in
/// the profile.
fn check_busy_among_idle(program: Program, cpu_min: Duration) -> Measured {
    let turn = lock(&TURN);
    let cpu_limit = if program.in_debt { 0.001 } else { 0.01 };
    let agent = AgentBuilder::default()
        .cpu_limit(cpu_limit)
        .start_local()
        .unwrap();
    let ticks = || agent.overhead().ticks;
    let census = Census::start();
    let before = Crowd::start(program.idle_before, &census);
    if program.in_debt {
        wait_until("an agent in debt", || agent.overhead().ticks_throttled > 0);
    }
    let busy = BusyThreads::start(program.busy, program.blocks_signals, &census);
    let after = Crowd::start(program.idle_after, &census);
    if program.blocks_signals {
        let seen = ticks() + 20;
        wait_until("visits of the new threads", || ticks() > seen);
    }
    let truths = busy.run(cpu_min, program.afterwards, &census);
    after.end(&census);
    before.end(&census);
    let expected = census.end();
    let overhead = agent.overhead();
    let recording = agent.finish();
    drop(turn);
    let cpu: Duration = truths.iter().map(|truth| truth.cpu).sum();
    let (in_task, in_function) = busy_cpu(&recording.profile);
    let measured = Duration::from_nanos(recording.profile.total().total_ns());
    let Program {
        busy,
        idle_before,
        idle_after,
        ..
    } = program;
    println!(
        "{busy} busy, {idle_before} + {idle_after} idle: {cpu:.3?}, in tasks {in_task:.3?}, in function {in_function:.3?}"
    );
    println!("  threads {expected:.3?}, measured {measured:.3?}; {overhead:?}");
    print_tops(&recording);
    assert!(truths.iter().all(|truth| truth.task.starts_with("busy")));
    assert!(
        share(in_task, cpu) > 0.99,
        "{in_task:?} of {cpu:?} is in the tasks"
    );
    let end = if program.afterwards.is_zero() {
        END
    } else {
        TURN_MAX
    };
    let ends = end * u32::try_from(busy).unwrap();
    assert!(
        share(in_task, cpu + ends) < 1.01,
        "{in_task:?} instead of {cpu:?} is in the tasks"
    );
    let sum = share(measured, expected);
    assert!(
        (sum - 1.0).abs() < 0.01,
        "{measured:?} instead of {expected:?} in all states"
    );
    Measured {
        cpu,
        in_task,
        in_function,
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64()
}

/// Like [`check_busy_among_idle`], and the CPU time is where the threads ran.
fn check_stacks(program: Program) {
    let Measured {
        cpu,
        in_task,
        in_function,
    } = check_busy_among_idle(program, CPU_MIN);
    let with_stack = share(in_function, cpu);
    assert!(
        with_stack > 0.99,
        "{in_function:?} of {cpu:?} ({in_task:?} in tasks) has a stack"
    );
}

fn check_stacks_of_busy_among_idle(busy: usize, idle: usize) {
    check_stacks(Program::new(busy, idle));
}

#[test]
#[ignore = "long"]
fn one_busy_thread_among_300() {
    check_stacks_of_busy_among_idle(1, 300);
}

#[test]
#[ignore = "long"]
fn one_busy_thread_among_1000() {
    check_stacks_of_busy_among_idle(1, 1_000);
}

#[test]
#[ignore = "long"]
fn one_busy_thread_among_5000() {
    check_stacks_of_busy_among_idle(1, 5_000);
}

#[test]
#[ignore = "long"]
fn several_busy_threads_among_300() {
    check_stacks_of_busy_among_idle(7, 300);
}

#[test]
#[ignore = "long"]
fn several_busy_threads_among_5000() {
    check_stacks_of_busy_among_idle(5, 5_000);
}

/// An agent in debt visits no thread that it knows. It finds those that had no timer when it first saw
/// them.
#[test]
#[ignore = "long"]
fn a_busy_thread_that_blocked_signals_at_first_is_sampled_by_an_agent_in_debt() {
    check_stacks(Program {
        in_debt: true,
        blocks_signals: true,
        ..Program::new(3, 1_500)
    });
}

/// An agent in debt visits one new thread a tick, the newest first. It finds those that run.
#[test]
#[ignore = "long"]
fn busy_threads_among_starting_ones_are_sampled_by_an_agent_in_debt() {
    check_stacks(Program {
        in_debt: true,
        idle_after: 1_500,
        ..Program::new(3, 1_500)
    });
}

/// The limit of this system on threads that is too low for `count` of them.
fn limit_below(count: u64) -> Option<String> {
    let number = |text: &str| {
        text.split_whitespace()
            .find_map(|word| word.parse::<u64>().ok())
    };
    let of_file = |path: &str| number(&fs::read_to_string(path).ok()?);
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let processes = limits
        .lines()
        .find(|line| line.starts_with("Max processes"))
        .unwrap();
    let limits = [
        (
            "kernel.threads-max",
            of_file("/proc/sys/kernel/threads-max"),
            count,
        ),
        ("kernel.pid_max", of_file("/proc/sys/kernel/pid_max"), count),
        // A stack and its guard.
        (
            "vm.max_map_count",
            of_file("/proc/sys/vm/max_map_count"),
            2 * count,
        ),
        ("pids.max", of_file("/sys/fs/cgroup/pids.max"), count),
        ("max user processes", number(processes), count),
    ];
    limits
        .into_iter()
        .find_map(|(name, limit, needed): (&str, Option<u64>, u64)| {
            limit
                .filter(|limit| *limit < needed + 1_000)
                .map(|limit| format!("{name} is {limit}"))
        })
}

#[test]
#[ignore = "long"]
fn busy_threads_among_10000() {
    match limit_below(10_000) {
        None => check_stacks_of_busy_among_idle(6, 9_994),
        Some(limit) => println!("skipped: {limit}, too low for 10,000 threads"),
    }
}

/// An agent within its limit samples each of them once in a second or two.
#[test]
#[ignore = "long"]
fn three_hundred_threads_that_all_want_to_run() {
    check_stacks_of_busy_among_idle(300, 0);
}

/// Each gets a processor for some milliseconds in all, so a thread may end before a clock interrupt
/// has found it running: then its time has no stack, but its task is right.
#[test]
#[ignore = "long"]
fn a_thousand_threads_that_all_want_to_run() {
    check_busy_among_idle(Program::new(1_000, 0), Duration::ZERO);
}

/// The next sample of most threads is of what they do after their tasks.
#[test]
#[ignore = "long"]
fn three_hundred_threads_that_compute_on_after_their_tasks() {
    check_stacks(Program {
        afterwards: Duration::from_secs(3),
        ..Program::new(300, 0)
    });
}
