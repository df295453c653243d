//! The description is that of the server: its parameters are those that routes accept, and its answers are the
//! server's.

use std::collections::{BTreeMap, BTreeSet};
use std::{env, fs};

use axum::http::Method;
use serde_json::Value;

use super::super::openapi::DOCUMENT;
use super::super::openapi::document::{document, given};
use super::super::openapi::operations::{Operation, operations};
use super::client::{Answer, get};
use super::{attached, serve};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");

/// To regenerate the document: `UPDATE_EXPECT=1 cargo test -p emberline-api -p emberline-collector --lib openapi`.
#[tokio::test]
async fn the_committed_document_is_up_to_date() {
    let committed: Value = serde_json::from_str(&fs::read_to_string(PATH).unwrap()).unwrap();
    let current = document(&committed["components"]["schemas"], &answers().await);
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(PATH, format!("{current:#}\n")).unwrap();
        return;
    }
    assert!(
        committed == current,
        "run: UPDATE_EXPECT=1 cargo test -p emberline-collector openapi"
    );
}

/// Answers of a server with one worker, by their paths: the document's examples.
async fn answers() -> BTreeMap<&'static str, Value> {
    let running = serve().await;
    let (_, _client) = attached(&running, "w-1").await;
    let mut answers = BTreeMap::new();
    for operation in checked().filter(|operation: &Operation| {
        operation.path.starts_with("/api/") && !waits(operation.path)
    }) {
        let has_schema = operation
            .answer
            .is_some_and(|answer| !answer.schemas.is_empty());
        if has_schema {
            let answer = get(running.address, operation.path).await;
            answers.insert(operation.path, serde_json::from_str(&answer.body).unwrap());
        }
    }
    answers
}

#[test]
fn every_reference_leads_to_a_part_of_the_document() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let references: BTreeSet<&str> = DOCUMENT
        .split("\"$ref\": \"#")
        .skip(1)
        .map(|rest| rest.split_once('"').unwrap().0)
        .collect();
    for reference in &references {
        assert!(document.pointer(reference).is_some(), "{reference}");
    }
    assert!(references.len() > 80, "{}", references.len());
}

/// The routes whose parameters are checked, without those that wait.
fn checked() -> impl Iterator<Item = Operation> {
    operations().into_iter().filter(|operation: &Operation| {
        let path = operation.path;
        operation.method == Method::GET
            && (path.starts_with("/api/") || path.starts_with("/pyroscope/"))
    })
}

/// Whether a valid request waits: for events, or for the stacks of a worker that does not answer.
fn waits(path: &str) -> bool {
    matches!(
        path,
        "/api/v1/events" | "/api/v1/updates" | "/api/v1/thread-dump"
    )
}

/// The body of a failure, which may be sent in a chunk.
fn failure(answer: &Answer) -> Value {
    let start = answer.body.find('{').expect("JSON");
    let end = answer.body.rfind('}').expect("JSON");
    serde_json::from_str(&answer.body[start..=end]).unwrap()
}

#[tokio::test]
async fn every_accepted_parameter_is_described_and_no_other() {
    let running = serve().await;
    let mut count = 0;
    for operation in checked() {
        let path = format!("{}?nosuch=1", operation.path);
        let answer = get(running.address, &path).await;
        let body = failure(&answer);
        assert_eq!(answer.status, 400, "{path}: {body}");
        let accepted: BTreeSet<&str> = body["allowed"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let described: BTreeSet<&str> = given(&operation)
            .map(|parameter| parameter.name)
            .chain(operation.fixed.iter().copied())
            .collect();
        assert_eq!(described, accepted, "{path}");
        count += 1;
    }
    assert!(count > 40, "{count}");
    // It checks its own parameter first, and others after the wait.
    let live = operations()
        .into_iter()
        .find(|found| found.path == "/debug/pprof/profile")
        .unwrap();
    let answer = get(running.address, "/debug/pprof/profile?seconds=1&nosuch=1").await;
    let body = failure(&answer);
    for parameter in given(&live).filter(|parameter| parameter.name != "seconds") {
        let accepted = body["allowed"].as_array().unwrap();
        assert!(
            accepted.iter().any(|name| name == parameter.name),
            "{}: {body}",
            parameter.name
        );
    }
}

#[tokio::test]
async fn every_example_is_accepted_as_often_as_the_description_says() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w-1").await;
    // Paths with an extension parse the table of the path without one.
    for operation in checked().filter(|operation: &Operation| {
        let path = operation.path;
        path.starts_with("/api/") && operation.fixed.is_empty() && !waits(path)
    }) {
        let required: Vec<String> = given(&operation)
            .filter(|parameter| parameter.is_required)
            .map(|found| format!("{}={}", found.name, encoded(found.example)))
            .collect();
        for parameter in given(&operation) {
            let mut pairs = required.clone();
            let name = parameter.name;
            let value = encoded(parameter.example);
            pairs.retain(|pair| !pair.starts_with(&format!("{name}=")));
            pairs.push(format!("{name}={value}"));
            let path = format!("{}?{}", operation.path, pairs.join("&"));
            let answer = get(running.address, &path).await;
            // Names of the examples may be unknown.
            assert!(
                matches!(answer.status, 200 | 404),
                "{path}: {}",
                answer.body
            );
            let twice = get(running.address, &format!("{path}&{name}={value}")).await;
            let is_refused = twice
                .body
                .contains("was given 2 times; at most 1 is allowed");
            assert_eq!(is_refused, !parameter.is_repeated, "{path}: {}", twice.body);
        }
    }
}

fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[tokio::test]
async fn answers_have_the_described_media_types() {
    let running = serve().await;
    for operation in operations() {
        let Some(described) = operation.answer.filter(|answer| answer.media != "*/*") else {
            continue;
        };
        let streams = described.media == "text/event-stream";
        let needs_more = ["/debug/", "/pyroscope/"];
        let is_skipped = needs_more
            .iter()
            .any(|prefix| operation.path.starts_with(prefix));
        if operation.method != Method::GET || streams || is_skipped {
            continue;
        }
        let path = operation.path.replace("{name}", "x");
        let answer = get(running.address, &path).await;
        assert_eq!(answer.status, operation.status, "{path}: {}", answer.body);
        let media = answer.header("content-type").unwrap_or_default();
        assert!(media.starts_with(described.media), "{path}: {media}");
    }
    let served = get(running.address, "/api/v1/openapi.json").await;
    assert!(served.body == DOCUMENT);
}
