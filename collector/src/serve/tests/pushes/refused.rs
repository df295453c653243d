//! Pushes that cannot be logged at present.

use super::*;
use base::limits::LATE_HOURS_MAX;

const TEXT: &str = "data of another late hour";

/// One that no push before has.
const LATE_HOURS: usize = 50 + LATE_HOURS_MAX;

/// The query for a profile of a series, that many hours before the others.
fn hours_ago(name: &str, hours: usize) -> String {
    let until = 1_000_000 - 3_600 * i64::try_from(hours).unwrap();
    format!("name={name}&from={}&until={until}", until - 10)
}

/// A collector that stores pushes at this time and none of another late hour, and a series `live`.
async fn serve_without_late_hours() -> Running {
    let running = serve().await;
    for hours in 0..LATE_HOURS_MAX {
        let query = hours_ago("late", 48 + hours);
        running.ingest(&query, &[], b"main 1").await;
    }
    running
        .ingest(&format!("name=live&{TIMES}"), &[], b"main 1")
        .await;
    running
}

impl Running {
    /// The lives of a worker.
    async fn lives(&self, worker: &str) -> Vec<Value> {
        let answer = self.json(&format!("/api/v1/workers?worker={worker}")).await;
        answer["workers"][0]["epochs"].as_array().unwrap().clone()
    }
}

/// It would otherwise look as if exactly the services that push had exited.
#[tokio::test]
async fn a_series_whose_pushes_are_refused_for_a_while_stays_connected_with_the_cause() {
    let running = serve_without_late_hours().await;
    let push = format!("/ingest?{}", hours_ago("live", LATE_HOURS));
    let answer = running.push_with(&push, &[], b"main 7").await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.contains(TEXT), "{}", answer.body);
    assert!(!answer.body.contains("agents"), "{}", answer.body);
    assert!(
        answer.body.contains("must be sent again"),
        "{}",
        answer.body
    );
    let lives = running.lives("pyroscope:live").await;
    assert_eq!(lives[0]["state"], "connected");
    assert_eq!(lives[0]["rejected"], 1);
    let reason = lives[0]["last_rejection"].as_str().unwrap();
    assert!(reason.contains(TEXT), "{reason}");
    // Its client may send it again.
    assert_eq!(lives[0]["account"]["lost_rejected_ns"], 0);
    let ago = PUSHED_IDLE_MAX.as_nanos() as i64 - 1;
    running
        .now_ns
        .store(at(60).unix_ns() + ago, Ordering::SeqCst);
    assert_eq!(running.push_with(&push, &[], b"main 7").await.status, 503);
    running
        .now_ns
        .store(at(60).unix_ns() + 2 * ago, Ordering::SeqCst);
    let collector = running.collector.upgrade().unwrap();
    collector.pushed.sweep(collector.state.clock.now());
    assert_eq!(
        running.lives("pyroscope:live").await[0]["state"],
        "connected"
    );
    running
        .ingest(&format!("name=live&{TIMES}"), &[], b"main 2")
        .await;
    let lives = running.lives("pyroscope:live").await;
    assert_eq!(lives.len(), 1, "{lives:?}");
    assert_eq!(lives[0]["account"]["accepted_ns"], 30_000_000);
    assert_eq!(lives[0]["account"]["stored_ns"], 30_000_000);
    let kinds: Vec<Value> = running
        .json("/api/v1/events/recent?worker=pyroscope:live")
        .await["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["kind"].clone())
        .collect();
    assert_eq!(kinds, ["worker_connected"]);
}

#[tokio::test]
async fn each_series_of_a_refused_request_stays_connected() {
    let running = serve_without_late_hours().await;
    let samples = |ago| {
        let pprof = Pprof::new(&[("cpu", "nanoseconds")])
            .with("a", &[5], &[("zone", "a")])
            .with("b", &[6], &[("zone", "b")]);
        (
            hours_ago("two", ago) + "&format=pprof",
            pprof.encode_to_vec(),
        )
    };
    let (now, body) = samples(0);
    running.ingest(&now, &[], &body).await;
    let (late, body) = samples(LATE_HOURS);
    let answer = running
        .push_with(&format!("/ingest?{late}"), &[], &body)
        .await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    for zone in ["a", "b"] {
        let lives = running
            .lives(&format!("pyroscope:two%7Bzone%3D{zone}%7D"))
            .await;
        assert_eq!(lives[0]["rejected"], 1, "{lives:?}");
        assert_eq!(lives[0]["state"], "connected");
    }
}

/// The answer is 200, after which no client sends it again.
#[tokio::test]
async fn the_refused_part_of_a_request_that_is_stored_in_part_counts_as_lost() {
    let running = serve_without_late_hours().await;
    let labels = [("__name__", "cpu"), ("service_name", "live")];
    let profile = |start_s| cpu_profile().at(start_s, 10).encode_to_vec();
    let [now, late] = [40, 40 - LATE_HOURS as i64 * 3_600].map(profile);
    let message = connect::push_message(&labels, &[now, late]);
    let headers = [("content-type", "application/proto")];
    let answer = running.push_with(PUSH, &headers, &message).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let warning = answer.header("x-emberline-warning").unwrap();
    assert!(warning.contains(TEXT), "{warning}");
    let account = |lives: &[Value]| lives[0]["account"].clone();
    let lives = running.lives("pyroscope:live").await;
    let before = account(&lives);
    assert_eq!(before["lost_rejected_ns"], 30_000_000);
    assert_eq!(before["accepted_ns"], 70_000_000);
    assert_eq!(before["balanced"], true);
    running
        .ingest(&format!("name=live&{TIMES}"), &[], b"main 1")
        .await;
    let lives = running.lives("pyroscope:live").await;
    let after = account(&lives);
    assert_eq!(lives.len(), 1);
    assert_eq!(after["lost_rejected_ns"], 30_000_000);
    assert_eq!(after["accepted_ns"], 80_000_000);
    assert_eq!(after["balanced"], true);
}

/// A refusal of an invalid push, which a later valid one does not change.
#[tokio::test]
async fn a_push_at_an_invalid_time_ends_no_life_and_counts_as_lost() {
    let running = serve().await;
    let live = format!("name=live&{TIMES}");
    running.ingest(&live, &[], b"main 1").await;
    let ahead = "/ingest?name=live&from=1010000&until=1010010";
    let answer = running.push_with(ahead, &[], b"main 7").await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    running.ingest(&live, &[], b"main 2").await;
    let lives = running.lives("pyroscope:live").await;
    assert_eq!(lives.len(), 1, "{lives:?}");
    assert_eq!(lives[0]["account"]["lost_rejected_ns"], 70_000_000);
    assert_eq!(lives[0]["account"]["accepted_ns"], 100_000_000);
    assert_eq!(lives[0]["account"]["balanced"], true);
}
