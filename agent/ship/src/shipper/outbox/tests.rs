//! The outbox against a slow, obvious collector that stores, refuses, loses answers and forgets,
//! in any order. After every flush that it applies, the account must add up to what it holds.

mod losses;
mod telemetry;

use std::collections::{BTreeMap, VecDeque};

use profiler_core::{
    Delta, NodeId, Outcome, State, TaskId, TaskRecord, Telemetry, Ticks, TimeRange, Timestamp,
};
use proptest::prelude::*;

use super::super::sizing::row_bytes;
use super::*;
use crate::batch::Span;

const SECOND_NS: i64 = 1_000_000_000;
const QUANTUM_NS: u64 = 10;

fn range(start: i64, stop: i64) -> TimeRange {
    let at = |second: i64| Timestamp::from_unix_ns(second * SECOND_NS);
    TimeRange::new(at(start), at(stop)).unwrap()
}

/// The record of task `id`: running, or ended at `stop`.
fn task(id: u64, stop: Option<i64>) -> TaskRecord {
    TaskRecord {
        id: TaskId(id),
        name: "load".into(),
        key: format!("load-{id}").into(),
        thread_id: 1,
        thread_name: "worker".into(),
        parent: None,
        start: Timestamp::from_unix_ns(0),
        stop: stop.map(Timestamp::from_unix_ns),
        outcome: if stop.is_some() {
            Outcome::Ok
        } else {
            Outcome::Running
        },
        cause: "".into(),
        detail: None,
    }
}

/// The cycle of one second, with weights in quanta by node, all of one state.
fn cycle(second: i64, pairs: &[(u32, u64)], tasks: Vec<TaskRecord>) -> Batch {
    let delta = pairs
        .iter()
        .map(|(node, quanta): &(u32, u64)| {
            let state = State::ALL[*node as usize % State::ALL.len()];
            (NodeId(*node), state, quanta * QUANTUM_NS)
        })
        .collect();
    Batch {
        tasks,
        ..Batch::of_samples(span(second), delta, Delta::default())
    }
}

fn span(second: i64) -> Span {
    let ticks = Ticks {
        made: 90,
        expected: 100,
        throttled: 9,
    };
    Span {
        range: range(second, second + 1),
        quantum_ns: QUANTUM_NS,
        ticks,
    }
}

fn outbox(change: impl FnOnce(&mut Limits)) -> Outbox {
    let mut limits = Limits::default();
    change(&mut limits);
    Outbox::new(limits)
}

/// Takes everything out, acking each flush.
fn drain(outbox: &mut Outbox) -> Vec<Arc<Batch>> {
    let mut batches = Vec::new();
    while let Some((seq, batch)) = outbox.next() {
        outbox.ack(seq).unwrap();
        batches.push(batch);
    }
    batches
}

fn ids(batch: &Batch) -> Vec<u64> {
    batch.tasks.iter().map(|task| task.id.0).collect()
}

#[test]
fn a_full_outbox_merges_neighbors_and_keeps_weight_ticks_and_latest_rows() {
    let mut outbox = outbox(|limits| limits.waiting_max = 2);
    outbox.push(cycle(
        0,
        &[(1, 5), (2, 1)],
        vec![task(1, None), task(2, None)],
    ));
    let delta = cycle(1, &[(2, 2)], vec![]).delta;
    let samples = Batch::of_samples(
        Span {
            quantum_ns: 4,
            ..span(1)
        },
        delta,
        Delta::default(),
    );
    outbox.push(Batch {
        tasks: vec![task(1, Some(7))],
        ..samples
    });
    outbox.push(cycle(2, &[(9, 1)], vec![]));
    let batches = drain(&mut outbox);
    assert_eq!(batches.len(), 2);
    let span = Span {
        range: range(0, 2),
        quantum_ns: 2,
        ticks: Ticks {
            made: 180,
            expected: 200,
            throttled: 18,
        },
    };
    assert_eq!(batches[0].span, Some(span));
    assert_eq!(batches[0].delta, cycle(0, &[(1, 5), (2, 3)], vec![]).delta);
    assert_eq!(batches[0].tasks, [task(2, None), task(1, Some(7))]);
    assert_eq!(batches[1].span.unwrap().range, range(2, 3));
}

#[test]
fn all_of_an_outage_keeps_about_the_same_detail() {
    let mut outbox = outbox(|limits| limits.waiting_max = 8);
    (0..64).for_each(|second| outbox.push(cycle(second, &[(1, 1)], vec![])));
    let lengths = drain(&mut outbox)
        .iter()
        .map(|batch| batch.length_ns())
        .collect::<Vec<_>>();
    let longest = lengths.iter().max().unwrap() / SECOND_NS as u64;
    assert_eq!(lengths.iter().sum::<u64>(), 64 * SECOND_NS as u64);
    assert!(
        (8..=16).contains(&longest),
        "the longest of 8 covers {longest} of 64 s"
    );
}

#[test]
fn sent_batches_are_never_merged() {
    let mut outbox = outbox(|limits| (limits.waiting_max, limits.in_flight_max) = (1, 2));
    outbox.push(cycle(0, &[(1, 1)], vec![]));
    let first = outbox.next().unwrap();
    for second in 1..9 {
        outbox.push(cycle(second, &[(1, 1)], vec![]));
    }
    outbox.welcome(0, 0).unwrap();
    assert_eq!(outbox.next().unwrap(), first);
    // Only a sent batch is frozen: this one still joins the waiting ones.
    outbox.push(cycle(9, &[(1, 1)], vec![]));
    let (seq, second) = outbox.next().unwrap();
    assert_eq!((seq, second.length_ns()), (2, 9 * SECOND_NS as u64));
    outbox.push(cycle(10, &[(1, 1)], vec![]));
    assert_eq!(outbox.next(), None, "two are in flight");
    assert!(!outbox.has_next());
}

#[test]
fn rows_that_do_not_fit_are_dropped_oldest_first_running_last_and_counted() {
    let row = row_bytes(&task(1, None));
    let mut outbox =
        outbox(|limits| limits.outbox_bytes_max = size_of::<Batch>() + 2 * 16 + 2 * row);
    outbox.push(cycle(
        0,
        &[(1, 5), (2, 1)],
        vec![task(1, None), task(2, Some(3))],
    ));
    assert_eq!(outbox.current_account().lost_tasks, 0);
    outbox.push(cycle(
        1,
        &[(2, 1)],
        vec![task(3, Some(4)), task(4, Some(5))],
    ));
    assert_eq!(outbox.current_account().lost_tasks, 2);
    assert_eq!(outbox.waiting.iter().map(ids).collect::<Vec<_>>(), [[1, 4]]);
    outbox.push(cycle(2, &[(3, 1), (4, 1)], vec![]));
    // Ten entries take more than a row.
    outbox.push(cycle(
        2,
        &(5..15).map(|node| (node, 1)).collect::<Vec<_>>(),
        vec![],
    ));
    assert_eq!(outbox.current_account().lost_tasks, 4);
    assert_eq!(outbox.current_account().unacked_ns, 19 * QUANTUM_NS);
}

#[test]
fn a_batch_too_large_for_a_message_becomes_several_flushes_of_the_same_range() {
    // Four bytes an entry: a distance of one byte, a weight of three, and a byte or two more for the
    // first distance but in the first flush; five more for an eighth of them, which are in the list of
    // waits for an interpreter too; and rows of over 104.
    let pairs: Vec<_> = (1..=1_000).map(|node| (3 * node, 1 << 14)).collect();
    let rows: Vec<_> = (1..=20).map(|id| task(id, Some(1))).collect();
    let mut outbox = outbox(|limits| limits.flush_bytes_max = 512 + 1_700);
    outbox.push(Batch {
        lost_queue_ns: 7,
        ..cycle(0, &pairs, rows)
    });
    let batches = drain(&mut outbox);
    let entries = batches
        .iter()
        .map(|batch| batch.delta.entries().len())
        .collect::<Vec<_>>();
    let rows = batches
        .iter()
        .map(|batch| batch.tasks.len())
        .collect::<Vec<_>>();
    let ticks = batches
        .iter()
        .map(|batch| batch.span.map(|span| span.ticks.made))
        .collect::<Vec<_>>();
    assert_eq!(entries, [367, 367, 266, 0, 0]);
    assert_eq!(rows, [0, 0, 3, 14, 3]);
    assert_eq!(ticks, [Some(90), Some(0), Some(0), None, None]);
    assert!(
        batches[..3]
            .iter()
            .all(|batch| batch.span.unwrap().range == range(0, 1))
    );
    assert_eq!(outbox.current_account().lost_queue_ns, 7);
}

#[test]
fn an_entry_or_row_larger_than_a_message_goes_alone() {
    let mut outbox = outbox(|limits| limits.flush_bytes_max = 0);
    outbox.push(cycle(
        0,
        &[(1, 5), (2, 1)],
        vec![task(1, None), task(2, None)],
    ));
    let batches = drain(&mut outbox);
    let sizes = batches
        .iter()
        .map(|batch| (batch.delta.entries().len(), batch.tasks.len()));
    assert_eq!(sizes.collect::<Vec<_>>(), [(1, 0), (1, 0), (0, 1), (0, 1)]);
}

#[test]
fn a_collector_that_lost_its_memory_gets_running_tasks_again_and_the_loss_is_counted() {
    let mut outbox = outbox(|_| {});
    outbox.push(cycle(0, &[(1, 5)], vec![task(1, None), task(2, None)]));
    drain(&mut outbox);
    outbox.push(cycle(1, &[(1, 2)], vec![task(2, Some(9))]));
    outbox.welcome(0, 0).unwrap();
    assert_eq!(
        outbox.current_account().lost_by_collector_ns,
        5 * QUANTUM_NS
    );
    let batches = drain(&mut outbox);
    assert_eq!(
        batches.iter().map(|batch| ids(batch)).collect::<Vec<_>>(),
        [[1], [2]]
    );
    assert_eq!(outbox.next_seq, 4);
    // Its older memory comes back: that is not lost any more.
    outbox.welcome(1, 7 * QUANTUM_NS).unwrap();
    assert_eq!(outbox.current_account().lost_by_collector_ns, 0);
}

#[test]
fn a_loss_of_rows_only_is_detected_by_the_sequence_number() {
    let mut outbox = outbox(|_| {});
    outbox.push(cycle(0, &[], vec![task(1, None)]));
    drain(&mut outbox);
    outbox.welcome(0, 0).unwrap();
    assert_eq!(
        drain(&mut outbox)
            .iter()
            .map(|batch| ids(batch))
            .collect::<Vec<_>>(),
        [[1]]
    );
}

#[test]
fn repeated_memory_losses_do_not_fill_the_outbox() {
    let mut outbox = outbox(|_| {});
    outbox.push(cycle(0, &[(1, 5)], vec![task(1, None)]));
    outbox.push(cycle(1, &[(1, 2)], vec![]));
    let (first, _) = outbox.next().unwrap();
    outbox.next().unwrap();
    outbox.ack(first).unwrap();
    outbox.welcome(0, 0).unwrap();
    let (second, _) = outbox.next().unwrap();
    outbox.ack(second).unwrap();
    outbox.welcome(0, 0).unwrap();
    assert_eq!(outbox.waiting.iter().map(ids).collect::<Vec<_>>(), [[1]]);
}

#[test]
fn a_rejected_flush_is_not_lost_if_a_restored_state_has_it() {
    let mut outbox = outbox(|_| {});
    outbox.push(cycle(0, &[(1, 5)], vec![]));
    let (seq, _) = outbox.next().unwrap();
    outbox.refuse(seq).unwrap();
    assert_eq!(outbox.current_account().lost_rejected_ns, 5 * QUANTUM_NS);
    outbox.welcome(seq, 5 * QUANTUM_NS).unwrap();
    assert_eq!(outbox.current_account().lost_rejected_ns, 0);
    assert_eq!(outbox.current_account().acked_ns, 5 * QUANTUM_NS);
}

/// The collector did not acknowledge the flush, so it is sent again, and refused again.
#[test]
fn a_flush_whose_refusal_was_lost_counts_as_lost() {
    let mut outbox = outbox(|_| {});
    outbox.push(cycle(0, &[(1, 5)], vec![]));
    outbox.push(cycle(1, &[(1, 3)], vec![task(1, Some(1))]));
    assert_eq!(outbox.next().unwrap().0, 1);
    outbox.ack(1).unwrap();
    for _ in 0..2 {
        assert_eq!(outbox.next().unwrap().0, 2);
        outbox.welcome(1, 5 * QUANTUM_NS).unwrap();
    }
    assert_eq!(outbox.next().unwrap().0, 2);
    outbox.refuse(2).unwrap();
    // Later collectors have not acknowledged it either.
    outbox.welcome(1, 5 * QUANTUM_NS).unwrap();
    assert!(outbox.is_empty());
    let account = outbox.current_account();
    assert_eq!(
        (account.acked_ns, account.lost_rejected_ns),
        (5 * QUANTUM_NS, 3 * QUANTUM_NS)
    );
    assert_eq!((account.lost_tasks, account.lost_by_collector_ns), (1, 0));
}

#[test]
fn a_weight_between_quanta_stays_whole() {
    let mut outbox = outbox(|_| {});
    for quantum_ns in [0, 4, 7] {
        let delta = cycle(0, &[(1, 1)], vec![]).delta;
        outbox.push(Batch::of_samples(
            Span {
                quantum_ns,
                ..span(0)
            },
            delta,
            Delta::default(),
        ));
        assert_eq!(drain(&mut outbox)[0].span.unwrap().quantum_ns, 1);
    }
}

/// A gap among the unacknowledged flushes would be one for every later collector.
#[test]
fn only_the_answer_that_is_due_changes_anything() {
    let mut outbox = outbox(|_| {});
    for second in 0..4 {
        outbox.push(cycle(second, &[(1, 5)], vec![]));
    }
    let sent: Vec<u64> = (0..3).map(|_| outbox.next().unwrap().0).collect();
    assert_eq!(sent, [1, 2, 3]);
    let error = |seq| format!("the collector answers flush {seq}, but the next answer is due to");
    for seq in [2, 3, 4, u64::MAX] {
        let acked = outbox.ack(seq).unwrap_err().to_string();
        assert_eq!(acked, error(seq) + " flush 1");
        assert_eq!(outbox.refuse(seq).unwrap_err().to_string(), acked);
    }
    outbox.ack(1).unwrap();
    for _ in 0..3 {
        // Repeated, or of no flush.
        outbox.ack(1).unwrap();
        outbox.refuse(1).unwrap();
        outbox.ack(0).unwrap();
    }
    let account = outbox.current_account();
    assert_eq!(
        (account.acked_ns, account.lost_rejected_ns),
        (5 * QUANTUM_NS, 0)
    );
    // On the next stream nothing is due before it is sent again.
    outbox.welcome(1, 5 * QUANTUM_NS).unwrap();
    assert_eq!(
        outbox.ack(2).unwrap_err().to_string(),
        error(2) + " flush 2"
    );
    let resent: Vec<u64> = (0..3).map(|_| outbox.next().unwrap().0).collect();
    assert_eq!(resent, [2, 3, 4]);
}

#[test]
fn a_collector_that_acknowledges_unsent_flushes_is_rejected() {
    let mut outbox = outbox(|_| {});
    outbox.push(cycle(0, &[(1, 5)], vec![]));
    let error = outbox.welcome(1, 50).unwrap_err();
    let text = "the collector acknowledges flush 1 of this epoch, but only 0 were sent";
    assert_eq!(error.to_string(), text);
    outbox.next().unwrap();
    outbox.welcome(1, 50).unwrap();
    assert!(outbox.is_empty());
}

#[test]
fn running_tasks_past_their_limit_are_counted() {
    let mut outbox = outbox(|limits| limits.running_bytes_max = row_bytes(&task(1, None)));
    outbox.push(cycle(0, &[], vec![task(1, None), task(2, None)]));
    outbox.push(cycle(1, &[], vec![task(1, Some(1)), task(3, None)]));
    assert_eq!(outbox.current_account().untracked_tasks, 1);
    assert_eq!(outbox.resend.tasks.keys().collect::<Vec<_>>(), [&TaskId(3)]);
}
