//! The values that memory, log and tables share: plain rows, without locks or I/O.
//!
//! All times are by the collector's clock, except where a field says otherwise.

mod agent;
mod disconnect;
mod flush;
mod names;
mod phase;
mod run;
mod second;
mod select;
mod task;
mod telemetry;
mod window;

pub(crate) use agent::{AgentInfo, SessionRecord};
pub(crate) use disconnect::{Disconnect, DisconnectReason};
pub(crate) use flush::{CheckedFlush, FlushFacts};
pub(crate) use names::Names;
pub(crate) use phase::{EXECUTE, OF_SEVERAL, inside_ns, outside_execute};
pub(crate) use run::{RunKey, RunRow};
pub(crate) use second::Second;
pub(crate) use select::{
    ByStart, LongestTasks, NewestTasks, Selection, TaskFilter, TaskOrder, counts_in, overlaps,
};
pub(crate) use task::{LostTask, TaskRow};
pub(crate) use telemetry::{ExpectedRow, ResourceRow, TelemetryBatch, TransferRow};
pub(crate) use window::StoredWindow;
