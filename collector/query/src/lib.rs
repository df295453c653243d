//! Queries and their answers, as plain values. Parameters are parsed here, because relative times
//! depend on the collector's clock; `docs/API.md` lists them.
//!
//! A query clones what it needs under short locks (shared pointers to windows and rows; the tree
//! in pieces) and computes without locks, so that no query delays an agent.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

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
pub mod significance;
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

use std::ops::Deref;

use state::CollectorState;

pub use duration_counts::DurationInterval;
pub use duration_counts::{BucketCounts, DurationCounts};
pub use error::QueryError;
pub use events::{EventFilter, recent_events};
pub use group::GroupBy;
pub use label_matchers::LabelMatchers;
pub use label_scope::LabelScope;
pub use label_series::{LabelSeries, LabelSeriesAnswer, LabelSeriesQuery};
pub use params::{Params, RangeText};
pub use profile::{By, Format, ProfileAnswer, ProfileQuery, Provenance, Sampling};
pub use progress::{ProgressAnswer, ProgressQuery, ProgressRow};
pub use resources::{ResourceAnswer, ResourceQuery, ResourceSeries, displayed_unit};
pub use runs::{parse_run_start, parse_run_stop, parse_runs};
pub use settings::parse_change;
pub use symbol_upload::{SymbolUpload, no_parameters};
pub use table_format::TableFormat;
pub use table_reader::{Allowance, Cancel};
pub use task_columns::TaskColumns;
pub use task_comparison::{EndedTask, EndedTasksOf, compare_ended_tasks};
pub use task_comparison::{TaskComparison, TaskComparisonQuery};
pub use task_durations::{DurationsFormat, TaskDurations, TaskDurationsQuery};
pub use tasks::{SummaryRow, TaskAnswer, TaskFormat, TaskQuery, TaskSummary};
pub use thread_dump::{ThreadDumpQuery, ThreadGroup, WorkerThreadDump};
pub use thread_profile::ThreadFilter;
pub use thread_time::{ThreadTime, ThreadTimeAnswer, ThreadTimePart, ThreadTimeQuery};
pub use time::format_time;
pub use timeline::{Series, TimelineAnswer, TimelineQuery};
pub use totals::CollectorTotals;
pub use transfers::{TransferAnswer, TransferFilter, TransferQuery, TransferSummary};
pub use unnamed::Unnamed;
pub use worker_names::WorkerNamesQuery;
pub use workers::{EpochView, FleetView, WorkersQuery, fleet, parse_workers};

/// Answers queries from the state of a collector.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a>(pub &'a CollectorState);

impl Deref for Queries<'_> {
    type Target = CollectorState;

    fn deref(&self) -> &CollectorState {
        self.0
    }
}
