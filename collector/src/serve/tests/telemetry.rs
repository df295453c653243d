//! Transfers, resources, progress, runs and events over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use profiler_core::wire::v1::agent_message;
use profiler_core::{
    Direction, ExpectedTasks, Outcome, Resource, ResourceSample, RunId, RunMarker, State, TaskId,
    Telemetry, TransferEvent, TransferId,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{Client, get, request, send};
use super::{ALL, Running, attached, serve};
use base::limits::EVENT_SUBSCRIBERS_MAX;
use state::testing::{SECOND_NS, TestWorker, at};

fn records() -> Telemetry {
    let transfer = TransferEvent {
        id: TransferId(4),
        direction: Direction::Incoming,
        peer: "w-2".into(),
        keys: vec!["x-1".into()],
        more_keys: 2,
        type_name: "Matrix".into(),
        bytes: 3_000,
        compressed_bytes: Some(1_000),
        start: at(10),
        stop: at(12),
        task: Some(TaskId(1)),
        thread_id: 12,
        outcome: Outcome::Ok,
        cause: "".into(),
    };
    Telemetry {
        transfers: vec![transfer],
        resources: vec![sample(20, 500_000_000, 10), sample(21, 250_000_000, 30)],
        expected: vec![ExpectedTasks {
            name: "load".into(),
            total: 4,
            since: at(5),
        }],
        runs: vec![RunMarker {
            id: RunId(1),
            name: "nightly".into(),
            start: at(9),
            stop: Some(at(13)),
        }],
        ..Telemetry::default()
    }
}

fn sample(seconds: i64, cpu: u64, memory: u64) -> ResourceSample {
    ResourceSample {
        at: at(seconds).shifted(500_000_000),
        period_ns: 500_000_000,
        values: vec![
            (Resource::ProcessCpu, cpu),
            (Resource::ProcessMemory, memory),
        ],
    }
}

/// A worker that reported telemetry of each kind.
pub(super) async fn reporting(running: &Running) -> (TestWorker, Client) {
    let (mut worker, mut client) = attached(running, "w").await;
    worker.count("load;main;parse:3", State::Cpu, 5);
    let mut flush = worker.flush(31, vec![]);
    worker.tell(&mut flush, records());
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    (worker, client)
}

#[tokio::test]
async fn transfers_are_answered_as_rows_and_as_sums() {
    let running = serve().await;
    let _told = reporting(&running).await;
    let answer = running
        .json(&format!("/api/v1/transfers?{ALL}&task=load&type=Matrix"))
        .await;
    let row = json!({
        "worker": "w", "epoch": "0000000000000001", "id": 4, "direction": "incoming", "peer": "w-2",
        "keys": ["x-1"], "more_keys": 2, "type_name": "Matrix", "bytes": 3_000,
        "compressed_bytes": 1_000, "start": "1970-01-12T13:46:50.000000000Z",
        "start_ns": at(10).unix_ns(), "stop": "1970-01-12T13:46:52.000000000Z",
        "stop_ns": at(12).unix_ns(), "duration_ns": 2 * SECOND_NS, "bandwidth": 1_500,
        "task_id": 1, "thread_id": 12, "outcome": "ok", "cause": "",
    });
    assert_eq!(answer["transfers"], json!([row]));
    assert_eq!(
        (&answer["total"], &answer["truncated"]),
        (&json!(1), &json!(false))
    );
    let none = running
        .json(&format!("/api/v1/transfers?{ALL}&direction=outgoing"))
        .await;
    assert_eq!(none["transfers"], json!([]));
    let path = format!("/api/v1/transfers.csv?{ALL}&task=load&type=Matrix");
    let csv = request(running.address, "GET", &path).await;
    assert_eq!(csv.status, 200, "{}", csv.body);
    let rows: Vec<&str> = csv.body.lines().collect();
    let row = "w,0000000000000001,4,incoming,w-2,\"[\"\"x-1\"\"]\",2,Matrix,3000,1000,\
               1970-01-12T13:46:50.000000000Z,1970-01-12T13:46:52.000000000Z,2000000000,1500,1,12,ok,";
    assert_eq!(rows[1..], [row]);
    let sums = format!("/api/v1/transfers.csv?{ALL}&summary=true");
    assert_eq!(request(running.address, "GET", &sums).await.status, 400);

    let answer = running
        .json(&format!("/api/v1/transfers?{ALL}&summary=true"))
        .await;
    let nanoseconds = 2 * SECOND_NS;
    let durations = json!({
        "count": 1, "min_ns": nanoseconds, "p50_ns": nanoseconds, "p90_ns": nanoseconds,
        "p99_ns": nanoseconds, "max_ns": nanoseconds, "mean_ns": nanoseconds,
        "total_ns": nanoseconds,
    });
    let sums = json!({
        "count": 1, "failed": 0, "bytes": 3_000, "compressed_bytes": 1_000,
        "duration_ns": nanoseconds, "durations": durations,
        "bandwidth": {"mean": 1_500, "p50": 1_500, "p90": 1_500, "p99": 1_500},
    });
    let link = json!({"worker": "w", "peer": "w-2", "direction": "incoming"});
    assert_eq!(answer["links"], with(sums.clone(), link));
    assert_eq!(answer["types"], with(sums, json!({"type_name": "Matrix"})));
    let by_task = format!("/api/v1/transfers?{ALL}&summary=true&task=load");
    assert_eq!(running.json(&by_task).await["links"], answer["links"]);
}

fn with(mut sums: Value, facts: Value) -> Value {
    sums.as_object_mut()
        .unwrap()
        .extend(facts.as_object().unwrap().clone());
    json!([sums])
}

#[tokio::test]
async fn resources_are_means_and_rates_by_step_and_can_be_aligned() {
    let running = serve().await;
    let _told = reporting(&running).await;
    let path = "/api/v1/resources?from=1000020&to=1000022&step=1s";
    let answer = running.json(path).await;
    let times = [at(20), at(21)].map(profiler_core::Timestamp::unix_ns);
    let cpu = json!([[times[0], 1.0, 1.0, 1.0], [times[1], 0.5, 0.5, 0.5]]);
    let memory = json!([[times[0], 10.0, 10.0, 10.0], [times[1], 30.0, 30.0, 30.0]]);
    let expected = json!([
        series("process_cpu", "cores", true, cpu, 1.0),
        series("process_memory", "bytes", false, memory, 30.0),
    ]);
    assert_eq!(
        (&answer["series"], &answer["step_ns"]),
        (&expected, &json!(SECOND_NS))
    );
    let path =
        "/api/v1/resources?from=1000019&to=1000023&step=4s&align=true&measure=process_memory";
    assert_eq!(
        running.json(path).await["series"][0]["points"],
        json!([[0, 20.0, 30.0, 10.0]])
    );

    // Two aligned runs, each from its own start.
    let body = r#"{"name": "late"}"#;
    send(
        running.address,
        "POST /api/v1/runs",
        "application/json",
        body,
    )
    .await;
    let path = "/api/v1/resources?run=nightly&run=late&align=true";
    assert_eq!(running.json(path).await["series"], json!([]));
    let refused = get(running.address, "/api/v1/resources?run=nightly&from=-5m").await;
    assert_eq!(refused.status, 400);
    let refused = get(running.address, "/api/v1/resources?measure=memory").await;
    assert!(
        refused.status == 400 && refused.body.contains("process_memory"),
        "{}",
        refused.body
    );
}

fn series(measure: &str, unit: &str, counted: bool, points: Value, peak: f64) -> Value {
    json!({"worker": "w", "host": "host-1", "run": null, "measure": measure, "unit": unit,
               "cumulative": counted, "points": points, "peak": peak})
}

#[tokio::test]
async fn progress_has_rate_and_remaining_time() {
    let running = serve().await;
    let _told = reporting(&running).await;
    let names = &running.json("/api/v1/progress?task=load").await["names"];
    // One of four ended in 55 seconds.
    let expected = json!([{
        "name": "load", "expected": 4, "done": 1, "running": 1, "failed": 0, "lost": 0,
        "cancelled": 0, "since": "1970-01-12T13:46:45.000000000Z", "since_ns": at(5).unix_ns(),
        "rate_per_s": 1.0 / 55.0, "remaining_ns": 165 * SECOND_NS, "state": "running",
    }]);
    assert_eq!(*names, expected);
}

#[tokio::test]
async fn runs_are_started_stopped_listed_and_used_as_ranges() {
    let running = serve().await;
    let _told = reporting(&running).await;
    const JSON: &str = "application/json";
    let (status, run) = post(
        running.address,
        "/api/v1/runs",
        JSON,
        r#"{"name": "by hand"}"#,
    )
    .await;
    let start_ns = at(60).unix_ns();
    let expected = json!({
        "id": format!("{start_ns:x}"), "name": "by hand", "worker": null,
        "start": "1970-01-12T13:47:40.000000000Z", "start_ns": start_ns, "stop": null,
        "stop_ns": null, "duration_ns": 0, "open": true, "lost": false,
    });
    assert_eq!((status, &run), (201, &expected));
    let agents = json!({
        "id": "0000000000000001-1", "name": "nightly", "worker": "w",
        "start": "1970-01-12T13:46:49.000000000Z", "start_ns": at(9).unix_ns(),
        "stop": "1970-01-12T13:46:53.000000000Z", "stop_ns": at(13).unix_ns(),
        "duration_ns": 4 * SECOND_NS, "open": false, "lost": false,
    });
    assert_eq!(
        running.json("/api/v1/runs").await["runs"],
        json!([run, agents])
    );
    let named = running
        .json("/api/v1/runs?name=nightly&from=1000000&to=1000010")
        .await;
    assert_eq!(named["runs"], json!([agents]));

    running
        .now_ns
        .store(at(63).unix_ns(), std::sync::atomic::Ordering::SeqCst);
    let (status, stopped) = post(
        running.address,
        "/api/v1/runs/stop",
        JSON,
        r#"{"name": "by hand"}"#,
    )
    .await;
    assert_eq!(
        (status, &stopped["duration_ns"]),
        (200, &json!(3 * SECOND_NS))
    );
    let (status, error) = post(
        running.address,
        "/api/v1/runs/stop",
        JSON,
        r#"{"name": "by hand"}"#,
    )
    .await;
    let reason = json!("no open run is called \"by hand\"");
    assert_eq!((status, &error["error"]), (404, &reason));
    for (kind, body, expected) in [
        ("text/plain", r#"{"name": "x"}"#, 415),
        (JSON, "{}", 400),
        (JSON, r#"{"name": ""}"#, 400),
        (JSON, r#"{"nam": "x"}"#, 400),
    ] {
        let (status, error) = post(running.address, "/api/v1/runs", kind, body).await;
        assert_eq!(status, expected, "{body}: {error}");
    }

    // As a range, in every query that has one.
    for (path, pointer) in [
        ("tasks?", "/tasks/0/id"),
        ("profile?", "/profile/unit"),
        ("timeline?", "/steps"),
        ("transfers?", "/transfers/0/id"),
        ("progress?task=load&", "/names/0/done"),
    ] {
        let answer = running.json(&format!("/api/v1/{path}run=nightly")).await;
        assert!(answer.pointer(pointer).is_some(), "{path}: {answer:#}");
        let unknown = get(running.address, &format!("/api/v1/{path}run=nightlu")).await;
        let error: Value = serde_json::from_str(&unknown.body).unwrap();
        let nearest = json!(["nightly"]);
        assert_eq!(
            (unknown.status, &error["nearest"]),
            (404, &nearest),
            "{path}"
        );
        let both = get(
            running.address,
            &format!("/api/v1/{path}run=nightly&to=now"),
        )
        .await;
        assert_eq!(both.status, 400, "{path}");
    }
    let tasks = running.json("/api/v1/tasks?run=nightly").await;
    assert_eq!(tasks["range"]["from_ns"], at(9).unix_ns());
}

async fn post(address: SocketAddr, path: &str, kind: &str, body: &str) -> (u16, Value) {
    let answer = send(address, &format!("POST {path}"), kind, body).await;
    (
        answer.status,
        serde_json::from_str::<Value>(&answer.body).unwrap(),
    )
}

/// A run of a worker is open only as long as the worker may stop it; a run started through the API has no
/// worker.
#[tokio::test]
async fn a_run_ends_at_the_latest_with_its_worker() {
    let running = serve().await;
    let (mut worker, mut client) = reporting(&running).await;
    let mut flush = worker.flush(32, vec![]);
    worker.tell(
        &mut flush,
        Telemetry {
            runs: vec![open_run(2, 40), open_run(3, 99)],
            ..Default::default()
        },
    );
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 3");
    let body = r#"{"name": "by hand"}"#;
    send(
        running.address,
        "POST /api/v1/runs",
        "application/json",
        body,
    )
    .await;
    let [by_hand, going_on] = ["by hand", "open"].map(|name| json!([name, null, true, false]));
    let ended = json!(["nightly", at(13).unix_ns(), false, false]);
    let before = [
        going_on.clone(),
        by_hand.clone(),
        going_on.clone(),
        ended.clone(),
    ];
    assert_eq!(run_rows(&running).await, before);

    // The worker was last heard of at its last flush, so a run that started later ends at its start.
    running
        .now_ns
        .store(at(70).unix_ns(), std::sync::atomic::Ordering::SeqCst);
    drop(client);
    running
        .until("/api/v1/runs?name=open", "/runs/1/open", json!(false))
        .await;
    let [lost_later, lost] = [99, 60].map(|stop| json!(["open", at(stop).unix_ns(), false, true]));
    let after = [lost_later, by_hand.clone(), lost, ended.clone()];
    assert_eq!(run_rows(&running).await, after);

    // It reconnects, stops one run, and disconnects before it stops the other.
    let mut client = Client::attach(running.address, worker.hello()).await;
    assert_eq!(run_rows(&running).await, before);
    let mut flush = worker.flush(33, vec![]);
    let stopped = RunMarker {
        stop: Some(at(65)),
        ..open_run(2, 40)
    };
    worker.tell(
        &mut flush,
        Telemetry {
            runs: vec![stopped],
            ..Default::default()
        },
    );
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 4");
    client
        .send(agent_message::Kind::Goodbye(Default::default()))
        .await;
    assert!(client.receive().await.is_none());
    running
        .until("/api/v1/runs?name=open", "/runs/0/open", json!(false))
        .await;
    let last = json!(["open", at(99).unix_ns(), false, true]);
    let stopped = json!(["open", at(65).unix_ns(), false, false]);
    assert_eq!(run_rows(&running).await, [last, by_hand, stopped, ended]);
    let named = running
        .json("/api/v1/tasks?run=open@0000000000000001-2")
        .await;
    assert_eq!(named["range"]["to_ns"], at(65).unix_ns());
}

async fn run_rows(running: &Running) -> Vec<Value> {
    let answer = running.json("/api/v1/runs").await;
    let runs = answer["runs"].as_array().unwrap().iter();
    runs.map(|run: &Value| json!([run["name"], run["stop_ns"], run["open"], run["lost"]]))
        .collect::<Vec<_>>()
}

fn open_run(id: u64, start: i64) -> RunMarker {
    RunMarker {
        id: RunId(id),
        name: "open".into(),
        start: at(start),
        stop: None,
    }
}

/// A stream of events.
struct Listener {
    stream: TcpStream,
    heard: String,
}

impl Listener {
    async fn new(running: &Running, query: &str) -> Listener {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let text = format!("GET /api/v1/events{query} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut listener = Listener {
            stream,
            heard: String::new(),
        };
        listener.until("\r\n\r\n").await;
        listener
    }

    /// Reads until this text has arrived.
    async fn until(&mut self, text: &str) {
        let mut bytes = [0; 4_096];
        while !self.heard.contains(text) {
            let read = timeout(Duration::from_secs(20), self.stream.read(&mut bytes)).await;
            let count = read.expect("it comes in time").unwrap();
            assert!(count > 0, "the stream ended after {}", self.heard);
            self.heard += std::str::from_utf8(&bytes[..count]).unwrap();
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.heard
            .lines()
            .filter_map(|line| line.strip_prefix("event: "))
            .collect()
    }
}

#[tokio::test]
async fn events_are_sent_as_they_happen_by_kind() {
    let running = serve().await;
    let mut all = Listener::new(&running, "").await;
    let mut ends = Listener::new(&running, "?kind=task_ended&task=load&outcome=lost").await;
    let (mut worker, mut client) = reporting(&running).await;
    let tasks = vec![
        worker.task(2, "load", (20, None)),
        worker.task(3, "load", (21, Some(22))),
    ];
    let flush = worker.flush(32, tasks);
    client.ask(agent_message::Kind::Flush(flush)).await;
    client
        .send(agent_message::Kind::Goodbye(Default::default()))
        .await;
    assert!(client.receive().await.is_none());
    all.until("\"outcome\":\"lost\"").await;
    assert!(all.heard.contains("text/event-stream"), "{}", all.heard);
    let expected = [
        "worker_connected",
        "task_ended",
        "task_started",
        "run_stopped",
        "task_ended",
        "worker_away",
        "worker_gone",
        "task_ended",
    ];
    assert_eq!(all.kinds(), expected);
    assert!(all.heard.contains("\nid: 1\n"), "{}", all.heard);
    ends.until("\"outcome\":\"lost\"").await;
    assert_eq!(ends.kinds(), ["task_ended"]);

    // Rare events are kept; events of tasks are not, because tasks have a table.
    let recent = running.json("/api/v1/events/recent?limit=3").await;
    let events = recent["events"].as_array().unwrap();
    let kinds: Vec<&Value> = events.iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["worker_gone", "worker_away", "run_stopped"]);
    assert_eq!(events[0]["data"]["worker"], "w");
    assert_eq!(events[2]["data"]["name"], "nightly");

    let all = running
        .json("/api/v1/events/recent?kind=worker_gone&kind=run_stopped")
        .await;
    assert_eq!(all["events"], json!([events[0], events[2]]));

    let refused = get(running.address, "/api/v1/events?kind=tasks").await;
    assert!(
        refused.status == 400 && refused.body.contains("task_started"),
        "{}",
        refused.body
    );
    let mut more = Vec::new();
    for _ in 2..EVENT_SUBSCRIBERS_MAX {
        more.push(Listener::new(&running, "").await);
    }
    assert_eq!(get(running.address, "/api/v1/events").await.status, 429);
}

/// With a label, events of workers with the label are sent, of every kind, and events of no worker are
/// not.
#[tokio::test]
async fn events_are_filtered_by_label() {
    let running = serve().await;
    let mut of_zone = Listener::new(&running, "?label=zone=b&label=zone=*").await;
    let mut of_both = Listener::new(&running, "?label=zone=a&label=zone=b").await;
    let mut all = Listener::new(&running, "").await;
    for (id, zone) in [("w-1", "a"), ("w-2", "b"), ("w-3", "a")] {
        let mut worker = TestWorker::new(id, 1);
        worker.zone = zone.to_owned();
        let mut client = Client::attach(running.address, worker.hello()).await;
        let tasks = vec![worker.task(1, "load", (10, Some(12)))];
        let mut flush = worker.flush(30, tasks);
        let run = RunMarker {
            id: RunId(1),
            name: "nightly".into(),
            start: at(9),
            stop: Some(at(13)),
        };
        worker.tell(
            &mut flush,
            Telemetry {
                runs: vec![run],
                ..Default::default()
            },
        );
        client
            .send(agent_message::Kind::Dictionary(
                worker.dictionary().unwrap(),
            ))
            .await;
        assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
        client
            .send(agent_message::Kind::Goodbye(Default::default()))
            .await;
        assert!(client.receive().await.is_none());
        all.until(&format!("event: worker_gone\ndata: {{\"worker\":\"{id}\""))
            .await;
    }
    let body = r#"{"name": "by hand"}"#;
    send(
        running.address,
        "POST /api/v1/runs",
        "application/json",
        body,
    )
    .await;
    all.until("by hand").await;
    let expected = [
        "worker_connected",
        "run_stopped",
        "task_ended",
        "worker_away",
        "worker_gone",
    ];
    of_zone.until("event: worker_gone").await;
    assert_eq!(of_zone.kinds(), expected);
    assert!(
        !of_zone.heard.contains("w-1") && !of_zone.heard.contains("w-3"),
        "{}",
        of_zone.heard
    );
    let recent = running
        .json("/api/v1/events/recent?label=zone=b&limit=3")
        .await;
    let events = recent["events"].as_array().unwrap().iter();
    let received: Vec<Value> = events
        .map(|it| json!([it["kind"], it["data"]["worker"]]))
        .collect();
    let expected = ["worker_gone", "worker_away", "run_stopped"].map(|kind| json!([kind, "w-2"]));
    assert_eq!(received, expected);
    for path in ["events", "events/recent"] {
        let refused = get(running.address, &format!("/api/v1/{path}?label=zone")).await;
        assert!(
            refused.status == 400 && refused.body.contains("KEY=VALUE"),
            "{}",
            refused.body
        );
    }
    running.stop.send(()).unwrap();
    let mut rest = Vec::new();
    of_both.stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(
        of_both.kinds(),
        [""; 0],
        "{}",
        String::from_utf8_lossy(&rest)
    );
    assert!(!String::from_utf8_lossy(&rest).contains("event: "));
}

#[tokio::test]
async fn stopping_ends_event_streams() {
    let running = serve().await;
    let mut listener = Listener::new(&running, "").await;
    running.stop.send(()).unwrap();
    let served = timeout(base::limits::SHUTDOWN_MAX / 2, running.served).await;
    served
        .expect("it does not wait for subscribers")
        .unwrap()
        .unwrap();
    let mut rest = Vec::new();
    listener.stream.read_to_end(&mut rest).await.unwrap();
}
