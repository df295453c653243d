//! Emberline's collector: receives what agents ship, merges it, stores it, answers queries.
//!
//! ```text
//! agent ─▶ serve::ingest ─▶ ingest ─▶ commit ─▶ windows, ledger, ─▶ query ─▶ serve::http ─▶ reader
//!            one stream      check     log,      telemetry          plain     JSON, SVG,
//!                                      sync                         values    text
//! ```
//!
//! Reading order: [`limits`], `clock`, `rows` (the values that memory and store share), `tree` (all
//! agents' stacks in one), `store` (log and tables), `windows`, `ledger` and `telemetry` (what is in no
//! table yet), `session` (one life of one agent), `state` (what queries read), `ingest` (what each
//! message does), `pushed` (what foreign profilers push), `forward` (what other servers receive),
//! `commit` (how a flush becomes durable), `ingest_status` (whether ingest is blocked), `sealing` (how
//! memory becomes tables), `recovery` (how a collector restarts), `adoption` (how others continue for a
//! dead one), `follow` (how readers see the stores of all), `agent_control` (requests to running
//! agents), `significance` (change or noise), `query` (queries and answers), [`auth`] (tokens and
//! roles), `shares` (quotas and fair shares), `audit` (who did what), [`serve`] (the protocols).
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
mod limited;
pub mod serve;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;

pub use base::clock::Clock;
pub use base::heartbeat::{Heartbeat, heartbeats};
pub use base::limits::{self, Limits};
pub use base::log_limit::limit_panic_messages;
pub use front::auth;
pub use limited::{ProcessLimitError, end_first, limit_process};
pub use naming::{NOT_FOUND_CODE, SymbolSource};
pub use query::{EndedTask, EndedTasksOf, compare_ended_tasks};
pub use serve::{
    AutoAdoption, ClusterProgram, EncodedTasks, ForwardContent, ForwardError, ForwardOptions,
    ForwardTarget, SQL_CORRUPT_FILE, ScrapeTarget, ServeError, ServeOptions, Server, SqlProgram,
    report_document,
};
pub use shares::{Quota, QuotaError, QuotaSettings};
pub use state::Collector;
pub use state::adoption::{Adoption, AdoptionOptions, adopt};
pub use state::follow::{FollowError, FollowOptions};
pub use state::recovery::{DataError, StoreOptions};
pub use state::sum_cluster::{
    ClusterRequest, ClusterSum, NoClusterSum, SamplePiece, StoreSamples, SumCluster,
};
pub use store::wal::WalError;
pub use store::{self, Retention, StoreError};

#[cfg(test)]
mod tests;
