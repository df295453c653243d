//! Sources of samples of threads while they run.

use std::fmt;
use std::fs;
use std::io;

use crate::sys::perf::{Event, Scope};

/// Allows events of the kernel.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// From this level on, users may sample not even their own processes.
const PARANOID_REFUSES: i64 = 3;

/// How running threads may be sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RunningSource {
    /// By events of the kernel (`perf_event_open`).
    #[default]
    Events,
    /// By stopping them for a moment (`ptrace`).
    Stops,
}

/// How running threads are sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunningSamples {
    /// By events, also while they run in the kernel.
    Events,
    /// By events of their user code; what the kernel does for them counts at the next one.
    UserEvents,
    /// By stopping them.
    Stops,
}

/// Why the kernel does not sample.
#[derive(Debug)]
pub(crate) struct Refused {
    paranoid: Option<i64>,
    error: io::Error,
}

impl RunningSamples {
    /// Finds out what the system allows, on a thread of the process.
    ///
    /// # Errors
    /// [`Refused`]
    pub(crate) fn find(
        source: RunningSource,
        thread: u32,
        period_ns: u64,
    ) -> Result<RunningSamples, Refused> {
        if source == RunningSource::Stops {
            return Ok(RunningSamples::Stops);
        }
        let mut last = None;
        for samples in [RunningSamples::Events, RunningSamples::UserEvents] {
            match Event::open(thread, period_ns, samples.scope()) {
                Ok(_) => return Ok(samples),
                // It has ended, which the recording finds out.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(samples),
                Err(error) => last = Some(error),
            }
        }
        let paranoid = fs::read_to_string(PARANOID).ok();
        Err(Refused {
            paranoid: paranoid.and_then(|level| level.trim().parse().ok()),
            error: last.unwrap_or_else(|| io::Error::other("no kind of event")),
        })
    }

    pub(crate) fn scope(self) -> Scope {
        match self {
            RunningSamples::UserEvents => Scope::User,
            RunningSamples::Events | RunningSamples::Stops => Scope::All,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self
            .paranoid
            .map_or("missing".to_owned(), |level| level.to_string());
        let way_on = match self.paranoid {
            None => "this kernel has no events",
            Some(PARANOID_REFUSES..) => {
                "run as root or with the capability PERFMON, or set sysctl kernel.perf_event_paranoid=2"
            }
            Some(_) => {
                "a seccomp profile forbids the call; docker's allows it with --cap-add PERFMON"
            }
        };
        write!(
            f,
            "the kernel refuses to sample running threads (perf_event_open: {}; kernel.perf_event_paranoid is {level}): \
             {way_on}; or use --ptrace, which stops each running thread 100 times a second for some 40 µs and lets \
             system calls that wait fail with EINTR now and then",
            self.error
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_on_is_that_of_the_cause() {
        for (paranoid, expected) in [
            (None, "has no events; or use --ptrace"),
            (Some(4), "perf_event_paranoid=2; or use --ptrace"),
            (Some(2), "--cap-add PERFMON; or use --ptrace"),
            (Some(-1), "--cap-add PERFMON; or use --ptrace"),
        ] {
            let refused = Refused {
                paranoid,
                error: io::Error::from_raw_os_error(libc::EPERM),
            };
            let text = refused.to_string();
            assert!(text.contains(expected), "{paranoid:?}: {text}");
        }
    }
}
