//! Emberline's collector: receives what agents ship, merges it, stores it, answers queries.
//!
//! ```text
//! agent ─▶ serve::ingest ─▶ state::ingest ─▶ state::commit ─▶ windows, ledger, ─▶ query ─▶ serve::http ─▶ reader
//!            one stream          check          log, sync       telemetry         plain     JSON, SVG,
//!                                                                                 values    text
//! ```
//!
//! This crate has the protocols ([`serve`]) and the log of who did what (`audit`). Below it, from the ground up:
//! `emberline-collector-base`, `emberline-naming`, `emberline-shares`, `emberline-store`, `emberline-front`,
//! `emberline-state`, `emberline-query` and `emberline-bridge`; each has its map at its head.
//!
//! ```no_run
//! # async fn run() -> Result<(), emberline_collector::ServeError> {
//! use emberline_collector::{ServeOptions, Server};
//!
//! let options = ServeOptions { listen: "127.0.0.1:0".parse().expect("an address"), ..Default::default() };
//! let server = Server::bind(options).await?;
//! println!("listening on {}", server.url());
//! server.serve(std::future::pending()).await
//! # }
//! ```

mod audit;
pub mod serve;

pub use base::clock::Clock;
pub use base::disk::free_bytes;
pub use base::heartbeat::{Heartbeat, heartbeats};
pub use base::limited::{ProcessLimitError, end_first, limit_process};
pub use base::limits::{self, Limits};
pub use base::log_limit::limit_panic_messages;
pub use bridge::forward::{
    EncodedTasks, ForwardContent, ForwardError, ForwardOptions, ForwardTarget,
};
pub use bridge::push::ScrapeTarget;
pub use front::auth;
pub use naming::{MadeCode, NOT_FOUND_CODE, SymbolSource};
pub use query::{EndedTask, EndedTasksOf, compare_ended_tasks};
pub use serve::{
    AutoAdoption, ClusterProgram, ServeError, ServeOptions, Server, SqlProgram, report_document,
};
pub use shares::{Quota, QuotaError, QuotaSettings};
pub use state::Collector;
pub use state::adoption::{Adoption, AdoptionOptions, adopt};
pub use state::follow::{FollowError, FollowOptions};
pub use state::recovery::{DataError, StoreOptions};
pub use store::wal::WalError;
pub use store::{self, Retention, StoreError, SumCluster};

#[cfg(test)]
mod tests;
