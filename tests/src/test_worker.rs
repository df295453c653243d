//! A worker whose every move is known, for the whole-system tests. It embeds the agent as a user
//! would and keeps its own record, which it prints as one line of JSON when it ends.
//!
//! ```text
//! test-worker truth  ID URL SECONDS   three threads spend known shares of time in three functions
//! test-worker steady ID URL           works until its standard input ends
//! test-worker patient ID URL          likewise, and flushes for up to a minute
//! test-worker ending ID URL           likewise, within the default time, and tells how long its threads lived
//! test-worker attacked ID URL FLUSH_SECONDS
//!                                     runs 400 tasks and prints what the agent has cost; runs 100
//!                                     more when its standard input ends, and flushes
//! test-worker blocking ID URL         one thread works and blocks all signals, until its standard
//!                                     input ends
//! test-worker known  ID URL           three threads stay at known places until its standard input ends
//! test-worker stacks ID URL           64 threads wait in 256 known stacks until its standard input ends
//! test-worker deep   ID URL DEPTH     works at the bottom of a recursion of that depth, and before and after it
//! test-worker doomed ID URL           begins a task, prints `ready` once something was stored, and
//!                                     never ends by itself
//! test-worker expecting ID URL         expects four tasks, runs two and prints `half`; runs the others
//!                                     when its standard input ends
//! test-worker traced ID URL           tasks inside and across each other on one thread, with phases
//! test-worker slowing ID URL SECONDS  tasks of one name take three times as long in the second half, those
//!                                     of another one do not; tells when the halves began and ended
//! test-worker unseen ID URL           threads without a task, each of which lives for 2 ms
//! test-worker many   ID URL COUNT     runs so many tasks of four names, as fast as 30 µs each allow
//! test-worker clock  ID URL OFFSET_MS DRIFT_PPM LEAP_AFTER_MS LEAP_MS
//!                                     has a wrong clock and short tasks, whose real times it tells,
//!                                     until its standard input ends
//! test-worker sequence ID URL OFFSET_MS DRIFT_PPM LEAP_AFTER_MS LEAP_MS
//!                                     likewise, with tasks of one thread without gaps
//! test-worker reported ID URL FILE    40 tasks within a guard that writes a report of them, and others before
//!                                     and after it if there is an agent. In place of a URL: `none` for no
//!                                     agent, `exit` to exit within the guard when its
//!                                     standard input ends, `local` for a recording
//! ```

#[path = "test_worker/deep.rs"]
mod deep;
#[path = "test_worker/stacks.rs"]
mod stacks;

use std::collections::BTreeMap;
use std::io::{Read, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agent::{Agent, AgentBuilder, ClockShift, ShipReport};
use anyhow::{Context as _, Result, bail};
use nix::sys::signal::SigSet;
use serde_json::{Value, json};

/// For tests of other things than the time limit, which a busy machine exceeds.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// Part of a processor that the agent may use while 64 threads move ten times a second.
const STACKS_CPU_LIMIT: f64 = 0.2;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, worker, url, rest @ ..] = &arguments[..] else {
        bail!(
            "usage: test-worker truth|steady|patient|ending|attacked|blocking|known|stacks|deep|doomed|expecting|traced|slowing|unseen|many|clock|sequence|reported ID URL [NUMBERS]"
        );
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let seconds = || -> Result<Duration> {
        let text = rest.first().context("SECONDS is missing")?;
        Ok(Duration::from_secs_f64(text.parse()?))
    };
    let builder = Agent::builder()
        .collector(url)
        .worker(worker)
        .label("mode", mode);
    let record = match mode.as_str() {
        "truth" => {
            let agent = builder.flush_timeout(FLUSH_TIMEOUT).start()?;
            let threads = truth(seconds()?);
            let samples = agent.overhead().samples;
            json!({ "threads": threads, "samples": samples, "report": report(&agent.finish()) })
        }
        "steady" => {
            let agent = builder.start()?;
            let tasks = steady();
            json!({ "tasks": tasks, "report": report(&agent.finish()) })
        }
        "patient" => {
            let agent = builder.flush_timeout(FLUSH_TIMEOUT).start()?;
            let tasks = steady();
            json!({ "tasks": tasks, "report": report(&agent.finish()) })
        }
        "ending" => ending(builder)?,
        "attacked" => attacked(builder.flush_timeout(seconds()?).start()?),
        "unseen" => {
            let agent = builder.flush_timeout(FLUSH_TIMEOUT).start()?;
            unseen();
            json!({ "report": report(&agent.finish()) })
        }
        "blocking" => {
            let agent = builder.start()?;
            blocking();
            json!({ "report": report(&agent.finish()) })
        }
        "known" => {
            let agent = builder.start()?;
            known()?;
            json!({ "report": report(&agent.finish()) })
        }
        "stacks" => {
            // Enough to see each thread in each of its waits soon.
            let agent = builder.cpu_limit(STACKS_CPU_LIMIT).start()?;
            stacks::start();
            wait_for_end_of_input();
            json!({ "stacks": stacks::STACKS, "report": report(&agent.finish()) })
        }
        "deep" => {
            let depth = rest.first().context("DEPTH is missing")?.parse()?;
            let agent = builder.flush_timeout(FLUSH_TIMEOUT).start()?;
            deep::run(depth);
            json!({ "report": report(&agent.finish()) })
        }
        "doomed" => {
            let agent = builder.start()?;
            doomed(&agent)
        }
        "expecting" => {
            let agent = builder.start()?;
            expecting();
            json!({ "report": report(&agent.finish()) })
        }
        "traced" => {
            let agent = builder.start()?;
            traced();
            json!({ "report": report(&agent.finish()) })
        }
        "slowing" => {
            let agent = builder.start()?;
            let times = slowing(seconds()?);
            json!({ "times": times, "report": report(&agent.finish()) })
        }
        "many" => {
            let count = rest.first().context("COUNT is missing")?.parse()?;
            let builder = builder
                .task_rows_per_second(count)
                .flush_timeout(FLUSH_TIMEOUT);
            let agent = builder.start()?;
            many(count);
            json!({ "tasks": count, "report": report(&agent.finish()) })
        }
        "clock" => {
            let builder = builder
                .clock_shift(clock_shift(rest)?)
                .flush_timeout(FLUSH_TIMEOUT);
            let agent = builder.start()?;
            let times = short_tasks();
            json!({ "times": times, "report": report(&agent.finish()) })
        }
        "sequence" => {
            let builder = builder
                .clock_shift(clock_shift(rest)?)
                .flush_timeout(FLUSH_TIMEOUT);
            let agent = builder.start()?;
            let tasks = sequence();
            json!({ "tasks": tasks, "report": report(&agent.finish()) })
        }
        "reported" => {
            let file = rest.first().context("FILE is missing")?;
            reported(worker, url, file)?
        }
        other => bail!("no mode {other}"),
    };
    println!("{record}");
    Ok(())
}

fn report(report: &ShipReport) -> Value {
    json!({
        "epoch": report.epoch.to_string(),
        "accepted_ns": report.accepted_ns,
        "stored_ns": report.stored_ns,
        "unacked_ns": report.unacked_ns,
        "lost_rejected_ns": report.lost_rejected_ns,
        "lost_by_collector_ns": report.lost_by_collector_ns,
        "lost_queue_ns": report.lost_queue_ns,
        "lost_unseen_ns": report.lost_unseen_ns,
        "lost_tasks": report.lost_tasks,
        "lost_telemetry": report.lost_telemetry,
        "aggregated_tasks": report.aggregated_tasks,
        "connects": report.connects,
    })
}

/// Puts a guard around tasks, and tells what came of it.
fn reported(worker: &str, url: &str, file: &str) -> Result<Value> {
    let local = (url == "local")
        .then(|| AgentBuilder::default().start_local())
        .transpose()?;
    let is_url = !["none", "exit", "local"].contains(&url);
    let builder = Agent::builder()
        .collector(url)
        .worker(worker)
        .flush_timeout(FLUSH_TIMEOUT);
    if is_url {
        // Cycles begin late in a second, so one of them begins in the second before the guard.
        while unix_ns() % 1_000_000_000 < 900_000_000 {
            std::hint::spin_loop();
        }
    }
    let shipping = is_url.then(|| builder.start()).transpose()?;
    run_tasks("before");
    leave_second();
    let descriptors_before = descriptors()?;
    let guard = agent::report(file);
    let descriptors_inside = descriptors()?;
    run_tasks("inside");
    if url == "exit" {
        wait_for_end_of_input();
        std::process::exit(3);
    }
    let result = guard.finish();
    leave_second();
    run_tasks("after");
    drop(local);
    drop(shipping);
    Ok(json!({
        "tasks": 40,
        "written": result.as_ref().ok(),
        "error": result.as_ref().err().map(ToString::to_string),
        "descriptors_before": descriptors_before,
        "descriptors_inside": descriptors_inside,
    }))
}

fn run_tasks(name: &'static str) {
    for number in 0..40 {
        let _task = agent::task(name).key(number.to_string()).start();
        alpha(Duration::from_millis(5));
    }
}

/// Works until the middle of the next second: reports are about whole seconds, by the collector's clock.
fn leave_second() {
    let middle_of_next = (half_seconds() / 2 + 1) * 2 + 1;
    while half_seconds() < middle_of_next {
        beta(Duration::from_millis(5));
    }
}

fn half_seconds() -> i64 {
    unix_ns() / 500_000_000
}

/// Number of descriptors of this thread, without the one that reads their list.
fn descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/thread-self/fd")?.count() - 1)
}

/// Runs short tasks one after the other.
fn many(count: u32) {
    const NAMES: [&str; 4] = ["decode", "filter", "index", "write"];
    for number in 0..count {
        let _task = agent::task(NAMES[number as usize % NAMES.len()]).start();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(30) {
            std::hint::spin_loop();
        }
    }
}

/// Seconds by task and function, one map per thread, as measured by the threads.
fn truth(length: Duration) -> Vec<BTreeMap<String, f64>> {
    let threads: Vec<_> = [("one", 1), ("one", 2), ("two", 3)]
        .into_iter()
        .map(|(task, seed)| thread::spawn(move || spend(task, seed, length)))
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().expect("it does not panic"))
        .collect()
}

/// Most of these threads end before a tick.
fn unseen() {
    for _ in 0..1_000 {
        let thread = thread::spawn(|| alpha(Duration::from_millis(2)));
        thread.join().expect("it does not panic");
    }
}

/// Spends half of the time in `alpha`, three tenths in `beta`, two tenths in `gamma`, in slices of
/// random length: slices of fixed length could align with the sampler.
fn spend(task: &str, seed: u64, length: Duration) -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    let mut random = Random(seed);
    let begin = Instant::now();
    while begin.elapsed() < length {
        let _task = agent::task(task).key(format!("{task}-{seed}")).start();
        let scale = random.below(50) + 10;
        for (name, function, share) in [
            ("alpha", alpha as fn(Duration) -> u64, 50),
            ("beta", beta, 30),
            ("gamma", gamma, 20),
        ] {
            let slice = Duration::from_micros(scale * share * 20);
            let from = Instant::now();
            std::hint::black_box(function(slice));
            *seconds.entry(format!("{task}/{name}")).or_default() += from.elapsed().as_secs_f64();
        }
    }
    seconds
}

/// A function that works for a time in its own body, without calls (an inlined one would be the
/// innermost frame). Each has its own constant, or the linker would merge them.
macro_rules! worker_function {
    ($name:ident, $seed:literal) => {
        #[inline(never)]
        fn $name(slice: Duration) -> u64 {
            let begin = Instant::now();
            let mut state: u64 = $seed;
            while begin.elapsed() < slice {
                let mut round = 0;
                while round < 20_000 {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    round += 1;
                }
            }
            state
        }
    };
}
worker_function!(alpha, 3);
worker_function!(beta, 5);
worker_function!(gamma, 7);

/// Works until standard input ends; returns the number of tasks that it ran.
fn steady() -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..2u64)
        .map(|seed| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut random = Random(seed + 1);
                let mut tasks = 0;
                while !stop.load(Ordering::Acquire) {
                    let _task = agent::task("steady").key(format!("{seed}-{tasks}")).start();
                    alpha(Duration::from_micros(random.below(500)));
                    // Mostly idle: eight of these share two CPUs with the rest of the test.
                    thread::sleep(Duration::from_micros(random.below(20_000)));
                    tasks += 1;
                }
                tasks
            })
        })
        .collect();
    wait_for_end_of_input();
    stop.store(true, Ordering::Release);
    threads
        .into_iter()
        .map(|thread| thread.join().expect("it does not panic"))
        .sum()
}

/// Works until standard input ends. Returns also the least and the most time that its threads can have lived under the
/// agent: this one and the agent's, and two that work.
fn ending(builder: AgentBuilder) -> Result<Value> {
    let starting = Instant::now();
    let agent = builder.start()?;
    let started = Instant::now();
    let threads = u32::try_from(std::fs::read_dir("/proc/self/task")?.count())? + 2;
    steady();
    let least = started.elapsed() * threads;
    let finishing = Instant::now();
    let report = report(&agent.finish());
    // A thread of the agent may have started later.
    let most = starting.elapsed() * (threads + 1);
    Ok(json!({
        "report": report,
        "finish_ms": finishing.elapsed().as_millis(),
        "lived_least_ns": least.as_nanos() as u64,
        "lived_most_ns": most.as_nanos() as u64,
    }))
}

/// Runs tasks under attack, and some after it.
fn attacked(agent: Agent) -> Value {
    let begin = Instant::now();
    run_numbered(0..400);
    let attacked_ms = begin.elapsed().as_millis();
    let overhead = agent.overhead();
    let wakeups = overhead.shipper_wakeups;
    // Names are found once, whatever the collector does.
    let shipping_cpu_ns = overhead.other_cpu_ns - overhead.naming_cpu_ns;
    let cpu_ms = (overhead.sampler_cpu_ns + shipping_cpu_ns) / 1_000_000;
    println!(
        "{}",
        json!({ "wakeups": wakeups, "cpu_ms": cpu_ms, "attacked_ms": attacked_ms })
    );
    wait_for_end_of_input();
    run_numbered(400..500);
    let finishing = Instant::now();
    let report = report(&agent.finish());
    json!({ "report": report, "finish_ms": finishing.elapsed().as_millis() })
}

fn run_numbered(numbers: std::ops::Range<u64>) {
    for number in numbers {
        let _task = agent::task("attacked").key(number.to_string()).start();
        alpha(Duration::from_micros(200));
        thread::sleep(Duration::from_millis(10));
    }
}

/// One thread waits for a lock, one sleeps, one spins in tasks, all in named functions.
fn known() -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock();
    let locked = {
        let lock = lock.clone();
        named("locked").spawn(move || waits_for_lock(&lock))?
    };
    // Sleeps until the process ends.
    named("sleeper").spawn(sleeps)?;
    let spinner = {
        let stop = stop.clone();
        named("spinner").spawn(move || spins(&stop))?
    };
    wait_for_end_of_input();
    stop.store(true, Ordering::Release);
    drop(held);
    for thread in [locked, spinner] {
        thread.join().expect("it does not panic");
    }
    Ok(())
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned())
}

#[inline(never)]
fn waits_for_lock(lock: &Mutex<()>) {
    let _task = agent::task("guarded").start();
    std::hint::black_box(lock.lock().is_ok());
}

#[inline(never)]
fn sleeps() {
    thread::sleep(Duration::from_secs(86_400));
    std::hint::black_box(1);
}

#[inline(never)]
fn spins(stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let _task = agent::task("spin").start();
        alpha(Duration::from_millis(50));
    }
}

fn doomed(agent: &Agent) -> ! {
    let _task = agent::task("doomed").key("doomed-1").start();
    while agent.report().stored_ns == 0 {
        alpha(Duration::from_millis(5));
    }
    println!("ready");
    loop {
        beta(Duration::from_millis(5));
    }
}

fn expecting() {
    agent::expect_tasks("load", 4);
    for number in 0..4 {
        if number == 2 {
            println!("half");
            wait_for_end_of_input();
        }
        drop(agent::task("load").key(format!("load-{number}")).start());
    }
}

/// Twenty tasks that waited, each with phases and a child task; then three futures, all started at
/// once, each of which ends before the next.
fn traced() {
    for number in 0..20 {
        let queued = Instant::now();
        work();
        let mut task = agent::task("outer")
            .key(format!("outer \"{number}\"\n"))
            .attempt(2)
            .label("part", number.to_string())
            .queued_since(queued)
            .start();
        {
            let _phase = agent::phase(agent::Phase::Transfer);
            work();
            drop(agent::task("inner").key("inner").start());
        }
        let _phase = agent::phase("check");
        work();
        task.result_bytes(number);
    }
    let turns = |mut left: u32| {
        std::future::poll_fn(move |_| match left {
            0 => Poll::Ready(()),
            _ => {
                left -= 1;
                Poll::Pending
            }
        })
    };
    let future = |left| Box::pin(agent::task("future").key("future").future(turns(left)));
    let mut futures: Vec<_> = (1..4).map(future).collect();
    let mut context = Context::from_waker(Waker::noop());
    while !futures.is_empty() {
        work();
        futures.retain_mut(|future| future.as_mut().poll(&mut context).is_pending());
    }
}

fn work() -> u64 {
    std::hint::black_box(alpha(Duration::from_micros(200)))
}

fn clock_shift(arguments: &[String]) -> Result<ClockShift> {
    let numbers: Vec<i64> = arguments
        .iter()
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let [offset_ms, drift_ppm, leap_after_ms, leap_ms] = numbers[..] else {
        bail!("four numbers are needed: OFFSET_MS DRIFT_PPM LEAP_AFTER_MS LEAP_MS");
    };
    Ok(ClockShift {
        offset_ns: offset_ms * 1_000_000,
        drift_ppm: drift_ppm.try_into()?,
        leap: Some((milliseconds(leap_after_ms)?, milliseconds(leap_ms)?)),
    })
}

fn milliseconds(number: i64) -> Result<Duration, std::num::TryFromIntError> {
    u64::try_from(number).map(Duration::from_millis)
}

/// Two tasks of a thread that blocks all signals.
fn blocking() {
    let stop = Arc::new(AtomicBool::new(false));
    let working = {
        let stop = stop.clone();
        thread::spawn(move || {
            SigSet::all().thread_block().expect("a valid mask");
            while !stop.load(Ordering::Acquire) {
                for name in ["blocked one", "blocked two"] {
                    let _task = agent::task(name).start();
                    alpha(Duration::from_millis(100));
                }
            }
        })
    };
    wait_for_end_of_input();
    stop.store(true, Ordering::Release);
    working.join().expect("it does not panic");
}

/// Tasks of one thread without a gap between them. Returns their number.
fn sequence() -> u64 {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = {
        let stop = stop.clone();
        thread::spawn(move || {
            let mut tasks = 0;
            while !stop.load(Ordering::Acquire) {
                let _task = agent::task("step").start();
                thread::sleep(Duration::from_millis(2));
                tasks += 1;
            }
            tasks
        })
    };
    wait_for_end_of_input();
    stop.store(true, Ordering::Release);
    tasks.join().expect("it does not panic")
}

/// Runs tasks in two halves of this length. In the second, each `slows` takes three times as long. Tasks
/// sleep, because they would compete for processors with everything else on the machine. Returns when the
/// halves began, and when the second ended.
fn slowing(half: Duration) -> [i64; 3] {
    let mut random = Random(1);
    let mut run = |factor: u32| {
        let begin = Instant::now();
        while begin.elapsed() < half {
            let length = Duration::from_micros(15_000 + random.below(5_000));
            let task = agent::task("slows").start();
            std::hint::black_box(alpha(Duration::from_micros(200)));
            thread::sleep(length * factor);
            drop(task);
            let _task = agent::task("stays").start();
            std::hint::black_box(alpha(Duration::from_micros(200)));
            thread::sleep(length);
        }
    };
    let begin = unix_ns();
    run(1);
    let middle = unix_ns();
    run(3);
    [begin, middle, unix_ns()]
}

fn unix_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Real times before and after the start, and before and after the end, of each task.
fn short_tasks() -> Vec<[i64; 4]> {
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = {
        let stop = stop.clone();
        thread::spawn(move || {
            let mut times = Vec::new();
            while !stop.load(Ordering::Acquire) {
                let before = unix_ns();
                let task = agent::task("tick").key(times.len().to_string()).start();
                let after = unix_ns();
                thread::sleep(Duration::from_millis(5));
                let before_end = unix_ns();
                drop(task);
                times.push([before, after, before_end, unix_ns()]);
                thread::sleep(Duration::from_millis(20));
            }
            times
        })
    };
    wait_for_end_of_input();
    stop.store(true, Ordering::Release);
    tasks.join().expect("it does not panic")
}

fn wait_for_end_of_input() {
    let mut byte = [0];
    while matches!(stdin().read(&mut byte), Ok(1)) {}
}

/// A small generator (xorshift64*; its state is never 0), so that a run can be repeated from its
/// seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }
}
