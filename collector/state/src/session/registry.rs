//! All sessions, by worker and epoch.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{Epoch, Timestamp, WorkerId};

use super::{Presence, Session, SessionCell};
use base::limits::{EVICTED_SESSIONS_MAX, SESSIONS_SHARE_DIVISOR};
use base::sync::{Mutex, lock};
use shares::Account;
use shares::identity::Identity;
use store::rows::{AgentInfo, Disconnect, DisconnectReason};

/// The session of a new stream.
#[derive(Debug)]
pub struct OpenSession {
    pub cell: Arc<SessionCell>,
    /// Sessions that made room for it, which may have streams.
    pub evicted: Vec<Arc<SessionCell>>,
}

/// The limit on sessions of a kind is reached, and none makes room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{sessions_max} agents are connected, which is this collector's limit")]
#[non_exhaustive]
pub struct NoRoom {
    pub sessions_max: usize,
}

/// The sessions: at most `sessions_max` of agents and imports, and as many of pushed series, so that neither takes the
/// room of the other.
#[derive(Debug)]
pub struct Registry {
    sessions: BTreeMap<(WorkerId, Epoch), Arc<SessionCell>>,
    sessions_max: usize,
    /// The number of sessions of pushed series.
    pushed: usize,
    /// Sessions that made room although their agents may return: they know which flushes are stored. A
    /// flush whose acknowledgment was lost would otherwise count twice.
    evicted: BTreeMap<(WorkerId, Epoch), Evicted>,
    /// By the number of the eviction.
    evicted_order: BTreeMap<u64, (WorkerId, Epoch)>,
    /// Number of evictions so far.
    evictions: u64,
    /// Of the labels of all sessions. Their other facts are limited by the number of sessions.
    label_bytes: usize,
    label_bytes_max: usize,
}

/// A session that made room.
#[derive(Debug)]
struct Evicted {
    /// The number of its eviction.
    number: u64,
    cell: Arc<SessionCell>,
}

impl Registry {
    pub fn new(sessions_max: usize, label_bytes_max: usize) -> Registry {
        Registry {
            sessions: BTreeMap::new(),
            sessions_max,
            pushed: 0,
            evicted: BTreeMap::new(),
            evicted_order: BTreeMap::new(),
            evictions: 0,
            label_bytes: 0,
            label_bytes_max,
        }
    }

    /// Sets an agent's description in one of the sessions. Drops its labels if those of all
    /// sessions would exceed the limit.
    pub fn set_agent(&mut self, session: &mut Session, mut agent: AgentInfo) {
        self.label_bytes -= session.agent.label_bytes();
        if self.label_bytes + agent.label_bytes() > self.label_bytes_max {
            agent.drop_labels();
        }
        self.label_bytes += agent.label_bytes();
        session.agent = Arc::new(agent);
    }

    fn remove(&mut self, key: &(WorkerId, Epoch)) -> Option<Arc<SessionCell>> {
        let removed = self.sessions.remove(key)?;
        self.pushed -= usize::from(is_pushed(&key.0));
        self.label_bytes -= lock(&removed.state).agent.label_bytes();
        Some(removed)
    }

    /// The session of a life of a worker, if there is one.
    pub fn get(&self, worker: &WorkerId, epoch: Epoch) -> Option<&Arc<SessionCell>> {
        self.sessions.get(&(worker.clone(), epoch))
    }

    /// Opens the session of a life of a worker. Its stream belongs to `account`. If there is no room, a
    /// new session evicts another one; see [`Registry::victim`]. The caller ends the evicted session, and
    /// then calls [`Registry::note_evicted_end`].
    pub fn open(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        account: &Account,
    ) -> Result<OpenSession, NoRoom> {
        let key = (worker.clone(), epoch);
        if let Some(session) = self.sessions.get(&key) {
            return Ok(OpenSession {
                cell: session.clone(),
                evicted: Vec::new(),
            });
        }
        let mut evicted = Vec::new();
        while self.is_full_for(worker) {
            let victim = self.victim(worker, account).ok_or(NoRoom {
                sessions_max: self.sessions_max,
            })?;
            evicted.extend(self.remove(&victim));
        }
        let cell = self.insert(key);
        // At once, because its agent may return before its stream ends.
        evicted.iter().cloned().for_each(|cell| self.remember(cell));
        Ok(OpenSession { cell, evicted })
    }

    /// Whether no session of the worker's kind fits.
    fn is_full_for(&self, worker: &WorkerId) -> bool {
        let count = if is_pushed(worker) {
            self.pushed
        } else {
            self.sessions.len() - self.pushed
        };
        count >= self.sessions_max
    }

    /// Keeps an evicted session for its agent's return.
    fn remember(&mut self, cell: Arc<SessionCell>) {
        let key = (cell.worker.clone(), cell.epoch);
        let number = self.evictions;
        self.evictions += 1;
        self.evicted_order.insert(number, key.clone());
        self.evicted.insert(key, Evicted { number, cell });
        if self.evicted.len() > EVICTED_SESSIONS_MAX
            && let Some((_, oldest)) = self.evicted_order.pop_first()
        {
            self.evicted.remove(&oldest);
        }
    }

    /// Takes an evicted session back, if it is remembered.
    fn recall(&mut self, key: &(WorkerId, Epoch)) -> Option<Arc<SessionCell>> {
        let Evicted { number, cell } = self.evicted.remove(key)?;
        self.evicted_order.remove(&number);
        Some(cell)
    }

    /// Drops from an evicted session, which has ended, all but what it knows of its agent's flushes; after
    /// a clean end that too. One that is open again stays as it is.
    pub fn note_evicted_end(&mut self, cell: &Arc<SessionCell>) {
        let key = (cell.worker.clone(), cell.epoch);
        if !self
            .evicted
            .get(&key)
            .is_some_and(|evicted| Arc::ptr_eq(&evicted.cell, cell))
        {
            return;
        }
        let mut session = lock(&cell.state);
        session.forget_agent();
        let disconnect = session.presence.disconnect();
        drop(session);
        if disconnect.is_some_and(|disconnect| disconnect.reason == DisconnectReason::Clean) {
            self.recall(&key);
        }
    }

    /// Like [`Registry::open`], for a session restored from disk. Never fails: if there is no room,
    /// it evicts the least recently seen session and returns it.
    pub fn restore_session(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
    ) -> (Arc<SessionCell>, Option<Arc<SessionCell>>) {
        let key = (worker.clone(), epoch);
        if let Some(session) = self.sessions.get(&key) {
            return (session.clone(), None);
        }
        let mut evicted = None;
        if self.is_full_for(worker) {
            let oldest = self
                .sessions
                .iter()
                .filter(|(key, _)| is_pushed(&key.0) == is_pushed(worker))
                .min_by_key(|(_, session)| lock(&session.state).last_seen);
            let oldest_key = oldest.map(|(key, _)| key.clone());
            evicted = oldest_key.and_then(|key| self.remove(&key));
        }
        (self.insert(key), evicted)
    }

    fn insert(&mut self, key: (WorkerId, Epoch)) -> Arc<SessionCell> {
        let session = self.recall(&key).unwrap_or_else(|| {
            let (worker, epoch) = key.clone();
            Arc::new(SessionCell {
                worker,
                epoch,
                state: Mutex::default(),
                commit_lock: Arc::default(),
            })
        });
        // An evicted session that has not ended yet still has its labels.
        self.label_bytes += lock(&session.state).agent.label_bytes();
        self.pushed += usize::from(is_pushed(&key.0));
        self.sessions.insert(key, session.clone());
        session
    }

    /// Adds the session of another store.
    pub fn add(&mut self, cell: Arc<SessionCell>) {
        self.label_bytes += lock(&cell.state).agent.label_bytes();
        let added = usize::from(is_pushed(&cell.worker));
        let replaced = self
            .sessions
            .insert((cell.worker.clone(), cell.epoch), cell);
        if replaced.is_none() {
            self.pushed += added;
        }
    }

    /// All sessions, by worker, then by epoch.
    pub fn all(&self) -> Vec<Arc<SessionCell>> {
        self.sessions.values().cloned().collect()
    }

    /// The sessions of one worker.
    pub fn of_worker(&self, worker: &WorkerId) -> Vec<Arc<SessionCell>> {
        let keys = (worker.clone(), Epoch(0))..=(worker.clone(), Epoch(u64::MAX));
        self.sessions
            .range(keys)
            .map(|(_, session)| session.clone())
            .collect()
    }

    /// Ids of all workers.
    pub fn workers(&self) -> Vec<WorkerId> {
        let mut workers: Vec<_> = self
            .sessions
            .keys()
            .map(|(worker, _)| worker.clone())
            .collect();
        workers.dedup();
        workers
    }

    /// The session of the worker's kind that makes room for a new one of `account`: of the identity with the most sessions
    /// among those with a disconnected one, the one disconnected longest. If none is disconnected and the
    /// account has less than its share, the session of the identity with the most that was silent longest.
    fn victim(&self, worker: &WorkerId, account: &Account) -> Option<(WorkerId, Epoch)> {
        let mut by_owner: KeyedMap<Option<Identity>, Candidates<'_>> = KeyedMap::default();
        let is_pushed_worker = is_pushed(worker);
        let of_kind = self
            .sessions
            .iter()
            .filter(|(key, _)| is_pushed(&key.0) == is_pushed_worker);
        for (key, cell) in of_kind {
            let session = lock(&cell.state);
            let owner = session.owner().map(|owner| owner.identity.clone());
            let candidates = by_owner.entry(owner).or_default();
            candidates.sessions += 1;
            if let Presence::Gone(Disconnect { at, .. }) = session.presence {
                let first = candidates.gone.get_or_insert((at, key));
                *first = (*first).min((at, key));
            }
            let idlest = candidates.idlest.get_or_insert((session.last_seen, key));
            *idlest = (*idlest).min((session.last_seen, key));
        }
        let own = by_owner
            .get(&Some(account.identity.clone()))
            .map_or(0, |candidates| candidates.sessions);
        let with_gone = by_owner
            .values()
            .filter(|candidates| candidates.gone.is_some());
        if let Some(most) = with_gone.max_by_key(|candidates| candidates.sessions) {
            return most.gone.map(|(_, key)| key.clone());
        }
        let most = by_owner
            .values()
            .max_by_key(|candidates| candidates.sessions)?;
        let has_share = own >= self.sessions_max.div_ceil(SESSIONS_SHARE_DIVISOR);
        let is_fairer = own + 1 < most.sessions;
        let idlest = most.idlest.filter(|_| !has_share && is_fairer);
        idlest.map(|(_, key)| key.clone())
    }
}

/// Whether a worker is a series that a client of another profiler pushes.
pub(crate) fn is_pushed(worker: &WorkerId) -> bool {
    !worker.has_agent() && !worker.is_import()
}

/// The sessions of one identity.
#[derive(Default)]
struct Candidates<'a> {
    sessions: usize,
    gone: Option<(Timestamp, &'a (WorkerId, Epoch))>,
    idlest: Option<(Timestamp, &'a (WorkerId, Epoch))>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::rows::DisconnectReason;

    fn open(registry: &mut Registry, worker: usize, account: &Arc<Account>) -> Option<Vec<String>> {
        let worker = WorkerId(format!("w-{worker:03}").into());
        let opened = registry.open(&worker, Epoch(1), account).ok()?;
        let slot = account.open_session().unwrap();
        let mut session = lock(&opened.cell.state);
        session.adopt(account, Some(slot)).unwrap();
        session.last_seen = Timestamp::from_unix_ns(registry.sessions.len() as i64);
        drop(session);
        let names = opened
            .evicted
            .iter()
            .map(|cell| cell.worker.to_string())
            .collect();
        opened
            .evicted
            .iter()
            .for_each(|cell| registry.note_evicted_end(cell));
        Some(names)
    }

    #[test]
    fn an_identity_with_few_sessions_finds_room_although_one_has_all() {
        let mut registry = Registry::new(64, 0);
        let [greedy, fleet, third] = [1, 2, 3].map(Account::of_test);
        for worker in 0..64 {
            assert_eq!(open(&mut registry, worker, &greedy), Some(vec![]));
        }
        assert_eq!(open(&mut registry, 64, &greedy), None, "it has most");
        // An eighth is the share of everyone; the silent ones go first.
        for worker in 0..8 {
            let evicted = open(&mut registry, 100 + worker, &fleet);
            assert_eq!(evicted, Some(vec![format!("w-{worker:03}")]));
        }
        assert_eq!(open(&mut registry, 200, &fleet), None, "it has its share");
        assert_eq!(
            open(&mut registry, 300, &third),
            Some(vec!["w-008".to_owned()])
        );
        assert_eq!(open(&mut registry, 400, &greedy), None);
    }

    #[test]
    fn a_displaced_agent_finds_what_was_stored_unless_it_had_said_goodbye() {
        let mut registry = Registry::new(2, 0);
        let [first, second] = [1, 2].map(Account::of_test);
        for worker in 0..2 {
            open(&mut registry, worker, &first).unwrap();
            assert_eq!(replace_acked(&registry, &format!("w-00{worker}")), 0);
        }
        let clean = Disconnect {
            at: Timestamp::from_unix_ns(1),
            reason: DisconnectReason::Clean,
        };
        let cell = registry
            .get(&WorkerId("w-001".into()), Epoch(1))
            .unwrap()
            .clone();
        lock(&cell.state).end(clean);
        assert_eq!(
            open(&mut registry, 10, &first),
            Some(vec!["w-001".to_owned()])
        );
        assert_eq!(
            open(&mut registry, 11, &second),
            Some(vec!["w-000".to_owned()])
        );
        assert_eq!(registry.evicted.len(), 1);
        let crashed = DisconnectReason::Crashed;
        for worker in ["w-010", "w-011"] {
            let cell = registry.get(&WorkerId(worker.into()), Epoch(1)).unwrap();
            let at = Timestamp::from_unix_ns(2);
            lock(&cell.state).end(Disconnect {
                at,
                reason: crashed,
            });
        }
        open(&mut registry, 0, &first).unwrap();
        assert_eq!(replace_acked(&registry, "w-000"), 7);
        open(&mut registry, 1, &first).unwrap();
        assert_eq!(
            replace_acked(&registry, "w-001"),
            0,
            "its agent had nothing left"
        );
        assert_eq!(registry.evicted.len(), 2);
    }

    /// The number that was stored, which becomes 7.
    fn replace_acked(registry: &Registry, worker: &str) -> u64 {
        let cell = registry.get(&WorkerId(worker.into()), Epoch(1)).unwrap();
        let mut session = lock(&cell.state);
        std::mem::replace(&mut session.acked_seq, 7)
    }

    #[test]
    fn pushed_series_and_agents_do_not_take_each_others_room() {
        let mut registry = Registry::new(2, 0);
        let account = Account::of_test(1);
        let mut open = |worker: &str| {
            let worker = WorkerId(worker.into());
            let opened = registry.open(&worker, Epoch(1), &account).ok()?;
            let slot = account.open_session().unwrap();
            let adopted = lock(&opened.cell.state).adopt(&account, Some(slot));
            adopted.unwrap();
            Some(opened.evicted.len())
        };
        for worker in ["w-1", "pyroscope:a", "w-2", "otlp:b"] {
            assert_eq!(open(worker), Some(0), "{worker}");
        }
        assert_eq!(open("pyroscope:c"), None);
        assert_eq!(open("w-3"), None);
        let gone = registry.get(&WorkerId("pyroscope:a".into()), Epoch(1));
        lock(&gone.unwrap().state).end(CRASHED);
        let mut opened = |worker: &str| {
            let worker = WorkerId(worker.into());
            let opened = registry.open(&worker, Epoch(1), &account).ok()?;
            Some(opened.evicted[0].worker.to_string())
        };
        assert_eq!(opened("w-3"), None, "a series is no room of an agent");
        assert_eq!(opened("pyroscope:c").as_deref(), Some("pyroscope:a"));
    }

    const CRASHED: Disconnect = Disconnect {
        at: Timestamp::from_unix_ns(1),
        reason: DisconnectReason::Crashed,
    };

    #[test]
    fn a_session_is_remembered_from_its_last_eviction_on() {
        let mut registry = Registry::new(1, 0);
        let account = Account::of_test(1);
        // Evicts the session before.
        let mut open = |worker: usize| {
            let worker = WorkerId(format!("w-{worker}").into());
            let opened = registry.open(&worker, Epoch(1), &account).unwrap();
            opened
                .evicted
                .iter()
                .for_each(|cell| registry.note_evicted_end(cell));
            lock(&opened.cell.state).end(CRASHED);
            assert_eq!(registry.evicted.len(), registry.evicted_order.len());
            opened.cell
        };
        let first = open(0);
        lock(&first.state).acked_seq = 9;
        open(1);
        assert!(Arc::ptr_eq(&open(0), &first));
        // Evicts as many as are remembered, the first session among them.
        for worker in 2..=EVICTED_SESSIONS_MAX {
            open(worker);
        }
        let again = open(0);
        assert_eq!(lock(&again.state).acked_seq, 9);
        assert_eq!(registry.evicted.len(), EVICTED_SESSIONS_MAX);
    }

    /// Its agent has reconnected before its stream was ended.
    #[test]
    fn an_evicted_session_that_returns_at_once_is_the_same_one() {
        let mut registry = Registry::new(1, 1_000);
        let account = Account::of_test(1);
        let [first, second] = ["w-1", "w-2"].map(|worker| WorkerId(worker.into()));
        let cell = registry.open(&first, Epoch(1), &account).unwrap().cell;
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        let agent = AgentInfo {
            labels,
            ..AgentInfo::default()
        };
        registry.set_agent(&mut lock(&cell.state), agent.clone());
        lock(&cell.state).end(CRASHED);
        let opened = registry.open(&second, Epoch(1), &account).unwrap();
        lock(&opened.cell.state).end(CRASHED);
        let again = registry.open(&first, Epoch(1), &account).unwrap().cell;
        assert!(Arc::ptr_eq(&again, &cell));
        opened
            .evicted
            .iter()
            .for_each(|cell| registry.note_evicted_end(cell));
        assert_eq!(*lock(&cell.state).agent, agent, "it is open");
        assert_eq!(registry.label_bytes, agent.label_bytes());
    }

    /// Each sealing has the records of all sessions.
    #[test]
    fn a_record_of_a_session_copies_no_texts() {
        let mut registry = Registry::new(1, 1_000);
        let worker = WorkerId("w".into());
        let cell = registry
            .open(&worker, Epoch(1), &Account::of_test(1))
            .unwrap()
            .cell;
        let agent = AgentInfo {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            host: "host".to_owned(),
            ..AgentInfo::default()
        };
        registry.set_agent(&mut lock(&cell.state), agent.clone());
        let copied = allocation_counter::measure(|| {
            assert_eq!(*cell.record().agent, agent);
        });
        assert_eq!(copied.count_total, 0);
    }

    #[test]
    fn sessions_that_are_gone_make_room_first_those_of_the_largest() {
        let mut registry = Registry::new(4, 0);
        let [large, small] = [1, 2].map(Account::of_test);
        (0..3).for_each(|worker| drop(open(&mut registry, worker, &large).unwrap()));
        drop(open(&mut registry, 10, &small).unwrap());
        for (worker, since) in [(1, 20), (2, 10), (10, 5)] {
            let worker = WorkerId(format!("w-{worker:03}").into());
            let cell = registry.get(&worker, Epoch(1)).unwrap();
            let at = Timestamp::from_unix_ns(since);
            lock(&cell.state).end(Disconnect {
                at,
                reason: DisconnectReason::Clean,
            });
        }
        assert_eq!(
            open(&mut registry, 3, &large),
            Some(vec!["w-002".to_owned()])
        );
        assert_eq!(
            open(&mut registry, 4, &large),
            Some(vec!["w-001".to_owned()])
        );
        assert_eq!(
            open(&mut registry, 5, &large),
            Some(vec!["w-010".to_owned()])
        );
        assert_eq!(open(&mut registry, 6, &large), None);
    }
}
