//! Questions and their answers, as plain values. Parameters are parsed here, for relative times are
//! by the collector's clock; what they may be is in `docs/API.md`.
//!
//! An answer takes what it needs under short locks (shared pointers to windows and rows; the tree in
//! pieces) and computes without any, so that no question makes an agent wait.

mod budget;
mod ended;
mod error;
mod events;
mod group;
mod labels;
mod nearest;
mod params;
mod phases;
mod profile;
mod progress;
mod range;
mod resources;
mod runs;
mod settings;
mod stacks;
mod stored;
mod sums;
mod task_columns;
mod tasks;
mod time;
mod timeline;
mod transfers;
mod workers;

pub(crate) use budget::{BudgetAnswer, BudgetPart, BudgetQuery, ThreadTime};
pub(crate) use error::QueryError;
pub(crate) use events::{EventFilter, recent_events};
#[cfg(test)]
pub(crate) use group::GroupBy;
pub(crate) use phases::{Level, Phases, Place};
pub(crate) use profile::{By, Facts, Format, ProfileAnswer, ProfileQuery, Sampling};
pub(crate) use progress::{ProgressAnswer, ProgressQuery, ProgressRow};
pub(crate) use resources::{ResourceAnswer, ResourceQuery, ResourceSeries, told_unit};
pub(crate) use runs::{parse_run_start, parse_run_stop, parse_runs};
pub(crate) use settings::parse_change;
pub(crate) use stacks::{StackGroup, StackQuery, WorkerStacks};
pub(crate) use stored::Cancel;
pub(crate) use task_columns::TaskColumns;
pub(crate) use tasks::{SummaryRow, TaskAnswer, TaskQuery, TaskSummary};
pub(crate) use time::format_time;
pub(crate) use timeline::{Series, TimelineAnswer, TimelineQuery};
pub(crate) use transfers::{TransferAnswer, TransferQuery, TransferSummary};
pub(crate) use workers::{EpochView, FleetView, parse_workers};
