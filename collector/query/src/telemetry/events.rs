//! Filters of events.

use std::sync::Arc;

use profiler_core::{Epoch, Outcome, WorkerId};

use crate::QueryError;
use crate::parameters::labels::LabelFilter;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::{LABEL, Params, TASK, WORKER, named_workers};
use crate::tasks::{LIMIT, OUTCOME, limit, outcome_choices};
use base::sync::lock;
use state::CollectorState;
use state::events::{Event, EventKind, Subject, WorkerIdentity};
use store::rows::Names;

/// The events to keep; an empty list keeps all. An event without the property that a filter names
/// is dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventFilter {
    kinds: Vec<EventKind>,
    tasks: Names,
    workers: Names,
    outcomes: Vec<Outcome>,
    labels: LabelFilter,
}

const KIND: Parameter = Parameter::choice(
    "kind",
    || EventKind::ALL.map(EventKind::name).to_vec(),
    "task_ended",
    "Kinds of events. Default: all.",
)
.repeated();

/// Parameters of [`recent_events`].
pub const RECENT_EVENTS_PARAMETERS: Parameters = &[&[LIMIT, KIND, WORKER, LABEL]];

impl EventFilter {
    pub const PARAMETERS: Parameters = &[&[KIND, TASK, WORKER, OUTCOME, LABEL]];

    /// Parses the parameters. Names and labels need not be known yet.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
    ) -> Result<EventFilter, QueryError> {
        let params = Params::of(pairs, EventFilter::PARAMETERS)?;
        let outcomes = params.many_of("outcome", &outcome_choices())?;
        let tasks = params
            .many("task")?
            .into_iter()
            .map(str::to_owned)
            .collect();
        EventFilter::of(&params, state, tasks, outcomes)
    }

    fn of(
        params: &Params<'_>,
        state: &CollectorState,
        tasks: Names,
        outcomes: Vec<Outcome>,
    ) -> Result<EventFilter, QueryError> {
        let kinds = EventKind::ALL.map(|kind| (kind.name(), kind));
        Ok(EventFilter {
            kinds: params.many_of("kind", &kinds)?,
            tasks,
            workers: named_workers(params, state)?,
            outcomes,
            labels: LabelFilter::parse(params)?,
        })
    }

    /// Whether an event passes; `state` has the labels of the event's worker.
    pub fn keeps(&self, event: &Event, state: &CollectorState) -> bool {
        let (task, worker, outcome) = match &event.subject {
            Subject::Task(row) => (
                Some(&*row.record.name),
                Some(&*row.worker.0),
                Some(row.record.outcome),
            ),
            Subject::Worker(facts) => (None, Some(&*facts.worker.0), None),
            Subject::Run(row) => (None, row.worker.as_ref().map(|worker| &*worker.0), None),
            Subject::Damage { .. } | Subject::IngestStatus(_) => (None, None, None),
        };
        (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.tasks.keeps_some(task)
            && self.workers.keeps_some(worker)
            && (self.outcomes.is_empty()
                || outcome.is_some_and(|outcome| self.outcomes.contains(&outcome)))
            && (self.labels.is_empty() || self.keeps_labels(&event.subject, state))
    }

    /// Reduces an event of several workers to those that pass, if any does.
    fn keep_workers(&self, event: &mut Arc<Event>) {
        let passes = |worker: &&WorkerIdentity| {
            self.workers.keeps_some(Some(&*worker.worker.0)) && self.labels.keeps(&worker.labels)
        };
        let kept: Vec<_> = event.workers().filter(passes).cloned().collect();
        let mut workers = kept.into_iter();
        if let Some(first) = workers.next() {
            *event = Arc::new(Event {
                subject: Subject::Worker(Box::new(first)),
                others: workers.collect(),
                ..Event::clone(event)
            });
        }
    }

    fn keeps_labels(&self, subject: &Subject, state: &CollectorState) -> bool {
        let keeps = |worker: &WorkerId, epoch: Epoch| {
            let lives = lock(&state.registry).of_worker(worker);
            let life = lives.iter().find(|cell| cell.epoch == epoch);
            life.is_some_and(|cell| self.labels.keeps(&lock(&cell.state).agent.labels))
        };
        match subject {
            Subject::Worker(facts) => self.labels.keeps(&facts.labels),
            Subject::Task(row) => keeps(&row.worker, row.epoch),
            Subject::Run(row) => row
                .worker
                .as_ref()
                .is_some_and(|worker| keeps(worker, row.epoch)),
            Subject::Damage { .. } | Subject::IngestStatus(_) => false,
        }
    }
}

/// The requested recent events, the newest first.
pub fn recent_events(
    pairs: &[(String, String)],
    state: &CollectorState,
) -> Result<Vec<Arc<Event>>, QueryError> {
    let params = Params::of(pairs, RECENT_EVENTS_PARAMETERS)?;
    let limit = limit(params.one("limit")?)?;
    let filter = EventFilter::of(&params, state, Names::default(), Vec::new())?;
    let mut events = state.events.recent(usize::MAX);
    events.retain_mut(|event| {
        if !event.others.is_empty() {
            filter.keep_workers(event);
        }
        filter.keeps(event, state)
    });
    events.truncate(limit);
    Ok(events)
}
