//! The priority of threads whose work others should not wait for.

use rustix::process::{getpriority_process, setpriority_process};

/// The lowest priority of a thread.
const NICENESS_MAX: i32 = 19;

/// The priority of a thread. On Linux each has its own, and those that it starts inherit it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priority {
    /// `None` if the system does not tell it.
    niceness: Option<i32>,
}

impl Priority {
    /// Lower than that of the calling thread.
    pub(crate) fn lowered_by(steps: i32) -> Priority {
        let current = getpriority_process(None);
        if let Err(error) = &current {
            tracing::warn!(%error, "the priority of a thread is not known");
        }
        Priority { niceness: current.ok().map(|niceness| (niceness + steps).min(NICENESS_MAX)) }
    }

    /// Sets it for the calling thread, which may be without the right to set it back.
    pub(crate) fn apply(self) {
        let Some(niceness) = self.niceness else { return };
        if let Err(error) = setpriority_process(None, niceness) {
            tracing::warn!(%error, niceness, "the priority of a thread could not be lowered");
        }
    }

    #[cfg(test)]
    pub(crate) fn niceness(self) -> Option<i32> {
        self.niceness
    }
}
