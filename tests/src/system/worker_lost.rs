//! A killed worker: acknowledged data stays, and its running tasks end as `lost`.

use crate::harness::{Collector, Worker, alone, number, wait_for};

#[test]
fn a_killed_workers_samples_stay_and_its_tasks_end_as_lost() {
    let _alone = alone();
    let collector = Collector::start();
    let mut worker = Worker::start("doomed", "doomed-1", &collector.url(), &[]);
    assert_eq!(worker.line(), "ready");
    let stored = number(&collector.epochs()[0]["account"], "stored_ns");
    assert!(stored > 0);
    let running = collector.json("/api/v1/tasks");
    assert_eq!(running["tasks"][0]["outcome"], "running");
    worker.process.kill();

    let task = wait_for("the task's end", || {
        let task = collector.json("/api/v1/tasks")["tasks"][0].clone();
        (task["outcome"] != "running").then_some(task)
    });
    assert_eq!((&task["outcome"], &task["name"]), (&"lost".into(), &"doomed".into()));
    assert_eq!(task["key"], "doomed-1");
    assert!(number(&task, "stop_ns") >= number(&task, "start_ns"));
    let epoch = &collector.epochs()[0];
    assert!(number(&epoch["account"], "stored_ns") >= stored);
    assert!(epoch["account"]["balanced"].as_bool().unwrap());
    let profile = collector.json("/api/v1/profile?task=doomed");
    assert!(number(&profile["totals"], "total_ns") > 0, "its acked samples stay");
}
