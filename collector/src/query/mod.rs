//! Questions and their answers, as plain values. Parameters are parsed here, because relative times
//! depend on the collector's clock; `docs/API.md` lists them.
//!
//! A question clones what it needs under short locks (shared pointers to windows and rows; the tree
//! in pieces) and computes without locks, so that no question delays an agent.

mod ended_tasks;
mod error;
mod events;
mod group;
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
mod table_reader;
mod task_columns;
mod tasks;
mod thread_dump;
mod thread_time;
mod time;
mod timeline;
mod transfers;
mod weight_sums;
mod workers;

pub(crate) use error::QueryError;
pub(crate) use events::{EventFilter, recent_events};
#[cfg(test)]
pub(crate) use group::GroupBy;
pub(crate) use profile::{By, Format, ProfileAnswer, ProfileQuery, Provenance, Sampling};
pub(crate) use progress::{ProgressAnswer, ProgressQuery, ProgressRow};
pub(crate) use resources::{ResourceAnswer, ResourceQuery, ResourceSeries, displayed_unit};
pub(crate) use runs::{parse_run_start, parse_run_stop, parse_runs};
pub(crate) use settings::parse_change;
pub(crate) use table_reader::Cancel;
pub(crate) use task_columns::TaskColumns;
pub(crate) use tasks::{SummaryRow, TaskAnswer, TaskQuery, TaskSummary};
pub(crate) use thread_dump::{ThreadDumpQuery, ThreadGroup, WorkerThreadDump};
pub(crate) use thread_time::{ThreadTime, ThreadTimeAnswer, ThreadTimePart, ThreadTimeQuery};
pub(crate) use time::format_time;
pub(crate) use timeline::{Series, TimelineAnswer, TimelineQuery};
pub(crate) use transfers::{TransferAnswer, TransferQuery, TransferSummary};
pub(crate) use workers::{EpochView, FleetView, parse_workers};
