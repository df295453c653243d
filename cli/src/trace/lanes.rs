//! What lies on a track: a viewer takes whatever is inside something else for its child, and cannot
//! show what is inside only in part.

use super::{Phase, Task};

/// A track, as far as something on it may go on.
#[derive(Default, Debug)]
pub(super) struct Lane {
    /// Tasks, each inside the one before.
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
    /// Takes a task in with its phases if nothing goes on here, or if it lies wholly inside its own
    /// parent, and inside or outside each of the parent's phases. Tasks come in the order of their
    /// starts, the longer first.
    pub(super) fn take(&mut self, task: &Task, inside: &[&Phase]) -> bool {
        let (start_ns, stop_ns) = (task.start_ns, task.stop_ns());
        self.open.retain(|open| open.stop_ns > start_ns);
        self.phases.retain(|(_, phase_stop_ns)| *phase_stop_ns > start_ns);
        let is_child = self
            .open
            .last()
            .is_none_or(|parent| task.parent == Some(parent.id) && stop_ns <= parent.stop_ns);
        // A phase that began before holds the task, or else begins when the task is over.
        let clear = |&(from_ns, to_ns): &(i64, i64)| {
            from_ns >= stop_ns || (from_ns <= start_ns && to_ns >= stop_ns)
        };
        if !is_child || !self.phases.iter().all(clear) {
            return false;
        }
        self.open.push(Open { id: task.id, stop_ns });
        self.phases.extend(inside.iter().map(|phase| phase.span()));
        true
    }
}
