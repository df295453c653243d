//! Answers to valid queries.

use std::sync::atomic::Ordering;

use profiler_core::wire::v1::agent_message;
use profiler_core::{PhaseInterval, State, TaskDetail};
use serde_json::{Value, json};

use super::client::{Client, get};
use super::{ALL, Running, attached, serve};
use state::testing::{SECOND_NS, TestWorker, at};

#[tokio::test]
async fn a_profile_has_times_and_sampling_quality() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let profile = running
        .json(&format!(
            "/api/v1/profile?{ALL}&task=load&worker=w&state=cpu"
        ))
        .await;
    assert_eq!(
        profile["totals"],
        json!({"cpu_ns": 5, "runnable_ns": 0, "lock_ns": 0, "interpreter_ns": 0,
               "sleep_ns": 0, "network_ns": 0, "disk_ns": 0, "other_ns": 0, "wait_ns": 0, "total_ns": 5})
    );
    assert_eq!(profile["profile"]["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(profile["workers"], json!(["w"]));
    assert_eq!(
        (
            &profile["ticks"],
            &profile["ticks_throttled"],
            &profile["ticks_missed"]
        ),
        (&json!(95), &json!(4), &json!(1))
    );
    assert_eq!(
        (
            &profile["empty"],
            &profile["achieved_rate_hz"],
            &profile["achieved_share"]
        ),
        (&json!(false), &json!(95.0), &json!(0.95))
    );
    let path = format!("/api/v1/profile?{ALL}&task=load&worker=w&state=cpu&format=columns");
    let columns = running.json(&path).await;
    assert_eq!(columns["totals"], profile["totals"]);
    assert_eq!(
        columns["profile"]["functions"]["names"],
        json!(["load", "main", "parse"])
    );
    assert_eq!(
        columns["profile"]["self"],
        json!({"cpu": {"nodes": [3], "ns": [5]}})
    );
    let lines = running
        .json(&format!("/api/v1/profile?{ALL}&by=line&threads=all"))
        .await;
    assert_eq!(lines["profile"]["nodes"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn a_profile_has_the_same_headers_in_each_format() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let collapsed = get(
        running.address,
        &format!("/api/v1/profile?{ALL}&format=collapsed"),
    )
    .await;
    assert_eq!(collapsed.body, "load;main;parse 00007\n");
    assert_eq!(
        collapsed.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(collapsed.header("x-emberline-rate-hz"), Some("95.000"));
    assert_eq!(collapsed.header("x-emberline-ticks-throttled"), Some("4"));
    assert_eq!(collapsed.header("x-emberline-ticks-missed"), Some("1"));
    assert_eq!(
        collapsed.header("content-security-policy"),
        Some("default-src 'none'")
    );
    let svg = get(
        running.address,
        &format!("/api/v1/profile?{ALL}&format=svg"),
    )
    .await;
    assert!(
        svg.body.contains("<svg") && svg.body.contains("parse"),
        "{}",
        svg.body
    );
    let rate = "; 95 of 100 ticks/s, 4 skipped (agent CPU limit), 1 missed<";
    assert!(svg.body.contains(rate), "{}", svg.body);
    assert_eq!(svg.header("content-type"), Some("image/svg+xml"));
    assert_eq!(svg.header("x-content-type-options"), Some("nosniff"));
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                  sandbox allow-scripts; base-uri 'none'; form-action 'none'; \
                  frame-ancestors 'none'";
    assert_eq!(svg.header("content-security-policy"), Some(policy));
}

#[tokio::test]
async fn waiting_can_be_selected_as_a_whole_or_by_kind() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    for (states, total_ns, named) in [
        (
            "state=wait",
            2,
            json!(["lock", "sleep", "network", "disk", "other", "interpreter"]),
        ),
        ("state=network", 2, json!(["network"])),
        ("state=lock", 0, json!(["lock"])),
        (
            "state=cpu&state=network&state=cpu",
            7,
            json!(["cpu", "network"]),
        ),
    ] {
        let profile = running
            .json(&format!("/api/v1/profile?{ALL}&{states}"))
            .await;
        assert_eq!(profile["totals"]["total_ns"], total_ns, "{states}");
        assert_eq!(profile["filter"]["states"], named, "{states}");
        let timeline = running
            .json(&format!("/api/v1/timeline?{ALL}&step=1m&{states}"))
            .await;
        assert_eq!(
            timeline["series"][0]["totals"]["total_ns"]
                .as_u64()
                .unwrap_or(0),
            total_ns
        );
    }
    let svg = get(
        running.address,
        &format!("/api/v1/profile?{ALL}&format=svg&state=wait"),
    )
    .await;
    assert!(
        svg.body.contains(">All tasks on w (host-1), wait<"),
        "{}",
        svg.body
    );
}

#[tokio::test]
async fn a_timeline_has_the_time_of_each_step() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let timeline = running
        .json("/api/v1/timeline?from=1000029&to=1000032&threads=all")
        .await;
    assert_eq!(
        (&timeline["steps"], &timeline["step_ns"]),
        (&json!(3), &json!(SECOND_NS))
    );
    assert_eq!(timeline["series"][0]["name"], "load");
    assert_eq!(timeline["series"][0]["cpu_ns"], json!([0, 5, 0]));
    assert_eq!(timeline["series"][0]["runnable_ns"], json!([0, 0, 0]));
    assert_eq!(timeline["series"][0]["wait_ns"], json!([0, 2, 0]));
    assert_eq!(timeline["series"][0]["network_ns"], json!([0, 2, 0]));
    assert_eq!(timeline["series"][0]["totals"]["network_ns"], 2);
    assert_eq!(
        timeline["series"][0]["lock_ns"],
        json!(null),
        "nothing waited for a lock"
    );
    assert_eq!(timeline["series"][1]["kind"], "agent");
}

#[tokio::test]
async fn the_ledger_has_rows_and_a_summary() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let tasks = running.json(&format!("/api/v1/tasks?{ALL}&limit=1")).await;
    let expected = json!([{
        "worker": "w", "epoch": "0000000000000001", "id": 2, "name": "load", "key": "load-2",
        "thread_id": 12, "thread_name": "pool-1", "parent": null,
        "start": "1970-01-12T13:47:00.000000000Z", "start_ns": at(20).unix_ns(),
        "stop": null, "stop_ns": null, "duration_ns": 40 * SECOND_NS,
        "outcome": "running", "cause": "",
        "attempt": null, "result_bytes": null, "type_name": "", "labels": {}, "phases": [],
    }]);
    assert_eq!(tasks["tasks"], expected);
    assert_eq!(
        (&tasks["total"], &tasks["truncated"]),
        (&json!(2), &json!(true))
    );
    for path in [
        "summary=true",
        "summary=true&worker=w",
        "summary=true&from=1000000",
    ] {
        let summary = running.json(&format!("/api/v1/tasks?{path}")).await;
        let load = &summary["names"][0];
        assert_eq!(
            (&load["name"], &load["running"]),
            (&json!("load"), &json!(1)),
            "{path}"
        );
        assert_eq!(
            (&load["outcomes"]["ok"], &load["outcomes"]["lost"]),
            (&json!(1), &json!(0))
        );
        assert_eq!(load["durations"]["p99_ns"], 2 * SECOND_NS, "{path}");
        assert_eq!(summary["range"].is_null(), !path.contains("from"), "{path}");
    }
}

/// A worker of zone b on another host, whose task was in a transfer; its clock is 3 s behind.
async fn transferring(running: &Running) -> Client {
    let mut worker = TestWorker::new("v", 1);
    (worker.host, worker.zone, worker.offset_ns) = ("host-2".into(), "b".into(), 3 * SECOND_NS);
    let mut client = Client::attach(running.address, worker.hello()).await;
    worker.count("load;@transfer;main;read", State::Network, 4);
    worker.count_thread("load;@transfer;pool#12", State::Network, 4);
    worker.count_thread("[no task];pool#12", State::Lock, 6);
    worker.count_thread("load;short#0", State::Cpu, 1);
    let detail = TaskDetail {
        attempt: 2,
        result_bytes: Some(9),
        type_name: "Vec<u8>".into(),
        labels: vec![("k".into(), "1".into()), ("k".into(), "2".into())],
        phases: vec![phase(-1, 1, 1), phase(0, 500_000_000, 3)],
    };
    let tasks = vec![worker.task_with(1, "load", (40, Some(41)), Some(detail))];
    let flush = worker.flush(30, tasks);
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
    client
}

fn phase(start_ns: i64, duration_ns: u64, count: u32) -> PhaseInterval {
    PhaseInterval {
        name: "transfer".into(),
        start_ns,
        duration_ns,
        count,
    }
}

/// The facts about a task that both rows and columns have.
const OUTLINE: [&str; 9] = [
    "worker",
    "epoch",
    "thread_id",
    "thread_name",
    "id",
    "start_ns",
    "name",
    "outcome",
    "duration_ns",
];

fn outlines_of_rows(answer: &Value) -> Vec<Value> {
    let outline = |row: &Value| OUTLINE.map(|name| (name.to_owned(), row[name].clone()));
    let rows = answer["tasks"].as_array().unwrap().iter();
    rows.map(|row| Value::Object(outline(row).into_iter().collect()))
        .collect()
}

fn outlines_of_columns(answer: &Value) -> Vec<Value> {
    let columns = &answer["columns"];
    let mut start_ns = answer["first_ns"].as_i64().unwrap();
    let places = 0..columns["id"].as_array().unwrap().len();
    let tasks = places.map(|at| {
        let thread = &answer["threads"][place(columns, "thread", at)];
        start_ns -= number(columns, "earlier_us", at) * 1_000;
        json!({
            "worker": thread["worker"], "epoch": thread["epoch"], "thread_id": thread["id"],
            "thread_name": thread["name"], "id": columns["id"][at], "start_ns": start_ns,
            "name": answer["names"][place(columns, "name", at)],
            "outcome": answer["outcomes"][place(columns, "outcome", at)],
            "duration_ns": number(columns, "duration_us", at) * 1_000,
        })
    });
    tasks.collect()
}

fn number(columns: &Value, name: &str, at: usize) -> i64 {
    columns[name][at].as_i64().unwrap()
}

fn place(columns: &Value, name: &str, at: usize) -> usize {
    usize::try_from(number(columns, name, at)).unwrap()
}

/// The same query in both formats, with limits that truncate and limits that do not.
#[tokio::test]
async fn task_columns_equal_task_rows() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let (mut other, mut others) = attached(&running, "other").await;
    for (worker, client) in [(&mut worker, &mut client), (&mut other, &mut others)] {
        let stops = [Some(33), None, Some(31), Some(39), Some(35)];
        let tasks = (3..)
            .zip(stops)
            .map(|(id, stop)| {
                let name = if id % 2 == 0 { "load" } else { "merge" };
                worker.task(id, name, (20 + i64::try_from(id).unwrap() % 4, stop))
            })
            .collect();
        let flush = worker.flush(40, tasks);
        let dictionary = worker.dictionary().unwrap();
        client
            .send(agent_message::Kind::Dictionary(dictionary))
            .await;
        assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    }
    for limit in [1, 3, 8, 1_000] {
        let path = format!("/api/v1/tasks?{ALL}&limit={limit}");
        let rows = running.json(&path).await;
        let columns = running.json(&format!("{path}&format=columns")).await;
        assert_eq!(
            (&columns["total"], &columns["truncated"]),
            (&json!(14), &rows["truncated"])
        );
        let mut both = [outlines_of_rows(&rows), outlines_of_columns(&columns)];
        // Among tasks with the same start, order and truncation are not defined.
        let [expected, found] = both
            .each_ref()
            .map(|all| all.iter().map(start).collect::<Vec<_>>());
        assert_eq!(found, expected);
        if limit == 1_000 {
            for all in &mut both {
                all.sort_by_key(|task| {
                    (start(task), task["worker"].to_string(), task["id"].as_i64())
                });
            }
            assert_eq!(both[1], both[0]);
        }
    }
}

fn start(task: &Value) -> i64 {
    task["start_ns"].as_i64().unwrap()
}

#[tokio::test]
async fn a_task_has_phases_and_details() {
    let running = serve().await;
    let _client = transferring(&running).await;
    let tasks = running
        .json(&format!("/api/v1/tasks?{ALL}&type=Vec%3Cu8%3E"))
        .await;
    let row = &tasks["tasks"][0];
    assert_eq!(
        (&row["attempt"], &row["result_bytes"]),
        (&json!(2), &json!(9))
    );
    assert_eq!(
        (&row["type_name"], &row["labels"]),
        (&json!("Vec<u8>"), &json!({"k": "2"}))
    );
    let start_ns = at(40).unix_ns();
    assert_eq!(row["start_ns"], start_ns);
    let expected = json!([
        {"name": "transfer", "start_ns": start_ns - 1, "duration_ns": 1, "count": 1},
        {"name": "transfer", "start_ns": start_ns, "duration_ns": 500_000_000, "count": 3},
    ]);
    assert_eq!(row["phases"], expected);
    let summary = running.json("/api/v1/tasks?summary=true").await;
    let expected = json!([
        {"name": "transfer", "tasks": 4, "duration_ns": 500_000_001},
        {"name": "execute", "tasks": 1, "duration_ns": 500_000_000},
    ]);
    assert_eq!(summary["names"][0]["phases"], expected);
}

#[tokio::test]
async fn thread_time_is_split_by_task_phase_and_state() {
    let running = serve().await;
    let _client = transferring(&running).await;
    let times = running
        .json(&format!("/api/v1/thread-time?{ALL}&worker=v"))
        .await;
    assert_eq!(
        (&times["elapsed_ns"], &times["corrupt_files"]),
        (&json!(SECOND_NS), &json!([]))
    );
    let expected = json!([
        {"worker": "v", "thread": "pool", "thread_id": 12, "total_ns": 10, "parts": [
            {"task": null, "phase": null, "state": "lock", "time_ns": 6},
            {"task": "load", "phase": "transfer", "state": "network", "time_ns": 4}]},
        {"worker": "v", "thread": "short", "thread_id": null, "total_ns": 1, "parts": [
            {"task": "load", "phase": "execute", "state": "cpu", "time_ns": 1}]},
    ]);
    assert_eq!(times["threads"], expected);
    let times = running
        .json(&format!("/api/v1/thread-time?{ALL}&by=worker"))
        .await;
    let of_worker = &times["threads"][0];
    assert_eq!(
        (&of_worker["thread"], &of_worker["total_ns"]),
        (&Value::Null, &json!(11))
    );
    let agent = running
        .json(&format!("/api/v1/thread-time?{ALL}&threads=agent"))
        .await;
    assert_eq!(agent["threads"], json!([]));
}

#[tokio::test]
async fn profiles_can_be_filtered_by_label_and_phase_and_grouped() {
    let running = serve().await;
    let (_, _first) = attached(&running, "w").await;
    let _second = transferring(&running).await;
    check_collapsed(&running, "label=zone%3Db", "load;main;read 00004\n").await;
    check_collapsed(
        &running,
        "label=zone%3D*&label=zone%3Da",
        "load;main;parse 00007\n",
    )
    .await;
    check_collapsed(&running, "label=zone%3Db&worker=w", "").await;
    check_collapsed(&running, "label=zone%3Dc", "").await;
    check_collapsed(&running, "phase=transfer", "load;main;read 00004\n").await;
    check_collapsed(&running, "phase=execute", "load;main;parse 00007\n").await;
    check_collapsed(
        &running,
        "phases=true&worker=v",
        "load;transfer;main;read 00004\n",
    )
    .await;
    check_collapsed(
        &running,
        "group=host",
        "host-1;load;main;parse 00007\nhost-2;load;main;read 00004\n",
    )
    .await;
    check_collapsed(
        &running,
        "group=label:zone",
        "a;load;main;parse 00007\nb;load;main;read 00004\n",
    )
    .await;
    check_collapsed(
        &running,
        "group=worker&phases=true&phase=transfer",
        "v;load;transfer;main;read 00004\n",
    )
    .await;
    check_collapsed(
        &running,
        "group=phase",
        "execute;load;main;parse 00007\ntransfer;load;main;read 00004\n",
    )
    .await;
    let json = running
        .json(&format!("/api/v1/profile?{ALL}&group=phase&phases=true"))
        .await;
    let nodes = json["profile"]["nodes"].as_array().unwrap();
    let kinds: Vec<&str> = nodes
        .iter()
        .map(|node| node["kind"].as_str().unwrap())
        .collect();
    let expected = [
        "group", "task", "function", "function", "group", "task", "phase", "function", "function",
    ];
    assert_eq!(kinds, expected);
    for path in ["tasks", "timeline", "thread-time"] {
        let none = running
            .json(&format!("/api/v1/{path}?{ALL}&label=zone%3Dc"))
            .await;
        let rows = ["tasks", "series", "threads"]
            .into_iter()
            .find_map(|key| none.get(key));
        assert_eq!(rows, Some(&json!([])), "{path}");
    }
    let timeline = running
        .json(&format!("/api/v1/timeline?{ALL}&phase=transfer"))
        .await;
    assert_eq!(timeline["series"][0]["totals"]["total_ns"], 4);
}

async fn check_collapsed(running: &Running, parameters: &str, expected: &str) {
    let path = format!("/api/v1/profile?{ALL}&format=collapsed&{parameters}");
    let answer = get(running.address, &path).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, expected),
        "{parameters}"
    );
}

#[tokio::test]
async fn workers_are_listed_and_livez_is_ok() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    assert_eq!(get(running.address, "/livez").await.body, "ok");
    let workers = running.json("/api/v1/workers?worker=w").await;
    let epoch = &workers["workers"][0]["epochs"][0];
    assert_eq!(epoch["labels"], json!({"zone": "a"}));
    assert_eq!(
        (&epoch["state"], &epoch["running_tasks"]),
        (&json!("connected"), &json!(1))
    );
    assert_eq!(epoch["clock"], json!({"offset_ns": 0, "error_ns": 5}));
    assert_eq!(workers["retained"]["unsealed_windows"], 1);
}

#[tokio::test]
async fn a_known_task_without_samples_is_an_empty_profile_with_the_span_of_data() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let path = "/api/v1/profile?from=1000040&task=load";
    let empty = running.json(path).await;
    assert_eq!(
        (&empty["empty"], &empty["achieved_rate_hz"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(empty["profile"]["nodes"], json!([]));
    assert_eq!(empty["data"]["from_ns"], at(30).unix_ns());
    for format in ["collapsed", "svg"] {
        let answer = get(running.address, &format!("{path}&format={format}")).await;
        assert_eq!(
            (answer.status, answer.header("x-emberline-empty")),
            (200, Some("true"))
        );
        let data = "1970-01-12T13:47:10.000000000Z/1970-01-12T13:47:11.000000000Z";
        assert_eq!(answer.header("x-emberline-data"), Some(data));
    }
    // `now` is by the collector's clock.
    running.now_ns.store(at(31).unix_ns(), Ordering::SeqCst);
    assert_eq!(
        running.json("/api/v1/profile?from=-1s").await["empty"],
        false
    );
}
