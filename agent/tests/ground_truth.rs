//! Forty functions in six tasks on six threads for each processor. Each function reads
//! the kernel's clocks when it begins: how long its thread ran, waited for a processor and was blocked
//! in the one before. The profile is compared with these sums by function and by task.

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

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::ops::AddAssign;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, task};
use nix::time::{ClockId, clock_gettime};
use profiler_core::{NodeId, Profile, State, Weight};

use common::{CrowdRun, run_crowd};

const LENGTH: Duration = Duration::from_secs(10);
const TASKS: [&str; 6] = ["parse", "plan", "read", "join", "sort", "write"];
/// Largest part of the time that may be at other functions than the truth says.
const DISTANCE_MAX: f64 = 0.10;
/// Largest error of a task's time, and of its time in one state: each change of task is known to half
/// the distance of two samples, and a task here has some three hundred of 30 ms.
const TASK_ERROR_MAX: f64 = 0.05;
const TASK_STATE_ERROR_MAX: f64 = 0.10;
/// On processors that others use too, a thread gets one for shorter and later, and the agent sees less
/// of it: each bound grows by this much of the part that others take.
const ERROR_OF_OTHERS: f64 = 0.40;
/// Most rounds of ten seconds that are summed.
const ROUNDS_MAX: usize = 6;

type Function = (&'static str, fn(&mut Worker, Duration));

/// Functions of one kind under names of their own. Each has a number, or the linker would merge them.
macro_rules! functions {
    ($list:ident = $kind:ident: $($name:ident $number:literal),*) => {
        $(
            #[inline(never)]
            fn $name(worker: &mut Worker, length: Duration) {
                worker.enter(stringify!($name));
                $kind(length);
                black_box($number);
            }
        )*
        const $list: &[Function] = &[$((stringify!($name), $name)),*];
    };
}
functions!(COMPUTING = compute:
    count_00 0, count_01 1, count_02 2, count_03 3, count_04 4, count_05 5, count_06 6, count_07 7,
    count_08 8, count_09 9, count_10 10, count_11 11, count_12 12, count_13 13, count_14 14,
    count_15 15, count_16 16, count_17 17, count_18 18, count_19 19, count_20 20, count_21 21,
    count_22 22, count_23 23);
functions!(SLEEPING = sleep:
    sleep_00 100, sleep_01 101, sleep_02 102, sleep_03 103, sleep_04 104, sleep_05 105, sleep_06 106,
    sleep_07 107);
functions!(LOCKING = wait_for_lock:
    lock_00 200, lock_01 201, lock_02 202, lock_03 203, lock_04 204, lock_05 205, lock_06 206,
    lock_07 207);

#[inline(always)]
fn compute(length: Duration) {
    let rounds = u64::try_from(length.as_micros()).unwrap();
    let mut sum = 1u64;
    for _ in 0..rounds * 300 {
        sum = black_box(sum.wrapping_mul(31));
    }
}

#[inline(always)]
fn sleep(length: Duration) {
    thread::sleep(length);
}

/// Waits in vain for a condition.
#[inline(always)]
fn wait_for_lock(length: Duration) {
    let never = Mutex::new(());
    let condition = Condvar::new();
    let waited = condition
        .wait_timeout(never.lock().unwrap(), length)
        .unwrap();
    black_box(waited.1.timed_out());
}

/// Nanoseconds of a thread on a processor, waiting for one, and neither.
#[derive(Clone, Copy, Default, Debug)]
struct Time {
    cpu: u64,
    runnable: u64,
    blocked: u64,
}

impl Time {
    fn total(&self) -> u64 {
        self.cpu + self.runnable + self.blocked
    }
}

impl From<Weight> for Time {
    fn from(weight: Weight) -> Time {
        let cpu = weight.get(State::Cpu);
        let runnable = weight.get(State::Runnable);
        Time {
            cpu,
            runnable,
            blocked: weight.total_ns() - cpu - runnable,
        }
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        self.cpu += other.cpu;
        self.runnable += other.runnable;
        self.blocked += other.blocked;
    }
}

type Times = BTreeMap<&'static str, Time>;

#[derive(Default)]
struct Account {
    functions: Times,
    tasks: Times,
}

impl Account {
    fn add(&mut self, other: Account) {
        for (name, time) in other.functions {
            *self.functions.entry(name).or_default() += time;
        }
        for (name, time) in other.tasks {
            *self.tasks.entry(name).or_default() += time;
        }
    }
}

/// A thread that measures itself.
struct Worker {
    schedstat: File,
    task: &'static str,
    function: &'static str,
    /// The clocks when it entered the function.
    since: Reading,
    truth: Account,
}

/// A reading of a thread's clocks.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    runnable: u64,
    cpu: u64,
}

impl Worker {
    fn new() -> Worker {
        let schedstat = File::open("/proc/thread-self/schedstat").unwrap();
        let since = Worker::read(&schedstat);
        Worker {
            schedstat,
            task: "",
            function: "",
            since,
            truth: Account::default(),
        }
    }

    /// A thread may lose its processor at the end of a system call. That wait belongs to what comes
    /// after the reading, so the time is read first.
    #[inline(always)]
    fn read(schedstat: &File) -> Reading {
        let at = Instant::now();
        let mut text = [0; 128];
        let length = schedstat.read_at(&mut text, 0).unwrap();
        let text = std::str::from_utf8(&text[..length]).unwrap();
        let runnable = text.split(' ').nth(1).unwrap().parse().unwrap();
        let cpu = Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        Reading {
            at,
            runnable,
            cpu: nanoseconds(cpu),
        }
    }

    /// The function before ends, and this one begins. Inlined, so that a wait in here is a wait in the
    /// function.
    #[inline(always)]
    fn enter(&mut self, function: &'static str) {
        let now = Worker::read(&self.schedstat);
        let elapsed = nanoseconds(now.at - self.since.at);
        let cpu = now.cpu - self.since.cpu;
        let runnable = now.runnable - self.since.runnable;
        let time = Time {
            cpu,
            runnable,
            blocked: elapsed.saturating_sub(cpu + runnable),
        };
        if !self.function.is_empty() {
            *self.truth.functions.entry(self.function).or_default() += time;
            *self.truth.tasks.entry(self.task).or_default() += time;
        }
        self.function = function;
        self.since = now;
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn function(&mut self) -> Function {
        let functions = [COMPUTING, COMPUTING, SLEEPING, LOCKING][self.below(4)];
        functions[self.below(functions.len())]
    }
}

/// Runs tasks of some functions each, by chance.
fn run(seed: u64) -> Account {
    let mut worker = Worker::new();
    let mut random = Random(seed * 7_919 + 1);
    let begin = Instant::now();
    while begin.elapsed() < LENGTH {
        let name = TASKS[random.below(TASKS.len())];
        let _task = task(name).start();
        for index in 0..1 + random.below(12) {
            let (_, function) = random.function();
            function(
                &mut worker,
                Duration::from_micros(500 + random.below(9_500) as u64),
            );
            if index == 0 {
                // Not before: that ended the last function of the task before.
                worker.task = name;
            }
        }
    }
    worker.enter("");
    worker.truth
}

fn by_function(profile: &Profile) -> Times {
    let functions: Vec<_> = [COMPUTING, SLEEPING, LOCKING].concat();
    let mut times = Times::new();
    let mut above: Vec<Option<&'static str>> = vec![None];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let called = functions
            .iter()
            .find(|(name, _)| label.contains(name))
            .map(|(name, _)| *name);
        let function = above[node.parent.index()].or(called);
        if let Some(name) = function {
            *times.entry(name).or_default() += Time::from(node.own);
        }
        above.push(function);
    }
    times
}

fn by_task(profile: &Profile) -> Times {
    let mut times = Times::new();
    let mut above: Vec<Option<&'static str>> = vec![None];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let named = TASKS
            .into_iter()
            .find(|name| node.parent == NodeId::ROOT && *name == label);
        let task = above[node.parent.index()].or(named);
        if let Some(name) = task {
            *times.entry(name).or_default() += Time::from(node.own);
        }
        above.push(task);
    }
    times
}

/// The part of the time that the profile has at other functions than the truth.
fn distance(truth: &Times, found: &Times, of: fn(&Time) -> u64) -> f64 {
    let sum = |times: &Times| times.values().map(of).sum::<u64>() as f64;
    let part =
        |times: &Times, name| times.get(name).map_or(0.0, |time| of(time) as f64) / sum(times);
    truth
        .keys()
        .map(|name| (part(truth, name) - part(found, name)).abs() / 2.0)
        .sum()
}

/// The largest error of a task, as a part of its true time.
fn largest_error(truth: &Times, found: &Times, of: fn(&Time) -> u64) -> f64 {
    let error = |name| of(&found[name]) as f64 / of(&truth[name]) as f64 - 1.0;
    truth
        .keys()
        .map(|name| error(name).abs())
        .fold(0.0, f64::max)
}

/// A kind of time, and what part of a time it is.
type Kind = (&'static str, fn(&Time) -> u64);

/// How far the profile is from the truth in one kind of time.
struct Distance {
    kind: &'static str,
    by_function: f64,
    /// The largest error of a task.
    by_task: f64,
}

/// Rounds of the same work, summed.
#[derive(Default)]
struct Rounds {
    truth: Account,
    found: Account,
}

impl Rounds {
    /// Runs once more. Returns the part of the processors that other programs took.
    fn add_round(&mut self) -> f64 {
        let agent = AgentBuilder::default().start_local().unwrap();
        let CrowdRun { results, others } = run_crowd(run);
        results.into_iter().for_each(|truth| self.truth.add(truth));
        let recording = agent.finish();
        assert_eq!(self.truth.functions.len(), 40);
        assert_eq!(self.truth.tasks.len(), 6);
        let functions = by_function(&recording.profile);
        let tasks = by_task(&recording.profile);
        self.found.add(Account { functions, tasks });
        others
    }

    fn distances(&self) -> [Distance; 4] {
        let kinds: [Kind; 4] = [
            ("on a processor", |time| time.cpu),
            ("waiting for one", |time| time.runnable),
            ("blocked", |time| time.blocked),
            ("in all", Time::total),
        ];
        kinds.map(|(kind, of)| {
            let by_function = distance(&self.truth.functions, &self.found.functions, of);
            let by_task = largest_error(&self.truth.tasks, &self.found.tasks, of);
            println!(
                "{kind}: distance by function {by_function:.3}, largest error of a task {by_task:.3}"
            );
            Distance { kind, by_function, by_task }
        })
    }
}

/// Other programs take processor time from the sampler, and a round is short. In the sum of rounds
/// chance matters less, and an error that repeats stays.
#[test]
fn functions_and_tasks_have_the_time_that_the_kernel_counted() {
    let is_near = |distances: &[Distance; 4], others: f64| {
        let allowed = ERROR_OF_OTHERS * others;
        distances.iter().all(|distance| {
            let task_error_max = if distance.kind == "in all" {
                TASK_ERROR_MAX
            } else {
                TASK_STATE_ERROR_MAX
            };
            distance.by_function <= DISTANCE_MAX + allowed
                && distance.by_task <= task_error_max + allowed
        })
    };
    let mut rounds = Rounds::default();
    let mut others_sum = 0.0;
    let is_found = (1..=ROUNDS_MAX).any(|round| {
        others_sum += rounds.add_round();
        let others = others_sum / round as f64;
        println!("other programs took {others:.2} of the processors");
        is_near(&rounds.distances(), others)
    });
    assert!(
        is_found,
        "the sum of {ROUNDS_MAX} rounds is not near the truth"
    );
}
