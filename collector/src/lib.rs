//! Emberline's collector: receives what agents ship, merges it, holds it, answers questions.
//!
//! ```text
//! agent ─▶ serve::ingest ─▶ session ─▶ hot, ledger ─▶ query ─▶ serve::http ─▶ reader
//!            one stream     check,      windows and    plain    JSON, SVG,
//!                           apply once  rows           values   text
//! ```
//!
//! Reading order: [`limits`], `clock`, `tree` (all agents' stacks in one), `hot` (the last minutes),
//! [`ledger`] (tasks' starts and stops), `session` (one life of one agent), `collector` (the four
//! together: what a message does), `live` (what is asked of running agents), `query` (what is asked and answered), [`serve`] (the protocols).
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

mod clock;
mod collector;
mod hot;
pub mod ledger;
pub mod limits;
mod live;
mod query;
pub mod serve;
mod session;
mod store;
mod sync;
#[cfg(test)]
mod testing;
mod tree;

pub use clock::Clock;
pub use collector::Collector;
pub use limits::Limits;
pub use serve::{ServeError, ServeOptions, Server};
