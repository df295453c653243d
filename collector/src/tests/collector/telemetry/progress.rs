//! Progress after restarts of workers: what counts belongs to what is expected.

use super::*;

#[test]
fn a_restarted_worker_expects_what_its_new_epoch_reports() {
    let mut fleet = Fleet::new();
    fleet.tell(0, expected("load", 10, at(20)));
    // Two lives at once, as after a fork, both count.
    let mut again = TestWorker::new("w0", 10);
    let attachment = attach(&fleet.collector, &again, 30).attachment;
    let mut flush = again.flush(31, vec![]);
    again.tell(&mut flush, expected("load", 7, at(30)));
    assert_eq!(
        send(&fleet.collector, &attachment, &mut again, &flush),
        "ack 1"
    );
    assert_eq!(
        progress(&fleet.collector, "task=load"),
        ["load 0+0 of Some(17) running"]
    );
    fleet
        .collector
        .ingest
        .detach(&fleet.workers[0].1, DisconnectReason::Clean, at(40));
    assert_eq!(
        progress(&fleet.collector, "task=load"),
        ["load 0+0 of Some(7) running"]
    );
    // A range has the tasks of all lives in it, so it has what they expected.
    let range = format!("task=load&{}", span(0, 100));
    assert_eq!(
        progress(&fleet.collector, &range),
        ["load 0+0 of Some(17) running"]
    );
}

/// Tasks that a superseded life ended do not count, and neither do those that it expected. So no more tasks
/// end than are expected. The old life's tasks ended in whole and in partial seconds, sealed or not.
#[test]
fn progress_after_a_restart_has_the_tasks_of_the_lives_that_are_expected() {
    for sealed in [false, true] {
        let mut fleet = Fleet::new();
        fleet.tell(0, expected("load", 60, ms(20_500)));
        fleet.tell(1, expected("load", 60, ms(20_300)));
        for (index, count) in [(0, 60), (1, 50)] {
            let (worker, attachment) = &mut fleet.workers[index];
            let ended = tasks(worker, count, 21);
            let flush = worker.flush(60, ended);
            send(&fleet.collector, attachment, worker, &flush);
        }
        assert_eq!(
            progress(&fleet.collector, "task=load"),
            ["load 110+0 of Some(120) running"]
        );
        fleet
            .collector
            .ingest
            .detach(&fleet.workers[1].1, DisconnectReason::Clean, at(61));

        let mut again = TestWorker::new("w1", 10);
        let attachment = attach(&fleet.collector, &again, 62).attachment;
        let ended = tasks(&mut again, 55, 63);
        let mut flush = again.flush(99, ended);
        again.tell(&mut flush, expected("load", 60, ms(62_700)));
        assert_eq!(
            send(&fleet.collector, &attachment, &mut again, &flush),
            "ack 1"
        );
        if sealed {
            seal(&fleet.collector);
        }
        let collector = &fleet.collector;
        let load =
            |ended: u64, expected: u64| vec![format!("load {ended}+0 of Some({expected}) running")];
        assert_eq!(progress(collector, "task=load"), load(115, 120));
        assert_eq!(progress(collector, "task=load&worker=w1"), load(55, 60));
        // Of all lives in a range that has all, and of the new one in a range that has only that.
        let within =
            |from_s, to_s| progress(collector, &format!("task=load&{}", span(from_s, to_s)));
        assert_eq!(within(0, 200), load(165, 180));
        assert_eq!(within(40, 200), load(55, 60));
    }
}

fn tasks(worker: &mut TestWorker, count: u64, from_s: i64) -> Vec<v1::Task> {
    (1..=count)
        .map(|id| worker.task(id, "load", (from_s, Some(from_s + id.cast_signed() % 30))))
        .collect()
}
