//! Which events a subscriber wants.

use profiler_core::Outcome;

use super::QueryError;
use super::params::{Params, choose};
use super::tasks::limit;
use crate::events::{Event, Happening, Subject};

/// Which events to keep; what is empty keeps all. One that has no such property is not kept by a
/// filter on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct EventFilter {
    kinds: Vec<Happening>,
    tasks: Vec<String>,
    workers: Vec<String>,
    outcomes: Vec<Outcome>,
}

impl EventFilter {
    /// The filter that the parameters say. Names need not be known: they may come.
    pub(crate) fn parse(pairs: &[(String, String)]) -> Result<EventFilter, QueryError> {
        let params = Params::new(pairs, &["kind", "task", "worker", "outcome"])?;
        let kinds = Happening::ALL.map(|kind| (kind.name(), kind));
        let chosen = params.many("kind")?.into_iter().map(|name| choose("kind", name, &kinds));
        let outcomes = Outcome::ALL.map(|outcome| (outcome.name(), outcome));
        let ended = params.many("outcome")?.into_iter();
        let ended = ended.map(|name| choose("outcome", name, &outcomes));
        let texts = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        Ok(EventFilter {
            kinds: chosen.collect::<Result<_, _>>()?,
            tasks: texts(params.many("task")?),
            workers: texts(params.many("worker")?),
            outcomes: ended.collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn keeps(&self, event: &Event) -> bool {
        let (task, worker, outcome) = match &event.subject {
            Subject::Task(row) => {
                (Some(&*row.record.name), Some(&*row.worker.0), Some(row.record.outcome))
            }
            Subject::Worker(facts) => (None, Some(&*facts.worker.0), None),
            Subject::Run(row) => (None, row.worker.as_ref().map(|worker| &*worker.0), None),
            Subject::Damage { .. } => (None, None, None),
        };
        let among = |kept: &[String], text: Option<&str>| {
            kept.is_empty() || text.is_some_and(|text| kept.iter().any(|name| name == text))
        };
        (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && among(&self.tasks, task)
            && among(&self.workers, worker)
            && (self.outcomes.is_empty()
                || outcome.is_some_and(|outcome| self.outcomes.contains(&outcome)))
    }
}

/// How many of the last events are asked for.
pub(crate) fn parse_recent(pairs: &[(String, String)]) -> Result<usize, QueryError> {
    limit(Params::new(pairs, &["limit"])?.one("limit")?)
}
