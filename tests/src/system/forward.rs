//! A collector forwards what it accepts to other servers: here, to other collectors.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::{Collector, RESTARTABLE, Worker, emberline, number, output, run, wait_for};

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    TcpListener::bind(RESTARTABLE)
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Nanoseconds by task and stack of the program's threads.
fn stacks(collector: &Collector, state: &str) -> BTreeMap<String, u64> {
    let path = format!("/api/v1/profile?from=-15m&format=collapsed&state={state}");
    let (status, text) = collector.get(&path);
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines
        .map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()))
        .collect()
}

fn forwards(collector: &Collector) -> Vec<Value> {
    collector.json("/api/v1/workers")["forwards"]
        .as_array()
        .unwrap()
        .clone()
}

/// Samples with a steady worker for at least `seconds` of thread time, to its end.
fn sample(collector: &Collector, worker: &str, seconds: u64) {
    let steady = Worker::start("steady", worker, &collector.url(), &[]);
    wait_for("samples", || {
        let answer = collector.json("/api/v1/workers");
        let workers = answer["workers"].as_array().unwrap();
        let epoch = &workers.iter().find(|known| known["worker"] == worker)?["epochs"][0];
        (number(&epoch["account"], "stored_ns") > seconds * 1_000_000_000).then_some(())
    });
    steady.finish();
}

/// Waits until every receiver has what the collector's profile has. Returns that.
fn forwarded(collector: &Collector) -> u64 {
    let total_ns: u64 = stacks(collector, "all").values().sum();
    wait_for("everything to be forwarded", || {
        let sent = forwards(collector)
            .iter()
            .map(|forward| number(forward, "sent"))
            .min();
        (sent? >= total_ns).then_some(())
    });
    for forward in forwards(collector) {
        assert_eq!(number(&forward, "sent"), total_ns, "{forward}");
        assert_eq!(number(&forward, "accepted"), total_ns, "{forward}");
        assert_eq!(number(&forward, "waiting"), 0, "{forward}");
    }
    total_ns
}

#[test]
fn receivers_by_pyroscopes_protocol_and_by_otlp_have_equal_stacks() {
    let pyroscope = Collector::start();
    let otlp = Collector::start();
    let otlp_url = format!("{}/v1development/profiles", otlp.url());
    let collector = Collector::start_with(&[
        "--listen",
        "127.0.0.1:0",
        "--forward",
        &pyroscope.url(),
        "--forward",
        &otlp_url,
        "--forward-every",
        "500ms",
    ]);
    sample(&collector, "w", 5);
    forwarded(&collector);
    for state in ["all", "cpu"] {
        let sent = stacks(&collector, state);
        assert!(!sent.is_empty(), "{state}");
        assert_eq!(stacks(&pyroscope, state), sent, "{state}");
        assert_eq!(stacks(&otlp, state), sent, "{state}");
    }
    for (receiver, label) in [(&pyroscope, "worker=w"), (&otlp, "service.instance.id=w")] {
        let of_worker = format!("/api/v1/profile?from=-15m&label={label}&label=mode=steady");
        assert!(
            number(&receiver.json(&of_worker)["totals"], "total_ns") > 0,
            "{label}"
        );
    }
    let (status, metrics) = collector.get("/metrics");
    assert_eq!(status, 200);
    let up = format!("emberline_forward_up{{url=\"{otlp_url}\",protocol=\"otlp\"}} 1\n");
    assert!(metrics.contains(&up), "{metrics}");
}

#[test]
fn a_stop_forwards_the_rest_with_the_password_of_the_url() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let token = folder.path().join("token");
    let [data, token] = [&data, &token].map(|path| path.to_str().unwrap());
    let new = [
        "token",
        "new",
        "--role",
        "agent",
        "--worker",
        "pyroscope:*",
        "--data",
        data,
        "-o",
        token,
    ];
    assert!(run(&new).status.success());
    let receiver = Collector::start_with_data("127.0.0.1:0", Path::new(data));
    let secret = std::fs::read_to_string(token).unwrap();
    let target = format!("http://x:{}@{}", secret.trim(), receiver.address);
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--forward-every",
        "1h",
        "--forward",
        &target,
    ];
    let mut collector = Collector::start_with(&options);
    sample(&collector, "w", 2);
    let workers = collector.json("/api/v1/workers").to_string();
    assert!(!workers.contains(secret.trim()), "{workers}");
    assert_eq!(number(&forwards(&collector)[0], "sent"), 0);
    let expected_ns: u64 = stacks(&collector, "all").values().sum();

    let pid = Pid::from_raw(collector.process.id().cast_signed());
    kill(pid, Signal::SIGTERM).unwrap();
    assert!(collector.process.wait().success(), "{}", collector.log());
    assert!(
        !collector.log().contains("not forwarded"),
        "{}",
        collector.log()
    );
    // Readers need a token too.
    let reader_file = folder.path().join("reader");
    let reader = reader_file.to_str().unwrap();
    assert!(
        run(&[
            "token", "new", "--role", "reader", "--data", data, "-o", reader
        ])
        .status
        .success()
    );
    let stored_ns = wait_for("the reader's token to be known", || {
        let mut workers = Command::new(emberline());
        workers.args(["workers", "--format", "json", "--url", &receiver.url()]);
        let answer = output(workers.env("EMBERLINE_TOKEN_FILE", reader));
        let answer: Value = serde_json::from_slice(&answer.stdout).ok()?;
        Some(number(&answer["pushes"][0], "stored_ns"))
    });
    assert_eq!(stored_ns, expected_ns);
}

#[test]
fn what_a_receiver_missed_while_it_was_down_arrives_and_ingest_never_waited() {
    let address = free_address().to_string();
    let target = format!("http://{address}");
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--forward-every",
        "300ms",
        "--forward",
        &target,
    ];
    let collector = Collector::start_with(&options);
    sample(&collector, "w", 2);
    wait_for("a failed delivery", || {
        let forward = forwards(&collector).pop()?;
        (number(&forward, "failed") > 0 && forward["failure"].is_string()).then_some(())
    });
    let (status, metrics) = collector.get("/metrics");
    assert_eq!(status, 200);
    let down = format!("emberline_forward_up{{url=\"{target}\",protocol=\"pyroscope\"}} 0\n");
    assert!(metrics.contains(&down), "{metrics}");
    let workers = run(&["workers", "--url", &collector.url()]);
    let notes = String::from_utf8_lossy(&workers.stderr);
    assert!(
        notes.contains(&format!("{target}: forwarding fails: ")),
        "{notes}"
    );
    let doctor = run(&["doctor", "--url", &collector.url()]);
    let findings = String::from_utf8_lossy(&doctor.stdout);
    assert!(findings.contains("forwarding fails: "), "{findings}");

    let receiver = Collector::start_at(&address);
    forwarded(&collector);
    assert_eq!(stacks(&receiver, "all"), stacks(&collector, "all"));
}

#[test]
fn a_collector_that_forwards_to_itself_makes_no_loop() {
    let address = free_address().to_string();
    let pyroscope = format!("http://{address}");
    let otlp = format!("{pyroscope}/v1development/profiles");
    let collector = Collector::start_with(&[
        "--listen",
        &address,
        "--forward",
        &pyroscope,
        "--forward",
        &otlp,
        "--forward-every",
        "200ms",
    ]);
    // While the second worker runs, copies of the first one's samples would come back many times.
    let mut total_ns = 0;
    for worker in ["first", "second"] {
        sample(&collector, worker, 2);
        total_ns += own_ns(&collector, worker);
        wait_for("everything to be forwarded", || {
            let forwards = forwards(&collector);
            forwards
                .iter()
                .all(|forward| number(forward, "sent") >= total_ns)
                .then_some(())
        });
    }
    for forward in forwards(&collector) {
        assert_eq!(number(&forward, "accepted"), total_ns, "{forward}");
    }
    let workers = collector.json("/api/v1/workers");
    assert_eq!(
        workers["workers"].as_array().unwrap().len(),
        6,
        "two, and a copy by each protocol"
    );
}

fn own_ns(collector: &Collector, worker: &str) -> u64 {
    let path = format!("/api/v1/profile?from=-15m&format=collapsed&worker={worker}");
    let (status, text) = collector.get(&path);
    assert_eq!(status, 200, "{text}");
    text.lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum::<u64>()
}

#[test]
fn a_target_that_is_no_url_or_named_twice_is_refused() {
    for (options, expected) in [
        (
            vec!["--forward", "localhost:4040"],
            "expected http://HOST:PORT",
        ),
        (
            vec!["--forward", "http://h:1", "--forward", "http://h:1"],
            "forwarded to twice",
        ),
    ] {
        let answer = run(&[&["serve", "--listen", "127.0.0.1:0"], &options[..]].concat());
        let error = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let shown = run(&[
        "serve",
        "--print-config",
        "--forward",
        "http://u:secret@h:4040?key=secret",
    ]);
    let text = String::from_utf8_lossy(&shown.stdout);
    let expected = "forward = [\"http://[hidden]@h:4040?key=[hidden]\"]";
    assert!(
        text.contains(expected) && !text.contains("secret"),
        "{text}"
    );
}
