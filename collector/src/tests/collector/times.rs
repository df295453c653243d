//! Times that a wrong or hostile clock gives, and late ones that are true.

use profiler_core::wire::cycle_weight_ns;
use profiler_core::{ExpectedTasks, RunId, RunMarker, Telemetry};
use query::Queries;

use super::*;
use base::limits::{AHEAD_MAX, BEHIND_MAX, CYCLE_THREADS_MAX, LATE_HOURS_MAX, ROLLUPS_KEPT};
use store::Retention;

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
    let behind = BEHIND_MAX.as_secs() as i64;
    let ahead = AHEAD_MAX.as_secs() as i64;
    let times = [
        (-behind, "ack"),
        (
            -behind - 1,
            "before the collector's now; at most 34560000 s are allowed",
        ),
        (-2 * NOW_S, "before the collector's now"),
        (ahead, "ack"),
        (
            ahead + 1,
            "after the collector's now; at most 3600000 ms are allowed",
        ),
        (40_000 * DAY, "after the collector's now"),
    ];
    for (offset_s, expected) in times {
        for is_task in [false, true] {
            let collector = collector_that_keeps(BEHIND_MAX);
            let (mut worker, attachment) = attached(&collector);
            let point_s = NOW_S + offset_s;
            let flush = if is_task {
                let task = worker.task(1, "load", (point_s - 1, Some(point_s)));
                v1::Flush {
                    cycle: None,
                    ..worker.flush(NOW_S, vec![task])
                }
            } else {
                worker.count("load;main", State::Cpu, 7);
                worker.flush(point_s, vec![])
            };
            let answer = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
            assert!(answer.contains(expected), "{offset_s} {is_task}: {answer}");
            let what = if is_task {
                "a task ends"
            } else {
                "the cycle starts"
            };
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
    assert_eq!(
        send_at(NOW_S, &collector, &attachment, &mut worker, &flush),
        "ack 1"
    );
}

/// A collector in memory, whose rows of tasks are kept for a day.
fn collector_that_keeps(rollups: Duration) -> Collector {
    Collector::new(Settings {
        clock: Clock::from_fn(|| at(NOW_S)),
        retention: Retention {
            seconds: Duration::from_secs(3_600),
            tasks: Duration::from_secs(DAY as u64),
            rollups,
            ..Retention::default()
        },
        ..Settings::default()
    })
}

/// Data of which nothing would be kept is never acknowledged.
#[test]
fn data_may_be_as_old_as_it_is_kept() {
    let kept_h = |hours: u64| Duration::from_secs(hours * 3_600);
    let year_h = ROLLUPS_KEPT.as_secs() / 3_600;
    let sooner = "send data sooner, or start the collector with a longer retention";
    for (worker_id, rollups_h, option, last_h, instead) in [
        (
            "import:old",
            year_h,
            "--retention-rollups",
            year_h,
            "import it with a later --time",
        ),
        (
            "import:old",
            7,
            "--retention-rollups",
            7,
            "import it with a later --time",
        ),
        ("pyroscope:old", 7, "--retention-rollups", 7, sooner),
        ("otlp:old", year_h, "--retention-rollups", year_h, sooner),
        ("scrape:old", 7, "--retention-rollups", 7, sooner),
        ("w", 48, "--retention-rollups", 48, sooner),
        ("w", 7, "--retention-tasks", 24, sooner),
    ] {
        let is_agent = worker_id == "w";
        let what = if is_agent {
            "the cycle ends"
        } else {
            "the profile starts"
        };
        let expired = format!(
            "{what} {last_h} hours before the collector's now, but its {option} is {last_h} hours, so nothing \
             would be kept; {instead}"
        );
        for (late_s, expected) in [(0, "ack"), (1, &*expired)] {
            let collector = collector_that_keeps(kept_h(rollups_h));
            let mut worker = TestWorker::new(worker_id, 1);
            let attachment = attach(&collector, &worker, NOW_S).attachment;
            worker.count("load;main", State::Cpu, 7);
            // The cycle lasts a second.
            let start_s = NOW_S - (last_h * 3_600) as i64 - late_s - i64::from(is_agent);
            let flush = worker.flush(start_s, vec![]);
            let answer = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
            assert!(answer.contains(expected), "{worker_id} {late_s}: {answer}");
        }
    }
    let collector = collector_that_keeps(kept_h(7));
    let (mut worker, attachment) = attached(&collector);
    let task = worker.task(1, "load", (NOW_S - 2 * DAY, Some(NOW_S - DAY - 1)));
    let flush = v1::Flush {
        cycle: None,
        ..worker.flush(NOW_S, vec![task])
    };
    let answer = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
    assert!(answer.contains("a task ends 24 hours before"), "{answer}");
}

/// Queries add up all time of a worker, so a second profile at the time of the first would count as a part of it.
#[test]
fn an_imported_profile_is_refused_at_the_time_of_another_one_of_its_worker() {
    let collector = collector(NOW_S);
    let import_at = |id: &str, epoch: u64, start_s: i64| {
        let mut worker = TestWorker::new(id, epoch);
        let attachment = attach(&collector, &worker, NOW_S).attachment;
        worker.count("load;main", State::Cpu, 7);
        let mut flush = worker.flush(start_s, vec![]);
        flush.runs = vec![v1::RunMarker {
            id: 1,
            name: "cpu".to_owned(),
            start_ns: at(start_s).unix_ns(),
            stop_ns: at(start_s + 10).unix_ns(),
        }];
        send_at(NOW_S, &collector, &attachment, &mut worker, &flush)
    };
    assert_eq!(import_at("import:cpu", 1, NOW_S - 10), "ack 1");
    for start_s in [NOW_S - 10, NOW_S - 5] {
        assert_eq!(
            import_at("import:cpu", 2, start_s),
            "refused 1: \"import:cpu\" has the profile \"cpu\" of that time, with which this one would be added up; \
             import it with another --run, or with another --worker or --time"
        );
    }
    assert_eq!(import_at("import:cpu", 3, NOW_S - 60), "ack 1");
    assert_eq!(import_at("import:other", 4, NOW_S - 10), "ack 1");
    // Lives of an agent may overlap: it restarts.
    assert_eq!(import_at("w", 5, NOW_S - 10), "ack 1");
    assert_eq!(import_at("w", 6, NOW_S - 10), "ack 1");
    assert_eq!(total_ns(&collector), 5 * 7);
}

#[test]
fn many_late_hours_wait_for_a_sealing_and_make_few_files_each() {
    let collector = collector(NOW_S);
    let (mut worker, attachment) = attached(&collector);
    let mut acked = Vec::new();
    let mut try_hour = |hours_ago: usize| {
        worker.count("load;main", State::Cpu, 7);
        let id = acked.len() as u64 + 1;
        let stop_s = hour_s(hours_ago);
        let task = worker.task(id, "load", (0, Some(stop_s)));
        let flush = worker.flush(stop_s, vec![task]);
        let answer = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
        if answer == format!("ack {}", flush.seq) {
            acked.push(hours_ago);
            return true;
        }
        // The agent sends it again under the same number.
        worker.seq -= 1;
        assert!(
            answer.starts_with("the late data in memory is from 200 different hours"),
            "{answer}"
        );
        false
    };
    // The hours of the last day and a bit are never late.
    let taken = (30..3_000).filter(|hour| try_hour(*hour)).count();
    assert_eq!(taken, LATE_HOURS_MAX);
    assert!(
        lock(&collector.ingest.late).is_full(),
        "so a sealing is due"
    );
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
        let found = ask(&collector, second, Filter::default())
            .profile
            .total()
            .total_ns();
        assert_eq!(
            (found, times > 0),
            (7 * times, true),
            "{hours_ago} hours ago"
        );
    }
    let query = TaskQuery::parse(
        &[("summary".into(), "true".into())],
        &collector.state,
        at(NOW_S),
    );
    let summary = Queries(&collector.state)
        .task_summary(&query.unwrap(), &Cancel::default())
        .unwrap();
    assert_eq!(summary.rows[0].outcomes.get(Outcome::Ok), count);
}

fn hour_s(hours_ago: usize) -> i64 {
    NOW_S - 3_600 * hours_ago as i64
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
        let tasks = (0..hours)
            .map(|hour| worker.task(hour as u64 + 1, "load", (0, Some(stop_s(hour)))))
            .collect();
        let flush = worker.flush(NOW_S, tasks);
        assert_eq!(
            send_at(NOW_S, &collector, &attachment, &mut worker, &flush),
            expected
        );
    }
}

fn stop_s(hour: usize) -> i64 {
    NOW_S - 3_600 * (hour as i64 + 40)
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
            let acked = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
            assert!(acked.starts_with("ack"), "{acked}");
        }
        seal(&collector);
    }
    for hours_ago in 0..10 {
        let start_s = NOW_S - 3_600 * hours_ago;
        let found = ask(
            &collector,
            range(start_s - 1, start_s + 1),
            Filter::default(),
        );
        assert_eq!(found.profile.total().total_ns(), 2 << hours_ago);
    }
}

/// An answer to a flush of one record, by what the record is about.
fn answers_at(point_s: i64) -> Vec<(&'static str, String)> {
    let point = at(point_s);
    let since = ExpectedTasks {
        name: "load".into(),
        total: 7,
        since: point,
    };
    let told = [
        ("a run starts", runs(run(point, None))),
        ("a run ends", runs(run(at(NOW_S), Some(point)))),
        (
            "tasks are expected",
            Telemetry {
                expected: vec![since],
                ..Telemetry::default()
            },
        ),
    ];
    let mut answers = Vec::new();
    let mut answer = |what, change: &dyn Fn(&mut TestWorker, &mut v1::Flush)| {
        let collector = collector(NOW_S);
        let (mut worker, attachment) = attached(&collector);
        let mut flush = v1::Flush {
            cycle: None,
            ..worker.flush(NOW_S, vec![])
        };
        change(&mut worker, &mut flush);
        answers.push((
            what,
            send_at(NOW_S, &collector, &attachment, &mut worker, &flush),
        ));
    };
    for (what, telemetry) in told {
        answer(what, &|worker, flush| worker.tell(flush, telemetry.clone()));
    }
    answer("a task starts", &|worker, flush| {
        flush.tasks = vec![worker.task(1, "load", (point_s, None))];
    });
    answer("the cycle ends", &|worker, flush| {
        let cycle = worker.flush(NOW_S, vec![]).cycle;
        let stop_ns = point.shifted(60 * SECOND_NS).unix_ns();
        flush.cycle = cycle.map(|cycle| v1::Cycle { stop_ns, ..cycle });
    });
    answers
}

fn run(start: Timestamp, stop: Option<Timestamp>) -> RunMarker {
    RunMarker {
        id: RunId(1),
        name: "r".into(),
        start,
        stop,
    }
}

fn runs(run: RunMarker) -> Telemetry {
    Telemetry {
        runs: vec![run],
        ..Telemetry::default()
    }
}

#[test]
fn no_time_is_further_ahead_than_a_plausible_clock() {
    let ahead = AHEAD_MAX.as_secs() as i64;
    for (what, answer) in answers_at(NOW_S + ahead) {
        assert_eq!(answer, "ack 1", "{what}");
    }
    for (what, answer) in answers_at(NOW_S + ahead + 1) {
        let expected =
            format!("refused 1: {what} 3601000 ms after the collector's now; at most 3600000 ms");
        assert!(answer.starts_with(&expected), "{answer}");
    }
}

/// The agent measured its offset before the collector's clock was set back, and learns of it with the answer.
#[test]
fn a_flush_that_was_on_its_way_when_the_clock_was_set_back_is_stored_by_the_time_of_its_sending() {
    let back_s = 9_000;
    for (sent_s, expected) in [(2, "ack 1"), (-1, "refused 1: the cycle starts 8")] {
        let collector = collector(NOW_S);
        let (mut worker, attachment) = attached(&collector);
        worker.offset_ns = back_s * SECOND_NS;
        worker.count("load;main", State::Cpu, 7);
        let task = worker.task(1, "load", (NOW_S + back_s - 9, Some(NOW_S + back_s)));
        let flush = worker.flush(NOW_S + back_s - 1, vec![task]);
        let cycle_stop_ns = flush.cycle.as_ref().unwrap().stop_ns;
        let flush = v1::Flush {
            sent_at_ns: cycle_stop_ns + sent_s * SECOND_NS,
            ..flush
        };
        let answer = send_at(NOW_S + 2, &collector, &attachment, &mut worker, &flush);
        assert!(answer.starts_with(expected), "{answer}");
        if sent_s > 0 {
            let second = range(NOW_S - 1, NOW_S);
            let total = ask(&collector, second, Filter::default()).profile.total();
            assert_eq!(total.total_ns(), 7);
            assert_eq!(rows(&collector), [format!("w/1/1 ok {NOW_S}")]);
        }
    }
}

#[test]
fn tasks_of_thousands_of_future_hours_make_no_files() {
    let collector = collector(NOW_S);
    let (mut worker, attachment) = attached(&collector);
    worker.count("load;main", State::Cpu, 7);
    let tasks = vec![worker.task(1, "load", (NOW_S, None))];
    let flush = worker.flush(NOW_S, tasks);
    assert_eq!(
        send_at(NOW_S, &collector, &attachment, &mut worker, &flush),
        "ack 1"
    );
    seal(&collector);
    let before = file_count(&collector);
    let tasks = (2..3_002)
        .map(|hour| worker.task(hour, "load", (future_s(hour), None)))
        .collect();
    let flush = v1::Flush {
        cycle: None,
        ..worker.flush(NOW_S, tasks)
    };
    let answer = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
    assert!(answer.starts_with("refused 2: a task starts"), "{answer}");
    collector
        .ingest
        .detach(&attachment, DisconnectReason::Clean, at(NOW_S));
    assert_eq!(rows(&collector).len(), 1);
    seal(&collector);
    let made = file_count(&collector) - before;
    assert!(made <= 10, "{made} files");
}

fn future_s(hour: u64) -> i64 {
    NOW_S + 20 * 365 * DAY + 3_600 * hour.cast_signed()
}

fn file_count(collector: &Collector) -> usize {
    collector.state.tables.manifest().files.len()
}

/// Imported and pushed profiles may have the time of any process.
#[test]
fn a_cycle_has_no_more_time_than_a_process_can_spend() {
    let limit_ns = 61 * SECOND_NS.unsigned_abs() * CYCLE_THREADS_MAX;
    for (weight_ns, expected) in [
        (limit_ns, "ack 1".to_owned()),
        (
            limit_ns + SECOND_NS.unsigned_abs(),
            "refused 1: the cycle of 1 s has 3997697 thread-seconds; at most 3997696 are allowed: \
             no process has that many threads"
                .to_owned(),
        ),
    ] {
        for is_by_thread in [false, true] {
            let collector = collector(NOW_S);
            let mut worker = TestWorker::new("import:w", 1);
            let attachment = attach(&collector, &worker, NOW_S).attachment;
            if is_by_thread {
                worker.count_thread("load;pool#7", State::Cpu, weight_ns);
            } else {
                worker.count("load;main", State::Cpu, weight_ns);
            }
            let flush = worker.flush(NOW_S, vec![]);
            let answer = send_at(NOW_S, &collector, &attachment, &mut worker, &flush);
            assert_eq!(answer, expected);
        }
    }
}

/// An agent has the threads that it shows. Those without ids are few, or belong to one of many names.
#[test]
fn a_worker_has_no_more_time_than_the_threads_that_it_shows() {
    // Nodes are the root, the task, its function and the threads.
    let cases = [
        (0, 0, 16),
        (3, 0, 16 + 3),
        (1, 1, 16 + 1 + 16 + 5),
        (300, 1, 16 + 300 + 16 * 300 + 304),
        (3_900, 1, CYCLE_THREADS_MAX),
    ];
    for (by_id, names, threads) in cases {
        let limit_ns = 61 * SECOND_NS.unsigned_abs() * threads;
        for (more_ns, is_by_thread) in [(0, false), (1, false), (0, true), (1, true)] {
            if is_by_thread && by_id == 0 {
                continue;
            }
            let collector = collector(NOW_S + 1);
            let (mut worker, attachment) = attached(&collector);
            for id in 1..=by_id {
                worker.count_thread(&format!("load;pool#{id}"), State::Cpu, 1);
            }
            for name in 0..names {
                worker.count_thread(&format!("load;short-{name}#0"), State::Cpu, 1);
            }
            if is_by_thread {
                let counted_ns = by_id + names;
                worker.count("load;main", State::Cpu, 1);
                worker.count_thread("load;pool#1", State::Sleep, limit_ns - counted_ns + more_ns);
            } else {
                worker.count("load;main", State::Cpu, limit_ns + more_ns);
            }
            let flush = worker.flush(NOW_S, vec![]);
            let weight_ns = flush.cycle.as_ref().map_or(0, cycle_weight_ns);
            let answer = send_at(NOW_S + 1, &collector, &attachment, &mut worker, &flush);
            let view = &fleet(&collector, &Default::default(), at(NOW_S)).epochs[0];
            // The limit of all processes is checked first.
            if more_ns > 0 && threads == CYCLE_THREADS_MAX {
                continue;
            }
            if more_ns == 0 {
                assert_eq!(answer, "ack 1", "{by_id} threads");
                assert_eq!(view.stored_ns, weight_ns);
                continue;
            }
            let limit_s = limit_ns / SECOND_NS.unsigned_abs();
            let reason = format!(
                "the cycle of 1 s has {limit_s} thread-seconds; at most {limit_s} are left to a worker \
                 that has shown {by_id} threads"
            );
            assert_eq!(answer, format!("refused 1: {reason}"));
            assert_eq!(view.last_rejection.as_ref(), Some(&reason));
            assert_eq!(
                view.account.lost_rejected_ns, weight_ns,
                "it counts as lost"
            );
        }
    }
}

/// Cycles may overlap and repeat, each within its own limit.
#[test]
fn all_cycles_have_no_more_time_than_the_worker_has_threads() {
    let refused = "refused 3: the cycle of 1 s has 1 thread-seconds; at most 0 are left to a worker that \
                   has shown 0 threads";
    let weights_s = [61 * 16 - 20, 20, 1];
    let is_pushed = |id: &str| id.contains(':');
    for id in ["w", "import:w", "pyroscope:w"] {
        for is_batch in [false, true] {
            let collector = collector(50);
            let mut worker = TestWorker::new(id, 1);
            let attachment = attach(&collector, &worker, 40).attachment;
            let mut answers = Vec::new();
            let mut waiting = VecDeque::new();
            for weight_s in weights_s {
                worker.count("load;main", State::Cpu, weight_s * SECOND_NS.unsigned_abs());
                let flush = worker.flush(30, vec![]);
                if is_batch {
                    let dictionary = worker.dictionary().unwrap_or_default();
                    collector
                        .ingest
                        .receive_dictionary(&attachment, &dictionary, at(0))
                        .unwrap();
                    waiting.push_back(ReceivedFlush {
                        flush,
                        at: at(50),
                        charge: None,
                        translation: None,
                    });
                } else {
                    answers.push(send(&collector, &attachment, &mut worker, &flush));
                }
            }
            while !waiting.is_empty() {
                let received = at_once(collector.ingest.receive_flushes(&attachment, &mut waiting));
                answers.extend(received.unwrap().into_iter().map(|kind| words(Ok(kind))));
            }
            let last = if is_pushed(id) { "ack 3" } else { refused };
            assert_eq!(answers, ["ack 1", "ack 2", last], "{id} {is_batch}");
        }
    }
}

/// A process that was stopped has the idle time of all its threads in its next cycle.
#[test]
fn a_long_time_of_many_threads_is_accepted() {
    let collector = collector(8_000);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 3_600).attachment;
    let hour_ns = 3_600 * SECOND_NS.unsigned_abs();
    for (seq, start_s) in [(1, 3_600), (2, 7_200)] {
        let thread_ns = if seq == 1 {
            SECOND_NS.unsigned_abs()
        } else {
            hour_ns
        };
        for id in 1..=1_000 {
            worker.count_thread(&format!("load;pool#{id}"), State::Sleep, thread_ns);
        }
        worker.count("load;main", State::Sleep, 1_000 * thread_ns);
        let flush = worker.flush(start_s, vec![]);
        let answer = send_at(8_000, &collector, &attachment, &mut worker, &flush);
        assert_eq!(answer, format!("ack {seq}"));
    }
}
