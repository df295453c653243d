//! Telemetry on its way through the outbox.

use profiler_core::{
    Direction, ExpectedTasks, Resource, ResourceSample, RunId, RunMarker, TransferEvent, TransferId,
};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_ns(second * SECOND_NS)
}

fn transfer(id: u64) -> TransferEvent {
    TransferEvent {
        id: TransferId(id),
        direction: Direction::Incoming,
        peer: "worker-2".into(),
        keys: vec!["x-1".into()],
        more_keys: 0,
        type_name: "Matrix".into(),
        bytes: 9,
        compressed_bytes: None,
        start: at(0),
        stop: at(1),
        task: None,
        thread_id: 1,
        outcome: Outcome::Ok,
        cause: "".into(),
    }
}

fn sample(second: i64) -> ResourceSample {
    ResourceSample {
        at: at(second),
        period_ns: 5,
        values: vec![(Resource::Threads, 3)],
    }
}

fn expected(name: &str, total: u64) -> ExpectedTasks {
    ExpectedTasks {
        name: name.into(),
        total,
        since: at(0),
    }
}

fn run(id: u64, stop: Option<i64>) -> RunMarker {
    RunMarker {
        id: RunId(id),
        name: "nightly".into(),
        start: at(0),
        stop: stop.map(at),
    }
}

fn with(second: i64, records: Telemetry) -> Batch {
    Batch {
        telemetry: records,
        ..cycle(second, &[], vec![])
    }
}

fn delivered(outbox: &mut Outbox) -> Telemetry {
    let mut all = Telemetry::default();
    drain(outbox)
        .iter()
        .for_each(|batch| all.append(batch.telemetry.clone()));
    all
}

#[test]
fn open_runs_and_expected_tasks_are_sent_again_after_a_memory_loss() {
    let mut outbox = outbox(|_| {});
    let first = Telemetry {
        expected: vec![expected("load", 5), expected("sort", 1)],
        runs: vec![run(1, None), run(2, None)],
        transfers: vec![transfer(1)],
        ..Telemetry::default()
    };
    outbox.push(with(0, first));
    let second = Telemetry {
        expected: vec![expected("load", 8)],
        runs: vec![run(1, Some(4)), run(3, Some(4))],
        ..Telemetry::default()
    };
    outbox.push(with(1, second));
    drain(&mut outbox);
    outbox.push(with(
        2,
        Telemetry {
            expected: vec![expected("sort", 2)],
            ..Telemetry::default()
        },
    ));
    outbox.welcome(2, 0).unwrap();
    assert_eq!(delivered(&mut outbox).count(), 1, "nothing was forgotten");
    outbox.push(with(
        3,
        Telemetry {
            runs: vec![run(2, Some(9))],
            ..Telemetry::default()
        },
    ));
    outbox.welcome(0, 0).unwrap();
    let again = delivered(&mut outbox);
    assert_eq!(again.expected, [expected("load", 8), expected("sort", 2)]);
    assert_eq!(
        (again.runs, again.transfers),
        (vec![run(2, Some(9))], vec![])
    );
}

/// Later states replace resent ones, also where both are merged into one batch.
#[test]
fn resent_state_comes_before_new_telemetry() {
    let mut outbox = outbox(|_| {});
    outbox.push(with(
        0,
        Telemetry {
            runs: vec![run(1, None), run(2, None)],
            ..Telemetry::default()
        },
    ));
    drain(&mut outbox);
    outbox.welcome(0, 0).unwrap();
    outbox.push(with(
        1,
        Telemetry {
            runs: vec![run(1, Some(4))],
            ..Telemetry::default()
        },
    ));
    outbox.limits.waiting_max = 1;
    outbox.enforce_limits();
    assert_eq!(delivered(&mut outbox).runs, [run(2, None), run(1, Some(4))]);
}

#[test]
fn rejected_telemetry_is_counted() {
    let mut outbox = outbox(|_| {});
    let records = Telemetry {
        transfers: vec![transfer(1), transfer(2)],
        resources: vec![sample(1)],
        expected: vec![expected("load", 5)],
        runs: vec![run(1, None)],
        ..Telemetry::default()
    };
    outbox.push(Batch {
        tasks: vec![task(1, Some(1))],
        ..with(0, records)
    });
    let (seq, _) = outbox.next().unwrap();
    outbox.refuse(seq).unwrap();
    let current_account = outbox.current_account();
    assert_eq!(
        (current_account.lost_tasks, current_account.lost_telemetry),
        (1, 5)
    );
    outbox.push(Batch {
        lost_telemetry: 7,
        ..with(1, Telemetry::default())
    });
    let (seq, _) = outbox.next().unwrap();
    assert_eq!(outbox.account(seq).unwrap().lost_telemetry, 12);
}

/// Transfers and samples go before rows of tasks, the oldest first; what still holds
/// stays.
#[test]
fn an_outage_drops_the_oldest_telemetry_and_counts_it() {
    let mut outbox = outbox(|limits| limits.outbox_bytes_max = 20_000);
    for second in 0..100i64 {
        let id = u64::try_from(second).unwrap() * 10 + 1;
        let records = Telemetry {
            transfers: (id..id + 10).map(transfer).collect(),
            resources: vec![sample(second), sample(second)],
            expected: vec![expected("load", id)],
            runs: vec![run(1, None)],
            ..Telemetry::default()
        };
        outbox.push(Batch {
            tasks: vec![task(id, Some(1))],
            ..with(second, records)
        });
    }
    assert!(outbox.bytes() <= 20_000);
    let current_account = outbox.current_account();
    let mut rows = 0;
    let mut all = Telemetry::default();
    for batch in drain(&mut outbox) {
        rows += batch.tasks.len();
        all.append(batch.telemetry.clone());
    }
    let kept = (all.transfers.len() + all.resources.len()) as u64;
    assert_eq!(
        (
            kept + current_account.lost_telemetry,
            current_account.lost_tasks,
            rows
        ),
        (1_200, 0, 100)
    );
    assert!(all.transfers.is_sorted_by_key(|transfer| transfer.id));
    assert_eq!(all.transfers.last().unwrap().id, TransferId(1_000));
    assert_eq!(
        (all.expected, all.runs),
        (vec![expected("load", 991)], vec![run(1, None)])
    );
}

#[test]
fn telemetry_fills_the_room_that_rows_leave_in_a_message() {
    let records = || Telemetry {
        transfers: (1..=20).map(transfer).collect(),
        ..Telemetry::default()
    };
    let check = |flush_bytes_max: usize, expected: &[(usize, usize)]| {
        let mut outbox = outbox(|limits| limits.flush_bytes_max = flush_bytes_max);
        outbox.push(Batch {
            tasks: vec![task(1, None), task(2, None)],
            ..with(0, records())
        });
        let batches = drain(&mut outbox);
        let sizes: Vec<_> = batches
            .iter()
            .map(|it| (it.tasks.len(), it.telemetry.transfers.len()))
            .collect();
        assert_eq!(sizes, expected, "{flush_bytes_max}");
    };
    check(1 << 20, &[(2, 20)]);
    // With their names, a row takes at most 120 bytes, a transfer 140.
    check(512 + 240 + 12 * 140, &[(2, 12), (0, 8)]);
    let rest: Vec<_> = std::iter::once((2, 0))
        .chain(std::iter::repeat_n((0, 2), 10))
        .collect();
    check(512 + 240 + 100, &rest);
}
