//! Queries that wait for running agents: thread dumps and changes of settings.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, put};
use profiler_core::WorkerId;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::answer;
use super::reader::{Pairs, Reader, pairs_of};
use crate::audit;
use base::limits::{BODY_BYTES_MAX, CONTROL_WAIT_MAX};
use front::error::ErrorAnswer;
use query::{ThreadDumpQuery, parse_change, parse_workers};
use state::ingest::PendingThreadDump;

pub(super) fn routes() -> Router<Reader> {
    Router::new()
        .route("/api/v1/thread-dump", get(thread_dump))
        .route("/api/v1/workers/settings", put(settings))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The body of a request that changes something.
pub(super) fn json_body(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Bytes, ErrorAnswer> {
    // A page of another site may not send this type without a preflight request, which is never
    // granted.
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next());
    if media_type.is_none_or(|value| value.trim() != "application/json") {
        let error = "the body must be JSON, with the header content-type: application/json";
        return Err(ErrorAnswer::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            error.to_owned(),
        ));
    }
    body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let reason = "the body is longer than the limit of this path";
            ErrorAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, reason.to_owned())
        }
        status => ErrorAnswer::new(status, error.body_text()),
    })
}

/// The request in a body of JSON.
pub(super) fn json_request<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<T, ErrorAnswer> {
    let body = json_body(headers, body)?;
    serde_json::from_slice(&body)
        .map_err(|error| ErrorAnswer::new(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Requests dumps from agents and waits for at most [`CONTROL_WAIT_MAX`] in all.
async fn thread_dump(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let collector = reader.collector.clone();
    let account = pairs.account.clone();
    let pairs = pairs_of(pairs)?;
    let permit = reader
        .agent_queries
        .clone()
        .try_acquire_owned()
        .map_err(|_| ErrorAnswer::busy())?;
    let state = collector.state.clone();
    let query = reader
        .compute(&account, move || {
            Ok(ThreadDumpQuery::parse(&pairs, &state)?)
        })
        .await?;
    audit::thread_dump(&account.identity, &query.workers);
    let until = Instant::now() + CONTROL_WAIT_MAX;
    let mut answers = Vec::new();
    for PendingThreadDump {
        worker,
        epoch,
        answer,
    } in collector.ingest.request_thread_dumps(&query.workers)
    {
        let answer = match timeout_at(until, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("its stream ended before it responded".to_owned()),
            Err(_) => Err(format!("it did not respond within {CONTROL_WAIT_MAX:?}")),
        };
        answers.push((worker, Some(epoch), answer));
    }
    for id in query.workers.iter() {
        if !answers.iter().any(|(worker, ..)| *worker.0 == **id) {
            let reason = "no agent of this worker is connected".to_owned();
            answers.push((WorkerId(id.as_str().into()), None, Err(reason)));
        }
    }
    let group = move || {
        // Held until the work is done, even if the reader goes away before.
        let _permit = permit;
        let stacks = query.group(&collector.state, answers);
        answer::json(&answer::thread_dump(stacks, collector.state.clock.now()))
    };
    reader.compute(&account, group).await
}

/// Changes settings, and waits for at most [`CONTROL_WAIT_MAX`] until all connected agents confirm.
async fn settings(
    State(reader): State<Reader>,
    pairs: Pairs,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let collector = reader.collector.clone();
    let account = pairs.account.clone();
    let pairs = pairs_of(pairs)?;
    let change = parse_change(&body)?;
    let permit = reader.agent_queries.clone().try_acquire_owned();
    let _permit = permit.map_err(|_| ErrorAnswer::busy())?;
    let state = collector.state.clone();
    let workers = reader
        .compute(&account, move || Ok(parse_workers(&pairs, &state)?))
        .await?;
    let until = Instant::now() + CONTROL_WAIT_MAX;
    let mut settings_changed = collector.ingest.settings_changes();
    let before = collector
        .ingest
        .settings(&workers)
        .into_iter()
        .filter_map(|view| view.settings);
    collector.ingest.change_settings(&workers, change);
    audit::settings_changed(&account.identity, &workers, before, change);
    loop {
        let views = collector.ingest.settings(&workers);
        let done = views
            .iter()
            .all(|view| view.applied || view.epoch.is_none());
        if done
            || !matches!(
                timeout_at(until, settings_changed.changed()).await,
                Ok(Ok(()))
            )
        {
            return answer::json(&answer::settings(views));
        }
    }
}
