//! Transfers, resources, progress, runs and recent events.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};

use super::agents::json_body;
use super::answer;
use super::error::ErrorAnswer;
use super::http::{Asking, Pairs, Reader, pairs_of};
use super::sse;
use crate::limits::BODY_BYTES_MAX;
use crate::query::{
    ProgressQuery, QueryError, ResourceQuery, TransferQuery, parse_run_start, parse_run_stop,
    parse_runs, recent_events,
};
use crate::rows::RunRow;
use crate::state::CollectorState;

pub(super) const STOP_PATH: &str = "/api/v1/runs/stop";

pub(super) fn routes() -> Router<Reader> {
    Router::new()
        .route("/api/v1/transfers", get(transfers))
        .route("/api/v1/resources", get(resources))
        .route("/api/v1/progress", get(progress))
        .route("/api/v1/runs", get(runs).post(start_run))
        .route(STOP_PATH, post(stop_run))
        .route("/api/v1/events", get(sse::events))
        .route("/api/v1/events/recent", get(recent))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

async fn transfers(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = TransferQuery::parse(pairs, &collector.state, now)?;
        if query.summary {
            answer::json(&answer::transfer_summary(
                collector.state.transfer_summary(&query, cancel)?,
            ))
        } else {
            answer::json(&answer::transfers(&query, collector.state.transfers(&query, cancel)?))
        }
    });
    answer.await
}

async fn resources(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ResourceQuery::parse(pairs, &collector.state, now)?;
        answer::json(&answer::resources(&query, collector.state.resources(&query, cancel)?))
    });
    answer.await
}

async fn progress(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ProgressQuery::parse(pairs, &collector.state, now)?;
        answer::json(&answer::progress(collector.state.progress(&query, cancel)?))
    });
    answer.await
}

async fn runs(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, .. }| {
        answer::json(&answer::runs(&parse_runs(pairs, &collector.state, now)?, now))
    });
    answer.await
}

async fn start_run(
    State(reader): State<Reader>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let (run, response) = mark(reader, &body, parse_run_start).await?;
    tracing::info!(name = &*run.run.name, id = run.id(), "run started");
    Ok((StatusCode::CREATED, response).into_response())
}

async fn stop_run(
    State(reader): State<Reader>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let (run, response) = mark(reader, &body, parse_run_stop).await?;
    tracing::info!(name = &*run.run.name, id = run.id(), "run stopped");
    Ok(response)
}

/// Parses the body of a request that starts or stops a run.
type Parser = fn(&[u8], &CollectorState, profiler_core::Timestamp) -> Result<RunRow, QueryError>;

/// Starts or stops a run, and returns it once it is on disk.
async fn mark(
    reader: Reader,
    body: &[u8],
    parse: Parser,
) -> Result<(RunRow, Response), ErrorAnswer> {
    // One at a time, so that each sees the result of the one before.
    let _marking = reader.marking.lock().await;
    let collector = &reader.collector;
    let now = collector.state.clock.now();
    let run = parse(body, &collector.state, now)?;
    collector.ingest.mark_run(run.clone()).await.map_err(|error| {
        ErrorAnswer::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the run could not be stored: {error}"),
        )
    })?;
    let response = answer::json(&answer::run(&run, now))?;
    Ok((run, response))
}

async fn recent(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let events = recent_events(&pairs_of(pairs)?, &reader.collector.state)?;
    answer::json(&answer::events(&events))
}
