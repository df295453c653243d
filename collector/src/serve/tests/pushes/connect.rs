//! Messages of the Connect protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Value, json};

use super::pprof::{Pprof, cpu_profile, gzip};
use super::serve;
use base::limits::PUSH_CONTENT_BYTES_MAX;
use state::testing::at;

/// A message of `PusherService/Push` with one series.
pub(super) fn push_message(labels: &[(&str, &str)], profiles: &[Vec<u8>]) -> Vec<u8> {
    #[derive(Clone, PartialEq, Message)]
    struct Request {
        #[prost(message, repeated, tag = "1")]
        series: Vec<Series>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Series {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<Label>,
        #[prost(message, repeated, tag = "2")]
        samples: Vec<Raw>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Label {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Raw {
        #[prost(bytes = "vec", tag = "1")]
        profile: Vec<u8>,
        #[prost(string, tag = "2")]
        id: String,
    }
    let samples = profiles.iter().map(|profile| Raw {
        profile: profile.clone(),
        id: "1".into(),
    });
    let labels = labels
        .iter()
        .map(|(name, value): &(&str, &str)| Label {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        })
        .collect();
    Request {
        series: vec![Series {
            labels,
            samples: samples.collect(),
        }],
    }
    .encode_to_vec()
}

pub(super) const PUSH: &str = "/push.v1.PusherService/Push";
const LABELS: [(&str, &str); 4] = [
    ("__name__", "process_cpu"),
    ("service_name", "shop"),
    ("a.b", "c"),
    ("otel.scope.name", "client"),
];

#[tokio::test]
async fn connect_messages_in_both_encodings_are_stored_at_the_profiles_times() {
    let running = serve().await;
    let profile = cpu_profile().encode_to_vec();
    let message = push_message(&LABELS, &[profile.clone(), gzip(&profile)]);
    let proto = ("content-type", "application/proto");
    let answer = running.push_with(PUSH, &[proto], &message).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, ""),
        "{}",
        answer.body
    );
    assert_eq!(answer.header("content-type"), Some("application/proto"));
    let headers = [
        proto,
        ("content-encoding", "gzip"),
        ("user-agent", "pyroscope-rs/1 x"),
    ];
    assert_eq!(
        running
            .push_with(PUSH, &headers, &gzip(&message))
            .await
            .status,
        200
    );
    let labels: Vec<Value> = LABELS
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    let sample = json!({ "rawProfile": STANDARD.encode(&profile), "ID": "x" });
    let message = json!({ "series": [{ "labels": labels, "samples": [sample] }] }).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("connect-protocol-version", "1"),
    ];
    let answer = running.push_with(PUSH, &headers, message.as_bytes()).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "{}"));
    assert_eq!(
        running.stacks("").await,
        ["load;work 50000000", "shop;idle 100000000"]
    );
    let workers = running.json("/api/v1/workers").await;
    let worker = &workers["workers"][0];
    assert_eq!(worker["worker"], "pyroscope:shop{a.b=c}");
    assert_eq!(worker["epochs"][0]["labels"]["otel.scope.name"], "client");
    assert_eq!(worker["epochs"][0]["labels"].as_object().unwrap().len(), 4);
    let range = &running.json("/api/v1/profile?from=0").await["data"];
    assert_eq!(range["from_ns"], at(40).unix_ns(), "{range}");
}

#[tokio::test]
async fn an_answer_to_a_message_of_which_nothing_is_stored_says_why() {
    let running = serve().await;
    let heap = Pprof::new(&[("inuse_space", "bytes")])
        .with("a", &[9], &[])
        .encode_to_vec();
    let stored = push_message(&LABELS, &[cpu_profile().encode_to_vec()]);
    let no_time = "no type of sample is time; the pprof profile has inuse_space/bytes";
    for (message, expected) in [
        (push_message(&LABELS, &[heap]), warning(no_time)),
        (
            push_message(&LABELS, &[]),
            warning("the request has no samples"),
        ),
        (stored, None),
    ] {
        let answer = running
            .push_with(PUSH, &[("content-type", "application/proto")], &message)
            .await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert_eq!(answer.header("x-emberline-warning"), expected.as_deref());
    }
}

fn warning(reason: &str) -> Option<String> {
    Some(format!("nothing is stored: {reason}"))
}

#[tokio::test]
async fn bad_connect_messages_are_answered_in_the_form_of_the_protocol() {
    let running = serve().await;
    let profile = cpu_profile().encode_to_vec();
    let message = push_message(&LABELS, std::slice::from_ref(&profile));
    let with_bad = push_message(&LABELS, &[profile.clone(), b"\x0a\xff".to_vec()]);
    let late = cpu_profile().at(400_000, 10).encode_to_vec();
    let late = push_message(&LABELS, &[late]);
    let many = push_message(&LABELS, &vec![Vec::new(); 1_001]);
    let text = "x".repeat(PUSH_CONTENT_BYTES_MAX * 3 / 4);
    let bomb = gzip(&Pprof::new(&[(&text, "")]).encode_to_vec());
    let bombs = push_message(&LABELS, &[bomb.clone(), bomb]);
    let proto = "application/proto";
    let json = "application/json";
    let cases: [(&str, &[u8], u16, &str, &str); 11] = [
        (
            "application/grpc",
            &message,
            415,
            "unimplemented",
            "allowed: application/proto",
        ),
        (
            "",
            &message,
            415,
            "unimplemented",
            "allowed: application/proto, application/json",
        ),
        (
            proto,
            &message[..message.len() - 1],
            400,
            "invalid_argument",
            "truncated",
        ),
        (
            proto,
            b"\xff\xff\xff",
            400,
            "invalid_argument",
            "invalid message",
        ),
        (
            proto,
            &with_bad,
            400,
            "invalid_argument",
            "a profile of pyroscope:shop{a.b=c}: invalid pprof",
        ),
        (
            proto,
            &late,
            400,
            "invalid_argument",
            "after the collector's now",
        ),
        (
            proto,
            &many,
            413,
            "invalid_argument",
            "more than 1000 profiles",
        ),
        (
            proto,
            &bombs,
            413,
            "invalid_argument",
            "too many bytes of content",
        ),
        (json, b"{", 400, "invalid_argument", "invalid JSON"),
        (
            json,
            br#"{"series":[{"samples":[{"rawProfile":"!"}]}]}"#,
            400,
            "invalid_argument",
            "JSON",
        ),
        (
            json,
            br#"{"series":[{"labels":[{"name":1}]}]}"#,
            400,
            "invalid_argument",
            "invalid JSON",
        ),
    ];
    for (number, (kind, body, status, code, text)) in cases.into_iter().enumerate() {
        let answer = running
            .push_with(PUSH, &[("content-type", kind)], body)
            .await;
        assert_eq!(answer.status, status, "case {number}: {}", answer.body);
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(error["code"], code, "case {number}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(text), "case {number}: {message}");
    }
    assert_eq!(
        running.stacks("").await,
        [""; 0],
        "a valid profile next to an invalid one"
    );
}
