//! All sessions, by worker and epoch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use profiler_core::{Epoch, WorkerId};

use super::{Presence, Session, SessionCell};
use crate::rows::AgentInfo;
use crate::sync::lock;

/// The limit on sessions is reached, and no session is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{sessions_max} agents are connected, which is this collector's limit")]
#[non_exhaustive]
pub(crate) struct NoRoom {
    pub(crate) sessions_max: usize,
}

/// The sessions, at most `sessions_max`; so also at most that many workers.
#[derive(Debug)]
pub(crate) struct Registry {
    sessions: BTreeMap<(WorkerId, Epoch), Arc<SessionCell>>,
    sessions_max: usize,
    /// Of the labels of all sessions. Their other facts are limited by the number of sessions.
    label_bytes: usize,
    label_bytes_max: usize,
}

impl Registry {
    pub(crate) fn new(sessions_max: usize, label_bytes_max: usize) -> Registry {
        Registry { sessions: BTreeMap::new(), sessions_max, label_bytes: 0, label_bytes_max }
    }

    /// Sets an agent's description in one of the sessions. Drops its labels if those of all
    /// sessions would exceed the limit.
    pub(crate) fn set_agent(&mut self, session: &mut Session, mut agent: AgentInfo) {
        self.label_bytes -= session.agent.label_bytes();
        if self.label_bytes + agent.label_bytes() > self.label_bytes_max {
            agent.drop_labels();
        }
        self.label_bytes += agent.label_bytes();
        session.agent = agent;
    }

    fn remove(&mut self, key: &(WorkerId, Epoch)) -> Option<Arc<SessionCell>> {
        let removed = self.sessions.remove(key)?;
        self.label_bytes -= lock(&removed.state).agent.label_bytes();
        Some(removed)
    }

    /// The session of a life of a worker. A new session evicts the one that is gone longest, if
    /// there is no room.
    pub(crate) fn open(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
    ) -> Result<Arc<SessionCell>, NoRoom> {
        let key = (worker.clone(), epoch);
        if let Some(session) = self.sessions.get(&key) {
            return Ok(session.clone());
        }
        while self.sessions.len() >= self.sessions_max {
            let oldest = self.gone_longest().ok_or(NoRoom { sessions_max: self.sessions_max })?;
            self.remove(&oldest);
        }
        Ok(self.insert(key))
    }

    /// Like [`Registry::open`], for a session restored from disk. Never fails: if there is no room,
    /// it evicts the least recently seen session and returns it.
    pub(crate) fn restore_session(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
    ) -> (Arc<SessionCell>, Option<Arc<SessionCell>>) {
        let key = (worker.clone(), epoch);
        if let Some(session) = self.sessions.get(&key) {
            return (session.clone(), None);
        }
        let mut evicted = None;
        if self.sessions.len() >= self.sessions_max {
            let seen = |session: &SessionCell| lock(&session.state).last_seen;
            let oldest = self.sessions.iter().min_by_key(|(_, session)| seen(session));
            let oldest_key = oldest.map(|(key, _)| key.clone());
            evicted = oldest_key.and_then(|key| self.remove(&key));
        }
        (self.insert(key), evicted)
    }

    fn insert(&mut self, key: (WorkerId, Epoch)) -> Arc<SessionCell> {
        let (worker, epoch) = key.clone();
        let session = Arc::new(SessionCell {
            worker,
            epoch,
            state: Mutex::default(),
            commit_lock: Arc::default(),
        });
        self.sessions.insert(key, session.clone());
        session
    }

    /// All sessions, by worker, then by epoch.
    pub(crate) fn all(&self) -> Vec<Arc<SessionCell>> {
        self.sessions.values().cloned().collect()
    }

    /// The sessions of one worker.
    pub(crate) fn of_worker(&self, worker: &WorkerId) -> Vec<Arc<SessionCell>> {
        let keys = (worker.clone(), Epoch(0))..=(worker.clone(), Epoch(u64::MAX));
        self.sessions.range(keys).map(|(_, session)| session.clone()).collect()
    }

    /// Ids of all workers.
    pub(crate) fn workers(&self) -> Vec<WorkerId> {
        let mut workers: Vec<_> = self.sessions.keys().map(|(worker, _)| worker.clone()).collect();
        workers.dedup();
        workers
    }

    fn gone_longest(&self) -> Option<(WorkerId, Epoch)> {
        let gone = self.sessions.iter().filter_map(|(key, session)| {
            match lock(&session.state).presence {
                Presence::Gone(since) => Some((since, key)),
                // It may still reconnect; a grace period is short.
                Presence::Away(_) | Presence::Connected => None,
            }
        });
        gone.min().map(|(_, key)| key.clone())
    }
}
