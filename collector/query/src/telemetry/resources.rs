//! Resource usage of workers, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Resource, TimeRange, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::parameters::parameter::{FLAG, Parameter, Parameters};
use crate::parameters::params::{LABEL, Params, RangeText, WORKER, known_workers};
use crate::parameters::range::{RANGE_OR_RUNS, asked_runs, parse_step_ns};
use crate::parameters::table_format::TableFormat;
use crate::table_reader::seconds_touched;
use crate::table_reader::{Cancel, TableReader};
use base::limits::{RESOURCE_POINTS_DEFAULT, RESOURCE_POINTS_MAX};
use base::sync::{lock, read};
use state::CollectorState;
use store::rows::{Names, ResourceRow};
use store::{Coverage, Plan, RowScan, TableName};

/// Default steps: the first that is not too small is used.
const STEPS_MS: [u64; 15] = [
    500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000,
    3_600_000, 7_200_000, 21_600_000, 86_400_000,
];

/// A query for resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceQuery {
    /// From the first to the last point of all spans.
    pub range: TimeRange,
    /// The overlaid spans: a run's name with its id, and its range.
    pub spans: Vec<(Option<String>, TimeRange)>,
    pub workers: Names,
    pub measures: Vec<Resource>,
    pub step_ns: u64,
    pub align: bool,
    /// `None` is JSON.
    pub format: Option<TableFormat>,
}

impl ResourceQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE_OR_RUNS,
        &[
            WORKER,
            LABEL,
            Parameter::choice(
                "measure",
                || Resource::ALL.map(Resource::name).to_vec(),
                "process_cpu",
                "Measures. Default: all.",
            )
            .repeated(),
            Parameter::span(
                "step",
                "10s",
                "At most 4,000 steps. Default: the smallest of 500 ms, 1 s, 2 s, … of which at most 1,000 fit.",
            ),
            Parameter::flag(
                "align",
                "Steps begin at the start of the range or run, to overlay runs.",
            ),
            TableFormat::PARAMETER,
        ],
    ];

    /// A query for some measures of workers; empty for all.
    pub fn of_workers(range: TimeRange, workers: Names, measures: Vec<Resource>) -> ResourceQuery {
        ResourceQuery {
            range,
            spans: vec![(None, range)],
            workers,
            measures,
            step_ns: chosen_step_ns(range.length_ns()),
            align: false,
            format: None,
        }
    }

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<ResourceQuery, QueryError> {
        let params = Params::of(pairs, ResourceQuery::PARAMETERS)?;
        let runs = asked_runs(&params, state)?;
        let spans: Vec<(Option<String>, TimeRange)> = if runs.is_empty() {
            vec![(None, RangeText::parse(&params)?.0.resolve(now)?)]
        } else {
            runs.iter().map(|run| span_of_run(run, now)).collect()
        };
        let measures = Resource::ALL.map(|resource| (resource.name(), resource));
        let longest = spans
            .iter()
            .map(|(_, range)| range.length_ns())
            .max()
            .unwrap_or(1);
        Ok(ResourceQuery {
            range: spans
                .iter()
                .map(|(_, range)| *range)
                .reduce(TimeRange::hull)
                .expect("not empty"),
            workers: known_workers(&params, state)?,
            measures: params.many_of("measure", &measures)?,
            step_ns: match params.one("step")? {
                Some(text) => parse_step_ns(text, |step_ns| longest.div_ceil(step_ns))?,
                None => chosen_step_ns(longest),
            },
            align: params.choice("align", &FLAG)?,
            format: params.choice("format", &TableFormat::CHOICES)?,
            spans,
        })
    }

    fn keeps(&self, row: &ResourceRow) -> bool {
        self.workers.keeps(&row.worker.0)
    }

    fn is_measured(&self, resource: Resource) -> bool {
        self.measures.is_empty() || self.measures.contains(&resource)
    }
}

fn span_of_run(run: &store::rows::RunRow, now: Timestamp) -> (Option<String>, TimeRange) {
    (
        Some(format!("{}@{}", run.run.name, run.id())),
        run.range(now),
    )
}

fn chosen_step_ns(length_ns: u64) -> u64 {
    let steps = STEPS_MS
        .into_iter()
        .map(|milliseconds| milliseconds * 1_000_000);
    steps
        .clone()
        .find(|step: &u64| length_ns / step < RESOURCE_POINTS_DEFAULT)
        .unwrap_or(length_ns / RESOURCE_POINTS_DEFAULT + 1)
}

/// One measure of one worker.
#[derive(Clone, PartialEq, Debug)]
pub struct ResourceSeries {
    pub worker: Arc<str>,
    /// Empty if the worker's session is no longer known.
    pub host: String,
    pub run: Option<String>,
    pub resource: Resource,
    /// Start of the step (since the Unix epoch, or the span's start), mean, maximum, minimum.
    pub points: Vec<(i64, f64, f64, f64)>,
    pub peak: f64,
}

/// Series by span, worker and measure.
#[derive(Clone, PartialEq, Debug)]
pub struct ResourceAnswer {
    pub series: Vec<ResourceSeries>,
    pub damaged: Vec<String>,
}

/// The sums of one step.
#[derive(Clone, Copy, Default)]
struct Step {
    value: f64,
    /// Number of samples; for cumulative measures, nanoseconds.
    weight: f64,
    most: f64,
    /// `None` before the first sample that counts.
    least: Option<f64>,
}

/// By span, worker, measure and step.
type Steps = BTreeMap<(usize, Arc<str>, Resource, u64), Step>;

impl Queries<'_> {
    /// Mean, maximum and minimum by step. A sample counts whole to the step that contains its time.
    pub fn resources(
        &self,
        query: &ResourceQuery,
        cancel: &Cancel,
    ) -> Result<ResourceAnswer, QueryError> {
        let mut steps = Steps::new();
        let mut damaged = Vec::new();
        for span in 0..query.spans.len() {
            damaged.extend(self.add_samples(query, span, &mut steps, cancel)?);
        }
        damaged.sort_unstable();
        damaged.dedup();
        let mut series: Vec<ResourceSeries> = Vec::new();
        let mut last = None;
        for ((span, worker, resource, at), step) in steps {
            let key = (span, worker.clone(), resource);
            if last.as_ref() != Some(&key) {
                series.push(ResourceSeries {
                    host: self.host_of(&worker),
                    worker,
                    run: query.spans[span].0.clone(),
                    resource,
                    points: Vec::new(),
                    peak: 0.0,
                });
                last = Some(key);
            }
            let line = series.last_mut().expect("one was just pushed");
            let mean = if step.weight > 0.0 {
                step.value / step.weight
            } else {
                0.0
            };
            let time = point_time(query, query.spans[span].1, at);
            line.points
                .push((time, mean, step.most, step.least.unwrap_or(0.0)));
            line.peak = line.peak.max(step.most);
        }
        Ok(ResourceAnswer { series, damaged })
    }

    /// Adds the samples of a span, from memory and tables. Returns the missing files.
    fn add_samples(
        &self,
        query: &ResourceQuery,
        span: usize,
        steps: &mut Steps,
        cancel: &Cancel,
    ) -> Result<Vec<String>, QueryError> {
        let (_, range) = query.spans[span];
        let touched = seconds_touched(range);
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            range,
            |state: &CollectorState, _| read(&state.telemetry).samples(touched.clone()),
            |_: &Coverage, seconds| Plan {
                pieces: Vec::new(),
                seconds,
            },
        );
        let mut add = |row: &Arc<ResourceRow>| {
            let is_asked = range.contains(row.sample.at) && query.keeps(row);
            if !is_asked || steps.len() > RESOURCE_POINTS_MAX {
                return;
            }
            for (resource, value) in &row.sample.values {
                if query.is_measured(*resource) {
                    let at = step_of(query, range, row.sample.at);
                    let step = steps.entry((span, row.worker.0.clone(), *resource, at));
                    step.or_default()
                        .add(*resource, *value, row.sample.period_ns);
                }
            }
        };
        view.rows.iter().for_each(&mut add);
        let worker = match &query.workers[..] {
            [worker] => Some(worker.as_str()),
            _ => None,
        };
        let span_ns = range.start().unix_ns()..range.stop().unix_ns();
        let scan = RowScan {
            columns: ["sampled_at", "sampled_at"],
            span_ns,
            worker,
        };
        stored.scan_rows(TableName::Resources, &touched, &scan, add)?;
        if steps.len() > RESOURCE_POINTS_MAX {
            return Err(QueryError::Points {
                limit: RESOURCE_POINTS_MAX,
            });
        }
        Ok(stored.damaged())
    }

    /// The host on which a worker was last seen.
    fn host_of(&self, worker: &str) -> String {
        let sessions = lock(&self.registry).of_worker(&profiler_core::WorkerId(worker.into()));
        let seen = sessions.iter().map(|cell| {
            let session = lock(&cell.state);
            (session.last_seen, session.agent.host.clone())
        });
        seen.max().map_or_else(String::new, |(_, host)| host)
    }
}

impl Step {
    #[expect(clippy::cast_precision_loss, reason = "a mean needs 53 bits")]
    fn add(&mut self, resource: Resource, value: u64, period_ns: u64) {
        let value = value as f64;
        let (value, weight, rate) = match resource.is_counted() {
            // Per nanosecond or, for bytes, per second.
            true if resource.unit() == "ns" => {
                let period = period_ns as f64;
                (value, period, value / period)
            }
            true => {
                let period = period_ns as f64 / 1e9;
                (value, period, value / period)
            }
            false => (value, 1.0, value),
        };
        // The first sample of an agent has no period before it.
        if rate.is_finite() {
            self.value += value;
            self.weight += weight;
            self.most = self.most.max(rate);
            self.least = Some(self.least.map_or(rate, |least| least.min(rate)));
        }
    }
}

/// The step that contains a time: counted from the span's start, or from the Unix epoch, so that a
/// moving range keeps its steps.
fn step_of(query: &ResourceQuery, range: TimeRange, at: Timestamp) -> u64 {
    let origin = origin(query, range);
    at.since_ns(origin) / query.step_ns
}

fn origin(query: &ResourceQuery, range: TimeRange) -> Timestamp {
    if query.align {
        range.start()
    } else {
        Timestamp::from_unix_ns(0).min(range.start())
    }
}

fn point_time(query: &ResourceQuery, range: TimeRange, step: u64) -> i64 {
    let since = i64::try_from(step.saturating_mul(query.step_ns)).unwrap_or(i64::MAX);
    if query.align {
        since
    } else {
        origin(query, range).shifted(since).unix_ns()
    }
}

/// The unit in which a measure is displayed.
pub fn displayed_unit(resource: Resource) -> &'static str {
    match resource {
        Resource::ProcessCpu | Resource::HostCpu => "cores",
        counted if counted.is_counted() && counted.unit() == "ns" => "ratio",
        counted if counted.is_counted() => "bytes/s",
        other => other.unit(),
    }
}
