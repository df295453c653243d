//! The data of a collector and its changes: sessions, windows, tasks, the log of acknowledged flushes, and their
//! sealing into tables. Knows no query and no socket.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

pub mod adoption;
pub mod agent_control;
mod collector;
pub mod commit;
pub mod events;
pub mod follow;
pub mod forward;
pub mod ingest;
pub mod ingest_status;
pub mod ledger;
pub mod pushed;
pub mod recovery;
pub mod sealing;
pub mod session;
pub mod shapes;
mod shared_tables;
mod state;
pub mod sum_cluster;
pub mod task_counters;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod tree;
pub mod windows;

pub use collector::{AdoptionCounts, Collector, QuotaView, Settings};
pub use state::CollectorState;
