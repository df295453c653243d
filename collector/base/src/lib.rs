//! The ground of every part of the collector: its limits, its clock, locks with an order, heartbeats for the watchdog,
//! rate limits for log lines, and limits of processes. Knows no profile, no store and no socket.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

pub mod clock;
pub mod disk;
pub mod heartbeat;
pub mod id_set;
pub mod limited;
pub mod limits;
pub mod log_limit;
pub mod priority;
pub mod refusal;
pub mod sync;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
