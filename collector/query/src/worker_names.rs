//! Workers and labels for menus: of a large fleet those with a text.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use profiler_core::WorkerId;

use api::{LabelCount, WorkerName, WorkerNamesAnswer};

use super::QueryError;
use crate::Queries;
use crate::parameters::label_scope::SERVICE_LABEL;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::Params;
use crate::tasks::limit_to;
use base::limits::{WORKER_NAMES_DEFAULT, WORKER_NAMES_MAX};

/// A query for names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerNamesQuery {
    /// In lower case; empty for all.
    text: String,
    /// Most workers, and most labels.
    limit: usize,
}

impl WorkerNamesQuery {
    pub const PARAMETERS: Parameters = &[&[
        Parameter::text(
            "text",
            "zone=",
            "A part of an id, or of a label as `KEY=VALUE`, or words of both, in any case. Default: all.",
        ),
        Parameter::integer(
            "limit",
            1..=WORKER_NAMES_MAX,
            Some(WORKER_NAMES_DEFAULT),
            "20",
            "Most workers, and most labels.",
        ),
    ]];

    pub fn parse(pairs: &[(String, String)]) -> Result<WorkerNamesQuery, QueryError> {
        let params = Params::of(pairs, WorkerNamesQuery::PARAMETERS)?;
        let limit = params.one("limit")?;
        Ok(WorkerNamesQuery {
            text: params.one("text")?.unwrap_or_default().to_lowercase(),
            limit: limit.map_or(Ok(WORKER_NAMES_DEFAULT), |text| {
                limit_to(Some(text), WORKER_NAMES_MAX)
            })?,
        })
    }

    fn fits(&self, name: &str) -> bool {
        self.text.is_empty() || name.to_lowercase().contains(&self.text)
    }

    /// The name of a series is shown as words of its id and its labels, that of an agent is its id.
    fn fits_worker(&self, worker: &WorkerId, labels: &BTreeMap<String, String>) -> bool {
        if self.fits(&worker.0) {
            return true;
        }
        if !labels.contains_key(SERVICE_LABEL) {
            return false;
        }
        let mut searched = worker.0.to_lowercase();
        for (key, value) in labels {
            searched += &format!(" {key}={value}").to_lowercase();
        }
        self.text
            .split_whitespace()
            .all(|word| searched.contains(word))
    }
}

impl Queries<'_> {
    /// Workers by id, and labels by how many workers have them.
    pub fn worker_names(&self, query: &WorkerNamesQuery) -> WorkerNamesAnswer {
        let mut names = WorkerNamesAnswer::default();
        let mut labels: HashMap<(String, String), u64> = HashMap::new();
        for (worker, attributes) in self.worker_attributes() {
            let is_found = query.fits_worker(&worker, &attributes.labels);
            for label in attributes.labels {
                *labels.entry(label).or_default() += 1;
            }
            if !is_found {
                continue;
            }
            if names.workers.len() < query.limit {
                let worker = worker.to_string();
                names.workers.push(WorkerName {
                    worker,
                    host: attributes.host,
                });
            } else {
                names.omitted += 1;
            }
        }
        let labels = labels
            .into_iter()
            .map(|((key, value), workers)| LabelCount {
                label: format!("{key}={value}"),
                workers,
            });
        names.labels = labels.filter(|label| query.fits(&label.label)).collect();
        names
            .labels
            .sort_by(|a, b| (Reverse(a.workers), &a.label).cmp(&(Reverse(b.workers), &b.label)));
        names.labels_omitted = names.labels.len().saturating_sub(query.limit) as u64;
        names.labels.truncate(query.limit);
        names
    }
}
