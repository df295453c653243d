//! Settings and thread dumps, over real sockets, with agents that the tests play.

use profiler_core::State;
use profiler_core::wire::v1::{self, agent_message, collector_message::Kind};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::client::{Answer, Client, get, send};
use super::{Running, attached, serve};
use state::testing::TestWorker;

const SETTINGS: &str = "PUT /api/v1/workers/settings";

impl Running {
    /// Sends a change of settings while the test plays the agents.
    fn put(&self, query: &str, body: &str) -> JoinHandle<Answer> {
        let address = self.address;
        let line = format!("{SETTINGS}{query}");
        let body = body.to_owned();
        tokio::spawn(async move { send(address, &line, "application/json", &body).await })
    }

    fn get(&self, path: &str) -> JoinHandle<Answer> {
        let address = self.address;
        let path = path.to_owned();
        tokio::spawn(async move { get(address, &path).await })
    }
}

async fn json_of(answer: JoinHandle<Answer>) -> Value {
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).unwrap()
}

async fn settings(client: &mut Client) -> v1::Settings {
    match client.receive().await {
        Some(Kind::Settings(settings)) => settings,
        other => panic!("{other:?}"),
    }
}

async fn dump_request(client: &mut Client) -> u64 {
    match client.receive().await {
        Some(Kind::ThreadDumpRequest(request)) => request.id,
        other => panic!("{other:?}"),
    }
}

fn applied(revision: u64, interval_ns: u64, enabled: bool) -> agent_message::Kind {
    agent_message::Kind::Applied(v1::AppliedSettings {
        revision,
        interval_ns,
        enabled,
        states: 0b111_1111,
        mode: "by hand".to_owned(),
        signal_blocked_threads: 2,
        signal_blocked_since_ns: 1_000_000_000,
        ..v1::AppliedSettings::default()
    })
}

#[tokio::test]
async fn settings_reach_a_connected_agent_and_the_answer_shows_those_applied() {
    let running = serve().await;
    let (_, mut client) = attached(&running, "w").await;
    let (_, mut other) = attached(&running, "other").await;
    let answer = running.put("?worker=w", r#"{"interval_ms": 20}"#);
    let wanted = settings(&mut client).await;
    assert_eq!(
        (wanted.interval_ns, wanted.enabled, wanted.states),
        (Some(20_000_000), None, None)
    );
    let path = "/api/v1/workers?worker=w";
    running
        .until(path, "/workers/0/epochs/0/settings_pending", json!(true))
        .await;
    client
        .send(applied(wanted.revision, 20_000_000, true))
        .await;
    let states = json!(State::ALL.map(State::name));
    let expected = json!({"workers": [{
        "worker": "w", "epoch": "0000000000000001", "connected": true, "applied": true,
        "interval_ns": 20_000_000, "enabled": true, "states": states,
    }]});
    assert_eq!(json_of(answer).await, expected);
    let epoch = &running.json(path).await["workers"][0]["epochs"][0];
    assert_eq!(epoch["signal_blocked_threads"], 2);
    assert_eq!(
        epoch["signal_blocked_since"],
        "1970-01-01T00:00:01.000000000Z"
    );
    let shown: Vec<&Value> = [
        "interval_ns",
        "enabled",
        "states",
        "sampler_mode",
        "settings_pending",
    ]
    .iter()
    .map(|field| &epoch[field])
    .collect();
    let expected = [
        json!(20_000_000),
        json!(true),
        states,
        json!("by hand"),
        json!(false),
    ];
    assert_eq!(shown, expected.iter().collect::<Vec<_>>());

    // A change without a worker reaches the other agent too.
    let answer = running.put("", r#"{"enabled": false}"#);
    let all = settings(&mut other).await;
    assert_eq!((all.interval_ns, all.enabled), (None, Some(false)));
    other.send(applied(all.revision, 10_000_000, false)).await;
    let both = settings(&mut client).await;
    assert_eq!(
        (both.interval_ns, both.enabled),
        (Some(20_000_000), Some(false))
    );
    client.send(applied(both.revision, 20_000_000, false)).await;
    let workers: Vec<_> = json_of(answer).await["workers"]
        .clone()
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["applied"].clone())
        .collect();
    assert_eq!(workers, [json!(true), json!(true)]);
}

#[tokio::test]
async fn settings_apply_to_agents_that_reconnect_or_connect_later() {
    let running = serve().await;
    let (worker, client) = attached(&running, "w").await;
    drop(client);
    running
        .until(
            "/api/v1/workers",
            "/workers/0/epochs/0/connected",
            json!(false),
        )
        .await;
    let answer = json_of(running.put("?worker=w", r#"{"interval_ms": 20}"#)).await;
    let answered = &answer["workers"][0];
    assert_eq!(
        (&answered["connected"], &answered["applied"]),
        (&json!(false), &json!(false))
    );
    let mut client = Client::attach(running.address, worker.hello()).await;
    assert_eq!(settings(&mut client).await.interval_ns, Some(20_000_000));
    drop(client);
    running
        .until(
            "/api/v1/workers",
            "/workers/0/epochs/0/connected",
            json!(false),
        )
        .await;
    let nobody = json_of(running.put("", r#"{"enabled": false}"#)).await;
    assert_eq!(nobody, json!({"workers": []}));
    let mut later = Client::attach(running.address, TestWorker::new("later", 1).hello()).await;
    let wanted = settings(&mut later).await;
    assert_eq!((wanted.interval_ns, wanted.enabled), (None, Some(false)));
}

/// An agent sends Hello before its sampler starts, so that mode says nothing about a disconnected worker.
#[tokio::test]
async fn the_mode_of_a_disconnected_worker_is_the_one_it_reported_or_null() {
    let running = serve().await;
    for (id, reports) in [("silent", false), ("w", true)] {
        let (mut worker, mut client) = attached(&running, id).await;
        let path = format!("/api/v1/workers?worker={id}");
        let mode = "/workers/0/epochs/0/sampler_mode";
        assert_eq!(
            running.json(&path).await.pointer(mode),
            Some(&json!("signals"))
        );
        if reports {
            client.send(applied(0, 10_000_000, true)).await;
            let flush = worker.flush(31, vec![]);
            client.ask(agent_message::Kind::Flush(flush)).await;
        }
        drop(client);
        running
            .until(&path, "/workers/0/epochs/0/connected", json!(false))
            .await;
        let expected = if reports {
            json!("by hand")
        } else {
            Value::Null
        };
        assert_eq!(
            running.json(&path).await.pointer(mode),
            Some(&expected),
            "{id}"
        );
    }
}

/// Answers the next request with these threads: name, node, state, time blocked.
async fn answer_with(client: &mut Client, threads: &[(&str, u32, Option<State>, u64)]) {
    let id = dump_request(client).await;
    let threads = (1..)
        .zip(threads)
        .map(|(thread_id, (name, node, state, blocked_ns))| {
            let state = u32::try_from(state.map_or(0, |state| {
                State::ALL.iter().position(|known| *known == state).unwrap() + 1
            }))
            .unwrap();
            let name = (*name).to_owned();
            let node = *node;
            let blocked_ns = *blocked_ns;
            v1::ThreadStack {
                thread_id,
                name,
                node,
                state,
                age_ns: 3,
                blocked_ns,
                ..v1::ThreadStack::default()
            }
        })
        .collect();
    let stacks = v1::ThreadDump {
        id,
        threads,
        omitted: 1,
        ..Default::default()
    };
    client.send(agent_message::Kind::ThreadDump(stacks)).await;
}

/// The agent's nodes of the innermost frames of two stacks.
const PARSE: u32 = 3;
const AGENT: u32 = 6;

const THREADS: [(&str, u32, Option<State>, u64); 5] = [
    ("pool-1", PARSE, Some(State::Cpu), 0),
    ("pool-2", PARSE, Some(State::ALL[2]), 50),
    ("pool-3", PARSE, Some(State::ALL[2]), 70),
    ("emberline-syms", AGENT, Some(State::Cpu), 0),
    ("young", 0, None, 0),
];

/// Groups as text: kind, task, state, innermost name, threads.
fn groups(answer: &Value) -> Vec<String> {
    let groups = answer["workers"][0]["groups"].as_array().unwrap();
    let short = groups.iter().map(|group| {
        let names: Vec<_> = group["threads"]
            .as_array()
            .unwrap()
            .iter()
            .map(|thread| &thread["name"])
            .map(|name| name.as_str().unwrap())
            .collect();
        let inner = &group["stack"][0]["name"];
        let [kind, task, state] = ["kind", "task", "state"].map(|field| &group[field]);
        format!("{kind} {task} {state} {inner} {}", names.join(",")).replace('"', "")
    });
    short.collect()
}

#[tokio::test]
async fn threads_are_grouped_by_stack_and_running_ones_come_first() {
    let running = serve().await;
    let (_, mut client) = attached(&running, "w").await;
    let check = async |client: &mut Client, query: &str, expected: &[&str]| {
        let answer = running.get(&format!("/api/v1/thread-dump{query}"));
        answer_with(client, &THREADS).await;
        let answer = json_of(answer).await;
        assert_eq!(answer["workers"][0]["omitted"], 1);
        assert_eq!(groups(&answer), expected, "{query}");
        answer
    };
    let run = "task load cpu parse pool-1";
    let blocked = format!("task load {} parse pool-3,pool-2", State::ALL[2].name());
    let answer = check(
        &mut client,
        "",
        &[run, &blocked, "not_seen null null null young"],
    )
    .await;
    let group = &answer["workers"][0]["groups"][1];
    let stack = json!([
        {"name": "parse", "module": "", "file": "src/x.rs", "line": 3, "inlined": false,
         "plumbing": false},
        {"name": "main", "module": "", "file": "src/x.rs", "line": 1, "inlined": false,
         "plumbing": false},
    ]);
    assert_eq!(group["stack"], stack);
    let thread = json!({"id": 3, "name": "pool-3", "blocked_ns": 70, "age_ns": 3});
    assert_eq!(group["threads"][0], thread);
    check(&mut client, "?task=load", &[run, &blocked]).await;
    check(&mut client, "?thread=pool-1&worker=w", &[run]).await;
    check(
        &mut client,
        "?threads=agent",
        &["agent null cpu sampler emberline-syms"],
    )
    .await;
}

#[tokio::test]
async fn an_agent_that_does_not_respond_is_named_with_the_reason() {
    let running = serve().await;
    let (_, mut client) = attached(&running, "w").await;
    let answer = running.get("/api/v1/thread-dump");
    let id = dump_request(&mut client).await;
    let unavailable = "sampling is off".to_owned();
    let stacks = v1::ThreadDump {
        id,
        unavailable,
        ..Default::default()
    };
    client.send(agent_message::Kind::ThreadDump(stacks)).await;
    check_reason(answer, "sampling is off").await;

    let answer = running.get("/api/v1/thread-dump");
    answer_with(&mut client, &[("t", 99, Some(State::Cpu), 0)]).await;
    check_reason(
        answer,
        "invalid thread dump: node 99 is outside its table of 7",
    )
    .await;

    let answer = running.get("/api/v1/thread-dump");
    dump_request(&mut client).await;
    drop(client);
    check_reason(answer, "its stream ended before it responded").await;
    running
        .until(
            "/api/v1/workers",
            "/workers/0/epochs/0/connected",
            json!(false),
        )
        .await;
    assert_eq!(
        json_of(running.get("/api/v1/thread-dump")).await["workers"],
        json!([])
    );
    let named = running.get("/api/v1/thread-dump?worker=w");
    check_reason(named, "no agent of this worker is connected").await;
}

async fn check_reason(answer: JoinHandle<Answer>, expected: &str) {
    let answer = json_of(answer).await;
    let worker = &answer["workers"][0];
    assert_eq!(
        (&worker["worker"], &worker["responded"]),
        (&json!("w"), &json!(false))
    );
    assert_eq!(worker["reason"], expected);
}

#[tokio::test]
async fn an_invalid_report_is_counted_as_refused_and_does_not_end_the_stream() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    client.send(applied(1, 5, true)).await;
    let late = v1::ThreadDump {
        id: 77,
        ..Default::default()
    };
    client.send(agent_message::Kind::ThreadDump(late)).await;
    let flush = worker.flush(31, vec![]);
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    let epoch = &running.json("/api/v1/workers").await["workers"][0]["epochs"][0];
    let reason = "the interval in nanoseconds is 5; it must be from 1 ms to 1 s";
    assert_eq!(
        (&epoch["rejected"], &epoch["last_rejection"]),
        (&json!(1), &json!(reason))
    );
    assert_eq!(epoch["interval_ns"], 10_000_000, "as in its Hello");
}

#[tokio::test]
async fn invalid_settings_and_queries_are_rejected() {
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    let check = async |query: &str, kind: &str, body: &str, status: u16, error: &str| {
        let answer = send(running.address, &format!("{SETTINGS}{query}"), kind, body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let failure: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(
            failure["error"].as_str().unwrap().contains(error),
            "{body}: {failure}"
        );
    };
    let json = "application/json";
    let good = r#"{"enabled": false}"#;
    // Types that a page of another site can send without a preflight request.
    let error = "content-type: application/json";
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        check("", kind, good, 415, error).await;
    }
    check("", json, "{}", 400, "nothing to set").await;
    check(
        "",
        json,
        r#"{"interval_ms": 0}"#,
        400,
        "it must be from 1 to 1000",
    )
    .await;
    check(
        "",
        json,
        r#"{"states": ["asleep"]}"#,
        400,
        "allowed: cpu, runnable",
    )
    .await;
    let large = format!("{{\"states\": [{}\"cpu\"]}}", "\"cpu\",".repeat(1_000));
    check("", json, &large, 413, "limit").await;
    let nearest = "no worker is called \"worker-2\"; the nearest are: \"worker-1\"";
    check("?worker=worker-2", json, good, 404, nearest).await;
    check("?task=load", json, good, 400, "unknown parameter \"task\"").await;
    let got = get(running.address, "/api/v1/workers/settings").await;
    assert_eq!(
        (got.status, got.body.contains("\"allowed\":[\"PUT\"]")),
        (405, true),
        "{}",
        got.body
    );
    let got = get(running.address, "/api/v1/thread-dump?task=laod").await;
    assert_eq!(
        (got.status, got.body.contains("the nearest are")),
        (404, true),
        "{}",
        got.body
    );
    let epoch = &running.json("/api/v1/workers").await["workers"][0]["epochs"][0];
    assert_eq!(epoch["settings_pending"], false, "nothing was changed");
}
