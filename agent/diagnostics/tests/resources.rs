//! The resource profiler counts the program and its children, but not itself. It counts the whole
//! process, so this test is alone in its file.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use emberline_diagnostics::{self as diagnostics, ResourceData, ResourceProfiler};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// Samples in each part: enough for the sampling itself to cost tens of milliseconds.
const SAMPLES: usize = 300;

fn processor_time(clock: ClockId) -> Duration {
    clock_gettime(clock).unwrap().into()
}

/// The CPU time in rows, in seconds.
fn told(rows: &[ResourceData]) -> f64 {
    rows.windows(2)
        .map(|pair: &[ResourceData]| {
            let length = pair[1].at.since_ns(pair[0].at) as f64 / 1e9;
            length * pair[1].cpu_percent.unwrap() / 100.0
        })
        .sum()
}

fn children_time() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// First the program only waits, and the rows have its own part of the process's CPU time, without the
/// profiler's. Then a child works, and the rows have all of the child's time.
#[test]
fn defect_6_the_tracker_is_not_counted_and_times_are_epoch_times() {
    let resources = ResourceProfiler::new().interval(Duration::from_millis(1));
    let scope = diagnostics::scope(resources.clone());
    let clocks = || {
        let process = processor_time(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        (process, processor_time(ClockId::CLOCK_THREAD_CPUTIME_ID))
    };
    let (process, thread) = clocks();
    while resources.results().len() < SAMPLES {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let (process_after, thread_after) = clocks();
    let rows = resources.results();
    let program = (thread_after - thread).as_secs_f64();
    let tracker = (process_after - process).as_secs_f64() - program;
    assert!(
        tracker > 1e-3,
        "{SAMPLES} samples cost something: {tracker}"
    );
    assert!(
        told(&rows) < program + tracker / 4.0,
        "{} {program} {tracker}",
        told(&rows)
    );

    let epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    for row in [rows[0], rows[rows.len() - 1]] {
        assert!((row.time - epoch).abs() < 600.0, "{row:?} {epoch}");
        assert_eq!(row.time, row.at.unix_ns() as f64 / 1e9);
    }
    assert!(rows.windows(2).all(|pair| pair[0].at < pair[1].at));

    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let before = children_time();
    assert!(
        Command::new("sh")
            .args(["-c", work])
            .status()
            .unwrap()
            .success()
    );
    drop(scope);
    let children = children_time() - before;
    let told = told(&resources.results()[SAMPLES..]);
    assert!(
        told > 0.9 * children && told < 1.5 * children + 0.1,
        "{told} of {children}"
    );
}
