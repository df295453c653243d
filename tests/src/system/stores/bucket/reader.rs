//! One server answers for all collectors of a bucket, also for those whose machine is gone.

use std::process::Command;

use simulation::s3::Server;

use super::{place, with_each_server};
use crate::harness::{Collector, Worker, emberline, number, output, wait_for};

fn start(server: &Server, arguments: &[&str]) -> Collector {
    let mut command = Command::new(emberline());
    command.args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        &place("fleet"),
    ]);
    command.args(arguments).envs(server.environment());
    Collector::start_by(&mut command)
}

/// Weight that a query finds.
fn found_ns(collector: &Collector) -> u64 {
    let profile = collector.json("/api/v1/profile?from=-1h&threads=all");
    assert_eq!(profile["corrupt_files"], serde_json::json!([]), "{profile}");
    number(&profile["totals"], "total_ns")
}

#[test]
#[ignore = "long"]
fn a_reader_answers_for_collectors_whose_machine_is_gone() {
    with_each_server(check_reader);
}

fn check_reader(server: &Server) {
    // The first seals meanwhile, so its data is in tables and in its log.
    let mut first = start(server, &["--name", "c1", "--seal-every", "1500ms"]);
    let second = start(server, &["--name", "c2"]);
    let reader = start(server, &["--read-only"]);
    let workers = [
        Worker::start("steady", "w1", &first.url(), &[]),
        Worker::start("steady", "w2", &second.url(), &[]),
    ];
    wait_for("samples of both workers", || {
        let profile = reader.json("/api/v1/profile?from=-1h");
        (profile["workers"].as_array()?.len() == 2).then_some(())
    });
    let mut stored_ns = 0;
    let mut tasks = 0;
    for worker in workers {
        let record = worker.finish();
        let report = &record["report"];
        assert_eq!(number(report, "unacked_ns"), 0, "{report}");
        stored_ns += number(report, "stored_ns");
        tasks += number(&record, "tasks");
    }
    check_counts(server, &first);
    first.process.kill();
    wait_for("all that was acknowledged", || {
        (found_ns(&reader) == stored_ns).then_some(())
    });
    let all = reader.json("/api/v1/tasks?from=-1h&outcome=ok");
    assert_eq!(number(&all, "total"), tasks);
    let url = reader.url();
    let said = crate::harness::run(&["workers", "--url", &url]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("answers for 2 collectors: c1, c2"), "{said}");
    assert_eq!(profiled_ns(server), stored_ns);
}

/// Weight of all stacks of `emberline profile`, which reads the bucket itself.
fn profiled_ns(server: &Server) -> u64 {
    let mut command = Command::new(emberline());
    command.args([
        "profile",
        "--store",
        &place("fleet"),
        "--from",
        "-1h",
        "--format",
        "collapsed",
    ]);
    command.args(["--threads", "all", "--outside", "--runnable", "--waiting"]);
    let done = output(command.envs(server.environment()));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success() && said.contains("2 workers"),
        "{said}"
    );
    let stacks = String::from_utf8(done.stdout).unwrap();
    let weights = stacks
        .lines()
        .map(|stack| stack.rsplit_once(' ').unwrap().1);
    weights.map(|weight| weight.parse::<u64>().unwrap()).sum()
}

/// Each object was written by a request that is counted, and its bytes were sent.
fn check_counts(server: &Server, collector: &Collector) {
    let objects = server.objects("fleet/c1/").unwrap();
    let (_, metrics) = collector.get("/metrics");
    let value = |name: &str| {
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    let requests = |kind| {
        value(&format!(
            "emberline_bucket_requests_total{{operation=\"{kind}\"}}"
        ))
    };
    assert!(
        objects > 0 && requests("put") >= objects,
        "{objects} objects\n{metrics}"
    );
    assert!(requests("get") > 0 && requests("list") > 0, "{metrics}");
    for direction in ["sent", "received"] {
        let name = format!("emberline_bucket_traffic_bytes_total{{direction=\"{direction}\"}}");
        assert!(value(&name) > objects, "{metrics}");
    }
}

/// Unsealed data is on the disk of its collector, so a reader says that it lacks it.
#[test]
#[ignore = "long"]
fn a_reader_names_what_a_collector_has_on_its_own_disk() {
    with_each_server(check_disk);
}

fn check_disk(server: &Server) {
    let data = tempfile::tempdir().unwrap();
    let collector = start(
        server,
        &["--name", "d1", "--data", data.path().to_str().unwrap()],
    );
    let worker = Worker::start("steady", "w1", &collector.url(), &[]);
    wait_for("an acknowledged flush", || {
        collector
            .epochs()
            .iter()
            .any(|epoch| number(epoch, "acked_seq") > 0)
            .then_some(())
    });
    let reader = start(server, &["--read-only"]);
    let workers = reader.json("/api/v1/workers");
    let reason = workers["stores"][0]["incomplete"].as_str().unwrap();
    assert!(reason.contains("only on the disk of"), "{reason}");
    let profile = reader.json("/api/v1/profile?from=-1h");
    assert_eq!(profile["corrupt_files"], serde_json::json!(["d1/wal"]));
    drop(worker.finish());
}
