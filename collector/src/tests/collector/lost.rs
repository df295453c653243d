//! A task that the collector ended for its worker counts once, whenever the worker reports its true
//! end.

use query::Queries;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

const DAY_S: i64 = 24 * 3_600;

/// All tasks that ended, by outcome.
fn ended(collector: &Collector) -> Vec<(Outcome, u64)> {
    let range = range(-10, 40 * DAY_S);
    let query = TaskQuery::parse(
        &[
            ("from", range.start()),
            ("to", range.stop()),
            ("summary", at(0)),
        ]
        .map(|(name, time)| match name {
            "summary" => (name.to_owned(), "true".to_owned()),
            _ => (name.to_owned(), time.second().to_string()),
        }),
        &collector.state,
        at(0),
    );
    let summary = Queries(&collector.state)
        .task_summary(&query.unwrap(), &Cancel::default())
        .unwrap();
    Outcome::ALL
        .into_iter()
        .map(|outcome| {
            let rows = summary.rows.iter();
            (
                outcome,
                rows.map(|row| row.outcomes.get(outcome)).sum::<u64>(),
            )
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[test]
fn a_true_end_a_day_and_a_restart_later_does_not_count_again() {
    let now_s = Arc::new(AtomicI64::new(50));
    let objects = store::Objects::memory();
    let start = || {
        let now_s = now_s.clone();
        let clock = Clock::from_fn(move || at(now_s.load(Ordering::Relaxed)));
        Collector::over(
            Settings {
                clock,
                ..Settings::default()
            },
            objects.clone(),
        )
        .unwrap()
    };
    let collector = start();
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    let tasks = vec![
        worker.task(1, "load", (10, None)),
        worker.task(2, "load", (10, Some(11))),
    ];
    let flush = worker.flush(12, tasks);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    collector
        .ingest
        .detach(&attachment, DisconnectReason::Crashed, at(60));
    collector.ingest.sweep(at(100));
    now_s.store(DAY_S + 200, Ordering::Relaxed);
    collector.sealer.seal().unwrap();
    let lost = [(Outcome::Ok, 1), (Outcome::Lost, 1)];
    assert_eq!(ended(&collector), lost);
    drop(collector);

    let collector = start();
    let OpenStream {
        attachment,
        welcome,
        ..
    } = attach(&collector, &worker, DAY_S + 300);
    worker.resume(welcome.strings, welcome.frames, welcome.nodes);
    let tasks = vec![worker.task(1, "load", (10, Some(DAY_S + 250)))];
    let flush = worker.flush(DAY_S + 260, tasks);
    assert_eq!(
        send_at(DAY_S + 300, &collector, &attachment, &mut worker, &flush),
        "ack 2"
    );
    assert_eq!(ended(&collector), lost);
    collector.sealer.seal().unwrap();
    assert_eq!(ended(&collector), lost);
    assert_eq!(ended(&start()), lost, "after one more restart");
}
