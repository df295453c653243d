//! Threads that live some milliseconds: the sampler sees them late or never, and their time belongs to
//! their tasks all the same. The threads measure the truth themselves.

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
use std::ops::AddAssign;
use std::thread;
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, Recording, task};
use nix::time::ClockId;
use profiler_core::{FrameKind, State, Weight};

use common::{TURN, lock, work};

const TASKS: [&str; 6] = ["parse", "plan", "read", "join", "sort", "write"];

/// A thread's clocks.
#[derive(Clone, Copy)]
struct Reading {
    at: Instant,
    cpu_ns: u64,
}

impl Reading {
    fn now() -> Reading {
        Reading {
            at: Instant::now(),
            cpu_ns: own_cpu_ns(),
        }
    }

    /// The time since then.
    fn time(self) -> Time {
        let elapsed_ns = u64::try_from(self.at.elapsed().as_nanos()).unwrap();
        Time {
            cpu_ns: own_cpu_ns() - self.cpu_ns,
            elapsed_ns,
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Time {
    cpu_ns: u64,
    elapsed_ns: u64,
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        self.cpu_ns += other.cpu_ns;
        self.elapsed_ns += other.elapsed_ns;
    }
}

/// Time of one task as its threads measured it, inside of it and around it. A thread that loses its
/// processor between a reading and the task's start or end makes these differ.
#[derive(Clone, Copy, Default, Debug)]
struct Truth {
    inside: Time,
    around: Time,
}

impl AddAssign for Truth {
    fn add_assign(&mut self, other: Truth) {
        self.inside += other.inside;
        self.around += other.around;
    }
}

type Truths = BTreeMap<&'static str, Truth>;

/// A small generator of numbers, so that each run has the same shape.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn own_cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    u64::try_from(Duration::from(time).as_nanos()).unwrap()
}

/// Runs one task: some work, and some of the time a wait.
fn run_task(name: &'static str, work_for: Duration, wait_for: Duration) -> Truth {
    let before = Reading::now();
    let task = task(name).start();
    let begin = Reading::now();
    work(work_for);
    if !wait_for.is_zero() {
        thread::sleep(wait_for);
    }
    let inside = begin.time();
    drop(task);
    Truth {
        inside,
        around: before.time(),
    }
}

/// The life of one thread: `tasks` of them, up to `life` together.
fn live(seed: u64, life: Duration, tasks: u64) -> Vec<(&'static str, Truth)> {
    let mut numbers = Numbers(seed | 1);
    // Nearby seeds differ only after some steps.
    for _ in 0..8 {
        let _ = numbers.below(2);
    }
    let tasks = (0..tasks).map(|_| {
        let name = TASKS[numbers.below(6) as usize];
        let length = life / u32::try_from(tasks).unwrap();
        let percent = u32::try_from(numbers.below(100)).unwrap();
        let worked = length * percent / 100;
        let waited = if percent > 80 {
            Duration::ZERO
        } else {
            length - worked
        };
        (name, run_task(name, worked, waited))
    });
    tasks.collect()
}

/// Starts threads one after the other, in a few lanes, until `length` has passed.
fn start_threads(length: Duration, life_of: fn(&mut Numbers) -> (Duration, u64)) -> Truths {
    let begin = Instant::now();
    let lane = |seed: u64| {
        let mut numbers = Numbers(seed);
        let mut sums = Truths::new();
        while begin.elapsed() < length {
            let (life, tasks) = life_of(&mut numbers);
            let seed = numbers.below(u64::MAX);
            let thread = thread::spawn(move || live(seed, life, tasks));
            for (name, truth) in thread.join().unwrap() {
                *sums.entry(name).or_default() += truth;
            }
        }
        sums
    };
    let mut all = Truths::new();
    thread::scope(|threads| {
        let lanes: Vec<_> = (1..=3)
            .map(|seed| threads.spawn(move || lane(seed * 7_919)))
            .collect();
        for lane in lanes {
            for (name, truth) in lane.join().unwrap() {
                *all.entry(name).or_default() += truth;
            }
        }
    });
    all
}

/// They have no guards, so only the CPU clock of the process knows of most of them.
#[test]
fn threads_that_nobody_sees_are_in_the_default_task() {
    let _turn = lock(&TURN);
    let agent = AgentBuilder::default()
        .default_task("program")
        .start_local()
        .unwrap();
    let before_ns = process_cpu_ns();
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline {
        let short = thread::spawn(|| work(Duration::from_micros(500)));
        short.join().unwrap();
    }
    let used_ns = process_cpu_ns() - before_ns;
    let recording = agent.finish();
    let counted_ns = recording.profile.total().get(State::Cpu);
    assert!(
        counted_ns.abs_diff(used_ns) < used_ns / 20 + 50_000_000,
        "{counted_ns} of {used_ns}"
    );
}

fn by_task(recording: &Recording) -> BTreeMap<String, Weight> {
    let tops = recording.profile.top_level();
    tops.map(|(frame, weight)| (frame.function.to_owned(), weight))
        .collect()
}

/// Durations by task, from rows and from sums of tasks without a row.
fn ledger(recording: &Recording) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for task in &recording.tasks {
        let duration_ns = task.stop.unwrap().since_ns(task.start);
        *sums.entry(task.name.to_string()).or_default() += duration_ns;
    }
    for sum in &recording.totals {
        *sums.entry(sum.name.to_string()).or_default() += sum.duration_ns;
    }
    sums
}

/// The part of a sum that may be missing or too much.
#[derive(Clone, Copy)]
struct Tolerance {
    percent: u64,
}

/// Of threads that measure themselves.
const YOUNG: Tolerance = Tolerance { percent: 2 };

/// Asserts that `found_ns` is in the range.
fn assert_within(
    what: &str,
    found_ns: u64,
    inside_ns: u64,
    around_ns: u64,
    Tolerance { percent }: Tolerance,
) {
    let least = inside_ns - inside_ns * percent / 100;
    let most = around_ns + around_ns * percent / 100;
    assert!(
        (least..=most).contains(&found_ns),
        "{what}: {found_ns} ns, not {least} to {most} ns"
    );
}

/// Profile, ledger and truth agree for every task.
fn check(life_of: fn(&mut Numbers) -> (Duration, u64), tolerance: Tolerance) -> Recording {
    let _turn = lock(&TURN);
    let agent = AgentBuilder::default().start_local().unwrap();
    let truth = start_threads(Duration::from_secs(4), life_of);
    let recording = agent.finish();
    let profile = by_task(&recording);
    let ledger = ledger(&recording);
    for (name, truth) in truth {
        let weight = profile[name];
        let Truth { inside, around } = truth;
        let cpu_ns = weight.get(State::Cpu);
        let elapsed_ns = weight.total_ns();
        assert_within(
            &format!("CPU of {name}"),
            cpu_ns,
            inside.cpu_ns,
            around.cpu_ns,
            tolerance,
        );
        let what = format!("elapsed time of {name}");
        assert_within(
            &what,
            elapsed_ns,
            inside.elapsed_ns,
            around.elapsed_ns,
            tolerance,
        );
        let unknown_ns = around.elapsed_ns - inside.elapsed_ns;
        let what = format!("ledger of {name}");
        assert_within(
            &what,
            ledger[name],
            elapsed_ns - unknown_ns,
            elapsed_ns + unknown_ns,
            tolerance,
        );
    }
    recording
}

#[test]
fn a_thread_of_a_few_milliseconds_keeps_its_time() {
    let life_of = |numbers: &mut Numbers| (Duration::from_micros(1_000 + numbers.below(8_000)), 1);
    let recording = check(life_of, YOUNG);
    let profile = &recording.profile;
    let reasons: Vec<String> = profile
        .nodes()
        .iter()
        .filter_map(|node| {
            let frame = profile.frame(node.frame);
            (frame.kind == FrameKind::NoStack && !node.own.is_zero()).then(|| frame.label())
        })
        .collect();
    assert!(
        reasons.iter().any(|it| it == "[no stack: short thread]"),
        "{reasons:?}"
    );
}

#[test]
fn a_thread_of_fifty_milliseconds_keeps_its_time() {
    check(
        |numbers| (Duration::from_micros(40_000 + numbers.below(10_000)), 1),
        YOUNG,
    );
}

#[test]
fn several_tasks_of_a_short_thread_keep_their_times() {
    check(
        |numbers| {
            (
                Duration::from_micros(5_000 + numbers.below(25_000)),
                1 + numbers.below(5),
            )
        },
        YOUNG,
    );
}

/// A young thread becomes an old one in the middle of a task, and ends in the middle of a tick.
#[test]
fn a_thread_that_outlives_its_youth_keeps_its_time() {
    // The end of its task is between two samples. With ten other programs, 30 ms of half a second are there.
    let tolerance = Tolerance { percent: 12 };
    check(
        |numbers| (Duration::from_micros(400_000 + numbers.below(300_000)), 1),
        tolerance,
    );
}

/// CPU time of all threads of the process.
fn process_cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    u64::try_from(Duration::from(time).as_nanos()).unwrap()
}

#[test]
fn time_of_threads_that_nobody_sees_is_lost_with_a_count() {
    let _turn = lock(&TURN);
    let agent = AgentBuilder::default().start_local().unwrap();
    let before_ns = process_cpu_ns();
    let before = Reading::now();
    for _ in 0..1_000 {
        // Without a task. It ends before most ticks.
        thread::spawn(|| work(Duration::from_millis(2)))
            .join()
            .unwrap();
    }
    let own = before.time();
    let used_ns = process_cpu_ns() - before_ns;
    let recording = agent.finish();
    let cpu_ns = |weight: Weight| weight.get(State::Cpu);
    let seen_ns = recording
        .profile
        .top_level()
        .map(|(_, weight)| cpu_ns(weight))
        .sum::<u64>();
    let agent_ns = cpu_ns(by_task(&recording)["[agent]"]);
    let lost_ns = recording.lost_unseen_ns;
    assert!(lost_ns > used_ns / 10, "{lost_ns} of {used_ns} ns");
    // Lost time is thread time: while such a thread waits for a processor, the process uses no CPU time.
    // One of them exists at a time.
    let most_ns = (own.elapsed_ns + own.cpu_ns).max(used_ns);
    assert_within(
        "CPU time of the process",
        seen_ns + lost_ns,
        used_ns,
        most_ns + agent_ns,
        YOUNG,
    );
}
