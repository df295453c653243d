//! Workers by label.

use std::collections::{BTreeMap, BTreeSet};

use profiler_core::{Timestamp, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::error::echo;
use crate::parameters::params::Params;
use crate::parameters::suggest::nearest;
use base::sync::lock;
use state::CollectorState;
use store::rows::Names;

/// The forms of `label`, for error texts.
const LABEL_ALLOWED: [&str; 2] = ["KEY=VALUE", "KEY=* for any value"];

/// The id of no worker, because ids are never empty: the filter if no worker has the requested
/// labels.
const NOBODY: &str = "";

/// A worker's attributes, from its last agent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WorkerAttributes {
    pub host: String,
    pub labels: BTreeMap<String, String>,
}

impl Queries<'_> {
    /// The attributes of all workers with a session.
    pub fn worker_attributes(&self) -> BTreeMap<WorkerId, WorkerAttributes> {
        let mut facts: BTreeMap<WorkerId, (Timestamp, WorkerAttributes)> = BTreeMap::new();
        let sessions = lock(&self.registry).all();
        for cell in sessions {
            let session = lock(&cell.state);
            let known = facts
                .get(&cell.worker)
                .is_some_and(|(seen, _)| *seen > session.last_seen);
            if !known {
                let attributes = WorkerAttributes {
                    host: session.agent.host.clone(),
                    labels: session.agent.labels.clone(),
                };
                facts.insert(cell.worker.clone(), (session.last_seen, attributes));
            }
        }
        facts
            .into_iter()
            .map(|(worker, (_, facts))| (worker, facts))
            .collect()
    }

    /// The machines of these workers.
    pub fn hosts(&self, workers: &[WorkerId]) -> BTreeSet<String> {
        let facts = self.worker_attributes();
        let hosts = workers
            .iter()
            .filter_map(|worker| facts.get(worker))
            .map(|facts| facts.host.clone());
        hosts.filter(|host| !host.is_empty()).collect()
    }

    /// The keys of all labels.
    pub fn label_keys(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        let sessions = lock(&self.registry).all();
        for cell in sessions {
            let session = lock(&cell.state);
            for key in session.agent.labels.keys() {
                // Workers share few keys.
                if !keys.contains(key) {
                    keys.insert(key.clone());
                }
            }
        }
        keys
    }
}

/// Labels that a worker must have, all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LabelFilter {
    /// Keys and values; `*` is any value.
    labels: Vec<(String, String)>,
}

impl LabelFilter {
    /// The `label` parameters. No worker needs to have them.
    pub(crate) fn parse(params: &Params<'_>) -> Result<LabelFilter, QueryError> {
        let asked = params
            .many("label")?
            .into_iter()
            .map(|text| match text.split_once('=') {
                Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
                _ => {
                    let allowed = LABEL_ALLOWED.to_vec();
                    Err(QueryError::Form {
                        name: "label",
                        value: echo(text),
                        allowed,
                    })
                }
            });
        Ok(LabelFilter {
            labels: asked.collect::<Result<_, _>>()?,
        })
    }

    /// Whether every worker passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Whether a worker with these labels passes.
    pub(crate) fn keeps(&self, held: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(key, value)| {
            held.get(key)
                .is_some_and(|held| value == "*" || held == value)
        })
    }
}

/// Of `workers` (of all if empty), those with every requested label.
pub(crate) fn labeled(
    params: &Params<'_>,
    state: &CollectorState,
    workers: Names,
) -> Result<Names, QueryError> {
    let filter = LabelFilter::parse(params)?;
    if filter.is_empty() {
        return Ok(workers);
    }
    for (key, _) in &filter.labels {
        known_key(state, key)?;
    }
    let facts = Queries(state).worker_attributes();
    let found: Names = facts
        .iter()
        .filter(|(worker, facts)| workers.keeps(&worker.0) && filter.keeps(&facts.labels))
        .map(|(worker, _)| worker.to_string())
        .collect();
    Ok(if found.is_empty() {
        Names::from(vec![NOBODY.to_owned()])
    } else {
        found
    })
}

/// Whether any worker has a label with that key.
pub(crate) fn known_key(state: &CollectorState, key: &str) -> Result<(), QueryError> {
    let keys = Queries(state).label_keys();
    if keys.contains(key) {
        return Ok(());
    }
    let nearest = nearest(key, keys.iter().map(String::as_str))
        .into_iter()
        .map(|key| echo(&key));
    Err(QueryError::UnknownLabel {
        key: echo(key),
        nearest: nearest.collect(),
    })
}
