//! Named runs: periods that a query can name instead of two times.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{Epoch, RunId, Timestamp, WorkerId};

use super::holdings::{Candidate, Holdings, surplus};
use base::log_limit::{Admitted, LineLimit};
use shares::identity::Identity;
use store::rows::{RunKey, RunRow};

/// Any agent can cause these lines.
static DROPPED: LineLimit = LineLimit::new();

/// A change of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunChange {
    Started(Arc<RunRow>),
    Stopped(Arc<RunRow>),
}

/// All runs: at most `runs_max` that were marked through the API, and as many of agents, of which an
/// identity may have a tenth. Past a limit the oldest ones of its own are dropped, ended runs first.
#[derive(Debug)]
pub struct Runs {
    by_key: BTreeMap<RunKey, Arc<RunRow>>,
    of_agents: Holdings,
    runs_max: usize,
}

/// The runs among which the oldest are dropped.
#[derive(Clone, Copy)]
enum Crowd<'a> {
    /// Those of the API.
    Api,
    /// Those of the identity that this worker reports with.
    OfHolder(&'a WorkerId),
    Agents,
}

impl Runs {
    pub fn new(runs_max: usize) -> Runs {
        Runs {
            by_key: BTreeMap::new(),
            of_agents: Holdings::default(),
            runs_max,
        }
    }

    /// Inserts or replaces a run that this identity sent, if it is known. An ended run is not reopened.
    pub fn put(&mut self, mut row: RunRow, sender: Option<&Identity>) -> Option<RunChange> {
        let key = row.key();
        let before = self.by_key.get(&key).map(|before| before.run.stop);
        row.run.stop = row.run.stop.or(before.flatten());
        let row = Arc::new(row);
        self.by_key.insert(key, row.clone());
        if before.is_none() {
            self.keep_limits(row.worker.as_ref(), sender);
        }
        match (before, row.run.stop) {
            (None, None) => Some(RunChange::Started(row)),
            (None | Some(None), Some(_)) => Some(RunChange::Stopped(row)),
            _ => None,
        }
    }

    /// Ends the open runs of a worker's life at `last_seen`, or where they started if that is
    /// later. Returns them.
    pub fn end_as_lost(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        last_seen: Timestamp,
    ) -> Vec<RunChange> {
        let open = self
            .of_life(worker, epoch)
            .filter(|row| row.stop().is_none());
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
    pub fn forget_open(&mut self, worker: &WorkerId, epoch: Epoch) -> usize {
        let open = self
            .of_life(worker, epoch)
            .filter(|row| row.stop().is_none());
        let keys: Vec<RunKey> = open.map(|row| row.key()).collect();
        keys.iter().for_each(|key| self.remove(key));
        keys.len()
    }

    /// Reverts [`Runs::end_as_lost`]. Returns the number of runs.
    pub fn resume_lost(&mut self, worker: &WorkerId, epoch: Epoch) -> usize {
        let lost = self
            .of_life(worker, epoch)
            .filter(|row| row.lost_at.is_some());
        let again = lost.map(|row| {
            *row = Arc::new(RunRow {
                lost_at: None,
                ..RunRow::clone(row)
            })
        });
        again.count()
    }

    fn of_life(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
    ) -> impl Iterator<Item = &mut Arc<RunRow>> {
        let key = |id| RunKey {
            worker: Some(worker.clone()),
            epoch,
            id: RunId(id),
        };
        self.by_key
            .range_mut(key(0)..=key(u64::MAX))
            .map(|(_, row)| row)
    }

    /// Drops runs past the limits after one of this worker, or of the API, was added.
    fn keep_limits(&mut self, worker: Option<&WorkerId>, sender: Option<&Identity>) {
        let Some(worker) = worker else {
            let keys = self.by_key.keys();
            if keys.take_while(|key| key.worker.is_none()).count() > self.runs_max {
                self.drop_oldest(Crowd::Api, self.runs_max / 10);
            }
            return;
        };
        self.of_agents.add(worker, sender);
        let holder_max = (self.runs_max / 10).max(1);
        if self.of_agents.rows_with(worker) > holder_max {
            self.drop_oldest(Crowd::OfHolder(worker), holder_max / 10);
        }
        if self.of_agents.rows() > self.runs_max {
            self.drop_oldest(Crowd::Agents, self.runs_max / 10);
        }
    }

    /// Drops that many at once, so that the cost per insertion stays small.
    fn drop_oldest(&mut self, crowd: Crowd<'_>, count: usize) {
        let holders = &self.of_agents;
        let candidates = self.by_key.iter().filter_map(|(key, row)| {
            let holder = key
                .worker
                .as_ref()
                .and_then(|worker| holders.holder(worker));
            let is_in = match crowd {
                Crowd::Api => key.worker.is_none(),
                Crowd::OfHolder(worker) => holder.is_some() && holder == holders.holder(worker),
                Crowd::Agents => key.worker.is_some(),
            };
            let age = (row.stop().is_none(), row.run.start, key.clone());
            is_in.then_some(Candidate { holder, age })
        });
        let oldest = surplus(candidates, count.max(1));
        if let Some(Admitted { suppressed }) = DROPPED.admit() {
            let dropped = oldest.len();
            let limit = self.runs_max;
            tracing::warn!(
                dropped,
                limit,
                suppressed,
                "the oldest runs of those with most are dropped"
            );
        }
        oldest.iter().for_each(|(_, _, key)| self.remove(key));
    }

    fn remove(&mut self, key: &RunKey) {
        if self.by_key.remove(key).is_some()
            && let Some(worker) = &key.worker
        {
            self.of_agents.remove(worker);
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<RunRow>> {
        self.by_key.values()
    }

    /// The run that a text names: the newest of the API with that name; else with `NAME@ID` that very run;
    /// else the newest of an agent, by `WORKER/NAME` or by its name alone. So no agent can take the name
    /// of a run of the API.
    pub fn find(&self, text: &str) -> Option<&Arc<RunRow>> {
        let of_worker = |row: &RunRow| {
            let worker = row.worker.as_ref()?;
            Some(text.strip_prefix(&*worker.0)?.strip_prefix('/')? == &*row.run.name)
        };
        self.newest(|row| row.worker.is_none() && *row.run.name == *text)
            .or_else(|| {
                let (name, id) = text.rsplit_once('@')?;
                self.all()
                    .find(|row| *row.run.name == *name && row.id() == id)
            })
            .or_else(|| self.newest(|row| of_worker(row) == Some(true)))
            .or_else(|| self.newest(|row| *row.run.name == *text))
    }

    fn newest(&self, is_meant: impl Fn(&RunRow) -> bool) -> Option<&Arc<RunRow>> {
        self.all()
            .filter(|row| is_meant(row))
            .max_by_key(|row| row.run.start)
    }

    /// The newest open run of that name or id; one of the API if there is any.
    pub fn find_open(&self, name: Option<&str>, id: Option<&str>) -> Option<&Arc<RunRow>> {
        let open = self.all().filter(|row| row.stop().is_none());
        let named = open.filter(|row| name.is_none_or(|name| *row.run.name == *name));
        let meant = named.filter(|row| id.is_none_or(|id| row.id() == id));
        meant.max_by_key(|row| (row.worker.is_none(), row.run.start))
    }

    /// An id for a new run of the API, unique also across restarts.
    pub fn next_id(&self, now: Timestamp) -> RunId {
        let ours = self
            .all()
            .filter(|row| row.worker.is_none())
            .map(|row| row.run.id.0);
        let after_last = ours.max().map_or(1, |last| last.saturating_add(1));
        RunId(now.unix_ns().max(1).unsigned_abs().max(after_last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::at;
    use base::limits::RUNS_MAX;

    fn run(worker: Option<&str>, name: &str, id: u64, start_s: i64) -> RunRow {
        let worker = worker.map(|worker| WorkerId(worker.into()));
        let stop = id.is_multiple_of(2).then(|| at(start_s + 1));
        let run = profiler_core::RunMarker {
            id: RunId(id),
            name: name.into(),
            start: at(start_s),
            stop,
        };
        RunRow::marked(worker, Epoch(1), run)
    }

    #[test]
    fn no_agent_drops_a_run_of_the_api_or_of_another_identity() {
        let mut runs = Runs::new(RUNS_MAX);
        let [greedy, honest] = [1, 2].map(Identity::User);
        runs.put(run(None, "release-1", 1, 0), None);
        runs.put(run(None, "release-2", 2, 1), None);
        runs.put(run(Some("honest"), "nightly", 1, 2), Some(&honest));
        for id in 1..=12_000_u64 {
            let worker = format!("w-{}", id % 7);
            runs.put(run(Some(&worker), "x", id, 100 + id as i64), Some(&greedy));
            assert!(runs.by_key.len() <= 3 + RUNS_MAX / 10, "after {id}");
        }
        for name in ["release-1", "release-2", "nightly"] {
            assert!(runs.find(name).is_some(), "{name}");
        }
        let newest = runs.find("x").unwrap();
        assert_eq!(newest.run.id, RunId(12_000));
    }

    #[test]
    fn many_identities_lose_their_own_runs_first() {
        let mut runs = Runs::new(100);
        runs.put(run(None, "release", 1, 0), None);
        (1..=3).for_each(|id| {
            drop(runs.put(run(Some("honest"), "n", id, 0), Some(&Identity::User(0))))
        });
        for id in 1..=900_u64 {
            let sender = Identity::User(1 + id as u32 % 60);
            runs.put(
                run(Some(&format!("w-{}", id % 60)), "x", id, 100),
                Some(&sender),
            );
            assert!(runs.by_key.len() <= 101);
        }
        let kept = runs.all().filter(|row| *row.run.name == *"n").count();
        // A share of all is more than one run each, and less than three.
        assert!((1..=3).contains(&kept), "{kept}");
        assert!(runs.find("release").is_some());
    }

    #[test]
    fn a_run_of_the_api_is_found_before_those_of_agents() {
        let mut runs = Runs::new(100);
        runs.put(run(None, "release-42", 2, 10), None);
        runs.put(run(Some("etl/1"), "release-42", 7, 11), None);
        runs.put(run(Some("etl"), "nightly", 9, 5), None);
        // Names that look like other ways to name a run.
        runs.put(run(None, "etl/nightly", 4, 1), None);
        assert_eq!(found(&runs, "release-42"), Some((false, 2)));
        assert_eq!(found(&runs, "etl/1/release-42"), Some((true, 7)));
        assert_eq!(
            found(&runs, "release-42@0000000000000001-7"),
            Some((true, 7))
        );
        assert_eq!(found(&runs, "nightly"), Some((true, 9)));
        assert_eq!(found(&runs, "etl/nightly"), Some((false, 4)));
        assert_eq!(found(&runs, "etl/"), None);
        assert_eq!(
            runs.find_open(Some("release-42"), None)
                .map(|row| row.run.id.0),
            Some(7)
        );
        runs.put(run(None, "release-42", 3, 2), None);
        assert_eq!(
            runs.find_open(Some("release-42"), None)
                .map(|row| row.run.id.0),
            Some(3)
        );
    }

    fn found(runs: &Runs, text: &str) -> Option<(bool, u64)> {
        runs.find(text)
            .map(|row| (row.worker.is_some(), row.run.id.0))
    }

    proptest! {
        #[test]
        fn nothing_that_agents_send_changes_which_run_of_the_api_is_found(
            names in prop::collection::vec("[ab/@1-]{1,5}", 1..6),
            sent in prop::collection::vec(("[ab/@1-]{1,4}", "[ab/@1-]{1,5}", 1..50_u64, 0..90_i64), 0..80),
        ) {
            let mut runs = Runs::new(20);
            for (id, name) in (1..).zip(&names) {
                runs.put(run(None, name, id, id.cast_signed()), None);
            }
            let found = |runs: &Runs| -> Vec<_> {
                names.iter().map(|name| runs.find(name).map(|row| row.key())).collect()
            };
            let before = found(&runs);
            for (worker, name, id, start_s) in sent {
                runs.put(run(Some(&worker), &name, id, start_s), Some(&Identity::User(id as u32 % 3)));
            }
            prop_assert_eq!(found(&runs), before);
        }
    }
}
