//! The soak: threads, libraries and processes come and go by the thousand under a sampler at 1 kHz,
//! next to threads that wait in every kind of system call and count interruptions.

use std::collections::VecDeque;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent::{AgentBuilder, LocalAgent};
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

use super::sys::waits::{Kind, Waiter};
use super::sys::{self, Library, confine};

/// Amounts of a soak.
pub(crate) struct Amounts {
    pub(crate) spawns: u64,
    pub(crate) loads: u64,
    pub(crate) execs: u64,
    /// Concurrent threads of the crowd.
    pub(crate) crowd: u64,
}

/// The C library's smallest thread stack.
const STACK_BYTES: usize = 16 * 1024;
/// Threads for each kind of wait.
const WAITERS: usize = 4;
/// Threads that a spawner keeps at once.
const BATCH: usize = 16;
/// Descriptor limit of this process, few enough to exhaust in a moment.
const DESCRIPTORS: u64 = 512;
/// Time between two lines of progress.
const BEAT: Duration = Duration::from_millis(100);
/// In one of this many beats, the descriptors are exhausted.
const EXHAUSTED_EVERY: u64 = 5;
/// Beats for which the crowd lives.
const CROWD_BEATS: u64 = 20;

#[derive(Default)]
struct Counts {
    spawns: AtomicU64,
    loads: AtomicU64,
    execs: AtomicU64,
    /// Processes that did not end as expected.
    bad_execs: AtomicU64,
    calls: AtomicU64,
    interrupted: [AtomicU64; Kind::ALL.len()],
    crowd: AtomicU64,
    /// Attempts that failed for lack of a descriptor and were repeated.
    refused: AtomicU64,
}

static COUNTS: Counts = Counts {
    spawns: AtomicU64::new(0),
    loads: AtomicU64::new(0),
    execs: AtomicU64::new(0),
    bad_execs: AtomicU64::new(0),
    calls: AtomicU64::new(0),
    interrupted: [const { AtomicU64::new(0) }; Kind::ALL.len()],
    crowd: AtomicU64::new(0),
    refused: AtomicU64::new(0),
};
static STOP: AtomicBool = AtomicBool::new(false);

/// Blocks `SIGCHLD` in this thread and all that it starts.
///
/// While `posix_spawn` starts a program, its thread blocks all signals. A child that ends at that
/// moment sends a `SIGCHLD` that the kernel then may not ignore, so it wakes some other thread of
/// the process, whose `epoll_wait` fails with `EINTR`: 502 times in 4,000 spawns on a busy machine
/// without any profiler.
fn block_child_signals() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals
        .thread_block()
        .expect("blocking SIGCHLD is always allowed");
}

fn add(count: &AtomicU64) -> u64 {
    count.fetch_add(1, Ordering::Relaxed) + 1
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Runs the soak with a line of progress per beat; returns the record. Loads `library` if there is
/// a loader. Without `sampled` it shows the machine's own behavior.
pub(crate) fn run(amounts: &Amounts, library: Option<String>, sampled: bool) -> Value {
    confine::limit(libc::RLIMIT_NOFILE, DESCRIPTORS);
    sys::handle(libc::SIGUSR2);
    block_child_signals();
    let agent = sampled.then(start_agent);
    let begin = Instant::now();
    let waiting: Vec<JoinHandle<()>> = waiters();
    let Amounts {
        spawns,
        loads,
        execs,
        crowd,
    } = *amounts;
    let mut working = vec![
        start(move || spawn_threads(spawns)),
        start(move || spawn_processes(execs)),
    ];
    if let Some(library) = library {
        working.push(start(move || load_libraries(&library, loads)));
    }
    let mut beats = 0;
    while working.iter().any(|thread| !thread.is_finished()) {
        beats += 1;
        beat();
        if beats % EXHAUSTED_EVERY == 0 {
            let all = exhaust();
            beat();
            drop(all);
        }
    }
    working.into_iter().for_each(join);
    gather(crowd);
    STOP.store(true, Ordering::Release);
    waiting.into_iter().for_each(join);
    let elapsed = begin.elapsed();
    let recording = agent.map(LocalAgent::finish);
    let interrupted: Vec<String> = Kind::ALL
        .iter()
        .zip(&COUNTS.interrupted)
        .filter(|(_, count)| get(count) > 0)
        .map(|(kind, count)| format!("{kind:?} {}", get(count)))
        .collect();
    json!({
        "seconds": elapsed.as_secs_f64(),
        "spawns": get(&COUNTS.spawns),
        "loads": get(&COUNTS.loads),
        "execs": get(&COUNTS.execs),
        "bad_execs": get(&COUNTS.bad_execs),
        "crowd": get(&COUNTS.crowd),
        "refused": get(&COUNTS.refused),
        "calls": get(&COUNTS.calls),
        "interrupted": COUNTS.interrupted.iter().map(get).sum::<u64>(),
        "interrupted_in": interrupted,
        "ticks": recording.as_ref().map_or(0, |recording| recording.ticks.made),
        "sampled_seconds":
            recording.map_or(0.0, |recording| recording.profile.total().total_ns() as f64 * 1e-9),
    })
}

fn start_agent() -> LocalAgent {
    let interval = Duration::from_millis(1);
    let agent = AgentBuilder::default()
        .interval(interval)
        .cpu_limit(1.0)
        .start_local();
    agent.expect("nothing is refused yet")
}

fn start(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new()
        .spawn(work)
        .expect("a handful of threads")
}

fn join(thread: JoinHandle<()>) {
    thread.join().expect("it does not panic");
}

/// Prints all counters: a reader of these lines notices a standstill.
fn beat() {
    thread::park_timeout(BEAT);
    let Counts {
        spawns,
        loads,
        execs,
        crowd,
        ..
    } = &COUNTS;
    println!(
        "progress {} {} {} {}",
        get(spawns),
        get(loads),
        get(execs),
        get(crowd)
    );
}

/// Opens files until no descriptor is free. They are closed in processes that start meanwhile.
fn exhaust() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn waiters() -> Vec<JoinHandle<()>> {
    let kinds = Kind::ALL.into_iter().zip(&COUNTS.interrupted);
    let each = kinds.flat_map(|kind| [kind; WAITERS]);
    each.map(|(kind, interrupted)| {
        let waiter = Waiter::new(kind);
        start(move || {
            while !STOP.load(Ordering::Acquire) {
                work(20);
                if waiter.wait() {
                    add(interrupted);
                }
                add(&COUNTS.calls);
            }
        })
    })
    .collect()
}

/// Works for about this many microseconds.
#[inline(never)]
fn work(microseconds: u64) -> u64 {
    (0..microseconds * 500).fold(1, |sum: u64, step| std::hint::black_box(sum ^ step))
}

fn spawn_threads(count: u64) {
    let mut running = VecDeque::new();
    for number in 0..count {
        if running.len() == BATCH {
            running.pop_front().into_iter().for_each(join);
        }
        running.push_back(spawn(move || {
            short_life(number);
            add(&COUNTS.spawns);
        }));
    }
    running.into_iter().for_each(join);
}

/// A thread with the smallest stack; retried if the machine has no memory for it.
fn spawn(body: impl FnOnce() + Send + Clone + 'static) -> JoinHandle<()> {
    loop {
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        match builder.spawn(body.clone()) {
            Ok(thread) => return thread,
            Err(_) => add(&COUNTS.refused),
        };
        thread::yield_now();
    }
}

/// A little work: in some threads with signals of their own, in some with all signals blocked, in
/// some within a task.
fn short_life(number: u64) {
    match number % 8 {
        0 => sys::on_smallest_alternate_stack(|| {
            sys::raise(libc::SIGUSR2);
            work(10);
        }),
        1 => {
            SigSet::all().thread_block().expect("a valid mask");
            work(20);
        }
        2 => {
            let _task = agent::task("short").start();
            work(10);
        }
        _ => {
            work(number % 16);
        }
    }
}

fn load_libraries(path: &str, count: u64) {
    while get(&COUNTS.loads) < count {
        match Library::open(path) {
            Some(library) => {
                std::hint::black_box(library.call(20));
                drop(library);
                add(&COUNTS.loads);
            }
            None => {
                add(&COUNTS.refused);
                thread::yield_now();
            }
        }
    }
}

/// Alternates between `posix_spawn` (a `vfork` on Linux) and `fork`.
fn spawn_processes(count: u64) {
    while get(&COUNTS.execs) < count {
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::inherit());
        if get(&COUNTS.execs) % 2 == 1 {
            sys::by_fork(&mut command);
        }
        match command.status() {
            Ok(status) => {
                if !status.success() {
                    add(&COUNTS.bad_execs);
                }
                add(&COUNTS.execs);
            }
            Err(_) => {
                add(&COUNTS.refused);
                thread::yield_now();
            }
        }
    }
}

/// Keeps `count` concurrent threads for a while.
fn gather(count: u64) {
    static DISPERSED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    let crowd: Vec<_> = (0..count)
        .map(|_| {
            spawn(|| {
                add(&COUNTS.crowd);
                let mut dispersed = DISPERSED.0.lock().unwrap_or_else(PoisonError::into_inner);
                while !*dispersed {
                    dispersed = DISPERSED
                        .1
                        .wait(dispersed)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            })
        })
        .collect();
    for _ in 0..CROWD_BEATS {
        beat();
    }
    *DISPERSED.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    DISPERSED.1.notify_all();
    crowd.into_iter().for_each(join);
}
