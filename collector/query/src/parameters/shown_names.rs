//! The names under which the page and the command line show series: `shop i-1 eu` or `shop instance=i-1 region=eu`
//! instead of the id with all labels. Any shown name may be typed as a worker.

use std::collections::{BTreeMap, BTreeSet};

use profiler_core::WorkerId;

use crate::Queries;
use crate::QueryError;
use crate::error::echo;
use crate::parameters::label_scope::SERVICE_LABEL;
use crate::parameters::labels::WorkerAttributes;
use state::CollectorState;

/// Most comparisons of a name with one series: labels with equal values can be arranged in many ways.
const STEPS_MAX: usize = 1_000;

/// Most series that an error lists.
const LISTED_MAX: usize = 10;

/// The id of the worker that is meant by a name that is no id; `None` if no worker is shown so.
///
/// # Errors
/// [`QueryError::AmbiguousWorker`] if several are.
pub(crate) fn shown_worker(
    state: &CollectorState,
    name: &str,
) -> Result<Option<String>, QueryError> {
    let attributes = Queries(state).worker_attributes();
    let found = workers_shown_as(name, &attributes);
    match found[..] {
        [] => Ok(None),
        [only] => Ok(Some(only.to_string())),
        _ => Err(QueryError::AmbiguousWorker {
            name: echo(name),
            count: found.len(),
            workers: found
                .iter()
                .take(LISTED_MAX)
                .map(|worker| echo(&worker.0))
                .collect(),
        }),
    }
}

/// The series that are shown by a name. A list of fewer series shows fewer labels, so the values of any of them
/// select a series; those that are shown so among all of its service come first.
fn workers_shown_as<'a>(
    name: &str,
    attributes: &'a BTreeMap<WorkerId, WorkerAttributes>,
) -> Vec<&'a WorkerId> {
    let of_service = |labels: &BTreeMap<String, String>| {
        let service = labels.get(SERVICE_LABEL)?;
        let rest = name.strip_prefix(service.as_str())?;
        (rest.is_empty() || rest.starts_with(' ')).then(|| service.clone())
    };
    let mut services: BTreeMap<String, Vec<Series<'a>>> = BTreeMap::new();
    for (worker, WorkerAttributes { labels, .. }) in attributes {
        if let Some(service) = of_service(labels) {
            let series = Series { worker, labels };
            services.entry(service).or_default().push(series);
        }
    }
    let mut shown = Vec::new();
    let mut selected = Vec::new();
    for (service, all) in &services {
        let rest = &name[service.len()..];
        let differing = differing_labels(all);
        for series in all {
            let (shown_labels, others): (Vec<_>, Vec<_>) = series
                .labels
                .iter()
                .map(|(key, value)| [key.as_str(), value.as_str()])
                .filter(|[key, _]| *key != SERVICE_LABEL)
                .partition(|[key, _]| differing.contains(key));
            if has_values(rest, &shown_labels, true, &mut 0) {
                shown.push(series.worker);
            }
            let labels = [shown_labels, others].concat();
            if has_values(rest, &labels, false, &mut 0) {
                selected.push(series.worker);
            }
        }
    }
    if shown.is_empty() { selected } else { shown }
}

struct Series<'a> {
    worker: &'a WorkerId,
    labels: &'a BTreeMap<String, String>,
}

/// The labels of which these series have different values.
fn differing_labels<'a>(series: &[Series<'a>]) -> BTreeSet<&'a str> {
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    let mut differing = BTreeSet::new();
    for (key, value) in series.iter().flat_map(|series| series.labels) {
        if *values.entry(key).or_insert(value) != value {
            differing.insert(key.as_str());
        }
    }
    differing
}

/// Whether `rest` is values of these labels in any order, each after a space, alone or as `KEY=VALUE`.
fn has_values(rest: &str, labels: &[[&str; 2]], needs_all: bool, steps: &mut usize) -> bool {
    if rest.is_empty() {
        return !needs_all || labels.is_empty();
    }
    let Some(rest) = rest.strip_prefix(' ') else {
        return false;
    };
    (0..labels.len()).any(|index| {
        let [key, value] = labels[index];
        let with_key = format!("{key}={value}");
        [value, &with_key].into_iter().any(|text| {
            *steps += 1;
            let after = rest.strip_prefix(text).filter(|_| *steps <= STEPS_MAX);
            after.is_some_and(|after| {
                let others = [&labels[..index], &labels[index + 1..]].concat();
                has_values(after, &others, needs_all, steps)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attributes(series: &[&[[&str; 2]]]) -> BTreeMap<WorkerId, WorkerAttributes> {
        let with_id = |(number, labels): (usize, &&[[&str; 2]])| {
            let labels = labels
                .iter()
                .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
                .collect();
            let attributes = WorkerAttributes {
                labels,
                ..WorkerAttributes::default()
            };
            (WorkerId(format!("pyroscope:{number}").into()), attributes)
        };
        series.iter().enumerate().map(with_id).collect()
    }

    fn check(series: &[&[[&str; 2]]], name: &str, expected: &[&str]) {
        let attributes = attributes(series);
        let found: Vec<&str> = workers_shown_as(name, &attributes)
            .into_iter()
            .map(|worker| &worker.0["pyroscope:".len()..])
            .collect();
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn a_shown_name_selects_its_series() {
        let service = ["service_name", "shop"];
        let series: &[&[[&str; 2]]] = &[
            &[
                service,
                ["instance", "i-1"],
                ["region", "eu"],
                ["source", "x"],
            ],
            &[
                service,
                ["instance", "i-2"],
                ["region", "us"],
                ["source", "x"],
            ],
            &[service, ["region", "eu"], ["source", "x"]],
            &[["service_name", "shop i-1"], ["source", "x"]],
            &[["region", "eu"]],
        ];
        for (name, expected) in [
            ("shop i-2 us", &["1"][..]),
            ("shop us i-2", &["1"]),
            ("shop instance=i-2 region=us", &["1"]),
            ("shop i-2", &["1"]),
            ("shop us x", &["1"]),
            ("shop i-1 eu", &["0"]),
            ("shop eu", &["2"]),
            ("shop i-1", &["3"]),
            ("shop", &["0", "1", "2"]),
            ("shop x", &["0", "1", "2"]),
            ("shop i-2 eu", &[]),
            ("shop i-", &[]),
            ("sho", &[]),
            ("eu", &[]),
            ("", &[]),
        ] {
            check(series, name, expected);
        }
    }

    #[test]
    fn labels_with_equal_values_take_bounded_time() {
        let labels: Vec<[String; 2]> = (0..60)
            .map(|number| [format!("k{number:02}"), "a".to_owned()])
            .collect();
        let mut pairs = vec![["service_name", "s"]];
        pairs.extend(
            labels
                .iter()
                .map(|[key, value]| [key.as_str(), value.as_str()]),
        );
        check(&[&pairs], &format!("s{}", " a".repeat(60)), &["0"]);
        check(&[&pairs], &format!("s{} b", " a".repeat(50)), &[]);
    }

    proptest! {
        /// Names as the page and the command line make them, of lists of all and of fewer series.
        #[test]
        fn each_shown_name_leads_back_to_its_series(
            rows in prop::collection::btree_set(prop::collection::vec(0..3_u8, 3), 1..8),
            listed in any::<u8>(),
            with_keys in any::<bool>(),
        ) {
            const VALUES: [&str; 3] = ["a", "a b", "b=c"];
            const KEYS: [&str; 3] = ["x", "y", "z"];
            let owned: Vec<Vec<[&str; 2]>> = rows
                .iter()
                .map(|row| {
                    let labels = KEYS.into_iter().zip(row).map(|(key, value)| [key, VALUES[usize::from(*value)]]);
                    [["service_name", "my shop"]].into_iter().chain(labels).collect()
                })
                .collect();
            let series: Vec<&[[&str; 2]]> = owned.iter().map(Vec::as_slice).collect();
            let attributes = attributes(&series);
            let listed: Vec<Series<'_>> = attributes
                .iter()
                .enumerate()
                .filter(|(number, _)| listed >> number & 1 == 1)
                .map(|(_, (worker, attributes))| Series { worker, labels: &attributes.labels })
                .collect();
            let differing = differing_labels(&listed);
            for series in &listed {
                let parts = series.labels.iter().filter(|(key, _)| differing.contains(key.as_str()));
                let name = parts.fold("my shop".to_owned(), |name, (key, value)| {
                    if with_keys { format!("{name} {key}={value}") } else { format!("{name} {value}") }
                });
                let found = workers_shown_as(&name, &attributes);
                prop_assert!(found.contains(&series.worker), "{name}: {found:?}");
            }
        }
    }
}
