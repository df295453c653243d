//! Queries: a kind of profile, matchers of labels, and a range.

use profiler_core::{Profile, StateSet, TimeRange, Timestamp};

use super::invalid;
use super::messages::{
    ProfileType, SelectMergeSpanProfileRequest, SelectMergeStacktracesRequest, StackTraceSelector,
};
use front::error::ErrorAnswer;
use query::{Asking, LabelMatchers, LabelScope, ProfileQuery, format_time};

/// The label that selects kinds of profiles.
pub(super) const PROFILE_TYPE_LABEL: &str = "__profile_type__";

/// Values of `format` in requests.
const FORMAT_FLAMEGRAPH: i32 = 1;

/// A kind of profile: the time of threads in some states.
#[derive(Debug)]
pub(super) struct ProfileKind {
    name: &'static str,
    sample_type: &'static str,
    /// All, if it is no name of a state.
    states: &'static str,
}

/// The kinds, with names as of Pyroscope's own profiles where it has such.
pub(super) const PROFILE_KINDS: [ProfileKind; 4] = [
    ProfileKind {
        name: "process_cpu",
        sample_type: "cpu",
        states: "cpu",
    },
    ProfileKind {
        name: "wall",
        sample_type: "wall",
        states: "all",
    },
    ProfileKind {
        name: "wait",
        sample_type: "wait",
        states: "wait",
    },
    ProfileKind {
        name: "runnable",
        sample_type: "runnable",
        states: "runnable",
    },
];

impl ProfileKind {
    /// The kind with that id.
    fn parse(id: &str) -> Result<&'static ProfileKind, ErrorAnswer> {
        let found = PROFILE_KINDS.iter().find(|kind| kind.id() == id);
        found.ok_or_else(|| {
            let ids: Vec<String> = PROFILE_KINDS.iter().map(ProfileKind::id).collect();
            let known: Vec<&str> = ids.iter().map(String::as_str).collect();
            let id: String = id.chars().take(200).collect();
            let error = format!(
                "no profile type has the id {id:?}; allowed: {}",
                known.join(", ")
            );
            invalid(error).with_allowed(&known)
        })
    }

    pub(super) fn id(&self) -> String {
        let ProfileKind {
            name, sample_type, ..
        } = self;
        format!("{name}:{sample_type}:nanoseconds:{sample_type}:nanoseconds")
    }

    pub(super) fn sample_type(&self) -> &'static str {
        self.sample_type
    }

    pub(super) fn states(&self) -> StateSet {
        StateSet::from_name(self.states).unwrap_or(StateSet::ALL)
    }

    pub(super) fn message(&self) -> ProfileType {
        ProfileType {
            id: self.id(),
            name: self.name.to_owned(),
            sample_type: self.sample_type.to_owned(),
            sample_unit: "nanoseconds".to_owned(),
            period_type: self.sample_type.to_owned(),
            period_unit: "nanoseconds".to_owned(),
        }
    }
}

/// A query for samples, in the terms of Grafana's data source.
#[derive(Clone, Debug)]
pub(super) struct GrafanaQuery {
    pub(super) kind: &'static ProfileKind,
    pub(super) matchers: LabelMatchers,
    pub(super) range: TimeRange,
}

impl GrafanaQuery {
    /// Times are in milliseconds since the Unix epoch.
    pub(super) fn new(
        profile_type: &str,
        matchers: &str,
        start_ms: i64,
        end_ms: i64,
    ) -> Result<GrafanaQuery, ErrorAnswer> {
        let time = |ms: i64| Timestamp::from_unix_ns(ms.saturating_mul(1_000_000));
        let range = TimeRange::new(time(start_ms), time(end_ms)).ok_or_else(|| {
            let [start, end] = [start_ms, end_ms].map(|ms| format_time(time(ms)));
            invalid(format!(
                "the range is empty: it starts at {start} and ends at {end}"
            ))
        })?;
        Ok(GrafanaQuery::of(profile_type, matchers, range)?.with_end())
    }

    /// The query whose range contains its end, as ranges of Pyroscope do: a profile that begins there counts.
    pub(super) fn with_end(self) -> GrafanaQuery {
        let with_end = TimeRange::new(self.range.start(), self.range.stop().shifted(1_000_000));
        GrafanaQuery {
            range: with_end.unwrap_or(self.range),
            ..self
        }
    }

    pub(super) fn of(
        profile_type: &str,
        matchers: &str,
        range: TimeRange,
    ) -> Result<GrafanaQuery, ErrorAnswer> {
        let kind = ProfileKind::parse(profile_type)?;
        let mut matchers = LabelMatchers::parse(matchers)?;
        let of_type = matchers.split_off(PROFILE_TYPE_LABEL);
        if !of_type.accept(PROFILE_TYPE_LABEL, &kind.id()) {
            matchers = LabelMatchers::nothing();
        }
        Ok(GrafanaQuery {
            kind,
            matchers,
            range,
        })
    }

    /// The profile; an empty one if the matchers select nothing.
    pub(super) fn profile(&self, asking: &Asking<'_>) -> Result<Profile, ErrorAnswer> {
        let state = &asking.collector.state;
        let scope = LabelScope::new(state, self.matchers.clone());
        let Some(filter) = scope.filter(state, self.kind.states())? else {
            return Ok(Profile::default());
        };
        let query = ProfileQuery::of(self.range, filter);
        Ok(asking.queries().profile(&query, asking.cancel)?.profile)
    }
}

impl SelectMergeStacktracesRequest {
    pub(super) fn query(&self) -> Result<GrafanaQuery, ErrorAnswer> {
        check_call_site(self.stack_trace_selector.as_ref())?;
        check_format(self.format)?;
        if !self.profile_id_selector.is_empty() {
            let error = "profile_id_selector is not supported: profiles are merged and have no ids";
            return Err(invalid(error.to_owned()));
        }
        GrafanaQuery::new(
            &self.profile_type_id,
            &self.label_selector,
            self.start,
            self.end,
        )
    }
}

impl SelectMergeSpanProfileRequest {
    pub(super) fn query(&self) -> Result<GrafanaQuery, ErrorAnswer> {
        check_format(self.format)?;
        GrafanaQuery::new(
            &self.profile_type_id,
            &self.label_selector,
            self.start,
            self.end,
        )
    }
}

/// Rejects formats other than the default and flame graphs.
fn check_format(format: i32) -> Result<(), ErrorAnswer> {
    match format {
        0 | FORMAT_FLAMEGRAPH => Ok(()),
        other => {
            let error =
                format!("format {other} is not supported; allowed: PROFILE_FORMAT_FLAMEGRAPH");
            Err(invalid(error))
        }
    }
}

/// Rejects selectors of call sites.
pub(super) fn check_call_site(selector: Option<&StackTraceSelector>) -> Result<(), ErrorAnswer> {
    if selector.is_some_and(|selector| !selector.call_site.is_empty()) {
        let error = "call_site is not supported; zoom in Emberline's own page";
        return Err(invalid(error.to_owned()));
    }
    Ok(())
}
