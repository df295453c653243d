//! A fleet of simulated agents that speaks the real protocol to a real collector, keeps its own
//! record of what it sent and what was acked, and holds the collector's answers to it.
//!
//! Reading order: [`program`] (what is sampled), [`pattern`] (what a worker does in a second),
//! `dictionary`, [`agent`] (one agent, without a socket), `stream` and [`fleet`] (many, with
//! sockets), [`record`] (what must be true), [`process`] (the collector), `api` and [`audit`] (what
//! it answers, against the record), [`capture`] (what a real fleet did, to be said again), [`crash`]
//! (all of it, under `kill -9`).
//!
//! Everything is drawn from a seed: it gives the same programs, the same seconds and the same
//! instants again. When threads and processes are scheduled is the system's.

pub mod agent;
pub mod audit;
pub mod capture;
pub mod crash;
pub mod fleet;
pub mod pattern;
pub mod process;
pub mod program;
pub mod random;
pub mod record;

mod api;
/// The client, generated from `emberline.proto` by `cargo xtask proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
mod client;
mod codec;
mod dictionary;
mod stream;

pub use api::{Api, Timed};
