//! The events of a track: a viewer treats an event inside another as its child, and cannot show events
//! that overlap in part.

use api::{Phase, Task};

use super::task::Interval;

/// The events of a track that may not have ended yet.
#[derive(Default, Debug)]
pub(super) struct Lane {
    /// Tasks, each inside the previous one.
    open: Vec<Open>,
    /// Their phases.
    phases: Vec<Interval>,
}

#[derive(Debug)]
struct Open {
    id: u64,
    interval: Interval,
}

impl Lane {
    /// Adds a task with its phases if the track is free, or if the task lies wholly inside its own
    /// parent, and wholly inside or outside each of the parent's phases. Returns whether it fits. Tasks
    /// come in the order of their starts, the longer first.
    pub(super) fn add(&mut self, task: &Task, inside: &[&Phase]) -> bool {
        let interval = Interval::of_task(task);
        self.open
            .retain(|open| open.interval.stop_ns > interval.start_ns);
        self.phases
            .retain(|phase| phase.stop_ns > interval.start_ns);
        let is_child = self.open.last().is_none_or(|parent| {
            task.parent == Some(parent.id) && parent.interval.contains(interval)
        });
        if !is_child
            || !self.phases.iter().all(|phase: &Interval| {
                phase.start_ns >= interval.stop_ns || phase.contains(interval)
            })
        {
            return false;
        }
        self.open.push(Open {
            id: task.id,
            interval,
        });
        self.phases
            .extend(inside.iter().map(|phase| Interval::of_phase(phase)));
        true
    }
}
