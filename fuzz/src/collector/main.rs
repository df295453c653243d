//! The collector's targets: what agents, readers, the files of a store and imported files may contain.

#![no_main]

mod imports;
mod parameters;
mod records;
mod requests;
mod store;
mod wire;

use collector::serve::fuzzing::{Subject, is_panic_expected};
use fuzz::Target;
use fuzz::streams::BEGIN_S;
use fuzz::target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use profiler_core::Timestamp;

static TARGETS: &[Target] = &[
    wire::WIRE,
    imports::IMPORTS,
    parameters::PARAMETERS,
    requests::REQUESTS,
    records::RECORDS,
    store::MANIFEST,
    store::TABLES,
];

fuzz_target!(init: target::start(TARGETS, is_panic_expected), |input: &[u8]| target::run(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    target::mutate(data, size, max_size, seed)
});

/// The collector's time: the golden store has the two minutes before.
fn now() -> Timestamp {
    Timestamp::from_unix_ns((BEGIN_S + 150) * 1_000_000_000)
}

/// Asks for everything that a collector without tables may know. Every answer must be good.
fn check(subject: &mut Subject) {
    for path in [
        "workers",
        "profile?from=-1h&to=now",
        "tasks?from=-1h",
        "progress",
        "runs",
    ] {
        let path = format!("/api/v1/{path}");
        let (status, body) = subject.get(path.as_bytes()).expect("it is an address");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
    }
}
