//! Services whose profiles are pushed or scraped.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::{Service, WorkerEpochs};
use flamegraph::text::printable;

use super::grouped;
use super::workers::elapsed;
use crate::grid::is_wide;

/// Most notes about services.
const SERVICES_NOTED_MAX: usize = 20;

/// The label of series that other profilers push.
const SERVICE_LABEL: &str = "service_name";

/// Names of series in place of their ids, which `--wide` shows.
pub(super) fn shown_names(workers: &[WorkerEpochs]) -> HashMap<&str, String> {
    if is_wide() {
        HashMap::new()
    } else {
        series_names(workers)
    }
}

/// Names of series by worker: the service, then the values of labels in which it differs from its other series, those
/// of the label with most values first.
fn series_names(workers: &[WorkerEpochs]) -> HashMap<&str, String> {
    let mut values: BTreeMap<[&str; 2], BTreeSet<&str>> = BTreeMap::new();
    let mut series = Vec::new();
    for WorkerEpochs { worker, epochs } in workers {
        let Some(labels) = epochs.last().map(|epoch| &epoch.labels) else {
            continue;
        };
        let Some(service) = labels.get(SERVICE_LABEL) else {
            continue;
        };
        for (label, value) in labels {
            values.entry([service, label]).or_default().insert(value);
        }
        series.push((worker, service, labels));
    }
    let mut names = HashMap::with_capacity(series.len());
    for (worker, service, labels) in series {
        let count = |label: &str| values.get(&[&**service, label]).map_or(0, BTreeSet::len);
        let mut differing: Vec<(&String, &String)> = labels
            .iter()
            .filter(|(label, _)| count(label) > 1)
            .collect();
        differing.sort_by_key(|(label, _)| std::cmp::Reverse(count(label)));
        let mut name = service.clone();
        for (_, value) in differing {
            name.push(' ');
            name.push_str(value);
        }
        names.insert(worker.as_str(), name);
    }
    names
}

/// A note for each of the first services, those with most series first.
pub(super) fn service_notes<'a>(
    services: &'a [Service],
    now: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let noted = services.iter().take(SERVICES_NOTED_MAX);
    noted.map(move |service| service_note(service, now))
}

/// The series of a service that other profilers push.
fn service_note(service: &Service, now: &str) -> String {
    let name = if service.name.is_empty() {
        "series without a service".to_owned()
    } else {
        printable(&service.name).into_owned()
    };
    format!(
        "{name}: {} series are pushed, {} of them lately, the newest {} ago",
        grouped(service.series),
        grouped(service.connected),
        elapsed(&service.last_seen, now)
    )
}

#[cfg(test)]
mod tests {
    use api::Epoch;

    use super::*;

    fn series(labels: &[[&str; 2]]) -> WorkerEpochs {
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
            .collect();
        WorkerEpochs {
            worker: format!("pyroscope:{labels:?}"),
            epochs: vec![Epoch {
                labels,
                ..Epoch::default()
            }],
        }
    }

    #[test]
    fn series_are_named_by_the_labels_in_which_they_differ() {
        let mut workers = Vec::new();
        for (number, instance) in ["i-1", "i-2", "i-3"].into_iter().enumerate() {
            let region = ["eu", "us"][number % 2];
            workers.push(series(&[
                ["service_name", "shop"],
                ["region", region],
                ["instance", instance],
                ["source", "pyroscope"],
            ]));
        }
        workers.push(series(&[["service_name", "alone"], ["region", "eu"]]));
        workers.push(series(&[["region", "eu"]]));
        let names = series_names(&workers);
        let shown: Vec<Option<&str>> = workers
            .iter()
            .map(|worker| names.get(worker.worker.as_str()).map(String::as_str))
            .collect();
        let expected = [
            Some("shop i-1 eu"),
            Some("shop i-2 us"),
            Some("shop i-3 eu"),
            Some("alone"),
            None,
        ];
        assert_eq!(shown, expected);
    }
}
