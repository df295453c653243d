//! More tasks than rows: every task without a row is summed. A process has one agent, so these tests take
//! turns.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emberline_agent::observe::{TaskEnd, set_observer};
use emberline_agent::{AgentBuilder, Phase, Recording, TaskRecord, phase, task};
use profiler_core::bucket::{bucket, bucket_middle_ns};
use profiler_core::{NodeId, Outcome, Profile, Weight};

use common::{lock, start, wait_until, work};

/// Tasks of a name and outcome, with rows and in sums, and the nanoseconds of all.
fn counts(recording: &Recording, name: &str, outcome: Outcome) -> (u64, u64, u64) {
    let rows = recording
        .tasks
        .iter()
        .filter(|it| &*it.name == name && it.outcome == outcome);
    let sums = recording
        .totals
        .iter()
        .filter(|it| &*it.name == name && it.outcome == outcome);
    let of_rows: u64 = rows
        .clone()
        .map(|it| it.stop.unwrap().since_ns(it.start))
        .sum();
    let of_sums: u64 = sums.clone().map(|it| it.duration_ns).sum();
    (
        rows.count() as u64,
        sums.map(|it| it.count()).sum(),
        of_rows + of_sums,
    )
}

#[test]
fn tasks_beyond_the_row_limit_are_summed() {
    const TASKS: u64 = 2_000;
    let _turn = lock(&common::TURN);
    // An independent count of every duration.
    static SEEN_NS: AtomicU64 = AtomicU64::new(0);
    fn add(_: &TaskRecord) -> Option<TaskEnd> {
        Some(Box::new(|task| {
            SEEN_NS.fetch_add(task.stop.unwrap().since_ns(task.start), Ordering::Relaxed);
        }))
    }
    set_observer(Some(add));
    let agent = AgentBuilder::default()
        .task_rows_per_second(100)
        .start_local()
        .unwrap();
    let long = task("long").start();
    for number in 0..TASKS {
        let short = task("short").key(format!("short-{number}")).start();
        drop(phase(Phase::DiskRead));
        if number % 100 == 0 {
            short.fail("no")
        } else {
            drop(short)
        }
    }
    // Every start with a row has an end with a row.
    wait_until("the row of the long task", || {
        agent
            .recording()
            .tasks
            .iter()
            .any(|row| *row.name == *"long")
    });
    drop(long);
    set_observer(None);
    let recording = agent.finish();
    let (rows, sums, ok_ns) = counts(&recording, "short", Outcome::Ok);
    assert_eq!(rows + sums, TASKS - TASKS / 100);
    let (erred_rows, erred_sums, erred_ns) = counts(&recording, "short", Outcome::Failed);
    assert_eq!(erred_rows + erred_sums, TASKS / 100);
    assert!(erred_rows >= 10, "some room is kept for what went wrong");
    assert!((80..=200).contains(&rows) && sums > 0, "{rows} rows");
    assert_eq!(
        (recording.aggregated_tasks, recording.lost_tasks),
        (sums + erred_sums, 0)
    );
    let (long_rows, _, long_ns) = counts(&recording, "long", Outcome::Ok);
    assert_eq!(long_rows, 1);
    assert_eq!(ok_ns + erred_ns + long_ns, SEEN_NS.load(Ordering::Relaxed));
    let phases = recording.totals.iter().flat_map(|it| &it.phases);
    assert_eq!(
        phases.map(|it| u64::from(it.count)).sum::<u64>(),
        sums + erred_sums
    );
    for totals in &recording.totals {
        assert!(totals.buckets.is_sorted_by(|a, b| a.0 < b.0));
        let middles = totals
            .buckets
            .iter()
            .map(|(it, count)| bucket_middle_ns(*it) * count);
        let error = middles.sum::<u64>().abs_diff(totals.duration_ns);
        assert!(
            error <= totals.duration_ns / 8 + 10 * totals.count(),
            "{totals:?}"
        );
        assert!(totals.buckets.iter().all(|(it, _)| *it < bucket(u64::MAX)));
    }
}

/// The report of a shipping agent counts them, with or without a collector.
#[cfg(feature = "ship")]
#[test]
fn a_report_counts_aggregated_tasks() {
    const TASKS: u64 = 500;
    let _turn = lock(&common::TURN);
    // Nobody listens on this port: it was bound and released.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    let builder = AgentBuilder::default()
        .collector(url)
        .task_rows_per_second(100);
    let agent = builder.start().unwrap();
    (0..TASKS).for_each(|_| drop(task("short").start()));
    let report = agent.finish();
    assert_eq!((report.lost_tasks, report.connects), (0, 0));
    // They may have ended in two different seconds; a tenth of the rows is reserved for failed tasks.
    let expected = TASKS - 200..=TASKS - 80;
    assert!(expected.contains(&report.aggregated_tasks), "{report:?}");
}

/// Their starts find no room in the thread's ring, and no end has their record.
#[test]
fn tasks_that_begin_in_a_burst_and_never_end_are_rows_or_lost() {
    const TASKS: u64 = 8_000;
    let _turn = lock(&common::TURN);
    let agent = AgentBuilder::default().start_local().unwrap();
    let open: Vec<_> = (0..TASKS).map(|_| task("open").start()).collect();
    // Those that end are not lost.
    (0..TASKS).for_each(|_| drop(task("short").start()));
    let recording = agent.finish();
    let rows = recording.tasks.iter().filter(|row| *row.name == *"open");
    let mut ids: Vec<_> = rows.map(|row| row.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len() as u64 + recording.lost_tasks, TASKS);
    drop(open);
}

/// A thread that writes faster than the agent reads: its ring is full most of the time.
#[test]
fn a_full_ring_loses_no_task_and_no_phase() {
    const TASKS: u64 = 200_000;
    let _turn = lock(&common::TURN);
    // Only the ring limits the rows: on a slow machine the agent reads more than the default limit.
    let agent = AgentBuilder::default()
        .task_rows_per_second(1_000_000)
        .start_local()
        .unwrap();
    let outer = task("outer").start();
    for _ in 0..TASKS {
        let _task = task("fast").start();
        drop(phase(Phase::Serialize));
    }
    drop(outer);
    let recording = agent.finish();
    let (rows, sums, _) = counts(&recording, "fast", Outcome::Ok);
    assert_eq!((rows + sums, recording.lost_tasks), (TASKS, 0));
    assert!(sums > 0, "or nothing was shown");
    assert_eq!(counts(&recording, "outer", Outcome::Ok).0, 1);
    let of_sums = recording.totals.iter().flat_map(|it| &it.phases);
    let details = recording.tasks.iter().flat_map(|it| &it.detail);
    let all = of_sums.chain(details.flat_map(|it| &it.phases));
    assert_eq!(all.map(|it| u64::from(it.count)).sum::<u64>(), TASKS);
}

/// The time of each second, by stack and by thread.
#[test]
fn time_by_thread_equals_time_by_stack() {
    let (agent, _turn) = start();
    std::thread::scope(|threads| {
        for number in 0..2 {
            let named = std::thread::Builder::new().name(format!("pool-{number}"));
            named
                .spawn_scoped(threads, || {
                    let _task = task("load").start();
                    let reading = phase(Phase::DiskRead);
                    work(Duration::from_millis(200));
                    drop(reading);
                    work(Duration::from_millis(200));
                })
                .unwrap();
        }
    });
    let recording = agent.finish();
    let stacks = &recording.profile;
    let threads = &recording.threads;
    let total = |profile: &Profile| {
        profile
            .nodes()
            .iter()
            .map(|node| node.own)
            .fold(Weight::ZERO, |sum, own| sum + own)
    };
    assert_eq!(total(stacks), total(threads));
    let mut found = Vec::new();
    let mut paths = vec![String::new()];
    for node in threads.nodes() {
        let label = threads.frame(node.frame).label();
        let path = format!("{}/{label}", paths[node.parent.index()]);
        if node.own.total_ns() >= 100_000_000 && path.starts_with("/load") {
            assert_ne!(node.parent, NodeId::ROOT);
            found.push(path.clone());
        }
        paths.push(path);
    }
    found.sort();
    let expected = [
        "/load/disk-read/pool-0",
        "/load/disk-read/pool-1",
        "/load/pool-0",
        "/load/pool-1",
    ];
    assert_eq!(found, expected);
}
