//! Collects telemetry events and resource samples for the next cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use profiler_core::limits::EXPECTED_MAX;
use profiler_core::{ExpectedTasks, ResourceSample, RunId, RunMarker, Telemetry, TransferEvent};
use rustc_hash::FxHashSet;

use super::{TelemetryEvent, drain};
use crate::resources::ResourceSampler;

/// Most transfers of one cycle; more are counted as lost.
const CYCLE_TRANSFERS_MAX: usize = 20_000;

/// Most resource samples, and most runs, of one cycle; more are counted as lost.
const CYCLE_OTHERS_MAX: usize = 1_000;

/// Most peers and types of one agent, together. Past it new ones are called `[overflow]`, because the
/// wire's dictionary, which has them, only grows.
const LINK_NAMES_MAX: usize = 4_096;

/// Most ends of runs that are remembered because they came before their starts.
const EARLY_ENDS_MAX: usize = 1_000;

/// The telemetry of the next cycle, and the state that spans cycles.
#[derive(Debug)]
pub(crate) struct TelemetryCollector {
    telemetry: Telemetry,
    lost: u64,
    link_names: FxHashSet<Arc<str>>,
    /// Sums so far, by name.
    expected: BTreeMap<Arc<str>, ExpectedTasks>,
    open_runs: BTreeSet<RunId>,
    /// Runs whose end was drained before their start: they started on one thread and ended on another.
    early_ends: BTreeSet<RunId>,
    resources: Option<ResourceSampler>,
}

impl TelemetryCollector {
    /// Samples resources at every `resource_interval`, if there is one.
    pub(crate) fn new(resource_interval: Option<Duration>) -> TelemetryCollector {
        TelemetryCollector {
            telemetry: Telemetry::default(),
            lost: 0,
            link_names: FxHashSet::default(),
            expected: BTreeMap::new(),
            open_runs: BTreeSet::new(),
            early_ends: BTreeSet::new(),
            resources: resource_interval.map(ResourceSampler::start),
        }
    }

    /// Drains the rings of all threads, and returns the number of their events.
    pub(crate) fn drain(&mut self) -> usize {
        let mut events = 0;
        let lost = drain(|event| {
            events += 1;
            self.add(event);
        });
        self.lost += lost;
        events
    }

    /// Samples resources if a sample is due.
    pub(crate) fn sample_resources(&mut self) {
        let sample = self
            .resources
            .as_mut()
            .and_then(ResourceSampler::sample_if_due);
        self.add_sample(sample);
    }

    /// Samples the rest of the last resource interval.
    pub(crate) fn sample_resources_last(&mut self) {
        let sample = self
            .resources
            .as_mut()
            .and_then(ResourceSampler::sample_last);
        self.add_sample(sample);
    }

    fn add_sample(&mut self, sample: Option<ResourceSample>) {
        match sample {
            Some(_) if self.telemetry.resources.len() >= CYCLE_OTHERS_MAX => self.lost += 1,
            Some(sample) => self.telemetry.resources.push(sample),
            None => {}
        }
    }

    /// Whether there is nothing for a cycle.
    pub(crate) fn is_empty(&self) -> bool {
        self.telemetry.is_empty() && self.lost == 0
    }

    /// Takes the telemetry since the last call, and the number of lost items.
    pub(crate) fn take(&mut self) -> (Telemetry, u64) {
        (
            std::mem::take(&mut self.telemetry),
            std::mem::take(&mut self.lost),
        )
    }

    fn add(&mut self, event: TelemetryEvent) {
        match event {
            TelemetryEvent::Transfer(transfer) => self.add_transfer(*transfer),
            TelemetryEvent::Expect(more) => self.add_expected(*more),
            TelemetryEvent::Run(run) => self.add_run(*run),
        }
    }

    fn add_transfer(&mut self, mut transfer: TransferEvent) {
        if self.telemetry.transfers.len() >= CYCLE_TRANSFERS_MAX {
            self.lost += 1;
            return;
        }
        transfer.peer = self.link_name(transfer.peer);
        transfer.type_name = self.link_name(transfer.type_name);
        self.telemetry.transfers.push(transfer);
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

    fn add_expected(&mut self, more: ExpectedTasks) {
        if self.expected.len() >= EXPECTED_MAX && !self.expected.contains_key(&more.name) {
            self.lost += 1;
            return;
        }
        let name = more.name.clone();
        let sum = self.expected.entry(name).or_insert_with(|| ExpectedTasks {
            total: 0,
            ..more.clone()
        });
        sum.total = sum.total.saturating_add(more.total);
        sum.since = sum.since.min(more.since);
        let sum = sum.clone();
        self.telemetry
            .expected
            .retain(|earlier| earlier.name != sum.name);
        self.telemetry.expected.push(sum);
    }

    fn add_run(&mut self, run: RunMarker) {
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
        self.telemetry.runs.retain(|earlier| earlier.id != run.id);
        if self.telemetry.runs.len() >= CYCLE_OTHERS_MAX {
            self.lost += 1;
        } else {
            self.telemetry.runs.push(run);
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

    fn transfer(peer: &str, type_name: &str) -> TelemetryEvent {
        TelemetryEvent::Transfer(Box::new(TransferEvent {
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

    fn expect(name: &str, total: u64, since: i64) -> TelemetryEvent {
        TelemetryEvent::Expect(Box::new(ExpectedTasks {
            name: name.into(),
            total,
            since: at(since),
        }))
    }

    fn run(id: u64, stop: Option<i64>) -> RunMarker {
        RunMarker {
            id: RunId(id),
            name: "nightly".into(),
            start: at(1),
            stop: stop.map(at),
        }
    }

    #[test]
    fn names_past_the_limit_become_overflow() {
        let mut collector = TelemetryCollector::new(None);
        for number in 0..LINK_NAMES_MAX + 5 {
            collector.add(transfer(&format!("peer-{number}"), "peer-0"));
        }
        let peer = |index: usize| collector.telemetry.transfers[index].peer.to_string();
        assert_eq!(
            peer(LINK_NAMES_MAX - 1),
            format!("peer-{}", LINK_NAMES_MAX - 1)
        );
        assert_eq!(
            (peer(LINK_NAMES_MAX), peer(LINK_NAMES_MAX + 4)),
            ("[overflow]".into(), "[overflow]".into())
        );
        assert!(
            collector
                .telemetry
                .transfers
                .iter()
                .all(|it| &*it.type_name == "peer-0")
        );
    }

    #[test]
    fn a_cycle_is_bounded_and_the_next_starts_empty() {
        let mut collector = TelemetryCollector::new(None);
        (0..CYCLE_TRANSFERS_MAX + 3).for_each(|_| collector.add(transfer("p", "")));
        let (telemetry, lost) = collector.take();
        assert_eq!((telemetry.transfers.len(), lost), (CYCLE_TRANSFERS_MAX, 3));
        assert!(collector.is_empty());
        collector.add(transfer("p", ""));
        assert_eq!(
            (collector.take().0.transfers.len(), collector.take().1),
            (1, 0)
        );
    }

    /// Each cycle carries the sum since the first, so that a lost cycle does no harm.
    #[test]
    fn expected_tasks_are_cumulative() {
        let mut collector = TelemetryCollector::new(None);
        collector.add(expect("load", 5, 9));
        collector.add(expect("load", 5, 7));
        assert_eq!(collector.take().0.expected[0].total, 10);
        collector.add(expect("load", 1, 20));
        let expected = collector.take().0.expected;
        assert_eq!(
            expected,
            [ExpectedTasks {
                name: "load".into(),
                total: 11,
                since: at(7)
            }]
        );
        (0..EXPECTED_MAX).for_each(|number| collector.add(expect(&number.to_string(), 1, 1)));
        assert_eq!(collector.take().1, 1);
        collector.add(expect("load", 1, 1));
        assert_eq!(collector.take().0.expected[0].total, 12);
    }

    /// Threads' rings are drained one after the other, so an end may come before its start, in the same
    /// cycle or the one before.
    #[test]
    fn a_run_that_has_ended_stays_ended() {
        let started = run(1, None);
        let ended = run(1, Some(5));
        let check = |events: &[(&RunMarker, bool)], expected: &[&[&RunMarker]]| {
            let mut collector = TelemetryCollector::new(None);
            let mut cycles = Vec::new();
            for (run, ends_cycle) in events {
                collector.add(TelemetryEvent::Run(Box::new(RunMarker::clone(run))));
                if *ends_cycle {
                    cycles.push(collector.take().0.runs);
                }
            }
            let expected: Vec<Vec<RunMarker>> = expected
                .iter()
                .map(|runs| runs.iter().copied().cloned().collect())
                .collect();
            assert_eq!(cycles, expected, "{events:?}");
        };
        check(&[(&started, false), (&ended, true)], &[&[&ended]]);
        check(&[(&ended, false), (&started, true)], &[&[&ended]]);
        check(
            &[(&started, true), (&ended, true)],
            &[&[&started], &[&ended]],
        );
        check(&[(&ended, true), (&started, true)], &[&[&ended], &[]]);
    }
}
