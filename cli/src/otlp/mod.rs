//! Tasks as spans of OpenTelemetry. A task is a span, its phases are spans below it, and the task that
//! started it is its parent. The resource is the life of the worker.

mod messages;

use std::collections::HashMap;
use std::sync::Arc;

use api::{Phase, Task};
use flamegraph::messages::otlp::{AnyValue, KeyValue, Resource, Scope, Value};
use sha2::{Digest as _, Sha256};

pub(crate) use self::messages::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use self::messages::{
    KIND_INTERNAL, OUTCOME_ATTRIBUTE, ResourceSpans, STATUS_ERROR, ScopeSpans, Span, Status,
};
use crate::trace::end_ns;

/// Most spans of one message: about 1 MB, and receivers accept 4 MB.
const SPANS_MAX: usize = 2_000;

/// Tasks of which [`Roots`] remembers the trace, twice. Long ones of a fleet start later ones.
const ROOTS_MAX: usize = 1 << 16;

/// A task of a worker's life.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct TaskKey {
    worker: Arc<str>,
    epoch: Arc<str>,
    id: u64,
}

impl TaskKey {
    fn of(task: &Task) -> TaskKey {
        TaskKey {
            worker: (&*task.worker).into(),
            epoch: (&*task.epoch).into(),
            id: task.id,
        }
    }

    /// The same task always has the same id, so that a repeated export repeats no span.
    fn hash(&self, what: &str, number: usize) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [what, &self.worker, &self.epoch] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(self.id.to_le_bytes());
        hash.update((number as u64).to_le_bytes());
        hash.finalize().into()
    }

    fn trace_id(&self) -> Vec<u8> {
        self.hash("trace", 0)[..16].to_vec()
    }

    fn span_id(&self) -> Vec<u8> {
        self.hash("task", 0)[..8].to_vec()
    }

    fn phase_id(&self, number: usize) -> Vec<u8> {
        self.hash("phase", number)[..8].to_vec()
    }
}

/// The first task of the trace, by tasks that others started. Remembers at least the last [`ROOTS_MAX`]:
/// what older ones start later has a trace that begins at them.
#[derive(Debug)]
struct Roots {
    newest: HashMap<TaskKey, TaskKey>,
    older: HashMap<TaskKey, TaskKey>,
    max: usize,
}

impl Roots {
    fn new() -> Roots {
        Roots {
            newest: HashMap::new(),
            older: HashMap::new(),
            max: ROOTS_MAX,
        }
    }

    fn of(&self, task: &TaskKey) -> Option<TaskKey> {
        self.newest
            .get(task)
            .or_else(|| self.older.get(task))
            .cloned()
    }

    fn insert(&mut self, task: TaskKey, root: TaskKey) {
        if self.newest.len() >= self.max {
            self.older = std::mem::take(&mut self.newest);
        }
        self.newest.insert(task, root);
    }
}

/// Turns tasks into messages. Tasks must come in the order of their starts.
#[derive(Debug)]
pub(crate) struct Spans {
    service: String,
    roots: Roots,
    /// Tasks that still run: a span has an end.
    pub(crate) running: u64,
    pub(crate) tasks: u64,
}

impl Spans {
    pub(crate) fn new(service: &str) -> Spans {
        Spans {
            service: service.to_owned(),
            roots: Roots::new(),
            running: 0,
            tasks: 0,
        }
    }

    /// The messages of these tasks.
    pub(crate) fn messages(&mut self, mut tasks: Vec<Task>) -> Vec<ExportTraceServiceRequest> {
        tasks.sort_by_key(|task| task.start_ns);
        let mut messages = Vec::new();
        let mut spans_left = 0;
        for task in &tasks {
            let key = TaskKey::of(task);
            let root = self.root(task, &key);
            if task.stop_ns.is_none() {
                self.running += 1;
                continue;
            }
            self.tasks += 1;
            let spans = spans_of(task, &key, &root);
            if spans_left < spans.len() {
                messages.push(ExportTraceServiceRequest::default());
                spans_left = SPANS_MAX;
            }
            spans_left = spans_left.saturating_sub(spans.len());
            let message = messages.last_mut().expect("one was added");
            self.add(message, task, spans);
        }
        messages
    }

    /// The first known task of the trace. If the task that started it is not exported, all that it
    /// started still share a trace.
    fn root(&mut self, task: &Task, key: &TaskKey) -> TaskKey {
        let Some(id) = task.parent else {
            return key.clone();
        };
        let parent = TaskKey { id, ..key.clone() };
        let root = self.roots.of(&parent).unwrap_or(parent);
        self.roots.insert(key.clone(), root.clone());
        root
    }

    fn add(&self, message: &mut ExportTraceServiceRequest, task: &Task, mut spans: Vec<Span>) {
        let resource = self.resource(task);
        let last = message.resource_spans.last_mut();
        if let Some(last) = last.filter(|last| last.resource.as_ref() == Some(&resource))
            && let Some(scope) = last.scope_spans.last_mut()
        {
            scope.spans.append(&mut spans);
            return;
        }
        let scope = Scope {
            name: "emberline".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        message.resource_spans.push(ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope),
                spans,
            }],
        });
    }

    fn resource(&self, task: &Task) -> Resource {
        let instance = format!("{}/{}", task.worker, task.epoch);
        Resource {
            attributes: vec![
                text("service.name", &self.service),
                text("service.instance.id", &instance),
                text("emberline.worker", &task.worker),
            ],
        }
    }
}

/// The span of a task, and those of its phases.
fn spans_of(task: &Task, key: &TaskKey, root: &TaskKey) -> Vec<Span> {
    let trace_id = root.trace_id();
    let parent = task.parent.map(|id| TaskKey { id, ..key.clone() });
    let is_error = matches!(task.outcome.as_ref(), "failed" | "panicked" | "lost");
    let status = is_error.then(|| {
        let message = if task.cause.is_empty() {
            task.outcome.as_ref()
        } else {
            &*task.cause
        };
        Status {
            message: message.to_owned(),
            code: STATUS_ERROR,
        }
    });
    let span = Span {
        trace_id: trace_id.clone(),
        span_id: key.span_id(),
        parent_span_id: parent.map_or_else(Vec::new, |parent| parent.span_id()),
        name: task.name.clone(),
        kind: KIND_INTERNAL,
        start_time_unix_nano: nanoseconds(task.start_ns),
        end_time_unix_nano: nanoseconds(end_ns(task)),
        attributes: attributes(task),
        status,
    };
    let phases = task.phases.iter().enumerate().map(|(number, phase)| Span {
        trace_id: trace_id.clone(),
        span_id: key.phase_id(number),
        parent_span_id: key.span_id(),
        name: phase.name.clone(),
        kind: KIND_INTERNAL,
        start_time_unix_nano: nanoseconds(phase.start_ns),
        end_time_unix_nano: nanoseconds(phase.start_ns.saturating_add_unsigned(phase.duration_ns)),
        attributes: phase_attributes(phase),
        status: None,
    });
    std::iter::once(span).chain(phases).collect()
}

fn attributes(task: &Task) -> Vec<KeyValue> {
    let mut attributes = vec![
        text("emberline.task.key", &task.key),
        text(OUTCOME_ATTRIBUTE, task.outcome.as_ref()),
        integer("thread.id", task.thread_id.into()),
        text("thread.name", &task.thread_name),
    ];
    attributes.extend(
        task.attempt
            .map(|attempt| integer("emberline.task.attempt", attempt.into())),
    );
    let bytes = task
        .result_bytes
        .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    attributes.extend(bytes.map(|bytes| integer("emberline.task.result_bytes", bytes)));
    if !task.type_name.is_empty() {
        attributes.push(text("emberline.task.result_type", &task.type_name));
    }
    attributes.extend(task.labels.iter().map(|(key, value)| text(key, value)));
    attributes
}

fn phase_attributes(phase: &Phase) -> Vec<KeyValue> {
    let mut attributes = vec![text("emberline.kind", "phase")];
    if phase.count > 1 {
        // The sum of several intervals, whose places are unknown.
        attributes.push(integer("emberline.phase.intervals", phase.count.into()));
    }
    attributes
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::Text(value.to_owned()))
}

fn integer(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::Int(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        key_strindex: 0,
    }
}

fn nanoseconds(unix_ns: i64) -> u64 {
    u64::try_from(unix_ns).unwrap_or(0)
}

#[cfg(test)]
mod tests;
