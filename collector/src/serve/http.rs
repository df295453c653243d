//! The HTTP API's routes. A query is parsed, computed on a thread that may block, and written in the
//! requested format.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Parameters, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flamegraph::{ProfileColumns, ProfileJson};
use profiler_core::limits::bounded;
use profiler_core::{TimeRange, Timestamp};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::error::ErrorAnswer;
use super::{agents, answer, sse, telemetry};
use crate::collector::Collector;
use crate::limits::{CONTROL_REQUESTS_MAX, QUERIES_MAX, QUERIES_WAITING_MAX, QUERY_WAIT_MAX};
use crate::query::{
    Cancel, Format, ProfileAnswer, ProfileQuery, Provenance, TaskQuery, ThreadTimeQuery,
    TimelineQuery, format_time, parse_workers,
};

/// Known paths, listed in 404 answers.
const PATHS: [&str; 16] = [
    "/livez",
    "/api/v1/profile",
    "/api/v1/timeline",
    "/api/v1/tasks",
    "/api/v1/thread-time",
    "/api/v1/workers",
    "/api/v1/workers/settings",
    "/api/v1/thread-dump",
    "/api/v1/updates",
    "/api/v1/transfers",
    "/api/v1/resources",
    "/api/v1/progress",
    "/api/v1/runs",
    "/api/v1/runs/stop",
    "/api/v1/events",
    "/api/v1/events/recent",
];

/// Allows a flame graph's own script, but no loading and no sending.
const SVG_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
);

/// For everything but flame graphs: no script at all.
const PLAIN_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'");

pub(super) type Pairs = Result<Parameters<Vec<(String, String)>>, QueryRejection>;

/// Parses and answers a query.
pub(super) type Answerer = fn(&Asking<'_>) -> Result<Response, ErrorAnswer>;

/// A query as it came, and what it needs to be answered.
pub(super) struct Asking<'a> {
    pub(super) collector: &'a Collector,
    pub(super) pairs: &'a [(String, String)],
    pub(super) now: Timestamp,
    pub(super) cancel: &'a Cancel,
}

/// Cancels a query when its reader goes away: the future that holds this is dropped then.
struct CancelOnDrop(Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// What handlers share.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) collector: Arc<Collector>,
    /// One permit for each query that runs.
    pub(super) query_permits: Arc<Semaphore>,
    /// One permit for each query that runs or waits.
    pub(super) queue_slots: Arc<Semaphore>,
    /// One permit for each query to running agents.
    pub(super) agent_queries: Arc<Semaphore>,
    /// Held while a run is started or stopped.
    pub(super) marking: Arc<tokio::sync::Mutex<()>>,
}

/// The routes of the HTTP API.
pub(super) fn router(reader: Reader, stopping: &watch::Receiver<bool>) -> Router {
    let updates = sse::update_route(reader.collector.clone(), stopping.clone());
    routes_of(reader, updates)
}

fn routes_of(reader: Reader, updates: Router<Reader>) -> Router {
    updates
        .route("/livez", get(async || "ok"))
        .route("/api/v1/profile", get(profile))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/tasks", get(tasks))
        .route("/api/v1/thread-time", get(thread_time))
        .route("/api/v1/workers", get(workers))
        .merge(agents::routes())
        .merge(telemetry::routes())
        .method_not_allowed_fallback(not_allowed)
        .fallback(not_found)
        .layer(map_response(harden))
        .with_state(reader)
}

/// Adds the headers of every answer.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(PLAIN_POLICY);
    response
}

async fn not_found(request: Request) -> ErrorAnswer {
    let path = bounded(request.uri().path(), 200).into_owned();
    let error = format!("no such path: {path}");
    ErrorAnswer::new(StatusCode::NOT_FOUND, error).with_allowed(&PATHS)
}

async fn not_allowed(request: Request) -> ErrorAnswer {
    let error = format!("method not allowed: {}", request.method());
    let allowed: &[&str] = match request.uri().path() {
        agents::SETTINGS_PATH => &["PUT"],
        telemetry::STOP_PATH => &["POST"],
        "/api/v1/runs" => &["GET", "HEAD", "POST"],
        _ => &["GET", "HEAD"],
    };
    ErrorAnswer::new(StatusCode::METHOD_NOT_ALLOWED, error).with_allowed(allowed)
}

impl Reader {
    pub(super) fn new(collector: Arc<Collector>) -> Reader {
        Reader {
            collector,
            query_permits: Arc::new(Semaphore::new(QUERIES_MAX)),
            queue_slots: Arc::new(Semaphore::new(QUERIES_MAX + QUERIES_WAITING_MAX)),
            agent_queries: Arc::new(Semaphore::new(CONTROL_REQUESTS_MAX)),
            marking: Arc::default(),
        }
    }

    /// Answers a query away from the threads that serve agents: at most [`QUERIES_MAX`] at once, so
    /// that readers together can use neither all CPUs nor all memory.
    pub(super) async fn answer(
        &self,
        pairs: Pairs,
        answer: Answerer,
    ) -> Result<Response, ErrorAnswer> {
        let pairs = pairs_of(pairs)?;
        let _slot = self.queue_slots.try_acquire().map_err(|_| ErrorAnswer::busy())?;
        let permit = timeout(QUERY_WAIT_MAX, self.query_permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| ErrorAnswer::busy())?;
        let collector = self.collector.clone();
        let cancel = Arc::new(Cancel::default());
        let _cancel_on_drop = CancelOnDrop(cancel.clone());
        let work = move || {
            // Held until the work is done, even if the reader goes away before.
            let _permit = permit;
            let now = collector.state.clock.now();
            answer(&Asking { collector: &collector, pairs: &pairs, now, cancel: &cancel })
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(ErrorAnswer::internal(&error)))
    }
}

pub(super) fn pairs_of(pairs: Pairs) -> Result<Vec<(String, String)>, ErrorAnswer> {
    let pairs = pairs.map(|Parameters(pairs)| pairs);
    pairs.map_err(|error| ErrorAnswer::new(StatusCode::BAD_REQUEST, error.body_text()))
}

async fn profile(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ProfileQuery::parse(pairs, &collector.state, now)?;
        let begin = Instant::now();
        let answer = collector.state.profile(&query, cancel)?;
        let computed = begin.elapsed();
        let mut response = profile_response(&query, &answer)?;
        add_sampling_headers(response.headers_mut(), &answer);
        add_timing_header(response.headers_mut(), computed, begin.elapsed() - computed);
        Ok(response)
    });
    answer.await
}

/// The profile in the requested format.
fn profile_response(query: &ProfileQuery, answer: &ProfileAnswer) -> Result<Response, ErrorAnswer> {
    match query.format {
        Format::Json => answer::with_profile(&answer::profile(query, answer), |text| {
            ProfileJson(&answer.profile).write_to(text);
            Ok(())
        }),
        Format::Columns => answer::with_profile(&answer::profile(query, answer), |text| {
            serde_json::to_writer(text, &ProfileColumns::new(&answer.profile))
        }),
        Format::Collapsed => {
            let text_plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
            Ok((text_plain, flamegraph::collapsed(&answer.profile)).into_response())
        }
        Format::Svg => {
            let options = answer::svg_options(query, answer);
            let svg = flamegraph::svg(&answer.profile, &options);
            let svg = svg.map_err(|error| ErrorAnswer::internal(&error))?;
            let image_svg = (header::CONTENT_TYPE, HeaderValue::from_static("image/svg+xml"));
            let policy = (header::CONTENT_SECURITY_POLICY, SVG_POLICY);
            Ok(([image_svg, policy], svg).into_response())
        }
    }
}

/// Adds headers for formats that have no room for it in the body: the range, the time in it, how well
/// it was sampled, and the span of all data.
fn add_sampling_headers(headers: &mut HeaderMap, answer: &ProfileAnswer) {
    let mut add = |name: &'static str, value: String| {
        let value = HeaderValue::try_from(value).expect("numbers and times are plain ASCII");
        headers.insert(HeaderName::from_static(name), value);
    };
    let Provenance { sampling, .. } = &answer.facts;
    add("x-emberline-empty", answer.profile.is_empty().to_string());
    add("x-emberline-workers", answer.facts.workers.len().to_string());
    add("x-emberline-sampled-ns", sampling.sampled_ns.to_string());
    add("x-emberline-ticks", sampling.ticks.made.to_string());
    add("x-emberline-ticks-expected", sampling.ticks.expected.to_string());
    add("x-emberline-ticks-throttled", sampling.ticks.throttled.to_string());
    add("x-emberline-ticks-missed", sampling.ticks.missed().to_string());
    if let Some(rate_hz) = sampling.rate_hz() {
        add("x-emberline-rate-hz", format!("{rate_hz:.3}"));
    }
    let span =
        |range: TimeRange| format!("{}/{}", format_time(range.start()), format_time(range.stop()));
    add("x-emberline-range", span(answer.facts.range));
    add("x-emberline-total-ns", answer.profile.total().total_ns().to_string());
    add("x-emberline-corrupt-files", answer.facts.damaged.len().to_string());
    add("x-emberline-data", answer.facts.data.map(span).unwrap_or_default());
}

/// Adds how long it took to compute the profile, and to write it in its format.
fn add_timing_header(headers: &mut HeaderMap, answer: Duration, write: Duration) {
    let milliseconds = |part: Duration| part.as_secs_f64() * 1e3;
    let text =
        format!("answer;dur={:.3}, write;dur={:.3}", milliseconds(answer), milliseconds(write));
    let value = HeaderValue::try_from(text).expect("numbers are plain ASCII");
    headers.insert(HeaderName::from_static("server-timing"), value);
}

async fn timeline(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = TimelineQuery::parse(pairs, &collector.state, now)?;
        answer::json(&answer::timeline(&query, collector.state.timeline(&query, cancel)?))
    });
    answer.await
}

async fn tasks(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = TaskQuery::parse(pairs, &collector.state, now)?;
        if query.columns && !query.summary {
            let columns = collector.state.task_columns(&query, cancel, now)?;
            answer::json(&answer::TaskColumnsBody::new(&query, &columns))
        } else if query.summary {
            answer::json(&answer::task_summary(collector.state.task_summary(&query, cancel)?))
        } else {
            answer::json(&answer::tasks(&query, collector.state.tasks(&query, cancel)?, now))
        }
    });
    answer.await
}

async fn thread_time(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ThreadTimeQuery::parse(pairs, &collector.state, now)?;
        answer::json(&answer::thread_time(collector.state.thread_time(&query, cancel)?))
    });
    answer.await
}

async fn workers(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, .. }| {
        let kept = parse_workers(pairs, &collector.state)?;
        answer::json(&answer::workers(&collector.fleet(&kept), now))
    });
    answer.await
}

#[cfg(test)]
mod tests;
