//! Queries of readers: at most some run at once, each on a thread that may block, and each ends when its
//! reader goes away. Long ones have turns of their own.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Query as Parameters};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::long_query::{ShortAllowance, ShortMax};
use super::sql::Sql;
use base::limits::{
    CONTROL_REQUESTS_MAX, LONG_QUERIES_MAX, LONG_QUERY_WAIT_MAX, QUERIES_MAX, QUERIES_WAITING_MAX,
    QUERY_WAIT_MAX, TASK_ROWS_DEFAULT,
};
use front::admission::ComputePermit;
use front::error::ErrorAnswer;
use query::{Allowance, Asking, Cancel};
use shares::identity::Identity;
use shares::{Account, SlotPool, Turns};
use state::Collector;

/// Most queries that run or wait: as many as have slots, and as many again that were taken back and are about to end.
pub(super) const QUEUE_SLOTS: usize = 2 * SlotPool::capacity(QUERIES_MAX + QUERIES_WAITING_MAX);

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
        Ok(Pairs {
            pairs,
            account: account.unwrap_or_else(|| {
                let identity = Identity::Address(Ipv4Addr::LOCALHOST.into());
                reader.collector.accounts.of(&identity, None)
            }),
        })
    }
}

/// Computes an answer.
type Answer = dyn Fn(&Asking<'_>) -> Result<Response, ErrorAnswer> + Send + Sync;

/// A query that is about to be computed.
struct Attempt {
    pairs: Arc<Vec<(String, String)>>,
    answer: Arc<Answer>,
    permit: ComputePermit,
    /// `None` for a long query.
    allowance: Option<Arc<ShortAllowance>>,
}

/// Cancels a query when its reader goes away: the future that holds this is dropped then.
struct CancelOnDrop(Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// State that handlers share.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) collector: Arc<Collector>,
    /// One turn for each short query that runs.
    pub(super) query_turns: Arc<Turns>,
    /// One turn for each long query that runs.
    pub(super) long_query_turns: Arc<Turns>,
    pub(super) short_max: ShortMax,
    /// One turn, for lists of more than [`TASK_ROWS_DEFAULT`] rows.
    pub(super) long_list_turns: Arc<Turns>,
    /// One permit for each query that runs or waits.
    pub(super) queue_slots: Arc<Semaphore>,
    /// One permit for each query to running agents.
    pub(super) agent_queries: Arc<Semaphore>,
    /// Held while a run is started or stopped.
    pub(super) marking: Arc<tokio::sync::Mutex<()>>,
    pub(super) sql: Sql,
}

impl Reader {
    pub(super) fn new(collector: Arc<Collector>) -> Reader {
        Reader {
            collector,
            query_turns: Turns::new(QUERIES_MAX),
            long_query_turns: Turns::new(LONG_QUERIES_MAX),
            short_max: ShortMax::DEFAULT,
            long_list_turns: Turns::new(1),
            queue_slots: Arc::new(Semaphore::new(QUEUE_SLOTS)),
            agent_queries: Arc::new(Semaphore::new(SlotPool::capacity(CONTROL_REQUESTS_MAX))),
            marking: Arc::default(),
            sql: Sql::new(None),
        }
    }

    /// Answers a query away from the threads that serve agents: at most [`QUERIES_MAX`] short ones and
    /// [`LONG_QUERIES_MAX`] long ones at once, so that readers together can use neither all CPUs nor all memory. A
    /// query that turns out to be long may be computed again from its beginning.
    pub(super) fn answer(
        &self,
        pairs: Pairs,
        answer: impl Fn(&Asking<'_>) -> Result<Response, ErrorAnswer> + Send + Sync + 'static,
    ) -> impl Future<Output = Result<Response, ErrorAnswer>> {
        // Boxed, so that what follows is compiled once instead of for each route.
        self.answer_boxed(pairs, Arc::new(answer))
    }

    async fn answer_boxed(
        &self,
        pairs: Pairs,
        answer: Arc<Answer>,
    ) -> Result<Response, ErrorAnswer> {
        let account = pairs.account.clone();
        let pairs = Arc::new(pairs_of(pairs)?);
        let _slot = self
            .queue_slots
            .try_acquire()
            .map_err(|_| ErrorAnswer::busy())?;
        let permit = self.permit(&account, &pairs).await?;
        let allowance = Arc::new(ShortAllowance::new(
            self.short_max,
            self.long_query_turns.clone(),
            account.clone(),
            permit.clone(),
        ));
        let first = Attempt {
            pairs: pairs.clone(),
            answer: answer.clone(),
            permit,
            allowance: Some(allowance.clone()),
        };
        match self.attempt(first).await {
            Err(_) if allowance.is_used() => {}
            answered => return answered,
        }
        // With it goes the turn of the first attempt.
        drop(allowance);
        let wait = LONG_QUERY_WAIT_MAX;
        let permit = self
            .permit_of(&self.long_query_turns, &account, &pairs, wait)
            .await?;
        self.attempt(Attempt {
            pairs,
            answer,
            permit,
            allowance: None,
        })
        .await
    }

    /// Computes an answer.
    async fn attempt(&self, attempt: Attempt) -> Result<Response, ErrorAnswer> {
        let Attempt {
            pairs,
            answer,
            permit,
            allowance,
        } = attempt;
        let collector = self.collector.clone();
        let cancel = Arc::new(Cancel::new(
            allowance.clone().map(|own| own as Arc<dyn Allowance>),
        ));
        let _cancel_on_drop = CancelOnDrop(cancel.clone());
        let work = move || {
            if let Some(allowance) = allowance {
                allowance.begin();
            }
            let now = collector.state.clock.now();
            let asking = Asking {
                collector: &collector,
                pairs: &pairs,
                now,
                cancel: &cancel,
            };
            let mut response = answer(&asking)?;
            // Held until the work is done, even if the reader goes away before, and then until there
            // is room for the answer.
            response.extensions_mut().insert(permit);
            Ok(response)
        };
        blocking(work).await
    }

    /// Waits until this query may run, for at most [`QUERY_WAIT_MAX`].
    async fn permit(
        &self,
        account: &Account,
        pairs: &[(String, String)],
    ) -> Result<ComputePermit, ErrorAnswer> {
        self.permit_of(&self.query_turns, account, pairs, QUERY_WAIT_MAX)
            .await
    }

    async fn permit_of(
        &self,
        turns: &Arc<Turns>,
        account: &Account,
        pairs: &[(String, String)],
        wait: Duration,
    ) -> Result<ComputePermit, ErrorAnswer> {
        let permit = async {
            let mut long_list_turn = None;
            if asks_for_long_list(pairs) {
                long_list_turn = Some(self.long_list_turns.take(account).await);
            }
            ComputePermit::new(turns.take(account).await, long_list_turn)
        };
        timeout(wait, permit).await.map_err(|_| ErrorAnswer::busy())
    }

    /// Runs one step of a request that is not answered as a whole by [`Reader::answer`], with the same
    /// limit on what runs at once.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        account: &Account,
        work: impl FnOnce() -> Result<T, ErrorAnswer> + Send + 'static,
    ) -> Result<T, ErrorAnswer> {
        let permit = self.permit(account, &[]).await?;
        let work = move || {
            // Held until the work is done, even if the reader goes away before.
            let _permit = permit;
            work()
        };
        blocking(work).await
    }
}

/// Whether a list may take much memory.
fn asks_for_long_list(pairs: &[(String, String)]) -> bool {
    let mut limits = pairs.iter().filter(|(name, _)| name == "limit");
    limits.any(|(_, limit)| {
        limit
            .parse()
            .is_ok_and(|rows: usize| rows > TASK_ROWS_DEFAULT)
    })
}

/// Runs what may take a while away from the threads that serve agents. Parsing belongs to it, because
/// an unknown name is compared with all known ones.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ErrorAnswer> + Send + 'static,
) -> Result<T, ErrorAnswer> {
    // Boxed, so that tokio's task is compiled once for each type of result.
    let work: Box<dyn FnOnce() -> Result<T, ErrorAnswer> + Send> = Box::new(work);
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ErrorAnswer::internal(&error)))
}

pub(super) fn pairs_of(pairs: Pairs) -> Result<Vec<(String, String)>, ErrorAnswer> {
    let pairs = pairs.pairs.map(|Parameters(pairs)| pairs);
    pairs.map_err(|error| ErrorAnswer::new(StatusCode::BAD_REQUEST, error.body_text()))
}
