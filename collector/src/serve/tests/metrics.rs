//! `/metrics` and `/readyz`.

use std::collections::BTreeMap;

use super::client::{Answer, get, send_with};
use super::*;

/// The samples of a scrape by name and labels, after a strict check of its form.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let text = text.strip_suffix("# EOF\n").expect("the last line");
    let mut samples = BTreeMap::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let keyword = words.next().unwrap();
            assert!(["HELP", "TYPE", "UNIT"].contains(&keyword), "{line}");
            family = words.next().unwrap();
            assert!(family.starts_with("emberline_"), "{line}");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with(family), "{line} is not of {family}");
        assert_eq!(name.contains('{'), name.ends_with('}'), "{line}");
        let value = value.parse().unwrap();
        assert_eq!(samples.insert(name.to_owned(), value), None, "{name} twice");
    }
    samples
}

async fn scrape(running: &Running) -> Answer {
    let host = running.address.to_string();
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let headers = [("host", &*host), ("accept", accept)];
    send_with(running.address, "GET /metrics", &headers, "").await
}

#[tokio::test]
async fn a_scrape_has_sessions_tasks_and_durations_of_answers() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    running.json("/api/v1/workers").await;
    assert_eq!(
        get(running.address, "/api/v1/tasks?outcome=bad")
            .await
            .status,
        400
    );
    let answer = scrape(&running).await;
    assert_eq!(answer.status, 200);
    let content_type = answer.header("content-type").unwrap();
    assert_eq!(
        content_type,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let plain = get(running.address, "/metrics").await;
    assert_eq!(
        plain.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(
        plain
            .body
            .contains("# TYPE emberline_flushes_total counter\n"),
        "{}",
        plain.body
    );
    assert!(!plain.body.contains("# EOF"));
    let samples = samples(&answer.body);
    for (name, value) in [
        ("emberline_sessions{state=\"connected\"}", 1.0),
        ("emberline_sessions{state=\"gone\"}", 0.0),
        ("emberline_flushes_total", 1.0),
        ("emberline_ingest_blocked{cause=\"disk_full\"}", 0.0),
        ("emberline_unsealed_windows", 1.0),
        ("emberline_sampler_ticks{part=\"made\"}", 95.0),
        (
            "emberline_answer_duration_seconds_count{route=\"/api/v1/workers\",status=\"2xx\"}",
            1.0,
        ),
        (
            "emberline_answer_duration_seconds_count{route=\"/api/v1/tasks\",status=\"4xx\"}",
            1.0,
        ),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name} in {}", answer.body);
    }
}

#[tokio::test]
async fn readiness_follows_ingest() {
    let running = serve().await;
    let ready = get(running.address, "/readyz").await;
    assert_eq!((ready.status, &*ready.body), (200, "ok"));

    let (full, _folder) = serve_full().await;
    let ready = get(full.address, "/readyz").await;
    assert_eq!(
        (ready.status, &*ready.body),
        (503, "ingest is blocked: disk_full")
    );
    let answer = scrape(&full).await;
    let samples = samples(&answer.body);
    assert_eq!(
        samples["emberline_ingest_blocked{cause=\"disk_full\"}"],
        1.0
    );
    assert_eq!(samples["emberline_ingest_blocked{cause=\"behind\"}"], 0.0);
}
