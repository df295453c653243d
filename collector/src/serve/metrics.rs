//! `/metrics`, in the format of OpenMetrics, and `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use flamegraph::text::printable;
use profiler_core::Outcome;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::Semaphore;

use super::reader::{Reader, blocking};
use base::limits::SCRAPES_MAX;
use front::error::ErrorAnswer;
use query::CollectorTotals;
use query::Queries;
use state::Collector;
use state::forward::Protocol;
use state::ingest_status::Cause;
use state::pushed::PushCounts;
use store::{BucketOperation, BucketTraffic};

/// Media type that a scraper accepts if it reads OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Bounds of the histogram of answers: 1 ms, doubled 14 times, to 16 s.
const BUCKETS: u16 = 15;

const PLAIN_TEXT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

type Labels = Vec<(&'static str, String)>;

/// Durations of answers by route, since the start.
#[derive(Clone)]
pub(super) struct AnswerTimes(Family<Labels, Histogram>);

impl Default for AnswerTimes {
    fn default() -> Self {
        AnswerTimes(Family::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 2.0, BUCKETS))
        }))
    }
}

/// Notes how long the answer to a request took, until its body begins.
pub(super) async fn measure(
    State(times): State<AnswerTimes>,
    request: Request,
    next: Next,
) -> Response {
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let begin = Instant::now();
    let response = next.run(request).await;
    if let Some(path) = path {
        let class = format!("{}xx", response.status().as_u16() / 100);
        let labels = vec![("route", path), ("status", class)];
        times
            .0
            .get_or_create(&labels)
            .observe(begin.elapsed().as_secs_f64());
    }
    response
}

/// State that the routes need.
#[derive(Clone)]
struct Scraped {
    reader: Reader,
    times: AnswerTimes,
    /// One permit for each scrape that runs.
    scrapes: Arc<Semaphore>,
}

/// The routes. They have slots of their own: a collector that is busy with queries is still monitored.
pub(super) fn routes(reader: &Reader, times: AnswerTimes) -> Router<Reader> {
    let scrapes = Arc::new(Semaphore::new(SCRAPES_MAX));
    let scraped = Scraped {
        reader: reader.clone(),
        times,
        scrapes,
    };
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(scraped)
        .route("/readyz", get(ready))
}

/// Whether flushes are accepted. Tells everybody the cause, but no number.
async fn ready(State(reader): State<Reader>) -> Result<Response, ErrorAnswer> {
    let collector = reader.collector.clone();
    let blocked = blocking(move || Ok(collector.ingest.blocked())).await?;
    Ok(match blocked {
        None => "ok".into_response(),
        Some(blocked) => {
            let cause = blocked.cause.name();
            (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("ingest is blocked: {cause}"),
            )
                .into_response()
        }
    })
}

async fn metrics(
    State(scraped): State<Scraped>,
    headers: HeaderMap,
) -> Result<Response, ErrorAnswer> {
    let is_open = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(OPEN_METRICS)));
    let permit = scraped
        .scrapes
        .try_acquire_owned()
        .map_err(|_| ErrorAnswer::busy())?;
    let collector = scraped.reader.collector.clone();
    let times = scraped.times;
    let text = blocking(move || {
        let _permit = permit;
        let mut text = String::new();
        let registry = registry(&collector, &times);
        encode(&mut text, &registry).map_err(|error| ErrorAnswer::internal(&error))?;
        Ok(text)
    })
    .await?;
    if is_open {
        return Ok(([(header::CONTENT_TYPE, OPEN_METRICS_TEXT)], text).into_response());
    }
    Ok(([(header::CONTENT_TYPE, PLAIN_TEXT)], plain(&text)).into_response())
}

/// The same in the older text format, which has other names for counters, and neither units nor an
/// end.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", _, words] => help = words,
            ["#", "TYPE", name, kind] => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                let lines = format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
                text.push_str(&lines);
            }
            ["#", ..] => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// All metrics with their present values.
fn registry(collector: &Collector, times: &AnswerTimes) -> Registry {
    let mut registry = Registry::with_prefix("emberline");
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "The collector's version", version);
    add_ingest(&mut registry, collector);
    add_totals(&mut registry, &Queries(&collector.state).totals());
    add_tasks(&mut registry, collector);
    add_quotas(&mut registry, collector);
    add_pushes(&mut registry, collector);
    add_scrapes(&mut registry, collector);
    add_forwards(&mut registry, collector);
    add_adoptions(&mut registry, collector);
    add_bucket(&mut registry);
    registry.register_with_unit(
        "answer_duration",
        "Time from a request of the HTTP API to the begin of its answer",
        Unit::Seconds,
        times.0.clone(),
    );
    registry
}

fn add_ingest(registry: &mut Registry, collector: &Collector) {
    let blocked = collector.ingest.blocked().map(|blocked| blocked.cause);
    let by_cause = Family::<Labels, Gauge>::default();
    for cause in [Cause::DiskFull, Cause::Behind, Cause::LogFailed] {
        let labels = vec![("cause", cause.name().to_owned())];
        by_cause
            .get_or_create(&labels)
            .set(i64::from(blocked == Some(cause)));
    }
    registry.register(
        "ingest_blocked",
        "1 while flushes are refused, by cause",
        by_cause,
    );
    let flushes = Counter::<u64>::default();
    flushes.inc_by(
        collector
            .state
            .flushes
            .load(std::sync::atomic::Ordering::Relaxed),
    );
    registry.register("flushes", "Flushes applied since the start", flushes);
    let invalid = Counter::<u64>::default();
    invalid.inc_by(collector.state.invalid_build_ids.load(Ordering::Relaxed));
    let help = "Frames since the start that lost an invalid build id";
    registry.register("invalid_build_ids", help, invalid);
    let cut = Counter::<u64>::default();
    cut.inc_by(collector.state.cut_phases.load(Ordering::Relaxed));
    let help = "Phases of tasks since the start that were cut because they began too long before";
    registry.register("cut_phases", help, cut);
}

fn add_totals(registry: &mut Registry, totals: &CollectorTotals) {
    let CollectorTotals { ticks, .. } = totals;
    let sessions = family(
        "state",
        [
            ("connected", totals.connected),
            ("away", totals.away),
            ("gone", totals.gone),
        ],
    );
    registry.register(
        "sessions",
        "Lives of workers that the collector knows",
        sessions,
    );

    let seconds = |ns: u64| ns as f64 / 1e9;
    let sampled = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    for (part, ns) in [
        ("accepted", totals.accepted_ns),
        ("stored", totals.stored_ns),
        ("lost_rejected", totals.lost_rejected_ns),
        ("lost_by_collector", totals.lost_by_collector_ns),
        ("lost_queue", totals.lost_queue_ns),
    ] {
        sampled
            .get_or_create(&vec![("part", part.to_owned())])
            .set(seconds(ns));
    }
    let help = "Thread time that the known sessions sampled, by what became of it";
    registry.register_with_unit("sampled", help, Unit::Seconds, sampled);

    let made = family(
        "part",
        [
            ("made", ticks.made),
            ("expected", ticks.expected),
            ("throttled", ticks.throttled),
        ],
    );
    registry.register(
        "sampler_ticks",
        "Ticks of the samplers of the known sessions",
        made,
    );
    add_gauge(
        registry,
        "messages_rejected",
        "Messages of the known sessions that were rejected",
        totals.rejected,
    );
    add_gauge(
        registry,
        "tasks_not_reported",
        "Tasks that the agents of the known sessions could not report",
        totals.lost_tasks,
    );

    add_gauge(
        registry,
        "unsealed_windows",
        "Windows that are in no table yet",
        totals.windows as u64,
    );
    register_bytes(
        registry,
        "unsealed",
        "Memory of the windows that are in no table yet",
        totals.window_bytes as u64,
    );
    register_bytes(registry, "store", "Size of all tables", totals.file_bytes);
    add_gauge(
        registry,
        "store_tables",
        "Tables of the store",
        totals.files as u64,
    );
    add_gauge(
        registry,
        "tree_nodes",
        "Nodes of the tree of calls",
        totals.nodes.into(),
    );
    add_gauge(
        registry,
        "ledger_rows",
        "Tasks in memory",
        totals.task_rows as u64,
    );
    if let Some(data) = totals.data {
        let oldest = Gauge::<f64, AtomicU64>::default();
        oldest.set(data.start().unix_ns() as f64 / 1e9);
        let help = "Start of the oldest data, since the Unix epoch";
        registry.register_with_unit("oldest_data_timestamp", help, Unit::Seconds, oldest);
    }
}

fn register_bytes(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register_with_unit(name, help, Unit::Bytes, gauge);
}

fn add_tasks(registry: &mut Registry, collector: &Collector) {
    let counts = Family::<Labels, Counter>::default();
    let durations = Family::<Labels, Counter<f64, AtomicU64>>::default();
    for (name, ended) in collector.state.task_counters.by_name() {
        let label = escaped(&name);
        for outcome in Outcome::ALL {
            let count = ended.outcomes.get(outcome);
            if count > 0 {
                let labels = vec![
                    ("task", label.clone()),
                    ("outcome", outcome.name().to_owned()),
                ];
                counts.get_or_create(&labels).inc_by(count);
            }
        }
        let labels = vec![("task", label)];
        durations
            .get_or_create(&labels)
            .inc_by(ended.duration_ns as f64 / 1e9);
    }
    registry.register("tasks_ended", "Tasks that ended since the start", counts);
    let help = "Durations of the tasks that ended since the start";
    registry.register_with_unit("task_duration", help, Unit::Seconds, durations);
}

/// A label's value: the encoder writes it as it is, and task names come from foreign programs.
fn escaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for character in printable(text).chars() {
        if matches!(character, '\\' | '"') {
            value.push('\\');
        }
        value.push(character);
    }
    value
}

fn add_quotas(registry: &mut Registry, collector: &Collector) {
    let refused = Family::<Labels, Gauge>::default();
    for view in collector.quota_uses() {
        let labels = vec![("quota", view.quota.name().to_owned())];
        let count = i64::try_from(view.counted.refused).unwrap_or(i64::MAX);
        refused.get_or_create(&labels).inc_by(count);
    }
    let help = "Refusals by a quota of the identities that met the most";
    registry.register("quota_refusals", help, refused);
}

fn add_scrapes(registry: &mut Registry, collector: &Collector) {
    let up = Family::<Labels, Gauge>::default();
    for (name, status) in collector.pushed.scrapes.all() {
        let is_up = status.failure.is_none() && status.stored > 0;
        up.get_or_create(&vec![("name", escaped(&name))])
            .set(i64::from(is_up));
    }
    let help = "1 if the last profile of a scraped service was stored";
    registry.register("scrape_up", help, up);
}

fn add_adoptions(registry: &mut Registry, collector: &Collector) {
    let adoptions = Family::<Labels, Counter>::default();
    for (outcome, count) in [
        ("done", &collector.adoptions.done),
        ("failed", &collector.adoptions.failed),
    ] {
        let labels = vec![("outcome", outcome.to_owned())];
        adoptions
            .get_or_create(&labels)
            .inc_by(count.load(Ordering::Relaxed));
    }
    registry.register(
        "store_adoptions",
        "Adoptions of stores whose collector is gone",
        adoptions,
    );
}

/// Providers of buckets charge for requests. A collector with its store in a folder makes none.
fn add_bucket(registry: &mut Registry) {
    let traffic = BucketTraffic::now();
    let requests = Family::<Labels, Counter>::default();
    for operation in BucketOperation::ALL {
        let labels = vec![("operation", operation.name().to_owned())];
        requests
            .get_or_create(&labels)
            .inc_by(traffic.requests(operation));
    }
    registry.register(
        "bucket_requests",
        "Requests to buckets since the start",
        requests,
    );
    let bytes = Family::<Labels, Counter>::default();
    for (direction, count) in [
        ("sent", traffic.sent_bytes),
        ("received", traffic.received_bytes),
    ] {
        bytes
            .get_or_create(&vec![("direction", direction.to_owned())])
            .inc_by(count);
    }
    let help = "Bytes of the bodies of these requests and their answers";
    registry.register_with_unit("bucket_traffic", help, Unit::Bytes, bytes);
}

fn add_forwards(registry: &mut Registry, collector: &Collector) {
    let up = Family::<Labels, Gauge>::default();
    let seconds = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    let tasks = Family::<Labels, Gauge>::default();
    let queue = Family::<Labels, Gauge>::default();
    for status in collector.state.forwards.statuses() {
        let target = vec![
            ("url", escaped(&status.url)),
            ("protocol", status.protocol.name().to_owned()),
        ];
        up.get_or_create(&target)
            .set(i64::from(status.failure.is_none()));
        let bytes = i64::try_from(status.waiting_bytes).unwrap_or(i64::MAX);
        queue.get_or_create(&target).set(bytes);
        let counts = status.counts;
        for (part, amount) in [
            ("accepted", counts.accepted),
            ("sent", counts.sent),
            ("waiting", counts.waiting()),
            ("lost_queue", counts.lost_queue),
            ("lost_rejected", counts.lost_rejected),
        ] {
            let labels = [&target[..], &[("part", part.to_owned())]].concat();
            match status.protocol {
                Protocol::OtlpTraces => {
                    tasks
                        .get_or_create(&labels)
                        .set(i64::try_from(amount).unwrap_or(i64::MAX));
                }
                Protocol::Pyroscope | Protocol::Otlp => {
                    seconds.get_or_create(&labels).set(amount as f64 / 1e9);
                }
            }
        }
    }
    registry.register(
        "forward_up",
        "1 unless the last delivery to a receiver failed",
        up,
    );
    let help = "Thread time to forward, by what became of it";
    registry.register_with_unit("forward", help, Unit::Seconds, seconds);
    registry.register(
        "forward_tasks",
        "Tasks to forward, by what became of them",
        tasks,
    );
    let help = "Size of the messages that wait for a receiver";
    registry.register_with_unit("forward_queue", help, Unit::Bytes, queue);
}

fn add_pushes(registry: &mut Registry, collector: &Collector) {
    let requests = Family::<Labels, Counter>::default();
    for (source, counts) in collector.pushed.counters.all() {
        let PushCounts {
            stored,
            empty,
            without_time,
            rejected,
            ..
        } = counts;
        for (outcome, count) in [
            ("stored", stored),
            ("empty", empty),
            ("without_time", without_time),
            ("rejected", rejected),
        ] {
            let labels = vec![
                ("source", source.to_owned()),
                ("outcome", outcome.to_owned()),
            ];
            requests.get_or_create(&labels).inc_by(count);
        }
    }
    registry.register(
        "pushes",
        "Requests of foreign profilers by outcome",
        requests,
    );
    let series = Family::<Labels, Gauge>::default();
    for source in collector.pushed.counters.all().into_keys() {
        let count = i64::try_from(collector.pushed.live_count(source)).unwrap_or(i64::MAX);
        series
            .get_or_create(&vec![("source", source.to_owned())])
            .set(count);
    }
    registry.register(
        "pushed_series",
        "Series that foreign profilers pushed lately",
        series,
    );
}

fn family<const N: usize>(label: &'static str, values: [(&str, u64); N]) -> Family<Labels, Gauge> {
    let family = Family::<Labels, Gauge>::default();
    for (name, value) in values {
        let labels = vec![(label, name.to_owned())];
        family
            .get_or_create(&labels)
            .set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    family
}

fn add_gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    registry.register(name, help, gauge);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_suffix_in_the_older_format() {
        let open_metrics = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                            a_seconds_total 3\n# HELP b Now.\n# TYPE b gauge\nb 1\n# EOF\n";
        let expected = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\n\
                        a_seconds_total 3\n# HELP b Now.\n# TYPE b gauge\nb 1\n";
        assert_eq!(plain(open_metrics), expected);
    }

    #[test]
    fn a_label_cannot_end_its_value_or_line() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\\\nb\\\\");
        assert_eq!(escaped("größe"), "größe");
    }
}
