//! Named runs: periods that a query can name instead of two times.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Epoch, RunId, Timestamp, WorkerId};

use crate::rows::{RunKey, RunRow};

/// A change of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RunChange {
    Started(Arc<RunRow>),
    Stopped(Arc<RunRow>),
}

/// All runs, at most `runs_max`. Past it, the oldest tenth is dropped, ended runs first.
#[derive(Debug)]
pub(crate) struct Runs {
    by_key: BTreeMap<RunKey, Arc<RunRow>>,
    runs_max: usize,
}

impl Runs {
    pub(crate) fn new(runs_max: usize) -> Runs {
        Runs { by_key: BTreeMap::new(), runs_max }
    }

    /// Inserts or replaces a run. An ended run is not reopened.
    pub(crate) fn put(&mut self, mut row: RunRow) -> Option<RunChange> {
        let key = row.key();
        let before = self.by_key.get(&key).map(|before| before.run.stop);
        row.run.stop = row.run.stop.or(before.flatten());
        if before.is_none() && self.by_key.len() >= self.runs_max {
            self.make_room();
        }
        let row = Arc::new(row);
        self.by_key.insert(key, row.clone());
        match (before, row.run.stop) {
            (None, None) => Some(RunChange::Started(row)),
            (None | Some(None), Some(_)) => Some(RunChange::Stopped(row)),
            _ => None,
        }
    }

    /// Ends the open runs of a worker's life at `last_seen`, or where they started if that is
    /// later. Returns them.
    pub(crate) fn end_as_lost(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        last_seen: Timestamp,
    ) -> Vec<RunChange> {
        let open = self.of_life(worker, epoch).filter(|row| row.stop().is_none());
        let ended = open.map(|row| {
            *row = Arc::new(RunRow {
                lost_at: Some(last_seen.max(row.run.start)),
                ..RunRow::clone(row)
            });
            RunChange::Stopped(row.clone())
        });
        ended.collect()
    }

    /// Forgets the open runs of a worker's life. Returns their number.
    pub(crate) fn forget_open(&mut self, worker: &WorkerId, epoch: Epoch) -> usize {
        let open = self.of_life(worker, epoch).filter(|row| row.stop().is_none());
        let keys: Vec<RunKey> = open.map(|row| row.key()).collect();
        for key in &keys {
            self.by_key.remove(key);
        }
        keys.len()
    }

    /// Reverts [`Runs::end_as_lost`]. Returns the number of runs.
    pub(crate) fn resume_lost(&mut self, worker: &WorkerId, epoch: Epoch) -> usize {
        let lost = self.of_life(worker, epoch).filter(|row| row.lost_at.is_some());
        let again = lost.map(|row| *row = Arc::new(RunRow { lost_at: None, ..RunRow::clone(row) }));
        again.count()
    }

    fn of_life(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
    ) -> impl Iterator<Item = &mut Arc<RunRow>> {
        let key = |id| RunKey { worker: Some(worker.clone()), epoch, id: RunId(id) };
        self.by_key.range_mut(key(0)..=key(u64::MAX)).map(|(_, row)| row)
    }

    /// Drops a tenth at once, so that the cost per insertion stays small.
    fn make_room(&mut self) {
        let age = |row: &RunRow| (row.stop().is_none(), row.run.start);
        let mut aged: Vec<_> =
            self.by_key.iter().map(|(key, row)| (age(row), key.clone())).collect();
        aged.sort_unstable();
        for (_, key) in aged.into_iter().take((self.runs_max / 10).max(1)) {
            self.by_key.remove(&key);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<RunRow>> {
        self.by_key.values()
    }

    /// The run that a text names: the newest of that name, or with `NAME@ID` that very run.
    pub(crate) fn find(&self, text: &str) -> Option<&Arc<RunRow>> {
        let that_one = text
            .rsplit_once('@')
            .and_then(|(name, id)| self.all().find(|row| *row.run.name == *name && row.id() == id));
        let newest = || {
            let named = self.all().filter(|row| *row.run.name == *text);
            named.max_by_key(|row| row.run.start)
        };
        that_one.or_else(newest)
    }

    /// The newest open run of that name or id.
    pub(crate) fn find_open(&self, name: Option<&str>, id: Option<&str>) -> Option<&Arc<RunRow>> {
        let open = self.all().filter(|row| row.stop().is_none());
        let named = open.filter(|row| name.is_none_or(|name| *row.run.name == *name));
        let meant = named.filter(|row| id.is_none_or(|id| row.id() == id));
        meant.max_by_key(|row| row.run.start)
    }

    /// An id for a new run of the API, unique also across restarts.
    pub(crate) fn next_id(&self, now: Timestamp) -> RunId {
        let ours = self.all().filter(|row| row.worker.is_none()).map(|row| row.run.id.0);
        let after_last = ours.max().map_or(1, |last| last.saturating_add(1));
        RunId(now.unix_ns().max(1).unsigned_abs().max(after_last))
    }
}
