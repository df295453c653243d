//! Rows of the ledger on the wire.

use std::sync::Arc;

use super::{WireError, check_size, v1};
use crate::limits::{CAUSE_BYTES_MAX, NAME_BYTES_MAX};
use crate::{Outcome, TaskId, TaskRecord, Timestamp};

/// Encodes a task; `name` is the index of its name in the agent's table of strings.
#[must_use]
pub fn encode_task(task: &TaskRecord, name: u32) -> v1::Task {
    let outcome = match task.outcome {
        Outcome::Running => v1::Outcome::Running,
        Outcome::Ok => v1::Outcome::Ok,
        Outcome::Erred => v1::Outcome::Erred,
        Outcome::Cancelled => v1::Outcome::Cancelled,
        Outcome::Panicked => v1::Outcome::Panicked,
        Outcome::Lost => v1::Outcome::Lost,
    };
    v1::Task {
        id: task.id.0,
        name,
        key: task.key.to_string(),
        thread_id: task.thread_id,
        thread_name: task.thread_name.to_string(),
        parent_id: task.parent.map_or(0, |parent| parent.0),
        start_ns: task.start.unix_ns(),
        stop_ns: task.stop.map_or(0, Timestamp::unix_ns),
        outcome: outcome.into(),
        cause: task.cause.to_string(),
    }
}

/// Decodes a task; `name` is what its name's index stands for. Times are the agent's.
///
/// # Errors
/// If its id is 0, a text is over its limit, its outcome is unknown or does not fit its stop, or it
/// stopped before it started.
pub fn decode_task(task: &v1::Task, name: Arc<str>) -> Result<TaskRecord, WireError> {
    let invalid = |what, value: i128, allowed| Err(WireError::Invalid { what, value, allowed });
    if task.id == 0 {
        return invalid("a task's id", 0, "above 0");
    }
    check_size("a task's key, in bytes,", task.key.len(), NAME_BYTES_MAX)?;
    check_size("a thread's name, in bytes,", task.thread_name.len(), NAME_BYTES_MAX)?;
    check_size("a task's cause, in bytes,", task.cause.len(), CAUSE_BYTES_MAX)?;
    let outcome = match v1::Outcome::try_from(task.outcome) {
        Ok(v1::Outcome::Running) => Outcome::Running,
        Ok(v1::Outcome::Ok) => Outcome::Ok,
        Ok(v1::Outcome::Erred) => Outcome::Erred,
        Ok(v1::Outcome::Cancelled) => Outcome::Cancelled,
        Ok(v1::Outcome::Panicked) => Outcome::Panicked,
        Ok(v1::Outcome::Lost) | Err(_) => {
            let allowed = "an outcome that a worker can know";
            return invalid("a task's outcome", task.outcome.into(), allowed);
        }
    };
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
        name,
        key: task.key.as_str().into(),
        thread_id: task.thread_id,
        thread_name: task.thread_name.as_str().into(),
        parent: (task.parent_id != 0).then_some(TaskId(task.parent_id)),
        start,
        stop,
        outcome,
        cause: task.cause.as_str().into(),
    })
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
            outcome: Outcome::Erred,
            cause: "no such file".into(),
        }
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        let running =
            TaskRecord { stop: None, outcome: Outcome::Running, cause: "".into(), ..record() };
        for task in [record(), running, TaskRecord { parent: None, ..record() }] {
            assert_eq!(decode_task(&encode_task(&task, 3), task.name.clone()), Ok(task));
        }
    }

    fn check_refused(change: impl FnOnce(&mut v1::Task), expected: &str) {
        let mut message = encode_task(&record(), 3);
        change(&mut message);
        assert_eq!(decode_task(&message, "load".into()).unwrap_err().to_string(), expected);
    }

    #[test]
    fn wrong_tasks_are_refused() {
        check_refused(|t| t.id = 0, "a task's id is 0; it must be above 0");
        check_refused(|t| t.stop_ns = 90, "a task's stop - start is -10; it must be at least 0");
        check_refused(
            |t| t.stop_ns = 0,
            "a task's stop is 0; it must be 0 while it runs, and only then",
        );
        check_refused(
            |t| t.outcome = v1::Outcome::Lost.into(),
            "a task's outcome is 5; it must be an outcome that a worker can know",
        );
        check_refused(
            |t| t.cause = "x".repeat(1025),
            "a task's cause, in bytes, is 1025; at most 1024 is allowed",
        );
    }
}
