//! Errors of queries: what is wrong, and what is allowed instead.

use base::refusal::{Reason, Refusal};
use flamegraph::SelectorError;
use profiler_core::Timestamp;
use profiler_core::limits::{INTERVAL_MAX, INTERVAL_MIN, bounded};

use crate::parameters::label_matchers::MatcherError;
use crate::parameters::time::format_time;

/// Longest echo of an input, in bytes.
const ECHO_BYTES_MAX: usize = 200;

/// A query that cannot be answered.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    #[error("unknown parameter {name:?}; allowed: {}", allowed.join(", "))]
    UnknownParameter {
        name: String,
        allowed: Vec<&'static str>,
    },
    #[error("the parameter {name} was given {count} times; at most {limit} is allowed")]
    TooMany {
        name: &'static str,
        count: usize,
        limit: usize,
    },
    #[error("invalid {name}={value:?}; allowed: {}", allowed.join(", "))]
    Choice {
        name: &'static str,
        value: String,
        allowed: Vec<&'static str>,
    },
    #[error("invalid {name}={value:?}; allowed: {}", allowed.join("; "))]
    Form {
        name: &'static str,
        value: String,
        allowed: Vec<&'static str>,
    },
    #[error("{name}: {error}; allowed: a name or label, crate:NAME, re:PATTERN, file:PATTERN")]
    Pattern {
        name: &'static str,
        error: SelectorError,
    },
    #[error(
        "the parameter {name} has {count} patterns; at most {limit} are allowed: join them as re:one|two"
    )]
    TooManyPatterns {
        name: &'static str,
        count: usize,
        limit: usize,
    },
    #[error(
        "format={format} has no inverted trees, because its readers invert by themselves; omit invert, \
         or use format=json, columns, svg, collapsed, speedscope or nested"
    )]
    InvertedFormat { format: &'static str },

    #[error(
        "format={format} has rows and no tree to invert; omit invert, or use format=json, columns, svg, \
         collapsed, speedscope or nested"
    )]
    InvertedTable { format: &'static str },
    #[error(
        "{name}={value:?} is out of range: times are from {} to {}",
        format_time(Timestamp::from_unix_ns(i64::MIN)),
        format_time(Timestamp::from_unix_ns(i64::MAX))
    )]
    Time { name: &'static str, value: String },
    #[error("{name}={value:?} is not a number from 1 to {limit}")]
    Limit {
        name: &'static str,
        value: String,
        limit: usize,
    },
    #[error("the range is empty: from={from} and to={to} are both {}", format_time(*at))]
    Empty {
        from: String,
        to: String,
        at: Timestamp,
    },
    #[error(
        "the range is reversed: from={} is after to={}",
        with_instant(from, *from_at),
        with_instant(to, *to_at)
    )]
    Reversed {
        from: String,
        to: String,
        from_at: Timestamp,
        to_at: Timestamp,
    },
    #[error(
        "step={step} would make {steps} steps; at most {limit} are allowed: take a larger step"
    )]
    Steps {
        step: String,
        steps: u64,
        limit: u64,
    },
    #[error(
        "step={step} would be summed from {periods} periods of {period_s} s; at most {limit} are allowed: take a \
         step of whole minutes, hours or days, or a shorter range"
    )]
    StepPeriods {
        step: String,
        period_s: u32,
        periods: u64,
        limit: u64,
    },
    #[error("after needs the order of ids; omit sort=attention")]
    AfterByAttention,
    #[error("run already sets the range; omit from and to")]
    RunAndRange,
    #[error("the side before: {0}")]
    Before(Box<QueryError>),
    #[error(
        "the answer would have more than {limit} points: ask for fewer measures or workers, or take \
         a larger step"
    )]
    Points { limit: usize },
    #[error(
        "the range has more than {limit} seconds with samples, the most by second: ask for a shorter range"
    )]
    Seconds { limit: usize },
    #[error(
        "single seconds of this range are no longer retained: ask for a newer range, or omit group=second"
    )]
    SecondsExpired,
    #[error(
        "the times at which runs of this range start and stop are no longer retained: ask for a newer range, or omit \
         group=run"
    )]
    RunsExpired,
    #[error(
        "thread and group cannot be combined, except group=second; use worker, task or phase instead of \
         group"
    )]
    ThreadAndGroup,
    #[error("format=collapsed has no lines; use by=function, or format=json or format=svg")]
    CollapsedByLine,
    #[error(
        "the answer would take more than {limit} bytes of memory: ask for a shorter range, or for one task"
    )]
    Memory { limit: usize },
    #[error(
        "the histograms would have more than {limit} buckets: ask for fewer tasks or a shorter range, or \
         take a larger step"
    )]
    Buckets { limit: usize },
    #[error(
        "the answer would have more than {limit} sums: ask for a shorter range, fewer workers or fewer \
         tasks"
    )]
    Groups { limit: usize },
    #[error("the reader disconnected")]
    Cancelled,
    #[error("the query is long and has no turn of long queries yet")]
    AllowanceUsed,
    #[error(
        "{rows} rows of the store refer to unknown stacks: run `emberline store verify` on its directory"
    )]
    UnknownNodes { rows: u64 },
    #[error("invalid body: {reason}; expected a JSON object with some of: {}",
        allowed.join(", "))]
    Body {
        reason: String,
        allowed: Vec<&'static str>,
    },
    #[error("interval_ms is {value}; it must be from {} to {}", INTERVAL_MIN.as_millis(),
        INTERVAL_MAX.as_millis())]
    Interval { value: f64 },
    #[error("nothing to set; give some of: {}", allowed.join(", "))]
    NothingToSet { allowed: Vec<&'static str> },
    #[error("states is empty; give some of: {}, or switch sampling off with enabled",
        allowed.join(", "))]
    NoStates { allowed: Vec<&'static str> },
    #[error("no worker has a label {key:?}{}", suggestion(nearest))]
    UnknownLabel { key: String, nearest: Vec<String> },
    #[error(
        "invalid matchers {text:?}: {error}; allowed: {{label=\"value\"}} with =, !=, =~ or !~, \
         separated by commas"
    )]
    Matchers { text: String, error: MatcherError },
    #[error(
        "the matchers select {count} of the task names; at most {limit} are allowed, or all: match fewer"
    )]
    MatchedTasks { count: usize, limit: usize },
    #[error(
        "grouping by {} would make {count} groups; at most {limit} are allowed: match fewer workers, group by \
         fewer labels, or take a shorter range",
        labels.join(", ")
    )]
    LabelGroups {
        labels: Vec<String>,
        count: usize,
        limit: usize,
    },
    #[error(
        "{series} series of {steps} steps are too many: at most {limit} sums are allowed; take a larger step, or ask \
         for fewer series"
    )]
    SeriesSteps {
        series: usize,
        steps: u64,
        limit: u64,
    },
    #[error("the step is {seconds} s; it must be at least 1 s")]
    StepSeconds { seconds: f64 },
    #[error("no {kind} is called {name:?}{}", suggestion(nearest))]
    UnknownName {
        kind: &'static str,
        name: String,
        nearest: Vec<String>,
    },
    #[error("{count} workers are shown as {name:?}; give the id of one: {}", workers.join(", "))]
    AmbiguousWorker {
        name: String,
        count: usize,
        /// Ids of the first ones.
        workers: Vec<String>,
    },
}

/// A time as it was given, and the instant that it means unless it was given so.
fn with_instant(text: &str, at: Timestamp) -> String {
    let instant = format_time(at);
    if text == instant {
        instant
    } else {
        format!("{text} ({instant})")
    }
}

impl Refusal for QueryError {
    fn reason(&self) -> Reason {
        match self {
            QueryError::Before(error) => error.reason(),
            QueryError::UnknownName { .. } => Reason::UnknownName,
            // The query is valid, and the answer failed.
            QueryError::Cancelled | QueryError::AllowanceUsed | QueryError::UnknownNodes { .. } => {
                Reason::Internal
            }
            _ => Reason::Invalid,
        }
    }

    fn allowed(&self) -> Option<&[&str]> {
        match self {
            QueryError::UnknownParameter { allowed, .. }
            | QueryError::Choice { allowed, .. }
            | QueryError::Form { allowed, .. }
            | QueryError::Body { allowed, .. }
            | QueryError::NothingToSet { allowed }
            | QueryError::NoStates { allowed } => Some(allowed),
            QueryError::Before(error) => error.allowed(),
            _ => None,
        }
    }

    fn nearest(&self) -> Option<&[String]> {
        match self {
            QueryError::UnknownName { nearest, .. } | QueryError::UnknownLabel { nearest, .. } => {
                Some(nearest)
            }
            QueryError::AmbiguousWorker { workers, .. } => Some(workers),
            QueryError::Before(error) => error.nearest(),
            _ => None,
        }
    }
}

/// An input, short enough to repeat.
pub(crate) fn echo(text: &str) -> String {
    bounded(text, ECHO_BYTES_MAX).into_owned()
}

fn suggestion(nearest: &[String]) -> String {
    let quoted: Vec<String> = nearest.iter().map(|name| format!("{name:?}")).collect();
    if quoted.is_empty() {
        return String::new();
    }
    format!("; the nearest are: {}", quoted.join(", "))
}
