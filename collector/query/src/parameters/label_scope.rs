//! Workers and tasks by labels, for readers that know nothing but labels. Besides the labels that workers
//! report, a worker has `worker`, `host` and `service_name`, and its time has `task`.

use std::collections::{BTreeMap, BTreeSet};

use profiler_core::{Filter, StateSet};

use crate::Queries;
use crate::QueryError;
use crate::parameters::label_matchers::LabelMatchers;
use base::limits::MATCHED_TASKS_MAX;
use state::CollectorState;

/// Time outside of tasks, where a task is named.
pub(crate) const NO_TASK: &str = "[no task]";

/// The label with the name of the task.
pub(crate) const TASK_LABEL: &str = "task";

const WORKER_LABEL: &str = "worker";
const HOST_LABEL: &str = "host";
pub(crate) const SERVICE_LABEL: &str = "service_name";

/// The label that agents of OpenTelemetry call `service_name`, where it has its short name.
const SHORT_SERVICE_LABEL: &str = "service";

/// The service of workers without one, as Pyroscope calls it.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// The name of no task: names are never empty.
const NOTHING: &str = "";

/// The workers that matchers of labels select, and the matchers of tasks.
#[derive(Clone, Debug)]
pub struct LabelScope {
    /// The labels of selected workers, by worker.
    workers: BTreeMap<String, BTreeMap<String, String>>,
    /// Whether no other worker exists.
    has_all: bool,
    tasks: LabelMatchers,
}

impl LabelScope {
    pub fn new(state: &CollectorState, mut matchers: LabelMatchers) -> LabelScope {
        let tasks = matchers.split_off(TASK_LABEL);
        let mut workers = labels_by_worker(state);
        let count = workers.len();
        workers.retain(|_, labels| {
            matchers.accept_all(|name| labels.get(name).map_or("", String::as_str))
        });
        LabelScope {
            has_all: workers.len() == count,
            workers,
            tasks,
        }
    }

    /// The names of all labels.
    pub fn label_names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = self
            .workers
            .values()
            .flat_map(|labels| labels.keys().cloned())
            .collect();
        if !self.workers.is_empty() {
            names.insert(TASK_LABEL.to_owned());
        }
        names
    }

    /// The values of a label.
    pub fn label_values(&self, state: &CollectorState, name: &str) -> BTreeSet<String> {
        if name == TASK_LABEL {
            if self.workers.is_empty() {
                return BTreeSet::new();
            }
            return self.task_names(state).collect();
        }
        self.workers
            .values()
            .filter_map(|labels| labels.get(name).cloned())
            .collect()
    }

    /// The selected workers by their values of some labels. A missing value is left out.
    pub(crate) fn groups(&self, names: &[String]) -> BTreeMap<Vec<(String, String)>, Vec<String>> {
        let mut groups: BTreeMap<Vec<(String, String)>, Vec<String>> = BTreeMap::new();
        for (worker, labels) in &self.workers {
            let values = names
                .iter()
                .filter_map(|name| Some((name, labels.get(name)?)));
            let key = values
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            groups.entry(key).or_default().push(worker.clone());
        }
        groups
    }

    /// The filter of samples; `None` if no worker or no task is selected.
    pub fn filter(
        &self,
        state: &CollectorState,
        states: StateSet,
    ) -> Result<Option<Filter>, QueryError> {
        if self.workers.is_empty() {
            return Ok(None);
        }
        let workers = if self.has_all {
            Vec::new()
        } else {
            self.workers.keys().cloned().collect()
        };
        let filter = Filter {
            workers,
            states,
            ..Filter::default()
        };
        let names: Vec<String> = self.task_names(state).collect();
        let outside_tasks = self.tasks.accept(TASK_LABEL, NO_TASK);
        let tasks: Vec<String> = names.into_iter().filter(|name| name != NO_TASK).collect();
        if outside_tasks && tasks.len() == state.task_names().len() {
            return Ok(Some(filter));
        }
        if tasks.len() > MATCHED_TASKS_MAX {
            return Err(QueryError::MatchedTasks {
                count: tasks.len(),
                limit: MATCHED_TASKS_MAX,
            });
        }
        match (tasks.is_empty(), outside_tasks) {
            (true, false) => Ok(None),
            (true, true) => Ok(Some(Filter {
                tasks: vec![NOTHING.to_owned()],
                outside_tasks,
                ..filter
            })),
            (false, _) => Ok(Some(Filter {
                tasks,
                outside_tasks,
                ..filter
            })),
        }
    }

    /// The selected task names, and [`NO_TASK`].
    fn task_names(&self, state: &CollectorState) -> impl Iterator<Item = String> {
        let names: BTreeSet<String> = state.task_names().iter().map(ToString::to_string).collect();
        let all = names.into_iter().chain([NO_TASK.to_owned()]);
        all.filter(|name| self.tasks.accept(TASK_LABEL, name))
    }
}

/// The labels of all workers.
fn labels_by_worker(state: &CollectorState) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut attributes = Queries(state).worker_attributes();
    let with_labels = |worker: profiler_core::WorkerId| {
        let attributes = attributes.remove(&worker).unwrap_or_default();
        let mut labels = attributes.labels;
        let service = labels
            .get(SERVICE_LABEL)
            .or_else(|| labels.get(SHORT_SERVICE_LABEL))
            .map_or(UNKNOWN_SERVICE, String::as_str)
            .to_owned();
        labels.insert(SERVICE_LABEL.to_owned(), service);
        labels.insert(WORKER_LABEL.to_owned(), worker.to_string());
        if !attributes.host.is_empty() {
            labels.insert(HOST_LABEL.to_owned(), attributes.host);
        }
        labels.remove(TASK_LABEL);
        (worker.to_string(), labels)
    };
    state.workers().into_iter().map(with_labels).collect()
}
