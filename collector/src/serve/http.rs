//! The HTTP API's routes. A query is parsed, computed on a thread that may block, and written in the
//! requested format.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{from_fn_with_state, map_response_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

use super::metrics::AnswerTimes;
use super::profile::answer_profile;
use super::reader::{Pairs, Reader};
use super::{
    access, agents, answer, file_paths, grafana, histogram_log, live_profile, metrics, openapi,
    page, session, sql, sse, symbols, tables, tasks_firefox, telemetry,
};
use base::clock::Clock;
use base::limits::{
    CONTROL_REQUESTS_MAX, EVENT_SUBSCRIBERS_MAX, LIVE_PROFILES_MAX, PAGES_MAX, QUERIES_MAX,
    QUERIES_WAITING_MAX,
};
use front::admission::{Admission, admit, admit_stream};
use front::error::ErrorAnswer;
use query::{
    DurationsFormat, TaskComparisonQuery, TaskDurationsQuery, TaskFormat, TaskQuery,
    ThreadTimeQuery, TimelineQuery, WorkerNamesQuery, WorkersQuery, fleet,
};
use shares::Quota;
use state::follow::Follower;

/// For everything but flame graphs: no script at all.
const PLAIN_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'");

/// The time of an answer by the collector's clock, in Unix nanoseconds.
const NOW_HEADER: HeaderName = HeaderName::from_static("x-emberline-now-ns");

/// The routes of the HTTP API.
pub(super) fn router(reader: Reader, stopping: &watch::Receiver<bool>) -> Router {
    let updates = sse::update_route(reader.collector.clone(), stopping.clone());
    let live = live_profile::live_route(stopping.clone());
    routes_of(reader, updates, live)
}

fn routes_of(reader: Reader, updates: Router<Reader>, live: Router<Reader>) -> Router {
    let accounts = reader.collector.accounts.clone();
    let clock = reader.collector.state.clock.clone();
    let queries = Admission::new(accounts, Quota::Queries, QUERIES_MAX + QUERIES_WAITING_MAX);
    let agents = queries.with_slots(Quota::ControlRequests, CONTROL_REQUESTS_MAX);
    let pages = queries.with_slots(Quota::EventStreams, PAGES_MAX);
    let events = queries.with_slots(Quota::EventStreams, EVENT_SUBSCRIBERS_MAX);
    let live_profiles = queries.with_slots(Quota::EventStreams, LIVE_PROFILES_MAX);
    let times = AnswerTimes::default();
    let monitoring = metrics::routes(&reader, times.clone());
    let answers = Router::new()
        .route("/api/v1/profile", get(profile))
        .merge(file_paths::routes(file_paths::PROFILE, &get(profile)))
        .route("/api/v1/timeline", get(timeline))
        .merge(file_paths::routes(file_paths::TIMELINE, &get(timeline)))
        .route("/api/v1/tasks", get(tasks))
        .merge(file_paths::routes(file_paths::TASKS, &get(tasks)))
        .route("/api/v1/tasks/compare", get(task_comparison))
        .route("/api/v1/tasks/durations", get(task_durations))
        .merge(file_paths::routes(
            file_paths::DURATIONS,
            &get(task_durations),
        ))
        .route("/api/v1/thread-time", get(thread_time))
        .route("/api/v1/workers", get(workers))
        .route("/api/v1/workers/names", get(worker_names))
        .route("/api/v1/openapi.json", get(openapi::answer))
        .merge(telemetry::routes())
        .merge(symbols::routes())
        .merge(sql::routes())
        .merge(grafana::routes())
        .layer(from_fn_with_state(queries, admit))
        .layer(from_fn_with_state(times, metrics::measure));
    answers
        .merge(updates.layer(from_fn_with_state(pages, admit_stream)))
        .merge(telemetry::event_route().layer(from_fn_with_state(events, admit_stream)))
        .merge(live.layer(from_fn_with_state(live_profiles, admit)))
        .merge(agents::routes().layer(from_fn_with_state(agents, admit)))
        .merge(monitoring)
        .route("/livez", get(async || "ok"))
        .route("/api/v1/session", get(session::session))
        .fallback(async |request: Request| {
            if page::wants_document(&request) {
                page::not_found(&request)
            } else {
                access::not_found(&request).into_response()
            }
        })
        .layer(map_response_with_state(clock, finish))
        .with_state(reader)
}

/// Adds the headers of every answer: what browsers may do with it, and when it was sent.
async fn finish(State(clock): State<Clock>, mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(NOW_HEADER, HeaderValue::from(clock.now().unix_ns()));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(PLAIN_POLICY);
    response
}

async fn profile(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    answer_profile(&reader, pairs).await
}

pub(super) async fn timeline(
    State(reader): State<Reader>,
    pairs: Pairs,
) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(TimelineQuery::parse)?;
        let found = asking.queries().timeline(&query, asking.cancel)?;
        let timeline = answer::timeline(&query, found);
        match query.format {
            Some(format) => Ok(tables::timeline(&timeline).response(format)),
            None => answer::json(&timeline),
        }
    });
    answer.await
}

pub(super) async fn tasks(
    State(reader): State<Reader>,
    pairs: Pairs,
) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(TaskQuery::parse)?;
        let queries = asking.queries();
        let cancel = asking.cancel;
        if query.summary {
            let summary = answer::task_summary(queries.task_summary(&query, cancel)?);
            return match query.format {
                TaskFormat::File(format) => Ok(tables::task_names(&summary).response(format)),
                TaskFormat::Json | TaskFormat::Columns | TaskFormat::Firefox => {
                    answer::json(&summary)
                }
            };
        }
        match query.format {
            TaskFormat::Json => {
                let tasks = queries.tasks(&query, cancel)?;
                answer::json(&answer::TasksBody::new(&query, &tasks, asking.now))
            }
            TaskFormat::Columns => {
                let columns = queries.task_columns(&query, cancel, asking.now)?;
                answer::json(&answer::TaskColumnsBody::new(&query, &columns))
            }
            TaskFormat::File(format) => {
                let tasks = queries.tasks(&query, cancel)?;
                Ok(tables::tasks(&answer::tasks(&query, tasks, asking.now)).response(format))
            }
            TaskFormat::Firefox => tasks_firefox::response(asking, &query),
        }
    });
    answer.await
}

async fn task_comparison(
    State(reader): State<Reader>,
    pairs: Pairs,
) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(TaskComparisonQuery::parse)?;
        let comparison = asking.queries().task_comparison(&query, asking.cancel)?;
        answer::json(&answer::task_comparison(comparison))
    });
    answer.await
}

async fn task_durations(
    State(reader): State<Reader>,
    pairs: Pairs,
) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(TaskDurationsQuery::parse)?;
        let queries = asking.queries();
        match query.format {
            DurationsFormat::Json => {
                let durations = queries.task_durations(&query, asking.cancel)?;
                answer::json(&answer::task_durations(durations))
            }
            DurationsFormat::HistogramLog => {
                let counts = queries.duration_counts(&query, asking.cancel)?;
                Ok(histogram_log::response(&counts))
            }
        }
    });
    answer.await
}

async fn thread_time(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = asking.parse(ThreadTimeQuery::parse)?;
        let thread_time = asking.queries().thread_time(&query, asking.cancel)?;
        answer::json(&answer::thread_time(thread_time))
    });
    answer.await
}

async fn workers(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let collector = asking.collector;
        let query = WorkersQuery::parse(asking.pairs, &collector.state)?;
        let quotas = collector.quota_uses();
        let forwards = collector.state.forwards.statuses();
        let stores = collector
            .follower
            .as_ref()
            .map(Follower::statuses)
            .unwrap_or_default();
        // Rows stored since the last look say nothing about the workers.
        let read_at = stores.iter().filter_map(|store| store.read_at).min();
        let now = read_at.unwrap_or(asking.now);
        let fleet = fleet(collector, &query, now);
        let pushed = &collector.pushed;
        answer::json(&answer::workers(
            &fleet, &quotas, pushed, &forwards, &stores, now,
        ))
    });
    answer.await
}

async fn worker_names(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    let answer = reader.answer(pairs, |asking| {
        let query = WorkerNamesQuery::parse(asking.pairs)?;
        answer::json(&asking.queries().worker_names(&query))
    });
    answer.await
}

#[cfg(test)]
mod tests;
