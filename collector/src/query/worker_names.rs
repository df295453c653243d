//! Workers and labels for menus: of a large fleet those with a text.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::QueryError;
use super::params::Params;
use super::tasks::limit_to;
use crate::limits::{WORKER_NAMES_DEFAULT, WORKER_NAMES_MAX};
use crate::state::CollectorState;

/// A question for names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkerNamesQuery {
    /// In lower case; empty for all.
    text: String,
    /// Most workers, and most labels.
    limit: usize,
}

/// Workers and labels with the text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct WorkerNames {
    /// Ids and machines, by id.
    pub(crate) workers: Vec<WorkerName>,
    /// Number of further workers.
    pub(crate) omitted: u64,
    /// `KEY=VALUE` and the number of workers with it, the largest first.
    pub(crate) labels: Vec<LabelCount>,
    /// Number of further labels.
    pub(crate) labels_omitted: u64,
}

/// A worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WorkerName {
    pub(crate) id: String,
    pub(crate) host: String,
}

/// A label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LabelCount {
    pub(crate) label: String,
    pub(crate) workers: u64,
}

impl WorkerNamesQuery {
    pub(crate) fn parse(pairs: &[(String, String)]) -> Result<WorkerNamesQuery, QueryError> {
        let params = Params::new(pairs, &["text", "limit"])?;
        let limit = params.one("limit")?;
        Ok(WorkerNamesQuery {
            text: params.one("text")?.unwrap_or_default().to_lowercase(),
            limit: limit
                .map_or(Ok(WORKER_NAMES_DEFAULT), |text| limit_to(Some(text), WORKER_NAMES_MAX))?,
        })
    }

    fn fits(&self, name: &str) -> bool {
        self.text.is_empty() || name.to_lowercase().contains(&self.text)
    }
}

impl CollectorState {
    /// Workers by id, and labels by how many workers have them.
    pub(crate) fn worker_names(&self, query: &WorkerNamesQuery) -> WorkerNames {
        let mut names = WorkerNames::default();
        let mut labels: HashMap<(String, String), u64> = HashMap::new();
        for (worker, attributes) in self.worker_attributes() {
            for label in attributes.labels {
                *labels.entry(label).or_default() += 1;
            }
            if !query.fits(&worker.0) {
                continue;
            }
            if names.workers.len() < query.limit {
                let id = worker.to_string();
                names.workers.push(WorkerName { id, host: attributes.host });
            } else {
                names.omitted += 1;
            }
        }
        let labels = labels
            .into_iter()
            .map(|((key, value), workers)| LabelCount { label: format!("{key}={value}"), workers });
        names.labels = labels.filter(|label| query.fits(&label.label)).collect();
        names
            .labels
            .sort_by(|a, b| (Reverse(a.workers), &a.label).cmp(&(Reverse(b.workers), &b.label)));
        names.labels_omitted = names.labels.len().saturating_sub(query.limit) as u64;
        names.labels.truncate(query.limit);
        names
    }
}
