//! The data of a collector and its changes: sessions, windows, tasks, the log of acknowledged flushes, and their
//! sealing into tables. Knows no query and no socket.
//!
//! Reading order: `tree` (all agents' stacks in one), `windows`, `ledger` and `telemetry` (not in tables yet),
//! `session` (one life of one agent), `state` (what queries read), `ingest` (the effect of each message), `pushed`
//! (profiles that foreign profilers push), `forward` (data for other servers), `commit` (how a flush becomes durable),
//! `ingest_status` (whether ingest is blocked), `sealing` (how memory becomes tables), `recovery` (how a collector
//! restarts), `adoption` (how others continue for a dead one), `follow` (how readers see the stores of all),
//! `agent_control` (requests to running agents).

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
pub mod task_counters;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod tree;
pub mod windows;

pub use collector::{AdoptionCounts, Collector, QuotaView, Settings};
pub use state::CollectorState;
