//! Pushes of which nothing, or not all, is stored.

use std::time::Duration;

use prost::Message as _;
use serde_json::{Value, json};

use super::connect::{PUSH, push_message};
use super::otlp;
use super::pprof::cpu_profile;
use super::{Running, ServeOptions, serve_with};
use store::Retention;

const HOUR_S: i64 = 3_600;

/// A collector that keeps an hour.
async fn serve_an_hour() -> Running {
    let hour = Duration::from_secs(HOUR_S.unsigned_abs());
    serve_with(ServeOptions {
        retention: Retention {
            seconds: hour,
            rollups: hour,
            ..Retention::default()
        },
        ..ServeOptions::default()
    })
    .await
}

/// A profile of another time, in seconds after that of others.
fn shifted(seconds: i64) -> Vec<u8> {
    cpu_profile().at(40 + seconds, 10).encode_to_vec()
}

fn message(profiles: &[Vec<u8>]) -> Vec<u8> {
    push_message(&[("service_name", "shop")], profiles)
}

const PROTO: (&str, &str) = ("content-type", "application/proto");

/// Why a profile is dropped that is `seconds` off.
fn reason(seconds: i64) -> &'static str {
    if seconds < 0 {
        "the profile starts 1 hours before the collector's now, but its --retention-rollups is 1 hours, so nothing \
         would be kept"
    } else {
        "the profile starts 7180000 ms after the collector's now; at most 3600000 ms are allowed"
    }
}

#[tokio::test]
async fn a_push_of_which_nothing_is_kept_is_refused() {
    for seconds in [-HOUR_S, 2 * HOUR_S] {
        let running = serve_an_hour().await;
        let start_s = 1_000_040 + seconds;
        let query = format!("/ingest?name=shop&from={start_s}&until={}", start_s + 10);
        let ingested = running.push_with(&query, &[], b"main 2\n").await;
        let pushed = running
            .push_with(PUSH, &[PROTO], &message(&[shifted(seconds)]))
            .await;
        let exported = running
            .push_with(otlp::HTTP, &[otlp::JSON], &otlp::requests(&[seconds]))
            .await;
        for answer in [ingested, pushed, exported] {
            assert_eq!(answer.status, 400, "{}", answer.body);
            assert!(
                answer.body.contains("nothing is stored: "),
                "{}",
                answer.body
            );
            assert!(answer.body.contains(reason(seconds)), "{}", answer.body);
        }
        let workers = running.json("/api/v1/workers").await;
        assert_eq!(workers["workers"], json!([]), "no push leaves a worker");
        for counts in workers["pushes"].as_array().unwrap() {
            assert_eq!(counts["stored"], 0, "{counts}");
            let rejection = counts["last_rejection"].as_str().unwrap();
            assert!(rejection.contains(reason(seconds)), "{counts}");
        }
    }
}

#[tokio::test]
async fn a_push_of_which_a_part_is_kept_says_what_is_dropped() {
    for seconds in [-HOUR_S, 2 * HOUR_S] {
        let running = serve_an_hour().await;
        let profiles = [shifted(seconds), shifted(0), shifted(seconds)];
        let pushed = running.push_with(PUSH, &[PROTO], &message(&profiles)).await;
        assert_eq!(pushed.status, 200, "{}", pushed.body);
        let warning = pushed.header("x-emberline-warning").unwrap();
        assert!(warning.contains("pyroscope:shop: the profile"), "{warning}");
        assert_eq!(
            warning.matches("the profile starts").count(),
            2,
            "{warning}"
        );
        let times = [0, seconds, 0];
        let exported = running
            .push_with(otlp::HTTP, &[otlp::JSON], &otlp::requests(&times))
            .await;
        assert_eq!(exported.status, 200, "{}", exported.body);
        let answer: Value = serde_json::from_str(&exported.body).unwrap();
        let partial = &answer["partialSuccess"];
        assert_eq!(partial["rejectedProfiles"], 1, "{answer}");
        let text = partial["errorMessage"].as_str().unwrap();
        assert!(text.contains(reason(seconds)), "{text}");
        let counts = &running.json("/api/v1/workers").await["pushes"];
        for counts in counts.as_array().unwrap() {
            assert_eq!([&counts["stored"], &counts["rejected"]], [1, 1], "{counts}");
        }
        let expected = [
            "load;main;work 100000000",
            "load;work 10000000",
            "shop;idle 20000000",
            "shop;main 60000000",
        ];
        assert_eq!(running.stacks("").await, expected);
    }
}
