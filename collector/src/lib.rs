//! Emberline's collector: receives what agents ship, merges it, stores it, answers questions.
//!
//! ```text
//! agent ─▶ serve::ingest ─▶ ingest ─▶ commit ─▶ windows, ledger, ─▶ query ─▶ serve::http ─▶ reader
//!            one stream      check     log,      telemetry          plain     JSON, SVG,
//!                                      sync                         values    text
//! ```
//!
//! Reading order: [`limits`], `clock`, `rows` (the values that memory and store share), `tree` (all
//! agents' stacks in one), `store` (log and tables), `windows`, `ledger` and `telemetry` (what is in no
//! table yet), `session` (one life of one agent), `state` (what questions read), `ingest` (what each
//! message does), `commit` (how a flush becomes durable), `ingest_status` (whether ingest is blocked),
//! `sealing` (how memory becomes tables), `recovery` (how a collector restarts), `agent_control`
//! (requests to running agents), `query` (questions and answers), [`serve`] (the protocols).
//!
//! ```no_run
//! # async fn run() -> Result<(), emberline_collector::ServeError> {
//! use emberline_collector::{Collector, ServeOptions};
//!
//! let options = ServeOptions { listen: "127.0.0.1:0".parse().expect("an address"), ..Default::default() };
//! let server = Collector::bind(options).await?;
//! println!("listening on http://{}", server.local_addr());
//! server.serve(std::future::pending()).await
//! # }
//! ```

mod agent_control;
mod clock;
mod collector;
mod commit;
mod events;
mod id_set;
mod ingest;
mod ingest_status;
mod late_hours;
mod ledger;
pub mod limits;
mod packed;
mod query;
mod recovery;
mod rows;
mod sealing;
pub mod serve;
mod session;
mod shapes;
mod state;
pub mod store;
mod sync;
mod telemetry;
#[cfg(test)]
mod testing;
mod tree;
mod windows;

pub use clock::Clock;
pub use collector::Collector;
pub use limits::Limits;
pub use recovery::DataError;
pub use serve::{ServeError, ServeOptions, Server};
pub use store::wal::WalError;
pub use store::{Retention, StoreError};
