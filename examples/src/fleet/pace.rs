//! Limits the CPU time of a worker, so that a fleet leaves some of its machine free.
//!
//! A fleet that wants more than all processors shows little but threads that wait for one: 65% of its
//! time on a machine with two. A worker therefore has a budget of CPU time, and rests between two jobs
//! when it has used more.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// Share of the machine's processors that a fleet uses.
pub(super) const MACHINE_SHARE: f64 = 0.7;
/// CPU time that an idle worker saves up.
const SAVED_MAX: Duration = Duration::from_millis(100);
/// Longest rest at once; the rest of it follows the next job.
const REST_MAX: Duration = Duration::from_secs(2);

/// The budget of a worker.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Processors that the worker may use; a fraction of one on small machines.
    processors: f64,
    used: Mutex<Usage>,
}

/// CPU time that was used since an instant.
#[derive(Debug, Clone, Copy)]
struct Usage {
    since: Instant,
    /// CPU time of the process at that instant.
    cpu: Duration,
}

impl Pace {
    /// The budget of one of `workers` workers on this machine.
    pub(super) fn of_machine(workers: usize) -> Pace {
        let machine = std::thread::available_parallelism().map_or(1, usize::from);
        Pace::new(MACHINE_SHARE * machine as f64 / workers as f64)
    }

    fn new(processors: f64) -> Pace {
        let used = Usage {
            since: Instant::now(),
            cpu: cpu_time(),
        };
        Pace {
            processors,
            used: Mutex::new(used),
        }
    }

    /// The number of threads that may compute at once.
    pub(crate) fn threads(&self, most: usize) -> usize {
        // Two threads with a third of a processor each would only wait for each other.
        (self.processors.round() as usize).clamp(1, most)
    }

    /// How long to rest now.
    pub(crate) fn rest(&self) -> Duration {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.rest(
            Usage {
                since: Instant::now(),
                cpu: cpu_time(),
            },
            self.processors,
        )
    }
}

impl Usage {
    fn rest(&mut self, now: Usage, processors: f64) -> Duration {
        let earned = now.since.duration_since(self.since).mul_f64(processors);
        let spent = now.cpu.saturating_sub(self.cpu);
        if let Some(owed) = spent.checked_sub(earned) {
            return owed.div_f64(processors).min(REST_MAX);
        }
        if earned - spent > SAVED_MAX {
            let since = now.since.checked_sub(SAVED_MAX.div_f64(processors));
            *self = Usage {
                since: since.unwrap_or(now.since),
                cpu: now.cpu,
            };
        }
        Duration::ZERO
    }
}

/// CPU time of this process; zero if the kernel does not say.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_worker_rests_until_its_cpu_time_is_within_its_share() {
        let start = Usage {
            since: Instant::now(),
            cpu: 50 * MS,
        };
        let mut used = start;
        let mut rest_after = |elapsed_ms: u32, cpu_ms: u32| {
            let now = Usage {
                since: start.since + elapsed_ms * MS,
                cpu: start.cpu + cpu_ms * MS,
            };
            used.rest(now, 0.25)
        };
        assert_eq!(rest_after(100, 100), 300 * MS);
        assert_eq!(rest_after(400, 100), Duration::ZERO);
        assert_eq!(rest_after(600, 200), 200 * MS);
        assert_eq!(rest_after(600, 2_000), REST_MAX, "a rest has a limit");
        // Idle for a long time: only 100 ms of CPU time are saved.
        assert_eq!(rest_after(60_000, 2_000), Duration::ZERO);
        assert_eq!(rest_after(60_000, 2_100), Duration::ZERO);
        assert_eq!(rest_after(60_000, 2_200), 400 * MS);
    }

    #[test]
    fn a_share_below_two_processors_has_one_thread() {
        let threads = [0.1, 0.35, 1.4, 1.6, 2.4, 9.0].map(|share| Pace::new(share).threads(2));
        assert_eq!(threads, [1, 1, 1, 2, 2, 2]);
    }
}
