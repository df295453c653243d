//! Spans of `tracing` as tasks.

use std::fmt::{self, Debug};
use std::sync::Arc;

use profiler_core::Outcome;
use profiler_core::limits::bounded_name;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::bounded_cause;
use super::running::{Running, TaskOptions};
use super::scope::span;
use super::thread::{self, TaskRef};
use crate::{registry, threads, wanted};

/// A layer that makes spans tasks, for a program that already has spans: of `#[instrument]`, of
/// `.instrument(span)` on a future, and of `span.enter()`.
///
/// While a span is entered, samples of that thread belong to its task, so a future is attributed
/// correctly on every thread that polls it. The task starts with the span and ends when the span is
/// closed, which is when its last handle is dropped.
///
/// - Spans at [`Level::INFO`] and above become tasks by default. Choose few, for example one per
///   request or job: each is a row in the ledger.
/// - The task's name is the span's name, or the value of its field `task`. The field `task.key` is its
///   key, and may also be recorded later.
/// - The parent is the span's explicit parent, or else the current task where the span is created.
/// - The task ends as `failed` if an event at level ERROR happened in it, as `#[instrument(err)]`
///   writes; the cause is the last event's field `error`, or else its message. It ends as `panicked` if
///   a panic unwound through it, and otherwise as `ok`: a dropped future looks like a finished one.
///
/// Add the layer to the subscriber next to your others; it filters nothing for them.
///
/// ```
/// use emberline_agent::TaskLayer;
/// use tracing_subscriber::layer::SubscriberExt as _;
///
/// let tasks = TaskLayer::new().with_target_prefix("my_service");
/// let subscriber = tracing_subscriber::registry().with(tasks);
/// tracing::subscriber::with_default(subscriber, || {
///     let _load = tracing::info_span!(target: "my_service", "load", task.key = "load-17").entered();
///     // … the work: samples of this thread now belong to `load` …
/// });
/// ```
pub struct TaskLayer {
    level: Level,
    target_prefixes: Vec<String>,
    filter: Option<Filter>,
    error_events: bool,
}

type Filter = Box<dyn Fn(&Metadata<'_>) -> bool + Send + Sync>;

impl Default for TaskLayer {
    fn default() -> Self {
        TaskLayer::new()
    }
}

impl TaskLayer {
    /// Returns a layer that makes all spans at level INFO and above tasks.
    #[must_use]
    pub fn new() -> TaskLayer {
        TaskLayer {
            level: Level::INFO,
            target_prefixes: Vec::new(),
            filter: None,
            error_events: true,
        }
    }

    /// Makes only spans at `level` and above tasks.
    #[must_use]
    pub fn with_max_level(mut self, level: Level) -> TaskLayer {
        self.level = level;
        self
    }

    /// Makes only spans of this target and the modules below it tasks: `my_service` includes
    /// `my_service::http`. May be called several times.
    #[must_use]
    pub fn with_target_prefix(mut self, prefix: impl Into<String>) -> TaskLayer {
        self.target_prefixes.push(prefix.into());
        self
    }

    /// Makes only spans for which `is_task` returns true tasks. It is called when a span is created and
    /// its level and target match.
    ///
    /// ```
    /// # use emberline_agent::TaskLayer;
    /// let layer = TaskLayer::new().with_filter_fn(|span| span.fields().field("task").is_some());
    /// ```
    #[must_use]
    pub fn with_filter_fn(
        mut self,
        is_task: impl Fn(&Metadata<'_>) -> bool + Send + Sync + 'static,
    ) -> TaskLayer {
        self.filter = Some(Box::new(is_task));
        self
    }

    /// Sets whether an event at level ERROR fails the innermost task around it. The default is `true`.
    /// Turn it off if the program logs errors from which it recovers.
    #[must_use]
    pub fn with_error_events(mut self, fail_task: bool) -> TaskLayer {
        self.error_events = fail_task;
        self
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let prefixes = &self.target_prefixes;
        *metadata.level() <= self.level
            && (prefixes.is_empty() || prefixes.iter().any(|at| is_below(metadata.target(), at)))
            && self.filter.as_ref().is_none_or(|filter| filter(metadata))
    }
}

impl Debug for TaskLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TaskLayer")
            .field("level", &self.level)
            .field("target_prefixes", &self.target_prefixes)
            .field("error_events", &self.error_events)
            .finish_non_exhaustive()
    }
}

fn is_below(target: &str, prefix: &str) -> bool {
    target
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The task of a span, as the span's extension.
struct SpanTask {
    running: Running,
    /// The cause from its last error event.
    error: Option<Arc<str>>,
    panicked: bool,
}

/// Returns the task of the span itself, without its parents.
fn own_task<'a, S: LookupSpan<'a>>(span: &SpanRef<'a, S>) -> Option<TaskRef> {
    span.extensions()
        .get::<SpanTask>()
        .map(|task| task.running.task())
}

impl<S> Layer<S> for TaskLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !wanted::by_anyone() || !self.wants(attributes.metadata()) || threads::is_agent() {
            return;
        }
        let Some(span) = context.span(id) else { return };
        let mut fields = TaskFields::default();
        attributes.record(&mut fields);
        let name = registry::name_id(fields.name.as_deref().unwrap_or(span.name()));
        let parent = match attributes.parent() {
            Some(parent) => context
                .span_scope(parent)
                .and_then(|mut all| all.find_map(|s| own_task(&s))),
            None if attributes.is_root() => None,
            None => Some(thread::current()),
        };
        let key = fields.key.map(Arc::from);
        let parent = Some(parent.unwrap_or(TaskRef::NONE));
        let options = TaskOptions {
            key,
            parent,
            ..TaskOptions::default()
        };
        if let Some(running) = Running::begin(name, options) {
            let task = SpanTask {
                running,
                error: None,
                panicked: false,
            };
            span.extensions_mut().replace(task);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if own_task(&span).is_none() {
            return;
        }
        // Formatting the values runs code of the program, so the span must not be locked.
        let mut fields = TaskFields::default();
        values.record(&mut fields);
        if let (Some(key), Some(task)) = (fields.key, span.extensions_mut().get_mut::<SpanTask>()) {
            task.running.key = Some(key.into());
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if !self.error_events || *event.metadata().level() != Level::ERROR || !wanted::by_anyone() {
            return;
        }
        let around = context.event_scope(event);
        let Some(span) = around.and_then(|mut all| all.find(|span| own_task(span).is_some()))
        else {
            return;
        };
        let mut fields = ErrorFields::default();
        event.record(&mut fields);
        let cause = fields.error.unwrap_or(fields.message);
        if let Some(task) = span.extensions_mut().get_mut::<SpanTask>() {
            task.error = Some(bounded_cause(cause));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(task) = context.span(id).and_then(|span| own_task(&span)) {
            span::enter(task);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let Some(task) = own_task(&span) else { return };
        let panicked = span::leave(task);
        if !panicked {
            return;
        }
        if let Some(task) = span.extensions_mut().get_mut::<SpanTask>() {
            task.panicked = true;
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else {
            return;
        };
        let Some(mut task) = span.extensions_mut().remove::<SpanTask>() else {
            return;
        };
        let (outcome, cause) = match task.error.take() {
            _ if task.panicked => (Outcome::Panicked, None),
            Some(cause) => (Outcome::Failed, Some(cause)),
            None => (Outcome::Ok, None),
        };
        task.running.set_cause(cause);
        task.running.end(outcome);
    }
}

/// The fields of a span that name its task.
#[derive(Default)]
struct TaskFields {
    name: Option<String>,
    key: Option<String>,
}

impl Visit for TaskFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let slot = match field.name() {
            "task" => &mut self.name,
            "task.key" => &mut self.key,
            _ => return,
        };
        *slot = Some(bounded_name(&format!("{value:?}")).into_owned());
    }
}

/// The fields of an error event that describe the cause.
#[derive(Default)]
struct ErrorFields {
    error: Option<String>,
    message: String,
}

impl Visit for ErrorFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "error" => self.error = Some(format!("{value:?}")),
            "message" => self.message = format!("{value:?}"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_match_whole_module_names() {
        for (target, prefix, below) in [
            ("load", "load", true),
            ("load::disk", "load", true),
            ("loader", "load", false),
            ("a::load", "load", false),
        ] {
            assert_eq!(is_below(target, prefix), below, "{target} {prefix}");
        }
    }
}
