//! Ledger rows on the wire.

use std::sync::Arc;

use super::{WireError, check_size, v1};
use crate::limits::{CAUSE_BYTES_MAX, NAME_BYTES_MAX, TASK_LABELS_MAX, TASK_PHASES_MAX};
use crate::{Outcome, PhaseInterval, TaskDetail, TaskId, TaskRecord, Timestamp};

/// Looks up an index in the receiver's string table.
pub type TextAt<'a> = &'a dyn Fn(u32) -> Option<Arc<str>>;

/// Encodes a task; `index` returns a string's index in the agent's table.
#[must_use]
pub fn encode_task(task: &TaskRecord, index: &mut dyn FnMut(&str) -> u32) -> v1::Task {
    v1::Task {
        id: task.id.0,
        name: index(&task.name),
        key: task.key.to_string(),
        thread_id: task.thread_id,
        thread_name: task.thread_name.to_string(),
        parent_id: task.parent.map_or(0, |parent| parent.0),
        start_ns: task.start.unix_ns(),
        stop_ns: task.stop.map_or(0, Timestamp::unix_ns),
        outcome: encode_outcome(task.outcome).into(),
        cause: task.cause.to_string(),
        ..task
            .detail
            .as_deref()
            .map(|detail| encode_detail(detail, index))
            .unwrap_or_default()
    }
}

/// Encodes a task's details alone; the other fields stay empty. `index` is as in [`encode_task`].
#[must_use]
pub fn encode_detail(detail: &TaskDetail, index: &mut dyn FnMut(&str) -> u32) -> v1::Task {
    let TaskDetail {
        attempt,
        result_bytes,
        type_name,
        labels,
        phases,
    } = detail;
    v1::Task {
        attempt: *attempt,
        result_bytes: *result_bytes,
        labels: labels
            .iter()
            .map(&mut |(key, value): &(Arc<str>, Arc<str>)| v1::Label {
                key: index(key),
                value: value.to_string(),
            })
            .collect(),
        type_name: index(type_name),
        phases: phases
            .iter()
            .map(|phase| encode_phase(phase, index))
            .collect(),
        ..v1::Task::default()
    }
}

pub(super) fn encode_outcome(outcome: Outcome) -> v1::Outcome {
    match outcome {
        Outcome::Running => v1::Outcome::Running,
        Outcome::Ok => v1::Outcome::Ok,
        Outcome::Failed => v1::Outcome::Failed,
        Outcome::Cancelled => v1::Outcome::Cancelled,
        Outcome::Panicked => v1::Outcome::Panicked,
        Outcome::Lost => v1::Outcome::Lost,
    }
}

pub(super) fn encode_phase(phase: &PhaseInterval, index: &mut dyn FnMut(&str) -> u32) -> v1::Phase {
    let PhaseInterval {
        name,
        start_ns,
        duration_ns,
        count,
    } = phase;
    v1::Phase {
        name: index(name),
        start_ns: *start_ns,
        duration_ns: *duration_ns,
        count: if *count > 1 { *count } else { 0 },
    }
}

/// Decodes a task; `text` looks up an index in the agent's string table. Times are the agent's.
///
/// # Errors
/// If the id is 0, a text, list or index is over its limit, the outcome is unknown or does not fit
/// the stop time, the task stopped before it started, or a phase is too long to represent.
pub fn decode_task(task: &v1::Task, text: TextAt<'_>) -> Result<TaskRecord, WireError> {
    if task.id == 0 {
        return invalid("a task's id", 0, "above 0");
    }
    check_size("a task's key, in bytes,", task.key.len(), NAME_BYTES_MAX)?;
    check_size(
        "a thread's name, in bytes,",
        task.thread_name.len(),
        NAME_BYTES_MAX,
    )?;
    check_size(
        "a task's cause, in bytes,",
        task.cause.len(),
        CAUSE_BYTES_MAX,
    )?;
    let outcome = decode_outcome("a task's outcome", task.outcome)?;
    let start = Timestamp::from_unix_ns(task.start_ns);
    let stop = (task.stop_ns != 0).then(|| Timestamp::from_unix_ns(task.stop_ns));
    if stop.is_some() == (outcome == Outcome::Running) {
        let allowed = "0 while it runs, and only then";
        return invalid("a task's stop", task.stop_ns.into(), allowed);
    }
    if stop.is_some_and(|stop| stop < start) {
        let length = i128::from(task.stop_ns) - i128::from(task.start_ns);
        return invalid("a task's stop - start", length, "at least 0");
    }
    Ok(TaskRecord {
        id: TaskId(task.id),
        name: text_at("the name of a task", task.name, text)?,
        key: task.key.as_str().into(),
        thread_id: task.thread_id,
        thread_name: task.thread_name.as_str().into(),
        parent: (task.parent_id != 0).then_some(TaskId(task.parent_id)),
        start,
        stop,
        outcome,
        cause: task.cause.as_str().into(),
        detail: decode_detail(task, text)?,
    })
}

fn invalid<T>(what: &'static str, value: i128, allowed: &'static str) -> Result<T, WireError> {
    Err(WireError::Invalid {
        what,
        value,
        allowed,
    })
}

/// Decodes a task's details; `None` if it has none.
///
/// # Errors
/// If a text, list or index is over its limit, or a phase is too long to represent.
pub fn decode_detail(
    task: &v1::Task,
    text: TextAt<'_>,
) -> Result<Option<Box<TaskDetail>>, WireError> {
    let v1::Task {
        attempt,
        result_bytes,
        type_name,
        labels,
        phases,
        ..
    } = task;
    check_size("labels of a task", labels.len(), TASK_LABELS_MAX)?;
    check_size("phases of a task", phases.len(), TASK_PHASES_MAX)?;
    let label = |label: &v1::Label| {
        check_size(
            "a label's value, in bytes,",
            label.value.len(),
            NAME_BYTES_MAX,
        )?;
        Ok((
            text_at("the key of a label", label.key, text)?,
            label.value.as_str().into(),
        ))
    };
    let detail = TaskDetail {
        attempt: *attempt,
        result_bytes: *result_bytes,
        type_name: text_at("the type of a task's result", *type_name, text)?,
        labels: labels.iter().map(label).collect::<Result<_, WireError>>()?,
        phases: phases
            .iter()
            .map(|phase| decode_phase(phase, text))
            .collect::<Result<_, _>>()?,
    };
    Ok((detail != TaskDetail::default()).then(|| Box::new(detail)))
}

pub(super) fn decode_outcome(what: &'static str, outcome: i32) -> Result<Outcome, WireError> {
    Ok(match v1::Outcome::try_from(outcome) {
        Ok(v1::Outcome::Running) => Outcome::Running,
        Ok(v1::Outcome::Ok) => Outcome::Ok,
        Ok(v1::Outcome::Failed) => Outcome::Failed,
        Ok(v1::Outcome::Cancelled) => Outcome::Cancelled,
        Ok(v1::Outcome::Panicked) => Outcome::Panicked,
        Ok(v1::Outcome::Lost) | Err(_) => {
            let allowed = "an outcome that a worker can know";
            return Err(WireError::Invalid {
                what,
                value: outcome.into(),
                allowed,
            });
        }
    })
}

pub(super) fn decode_phase(
    phase: &v1::Phase,
    text: TextAt<'_>,
) -> Result<PhaseInterval, WireError> {
    let end = i128::from(phase.start_ns) + i128::from(phase.duration_ns);
    if i64::try_from(end).is_err() {
        return Err(WireError::Invalid {
            what: "a phase's end",
            value: end,
            allowed: "within 292 years of the task's start",
        });
    }
    Ok(PhaseInterval {
        name: text_at("the name of a phase", phase.name, text)?,
        start_ns: phase.start_ns,
        duration_ns: phase.duration_ns,
        count: phase.count.max(1),
    })
}

pub(super) fn text_at(
    what: &'static str,
    index: u32,
    text: TextAt<'_>,
) -> Result<Arc<str>, WireError> {
    text(index).ok_or(WireError::UnknownText { what, index })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> TaskRecord {
        TaskRecord {
            id: TaskId(7),
            name: "load".into(),
            key: "load-7".into(),
            thread_id: 12,
            thread_name: "worker".into(),
            parent: Some(TaskId(6)),
            start: Timestamp::from_unix_ns(100),
            stop: Some(Timestamp::from_unix_ns(130)),
            outcome: Outcome::Failed,
            cause: "no such file".into(),
            detail: Some(Box::new(TaskDetail {
                attempt: 2,
                result_bytes: Some(0),
                type_name: "Matrix".into(),
                labels: vec![("color".into(), "blue".into())],
                phases: vec![
                    PhaseInterval {
                        name: "queue".into(),
                        start_ns: -5,
                        duration_ns: 5,
                        count: 1,
                    },
                    PhaseInterval {
                        name: "mine".into(),
                        start_ns: 3,
                        duration_ns: 9,
                        count: 4,
                    },
                ],
            })),
        }
    }

    /// Every text of the record by its index.
    const TEXTS: [&str; 6] = ["", "load", "Matrix", "color", "queue", "mine"];

    fn text(index: u32) -> Option<Arc<str>> {
        TEXTS.get(index as usize).map(|text| (*text).into())
    }

    fn encoded(task: &TaskRecord) -> v1::Task {
        encode_task(task, &mut |text| {
            TEXTS
                .iter()
                .position(|it| *it == text)
                .unwrap()
                .try_into()
                .unwrap()
        })
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        let running = TaskRecord {
            stop: None,
            outcome: Outcome::Running,
            cause: "".into(),
            ..record()
        };
        let bare = TaskRecord {
            detail: None,
            parent: None,
            ..record()
        };
        for task in [record(), running, bare] {
            assert_eq!(decode_task(&encoded(&task), &text), Ok(task));
        }
    }

    fn check_rejected(change: impl FnOnce(&mut v1::Task), expected: &str) {
        let mut message = encoded(&record());
        change(&mut message);
        assert_eq!(
            decode_task(&message, &text).unwrap_err().to_string(),
            expected
        );
    }

    #[test]
    fn invalid_tasks_are_rejected() {
        check_rejected(|t| t.id = 0, "a task's id is 0; it must be above 0");
        check_rejected(
            |t| t.stop_ns = 90,
            "a task's stop - start is -10; it must be at least 0",
        );
        check_rejected(
            |t| t.stop_ns = 0,
            "a task's stop is 0; it must be 0 while it runs, and only then",
        );
        check_rejected(
            |t| t.outcome = v1::Outcome::Lost.into(),
            "a task's outcome is 5; it must be an outcome that a worker can know",
        );
        check_rejected(
            |t| t.phases[0].name = 6,
            "the name of a phase is string 6, which is not in the string table",
        );
        check_rejected(
            |t| t.phases[0].duration_ns = u64::MAX,
            "a phase's end is 18446744073709551610; it must be within 292 years of the task's start",
        );
        check_rejected(
            |t| t.labels = vec![v1::Label::default(); 17],
            "labels of a task is 17; at most 16 is allowed",
        );
        check_rejected(
            |t| t.cause = "x".repeat(1025),
            "a task's cause, in bytes, is 1025; at most 1024 is allowed",
        );
    }
}
