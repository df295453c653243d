//! Named periods: what a question may be about instead of two times.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Epoch, RunId, Timestamp, WorkerId};

use crate::rows::{RunKey, RunRow};

/// What became of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RunChange {
    Started(Arc<RunRow>),
    Stopped(Arc<RunRow>),
}

/// All runs, at most so many: past it the tenth that began first goes, those that have ended before
/// others.
#[derive(Debug)]
pub(crate) struct Runs {
    by_key: BTreeMap<RunKey, Arc<RunRow>>,
    runs_max: usize,
}

impl Runs {
    pub(crate) fn new(runs_max: usize) -> Runs {
        Runs { by_key: BTreeMap::new(), runs_max }
    }

    /// Puts in a run, in place of what was known of it. One that has ended does not go on.
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

    /// The worker's life is over: its runs that go on end at `last_seen`, or where they began if that
    /// is later. Gives them.
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

    /// Takes back [`Runs::end_as_lost`]: the worker is there again, so they go on. Gives how many.
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

    /// Forgets a tenth at once, so that however many come, few are looked at for each.
    fn make_room(&mut self) {
        let age = |row: &RunRow| (row.stop().is_none(), row.run.start);
        let aged = self.by_key.iter().map(|(key, row)| (age(row), key.clone()));
        let mut aged: Vec<_> = aged.collect();
        aged.sort_unstable();
        for (_, key) in aged.into_iter().take((self.runs_max / 10).max(1)) {
            self.by_key.remove(&key);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<RunRow>> {
        self.by_key.values()
    }

    /// The run that a text names: the newest of that name, or `NAME@ID` that very one.
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

    /// The newest run that goes on and has that name, or that id.
    pub(crate) fn find_open(&self, name: Option<&str>, id: Option<&str>) -> Option<&Arc<RunRow>> {
        let open = self.all().filter(|row| row.stop().is_none());
        let named = open.filter(|row| name.is_none_or(|name| *row.run.name == *name));
        let meant = named.filter(|row| id.is_none_or(|id| row.id() == id));
        meant.max_by_key(|row| row.run.start)
    }

    /// An id for a run that the API begins now: no other has it, before or after a restart.
    pub(crate) fn next_id(&self, now: Timestamp) -> RunId {
        let ours = self.all().filter(|row| row.worker.is_none()).map(|row| row.run.id.0);
        let after_last = ours.max().map_or(1, |last| last.saturating_add(1));
        RunId(now.unix_ns().max(1).unsigned_abs().max(after_last))
    }
}
