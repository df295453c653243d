//! Many threads of one kind, and the CPU time of the sampler's thread that observes them.

use std::convert::Infallible;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::process::exit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigEvent, SigevNotify};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::unistd::{Pid, gettid};
use rustix::event::Timespec;
use rustix::process::nice;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::clock_gettime;

use crate::figure::print_figure;
use crate::own::{ThreadStat, Watch, print_memory, print_used};
use crate::profiler::{self, Peer};
use crate::settings::Settings;
use crate::work;

const STACK_BYTES: usize = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Most threads that wake in a tick, because two processors do not wake a thousand threads in ten
/// milliseconds. With more threads, each wakes less often.
const WAKING_PER_TICK_MAX: u64 = 100;
/// The lowest priority: the sampler gets a processor at its tick.
pub(crate) const NICE_MAX: i32 = 19;
/// The priority of an ordinary program.
pub(crate) const NICE_EQUAL: i32 = 0;
const BARE_NAME: &str = "bare-loop";

/// The activity of the threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// They wait.
    Idle,
    /// They wake periodically, work for some microseconds, and wait again.
    Waking,
    /// They always want a processor, with this nice value.
    Running(i32),
}

/// Wake-ups of waking threads.
static WAKES: AtomicU64 = AtomicU64::new(0);

/// Runs and prints.
pub(crate) fn run(kind: Kind, settings: &Settings, peers: &[Peer]) -> Result<()> {
    let profiler = profiler::start(&settings.profiler, settings.hertz, peers)?;
    let watch = Watch::new()?;
    let count = settings.threads as u64;
    let interval_ns = SECOND_NS / u64::from(settings.hertz);
    let all_started = Arc::new(Barrier::new(settings.threads + 1));
    for index in 0..count {
        let all_started = all_started.clone();
        // The process exits without joining them.
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                all_started.wait();
                match kind {
                    Kind::Idle => loop {
                        thread::park();
                    },
                    Kind::Waking => wake_forever(index, count, interval_ns),
                    Kind::Running(nice) => spin_forever(nice),
                }
            })
            .with_context(|| format!("starting thread {index} of {count}"))?;
    }
    all_started.wait();
    thread::sleep(settings.settle);
    let before = watch.snapshot()?;
    let wakes_before = WAKES.load(Ordering::Relaxed);
    thread::sleep(settings.window);
    let after = watch.snapshot()?;
    let wakes_after = WAKES.load(Ordering::Relaxed);
    print_used(&before, &after);
    print_figure("wakes", wakes_after - wakes_before);
    print_memory()?;
    profiler.report_costs()?;
    exit(0)
}

/// A thread that only sleeps from tick to tick: the least that any sampler costs. With `units` it computes for
/// as many nanoseconds of its CPU time at each. The other threads run all the time, with this nice value.
pub(crate) fn run_bare(nice: i32, settings: &Settings) -> Result<()> {
    let interval_ns = SECOND_NS / u64::from(settings.hertz);
    let work_ns = settings.units;
    let all_started = Arc::new(Barrier::new(settings.threads + 1));
    for _ in 0..settings.threads {
        let all_started = all_started.clone();
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                all_started.wait();
                spin_forever(nice)
            })?;
    }
    thread::Builder::new()
        .name(BARE_NAME.into())
        .spawn(move || {
            let mut due_ns = now_ns();
            loop {
                due_ns += interval_ns;
                sleep_until(due_ns);
                let begin_ns = ns_of(ClockId::ThreadCPUTime);
                while work_ns > 0 && ns_of(ClockId::ThreadCPUTime) - begin_ns < work_ns {
                    black_box(work::spin(1));
                }
                due_ns = due_ns.max(now_ns().saturating_sub(interval_ns));
            }
        })?;
    // Before the others compute: this thread would get a processor rarely.
    let bare = ThreadStat::find(BARE_NAME)?.context("the loop has ended")?;
    all_started.wait();
    measure(&bare, settings)
}

/// Prints the use of a loop's thread, and ends the process.
fn measure(bare: &ThreadStat, settings: &Settings) -> Result<()> {
    thread::sleep(settings.settle);
    let begin = Instant::now();
    let before = bare.read()?;
    thread::sleep(settings.window);
    let after = bare.read()?;
    print_figure("wall_ns", begin.elapsed().as_nanos());
    print_figure("sampler_cpu_ns", after.cpu_ns - before.cpu_ns);
    print_figure("sampler_ticks", after.sleeps - before.sleeps);
    exit(0)
}

/// A loop that makes the system calls of a sampler for two busy threads, without taking a stack: at each tick and for
/// each thread its CPU clock, its scheduler statistics, and a timer.
pub(crate) fn run_calls(settings: &Settings) -> Result<()> {
    let (sender, started) = channel();
    for _ in 0..settings.threads {
        let sender = sender.clone();
        thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // The loop may have failed.
                let _ = sender.send(gettid());
                spin_forever(NICE_EQUAL)
            })?;
    }
    let ids: Vec<Pid> = started.iter().take(settings.threads).collect();
    let interval_ns = SECOND_NS / u64::from(settings.hertz);
    thread::Builder::new()
        .name(BARE_NAME.into())
        .spawn(move || {
            let Err(error) = call_forever(&ids, interval_ns);
            eprintln!("error: {error:#}");
            exit(1)
        })?;
    let bare = ThreadStat::find(BARE_NAME)?.context("the loop has ended")?;
    measure(&bare, settings)
}

fn call_forever(ids: &[Pid], interval_ns: u64) -> Result<Infallible> {
    let mut called = Vec::new();
    for id in ids {
        called.push(Called::new(*id)?);
    }
    let mut due_ns = now_ns();
    loop {
        due_ns += interval_ns;
        sleep_until(due_ns);
        for thread in &mut called {
            thread.call()?;
        }
        due_ns = due_ns.max(now_ns().saturating_sub(interval_ns));
    }
}

/// A thread for which a loop makes system calls.
struct Called {
    clock: nix::time::ClockId,
    schedstat: File,
    timer: Timer,
}

impl Called {
    fn new(id: Pid) -> Result<Called> {
        // The kernel's number of the CPU clock of a thread.
        const OF_THREAD: i32 = 6;
        let clock = nix::time::ClockId::from_raw((!id.as_raw() << 3) | OF_THREAD);
        let schedstat = File::open(format!("/proc/self/task/{id}/schedstat"))?;
        let timer = Timer::new(clock, SigEvent::new(SigevNotify::SigevNone))?;
        Ok(Called {
            clock,
            schedstat,
            timer,
        })
    }

    fn call(&mut self) -> Result<()> {
        let mut text = [0; 128];
        black_box(self.clock.now()?);
        black_box(self.schedstat.read_at(&mut text, 0)?);
        let soon = TimeSpec::nanoseconds(1);
        self.timer
            .set(Expiration::OneShot(soon), TimerSetTimeFlags::empty())?;
        Ok(())
    }
}

/// Keeps one processor from idling, at the lowest priority, until the process is killed: the cost of a
/// wake-up depends on whether the processor slept.
pub(crate) fn keep_awake() -> Result<()> {
    spin_forever(NICE_MAX)
}

fn wake_forever(index: u64, count: u64, interval_ns: u64) -> ! {
    let period_ns = interval_ns * count.div_ceil(WAKING_PER_TICK_MAX);
    let mut due_ns = now_ns() + period_ns * index / count;
    loop {
        sleep_until(due_ns);
        WAKES.fetch_add(1, Ordering::Relaxed);
        // Long enough to move the thread's CPU clock.
        black_box(work::unit(index));
        due_ns += period_ns;
    }
}

fn spin_forever(niceness: i32) -> ! {
    // If this fails, the thread keeps its priority.
    let _ = nice(niceness);
    loop {
        black_box(work::spin(1));
    }
}

fn now_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

fn ns_of(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * SECOND_NS + part(now.tv_nsec)
}

fn sleep_until(due_ns: u64) {
    let due = Duration::from_nanos(due_ns);
    let seconds = i64::try_from(due.as_secs()).unwrap_or(i64::MAX);
    let due = Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(due.subsec_nanos()),
    };
    // A signal ends it early, which costs one period.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &due);
}
