//! The paths of Pyroscope's older API.

use axum::response::Response;
use flamegraph::Flamebearer;
use profiler_core::{TimeRange, Timestamp};
use serde::Serialize;

use super::query::{GrafanaQuery, ProfileKind};
use super::{invalid, label_values as values_of, nodes_max};
use front::answer;
use front::error::ErrorAnswer;
use query::{Asking, LabelSeriesQuery, Params, RangeText};

/// Points of a timeline, at most.
const TIMELINE_POINTS: u64 = 1_000;

const SECOND_NS: u64 = 1_000_000_000;

/// A flame graph with its timeline.
#[derive(Serialize)]
struct Rendered {
    version: u8,
    flamebearer: Bars,
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Timeline>,
    #[serde(rename = "leftTicks", skip_serializing_if = "Option::is_none")]
    left_ticks: Option<i64>,
    #[serde(rename = "rightTicks", skip_serializing_if = "Option::is_none")]
    right_ticks: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bars {
    names: Vec<String>,
    levels: Vec<Vec<i64>>,
    num_ticks: i64,
    max_self: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    /// `single`, or `double` for a difference.
    format: &'static str,
    units: &'static str,
    name: &'static str,
    /// Units in a second.
    sample_rate: u64,
}

/// Times are in seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Timeline {
    start_time: i64,
    samples: Vec<u64>,
    duration_delta: u64,
}

impl Metadata {
    fn new(format: &'static str, kind: &ProfileKind) -> Metadata {
        // Pyroscope calls a nanosecond of CPU time a sample.
        let is_cpu = kind.sample_type() == "cpu";
        Metadata {
            format,
            units: if is_cpu { "samples" } else { "nanoseconds" },
            name: kind.sample_type(),
            sample_rate: if is_cpu { SECOND_NS } else { 100 },
        }
    }
}

impl Bars {
    fn new(flamebearer: Flamebearer) -> Bars {
        Bars {
            num_ticks: flamebearer.total_ns(),
            max_self: flamebearer.most_own_ns,
            names: flamebearer.names,
            levels: flamebearer.levels,
        }
    }
}

/// `GET /pyroscope/render?query=TYPE{MATCHERS}&from=…&until=…`
pub fn render(asking: &Asking<'_>) -> Result<Response, ErrorAnswer> {
    let params = Params::new(
        asking.pairs,
        &["query", "from", "until", "maxNodes", "max-nodes", "format"],
    )?;
    params.choice("format", &[("json", ())])?;
    let query = query_of(&params, ["query", "from", "until"], asking)?;
    let nodes = asked_nodes(&params)?;
    let profile = query.clone().with_end().profile(asking)?;
    answer::json(&Rendered {
        version: 1,
        flamebearer: Bars::new(flamegraph::flamebearer(&profile, nodes)),
        metadata: Metadata::new("single", query.kind),
        timeline: Some(timeline(query, asking)?),
        left_ticks: None,
        right_ticks: None,
    })
}

/// `GET /pyroscope/render-diff?leftQuery=…&leftFrom=…&leftUntil=…&rightQuery=…`
pub fn render_diff(asking: &Asking<'_>) -> Result<Response, ErrorAnswer> {
    const LEFT: [&str; 3] = ["leftQuery", "leftFrom", "leftUntil"];
    const RIGHT: [&str; 3] = ["rightQuery", "rightFrom", "rightUntil"];
    let names = [&LEFT[..], &RIGHT, &["maxNodes", "max-nodes", "format"]].concat();
    let params = Params::new(asking.pairs, &names)?;
    params.choice("format", &[("json", ())])?;
    let left = query_of(&params, LEFT, asking)?;
    let right = query_of(&params, RIGHT, asking)?;
    let nodes = asked_nodes(&params)?;
    let kind = left.kind;
    let before = left.with_end().profile(asking)?;
    let after = right.with_end().profile(asking)?;
    let bars = flamegraph::diff_flamebearer(&before, &after, nodes);
    let [left_ticks, right_ticks] = [0, 1].map(|side| bars.totals_ns.get(side).copied());
    answer::json(&Rendered {
        version: 1,
        flamebearer: Bars::new(bars),
        metadata: Metadata::new("double", kind),
        timeline: None,
        left_ticks,
        right_ticks,
    })
}

/// `GET /pyroscope/label-values?label=NAME&query={MATCHERS}`
pub fn label_values(asking: &Asking<'_>) -> Result<Response, ErrorAnswer> {
    let params = Params::new(asking.pairs, &["label", "query", "from", "until"])?;
    let label = params
        .one("label")?
        .ok_or_else(|| invalid("the parameter label is missing".to_owned()))?;
    let (_, matchers) = split_query(params.one("query")?.unwrap_or_default());
    answer::json(&values_of(label, &[matchers.to_owned()], asking)?)
}

/// Parses a query and its range from the parameters of these names.
fn query_of(
    params: &Params<'_>,
    [query, from, until]: [&'static str; 3],
    asking: &Asking<'_>,
) -> Result<GrafanaQuery, ErrorAnswer> {
    let text = params
        .one(query)?
        .ok_or_else(|| invalid(format!("the parameter {query} is missing")))?;
    let (profile_type, matchers) = split_query(text);
    let from = RenderTime(params.one(from)?.unwrap_or("now-1h"));
    let until = RenderTime(params.one(until)?.unwrap_or("now"));
    let range = RangeText {
        from: &from.text(),
        to: &until.text(),
    }
    .resolve(asking.now)?;
    GrafanaQuery::of(profile_type, matchers, range)
}

/// A profile type and matchers, as in `process_cpu:cpu:nanoseconds:cpu:nanoseconds{task="load"}`.
fn split_query(query: &str) -> (&str, &str) {
    query.split_at(query.find('{').unwrap_or(query.len()))
}

/// A time of the older API: relative as in `now-1h`, or seconds, milliseconds or nanoseconds since the
/// Unix epoch, told apart by their size.
struct RenderTime<'a>(&'a str);

impl RenderTime<'_> {
    /// The time as Emberline's API takes it.
    fn text(&self) -> String {
        if let Some(span) = self
            .0
            .strip_prefix("now")
            .filter(|span| span.starts_with('-'))
        {
            return span.to_owned();
        }
        match self.0.parse::<u64>() {
            Ok(ms) if (1 << 40..1 << 53).contains(&ms) => {
                format!("{}.{:03}", ms / 1_000, ms % 1_000)
            }
            Ok(ns) if ns >= 1 << 53 => format!("{}.{:09}", ns / SECOND_NS, ns % SECOND_NS),
            _ => self.0.to_owned(),
        }
    }
}

fn asked_nodes(params: &Params<'_>) -> Result<usize, ErrorAnswer> {
    let text = params.one("maxNodes")?.or(params.one("max-nodes")?);
    let number = text
        .map(str::parse::<i64>)
        .transpose()
        .map_err(|_| invalid("maxNodes is not an integer".to_owned()))?;
    Ok(nodes_max(number))
}

/// The sums of a query by step. Unlike the flame graph, Pyroscope's timeline has no step at its end.
fn timeline(query: GrafanaQuery, asking: &Asking<'_>) -> Result<Timeline, ErrorAnswer> {
    let GrafanaQuery {
        kind,
        matchers,
        range,
    } = query;
    let step_s = step_s(range);
    let query = LabelSeriesQuery::new(range, matchers, kind.states(), step_s as f64)?;
    let answer = asking.queries().label_series(&query, asking.cancel)?;
    let samples = answer.series.into_iter().next().map(|series| series.sums);
    Ok(Timeline {
        start_time: seconds(answer.first),
        samples: samples.unwrap_or_default(),
        duration_delta: answer.step_ns / SECOND_NS,
    })
}

fn step_s(range: TimeRange) -> u64 {
    range
        .length_ns()
        .div_ceil(TIMELINE_POINTS * SECOND_NS)
        .max(1)
}

fn seconds(time: Timestamp) -> i64 {
    time.unix_ns().div_euclid(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seconds_milliseconds_or_nanoseconds() {
        let text = |time: &str| RenderTime(time).text();
        assert_eq!(text("1795484263"), "1795484263");
        assert_eq!(text("1795484263045"), "1795484263.045");
        assert_eq!(text("1795484263000000007"), "1795484263.000000007");
        assert_eq!(text("now-1h"), "-1h");
        assert_eq!(text("now"), "now");
        assert_eq!(text("noon"), "noon");
    }
}
