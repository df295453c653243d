//! Queries and their answers, as plain values. Parameters are parsed here, because relative times
//! depend on the collector's clock; `docs/API.md` lists them.
//!
//! A query clones what it needs under short locks (shared pointers to windows and rows; the tree
//! in pieces) and computes without locks, so that no query delays an agent.

mod by_name;
mod cluster_sums;
mod duration_counts;
mod ended_each;
mod ended_tasks;
mod error;
mod events;
mod group;
mod label_matchers;
mod label_scope;
mod label_series;
mod labels;
mod params;
mod phases;
mod profile;
mod progress;
mod range;
mod resources;
mod runs;
mod settings;
mod suggest;
mod symbol_upload;
mod table_format;
mod table_reader;
mod task_columns;
mod task_comparison;
mod task_durations;
mod tasks;
mod thread_dump;
mod thread_profile;
mod thread_time;
mod time;
mod timeline;
mod totals;
mod transfers;
mod unnamed;
mod view;
mod weight_sums;
mod worker_names;
mod workers;

#[cfg(test)]
pub(crate) use duration_counts::DurationInterval;
pub(crate) use duration_counts::{BucketCounts, DurationCounts};
pub(crate) use error::QueryError;
pub(crate) use events::{EventFilter, recent_events};
#[cfg(test)]
pub(crate) use group::GroupBy;
pub(crate) use label_matchers::LabelMatchers;
pub(crate) use label_scope::LabelScope;
pub(crate) use label_series::{LabelSeries, LabelSeriesAnswer, LabelSeriesQuery};
pub(crate) use params::{Params, RangeText};
pub(crate) use profile::{By, Format, ProfileAnswer, ProfileQuery, Provenance, Sampling};
pub(crate) use progress::{ProgressAnswer, ProgressQuery, ProgressRow};
pub(crate) use resources::{ResourceAnswer, ResourceQuery, ResourceSeries, displayed_unit};
pub(crate) use runs::{parse_run_start, parse_run_stop, parse_runs};
pub(crate) use settings::parse_change;
pub(crate) use symbol_upload::{SymbolUpload, no_parameters};
pub(crate) use table_format::TableFormat;
pub(crate) use table_reader::{Allowance, Cancel};
pub(crate) use task_columns::TaskColumns;
pub use task_comparison::{EndedTask, EndedTasksOf, compare_ended_tasks};
pub(crate) use task_comparison::{TaskComparison, TaskComparisonQuery};
pub(crate) use task_durations::{DurationsFormat, TaskDurations, TaskDurationsQuery};
pub(crate) use tasks::{SummaryRow, TaskAnswer, TaskFormat, TaskQuery, TaskSummary};
pub(crate) use thread_dump::{ThreadDumpQuery, ThreadGroup, WorkerThreadDump};
#[cfg(test)]
pub(crate) use thread_profile::ThreadFilter;
pub(crate) use thread_time::{ThreadTime, ThreadTimeAnswer, ThreadTimePart, ThreadTimeQuery};
pub(crate) use time::format_time;
pub(crate) use timeline::{Series, TimelineAnswer, TimelineQuery};
pub(crate) use totals::CollectorTotals;
pub(crate) use transfers::{TransferAnswer, TransferFilter, TransferQuery, TransferSummary};
pub(crate) use unnamed::Unnamed;
pub(crate) use worker_names::WorkerNamesQuery;
pub(crate) use workers::{EpochView, FleetView, WorkersQuery, parse_workers};
