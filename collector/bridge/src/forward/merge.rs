//! Samples of several flushes as one sum for each worker's life and period.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use profiler_core::{Filter, NodeId, Profile, TimeRange, Weight};

use base::id_set::IdSet;
use base::limits::nanoseconds;
use state::CollectorState;
use state::forward::{Life, LifeSamples, PendingWindow};
use state::tree::{PhaseFilter, ProfileForm, SampleScope};

/// The sums of one life of a worker in one period.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Merged {
    pub(super) life: Arc<Life>,
    /// From the first to the last sample.
    pub(super) range: TimeRange,
    /// By node, ascending.
    pub(super) weights: Vec<(NodeId, Weight)>,
}

/// Sums the samples of each life by the period in which they start. Late samples have their own period.
pub(super) fn merge(lives: Vec<LifeSamples>, every: Duration) -> Vec<Merged> {
    let every_ns = nanoseconds(every).max(1);
    let mut merged = Vec::new();
    for LifeSamples { life, windows } in lives {
        let mut by_period: BTreeMap<i64, Vec<PendingWindow>> = BTreeMap::new();
        for window in windows {
            let period = window.range.start().unix_ns().div_euclid(every_ns);
            by_period.entry(period).or_default().push(window);
        }
        merged.extend(
            by_period
                .into_values()
                .map(|windows| sum(life.clone(), &windows)),
        );
    }
    merged
}

/// The sum of at least one window.
fn sum(life: Arc<Life>, windows: &[PendingWindow]) -> Merged {
    let mut weights: BTreeMap<NodeId, Weight> = BTreeMap::new();
    let mut range = windows[0].range;
    for window in windows {
        range = range.hull(window.range);
        for (node, state, nanoseconds) in window.samples.entries() {
            weights
                .entry(node)
                .or_insert(Weight::ZERO)
                .count(state, nanoseconds);
        }
    }
    Merged {
        life,
        range,
        weights: weights.into_iter().collect(),
    }
}

/// The profile of these sums: the program's threads, by task and line, without phases.
pub(super) fn profile_of(state: &CollectorState, weights: &[(NodeId, Weight)]) -> Profile {
    let ids: IdSet = weights.iter().map(|(node, _)| node.0).collect();
    let own = |node: NodeId| {
        let found = weights.binary_search_by_key(&node, |(node, _)| *node);
        found.map_or(Weight::ZERO, |index| weights[index].1)
    };
    let scope = SampleScope {
        filter: &Filter::default(),
        phases: &PhaseFilter::All,
    };
    let form = ProfileForm {
        has_phases: false,
        by_function: false,
    };
    state.excerpt(ids).profile(scope, own, form)
}

/// The name of the service that a worker belongs to, as in the answers to Grafana.
pub(super) fn service_name(life: &Life) -> &str {
    let name = ["service_name", "service", "service.name"]
        .iter()
        .find_map(|key| life.labels.get(*key));
    name.map_or("unknown_service", String::as_str)
}

/// The labels that are forwarded besides our own: the first ones by key.
pub(super) fn labels_of(life: &Life, most: usize) -> impl Iterator<Item = (&str, &str)> {
    let ours: BTreeSet<&str> = ["service_name", "service.name", "worker", "host"].into();
    let labels = life
        .labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    labels
        .filter(move |(key, value): &(&str, &str)| {
            !ours.contains(key) && !key.starts_with("__") && !value.is_empty()
        })
        .take(most)
}

#[cfg(test)]
mod tests {
    use profiler_core::{State, Timestamp, WorkerId};

    use super::*;
    use store::packed::PackedWeights;

    fn window(start_s: i64, node: u32, weight_ns: u64) -> PendingWindow {
        let start = Timestamp::from_unix_ns(start_s * 1_000_000_000);
        let samples = PackedWeights::of([(NodeId(node), State::Cpu, weight_ns)], 1, |_| NodeId(1));
        let range = TimeRange::new(start, start.shifted(1_000_000_000)).unwrap();
        PendingWindow { range, samples }
    }

    #[test]
    fn samples_are_summed_by_the_period_in_which_they_start() {
        let life = Arc::new(Life {
            worker: WorkerId("w".into()),
            host: String::new(),
            labels: BTreeMap::new(),
        });
        // The last one is late.
        let windows = vec![
            window(109, 2, 1),
            window(110, 2, 2),
            window(119, 3, 4),
            window(95, 2, 8),
        ];
        let merged = merge(vec![LifeSamples { life, windows }], Duration::from_secs(10));
        let found: Vec<_> = merged
            .iter()
            .map(|merged| {
                let seconds = [merged.range.start(), merged.range.stop()].map(Timestamp::second);
                let weights = merged.weights.iter();
                (
                    seconds,
                    weights
                        .map(|(node, weight)| (node.0, weight.total_ns()))
                        .collect::<Vec<_>>(),
                )
            })
            .collect();
        let expected: [(_, Vec<_>); 3] = [
            ([95, 96], vec![(2, 8)]),
            ([109, 110], vec![(2, 1)]),
            ([110, 120], vec![(2, 2), (3, 4)]),
        ];
        assert_eq!(found, expected);
    }
}
