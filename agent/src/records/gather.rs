//! The folder's side: what was told and what was measured, on its way into a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use profiler_core::limits::EXPECTED_MAX;
use profiler_core::{ExpectedTasks, ResourceSample, RunId, RunMarker, Telemetry, TransferEvent};
use rustc_hash::FxHashSet;

use super::{Told, drain};
use crate::resources::ResourceSampler;

/// Most transfers of one cycle; what comes after is counted as lost.
const CYCLE_TRANSFERS_MAX: usize = 20_000;

/// Most samples of resources, and most runs, of one cycle; as above.
const CYCLE_OTHERS_MAX: usize = 1_000;

/// Most peers and types of one agent, together. Past it new ones are called `[overflow]`: they
/// travel in the dictionary, which only grows.
const LINK_NAMES_MAX: usize = 4_096;

/// Ends of runs that are remembered because they came before their starts.
const EARLY_ENDS_MAX: usize = 1_000;

/// Everything for the next cycle, and what must be remembered to put it together.
#[derive(Debug)]
pub(crate) struct Gathered {
    records: Telemetry,
    lost: u64,
    link_names: FxHashSet<Arc<str>>,
    /// What is expected by now, by name.
    expected: BTreeMap<Arc<str>, ExpectedTasks>,
    open_runs: BTreeSet<RunId>,
    /// Runs whose end was read before their start: they began on one thread and ended on another.
    early_ends: BTreeSet<RunId>,
    resources: Option<ResourceSampler>,
}

impl Gathered {
    /// Measures resources at every `resource_interval`, if there is one.
    pub(crate) fn new(resource_interval: Option<Duration>) -> Gathered {
        Gathered {
            records: Telemetry::default(),
            lost: 0,
            link_names: FxHashSet::default(),
            expected: BTreeMap::new(),
            open_runs: BTreeSet::new(),
            early_ends: BTreeSet::new(),
            resources: resource_interval.map(ResourceSampler::start),
        }
    }

    /// Takes what was told.
    pub(crate) fn listen(&mut self) {
        let lost = drain(|told| self.keep(told));
        self.lost += lost;
    }

    /// Measures, if it is time.
    pub(crate) fn measure(&mut self) {
        let sample = self.resources.as_mut().and_then(ResourceSampler::sample_if_due);
        self.keep_sample(sample);
    }

    /// Measures what is left over at the end.
    pub(crate) fn measure_last(&mut self) {
        let sample = self.resources.as_mut().and_then(ResourceSampler::sample_last);
        self.keep_sample(sample);
    }

    fn keep_sample(&mut self, sample: Option<ResourceSample>) {
        match sample {
            Some(_) if self.records.resources.len() >= CYCLE_OTHERS_MAX => self.lost += 1,
            Some(sample) => self.records.resources.push(sample),
            None => {}
        }
    }

    /// Whether there is nothing to put into a cycle.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.lost == 0
    }

    /// What came since the last time, and how much of it was lost.
    pub(crate) fn take(&mut self) -> (Telemetry, u64) {
        (std::mem::take(&mut self.records), std::mem::take(&mut self.lost))
    }

    fn keep(&mut self, told: Told) {
        match told {
            Told::Transfer(transfer) => self.keep_transfer(*transfer),
            Told::Expect(more) => self.keep_expected(*more),
            Told::Run(run) => self.keep_run(*run),
        }
    }

    fn keep_transfer(&mut self, mut transfer: TransferEvent) {
        if self.records.transfers.len() >= CYCLE_TRANSFERS_MAX {
            self.lost += 1;
            return;
        }
        transfer.peer = self.link_name(transfer.peer);
        transfer.type_name = self.link_name(transfer.type_name);
        self.records.transfers.push(transfer);
    }

    fn link_name(&mut self, name: Arc<str>) -> Arc<str> {
        if let Some(known) = self.link_names.get(&name) {
            return known.clone();
        }
        if self.link_names.len() >= LINK_NAMES_MAX {
            return "[overflow]".into();
        }
        self.link_names.insert(name.clone());
        name
    }

    fn keep_expected(&mut self, more: ExpectedTasks) {
        if self.expected.len() >= EXPECTED_MAX && !self.expected.contains_key(&more.name) {
            self.lost += 1;
            return;
        }
        let name = more.name.clone();
        let sum =
            self.expected.entry(name).or_insert_with(|| ExpectedTasks { total: 0, ..more.clone() });
        sum.total = sum.total.saturating_add(more.total);
        sum.since = sum.since.min(more.since);
        let sum = sum.clone();
        self.records.expected.retain(|earlier| earlier.name != sum.name);
        self.records.expected.push(sum);
    }

    fn keep_run(&mut self, run: RunMarker) {
        let is_new = match run.stop {
            None if self.early_ends.remove(&run.id) => false,
            None => self.open_runs.len() < EARLY_ENDS_MAX && self.open_runs.insert(run.id),
            Some(_) => {
                if !self.open_runs.remove(&run.id) {
                    self.early_ends.insert(run.id);
                    if self.early_ends.len() > EARLY_ENDS_MAX {
                        self.early_ends.pop_first();
                    }
                }
                true
            }
        };
        if !is_new {
            return;
        }
        self.records.runs.retain(|earlier| earlier.id != run.id);
        if self.records.runs.len() >= CYCLE_OTHERS_MAX {
            self.lost += 1;
        } else {
            self.records.runs.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{Direction, Outcome, Timestamp, TransferId};

    use super::*;

    fn at(nanoseconds: i64) -> Timestamp {
        Timestamp::from_unix_ns(nanoseconds)
    }

    fn transfer(peer: &str, type_name: &str) -> Told {
        Told::Transfer(Box::new(TransferEvent {
            id: TransferId(1),
            direction: Direction::Incoming,
            peer: peer.into(),
            keys: Vec::new(),
            more_keys: 0,
            type_name: type_name.into(),
            bytes: 0,
            compressed_bytes: None,
            start: at(1),
            stop: at(2),
            task: None,
            thread_id: 1,
            outcome: Outcome::Ok,
            cause: "".into(),
        }))
    }

    fn expect(name: &str, total: u64, since: i64) -> Told {
        Told::Expect(Box::new(ExpectedTasks { name: name.into(), total, since: at(since) }))
    }

    fn run(id: u64, stop: Option<i64>) -> RunMarker {
        RunMarker { id: RunId(id), name: "nightly".into(), start: at(1), stop: stop.map(at) }
    }

    #[test]
    fn names_past_the_limit_are_one_and_known_ones_stay() {
        let mut gathered = Gathered::new(None);
        for number in 0..LINK_NAMES_MAX + 5 {
            gathered.keep(transfer(&format!("peer-{number}"), "peer-0"));
        }
        let peer = |index: usize| gathered.records.transfers[index].peer.to_string();
        assert_eq!(peer(LINK_NAMES_MAX - 1), format!("peer-{}", LINK_NAMES_MAX - 1));
        assert_eq!(
            (peer(LINK_NAMES_MAX), peer(LINK_NAMES_MAX + 4)),
            ("[overflow]".into(), "[overflow]".into())
        );
        assert!(gathered.records.transfers.iter().all(|it| &*it.type_name == "peer-0"));
    }

    #[test]
    fn a_cycle_is_bounded_and_the_next_begins_anew() {
        let mut gathered = Gathered::new(None);
        (0..CYCLE_TRANSFERS_MAX + 3).for_each(|_| gathered.keep(transfer("p", "")));
        let (records, lost) = gathered.take();
        assert_eq!((records.transfers.len(), lost), (CYCLE_TRANSFERS_MAX, 3));
        assert!(gathered.is_empty());
        gathered.keep(transfer("p", ""));
        assert_eq!((gathered.take().0.transfers.len(), gathered.take().1), (1, 0));
    }

    /// Each cycle tells the sum since the first, whatever earlier cycles told.
    #[test]
    fn what_is_expected_is_told_in_sum() {
        let mut gathered = Gathered::new(None);
        gathered.keep(expect("load", 5, 9));
        gathered.keep(expect("load", 5, 7));
        assert_eq!(gathered.take().0.expected[0].total, 10);
        gathered.keep(expect("load", 1, 20));
        let told = gathered.take().0.expected;
        assert_eq!(told, [ExpectedTasks { name: "load".into(), total: 11, since: at(7) }]);
        (0..EXPECTED_MAX).for_each(|number| gathered.keep(expect(&number.to_string(), 1, 1)));
        assert_eq!(gathered.take().1, 1);
        gathered.keep(expect("load", 1, 1));
        assert_eq!(gathered.take().0.expected[0].total, 12);
    }

    /// Threads' rings are read one after the other, so an end may come before its start, in the same
    /// cycle or the one before.
    #[test]
    fn a_run_that_has_ended_stays_so() {
        let (begun, ended) = (run(1, None), run(1, Some(5)));
        let check = |told: &[(&RunMarker, bool)], expected: &[&[&RunMarker]]| {
            let mut gathered = Gathered::new(None);
            let mut cycles = Vec::new();
            for (run, ends_cycle) in told {
                gathered.keep(Told::Run(Box::new(RunMarker::clone(run))));
                if *ends_cycle {
                    cycles.push(gathered.take().0.runs);
                }
            }
            let expected: Vec<Vec<RunMarker>> =
                expected.iter().map(|runs| runs.iter().copied().cloned().collect()).collect();
            assert_eq!(cycles, expected, "{told:?}");
        };
        check(&[(&begun, false), (&ended, true)], &[&[&ended]]);
        check(&[(&ended, false), (&begun, true)], &[&[&ended]]);
        check(&[(&begun, true), (&ended, true)], &[&[&begun], &[&ended]]);
        check(&[(&ended, true), (&begun, true)], &[&[&ended], &[]]);
    }
}
