//! Programs at the edges: they close descriptors, have few of them, little address space, handlers of
//! their own, or no collector. Each has an agent, and behaves as it would without one.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use std::{fs, hint};

use agent::{Agent, AgentBuilder, ShipReport};
use serde_json::{Value, json};

use super::sys::{self, Library, confine};

/// Pairs of sockets that the program opens after it has closed everything: more than the agent has
/// descriptors, so that they get all of its numbers.
const PAIRS: usize = 32;

/// Time between two closings.
const CLOSE_INTERVAL: Duration = Duration::from_millis(100);

const BUSY: Duration = Duration::from_millis(500);

/// Runs a mode; `None` if the name is unknown.
pub(crate) fn run(mode: &str, rest: &[&str]) -> Option<Value> {
    let record = match (mode, rest) {
        ("closing", [url, times]) => closing(url, times),
        ("closing-shared", [url, times]) => {
            share_descriptors();
            closing(url, times)
        }
        ("shared", [url]) => {
            share_descriptors();
            shared(url)
        }
        ("few-descriptors", [url, count]) => few_descriptors(url, count),
        ("few-threads", [url, count]) => few_threads(url, count),
        ("address-space", [mebibytes]) => address_space(mebibytes),
        ("refused", [url]) => refused(url),
        ("handler-flags", []) => handler_flags(),
        ("silent", [url]) => silent(url),
        ("stuck", [url, library]) => stuck(url, library),
        _ => return None,
    };
    Some(record)
}

fn report(report: &ShipReport) -> Value {
    json!({
        "accepted_ns": report.accepted_ns,
        "stored_ns": report.stored_ns,
        "unacked_ns": report.unacked_ns,
        "lost_queue_ns": report.lost_queue_ns,
        "connects": report.connects,
    })
}

fn start(url: &str) -> Agent {
    let agent = Agent::builder()
        .collector(url)
        .worker("edge-1")
        .cpu_limit(1.0)
        .start();
    agent.expect("the agent starts")
}

#[inline(never)]
fn busy(length: Duration) {
    let _task = agent::task("busy").start();
    let begin = Instant::now();
    while begin.elapsed() < length {
        hint::black_box((0..5_000u64).fold(1, |sum, step| hint::black_box(sum ^ step)));
    }
}

/// Ends the process at the first panic of any thread, as `panic = "abort"` does.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Leaves the agent no way to a descriptor table of its own.
fn share_descriptors() {
    confine::refuse(libc::SYS_close_range);
    confine::refuse(libc::SYS_unshare);
}

/// The numbers of the descriptors of the main thread's table.
fn descriptors() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc/self/fd").expect("its own folder");
    let numbers: BTreeSet<i32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    // Without the one that read the list.
    numbers
        .into_iter()
        .filter(|number| sys::is_open(*number))
        .collect()
}

/// Closes every descriptor above 2 again and again, and opens sockets of its own. Nothing is written
/// into them, and none of them is closed.
fn closing(url: &str, times: &str) -> Value {
    abort_on_panic();
    let times: u32 = times.parse().expect("a number");
    sys::close_from(3);
    let agent = start(url);
    // The agent has connected and read files by then.
    busy(BUSY);
    let with_agent = descriptors();
    let mut foreign_bytes = 0;
    let mut closed_by_others = 0;
    for _ in 0..times {
        sys::close_from(3);
        let pairs: Vec<_> = (0..PAIRS)
            .map(|_| UnixStream::pair().expect("descriptors are free"))
            .collect();
        busy(CLOSE_INTERVAL);
        let sockets = pairs.into_iter().flat_map(|(left, right)| [left, right]);
        // The next round closes them.
        for mut socket in sockets.map(ManuallyDrop::new) {
            if !sys::is_socket(socket.as_raw_fd()) {
                closed_by_others += 1;
                continue;
            }
            socket.set_nonblocking(true).expect("it is open");
            let mut bytes = [0; 64];
            match socket.read(&mut bytes) {
                Ok(read) => foreign_bytes += read,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    }
    let report = report(&agent.finish());
    json!({
        "with_agent": with_agent.len(),
        "foreign_bytes": foreign_bytes,
        "closed_by_others": closed_by_others,
        "report": report,
    })
}

/// Ships although the agent's descriptors are in the program's table.
fn shared(url: &str) -> Value {
    let before = descriptors();
    let agent = start(url);
    while agent.report().stored_ns == 0 {
        busy(Duration::from_millis(5));
    }
    let with_agent = descriptors();
    let report = report(&agent.finish());
    json!({
        "before": before.len(),
        "with_agent": with_agent.len(),
        "after": descriptors().len(),
        "report": report,
    })
}

/// Has a limit on descriptors that leaves the agent two or thirteen.
fn few_descriptors(url: &str, count: &str) -> Value {
    sys::close_from(3);
    confine::limit(libc::RLIMIT_NOFILE, count.parse().expect("a number"));
    let agent = start(url);
    // The program uses up its own descriptors, which are not the agent's.
    let mut own = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        own.push(file);
    }
    let begin = Instant::now();
    while agent.report().stored_ns == 0 && begin.elapsed() < Duration::from_secs(60) {
        busy(Duration::from_millis(5));
    }
    let mode = agent.mode().to_string();
    json!({ "own": own.len(), "mode": mode, "report": report(&agent.finish()) })
}

/// May start fewer threads than the agent needs.
fn few_threads(url: &str, count: &str) -> Value {
    confine::become_nobody();
    confine::limit(libc::RLIMIT_NPROC, count.parse().expect("a number"));
    let builder = Agent::builder().collector(url).worker("edge-1");
    let refused = builder.start().expect_err("too few threads").to_string();
    // A ghost would have connected by then.
    busy(BUSY);
    json!({ "refused": refused })
}

/// Starts an agent that must be refused.
fn refused(url: &str) -> Value {
    let builder = Agent::builder().collector(url).worker("edge-1");
    let refused = builder.start().err().map(|error| error.to_string());
    busy(BUSY);
    json!({ "refused": refused })
}

/// Has little address space: it uses a part of it itself, which must be there with an agent too.
fn address_space(mebibytes: &str) -> Value {
    const MIB: u64 = 1 << 20;
    const PAGE_BYTES: usize = 4096;
    let limit: u64 = mebibytes.parse().expect("a number");
    confine::limit(libc::RLIMIT_AS, limit * MIB);
    let builder = AgentBuilder::default()
        .interval(Duration::from_millis(1))
        .cpu_limit(1.0);
    let (agent, refused) = match builder.start_local() {
        Ok(agent) => (Some(agent), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let own_bytes = limit * MIB / 2;
    let own = vec![1u8; usize::try_from(own_bytes).expect("64 bits")];
    busy(BUSY * 2);
    let pages = own.iter().step_by(PAGE_BYTES);
    let is_whole = pages.copied().all(|byte| byte == 1);
    let named = agent.map(|agent| {
        let profile = agent.finish().profile;
        let mut frames = profile
            .nodes()
            .iter()
            .map(|node| profile.frame(node.frame).label());
        frames.any(|label| label.contains("edges::busy"))
    });
    json!({ "is_whole": is_whole, "refused": refused, "named": named })
}

/// Handles both signals that the agent may use, and wants its calls to be interrupted by them.
fn handler_flags() -> Value {
    let signals = [libc::SIGURG, libc::SIGWINCH];
    for signal in signals {
        sys::handle_with(signal, 0);
    }
    let before = signals.map(sys::action);
    let agent = AgentBuilder::default()
        .start_local()
        .expect("the agent starts");
    let restarts = signals.map(|signal| sys::action(signal).flags & libc::SA_RESTART != 0);
    let interrupted: Vec<bool> = signals
        .iter()
        .map(|signal| sys::read_interrupted(*signal))
        .collect();
    busy(BUSY);
    drop(agent);
    let is_restored = signals.map(sys::action) == before;

    // The second agent meets a program that takes its handler back while it runs.
    let agent = AgentBuilder::default()
        .start_local()
        .expect("the agent starts");
    sys::handle_with(libc::SIGWINCH, libc::SA_NODEFER);
    let replaced = sys::action(libc::SIGWINCH);
    drop(agent);
    let is_left_alone = sys::action(libc::SIGWINCH) == replaced;

    // Signals that the program does not handle are ignored again.
    for signal in signals {
        sys::reset(signal);
    }
    let unhandled = signals.map(sys::action);
    let agent = AgentBuilder::default()
        .start_local()
        .expect("the agent starts");
    let is_installed = signals.map(sys::action) != unhandled;
    busy(BUSY);
    drop(agent);
    json!({
        "restarts": restarts,
        "interrupted": interrupted,
        "restored": is_restored,
        "left_alone": is_left_alone,
        "installed": is_installed,
        "reset": signals.map(sys::action) == unhandled,
    })
}

/// Has no subscriber of `tracing` and no collector.
fn silent(url: &str) -> Value {
    let agent = start(url);
    busy(Duration::from_secs(8));
    json!({ "report": report(&agent.finish()) })
}

/// Runs code of a file that nobody can open without waiting, so that it never gets names.
fn stuck(url: &str, library: &str) -> Value {
    let loaded = Library::open(library).expect("the test compiled it");
    fs::remove_file(library).expect("the test's own file");
    sys::make_fifo(library);
    let agent = Agent::builder()
        .collector(url)
        .worker("edge-1")
        .cpu_limit(1.0)
        .flush_timeout(Duration::from_millis(500))
        .start()
        .expect("the agent starts");
    // The first cycle, with the library's frames, has reached the symbolizer by then.
    let begin = Instant::now();
    while begin.elapsed() < BUSY * 6 {
        loaded.call(1);
    }
    let report = report(&agent.finish());
    json!({ "report": report })
}
