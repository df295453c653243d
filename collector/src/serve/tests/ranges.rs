//! A run means its range on every route that has one, and no route ignores a parameter.

use axum::http::Method;
use profiler_core::wire::v1::agent_message;
use profiler_core::{RunId, RunMarker, Telemetry};
use std::sync::atomic::Ordering::SeqCst;

use super::super::access::ROUTES;
use super::client::get;
use super::telemetry::reporting;
use super::{ALL, serve};
use state::testing::at;

/// Routes with this many parameters of time.
const ROUTES_WITH_RANGE: usize = 29;

/// The routes that readers ask, without streams.
fn read_routes() -> impl Iterator<Item = &'static str> {
    let read = ROUTES.iter().filter(|route| route.method == Method::GET);
    let of_api = read
        .map(|route| route.path)
        .filter(|path| path.starts_with("/api/v1/"));
    of_api.filter(|path| !matches!(*path, "/api/v1/events" | "/api/v1/updates"))
}

#[tokio::test]
async fn a_run_is_its_range_on_every_route_or_an_error_that_names_it() {
    let running = serve().await;
    let (mut worker, mut client) = reporting(&running).await;
    let wide = RunMarker {
        id: RunId(9),
        name: "wide".into(),
        start: at(8),
        stop: Some(at(33)),
    };
    let mut flush = worker.flush(32, vec![]);
    worker.tell(
        &mut flush,
        Telemetry {
            runs: vec![wide],
            ..Telemetry::default()
        },
    );
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 3");
    // Nothing happened in the last five minutes, which are the default.
    running.now_ns.store(at(1_000).unix_ns(), SeqCst);
    let mut with_range = Vec::new();
    for path in read_routes() {
        let ask =
            async |parameters: &str| get(running.address, &format!("{path}?{parameters}")).await;
        let unknown = ask("run=nosuch").await;
        if unknown.body.contains("unknown parameter \\\"run\\\"") {
            let from = ask("from=-1m").await;
            assert!(
                from.body.contains("unknown parameter \\\"from\\\""),
                "{path}: {}",
                from.body
            );
            continue;
        }
        assert_eq!(unknown.status, 404, "{path}: {}", unknown.body);
        assert!(
            unknown.body.contains("no run is called \\\"nosuch\\\""),
            "{path}: {}",
            unknown.body
        );
        let both = ask("run=wide&from=-5m").await;
        assert_eq!(both.status, 400, "{path}: {}", both.body);
        with_range.push(path);
        if path == "/api/v1/runs" {
            let runs = running.json("/api/v1/runs?run=wide").await;
            assert_eq!(runs["runs"][0]["id"], "0000000000000001-9", "{runs}");
            assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
            continue;
        }
        for run in ["run=wide", "run=wide@0000000000000001-9"] {
            let of_run = ask(run).await;
            let of_range = ask("from=1000008&to=1000033").await;
            let default = ask("").await;
            assert_eq!(
                (of_run.status, of_range.status),
                (200, 200),
                "{path}: {}",
                of_run.body
            );
            // Resources name the run.
            let plain = of_run
                .body
                .replace("\"wide@0000000000000001-9\"", "null")
                .replace("wide@0000000000000001-9", "");
            assert!(
                plain == of_range.body || is_compressed(path),
                "{path}: {plain}\n{}",
                of_range.body
            );
            // Without a range, these are about everything.
            let is_bounded = !path.contains("/tasks") && path != "/api/v1/progress";
            assert!(
                !is_bounded || of_run.body != default.body,
                "{path}: {plain}"
            );
        }
    }
    assert_eq!(with_range.len(), ROUTES_WITH_RANGE, "{with_range:#?}");
}

/// Formats whose bytes are no text; their content is that of other formats of the same query.
fn is_compressed(path: &str) -> bool {
    [".parquet", ".pb.gz"]
        .iter()
        .any(|suffix| path.ends_with(suffix))
}

#[tokio::test]
async fn no_route_ignores_a_parameter() {
    let running = serve().await;
    let _told = reporting(&running).await;
    let streams = ["/api/v1/updates", "/api/v1/events"];
    for path in read_routes().chain(streams) {
        let answer = get(running.address, &format!("{path}?nosuch=1")).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(
            answer.body.contains("unknown parameter \\\"nosuch\\\""),
            "{path}: {}",
            answer.body
        );
    }
}

/// The page's clock follows the time of every answer, however long ago the last flush was.
#[tokio::test]
async fn every_answer_has_the_time_at_which_it_was_sent() {
    let running = serve().await;
    let _told = reporting(&running).await;
    for now_s in [60, 337, 90_000] {
        running.now_ns.store(at(now_s).unix_ns(), SeqCst);
        let expected = at(now_s).unix_ns().to_string();
        for path in read_routes() {
            for parameters in [ALL, "run=nosuch", "nosuch=1", ""] {
                let answer = get(running.address, &format!("{path}?{parameters}")).await;
                let sent = answer.header("x-emberline-now-ns");
                assert_eq!(
                    sent,
                    Some(&*expected),
                    "{path}?{parameters}: {}",
                    answer.status
                );
            }
        }
    }
}
