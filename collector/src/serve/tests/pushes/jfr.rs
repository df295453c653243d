//! Pushes of Pyroscope's agent for Java: a form with a recording and the labels of its samples.

use std::collections::BTreeMap;

use ::jfr::Integers;
use ::jfr::testing::{Datum, TestChunk};
use prost::Message;

use super::*;

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=x");

/// The query of the agent, whose samples are 10 ms.
fn query(name: &str) -> String {
    format!(
        "name={name}&units=samples&aggregationType=sum&{TIMES}&spyName=javaspy&sampleRate=100&format=jfr"
    )
}

fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        let head = format!(
            "--x\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        body.extend(head.as_bytes());
        body.extend(*content);
        body.extend(b"\r\n");
    }
    body.extend(b"--x--\r\n");
    body
}

/// 3 samples of which 2 are labeled, a wait of 25 ms, and 4 allocations.
fn recording() -> Vec<u8> {
    let mut chunk = TestChunk::new(Integers::Compressed);
    chunk.setting("jdk.ActiveRecording", "event", "itimer");
    chunk.setting("jdk.ExecutionSample", "interval", "10000000");
    let common = [
        ("sampledThread", chunk.thread("main", 1)),
        ("eventThread", chunk.thread("main", 1)),
        ("stackTrace", chunk.stack(&["Shop.pay:9", "Shop.main:3"])),
    ];
    let mut event = |name: &str, key: &'static str, number: u64| {
        chunk.event(
            name,
            &[&common[..], &[(key, Datum::Number(number))]].concat(),
        );
    };
    for context in [0, 1, 2] {
        event("jdk.ExecutionSample", "contextId", context);
    }
    event("jdk.JavaMonitorEnter", "duration", 25_000_000);
    for _ in 0..4 {
        event("jdk.ObjectAllocationInNewTLAB", "allocationSize", 16);
    }
    chunk.bytes()
}

#[derive(Clone, PartialEq, Message)]
struct Snapshot {
    #[prost(btree_map = "int64, message", tag = "1")]
    contexts: BTreeMap<i64, Context>,
    #[prost(btree_map = "int64, string", tag = "2")]
    texts: BTreeMap<i64, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Context {
    #[prost(btree_map = "int64, int64", tag = "1")]
    labels: BTreeMap<i64, i64>,
}

fn labels() -> Vec<u8> {
    let texts = ["task", "checkout", "region", "eu"].map(str::to_owned);
    let context = |labels: &[(i64, i64)]| Context {
        labels: labels.iter().copied().collect(),
    };
    let contexts = [(1, context(&[(1, 2)])), (2, context(&[(1, 2), (3, 4)]))];
    let snapshot = Snapshot {
        contexts: contexts.into(),
        texts: (1..).zip(texts).collect(),
    };
    snapshot.encode_to_vec()
}

#[tokio::test]
async fn a_recording_is_stored_with_its_labels_and_the_answer_names_the_rest() {
    let running = serve().await;
    let [plain, labels] = [recording(), labels()];
    let bodies = [
        form(&[("jfr", &gzip(&plain)), ("labels", &labels)]),
        form(&[("labels", &gzip(&labels)), ("jfr", &plain)]),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let text = running
            .ingest(&query(&format!("java{number}")), &[FORM], body)
            .await;
        assert_eq!(
            text,
            "stored 0.055 s in 2 series\n\
             note: events that are no time of a thread do not count: 4 jdk.ObjectAllocationInNewTLAB\n\
             note: waiting is that of events above the recording's thresholds (1 jdk.JavaMonitorEnter): \
             shorter waits are missing\n"
        );
        let name = format!("java{number}");
        let of = |filter: &str| format!("&label=service_name%3D{name}{filter}");
        let cpu = running.stacks(&of("&state=cpu")).await;
        let expected = [
            "checkout;Shop.main;Shop.pay 20000000".to_owned(),
            format!("{name};Shop.main;Shop.pay 10000000"),
        ];
        assert_eq!(cpu, expected);
        let lock = running.stacks(&of("&state=lock")).await;
        assert_eq!(lock, [format!("{name};Shop.main;Shop.pay 25000000")]);
        let region = running.stacks(&of("&label=region%3Deu")).await;
        assert_eq!(region, ["checkout;Shop.main;Shop.pay 10000000"]);
    }
    let workers = running.json("/api/v1/workers").await;
    let epoch = &workers["workers"][0]["epochs"][0];
    assert_eq!(
        epoch["sampler_mode"],
        "pushed by javaspy as jfr; waits above a threshold"
    );
    assert_eq!(epoch["account"]["balanced"], true);
    let threads = running.json("/api/v1/thread-time?from=0").await;
    assert_eq!(threads["threads"][0]["thread"], "main", "{threads}");
}

#[tokio::test]
async fn a_recording_may_be_the_body_and_the_format_follows_from_the_form() {
    let running = serve().await;
    let text = running
        .ingest(&query("raw"), &[], &gzip(&recording()))
        .await;
    assert!(text.starts_with("stored 0.055 s in 1 series\n"), "{text}");
    assert!(
        text.contains("note: the labels of samples are not in the recording\n"),
        "{text}"
    );
    let body = form(&[("jfr", &recording())]);
    let text = running
        .ingest(&format!("name=form&{TIMES}"), &[FORM], &body)
        .await;
    assert!(text.starts_with("stored 0.055 s in 1 series\n"), "{text}");
}

#[tokio::test]
async fn bad_recordings_are_rejected_with_what_is_wrong() {
    let running = serve().await;
    let good = recording();
    let long = vec![0; import::limits::CONTEXTS_BYTES_MAX + 1];
    let bomb = gzip(&vec![0; PUSH_CONTENT_BYTES_MAX + 1]);
    for (parts, status, expected) in [
        (
            vec![("profile", &good[..])],
            400,
            "the form has no part `jfr`; allowed: jfr, labels",
        ),
        (
            vec![("jfr", &good[..100])],
            400,
            "invalid jfr: byte 68: the chunk is longer than the file",
        ),
        (
            vec![("jfr", b"hello")],
            400,
            "invalid jfr: byte 0: a chunk must begin with",
        ),
        (
            vec![("jfr", &good), ("labels", b"\xff")],
            400,
            "invalid jfr: labels: ",
        ),
        (
            vec![("jfr", &good), ("labels", &long)],
            400,
            "invalid form: ",
        ),
        (
            vec![("jfr", &good), ("labels", &gzip(&long))],
            413,
            "at most 2097152",
        ),
        (vec![("jfr", &bomb)], 413, "at most 16777216"),
    ] {
        let path = format!("/ingest?{}", query("bad"));
        let answer = running.push_with(&path, &[FORM], &form(&parts)).await;
        assert_eq!(answer.status, status, "{}", answer.body);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    let mut chunk = TestChunk::new(Integers::Raw);
    let stack = chunk.stack(&["Shop.main"]);
    chunk.event("jdk.ObjectAllocationInNewTLAB", &[("stackTrace", stack)]);
    let body = form(&[("jfr", &chunk.bytes())]);
    let text = running.ingest(&query("bad"), &[FORM], &body).await;
    let expected =
        "dropped: no type of sample is time; the jfr profile has 1 jdk.ObjectAllocationInNewTLAB\n";
    assert!(text.ends_with(expected), "{text}");
    let text = running
        .ingest(&query("bad"), &[FORM], &form(&[("jfr", b"")]))
        .await;
    assert!(
        text.contains("empty: the jfr profile has no samples with time\n"),
        "{text}"
    );
    assert_eq!(running.stacks("").await, [""; 0]);
}
