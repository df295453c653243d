//! Questions to running agents: these wait for somebody, where others only compute.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Query as Parameters, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, put};
use profiler_core::WorkerId;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, SettingsBody, StacksBody};
use super::error::ErrorAnswer;
use super::http::{Pairs, Reader};
use crate::agent_control::PendingThreadDump;
use crate::limits::{BODY_BYTES_MAX, CONTROL_WAIT_MAX};
use crate::query::{ThreadDumpQuery, parse_change, parse_workers};

pub(super) const SETTINGS_PATH: &str = "/api/v1/workers/settings";

pub(super) fn routes() -> Router<Reader> {
    Router::new()
        .route("/api/v1/thread-dump", get(stacks))
        .route(SETTINGS_PATH, put(settings))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

pub(super) fn pairs_of(pairs: Pairs) -> Result<Vec<(String, String)>, ErrorAnswer> {
    let pairs = pairs.map(|Parameters(pairs)| pairs);
    pairs.map_err(|error| ErrorAnswer::new(StatusCode::BAD_REQUEST, error.body_text()))
}

/// The body of a request that changes something.
pub(super) fn json_body(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Bytes, ErrorAnswer> {
    // A page of another site cannot send this type without asking first, which nobody answers.
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.and_then(|value| value.split(';').next());
    if content_type.is_none_or(|value| value.trim() != "application/json") {
        let error = "the body must be JSON and say so: content-type: application/json".to_owned();
        return Err(ErrorAnswer::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    body.map_err(|error| ErrorAnswer::new(error.status(), error.body_text()))
}

/// Asks the agents, and waits for at most [`CONTROL_WAIT_MAX`] in all.
async fn stacks(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let collector = reader.collector.clone();
    let query = ThreadDumpQuery::parse(&pairs_of(pairs)?, &collector)?;
    let turn = reader.live.try_acquire_owned().map_err(|_| ErrorAnswer::busy())?;
    let until = Instant::now() + CONTROL_WAIT_MAX;
    let mut answers = Vec::new();
    for PendingThreadDump { worker, epoch, answer } in
        collector.request_thread_dumps(&query.workers)
    {
        let answer = match timeout_at(until, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("its stream ended before it answered".to_owned()),
            Err(_) => Err(format!("it did not answer within {CONTROL_WAIT_MAX:?}")),
        };
        answers.push((worker, Some(epoch), answer));
    }
    for id in &query.workers {
        if !answers.iter().any(|(worker, ..)| *worker.0 == **id) {
            let reason = "no agent of this worker is connected".to_owned();
            answers.push((WorkerId(id.as_str().into()), None, Err(reason)));
        }
    }
    let work = move || {
        // Held to the end of the work, even if the reader goes away before.
        let _turn = turn;
        let stacks = query.group(&collector.tree, answers);
        answer::json(&StacksBody::new(stacks, collector.clock.now()))
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorAnswer::internal(&error)))
}

/// Changes settings, and waits for at most [`CONTROL_WAIT_MAX`] until all connected agents say that they
/// work by them.
async fn settings(
    State(reader): State<Reader>,
    pairs: Pairs,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let collector = reader.collector;
    let workers = parse_workers(&pairs_of(pairs)?, &collector)?;
    let change = parse_change(&body)?;
    let _turn = reader.live.try_acquire_owned().map_err(|_| ErrorAnswer::busy())?;
    let until = Instant::now() + CONTROL_WAIT_MAX;
    let mut news = collector.settings_changes();
    collector.change_settings(&workers, change);
    loop {
        let views = collector.settings(&workers);
        let done = views.iter().all(|view| view.applied || view.epoch.is_none());
        if done || !matches!(timeout_at(until, news.changed()).await, Ok(Ok(()))) {
            return answer::json(&SettingsBody::new(views));
        }
    }
}
