//! The HTTP API's routes. Each question is parsed, answered on a thread that may block, and written
//! in the form that was asked for.

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

use super::answer;
use super::error::ErrorAnswer;
use super::{live, pulse, records};
use crate::collector::Collector;
use crate::limits::{CONTROL_REQUESTS_MAX, QUERIES_MAX, QUERIES_WAITING_MAX, QUERY_WAIT_MAX};
use crate::query::{
    Cancel, Format, ProfileAnswer, ProfileQuery, Provenance, TaskQuery, ThreadTimeQuery,
    TimelineQuery, format_time, parse_workers,
};

/// What exists, for who asks for what does not.
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

/// Lets a flame graph's own script run, and nothing else: nothing is loaded, nothing is sent.
const SVG_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'",
);

/// Everything but a flame graph: nothing runs at all.
const PLAIN_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'");

pub(super) type Pairs = Result<Parameters<Vec<(String, String)>>, QueryRejection>;

/// Parses a question asked at a time, and answers it.
pub(super) type Answerer = fn(&Asking<'_>) -> Result<Response, ErrorAnswer>;

/// A question as it came, by whom it is answered, and until when it is wanted.
pub(super) struct Asking<'a> {
    pub(super) collector: &'a Collector,
    pub(super) pairs: &'a [(String, String)],
    pub(super) now: Timestamp,
    pub(super) cancel: &'a Cancel,
}

/// Calls off the work for a reader that goes away: then the future that holds this is dropped.
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
    /// One for each question that is answered.
    pub(super) turns: Arc<Semaphore>,
    /// One for each question that is answered or waits for its turn.
    pub(super) places: Arc<Semaphore>,
    /// One for each question to running agents.
    pub(super) live: Arc<Semaphore>,
    /// Held while a run is marked.
    pub(super) marking: Arc<tokio::sync::Mutex<()>>,
}

/// The routes of the HTTP API.
pub(super) fn router(reader: Reader, stopping: &watch::Receiver<bool>) -> Router {
    let pulse = pulse::routes(reader.collector.clone(), stopping.clone());
    routes_of(reader, pulse)
}

fn routes_of(reader: Reader, pulse: Router<Reader>) -> Router {
    pulse
        .route("/livez", get(async || "ok"))
        .route("/api/v1/profile", get(profile))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/tasks", get(tasks))
        .route("/api/v1/thread-time", get(budget))
        .route("/api/v1/workers", get(workers))
        .merge(live::routes())
        .merge(records::routes())
        .method_not_allowed_fallback(not_allowed)
        .fallback(not_found)
        .layer(map_response(harden))
        .with_state(reader)
}

/// Headers of every answer.
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
    let error = format!("there is nothing at {path}");
    ErrorAnswer::new(StatusCode::NOT_FOUND, error).with_allowed(&PATHS)
}

async fn not_allowed(request: Request) -> ErrorAnswer {
    let error = format!("{} is not a method of this path", request.method());
    let allowed: &[&str] = match request.uri().path() {
        live::SETTINGS_PATH => &["PUT"],
        records::STOP_PATH => &["POST"],
        "/api/v1/runs" => &["GET", "HEAD", "POST"],
        _ => &["GET", "HEAD"],
    };
    ErrorAnswer::new(StatusCode::METHOD_NOT_ALLOWED, error).with_allowed(allowed)
}

impl Reader {
    pub(super) fn new(collector: Arc<Collector>) -> Reader {
        Reader {
            collector,
            turns: Arc::new(Semaphore::new(QUERIES_MAX)),
            places: Arc::new(Semaphore::new(QUERIES_MAX + QUERIES_WAITING_MAX)),
            live: Arc::new(Semaphore::new(CONTROL_REQUESTS_MAX)),
            marking: Arc::default(),
        }
    }

    /// Answers a question away from the threads that serve agents: at most [`QUERIES_MAX`] at once,
    /// so that readers together can take neither all processors nor all memory.
    pub(super) async fn answer(
        &self,
        pairs: Pairs,
        answer: Answerer,
    ) -> Result<Response, ErrorAnswer> {
        let Parameters(pairs) =
            pairs.map_err(|error| ErrorAnswer::new(StatusCode::BAD_REQUEST, error.body_text()))?;
        let _place = self.places.try_acquire().map_err(|_| ErrorAnswer::busy())?;
        let turn = timeout(QUERY_WAIT_MAX, self.turns.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| ErrorAnswer::busy())?;
        let collector = self.collector.clone();
        let cancel = Arc::new(Cancel::default());
        let _cancel_on_drop = CancelOnDrop(cancel.clone());
        let work = move || {
            // Held to the end of the work, even if the reader goes away before.
            let _turn = turn;
            let now = collector.clock.now();
            answer(&Asking { collector: &collector, pairs: &pairs, now, cancel: &cancel })
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(ErrorAnswer::internal(&error)))
    }
}

async fn profile(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ProfileQuery::parse(pairs, collector, now)?;
        let begin = Instant::now();
        let answer = collector.profile(&query, cancel)?;
        let answered = begin.elapsed();
        let mut response = written(&query, &answer)?;
        note_sampling(response.headers_mut(), &answer);
        note_timing(response.headers_mut(), answered, begin.elapsed() - answered);
        Ok(response)
    });
    answer.await
}

/// The profile in the form that was asked for.
fn written(query: &ProfileQuery, answer: &ProfileAnswer) -> Result<Response, ErrorAnswer> {
    match query.format {
        Format::Json => answer::ProfileBody::new(query, answer).with_profile(|text| {
            ProfileJson(&answer.profile).write_to(text);
            Ok(())
        }),
        Format::Columns => answer::ProfileBody::new(query, answer).with_profile(|text| {
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

/// Says in headers, for forms without room for it, the range, how much there is in it, how well it
/// was sampled, and where there is data.
fn note_sampling(headers: &mut HeaderMap, answer: &ProfileAnswer) {
    let mut note = |name: &'static str, value: String| {
        let value = HeaderValue::try_from(value).expect("numbers and times are plain ASCII");
        headers.insert(HeaderName::from_static(name), value);
    };
    let Provenance { sampling, .. } = &answer.facts;
    note("x-emberline-empty", answer.profile.is_empty().to_string());
    note("x-emberline-workers", answer.facts.workers.len().to_string());
    note("x-emberline-sampled-ns", sampling.sampled_ns.to_string());
    note("x-emberline-ticks", sampling.ticks.made.to_string());
    note("x-emberline-ticks-expected", sampling.ticks.expected.to_string());
    note("x-emberline-ticks-throttled", sampling.ticks.throttled.to_string());
    note("x-emberline-ticks-missed", sampling.ticks.missed().to_string());
    if let Some(rate_hz) = sampling.rate_hz() {
        note("x-emberline-rate-hz", format!("{rate_hz:.3}"));
    }
    let span =
        |range: TimeRange| format!("{}/{}", format_time(range.start()), format_time(range.stop()));
    note("x-emberline-range", span(answer.facts.range));
    note("x-emberline-total-ns", answer.profile.total().total_ns().to_string());
    note("x-emberline-corrupt-files", answer.facts.damaged.len().to_string());
    note("x-emberline-data", answer.facts.data.map(span).unwrap_or_default());
}

/// Says how long it took to make the profile, and to write it in its form.
fn note_timing(headers: &mut HeaderMap, answer: Duration, write: Duration) {
    let [answer, write] = [answer, write].map(|part| part.as_secs_f64() * 1e3);
    let text = format!("answer;dur={answer:.3}, write;dur={write:.3}");
    let value = HeaderValue::try_from(text).expect("numbers are plain ASCII");
    headers.insert(HeaderName::from_static("server-timing"), value);
}

async fn timeline(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = TimelineQuery::parse(pairs, collector, now)?;
        answer::json(&answer::TimelineBody::new(&query, &collector.timeline(&query, cancel)?))
    });
    answer.await
}

async fn tasks(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = TaskQuery::parse(pairs, collector, now)?;
        if query.columns && !query.summary {
            let columns = collector.task_columns(&query, cancel, now)?;
            answer::json(&answer::TaskColumnsBody::new(&query, &columns))
        } else if query.summary {
            answer::json(&answer::SummaryBody::new(&collector.task_summary(&query, cancel)?))
        } else {
            answer::json(&answer::TasksBody::new(&query, &collector.tasks(&query, cancel)?, now))
        }
    });
    answer.await
}

async fn budget(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, cancel }| {
        let query = ThreadTimeQuery::parse(pairs, collector, now)?;
        answer::json(&answer::BudgetBody::new(collector.budget(&query, cancel)?))
    });
    answer.await
}

async fn workers(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |&Asking { collector, pairs, now, .. }| {
        let kept = parse_workers(pairs, collector)?;
        answer::json(&answer::WorkersBody::new(&collector.fleet(&kept), now))
    });
    answer.await
}

#[cfg(test)]
mod tests;
