//! Programs that live by a narrow margin: what their threads do leaves no room for a signal frame, a
//! reading of the clock or a system call of somebody else.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use agent::{AgentBuilder, LocalAgent, Recording};
use serde_json::{Value, json};

use super::sys::{self, faults};

const THREADS: u64 = 4;
const BUSY: Duration = Duration::from_millis(300);
/// A tenth of a second or more in the profile `light`, so that each thread is sampled.
const TURNS: u64 = 15_000_000;

/// Runs a mode; `None` if the name is unknown. The first argument says when the agent starts: `before`
/// the program's own arrangements, `after` them, or `never`.
pub(crate) fn run(mode: &str, rest: &[&str]) -> Option<Value> {
    let record = match (mode, rest) {
        ("null-reads", [start, bytes, flags, turns]) => null_reads(start, bytes, flags, turns),
        ("unused-alternate-stack", [start, bytes]) => unused_alternate_stack(start, bytes),
        ("no-clock", [start]) => on_threads(start, || {
            faults::forbid_clock();
            faults::spin(TURNS);
        }),
        ("strict-seccomp", [start]) => strict_seccomp(start),
        _ => return None,
    };
    Some(record)
}

fn start_agent() -> LocalAgent {
    let builder = AgentBuilder::default()
        .interval(Duration::from_millis(1))
        .cpu_limit(1.0);
    builder.start_local().expect("the agent starts")
}

/// Runs `arrange` with an agent that starts before it, after it or never.
fn with_agent(start: &str, arrange: impl FnOnce()) -> Option<LocalAgent> {
    let early = (start == "before").then(start_agent);
    arrange();
    early.or_else(|| (start == "after").then(start_agent))
}

fn record(agent: Option<LocalAgent>) -> Value {
    let samples = agent.as_ref().map(|agent| agent.overhead().samples);
    let mode = agent.as_ref().map(|agent| agent.mode().to_string());
    let recording = agent.map(LocalAgent::finish).unwrap_or_default();
    json!({ "samples": samples, "mode": mode, "sampled_ns": of_program(&recording) })
}

fn of_program(recording: &Recording) -> u64 {
    let tops = recording.profile.top_level();
    let of_program = tops.filter(|(frame, _)| frame.function != "[agent]");
    of_program.map(|(_, weight)| weight.total_ns()).sum()
}

/// Threads find null pointers by their faults, whose handler runs on small alternate stacks and works for so
/// many turns.
fn null_reads(start: &str, bytes: &str, flags: &str, turns: &str) -> Value {
    let bytes: usize = bytes.parse().expect("a number");
    let flags = flags.parse().expect("a number");
    let turns = turns.parse().expect("a number");
    // While a handler works, each thread is more likely to be in one when the agent finds it.
    let threads = if turns == 0 { THREADS } else { 4 * THREADS };
    let mut installed = None;
    let agent = with_agent(start, || {
        faults::handle_null_reads(flags, turns);
        installed = Some(sys::action(libc::SIGSEGV));
    });
    join(threads, move || {
        assert!(faults::use_alternate_stack(bytes), "the system allows it");
        let begin = Instant::now();
        while begin.elapsed() < BUSY {
            faults::read_null();
        }
        assert!(
            faults::is_guard_untouched(),
            "something was written below the alternate stack"
        );
    });
    let is_changed = Some(sys::action(libc::SIGSEGV)) != installed;
    let mut record = record(agent);
    record["changed"] = is_changed.into();
    record["restored"] = (Some(sys::action(libc::SIGSEGV)) == installed).into();
    record["resolved"] = faults::resolved().into();
    record
}

/// Threads have alternate stacks that they never use.
fn unused_alternate_stack(start: &str, bytes: &str) -> Value {
    let bytes: usize = bytes.parse().expect("a number");
    on_threads(start, move || {
        assert!(faults::use_alternate_stack(bytes), "the system allows it");
        faults::spin(TURNS);
        assert!(
            faults::is_guard_untouched(),
            "something was written below the alternate stack"
        );
    })
}

fn on_threads(start: &str, body: impl Fn() + Send + Copy + 'static) -> Value {
    let agent = with_agent(start, || {});
    join(THREADS, body);
    record(agent)
}

fn join(threads: u64, body: impl Fn() + Send + Copy + 'static) {
    let threads: Vec<_> = (0..threads).map(|_| thread::spawn(body)).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("it does not panic"));
}

/// Threads confine themselves, also after they were sampled for a while, and never return.
fn strict_seccomp(start: &str) -> Value {
    static FINISHED: AtomicU64 = AtomicU64::new(0);
    let agent = with_agent(start, || {});
    for number in 0..THREADS {
        thread::spawn(move || {
            faults::spin(TURNS / 4 * number);
            faults::work_in_strict_seccomp(TURNS, &FINISHED)
        });
    }
    let begin = Instant::now();
    while FINISHED.load(Ordering::Acquire) < THREADS && begin.elapsed() < Duration::from_secs(60) {
        thread::yield_now();
    }
    let mut record = record(agent);
    record["finished"] = FINISHED.load(Ordering::Acquire).into();
    record
}
