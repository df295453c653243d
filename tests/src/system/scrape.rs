//! The collector asks services for profiles.

use serde_json::Value;

use crate::harness::{Collector, Worker, number, run, wait_for};

#[test]
fn a_service_with_pprof_is_scraped_and_one_that_is_down_is_shown() {
    // A collector has pprof's endpoint too.
    let service = Collector::start();
    let worker = Worker::start("steady", "w", &service.url(), &[]);
    wait_for("the worker", || service.epochs().pop());
    let target = format!("{},name=shop,every=1s", service.url());
    let down = "http://127.0.0.1:1,name=down,every=1s";
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--scrape",
        &target,
        "--scrape",
        down,
    ];
    let collector = Collector::start_with(&options);
    wait_for("two profiles, and a failure", || {
        let workers = collector.json("/api/v1/workers");
        let [first, second] = [0, 1].map(|index| workers["scrapes"][index].clone());
        assert_eq!(first["name"], "down", "they are sorted by name: {workers}");
        let is_stored = number(&second, "stored") >= 2;
        (is_stored && first["failure"].is_string()).then_some(())
    });
    // An idle service may have no sample in a second.
    wait_for("time of the service", || {
        service.epochs();
        let path = "/api/v1/profile?from=-5m&label=service_name=shop";
        let (status, body) = collector.get(path);
        let profile: Value = serde_json::from_str(&body).unwrap();
        (status == 200 && number(&profile, "sampled_ns") > 0).then_some(())
    });
    let workers = run(&["workers", "--url", &collector.url()]);
    let notes = String::from_utf8_lossy(&workers.stderr);
    let expected = "down: no profile from http://127.0.0.1:1/debug/pprof/profile: ";
    assert!(notes.contains(expected), "{notes}");
    let (status, metrics) = collector.get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "emberline_scrape_up{name=\"down\"} 0\n",
        "emberline_scrape_up{name=\"shop\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    worker.finish();
}

#[test]
fn two_services_of_one_name_are_refused() {
    let twice = [
        "serve",
        "--scrape",
        "http://127.0.0.1:1",
        "--scrape",
        "http://127.0.0.1:1/x",
    ];
    let answer = run(&twice);
    let error = String::from_utf8_lossy(&answer.stderr);
    assert_eq!(answer.status.code(), Some(2), "{error}");
    assert!(
        error.contains("two --scrape are named \"127.0.0.1:1\""),
        "{error}"
    );
}
