//! Queries of readers: at most some run at once, each on a thread that may block, and each ends when its
//! reader goes away.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query as Parameters};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use profiler_core::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::admission::ComputePermit;
use super::error::ErrorAnswer;
use super::identity::Identity;
use crate::collector::Collector;
use crate::limits::{CONTROL_REQUESTS_MAX, QUERIES_MAX, QUERIES_WAITING_MAX, QUERY_WAIT_MAX};
use crate::query::Cancel;
use crate::shares::{Account, SlotPool, Turns};

/// The parameters of a query, and the identity that asks.
pub(super) struct Pairs {
    pub(super) pairs: Result<Parameters<Vec<(String, String)>>, QueryRejection>,
    pub(super) account: Arc<Account>,
}

impl FromRequestParts<Reader> for Pairs {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, reader: &Reader) -> Result<Pairs, Infallible> {
        let pairs = Parameters::from_request_parts(parts, reader).await;
        let account = parts.extensions.get::<Arc<Account>>().cloned();
        // Only tests call the routes without the middleware that adds it.
        let unknown = || {
            let identity = Identity::Address(Ipv4Addr::LOCALHOST.into());
            reader.collector.accounts.of(&identity, None)
        };
        Ok(Pairs { pairs, account: account.unwrap_or_else(unknown) })
    }
}

/// A query as it came, and what it needs to be answered.
pub(super) struct Asking<'a> {
    pub(super) collector: &'a Collector,
    pub(super) pairs: &'a [(String, String)],
    pub(super) now: Timestamp,
    pub(super) cancel: &'a Cancel,
}

/// Cancels a query when its reader goes away: the future that holds this is dropped then.
struct CancelOnDrop(Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// What handlers share.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) collector: Arc<Collector>,
    /// One turn for each query that runs.
    pub(super) query_turns: Arc<Turns>,
    /// One permit for each query that runs or waits.
    pub(super) queue_slots: Arc<Semaphore>,
    /// One permit for each query to running agents.
    pub(super) agent_queries: Arc<Semaphore>,
    /// Held while a run is started or stopped.
    pub(super) marking: Arc<tokio::sync::Mutex<()>>,
}

impl Reader {
    pub(super) fn new(collector: Arc<Collector>) -> Reader {
        Reader {
            collector,
            query_turns: Turns::new(QUERIES_MAX),
            queue_slots: Arc::new(Semaphore::new(SlotPool::capacity(
                QUERIES_MAX + QUERIES_WAITING_MAX,
            ))),
            agent_queries: Arc::new(Semaphore::new(SlotPool::capacity(CONTROL_REQUESTS_MAX))),
            marking: Arc::default(),
        }
    }

    /// Answers a query away from the threads that serve agents: at most [`QUERIES_MAX`] at once, so
    /// that readers together can use neither all CPUs nor all memory.
    pub(super) async fn answer(
        &self,
        pairs: Pairs,
        answer: impl FnOnce(&Asking<'_>) -> Result<Response, ErrorAnswer> + Send + 'static,
    ) -> Result<Response, ErrorAnswer> {
        let account = pairs.account.clone();
        let pairs = pairs_of(pairs)?;
        let _slot = self.queue_slots.try_acquire().map_err(|_| ErrorAnswer::busy())?;
        let turn = timeout(QUERY_WAIT_MAX, self.query_turns.take(&account)).await;
        let turn = turn.map_err(|_| ErrorAnswer::busy())?;
        let collector = self.collector.clone();
        let cancel = Arc::new(Cancel::default());
        let _cancel_on_drop = CancelOnDrop(cancel.clone());
        let work = move || {
            let now = collector.state.clock.now();
            let asking = Asking { collector: &collector, pairs: &pairs, now, cancel: &cancel };
            let mut response = answer(&asking)?;
            // Held until the work is done, even if the reader goes away before, and then until there
            // is room for the answer.
            response.extensions_mut().insert(ComputePermit::new(turn));
            Ok(response)
        };
        blocking(work).await
    }
}

/// Runs what may take a while away from the threads that serve agents. Parsing belongs to it, because
/// an unknown name is compared with all known ones.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorAnswer> + Send + 'static,
) -> Result<T, ErrorAnswer> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorAnswer::internal(&error)))
}

pub(super) fn pairs_of(pairs: Pairs) -> Result<Vec<(String, String)>, ErrorAnswer> {
    let pairs = pairs.pairs.map(|Parameters(pairs)| pairs);
    pairs.map_err(|error| ErrorAnswer::new(StatusCode::BAD_REQUEST, error.body_text()))
}
