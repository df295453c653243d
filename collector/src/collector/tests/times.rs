//! Times that a wrong or hostile clock gives, and late ones that are true.

use super::*;
use crate::limits::{AHEAD_MAX, BEHIND_MAX, LATE_HOURS_MAX};

const DAY: i64 = 86_400;
/// The collector's now: late enough to report anything earlier.
const NOW_S: i64 = 500 * DAY;

fn attached(collector: &Collector) -> (TestWorker, Attachment) {
    let worker = TestWorker::new("w", 1);
    let attachment = attach(collector, &worker, NOW_S).attachment;
    (worker, attachment)
}

#[test]
fn only_times_of_a_plausible_clock_are_accepted() {
    let (behind, ahead) = (BEHIND_MAX.as_secs() as i64, AHEAD_MAX.as_secs() as i64);
    let times = [
        (-behind, "ack"),
        (-behind - 1, "before the collector's now; at most 34560000 s are allowed"),
        (-2 * NOW_S, "before the collector's now"),
        (ahead, "ack"),
        (ahead + 1, "after the collector's now; at most 3600000 ms are allowed"),
        (40_000 * DAY, "after the collector's now"),
    ];
    for (offset_s, expected) in times {
        for is_task in [false, true] {
            let collector = collector(NOW_S);
            let (mut worker, attachment) = attached(&collector);
            let point_s = NOW_S + offset_s;
            let flush = match is_task {
                false => {
                    worker.count("load;main", State::Cpu, 7);
                    worker.flush(point_s, vec![])
                }
                true => {
                    let task = worker.task(1, "load", (point_s - 1, Some(point_s)));
                    v1::Flush { cycle: None, ..worker.flush(NOW_S, vec![task]) }
                }
            };
            let answer = send_at(NOW_S, (&collector, &attachment), &mut worker, &flush);
            assert!(answer.contains(expected), "{offset_s} {is_task}: {answer}");
            let what = if is_task { "a task ends" } else { "the cycle starts" };
            assert!(expected == "ack" || answer.contains(what), "{answer}");
            let held = u64::from(expected == "ack" && !is_task) * 7;
            assert_eq!(total_ns(&collector), held);
        }
    }
    // A task may run for ever; only its end makes a row that counts somewhere.
    let collector = collector(NOW_S);
    let (mut worker, attachment) = attached(&collector);
    let task = worker.task(1, "load", (-NOW_S, Some(NOW_S)));
    let flush = worker.flush(NOW_S, vec![task]);
    assert_eq!(send_at(NOW_S, (&collector, &attachment), &mut worker, &flush), "ack 1");
}

#[test]
fn many_late_hours_wait_for_a_sealing_and_make_few_files_each() {
    let collector = collector(NOW_S);
    let (mut worker, attachment) = attached(&collector);
    // The hours of the last day and a bit are never late.
    let hour_s = |hours_ago: usize| NOW_S - 3_600 * hours_ago as i64;
    let mut acked = Vec::new();
    let mut try_hour = |hours_ago: usize| {
        worker.count("load;main", State::Cpu, 7);
        let (id, stop_s) = (acked.len() as u64 + 1, hour_s(hours_ago));
        let task = worker.task(id, "load", (0, Some(stop_s)));
        let flush = worker.flush(stop_s, vec![task]);
        let answer = send_at(NOW_S, (&collector, &attachment), &mut worker, &flush);
        if answer == format!("ack {}", flush.seq) {
            acked.push(hours_ago);
            return true;
        }
        assert!(
            answer.starts_with("the late data in memory is from 200 different hours"),
            "{answer}"
        );
        false
    };
    let taken = (30..3_000).filter(|hour| try_hour(*hour)).count();
    assert_eq!(taken, LATE_HOURS_MAX);
    assert!(lock(&collector.ingest.late).is_full(), "so a sealing is due");
    // Hours that are not late, or that already hold data, are still accepted.
    assert!([0, 5, 23, 40, 200].into_iter().all(&mut try_hour));
    assert!(!try_hour(2_000));
    seal(&collector);
    let files = read(&collector.state.windows).manifest().files.len();
    // Five tables of hours, six of days, and what is coarser.
    let most = LATE_HOURS_MAX * 5 + LATE_HOURS_MAX / 24 * 6 + 100;
    assert!(files < most, "{files} files");
    assert!(try_hour(2_000), "there is room again");
    seal(&collector);
    assert!(!lock(&collector.ingest.late).is_full());
    // Everything landed in its own second.
    let count = acked.len() as u64;
    assert_eq!(total_ns(&collector), 7 * count);
    for hours_ago in [0, 30, 31, 40, 200, 229, 2_000] {
        let second = range(hour_s(hours_ago), hour_s(hours_ago) + 1);
        let times = acked.iter().filter(|hour| **hour == hours_ago).count() as u64;
        let found = ask(&collector, second, Filter::default()).profile.total().total_ns();
        assert_eq!((found, times > 0), (7 * times, true), "{hours_ago} hours ago");
    }
    let query = TaskQuery::parse(&[("summary".into(), "true".into())], &collector.state, at(NOW_S));
    let summary = collector.state.task_summary(&query.unwrap(), &Cancel::default()).unwrap();
    assert_eq!(summary.rows[0].outcomes.get(Outcome::Ok), count);
}

#[test]
fn a_flush_that_spans_too_many_hours_is_rejected() {
    for (hours, expected) in [
        (LATE_HOURS_MAX, "ack 1"),
        (
            LATE_HOURS_MAX + 1,
            "refused 1: the flush has late data from 201 different hours; at most 200 are allowed",
        ),
    ] {
        let collector = collector(NOW_S);
        let (mut worker, attachment) = attached(&collector);
        let stop_s = |hour: usize| NOW_S - 3_600 * (hour as i64 + 40);
        let tasks =
            (0..hours).map(|hour| worker.task(hour as u64 + 1, "load", (0, Some(stop_s(hour)))));
        let tasks = tasks.collect();
        let flush = worker.flush(NOW_S, tasks);
        assert_eq!(send_at(NOW_S, (&collector, &attachment), &mut worker, &flush), expected);
    }
}

/// An agent that was away for ten hours, with a clock that is three hours off.
#[test]
fn data_hours_late_is_stored_in_its_true_seconds() {
    let collector = collector(NOW_S);
    let (mut worker, attachment) = attached(&collector);
    worker.offset_ns = -3 * 3_600 * SECOND_NS;
    for round in 0..2 {
        for hours_ago in 0..10 {
            worker.count("load;main", State::Cpu, 1 << hours_ago);
            let flush = worker.flush(NOW_S - 3_600 * hours_ago - round, vec![]);
            let acked = send_at(NOW_S, (&collector, &attachment), &mut worker, &flush);
            assert!(acked.starts_with("ack"), "{acked}");
        }
        seal(&collector);
    }
    for hours_ago in 0..10 {
        let start_s = NOW_S - 3_600 * hours_ago;
        let found = ask(&collector, range(start_s - 1, start_s + 1), Filter::default());
        assert_eq!(found.profile.total().total_ns(), 2 << hours_ago);
    }
}
