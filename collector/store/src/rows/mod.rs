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

pub use agent::{AgentInfo, SessionRecord};
pub use disconnect::{Disconnect, DisconnectReason};
pub use flush::{CheckedFlush, FlushFacts};
pub use names::Names;
pub use phase::{EXECUTE, OF_SEVERAL, inside_ns, outside_execute};
pub use run::{RunKey, RunRow};
pub use second::Second;
pub use select::{
    ByStart, LongestTasks, NewestTasks, Selection, TaskFilter, TaskOrder, counts_in, overlaps,
};
pub use task::{LostTask, TaskRow};
pub use telemetry::{ExpectedRow, ResourceRow, TelemetryBatch, TransferRow};
pub use window::StoredWindow;
