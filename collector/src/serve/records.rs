//! Transfers, resources, progress, runs and events over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{
    self, EventsBody, ProgressBody, ResourcesBody, RunBody, RunsBody, SubjectBody,
    TransferSummaryBody, TransfersBody,
};
use super::error::ErrorAnswer;
use super::http::{Asking, Pairs, Reader};
use super::live::{json_body, pairs_of};
use crate::collector::Collector;
use crate::events::{Event, Subscription};
use crate::limits::{BODY_BYTES_MAX, EVENTS_KEEP_ALIVE};
use crate::query::{
    EventFilter, ProgressQuery, QueryError, ResourceQuery, TransferQuery, parse_run_start,
    parse_run_stop, parse_runs, recent_events,
};
use crate::rows::RunRow;

pub(super) const STOP_PATH: &str = "/api/v1/runs/stop";

/// Messages that wait for a subscriber's connection; what is behind them waits in its queue.
const MESSAGES_WAITING_MAX: usize = 16;

pub(super) fn routes() -> Router<Reader> {
    Router::new()
        .route("/api/v1/transfers", get(transfers))
        .route("/api/v1/resources", get(resources))
        .route("/api/v1/progress", get(progress))
        .route("/api/v1/runs", get(runs).post(start_run))
        .route(STOP_PATH, post(stop_run))
        .route("/api/v1/events", get(events))
        .route("/api/v1/events/recent", get(recent))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

async fn transfers(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = TransferQuery::parse(pairs, collector, now)?;
        if query.summary {
            let summary = collector.transfer_summary(&query, cancel)?;
            answer::json(&TransferSummaryBody::new(&summary))
        } else {
            answer::json(&TransfersBody::new(&query, &collector.transfers(&query, cancel)?))
        }
    });
    answer.await
}

async fn resources(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ResourceQuery::parse(pairs, collector, now)?;
        let answer = collector.resources(&query, cancel)?;
        answer::json(&ResourcesBody::new(&query, answer))
    });
    answer.await
}

async fn progress(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ProgressQuery::parse(pairs, collector, now)?;
        answer::json(&ProgressBody::new(&collector.progress(&query, cancel)?))
    });
    answer.await
}

async fn runs(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, .. }| {
        answer::json(&RunsBody::new(&parse_runs(pairs, collector, now)?, now))
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
    tracing::info!(name = &*run.run.name, id = run.id(), "a run began");
    Ok((StatusCode::CREATED, response).into_response())
}

async fn stop_run(
    State(reader): State<Reader>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let body = json_body(&headers, body)?;
    let (run, response) = mark(reader, &body, parse_run_stop).await?;
    tracing::info!(name = &*run.run.name, id = run.id(), "a run ended");
    Ok(response)
}

/// What a body asks to be marked.
type Parser = fn(&[u8], &Collector, profiler_core::Timestamp) -> Result<RunRow, QueryError>;

/// Marks a run, and answers with it once it is safe.
async fn mark(
    reader: Reader,
    body: &[u8],
    parse: Parser,
) -> Result<(RunRow, Response), ErrorAnswer> {
    // One after the other, so that each begins with what the one before left.
    let _turn = reader.marking.lock().await;
    let collector = &reader.collector;
    let now = collector.clock.now();
    let run = parse(body, collector, now)?;
    collector.mark_run(run.clone()).await.map_err(|error| {
        ErrorAnswer::new(StatusCode::SERVICE_UNAVAILABLE, format!("the run is not kept: {error}"))
    })?;
    let response = answer::json(&RunBody::new(&run, now))?;
    Ok((run, response))
}

async fn recent(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let events = recent_events(&pairs_of(pairs)?, &reader.collector)?;
    answer::json(&EventsBody::new(&events))
}

/// Sends events until the reader goes away, or the server ends.
async fn events(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let filter = EventFilter::parse(&pairs_of(pairs)?)?;
    let subscription = reader.collector.events.subscribe().ok_or_else(ErrorAnswer::busy)?;
    let (messages, receiver) = mpsc::channel(MESSAGES_WAITING_MAX);
    let collector = reader.collector;
    tokio::spawn(send_events(subscription, (filter, collector), messages));
    let keep_alive = KeepAlive::new().interval(EVENTS_KEEP_ALIVE).text("keep-alive");
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive).into_response())
}

type Sent = Result<Message, std::convert::Infallible>;

async fn send_events(
    mut subscription: Subscription,
    (filter, collector): (EventFilter, Arc<Collector>),
    messages: mpsc::Sender<Sent>,
) {
    loop {
        let event = tokio::select! {
            event = subscription.receiver.recv() => event,
            () = messages.closed() => return,
        };
        let message = match event {
            Ok(event) if !filter.keeps(&event, &collector) => continue,
            Ok(event) => message(&event),
            Err(RecvError::Lagged(count)) => {
                Message::default().event("missed").data(format!("{{\"count\":{count}}}"))
            }
            Err(RecvError::Closed) => return,
        };
        if messages.send(Ok(message)).await.is_err() {
            return;
        }
    }
}

fn message(event: &Arc<Event>) -> Message {
    // It has texts, numbers and lists of these only, and newlines in texts are escaped.
    let data = serde_json::to_string(&SubjectBody::new(event)).unwrap_or_default();
    Message::default().event(event.kind.name()).data(data).id(event.id.to_string())
}
