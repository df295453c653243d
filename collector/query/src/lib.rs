//! Queries and their answers, as plain values. Parameters are parsed here, because relative times
//! depend on the collector's clock; `docs/openapi.json` lists them.
//!
//! A query clones what it needs under short locks (shared pointers to windows and rows; the tree
//! in pieces) and computes without locks, so that no query delays an agent.
//!
//! Reading order: `asking` (the first step and the others), then the file of one query, such as `profiles::profile` or
//! `tasks`: its parameters, and its method of [`Queries`]. They share `parameters` (ranges, filters, labels), `table_reader`
//! (snapshot, plan and scan), `profiles::weight_sums` and `by_name` (sums), and `error`.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

mod asking;
mod by_name;
mod cluster_sums;
mod error;
mod parameters;
mod profiles;
pub mod significance;
mod table_reader;
mod tasks;
mod telemetry;
mod thread_dump;
mod worker_names;
mod workers;

use std::ops::Deref;

use state::CollectorState;

pub use asking::Asking;
pub use error::QueryError;
pub use parameters::label_matchers::LabelMatchers;
pub use parameters::label_scope::LabelScope;
pub use parameters::parameter::{Kind, Parameter, Parameters};
pub use parameters::params::{Params, RangeText};
pub use parameters::settings::parse_change;
pub use parameters::symbol_upload::{SymbolUpload, no_parameters};
pub use parameters::table_format::TableFormat;
pub use parameters::time::format_time;
pub use profiles::cycles::Sampling;
pub use profiles::group_by::GroupBy;
pub use profiles::label_series::{LabelSeries, LabelSeriesAnswer, LabelSeriesQuery};
pub use profiles::profile::{By, Format, ProfileAnswer, ProfileQuery, Provenance};
pub use profiles::thread_profile::ThreadFilter;
pub use profiles::thread_time::{ThreadTime, ThreadTimeAnswer, ThreadTimePart, ThreadTimeQuery};
pub use profiles::timeline::{Series, TimelineAnswer, TimelineQuery};
pub use profiles::totals::CollectorTotals;
pub use profiles::unnamed::Unnamed;
pub use table_reader::{Allowance, Cancel};
pub use tasks::duration_counts::DurationInterval;
pub use tasks::duration_counts::{BucketCounts, DurationCounts};
pub use tasks::progress::{ProgressAnswer, ProgressQuery, ProgressRow};
pub use tasks::sampled_tasks::SampledTask;
pub use tasks::task_body::task_body;
pub use tasks::task_columns::TaskColumns;
pub use tasks::task_comparison::{EndedTask, EndedTasksOf, compare_ended_tasks};
pub use tasks::task_comparison::{TaskComparison, TaskComparisonQuery};
pub use tasks::task_durations::{DurationsFormat, TaskDurations, TaskDurationsQuery};
pub use tasks::{SummaryRow, TaskAnswer, TaskFormat, TaskQuery, TaskSummary};
pub use telemetry::events::{EventFilter, RECENT_EVENTS_PARAMETERS, recent_events};
pub use telemetry::resources::{ResourceAnswer, ResourceQuery, ResourceSeries, displayed_unit};
pub use telemetry::runs::{RUNS_PARAMETERS, parse_run_start, parse_run_stop, parse_runs};
pub use telemetry::transfers::{TransferAnswer, TransferFilter, TransferQuery, TransferSummary};
pub use thread_dump::{ThreadDumpQuery, ThreadGroup, WorkerThreadDump};
pub use worker_names::WorkerNamesQuery;
pub use workers::{
    EpochView, FleetView, SETTINGS_PARAMETERS, ServiceView, WorkersQuery, fleet, parse_workers,
};

/// Answers queries from the state of a collector.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a>(pub &'a CollectorState);

impl Deref for Queries<'_> {
    type Target = CollectorState;

    fn deref(&self) -> &CollectorState {
        self.0
    }
}
