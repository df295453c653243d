//! Transfers, expected tasks, runs and resource samples in the recording of a local agent.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "other tests use the rest"
)]
mod common;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::thread;
use std::time::Duration;

use emberline_agent::{
    AgentBuilder, Direction, Recording, TransferGuard, current_task, expect_tasks, mark_run,
    report_memory, task, transfer,
};
use profiler_core::{Outcome, Resource, TransferEvent};

use crate::common::{lock, start};

fn transfers(recording: &Recording) -> Vec<&TransferEvent> {
    let mut transfers: Vec<_> = recording.telemetry.transfers.iter().collect();
    transfers.sort_by_key(|transfer| transfer.id);
    transfers
}

/// The outcome, the bytes and the cause of each transfer.
fn ends(recording: &Recording) -> Vec<(Outcome, u64, Option<u64>, &str)> {
    let end = |it: &&TransferEvent| (it.outcome, it.bytes, it.compressed_bytes);
    let transfers = transfers(recording).into_iter();
    transfers
        .map(|it| (end(&it).0, it.bytes, it.compressed_bytes, &*it.cause))
        .collect()
}

fn incoming() -> TransferGuard {
    transfer(Direction::Incoming, "worker-2").start()
}

/// A transfer has its peer, keys, task and thread. Its times and the task's are of one clock.
#[test]
fn a_transfer_is_recorded_with_all_fields() {
    let (agent, _turn) = start();
    let of_task = task("load").key("load-1").start();
    let names = transfer(Direction::Outgoing, "worker-2")
        .key("x-1")
        .key("x-2")
        .type_name("Matrix");
    let mut guard = names.start();
    guard.add_bytes(100);
    guard.add_bytes(20);
    guard.set_compressed_bytes(7);
    guard.add_compressed_bytes(1);
    // It ends on another thread; the thread on which it started is recorded.
    thread::spawn(move || drop(guard)).join().unwrap();
    drop(of_task);
    drop(transfer(Direction::Incoming, "worker-3").start());

    let recording = agent.finish();
    let [first, second] = transfers(&recording)[..] else {
        panic!("{recording:?}")
    };
    let [of_task] = &recording.tasks[..] else {
        panic!("{recording:?}")
    };
    assert_eq!(
        (first.direction, &*first.peer),
        (Direction::Outgoing, "worker-2")
    );
    assert_eq!(
        first.keys.iter().map(|key| &**key).collect::<Vec<_>>(),
        ["x-1", "x-2"]
    );
    assert_eq!((first.more_keys, &*first.type_name), (0, "Matrix"));
    assert_eq!((first.bytes, first.compressed_bytes), (120, Some(8)));
    assert_eq!(
        (first.task, first.thread_id),
        (Some(of_task.id), of_task.thread_id)
    );
    assert!(of_task.start <= first.start && first.start <= first.stop);
    assert!(first.stop <= of_task.stop.unwrap());
    assert_eq!(
        (second.direction, second.task, second.outcome),
        (Direction::Incoming, None, Outcome::Ok)
    );
    assert_eq!(recording.lost_telemetry, 0);
}

/// Makes a transfer when it is dropped.
struct Cleaner;

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(incoming());
    }
}

#[test]
fn a_transfer_ends_once_with_its_outcome() {
    let (agent, _turn) = start();
    drop(incoming());
    incoming().fail("no route");
    incoming().fail("x".repeat(2_000));
    incoming().cancel();
    let panicked = thread::spawn(|| {
        let _guard = incoming();
        let _cleaner = Cleaner;
        panic!("on purpose");
    });
    panicked.join().unwrap_err();
    let recording = agent.finish();
    let cut = format!("{}…", "x".repeat(1_021));
    let expected = [
        (Outcome::Ok, 0, None, ""),
        (Outcome::Failed, 0, None, "no route"),
        (Outcome::Failed, 0, None, &cut),
        (Outcome::Cancelled, 0, None, ""),
        (Outcome::Panicked, 0, None, ""),
        (Outcome::Ok, 0, None, ""),
    ];
    assert_eq!(ends(&recording), expected);
}

/// Libraries that measure their transfers report them afterwards.
#[test]
fn a_transfer_may_have_lasted_before_it_was_reported() {
    let (agent, _turn) = start();
    let length = Duration::from_secs(20);
    let mut guard = transfer(Direction::Incoming, "worker-2").start_after(length);
    guard.add_bytes(7);
    drop(guard);
    let recording = agent.finish();
    let [transfer] = transfers(&recording)[..] else {
        panic!("{recording:?}")
    };
    assert_eq!(transfer.bytes, 7);
    let lasted_ns = transfer.stop.since_ns(transfer.start);
    assert!(
        (20_000_000_000..25_000_000_000).contains(&lasted_ns),
        "{lasted_ns}"
    );
}

#[test]
fn nothing_is_recorded_without_an_agent() {
    let turn = lock(&common::TURN);
    let guard = incoming();
    let nightly = mark_run("nightly");
    expect_tasks("load", 5);
    let agent = AgentBuilder::default()
        .resource_interval(None)
        .start_local()
        .unwrap();
    // A transfer that started before the agent is not recorded.
    drop((guard, nightly));
    let later = (incoming(), mark_run("later"));
    let recording = agent.finish();
    drop(later);
    let agent = AgentBuilder::default()
        .resource_interval(None)
        .start_local()
        .unwrap();
    assert_eq!(recording.telemetry.runs.len(), 1);
    assert_eq!(recording.telemetry.count(), 1, "{:?}", recording.telemetry);
    let next = agent.finish();
    assert!(
        next.telemetry.is_empty(),
        "what ended in between is of neither: {:?}",
        next.telemetry
    );
    drop(turn);
}

#[test]
fn keys_are_bounded_and_counted() {
    let (agent, _turn) = start();
    let keys = |number: usize, bytes: usize| {
        let empty = transfer(Direction::Incoming, "p");
        let key = "k".repeat(bytes);
        drop((0..number).fold(empty, |named, _| named.key(&key)).start());
    };
    keys(70, 1);
    keys(5, 1_000);
    keys(2, 5_000);
    let recording = agent.finish();
    let counts: Vec<_> = transfers(&recording)
        .iter()
        .map(|it| (it.keys.len(), it.more_keys))
        .collect();
    assert_eq!(counts, [(64, 6), (4, 1), (0, 2)]);
}

/// More transfers than a ring has slots, faster than it is drained: each is either recorded or counted,
/// and runs and expected tasks are not lost.
#[test]
fn transfers_past_a_full_ring_are_counted() {
    const MANY: u64 = 30_000;
    let (agent, _turn) = start();
    (0..MANY).for_each(|_| drop(incoming()));
    expect_tasks("load", 5);
    drop(mark_run("nightly"));
    let recording = agent.finish();
    assert_eq!(
        recording.telemetry.transfers.len() as u64 + recording.lost_telemetry,
        MANY
    );
    assert!(
        recording.lost_telemetry > 0,
        "the loop is no faster than the symbolizer"
    );
    assert_eq!(recording.telemetry.expected[0].total, 5);
    assert!(recording.telemetry.runs[0].stop.is_some());
}

/// Reads and writes in these steps; an error once they are used up.
struct Steps(Vec<io::Result<usize>>);

impl Steps {
    fn next(&mut self) -> io::Result<usize> {
        if self.0.is_empty() {
            Ok(0)
        } else {
            self.0.remove(0)
        }
    }
}

impl Read for Steps {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.next()
    }
}

impl Write for Steps {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        self.next()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.next().map(drop)
    }
}

fn steps() -> Steps {
    let again = ErrorKind::Interrupted.into();
    let later = ErrorKind::WouldBlock.into();
    Steps(vec![
        Ok(3),
        Err(again),
        Ok(4),
        Err(later),
        Err(io::Error::other("gone")),
        Ok(50),
    ])
}

#[test]
fn readers_and_writers_count_their_bytes() {
    let (agent, _turn) = start();
    let named = || transfer(Direction::Incoming, "worker-2");
    // To the end of the stream, which ends the transfer although the reader lives.
    let mut reader = named().reader(&b"0123456789"[..]);
    assert_eq!(reader.read(&mut []).unwrap(), 0, "no room is no end");
    reader.transfer().unwrap().add_compressed_bytes(6);
    io::copy(&mut reader, &mut io::sink()).unwrap();
    assert!(reader.transfer().is_none());
    // Not to the end of the stream.
    let mut reader = named().reader(&b"0123456789"[..]);
    reader.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(reader.finish(), b"456789");
    // An error ends it, unless the call is only to be repeated.
    let mut reader = named().reader(steps());
    while reader.transfer().is_some() {
        let _ = reader.read(&mut [0; 9]);
    }
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 50);
    let mut writer = named().writer(steps());
    while writer.transfer().is_some() {
        let _ = writer.write(&[0; 9]);
    }
    let mut writer = named().writer(Vec::new());
    writer.write_all(b"0123").unwrap();
    let parts = [IoSlice::new(b"45"), IoSlice::new(b"6")];
    assert_eq!(writer.write_vectored(&parts).unwrap(), 3);
    assert_eq!(writer.finish(), b"0123456");
    let recording = agent.finish();
    let expected = [
        (Outcome::Ok, 10, Some(6), ""),
        (Outcome::Ok, 4, None, ""),
        (Outcome::Failed, 7, None, "gone"),
        (Outcome::Failed, 7, None, "gone"),
        (Outcome::Ok, 7, None, ""),
    ];
    assert_eq!(ends(&recording), expected);
}

/// Both ends of a link in memory count the same bytes.
#[cfg(feature = "tokio-io")]
#[test]
fn async_readers_and_writers_count_their_bytes() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (agent, _turn) = start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (near, far) = tokio::io::duplex(100);
        let mut writer = transfer(Direction::Outgoing, "worker-2").writer(near);
        let mut reader = transfer(Direction::Incoming, "worker-1").reader(far);
        let send = async {
            writer.write_all(&[7; 1_000]).await.unwrap();
            writer.shutdown().await.unwrap();
            assert!(writer.transfer().is_none());
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(send, reader.read_to_end(&mut received));
        assert_eq!(read.unwrap(), 1_000);
        assert!(reader.transfer().is_none());
        // The other end is closed.
        drop(reader.finish());
        let mut writer = transfer(Direction::Outgoing, "worker-3").writer(writer.finish());
        writer.write_all(&[7; 10]).await.unwrap_err();
    });
    let recording = agent.finish();
    let ends = ends(&recording);
    assert_eq!(
        ends[..2],
        [
            (Outcome::Ok, 1_000, None, ""),
            (Outcome::Ok, 1_000, None, "")
        ]
    );
    assert_eq!((ends[2].0, ends[2].1), (Outcome::Failed, 0));
    assert!(!ends[2].3.is_empty());
}

/// A thread that works for a task of another thread sets it with the task's handle.
#[test]
fn a_transfer_belongs_to_its_explicit_task() {
    let (agent, _turn) = start();
    let of_task = task("load").start();
    let handle = current_task();
    drop(of_task);
    thread::spawn(move || drop(transfer(Direction::Incoming, "p").task(&handle).start()))
        .join()
        .unwrap();
    let recording = agent.finish();
    assert_eq!(transfers(&recording)[0].task, Some(recording.tasks[0].id));
}

#[test]
fn expected_tasks_add_up_since_the_first_call() {
    let (agent, _turn) = start();
    drop(task("before").start());
    expect_tasks("load", 5);
    drop(task("between").start());
    thread::spawn(|| expect_tasks("load", 3)).join().unwrap();
    expect_tasks("sort", u64::MAX);
    expect_tasks("sort", 1);
    let recording = agent.finish();
    let mut expected = recording.telemetry.expected;
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    let totals: Vec<_> = expected.iter().map(|it| (&*it.name, it.total)).collect();
    assert_eq!(totals, [("load", 8), ("sort", u64::MAX)]);
    let between = recording
        .tasks
        .iter()
        .find(|task| &*task.name == "between")
        .unwrap();
    assert!(expected[0].since <= between.start);
}

/// Includes a run that ends on another thread, whose end may be drained before its start.
#[test]
fn runs_may_overlap_and_end_on_other_threads() {
    let (agent, _turn) = start();
    let open = mark_run("open");
    let runs: Vec<_> = (0..200).map(|_| mark_run("nightly")).collect();
    thread::spawn(move || drop(runs)).join().unwrap();
    let recording = agent.finish();
    drop(open);
    let runs = &recording.telemetry.runs;
    assert_eq!(runs.len(), 201);
    let ended = |name: &str| {
        runs.iter()
            .filter(|run| &*run.name == name && run.stop.is_some())
            .count()
    };
    assert_eq!((ended("nightly"), ended("open")), (200, 0));
    assert!(
        runs.iter()
            .all(|run| run.stop.is_none_or(|stop| stop >= run.start))
    );
}

#[test]
fn resources_are_sampled_without_code_in_the_program() {
    let _turn = lock(&common::TURN);
    let agent = AgentBuilder::default()
        .resource_interval(Duration::from_millis(10))
        .start_local()
        .unwrap();
    report_memory(1 << 20, 1 << 10);
    common::work(Duration::from_millis(1_200));
    let recording = agent.finish();
    let samples = &recording.telemetry.resources;
    assert!(samples.len() >= 5, "{} samples", samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample.at));
    // Each sample starts at the end of the previous one, so counters add up to the process's own.
    for pair in samples.windows(2) {
        assert_eq!(pair[1].at.since_ns(pair[0].at), pair[1].period_ns);
    }
    let cpu_ns: u64 = samples
        .iter()
        .filter_map(|sample| sample.get(Resource::ProcessCpu))
        .sum();
    assert!(cpu_ns >= 1_000_000_000, "{cpu_ns}");
    let last = samples.last().unwrap();
    assert_eq!(last.get(Resource::ManagedMemory), Some(1 << 20));
    assert_eq!(last.get(Resource::SpilledMemory), Some(1 << 10));
    assert!(last.get(Resource::ProcessMemory).unwrap() > 1 << 20);
}

#[test]
fn invalid_resource_intervals_are_rejected() {
    let _turn = lock(&common::TURN);
    for interval in [
        Duration::ZERO,
        Duration::from_millis(9),
        Duration::from_secs(3_601),
    ] {
        let refused = AgentBuilder::default()
            .resource_interval(interval)
            .start_local();
        let text = refused.err().unwrap().to_string();
        assert!(text.contains("expected 10ms to 3600s, or none"), "{text}");
    }
}
