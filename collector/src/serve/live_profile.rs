//! Live profiles, by the path that `go tool pprof` asks for.

use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use tokio::sync::watch;
use tokio::time::sleep;

use super::profile::answer_profile;
use super::reader::{Pairs, Reader, pairs_of};
use base::limits::LIVE_PROFILE_SECONDS_MAX;
use front::error::ErrorAnswer;
use query::format_time;

/// Seconds of a live profile if the request names none, as in Go.
const SECONDS_DEFAULT: u32 = 30;

/// Time by which the newest samples lag: agents send each second when it is over. A live profile ends
/// this long before its answer, because `go tool pprof` waits only half of `seconds` longer.
const SAMPLES_LAG_NS: i64 = 2_000_000_000;

/// The route of live profiles, which works until the server stops.
pub(super) fn live_route(stopping: watch::Receiver<bool>) -> Router<Reader> {
    Router::new().route(
        "/debug/pprof/profile",
        get(async move |State(reader): State<Reader>, pairs: Pairs| {
            live(&reader, pairs, stopping.clone()).await
        }),
    )
}

/// Waits for `seconds`, then answers with a profile of that many seconds for pprof. Its other
/// parameters are filters.
async fn live(
    reader: &Reader,
    pairs: Pairs,
    mut stopping: watch::Receiver<bool>,
) -> Result<Response, ErrorAnswer> {
    let account = pairs.account.clone();
    let (given, mut pairs): (Vec<_>, Vec<_>) = pairs_of(pairs)?
        .into_iter()
        .partition(|(name, _)| name == "seconds");
    let seconds = match &given[..] {
        [] => SECONDS_DEFAULT,
        [(_, text)] => parse_seconds(text)?,
        [_, _, ..] => return Err(bad_request("seconds was given more than once".to_owned())),
    };
    let start = reader.collector.state.clock.now().shifted(-SAMPLES_LAG_NS);
    let stop = start.shifted(i64::from(seconds) * 1_000_000_000);
    tokio::select! {
        () = sleep(Duration::from_secs(seconds.into())) => {}
        _ = stopping.wait_for(|stopping| *stopping) => {
            let error = "the collector is stopping".to_owned();
            return Err(ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
    }
    let fixed = [
        ("from", format_time(start)),
        ("to", format_time(stop)),
        ("format", "pprof".to_owned()),
    ];
    pairs.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
    answer_profile(
        reader,
        Pairs {
            pairs: Ok(Query(pairs)),
            account,
        },
    )
    .await
}

fn parse_seconds(text: &str) -> Result<u32, ErrorAnswer> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (1..=LIVE_PROFILE_SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| {
        let text = profiler_core::limits::bounded(text, 100);
        bad_request(format!(
            "seconds={text:?} is not a number from 1 to {LIVE_PROFILE_SECONDS_MAX}"
        ))
    })
}

fn bad_request(error: String) -> ErrorAnswer {
    ErrorAnswer::new(StatusCode::BAD_REQUEST, error)
}
