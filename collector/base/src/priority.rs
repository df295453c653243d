//! The priority of threads whose work others should not wait for.

use std::sync::OnceLock;

use rustix::process::{getpriority_process, setpriority_process};

/// The lowest priority of a thread.
const NICENESS_MAX: i32 = 19;

/// The priority of a thread. On Linux each has its own, and those that it starts inherit it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    /// `None` if the system does not tell it.
    niceness: Option<i32>,
}

impl Priority {
    /// That of the calling thread.
    pub fn current() -> Priority {
        let niceness = getpriority_process(None);
        if let Err(error) = &niceness {
            tracing::warn!(%error, "the priority of a thread is not known");
        }
        Priority {
            niceness: niceness.ok(),
        }
    }

    /// Lower than the process's own, however often the calling thread was lowered before.
    pub fn lowered_by(steps: i32) -> Priority {
        /// Read before the first thread is lowered.
        static OWN: OnceLock<Priority> = OnceLock::new();
        let Priority { niceness } = OWN.get_or_init(Priority::current);
        Priority {
            niceness: niceness.map(|niceness| (niceness + steps).min(NICENESS_MAX)),
        }
    }

    /// Sets it for the calling thread, which may be without the right to set it back.
    pub fn apply(self) {
        let Some(niceness) = self.niceness else {
            return;
        };
        if let Err(error) = setpriority_process(None, niceness) {
            tracing::warn!(%error, niceness, "the priority of a thread could not be lowered");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Also on threads that are started by a lowered one: without it, each adoption of a process would lower it
    /// further.
    #[test]
    fn a_thread_that_is_lowered_twice_is_lowered_once() {
        let lowered = Priority::lowered_by(2);
        let again = thread::spawn(move || {
            lowered.apply();
            Priority::lowered_by(2).apply();
            [
                Priority::current(),
                thread::spawn(|| {
                    Priority::lowered_by(2).apply();
                    Priority::current()
                })
                .join()
                .unwrap(),
            ]
        });
        assert_eq!(again.join().unwrap(), [lowered; 2]);
    }
}
