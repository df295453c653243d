//! Labels of a sample: those with a place in our profiles, and the others.

use profiler_core::State;
use profiler_core::limits::bounded_name;

use super::builder::Builder;
use super::model::Labels;

/// The labels of a sample.
#[derive(Default)]
pub(super) struct SampleLabels<'t> {
    pub(super) task: Option<&'t str>,
    pub(super) phase: Option<&'t str>,
    pub(super) thread: Option<&'t str>,
    pub(super) state: Option<State>,
    /// Those that have no place in our profiles.
    pub(super) others: Labels,
}

impl<'t> SampleLabels<'t> {
    /// Adds a label; `text` is `None` if its value is a number.
    pub(super) fn add(&mut self, builder: &mut Builder<'_>, key: &str, text: Option<&'t str>) {
        let Some(text) = text else {
            builder.note("labels whose values are numbers were dropped");
            return;
        };
        match key {
            _ if key == builder.options.task_label => self.task = Some(text),
            "phase" => self.phase = Some(text),
            "thread" | "thread_name" => self.thread = Some(text),
            "state" => {
                self.state = State::from_name(text);
                if self.state.is_none() {
                    builder.note(format!(
                        "labels state that are none of {} were dropped",
                        State::ALL.map(State::name).join(", ")
                    ));
                }
            }
            _ if builder.options.keep_labels && is_kept(key, text) => {
                let [key, text] = [key, text].map(|text| bounded_name(text).into_owned());
                self.others.insert(key, text);
            }
            _ => builder.note("labels other than task, phase, thread and state were dropped"),
        }
    }
}

/// Whether a label of samples describes what ran. Numbers have no text, and ids of threads, spans and
/// profiles have a value for each of these.
fn is_kept(key: &str, text: &str) -> bool {
    const IDS: [&str; 5] = [
        "thread_id",
        "span_id",
        "trace_id",
        "span_name",
        "profile_id",
    ];
    !key.is_empty() && !text.is_empty() && !IDS.contains(&key)
}
