//! Workers, and whether any of their data was lost unaccounted for.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::WorkerCounts;
use profiler_core::wire::{AppliedSettings, v1};
use profiler_core::{Epoch, Ticks, TimeRange, Timestamp, WorkerId};

use super::QueryError;
use crate::Queries;
use crate::parameters::label_scope::SERVICE_LABEL;
use crate::parameters::parameter::{Parameter, Parameters, names};
use crate::parameters::params::{LABEL, Params, WORKER, known_workers};
use crate::tasks::limit_to;
use base::limits::{SERVICES_SHOWN_MAX, SESSIONS_MAX, SILENT_AFTER, WORKERS_DEFAULT, nanoseconds};
use base::sync::{lock, read};
use state::Collector;
use state::CollectorState;
use state::ingest_status::IngestBlocked;
use state::session::{Presence, Session, SessionCell};
use store::rows::{AgentInfo, DisconnectReason, Names};

/// The mode of a sampler that takes all stacks.
const FULL_MODE: &str = "full";

// The page (`ui/src/pages/warnings.ts`) and `emberline doctor` warn from the same values on.

/// Before as many ticks are due, shares of them say nothing.
const TICKS_MIN: u64 = 500;

/// The same for skipped ticks: an agent that reads its symbols skips some in its first seconds.
const THROTTLED_TICKS_MIN: u64 = 3_000;

/// Larger clock errors may put a task in the wrong second.
const CLOCK_ERROR_NS: u64 = 250_000_000;

/// An agent that skips more than one of so many samples is degraded.
const THROTTLED_SHARE: u64 = 4;

/// Parameters of [`parse_workers`].
pub const SETTINGS_PARAMETERS: Parameters = &[&[WORKER]];

/// The requested workers; empty for all.
pub fn parse_workers(
    pairs: &[(String, String)],
    state: &CollectorState,
) -> Result<Names, QueryError> {
    known_workers(&Params::of(pairs, SETTINGS_PARAMETERS)?, state)
}

/// One life of one worker.
#[derive(Clone, PartialEq, Debug)]
pub struct EpochView {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub agent: Arc<AgentInfo>,
    pub presence: Presence,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub clock: Option<v1::Clock>,
    /// How far its last window was ahead of the collector's clock, if that is more than times are rounded.
    pub data_ahead_ns: u64,
    pub ticks: Ticks,
    pub acked_seq: u64,
    pub stored_ns: u64,
    pub account: v1::LossAccount,
    pub rejected: u64,
    pub last_rejection: Option<String>,
    pub running: usize,
    /// The settings that the agent reported last.
    pub applied: Option<AppliedSettings>,
    /// Whether the agent has yet to apply the desired settings.
    pub settings_pending: bool,
}

impl EpochView {
    /// Accepted weight that is neither stored nor counted as lost. 0 is balanced; negative if more
    /// is stored than was accepted.
    pub fn unaccounted_ns(&self) -> i128 {
        let account = &self.account;
        let lost: i128 = [
            account.lost_rejected_ns,
            account.lost_by_collector_ns,
            account.lost_queue_ns,
        ]
        .into_iter()
        .map(i128::from)
        .sum();
        i128::from(account.accepted_ns) - i128::from(self.stored_ns) - lost
    }
}

/// The order of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerOrder {
    /// By id.
    Id,
    /// Those that need a person's attention first, then by id.
    Attention,
}

/// A query for workers. The default is for the first ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkersQuery {
    /// Empty for all.
    workers: Names,
    /// Only workers whose ids come later.
    after: Option<String>,
    order: WorkerOrder,
    /// Most workers.
    limit: usize,
}

impl Default for WorkersQuery {
    fn default() -> Self {
        WorkersQuery {
            workers: Names::default(),
            after: None,
            order: WorkerOrder::Id,
            limit: WORKERS_DEFAULT,
        }
    }
}

impl WorkersQuery {
    const ORDERS: [(&str, WorkerOrder); 2] = [
        ("id", WorkerOrder::Id),
        ("attention", WorkerOrder::Attention),
    ];

    pub const PARAMETERS: Parameters = &[&[
        WORKER,
        LABEL,
        Parameter::text(
            "after",
            "w-1",
            "Only workers whose ids come later: the next page.",
        ),
        Parameter::choice(
            "sort",
            || names(&WorkersQuery::ORDERS),
            "attention",
            "Order of the workers.",
        )
        .default("id"),
        Parameter::integer(
            "limit",
            1..=SESSIONS_MAX,
            Some(WORKERS_DEFAULT),
            "100",
            "Most workers.",
        ),
    ]];

    #[cfg(any(test, feature = "testing"))]
    pub fn of(workers: &[&str]) -> WorkersQuery {
        let workers = workers.iter().map(|&worker| worker.to_owned()).collect();
        WorkersQuery {
            workers,
            ..WorkersQuery::default()
        }
    }

    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
    ) -> Result<WorkersQuery, QueryError> {
        let params = Params::of(pairs, WorkersQuery::PARAMETERS)?;
        let limit = params.one("limit")?;
        let after = params.one("after")?.map(str::to_owned);
        let order = params.choice("sort", &WorkersQuery::ORDERS)?;
        if after.is_some() && order != WorkerOrder::Id {
            return Err(QueryError::AfterByAttention);
        }
        Ok(WorkersQuery {
            workers: known_workers(&params, state)?,
            after,
            order,
            limit: limit.map_or(Ok(WORKERS_DEFAULT), |text| {
                limit_to(Some(text), SESSIONS_MAX)
            })?,
        })
    }

    /// The workers to list, of sessions in the order of workers, and what is true of all.
    fn select(&self, sessions: &[Arc<SessionCell>], now: Timestamp) -> Selected {
        let mut selected = Selected::default();
        let mut standings = Vec::new();
        for lives in sessions.chunk_by(|a, b| a.worker == b.worker) {
            let standing = Standing::of(lives, now);
            count(&mut selected.counts, &standing);
            count_series(&mut selected.services, &standing);
            let is_later = self
                .after
                .as_ref()
                .is_none_or(|after| *lives[0].worker.0 > **after);
            if is_later {
                standings.push((standing.attention, lives));
            }
        }
        if self.order == WorkerOrder::Attention {
            // Stable, so by id among equals.
            standings.sort_by_key(|(attention, _)| Reverse(*attention));
        }
        selected.omitted = standings.len().saturating_sub(self.limit) as u64;
        standings.truncate(self.limit);
        selected.workers = standings
            .into_iter()
            .map(|(_, lives)| lives.to_vec())
            .collect();
        selected
    }
}

/// Selection of a [`WorkersQuery`].
#[derive(Default)]
struct Selected {
    /// The lives of each.
    workers: Vec<Vec<Arc<SessionCell>>>,
    /// Number of workers after them.
    omitted: u64,
    counts: WorkerCounts,
    services: BTreeMap<String, ServiceView>,
}

/// The series of a service, which have no agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceView {
    pub name: String,
    pub series: u64,
    /// Series that were pushed lately.
    pub connected: u64,
    pub last_seen: Timestamp,
}

impl ServiceView {
    fn new(name: &str) -> ServiceView {
        ServiceView {
            name: name.to_owned(),
            series: 0,
            connected: 0,
            last_seen: Timestamp::from_unix_ns(i64::MIN),
        }
    }
}

/// Counts a series in its service.
fn count_series(services: &mut BTreeMap<String, ServiceView>, series: &Standing) {
    let Some(name) = &series.service else { return };
    if !services.contains_key(name) {
        services.insert(name.clone(), ServiceView::new(name));
    }
    if let Some(service) = services.get_mut(name) {
        service.series += 1;
        service.connected += u64::from(series.presence == Presence::Connected);
        service.last_seen = service.last_seen.max(series.last_seen);
    }
}

/// The services with most series first.
fn by_series(services: BTreeMap<String, ServiceView>) -> Vec<ServiceView> {
    let mut services: Vec<ServiceView> = services.into_values().collect();
    // Stable, so by name among equals.
    services.sort_by_key(|service| Reverse(service.series));
    services.truncate(SERVICES_SHOWN_MAX);
    services
}

/// Counts a worker.
fn count(counts: &mut WorkerCounts, standing: &Standing) {
    let count = match standing.presence {
        Presence::Connected => &mut counts.connected,
        Presence::Away(_) => &mut counts.away,
        Presence::Gone(_) => &mut counts.gone,
    };
    *count += 1;
    counts.need_attention += u64::from(standing.attention > Attention::Nothing);
}

/// How much a worker needs a person's attention.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Attention {
    Nothing,
    /// It is sampled less than it should be, or its clock is not known well.
    Degraded,
    /// Some of its data was lost or rejected, or an earlier life ended badly.
    Lost,
    /// It ended badly, or is silent.
    Ended,
}

/// The state of a worker.
struct Standing {
    /// Of its newest life.
    presence: Presence,
    attention: Attention,
    last_seen: Timestamp,
    /// The service of a series; `None` for agents and imports.
    service: Option<String>,
}

impl Standing {
    /// Of a worker with these lives, at least one.
    fn of(lives: &[Arc<SessionCell>], now: Timestamp) -> Standing {
        let mut newest = Timestamp::from_unix_ns(i64::MIN);
        let mut standing = Standing {
            presence: Presence::Connected,
            attention: Attention::Nothing,
            last_seen: newest,
            service: None,
        };
        let mut newest_attention = Attention::Nothing;
        for cell in lives {
            let session = lock(&cell.state);
            let attention = attention(cell, &session, now);
            if session.first_seen >= newest {
                newest = session.first_seen;
                standing.presence = session.presence;
                standing.last_seen = session.last_seen;
                standing.service = service_of(cell, &session);
                standing.attention = standing.attention.max(earlier(newest_attention));
                newest_attention = attention;
            } else {
                standing.attention = standing.attention.max(earlier(attention));
            }
        }
        standing.attention = standing.attention.max(newest_attention);
        standing
    }
}

/// The service of a pushed or scraped series.
fn service_of(cell: &SessionCell, session: &Session) -> Option<String> {
    let is_series = !cell.worker.has_agent() && !cell.worker.is_import();
    let name = session.agent.labels.get(SERVICE_LABEL);
    is_series.then(|| name.cloned().unwrap_or_default())
}

/// How much a life needs attention if the worker has a newer one.
fn earlier(attention: Attention) -> Attention {
    match attention {
        Attention::Lost | Attention::Ended => Attention::Lost,
        Attention::Nothing | Attention::Degraded => Attention::Nothing,
    }
}

/// How much a life needs attention if it is the worker's newest one.
fn attention(cell: &SessionCell, session: &Session, now: Timestamp) -> Attention {
    let ended = session.presence.disconnect();
    let is_gone = matches!(session.presence, Presence::Gone(_));
    if ended.is_some_and(|end| end.reason != DisconnectReason::Clean) {
        return Attention::Ended;
    }
    let silent_ns = now.unix_ns().saturating_sub(session.last_seen.unix_ns());
    let has_agent = cell.worker.has_agent();
    if ended.is_none() && has_agent && silent_ns > nanoseconds(SILENT_AFTER) {
        return Attention::Ended;
    }
    let account = session.account().unwrap_or_default();
    let lost = [
        account.lost_rejected_ns,
        account.lost_by_collector_ns,
        account.lost_queue_ns,
        account.lost_tasks,
        session.rejected,
    ];
    if lost.iter().any(|count| *count > 0) {
        return Attention::Lost;
    }
    if session.data_ahead_ns > 0 && !is_gone {
        return Attention::Degraded;
    }
    if is_gone || !has_agent {
        return Attention::Nothing;
    }
    let is_degraded = session.applied.as_ref().is_some_and(|applied| {
        let is_full = applied.settings.enabled && applied.mode == FULL_MODE;
        !is_full || applied.signal_blocked.is_some()
    });
    let is_off = session
        .clock
        .is_some_and(|clock| clock.error_ns > CLOCK_ERROR_NS);
    if is_degraded || takes_too_few(session.ticks) || is_off {
        return Attention::Degraded;
    }
    Attention::Nothing
}

/// Whether the share of skipped or missed samples needs attention.
fn takes_too_few(ticks: Ticks) -> bool {
    let Ticks {
        made,
        expected,
        throttled,
    } = ticks;
    let is_throttled = expected > THROTTLED_TICKS_MIN && throttled > expected / THROTTLED_SHARE;
    let misses_ticks = expected > TICKS_MIN && made.saturating_add(throttled) < expected / 2;
    is_throttled || misses_ticks
}

/// All workers, and the collector's totals.
#[derive(Clone, PartialEq, Debug)]
pub struct FleetView {
    /// By worker in the asked order, then oldest first.
    pub epochs: Vec<EpochView>,
    /// Number of workers after them.
    pub omitted: u64,
    /// All workers, listed or not.
    pub counts: WorkerCounts,
    /// The services of all workers without an agent, those with most series first.
    pub services: Vec<ServiceView>,
    /// Why ingest is blocked, if it is.
    pub blocked: Option<IngestBlocked>,
    pub data: Option<TimeRange>,
    pub windows: usize,
    pub window_bytes: usize,
    pub files: usize,
    pub file_bytes: u64,
    pub nodes: u32,
    pub task_rows: usize,
    pub task_rows_aggregated: u64,
}

/// The sessions of the asked workers, and the totals of the collector.
pub fn fleet(collector: &Collector, query: &WorkersQuery, now: Timestamp) -> FleetView {
    Queries(&collector.state).fleet(query, collector.ingest.blocked(), now)
}

impl Queries<'_> {
    /// The sessions of some workers. Locks each session for a copy of its facts.
    pub fn fleet(
        &self,
        query: &WorkersQuery,
        blocked: Option<IngestBlocked>,
        now: Timestamp,
    ) -> FleetView {
        let Selected {
            workers,
            omitted,
            counts,
            services,
        } = query.select(&self.sessions(&query.workers), now);
        let mut epochs: Vec<EpochView> = Vec::new();
        for lives in workers {
            let first = epochs.len();
            epochs.extend(lives.iter().map(|cell| self.view(cell, &lock(&cell.state))));
            // Epochs are random numbers: clients take the last one as the newest.
            epochs[first..].sort_by_key(|life| life.first_seen);
        }
        let ledger = read(&self.ledger);
        for epoch in &mut epochs {
            epoch.running = ledger.running_count(&epoch.worker, epoch.epoch);
        }
        let task_rows = ledger.row_count();
        let task_rows_aggregated = ledger.aggregated();
        drop(ledger);
        let nodes = read(&self.tree).held_count();
        let windows = read(&self.windows);
        let files = &windows.manifest().files;
        FleetView {
            epochs,
            omitted,
            counts,
            services: by_series(services),
            blocked,
            data: windows.data(self.clock.now()),
            windows: windows.count(),
            window_bytes: windows.bytes(),
            files: files.len(),
            file_bytes: files.iter().map(|file| file.bytes).sum(),
            nodes,
            task_rows,
            task_rows_aggregated,
        }
    }

    fn view(&self, cell: &SessionCell, session: &Session) -> EpochView {
        let desired = lock(&self.desired).of(&cell.worker);
        EpochView {
            worker: cell.worker.clone(),
            epoch: cell.epoch,
            agent: session.agent.clone(),
            presence: session.presence,
            first_seen: session.first_seen,
            last_seen: session.last_seen,
            // A series has the collector's times.
            clock: session.clock.filter(|_| cell.worker.has_agent()),
            data_ahead_ns: session.data_ahead_ns,
            ticks: session.ticks,
            acked_seq: session.acked_seq,
            stored_ns: session.stored_ns,
            account: session.account().unwrap_or_default(),
            rejected: session.rejected,
            last_rejection: session.last_rejection.clone(),
            running: 0,
            settings_pending: !desired.is_applied_by(session.applied.as_ref()),
            applied: session.applied.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_too_few_if_many_are_skipped_or_missed_after_the_first_seconds() {
        check_too_few(2_000, 3_000, 1_000, false);
        check_too_few(2_251, 3_001, 750, false);
        check_too_few(2_250, 3_001, 751, true);
        check_too_few(0, 500, 0, false);
        check_too_few(249, 501, 0, true);
        check_too_few(0, 501, 250, false);
    }

    fn check_too_few(made: u64, expected: u64, throttled: u64, too_few: bool) {
        let ticks = Ticks {
            made,
            expected,
            throttled,
        };
        assert_eq!(takes_too_few(ticks), too_few, "{ticks:?}");
    }
}
