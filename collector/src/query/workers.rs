//! Workers, and whether any of their data was lost unaccounted for.

use std::sync::Arc;

use profiler_core::wire::{AppliedSettings, v1};
use profiler_core::{Epoch, Ticks, TimeRange, Timestamp, WorkerId};

use super::QueryError;
use super::params::{Params, known_workers};
use super::tasks::limit_to;
use crate::ingest_status::IngestBlocked;
use crate::limits::{SESSIONS_MAX, WORKERS_DEFAULT};
use crate::rows::AgentInfo;
use crate::session::{Presence, Session, SessionCell};
use crate::state::CollectorState;
use crate::sync::{lock, read};

/// The requested workers; empty for all.
pub(crate) fn parse_workers(
    pairs: &[(String, String)],
    state: &CollectorState,
) -> Result<Vec<String>, QueryError> {
    known_workers(&Params::new(pairs, &["worker"])?, state)
}

/// One life of one worker.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct EpochView {
    pub(crate) worker: WorkerId,
    pub(crate) epoch: Epoch,
    pub(crate) agent: AgentInfo,
    pub(crate) presence: Presence,
    pub(crate) first_seen: Timestamp,
    pub(crate) last_seen: Timestamp,
    pub(crate) clock: Option<v1::Clock>,
    pub(crate) ticks: Ticks,
    pub(crate) acked_seq: u64,
    pub(crate) stored_ns: u64,
    pub(crate) account: v1::LossAccount,
    pub(crate) rejected: u64,
    pub(crate) last_rejection: Option<String>,
    pub(crate) running: usize,
    /// The settings that the agent reported last.
    pub(crate) applied: Option<AppliedSettings>,
    /// Whether the agent has yet to apply the desired settings.
    pub(crate) settings_pending: bool,
}

impl EpochView {
    /// Accepted weight that is neither stored nor counted as lost. 0 is balanced; negative if more
    /// is stored than was accepted.
    pub(crate) fn unaccounted_ns(&self) -> i128 {
        let account = &self.account;
        let lost = [account.lost_rejected_ns, account.lost_by_collector_ns, account.lost_queue_ns];
        let lost: i128 = lost.into_iter().map(i128::from).sum();
        i128::from(account.accepted_ns) - i128::from(self.stored_ns) - lost
    }
}

/// A question for workers. The default is for the first ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkersQuery {
    /// Empty for all.
    workers: Vec<String>,
    /// Only workers whose ids come later.
    after: Option<String>,
    /// Most workers.
    limit: usize,
}

impl Default for WorkersQuery {
    fn default() -> Self {
        WorkersQuery { workers: Vec::new(), after: None, limit: WORKERS_DEFAULT }
    }
}

impl WorkersQuery {
    #[cfg(test)]
    pub(crate) fn of(workers: &[&str]) -> WorkersQuery {
        let workers = workers.iter().map(|&worker| worker.to_owned()).collect();
        WorkersQuery { workers, ..WorkersQuery::default() }
    }

    pub(crate) fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
    ) -> Result<WorkersQuery, QueryError> {
        let params = Params::new(pairs, &["worker", "after", "limit"])?;
        let limit = params.one("limit")?;
        Ok(WorkersQuery {
            workers: known_workers(&params, state)?,
            after: params.one("after")?.map(str::to_owned),
            limit: limit.map_or(Ok(WORKERS_DEFAULT), |text| limit_to(Some(text), SESSIONS_MAX))?,
        })
    }

    /// Keeps the asked sessions, which are in the order of workers. Returns the number of further
    /// workers.
    fn keep(&self, sessions: &mut Vec<Arc<SessionCell>>) -> u64 {
        if let Some(after) = &self.after {
            sessions.retain(|cell| *cell.worker.0 > **after);
        }
        let lives = sessions.chunk_by(|a, b| a.worker == b.worker).map(<[_]>::len);
        let kept = lives.clone().take(self.limit).sum();
        let omitted = lives.skip(self.limit).count();
        sessions.truncate(kept);
        omitted as u64
    }
}

/// All workers, and the collector's totals.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FleetView {
    /// By worker, then oldest first.
    pub(crate) epochs: Vec<EpochView>,
    /// Number of workers after them.
    pub(crate) omitted: u64,
    /// Why ingest is blocked, if it is.
    pub(crate) blocked: Option<IngestBlocked>,
    pub(crate) data: Option<TimeRange>,
    pub(crate) windows: usize,
    pub(crate) window_bytes: usize,
    pub(crate) files: usize,
    pub(crate) file_bytes: u64,
    pub(crate) nodes: u32,
    pub(crate) task_rows: usize,
    pub(crate) task_rows_aggregated: u64,
}

impl CollectorState {
    /// The sessions of some workers. Locks each session for a copy of its facts.
    pub(crate) fn fleet(&self, query: &WorkersQuery, blocked: Option<IngestBlocked>) -> FleetView {
        let mut sessions = self.sessions(&query.workers);
        let omitted = query.keep(&mut sessions);
        let mut epochs: Vec<EpochView> =
            sessions.iter().map(|cell| self.view(cell, &lock(&cell.state))).collect();
        // Epochs are random numbers: clients take the last one as the newest.
        epochs.sort_by(|a, b| (&a.worker, a.first_seen).cmp(&(&b.worker, b.first_seen)));
        let ledger = read(&self.ledger);
        for epoch in &mut epochs {
            epoch.running = ledger.running_count(&epoch.worker, epoch.epoch);
        }
        let task_rows = ledger.row_count();
        let task_rows_aggregated = ledger.aggregated();
        drop(ledger);
        let nodes = read(&self.tree).node_count();
        let windows = read(&self.windows);
        let files = &windows.manifest().files;
        FleetView {
            epochs,
            omitted,
            blocked,
            data: windows.data(),
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
        EpochView {
            worker: cell.worker.clone(),
            epoch: cell.epoch,
            agent: session.agent.clone(),
            presence: session.presence,
            first_seen: session.first_seen,
            last_seen: session.last_seen,
            clock: session.clock,
            ticks: session.ticks,
            acked_seq: session.acked_seq,
            stored_ns: session.stored_ns,
            account: session.account.unwrap_or_default(),
            rejected: session.rejected,
            last_rejection: session.last_rejection.clone(),
            running: 0,
            settings_pending: !lock(&self.desired)
                .of(&cell.worker)
                .is_applied_by(session.applied.as_ref()),
            applied: session.applied.clone(),
        }
    }
}
