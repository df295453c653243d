//! Queries of Grafana's Pyroscope data source, over real sockets. `cargo xtask test --only clients` asks them
//! with a client of the Connect protocol.

use std::collections::BTreeMap;

use profiler_core::wire::v1::agent_message;
use prost::Message;

use super::access::Guarded;
use super::client::{Answer, send_bytes};
use super::*;
use base::limits::GRAFANA_BODY_BYTES_MAX;
use front::auth::{NewToken, Role};

const SERVICE: &str = "/querier.v1.QuerierService";
const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const WALL: &str = "wall:wall:nanoseconds:wall:nanoseconds";

/// The test's samples are in the second from 30 s after the start of the tests' time.
const FROM_S: i64 = 20;
const TO_S: i64 = 40;

fn ms(seconds: i64) -> i64 {
    at(seconds).unix_ns() / 1_000_000
}

/// Two workers with different labels and three tasks.
async fn busy() -> (Running, Vec<Client>) {
    let running = serve().await;
    let mut clients = Vec::new();
    for (id, labels, stacks) in [
        (
            "a",
            [("region", "eu"), ("service", "shop")],
            &["load;main;parse 7", "store;main 2"][..],
        ),
        (
            "b",
            [("region", "us"), ("a.b", "c")],
            &["load;main 5", "[no task];idle 40"][..],
        ),
    ] {
        let mut worker = TestWorker::new(id, 1);
        let mut hello = worker.hello();
        hello.labels = labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let mut client = Client::attach(running.address, hello).await;
        for line in stacks {
            let (stack, nanoseconds) = line.rsplit_once(' ').unwrap();
            worker.count(stack, State::Cpu, nanoseconds.parse().unwrap());
        }
        worker.count("load;main;read", State::Disk, 100);
        let flush = worker.flush(30, Vec::new());
        client
            .send(agent_message::Kind::Dictionary(
                worker.dictionary().unwrap(),
            ))
            .await;
        assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
        clients.push(client);
    }
    (running, clients)
}

/// As of Pyroscope, which counts profiles from the start to the end, both included.
#[tokio::test]
async fn a_range_contains_its_end_and_null_is_a_default() {
    let (running, _clients) = busy().await;
    for (end_ms, is_in) in [(ms(30) - 1, false), (ms(30), true)] {
        let mut body = stacks(CPU, "{}");
        body["end"] = json!(end_ms);
        body["stackTraceSelector"] = json!(null);
        body["labelSelector"] = json!(null);
        let answer = running.call("SelectMergeStacktraces", body.clone()).await;
        let total = if is_in { "54" } else { "0" };
        assert_eq!(answer["flamegraph"]["total"], total, "{end_ms}");
        body["groupBy"] = json!(null);
        body["aggregation"] = json!(null);
        body["step"] = json!(5.0);
        let answer = running.call("SelectSeries", body).await;
        let points = answer["series"][0]["points"].as_array().unwrap();
        let sum: f64 = points
            .iter()
            .map(|point| point["value"].as_f64().unwrap())
            .sum();
        assert_eq!(
            (sum > 0.0, points.len()),
            (is_in, if is_in { 3 } else { 2 })
        );
    }
}

impl Running {
    async fn call_with(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let host = self.address.to_string();
        let headers = [&[("host", &*host)], headers].concat();
        send_bytes(
            self.address,
            &format!("POST {SERVICE}/{method}"),
            &headers,
            body,
        )
        .await
    }

    async fn call(&self, method: &str, body: Value) -> Value {
        let json = [("content-type", "application/json")];
        let answer = self
            .call_with(method, &json, body.to_string().as_bytes())
            .await;
        assert_eq!(answer.status, 200, "{method} {body}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// The status, code and message of an error.
    async fn failed(&self, method: &str, body: Value) -> (u16, String, String) {
        let json = [("content-type", "application/json")];
        error(
            self.call_with(method, &json, body.to_string().as_bytes())
                .await,
        )
    }

    /// The total of a flame graph, in nanoseconds.
    async fn total(&self, profile_type: &str, selector: &str) -> String {
        let answer = self
            .call("SelectMergeStacktraces", stacks(profile_type, selector))
            .await;
        answer["flamegraph"]["total"].as_str().unwrap().to_owned()
    }

    /// The sums of series, by their labels.
    async fn series(&self, selector: &str, group_by: &[&str]) -> BTreeMap<String, f64> {
        let mut body = stacks(CPU, selector);
        body["groupBy"] = json!(group_by);
        body["step"] = json!(5.0);
        let answer = self.call("SelectSeries", body).await;
        let series = answer["series"].as_array().unwrap().iter().map(|series| {
            let labels = series["labels"].as_array().unwrap().iter().map(|label| {
                format!(
                    "{}={}",
                    label["name"].as_str().unwrap(),
                    label["value"].as_str().unwrap()
                )
            });
            let points = series["points"].as_array().unwrap();
            let times = points
                .iter()
                .map(|point| point["timestamp"].as_str().unwrap());
            let expected = (1..=4).map(|step| (ms(FROM_S) + step * 5_000).to_string());
            assert!(times.eq(expected), "{points:?}");
            let values: Vec<f64> = points
                .iter()
                .map(|point| point["value"].as_f64().unwrap())
                .collect();
            assert_eq!(
                values[2],
                values.iter().sum::<f64>(),
                "only one step has samples"
            );
            (labels.collect::<Vec<_>>().join(","), values[2])
        });
        series.collect()
    }
}

fn error(answer: Answer) -> (u16, String, String) {
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    let text = |name: &str| body[name].as_str().unwrap().to_owned();
    (answer.status, text("code"), text("message"))
}

/// A request in JSON, where numbers of 64 bits may be texts.
fn stacks(profile_type: &str, selector: &str) -> Value {
    json!({
        "profileTypeID": profile_type, "labelSelector": selector,
        "start": ms(FROM_S), "end": ms(TO_S).to_string(),
    })
}

#[tokio::test]
async fn matchers_select_workers_and_tasks_with_totals_of_our_own_api() {
    let (running, _clients) = busy().await;
    for (selector, query, expected) in [
        ("{}", "", "54"),
        (r#"{task="load"}"#, "&task=load", "12"),
        (
            r#"{task=~"load|store", region="eu"}"#,
            "&task=load&task=store&label=region%3Deu",
            "9",
        ),
        (r#"{service_name="shop"}"#, "&worker=a", "9"),
        (r#"{a.b="c"}"#, "&label=a.b%3Dc", "45"),
    ] {
        assert_eq!(running.total(CPU, selector).await, expected, "{selector}");
        let range = format!("from={}&to={}", ms(FROM_S) / 1_000, ms(TO_S) / 1_000);
        let ours = running
            .json(&format!("/api/v1/profile?{range}&state=cpu{query}"))
            .await;
        assert_eq!(ours["totals"]["total_ns"].to_string(), expected, "{query}");
    }
    // Time outside of tasks is a value of its own, which our own parameters lack.
    assert_eq!(running.total(CPU, r#"{task="[no task]"}"#).await, "40");
    assert_eq!(running.total(CPU, r#"{task!="[no task]"}"#).await, "14");
    assert_eq!(running.total(CPU, r#"{task!="load"}"#).await, "42");
    assert_eq!(
        running.total(WALL, r#"{task!="load",worker="a"}"#).await,
        "2"
    );
    assert_eq!(running.total(WALL, r#"{worker=~".*"}"#).await, "254");
    // The type is a label too, of which a query asks for one value.
    for (comparison, expected) in [("=", "54"), ("!=", "0")] {
        let of_type = format!("{{__profile_type__{comparison}{CPU:?}}}");
        assert_eq!(running.total(CPU, &of_type).await, expected, "{of_type}");
        let of_other = format!("{{__profile_type__{comparison}{WALL:?}, task=\"load\"}}");
        let expected = if expected == "0" { "12" } else { "0" };
        assert_eq!(running.total(CPU, &of_other).await, expected, "{of_other}");
    }
    for nothing in [r#"{region="none"}"#, r#"{task="none"}"#, r#"{task=""}"#] {
        assert_eq!(running.total(CPU, nothing).await, "0", "{nothing}");
    }
}

#[tokio::test]
async fn flame_graphs_are_levels_of_bars_within_the_asked_nodes() {
    let (running, _clients) = busy().await;
    let whole = running
        .call("SelectMergeStacktraces", stacks(CPU, r#"{worker="a"}"#))
        .await;
    let names = &whole["flamegraph"]["names"];
    let levels = whole["flamegraph"]["levels"].as_array().unwrap();
    let bars = |level: &Value| -> Vec<(String, String)> {
        let values: Vec<&str> = level["values"]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| value.as_str().unwrap())
            .collect();
        let name = |bar: &[&str]| {
            names[bar[3].parse::<usize>().unwrap()]
                .as_str()
                .unwrap()
                .to_owned()
        };
        values
            .chunks(4)
            .map(|bar| (name(bar), bar[1].to_owned()))
            .collect()
    };
    assert_eq!(bars(&levels[0]), [bar("total", "9")]);
    assert_eq!(bars(&levels[1]), [bar("load", "7"), bar("store", "2")]);
    assert_eq!(whole["flamegraph"]["maxSelf"], "7");
    let mut few = stacks(CPU, r#"{worker="a"}"#);
    few["maxNodes"] = json!("2");
    let few = running.call("SelectMergeStacktraces", few).await;
    assert_eq!(few["flamegraph"]["total"], "9");
    assert!(
        few["flamegraph"]["names"]
            .as_array()
            .unwrap()
            .iter()
            .any(|name| name == "[pruned]")
    );

    let mut spans = stacks(CPU, "{}");
    assert_eq!(
        running.call("SelectMergeSpanProfile", spans.clone()).await["flamegraph"]["total"],
        "54"
    );
    spans["spanSelector"] = json!(["00f067aa0ba902b7"]);
    assert_eq!(
        running.call("SelectMergeSpanProfile", spans).await["flamegraph"]["total"],
        "0"
    );
    let sides = json!({
        "left": stacks(CPU, r#"{worker="a"}"#), "right": stacks(CPU, r#"{worker="b"}"#),
    });
    let diff = running.call("Diff", sides).await;
    assert_eq!(diff["flamegraph"]["leftTicks"], "9");
    assert_eq!(diff["flamegraph"]["rightTicks"], "45");
}

fn bar(name: &str, total: &str) -> (String, String) {
    (name.to_owned(), total.to_owned())
}

#[tokio::test]
async fn series_are_split_by_labels_and_stamped_at_the_end_of_their_step() {
    let (running, _clients) = busy().await;
    assert_eq!(running.series("{}", &[]).await, sums(&[("", 54.0)]));
    assert_eq!(
        running.series(r#"{task="load"}"#, &["region"]).await,
        sums(&[("region=eu", 7.0), ("region=us", 5.0)])
    );
    assert_eq!(
        running.series("{}", &["a.b"]).await,
        sums(&[("", 9.0), ("a.b=c", 45.0)])
    );
    assert_eq!(
        running.series("{}", &["worker", "task"]).await,
        sums(&[
            ("worker=a,task=load", 7.0),
            ("worker=a,task=store", 2.0),
            ("worker=b,task=[no task]", 40.0),
            ("worker=b,task=load", 5.0),
        ])
    );
    assert_eq!(
        running.series(r#"{region="none"}"#, &["region"]).await,
        sums(&[])
    );
    let by_type = format!("__profile_type__={CPU}");
    assert_eq!(
        running.series("{}", &["__profile_type__"]).await,
        sums(&[(&by_type, 54.0)])
    );
    let mut heaviest = stacks(CPU, "{}");
    heaviest["groupBy"] = json!(["region"]);
    heaviest["step"] = json!(20.0);
    heaviest["limit"] = json!(1);
    let answer = running.call("SelectSeries", heaviest.clone()).await;
    let labels = |index: usize| &answer["series"][index]["labels"];
    assert_eq!(answer["series"].as_array().unwrap().len(), 2);
    assert_eq!(*labels(0), json!([{ "name": "region", "value": "us" }]));
    // The rest is not left out in silence.
    let others =
        json!([{ "name": "region", "value": "[other]" }, { "name": "others", "value": "1" }]);
    assert_eq!(*labels(1), others);
    let points = answer["series"][1]["points"].as_array().unwrap().iter();
    let sum: f64 = points.map(|point| point["value"].as_f64().unwrap()).sum();
    assert_eq!(sum, 9.0);
    heaviest["limit"] = json!(2);
    let answer = running.call("SelectSeries", heaviest).await;
    assert_eq!(answer["series"].as_array().unwrap().len(), 2);
    assert_eq!(
        answer["series"][1]["labels"],
        json!([{ "name": "region", "value": "eu" }])
    );
}

fn sums(expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    expected
        .iter()
        .map(|(labels, sum)| ((*labels).to_owned(), *sum))
        .collect()
}

#[tokio::test]
async fn labels_and_profile_types_are_listed() {
    let (running, _clients) = busy().await;
    let types = running
        .call("ProfileTypes", json!({ "start": "0", "end": "1" }))
        .await;
    assert_eq!(
        types["profileTypes"][0],
        json!({
            "ID": CPU, "name": "process_cpu", "sampleType": "cpu", "sampleUnit": "nanoseconds",
            "periodType": "cpu", "periodUnit": "nanoseconds",
        })
    );
    let names = running.call("LabelNames", json!({})).await;
    let expected = [
        "__profile_type__",
        "a.b",
        "host",
        "region",
        "service",
        "service_name",
        "task",
        "worker",
    ];
    let mut names: Vec<&str> = names["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    names.retain(|name| *name != "host");
    assert!(
        names
            .iter()
            .eq(expected.iter().filter(|name| **name != "host")),
        "{names:?}"
    );
    let values = async |name: &str, matchers: &[&str]| {
        let body = json!({ "name": name, "matchers": matchers });
        running.call("LabelValues", body).await["names"].clone()
    };
    assert_eq!(
        values("service_name", &[]).await,
        json!(["shop", "unknown_service"])
    );
    assert_eq!(
        values("region", &[r#"{service_name="shop"}"#]).await,
        json!(["eu"])
    );
    let both = [r#"{worker="a"}"#, r#"{worker="b"}"#];
    assert_eq!(values("region", &both).await, json!(["eu", "us"]));
    assert_eq!(
        values("task", &[]).await,
        json!(["[no task]", "load", "store"])
    );
    assert_eq!(values("task", &[r#"{task=~"l.*"}"#]).await, json!(["load"]));
    let unknown_type = [r#"{__profile_type__="memory:inuse"}"#];
    assert_eq!(values("region", &unknown_type).await, json!([]));
    let cpu = format!("{{__profile_type__=\"{CPU}\"}}");
    assert_eq!(values("region", &[&cpu]).await, json!(["eu", "us"]));
}

#[tokio::test]
async fn the_older_paths_answer_the_same() {
    let (running, _clients) = busy().await;
    let [from, until] = [FROM_S, TO_S].map(|seconds| ms(seconds) / 1_000);
    let path = format!(
        "/pyroscope/render?query={}&from={from}&until={until}",
        query("{region=\"eu\"}")
    );
    let answer = get(running.address, &path).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let rendered: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(rendered["flamebearer"]["numTicks"], 9);
    assert_eq!(rendered["flamebearer"]["levels"][0], json!([0, 9, 0, 0]));
    assert_eq!(
        rendered["metadata"],
        json!({ "format": "single", "units": "samples", "name": "cpu", "sampleRate": 1_000_000_000 })
    );
    assert_eq!(rendered["timeline"]["startTime"], from);
    assert_eq!(rendered["timeline"]["durationDelta"], 1);
    assert_eq!(rendered["timeline"]["samples"][10], 9);
    let to_its_start = format!(
        "/pyroscope/render?query={}&from={from}&until={}",
        query("{region=\"eu\"}"),
        from + 10
    );
    let answer = get(running.address, &to_its_start).await;
    let rendered: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        rendered["flamebearer"]["numTicks"], 9,
        "the end is in the range"
    );
    assert_eq!(rendered["timeline"]["samples"], json!(vec![0; 10]));
    let path = format!(
        "/pyroscope/render-diff?leftQuery={}&leftFrom={from}&leftUntil={until}&rightQuery={}&\
         rightFrom={from}&rightUntil={until}",
        query("{region=\"eu\"}"),
        query("{region=\"us\"}")
    );
    let diff: Value = serde_json::from_str(&get(running.address, &path).await.body).unwrap();
    assert_eq!(diff["leftTicks"], 9, "{diff:#}");
    assert_eq!(diff["rightTicks"], 45);
    assert_eq!(diff["metadata"]["format"], "double");
    let values = get(running.address, "/pyroscope/label-values?label=region").await;
    assert_eq!(values.body, r#"["eu","us"]"#);
    for path in [
        "/pyroscope/render?query=x",
        "/pyroscope/render",
        "/pyroscope/label-values",
    ] {
        assert_eq!(get(running.address, path).await.status, 400, "{path}");
    }
}

fn query(selector: &str) -> String {
    let query = format!("{CPU}{selector}");
    form_urlencoded::byte_serialize(query.as_bytes()).collect::<String>()
}

#[tokio::test]
async fn a_query_in_protobuf_is_answered_in_protobuf() {
    #[derive(Clone, PartialEq, Message)]
    struct Asked {
        #[prost(string, tag = "1")]
        profile_type: String,
        #[prost(string, tag = "2")]
        selector: String,
        #[prost(int64, tag = "3")]
        start: i64,
        #[prost(int64, tag = "4")]
        end: i64,
    }
    let (running, _clients) = busy().await;
    let asked = Asked {
        profile_type: CPU.to_owned(),
        selector: "{}".to_owned(),
        start: ms(FROM_S),
        end: ms(TO_S),
    };
    let proto = [("content-type", "application/proto")];
    let answer = running
        .call_with("SelectMergeStacktraces", &proto, &asked.encode_to_vec())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("application/proto"));
}

#[tokio::test]
async fn errors_are_of_the_connect_protocol_and_name_what_is_allowed() {
    let (running, _clients) = busy().await;
    let failed = async |method: &str, body: Value, status: u16, code: &str, part: &str| {
        let (was_status, was_code, message) = running.failed(method, body).await;
        assert_eq!(
            (was_status, &*was_code),
            (status, code),
            "{method}: {message}"
        );
        assert!(message.contains(part), "{method}: {message}");
    };
    let invalid = "invalid_argument";
    failed(
        "GetProfileStats",
        json!({}),
        501,
        "unimplemented",
        "allowed: ProfileTypes, ",
    )
    .await;
    failed(
        "SelectMergeStacktraces",
        stacks("cpu", ""),
        400,
        invalid,
        CPU,
    )
    .await;
    failed(
        "SelectMergeStacktraces",
        stacks(CPU, "{a}"),
        400,
        invalid,
        "one of =, !=",
    )
    .await;
    let mut tree = stacks(CPU, "");
    tree["format"] = json!("PROFILE_FORMAT_TREE");
    failed(
        "SelectMergeStacktraces",
        tree,
        400,
        invalid,
        "PROFILE_FORMAT_FLAMEGRAPH",
    )
    .await;
    let mut reversed = stacks(CPU, "");
    reversed["end"] = json!(0);
    failed(
        "SelectMergeStacktraces",
        reversed,
        400,
        invalid,
        "the range is empty",
    )
    .await;
    for step in [json!(0.0), json!(-5), json!(0.5)] {
        let mut short = stacks(CPU, "");
        short["step"] = step;
        failed("SelectSeries", short, 400, invalid, "at least 1 s").await;
    }
    let mut long = stacks(CPU, "");
    long["start"] = json!(0);
    long["step"] = json!(1.0);
    failed(
        "SelectSeries",
        long,
        400,
        invalid,
        "at most 4000 are allowed",
    )
    .await;
    failed(
        "LabelValues",
        json!({ "name": 7 }),
        400,
        invalid,
        "invalid message",
    )
    .await;
    let matchers: Vec<&str> = vec!["{}"; 17];
    failed(
        "LabelNames",
        json!({ "matchers": matchers }),
        400,
        invalid,
        "at most 16",
    )
    .await;
    let huge = json!({ "name": "x".repeat(GRAFANA_BODY_BYTES_MAX) });
    failed("LabelValues", huge, 413, invalid, "65536 bytes").await;
    let answer = running
        .call_with("LabelNames", &[("content-type", "text/plain")], b"")
        .await;
    assert_eq!(error(answer).1, "unimplemented");
    let garbage = [("content-type", "application/proto")];
    assert_eq!(
        error(running.call_with("LabelNames", &garbage, b"\xff\xff").await).1,
        invalid
    );
}

#[tokio::test]
async fn each_of_many_workers_has_a_series() {
    const WORKERS: usize = 101;
    let running = serve().await;
    let mut clients = Vec::new();
    for number in 0..WORKERS {
        let worker = TestWorker::new(&format!("w{number}"), 1);
        clients.push(Client::attach(running.address, worker.hello()).await);
    }
    let mut body = stacks(CPU, "{}");
    body["step"] = json!(5);
    body["groupBy"] = json!(["worker"]);
    let answer = running.call("SelectSeries", body.clone()).await;
    assert_eq!(answer["series"].as_array().unwrap().len(), WORKERS);
    body["limit"] = json!(7);
    let answer = running.call("SelectSeries", body).await;
    assert_eq!(answer["series"].as_array().unwrap().len(), 7);
}

#[tokio::test]
async fn a_reader_may_ask_with_basic_authentication_and_an_agent_may_not() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    let guarded = Guarded::serve().await;
    let running = &guarded.running;
    let reader = guarded.token(NewToken::new(Role::Reader));
    let agent = guarded.agent("*");
    guarded.until_valid(&reader).await;
    let basic = |token: &profiler_core::Token| {
        format!(
            "Basic {}",
            STANDARD.encode(format!("grafana:{}", token.expose()))
        )
    };
    let json = ("content-type", "application/json");
    let call = async |authorization: &str| {
        let headers = [json, ("authorization", authorization)];
        running.call_with("ProfileTypes", &headers, b"{}").await
    };
    assert_eq!(call(&basic(&reader)).await.status, 200);
    let (status, code, message) = error(call(&basic(&agent)).await);
    assert_eq!((status, &*code), (403, "permission_denied"), "{message}");
    let (status, code, message) = error(running.call_with("ProfileTypes", &[json], b"{}").await);
    assert_eq!((status, &*code), (401, "unauthenticated"));
    assert!(
        message.contains("emberline token new --role reader"),
        "{message}"
    );
}
