//! The events of a track: a viewer treats an event inside another as its child, and cannot show events
//! that overlap in part.

use api::{Phase, Task};

use super::task::{end_ns, span};

/// The events of a track that may not have ended yet.
#[derive(Default, Debug)]
pub(super) struct Lane {
    /// Tasks, each inside the previous one.
    open: Vec<Open>,
    /// Start and stop of their phases.
    phases: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct Open {
    id: u64,
    stop_ns: i64,
}

impl Lane {
    /// Adds a task with its phases if the track is free, or if the task lies wholly inside its own
    /// parent, and wholly inside or outside each of the parent's phases. Returns whether it fits. Tasks
    /// come in the order of their starts, the longer first.
    pub(super) fn add(&mut self, task: &Task, inside: &[&Phase]) -> bool {
        let start_ns = task.start_ns;
        let stop_ns = end_ns(task);
        self.open.retain(|open| open.stop_ns > start_ns);
        self.phases.retain(|(_, phase_stop_ns)| *phase_stop_ns > start_ns);
        let is_child = self
            .open
            .last()
            .is_none_or(|parent| task.parent == Some(parent.id) && stop_ns <= parent.stop_ns);
        // A phase contains the task, or starts after its end.
        let clear = |&(from_ns, to_ns): &(i64, i64)| {
            from_ns >= stop_ns || (from_ns <= start_ns && to_ns >= stop_ns)
        };
        if !is_child || !self.phases.iter().all(clear) {
            return false;
        }
        self.open.push(Open { id: task.id, stop_ns });
        self.phases.extend(inside.iter().map(|phase| span(phase)));
        true
    }
}
