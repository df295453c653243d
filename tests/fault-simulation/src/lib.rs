//! Agents and collectors under one seeded scheduler: their real code, stepped without threads and
//! sockets, on a network, disks and clocks that fail. The same seed gives the same run.
//!
//! Reading order: [`scenario`] (what a seed draws), `network` (connections), `worker` (agents, and the
//! truth about what they sampled), [`collector`] (a collector on a disk that fails), `world` (the scheduler), [`faults`] (what goes wrong, counted), `audit`
//! (the collectors' answers compared with the truth), [`seeds`] (many runs).
//! `docs/design/simulation.md` says which parts are simulated.

pub mod collector;
pub mod faults;
pub mod scenario;
pub mod seeds;

mod audit;
mod network;
mod worker;
mod world;

pub use world::{Summary, run};

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The problem found, and its time.
    pub reason: String,
    /// The last events before it.
    pub trace: Vec<String>,
}
