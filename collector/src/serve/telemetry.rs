//! Transfers, resources, progress, runs and recent events.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};

use super::agents::json_body;
use super::answer;
use super::reader::{Pairs, Reader, blocking};
use super::{file_paths, sse, tables};
use crate::audit;
use base::limits::BODY_BYTES_MAX;
use front::error::ErrorAnswer;

use query::{
    ProgressQuery, QueryError, ResourceQuery, TransferQuery, parse_run_start, parse_run_stop,
    parse_runs, recent_events,
};
use shares::identity::Identity;
use state::CollectorState;
use store::rows::RunRow;

pub(super) fn routes() -> Router<Reader> {
    Router::new()
        .route("/api/v1/transfers", get(transfers))
        .merge(file_paths::routes(file_paths::TRANSFERS, &get(transfers)))
        .route("/api/v1/resources", get(resources))
        .merge(file_paths::routes(file_paths::RESOURCES, &get(resources)))
        .route("/api/v1/progress", get(progress))
        .route("/api/v1/runs", get(runs).post(start_run))
        .route("/api/v1/runs/stop", post(stop_run))
        .route("/api/v1/events/recent", get(recent))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// The route of the stream of events.
pub(super) fn event_route() -> Router<Reader> {
    Router::new().route("/api/v1/events", get(sse::events))
}

async fn transfers(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(TransferQuery::parse)?;
        let queries = asking.queries();
        if query.summary {
            let summary = queries.transfer_summary(&query, asking.cancel)?;
            return answer::json(&answer::transfer_summary(summary));
        }
        let transfers = answer::transfers(&query, queries.transfers(&query, asking.cancel)?);
        match query.format {
            Some(format) => Ok(tables::transfers(&transfers).response(format)),
            None => answer::json(&transfers),
        }
    });
    answer.await
}

async fn resources(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(ResourceQuery::parse)?;
        let found = asking.queries().resources(&query, asking.cancel)?;
        let resources = answer::resources(&query, found);
        match query.format {
            Some(format) => Ok(tables::resources(&resources).response(format)),
            None => answer::json(&resources),
        }
    });
    answer.await
}

async fn progress(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(ProgressQuery::parse)?;
        let progress = asking.queries().progress(&query, asking.cancel)?;
        answer::json(&answer::progress(progress))
    });
    answer.await
}

async fn runs(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let runs = asking.parse(parse_runs)?;
        answer::json(&answer::runs(&runs, asking.now))
    });
    answer.await
}

async fn start_run(
    State(reader): State<Reader>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let (run, response) = mark(reader, body, parse_run_start).await?;
    audit::run_started(&identity, &run);
    Ok((StatusCode::CREATED, response).into_response())
}

async fn stop_run(
    State(reader): State<Reader>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let (run, response) = mark(reader, body, parse_run_stop).await?;
    audit::run_stopped(&identity, &run);
    Ok(response)
}

/// Parses the body of a request that starts or stops a run.
type Parser = fn(&[u8], &CollectorState, profiler_core::Timestamp) -> Result<RunRow, QueryError>;

/// Starts or stops a run, and returns it once it is on disk.
async fn mark(
    reader: Reader,
    body: Bytes,
    parse: Parser,
) -> Result<(RunRow, Response), ErrorAnswer> {
    // One at a time, so that each sees the result of the one before.
    let _marking = reader.marking.lock().await;
    let collector = &reader.collector;
    let now = collector.state.clock.now();
    let state = collector.state.clone();
    let run = blocking(move || Ok(parse(&body, &state, now)?)).await?;
    collector
        .ingest
        .mark_run(run.clone())
        .await
        .map_err(|error| {
            ErrorAnswer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the run could not be stored: {error}"),
            )
        })?;
    let response = answer::json(&answer::run(&run, now))?;
    Ok((run, response))
}

async fn recent(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let events = recent_events(asking.pairs, &asking.collector.state)?;
        answer::json(&answer::events(&events))
    });
    answer.await
}
