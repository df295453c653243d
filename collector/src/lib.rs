//! Emberline's collector: receives what agents ship, merges it, holds it, answers questions.
//!
//! ```text
//! agent ─▶ serve::ingest ─▶ session ─▶ commit ─▶ hot, ledger ─▶ query ─▶ serve::http ─▶ reader
//!            one stream      check      log, sync,  windows and   plain    JSON, SVG,
//!                                       apply once  rows          values   text
//! ```
//!
//! Reading order: [`limits`], `clock`, `tree` (all agents' stacks in one), `store` (what stays: log and
//! tables), `hot` (what is in no table yet; `packed`: what of it is most), `ledger` (tasks' starts and stops), `session` (one life
//! of one agent), `collector` (what a message does), `commit` (how a flush becomes safe), `ingest`
//! (whether anything is taken in), `sealing`
//! (how memory becomes tables), `recovery` (how a collector starts with what stayed), `live` (what is
//! asked of running agents), `query` (what is asked and answered), [`serve`] (the protocols).
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
