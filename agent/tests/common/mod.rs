//! Shared by tests of the agent: turns, functions that use CPU time, and the attribution of samples.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use emberline_agent::{AgentBuilder, LocalAgent, Recording};
use nix::time::ClockId;
use profiler_core::{NodeId, Outcome, Profile, Weight};

/// One process has one agent.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// Locks, also after another test failed with the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Polls until `is_so`; fails after a minute.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "waited in vain for {what}"
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub(crate) fn start() -> (LocalAgent, MutexGuard<'static, ()>) {
    let turn = lock(&TURN);
    (AgentBuilder::default().start_local().unwrap(), turn)
}

/// Polls once, so that the test determines the thread.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Yields once.
pub(crate) async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut paused, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Uses `length` of CPU time, which takes longer on a busy machine.
#[inline(never)]
pub(crate) fn work(length: Duration) {
    let begin = processor_time();
    let mut sum = 1u64;
    while processor_time() - begin < length {
        for _ in 0..10_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31));
        }
    }
}

/// CPU time of this thread.
pub(crate) fn processor_time() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

/// Six threads for each processor: the processors are never idle, and a thread waits for one often.
pub(crate) fn crowded_threads() -> u64 {
    6 * std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// Measures how much of the processors other programs take. A program that would use all of them gets
/// the rest.
pub(crate) struct OtherPrograms {
    begin: Instant,
    cpu: Duration,
}

impl OtherPrograms {
    pub(crate) fn measure() -> OtherPrograms {
        OtherPrograms {
            begin: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// The part of all processors' time since the begin that this process did not get.
    pub(crate) fn part(&self) -> f64 {
        let all = crowded_threads() as f64 / 6.0 * self.begin.elapsed().as_secs_f64();
        (1.0 - (process_cpu() - self.cpu).as_secs_f64() / all).max(0.0)
    }
}

/// Results of the threads of [`run_crowd`], and the part of the processors that other programs took.
pub(crate) struct CrowdRun<T> {
    pub(crate) results: Vec<T>,
    pub(crate) others: f64,
}

/// Runs `body` in [`crowded_threads`], each with a seed of its own.
pub(crate) fn run_crowd<T: Send + 'static>(body: fn(u64) -> T) -> CrowdRun<T> {
    let others = OtherPrograms::measure();
    let threads: Vec<_> = (1..=crowded_threads())
        .map(|seed| std::thread::spawn(move || body(seed)))
        .collect();
    let results = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    CrowdRun {
        results,
        others: others.part(),
    }
}

/// CPU time of this process.
fn process_cpu() -> Duration {
    nix::time::clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .unwrap()
        .into()
}

/// Defines a function that uses CPU time under its own name. Each has a number, or the linker would merge
/// them.
macro_rules! work_function {
    ($name:ident, $number:literal) => {
        #[inline(never)]
        fn $name(length: std::time::Duration) {
            $crate::common::work(length);
            std::hint::black_box($number);
        }
    };
}
pub(crate) use work_function;

/// Times by function.
pub(crate) type Times = BTreeMap<&'static str, Duration>;

/// The time of each of these functions, with what they call. `of` chooses a part of the time.
pub(crate) fn by_function(
    profile: &Profile,
    names: &[&'static str],
    of: fn(&Weight) -> u64,
) -> Times {
    let mut times = Times::new();
    let mut above: Vec<Option<&'static str>> = vec![None];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let called = names
            .iter()
            .find(|name| label.ends_with(&format!("::{name}")));
        let function = above[node.parent.index()].or(called.copied());
        if let Some(name) = function {
            *times.entry(name).or_default() += Duration::from_nanos(of(&node.own));
        }
        above.push(function);
    }
    times
}

/// The part of the time that is at other functions than the truth says.
pub(crate) fn distance(truth: &Times, found: &Times) -> f64 {
    let sum = |times: &Times| times.values().sum::<Duration>().as_secs_f64();
    let part = |times: &Times, name| {
        times
            .get(name)
            .map_or(0.0, |time| time.as_secs_f64() / sum(times))
    };
    truth
        .keys()
        .map(|name| (part(truth, name) - part(found, name)).abs() / 2.0)
        .sum()
}

/// Nanoseconds by the first level of stacks that contain `function`.
pub(crate) fn tops_of(profile: &Profile, function: &str) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    let mut above = vec![(String::new(), false)];
    for node in profile.nodes() {
        let label = profile.frame(node.frame).label();
        let (top, inside) = &above[node.parent.index()];
        let inside = *inside || label.contains(function);
        let top = if node.parent == NodeId::ROOT {
            label
        } else {
            top.clone()
        };
        if inside && !node.own.is_zero() {
            match sums.iter_mut().find(|(name, _)| *name == top) {
                Some((_, sum)) => *sum += node.own.total_ns(),
                None => sums.push((top.clone(), node.own.total_ns())),
            }
        }
        above.push((top, inside));
    }
    sums
}

/// The only first level above all weight of `function`.
pub(crate) fn only_top(recording: &Recording, function: &str) -> String {
    let tops = tops_of(&recording.profile, function);
    let [(top, nanoseconds)] = &tops[..] else {
        panic!("{function}: {tops:?}")
    };
    assert!(*nanoseconds >= 100_000_000, "{function}: {tops:?}");
    top.clone()
}

/// The outcome of each task, in the order of their starts.
pub(crate) fn ends(recording: &Recording) -> Vec<(String, Outcome, String)> {
    recording
        .tasks
        .iter()
        .map(|task: &profiler_core::TaskRecord| {
            assert_eq!(task.stop.is_some(), task.outcome != Outcome::Running);
            (task.name.to_string(), task.outcome, task.cause.to_string())
        })
        .collect()
}
