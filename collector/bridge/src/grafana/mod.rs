//! Requests of Grafana's Pyroscope data source: the methods of `querier.v1.QuerierService` that it calls, by
//! the Connect protocol, and the older paths below `/pyroscope`. `docs/INTEGRATIONS.md` says how to set it
//! up.

mod messages;
mod query;
mod render;

use std::collections::BTreeSet;

use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use flamegraph::messages::json;
use profiler_core::Profile;
use profiler_core::limits::bounded;
use serde::{Deserialize, Serialize};

use self::messages::{
    DiffRequest, DiffResponse, FlameGraph, FlameGraphDiff, FlameGraphResponse, LabelNamesRequest,
    LabelPair, LabelValuesRequest, Level, NamesResponse, Point, ProfileTypesRequest,
    ProfileTypesResponse, SelectMergeSpanProfileRequest, SelectMergeStacktracesRequest,
    SelectSeriesRequest, SelectSeriesResponse, Series,
};
use self::query::{GrafanaQuery, PROFILE_KINDS, PROFILE_TYPE_LABEL, ProfileKind};
pub use self::render::{label_values as render_label_values, render, render_diff};
use crate::push::{Encoding, decoded};
use ::query::{
    Asking, LabelMatchers, LabelScope, LabelSeries, LabelSeriesAnswer, LabelSeriesQuery,
};
use base::limits::{
    FLAMEBEARER_NODES_DEFAULT, FLAMEBEARER_NODES_MAX, GRAFANA_BODY_BYTES_MAX, GROUP_LABELS_MAX,
    MATCHER_LISTS_MAX,
};
use front::answer;
use front::error::ErrorAnswer;

/// The paths. All methods of the service are below the first one.
pub const SERVICE_PREFIX: &str = "/querier.v1.QuerierService/";
pub const SERVICE_ROUTE: &str = "/querier.v1.QuerierService/{method}";
pub const RENDER_ROUTE: &str = "/pyroscope/render";
pub const RENDER_DIFF_ROUTE: &str = "/pyroscope/render-diff";
pub const LABEL_VALUES_ROUTE: &str = "/pyroscope/label-values";

/// The methods of the service that are answered.
const METHODS: [&str; 7] = [
    "ProfileTypes",
    "LabelNames",
    "LabelValues",
    "SelectSeries",
    "SelectMergeStacktraces",
    "SelectMergeSpanProfile",
    "Diff",
];

/// Puts the errors of the service into the form of the Connect protocol.
pub async fn connect_errors(request: Request, next: Next) -> Response {
    let is_connect = request.uri().path().starts_with(SERVICE_PREFIX);
    let response = next.run(request).await;
    match response.extensions().get::<ErrorAnswer>() {
        Some(error) if is_connect => {
            let body = error.connect();
            let (mut parts, _) = response.into_parts();
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.remove(header::CONTENT_ENCODING);
            Response::from_parts(parts, body.into())
        }
        _ => response,
    }
}

/// A call of a method of the service that arrived, and the form of its answer.
pub struct Call {
    method: String,
    encoding: Encoding,
    message: Bytes,
}

impl Call {
    /// Reads the call of this method.
    pub async fn read(method: String, request: Request) -> Result<Call, ErrorAnswer> {
        let (parts, body) = request.into_parts();
        let encoding = Encoding::of(&parts.headers)?;
        let body = to_bytes(body, GRAFANA_BODY_BYTES_MAX).await.map_err(|_| {
            let error = format!(
                "the request broke off or has more than {GRAFANA_BODY_BYTES_MAX} bytes; match fewer \
                 values by longer patterns"
            );
            ErrorAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, error)
        })?;
        let message = decoded(&parts.headers, body, GRAFANA_BODY_BYTES_MAX)?;
        // Checked after the body: a connection whose request is not read cannot be used again.
        if !METHODS.contains(&&*method) {
            let method = bounded(&method, 100);
            let known = METHODS.join(", ");
            let error = format!("the method {method:?} is not implemented; allowed: {known}");
            let answer = ErrorAnswer::new(StatusCode::NOT_IMPLEMENTED, error);
            return Err(answer.with_allowed(&METHODS));
        }
        Ok(Call {
            method,
            encoding,
            message,
        })
    }

    fn message<M: prost::Message + Default + for<'de> Deserialize<'de>>(
        &self,
    ) -> Result<M, ErrorAnswer> {
        let parsed = match self.encoding {
            Encoding::Proto => M::decode(&*self.message).map_err(|error| error.to_string()),
            Encoding::Json => json::from_slice(&self.message).map_err(|error| error.to_string()),
        };
        parsed.map_err(|error| invalid(format!("invalid message: {error}")))
    }

    fn answer<M: prost::Message + Serialize>(&self, message: &M) -> Result<Response, ErrorAnswer> {
        match self.encoding {
            Encoding::Proto => {
                let kind = [(header::CONTENT_TYPE, "application/proto")];
                Ok((kind, message.encode_to_vec()).into_response())
            }
            Encoding::Json => answer::json(message),
        }
    }

    /// Computes the answer.
    pub fn respond(&self, asking: &Asking<'_>) -> Result<Response, ErrorAnswer> {
        match &*self.method {
            "ProfileTypes" => {
                self.message::<ProfileTypesRequest>()?;
                let profile_types = PROFILE_KINDS.iter().map(ProfileKind::message).collect();
                self.answer(&ProfileTypesResponse { profile_types })
            }
            "LabelNames" => {
                let asked: LabelNamesRequest = self.message()?;
                self.answer(&NamesResponse {
                    names: label_names(&asked.matchers, asking)?,
                })
            }
            "LabelValues" => {
                let LabelValuesRequest { name, matchers } = self.message()?;
                self.answer(&NamesResponse {
                    names: label_values(&name, &matchers, asking)?,
                })
            }
            "SelectSeries" => self.answer(&select_series(self.message()?, asking)?),
            "SelectMergeStacktraces" => {
                let asked: SelectMergeStacktracesRequest = self.message()?;
                let profile = asked.query()?.profile(asking)?;
                let flamegraph = Some(flame_graph(&profile, nodes_max(asked.max_nodes)));
                self.answer(&FlameGraphResponse { flamegraph })
            }
            "SelectMergeSpanProfile" => {
                let asked: SelectMergeSpanProfileRequest = self.message()?;
                let query = asked.query()?;
                // Samples have no span ids, so spans select nothing.
                let profile = if asked.span_selector.is_empty() {
                    query.profile(asking)?
                } else {
                    Profile::default()
                };
                let flamegraph = Some(flame_graph(&profile, nodes_max(asked.max_nodes)));
                self.answer(&FlameGraphResponse { flamegraph })
            }
            // The only other one of `METHODS`.
            _ => self.answer(&diff(self.message()?, asking)?),
        }
    }
}

/// The names of labels that workers have which any of these matchers select.
fn label_names(matchers: &[String], asking: &Asking<'_>) -> Result<Vec<String>, ErrorAnswer> {
    let mut names = BTreeSet::new();
    for scope in scopes(matchers, asking)? {
        names.extend(scope.label_names());
        names.insert(PROFILE_TYPE_LABEL.to_owned());
    }
    Ok(names.into_iter().collect())
}

/// The values of a label of workers which any of these matchers select.
fn label_values(
    name: &str,
    matchers: &[String],
    asking: &Asking<'_>,
) -> Result<Vec<String>, ErrorAnswer> {
    let mut values = BTreeSet::new();
    for scope in scopes(matchers, asking)? {
        if name == PROFILE_TYPE_LABEL {
            values.extend(PROFILE_KINDS.iter().map(ProfileKind::id));
        } else {
            values.extend(scope.label_values(&asking.collector.state, name));
        }
    }
    Ok(values.into_iter().collect())
}

/// The scope of each list of matchers; without any, that of everything.
fn scopes(matchers: &[String], asking: &Asking<'_>) -> Result<Vec<LabelScope>, ErrorAnswer> {
    if matchers.len() > MATCHER_LISTS_MAX {
        let lists = matchers.len();
        let error =
            format!("{lists} lists of matchers are given; at most {MATCHER_LISTS_MAX} are allowed");
        return Err(invalid(error));
    }
    let everything = [String::new()];
    let matchers = if matchers.is_empty() {
        &everything
    } else {
        matchers
    };
    let mut scopes = Vec::new();
    for text in matchers {
        let mut matchers = LabelMatchers::parse(text)?;
        let of_type = matchers.split_off(PROFILE_TYPE_LABEL);
        if PROFILE_KINDS
            .iter()
            .any(|kind| of_type.accept(PROFILE_TYPE_LABEL, &kind.id()))
        {
            scopes.push(LabelScope::new(&asking.collector.state, matchers));
        }
    }
    Ok(scopes)
}

fn select_series(
    mut asked: SelectSeriesRequest,
    asking: &Asking<'_>,
) -> Result<SelectSeriesResponse, ErrorAnswer> {
    query::check_call_site(asked.stack_trace_selector.as_ref())?;
    if asked.aggregation.unwrap_or_default() != 0 {
        return Err(invalid(
            "this aggregation is not supported; allowed: SUM".to_owned(),
        ));
    }
    if asked.group_by.len() > GROUP_LABELS_MAX {
        let labels = asked.group_by.len();
        let error = format!("group_by has {labels} labels; at most {GROUP_LABELS_MAX} are allowed");
        return Err(invalid(error));
    }
    let labels_asked = asked.group_by.len();
    asked.group_by.retain(|name| name != PROFILE_TYPE_LABEL);
    let has_type_label = asked.group_by.len() < labels_asked;
    let GrafanaQuery {
        kind,
        matchers,
        range,
    } = GrafanaQuery::new(
        &asked.profile_type_id,
        &asked.label_selector,
        asked.start,
        asked.end,
    )?;
    let limit = asked
        .limit
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| *limit > 0);
    let query = LabelSeriesQuery::new(range, matchers, kind.states(), asked.step)?
        .by(asked.group_by, limit.unwrap_or(usize::MAX));
    let LabelSeriesAnswer {
        first,
        step_ns,
        series,
    } = asking.queries().label_series(&query, asking.cancel)?;
    // The step that begins at the end has a point if it has time.
    let steps = range.length_ns() / step_ns;
    let has_last =
        (series.iter()).any(|series| series.sums.iter().skip(steps as usize).any(|sum| *sum > 0));
    let points_max = if has_last { usize::MAX } else { steps as usize };
    let message_of = |series: LabelSeries| {
        let of_type = has_type_label.then(|| (PROFILE_TYPE_LABEL.to_owned(), kind.id()));
        let labels = of_type.into_iter().chain(series.labels);
        let points = (1..)
            .zip(&series.sums)
            .take(points_max)
            .map(|(steps, sum)| Point {
                value: *sum as f64,
                // The end of the step, as Pyroscope's points.
                timestamp: first.unix_ns().saturating_add_unsigned(step_ns * steps) / 1_000_000,
            });
        Series {
            labels: labels
                .map(|(name, value)| LabelPair { name, value })
                .collect(),
            points: points.collect(),
        }
    };
    Ok(SelectSeriesResponse {
        series: series.into_iter().map(message_of).collect(),
    })
}

fn flame_graph(profile: &Profile, nodes_max: usize) -> FlameGraph {
    let bars = flamegraph::flamebearer(profile, nodes_max);
    FlameGraph {
        total: bars.total_ns(),
        max_self: bars.most_own_ns,
        names: bars.names,
        levels: bars
            .levels
            .into_iter()
            .map(|values| Level { values })
            .collect(),
    }
}

fn diff(asked: DiffRequest, asking: &Asking<'_>) -> Result<DiffResponse, ErrorAnswer> {
    let side = |side: Option<SelectMergeStacktracesRequest>, name| {
        side.ok_or_else(|| invalid(format!("the side {name} is missing; give left and right")))
    };
    let left = side(asked.left, "left")?;
    let right = side(asked.right, "right")?;
    let nodes_max = nodes_max(left.max_nodes);
    let before = left.query()?.profile(asking)?;
    let after = right.query()?.profile(asking)?;
    let bars = flamegraph::diff_flamebearer(&before, &after, nodes_max);
    let flamegraph = FlameGraphDiff {
        total: bars.total_ns(),
        max_self: bars.most_own_ns,
        left_ticks: bars.totals_ns[0],
        right_ticks: bars.totals_ns[1],
        names: bars.names,
        levels: bars
            .levels
            .into_iter()
            .map(|values| Level { values })
            .collect(),
    };
    Ok(DiffResponse {
        flamegraph: Some(flamegraph),
    })
}

/// The limit on nodes that a query asks for; none is the default.
fn nodes_max(asked: Option<i64>) -> usize {
    let asked = asked
        .and_then(|nodes| usize::try_from(nodes).ok())
        .filter(|nodes| *nodes > 0);
    asked
        .unwrap_or(FLAMEBEARER_NODES_DEFAULT)
        .min(FLAMEBEARER_NODES_MAX)
}

fn invalid(error: String) -> ErrorAnswer {
    ErrorAnswer::new(StatusCode::BAD_REQUEST, error)
}
