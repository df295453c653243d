//! A fleet of simulated agents that speaks the real protocol to a real collector, keeps its own
//! record of sent and acknowledged flushes, and compares the collector's answers with it.
//!
//! Reading order: [`program`] (the sampled program), [`pattern`] (a worker's samples of a second),
//! `dictionary`, [`agent`] (one agent, without a socket), `stream` and [`fleet`] (many, with
//! sockets), [`record`] (the truth), [`process`] (the collector), `api` and [`audit`] (its answers,
//! compared with the record), [`capture`] (recorded cycles of a real fleet), [`collisions`] and
//! [`stranger`] (names and first message of a hostile one), [`crash`] (all of it, under `kill -9`).
//!
//! [`chaos`] has real workers in place of the fleet, and several collectors with stores of a server ([`s3`])
//! behind networks ([`proxy`]) that fail.
//!
//! Everything is drawn from a seed: the same seed gives the same programs, seconds and instants.
//! Scheduling of threads and processes is the system's.

pub mod agent;
pub mod audit;
pub mod ballista;
pub mod capture;
pub mod chaos;
pub mod collisions;
pub mod crash;
pub mod fleet;
pub mod pattern;
pub mod process;
pub mod program;
pub mod proxy;
pub mod pypi;
pub mod random;
pub mod record;
pub mod s3;
pub mod service;
pub mod stranger;

mod api;
/// The client, generated from `emberline.proto` by `cargo xtask proto`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
mod client;
mod codec;
mod dictionary;
mod stream;

pub use api::{Api, Timed};
