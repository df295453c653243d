//! Questions and their answers, as plain values. Parameters are parsed here, for relative times are
//! by the collector's clock; what they may be is in `docs/API.md`.
//!
//! An answer takes what it needs under short locks (shared pointers to windows and rows; the tree in
//! pieces) and computes without any, so that no question makes an agent wait.

mod error;
mod nearest;
mod params;
mod profile;
mod settings;
mod stacks;
mod stored;
mod sums;
mod tasks;
mod time;
mod timeline;
mod workers;

pub(crate) use error::QueryError;
pub(crate) use profile::{By, Facts, Format, ProfileAnswer, ProfileQuery, Sampling};
pub(crate) use settings::parse_change;
pub(crate) use stacks::{StackGroup, StackQuery, WorkerStacks};
pub(crate) use stored::Cancel;
pub(crate) use tasks::{SummaryRow, TaskAnswer, TaskQuery, TaskSummary};
pub(crate) use time::format_time;
pub(crate) use timeline::{Series, TimelineAnswer, TimelineQuery};
pub(crate) use workers::{EpochView, FleetView, parse_workers};
