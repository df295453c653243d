//! Comparisons and durations over time are the same wherever tasks are: in memory, in tables, as rows
//! or as sums.

use super::*;
use query::Queries;
use query::{TaskComparison, TaskComparisonQuery, TaskDurations, TaskDurationsQuery};

/// Seconds of a side. The collector's clock stands at the end of both.
const SIDE_S: i64 = 100;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

fn compare(collector: &Collector, parameters: &[(&str, &str)]) -> TaskComparison {
    let query = TaskComparisonQuery::parse(&pairs(parameters), &collector.state, at(2 * SIDE_S));
    Queries(&collector.state)
        .task_comparison(&query.unwrap(), &Cancel::default())
        .unwrap()
}

fn durations(collector: &Collector, parameters: &[(&str, &str)]) -> TaskDurations {
    let query = TaskDurationsQuery::parse(&pairs(parameters), &collector.state, at(2 * SIDE_S));
    Queries(&collector.state)
        .task_durations(&query.unwrap(), &Cancel::default())
        .unwrap()
}

/// Two workers: `load` takes twice as long on the second side, `same` does not; `flaky` fails there,
/// `rare` has two tasks a side, `fresh` none on the first.
fn two_sides() -> Collector {
    let collector = collector(2 * SIDE_S);
    for id in ["w-1", "w-2"] {
        let mut worker = TestWorker::new(id, 1);
        let attachment = attach(&collector, &worker, 0).attachment;
        let mut number = 0;
        for second in 0..2 * SIDE_S {
            let is_after = second >= SIDE_S;
            let mut tasks = Vec::new();
            let mut end = |worker: &mut TestWorker, name: &str, ms: i64, outcome| {
                number += 1;
                let task = worker.task(number, name, (second - 5, Some(second)));
                let stop_ns = task.stop_ns + (number as i64 % 7) * 1_000_000;
                let start_ns = stop_ns - ms * 1_000_000;
                tasks.push(v1::Task {
                    start_ns,
                    stop_ns,
                    outcome,
                    ..task
                });
            };
            let ok = v1::Outcome::Ok as i32;
            for at in 0..5 {
                let ms = 100 + (second * 5 + at) * 37 % 90;
                end(&mut worker, "load", if is_after { 2 * ms } else { ms }, ok);
                end(&mut worker, "same", ms, ok);
                let fails = is_after && at == 0;
                end(
                    &mut worker,
                    "flaky",
                    ms,
                    if fails {
                        v1::Outcome::Failed as i32
                    } else {
                        ok
                    },
                );
            }
            if second % SIDE_S == 7 {
                end(&mut worker, "rare", if is_after { 900 } else { 100 }, ok);
            }
            if is_after {
                end(&mut worker, "fresh", 100, ok);
            }
            let flush = worker.flush(second, tasks);
            let answer = send_at(2 * SIDE_S, &collector, &attachment, &mut worker, &flush);
            assert_eq!(answer, format!("ack {}", second + 1));
        }
    }
    collector
}

#[test]
fn names_are_compared_with_the_slowest_change_first() {
    let collector = two_sides();
    let sides = [("from", "-100s"), ("to", "now")];
    let unsealed = compare(&collector, &sides);
    let words: Vec<_> = unsealed
        .names
        .iter()
        .map(|row| {
            let ended = [row.before.ended, row.after.ended].map(|ended| ended.to_string());
            format!(
                "{} {} {} {}",
                row.name,
                row.verdict,
                row.failures.verdict,
                ended.join(" ")
            )
        })
        .collect();
    assert_eq!(
        words,
        [
            "load slower no_change 1000 1000",
            "flaky no_change more 1000 1000",
            "fresh only_after no_change 0 200",
            "same no_change no_change 1000 1000",
            "rare too_few no_change 2 2",
        ]
    );
    let load = &unsealed.names[0];
    for change in [&load.p50, &load.p90, &load.p99] {
        assert!((change.ratio.unwrap() - 2.0).abs() < 0.02, "{change:?}");
        assert_eq!(change.verdict, "slower");
    }
    let flaky = &unsealed.names[1].failures;
    assert_eq!(
        (flaky.before_share, flaky.after_share),
        (Some(0.0), Some(0.2))
    );
    assert_eq!(
        unsealed.before,
        range(0, SIDE_S),
        "the range of equal length right before"
    );

    // By rows, because only they have workers; and from tables, whose sides have parts in memory.
    let by_row = [
        ("from", "-100s"),
        ("before_from", "-200s"),
        ("before_to", "-100s"),
    ];
    let workers = ["worker", "before_worker"].map(|name| [(name, "w-1"), (name, "w-2")]);
    let by_row = compare(&collector, &[&by_row[..], &workers.concat()].concat());
    assert_eq!(by_row, unsealed);
    seal(&collector);
    assert_eq!(compare(&collector, &sides), unsealed);
    let one = compare(
        &collector,
        &[
            ("from", "-100s"),
            ("limit", "1"),
            ("task", "load"),
            ("task", "same"),
        ],
    );
    assert_eq!((one.names.len(), one.omitted), (1, 1));
    assert_eq!(one.names[0].name, "load");
}

/// A side with parameters of its own is described by them alone.
#[test]
fn sides_may_be_workers_labels_or_runs() {
    let collector = two_sides();
    let workers = compare(
        &collector,
        &[
            ("from", "-100s"),
            ("worker", "w-1"),
            ("before_worker", "w-2"),
        ],
    );
    assert_eq!(workers.before, workers.after);
    let load = &workers.names.iter().find(|row| row.name == "load").unwrap();
    assert_eq!(
        (load.before.ended, load.after.ended, &*load.verdict),
        (500, 500, "no_change")
    );
    let labels = compare(&collector, &[("from", "-100s"), ("before_label", "zone=b")]);
    assert!(
        labels
            .names
            .iter()
            .all(|row| row.before.ended == 0 && row.verdict == "only_after")
    );
    assert_eq!(
        comparison_error(&collector, &[("before_worker", "w-3")]),
        "the side before: no worker is called \"w-3\"; the nearest are: \"w-1\", \"w-2\""
    );
    assert!(
        comparison_error(&collector, &[("before_run", "x")])
            .starts_with("the side before: no run is called")
    );
    assert!(
        comparison_error(&collector, &[("before", "-5m")])
            .starts_with("unknown parameter \"before\"")
    );
    assert!(
        comparison_error(&collector, &[("before_from", "-1m"), ("before_to", "-2m")])
            .contains("before: the range is reversed")
    );
}

fn comparison_error(collector: &Collector, parameters: &[(&str, &str)]) -> String {
    let query = TaskComparisonQuery::parse(&pairs(parameters), &collector.state, at(2 * SIDE_S));
    query.unwrap_err().to_string()
}

#[test]
fn the_longest_tasks_come_first_sealed_or_not() {
    let collector = two_sides();
    let expected = [("rare", 900), ("rare", 900), ("load", 378)]
        .map(|(name, ms)| (name.to_owned(), ms))
        .to_vec();
    assert_eq!(longest(&collector), (6_204, expected.clone()));
    seal(&collector);
    assert_eq!(longest(&collector), (6_204, expected));
}

fn longest(collector: &Collector) -> (u64, Vec<(String, u64)>) {
    let parameters = pairs(&[("from", "-200s"), ("sort", "duration"), ("limit", "3")]);
    let query = TaskQuery::parse(&parameters, &collector.state, at(2 * SIDE_S)).unwrap();
    let selection = Queries(&collector.state)
        .tasks(&query, &Cancel::default())
        .unwrap()
        .selection;
    let rows = selection.rows.iter().map(|row| {
        (
            row.record.name.to_string(),
            row.duration_ns().unwrap() / 1_000_000,
        )
    });
    (selection.total, rows.collect::<Vec<_>>())
}

#[test]
fn durations_over_time_have_gaps_and_sum_to_the_summary() {
    let collector = two_sides();
    let parameters = [("task", "fresh"), ("from", "-200s"), ("step", "10s")];
    let fresh = durations(&collector, &parameters);
    let starts: Vec<i64> = fresh
        .points
        .iter()
        .map(|point| point.start_ns / SECOND_NS)
        .collect();
    let expected: Vec<i64> = (10..20).map(|step| at(10 * step).second()).collect();
    assert_eq!(starts, expected, "no points before its first task");
    assert!(
        fresh
            .points
            .iter()
            .all(|point| point.ended == 20 && point.failed == 0)
    );
    let load = durations(
        &collector,
        &[("task", "load"), ("from", "-200s"), ("step", "20s")],
    );
    let medians: Vec<u64> = load
        .points
        .iter()
        .map(|point| point.p50_ns.unwrap() / 1_000_000)
        .collect();
    assert_eq!(medians.len(), 10);
    assert!(
        medians[..5].iter().all(|ms| (135..155).contains(ms)),
        "{medians:?}"
    );
    assert!(
        medians[5..].iter().all(|ms| (270..310).contains(ms)),
        "{medians:?}"
    );
    let flaky = durations(&collector, &[("task", "flaky"), ("from", "-200s")]);
    assert_eq!(flaky.step_ns, SECOND_NS as u64);
    assert_eq!(
        flaky.points.iter().map(|point| point.failed).sum::<u64>(),
        200
    );
    let by_row = [
        ("task", "fresh"),
        ("from", "-200s"),
        ("step", "10s"),
        ("label", "zone=*"),
    ];
    assert_eq!(durations(&collector, &by_row), fresh);
    seal(&collector);
    assert_eq!(durations(&collector, &parameters), fresh);
}
