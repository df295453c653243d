//! What this process, its control group and its machine use, looked at every half second. What the
//! system does not tell is left out, and nothing here can fail.

mod cgroup;
mod file;
mod host;
mod process;

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use profiler_core::{Resource, ResourceSample};

use self::cgroup::Cgroup;
use self::host::Host;
use self::process::Process;
use crate::{clock, memory_report};

/// The unit of times in `/proc`: a hundredth of a second for every program on Linux.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// The least time that is worth a sample of its own when an agent ends.
const LAST_PERIOD_NS_MIN: u64 = 1_000_000;

/// What one look saw, by [`Resource`]; of what is counted, the sum so far.
#[derive(Clone, Debug, Default)]
struct Look([Option<u64>; Resource::ALL.len()]);

impl Look {
    fn set(&mut self, resource: Resource, value: Option<u64>) {
        self.0[resource as usize] = value;
    }

    /// What came up since `before`, and what there is now. A sum that shrank, such as of a link that
    /// is gone, tells nothing of its period and is left out.
    fn since(&self, before: &Look) -> Vec<(Resource, u64)> {
        let value = |resource: Resource| {
            let now = self.0[resource as usize]?;
            match resource.is_counted() {
                true => now.checked_sub(before.0[resource as usize]?),
                false => Some(now),
            }
        };
        let all = Resource::ALL.into_iter();
        all.filter_map(|resource| Some((resource, value(resource)?))).collect()
    }
}

/// Looks again and again, keeping its files open.
#[derive(Debug)]
pub(crate) struct ResourceSampler {
    interval_ns: u64,
    /// By the monotonic clock.
    due_ns: u64,
    before: Option<(u64, Look)>,
    process: Process,
    host: Host,
    cgroup: Cgroup,
}

impl ResourceSampler {
    /// Looks at once, and then at every `interval`. A look takes some 80 µs, two thirds of them for the
    /// machine's own files.
    pub(crate) fn start(interval: Duration) -> ResourceSampler {
        ResourceSampler {
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            due_ns: 0,
            before: None,
            process: Process::default(),
            host: Host::default(),
            cgroup: Cgroup::default(),
        }
    }

    /// A sample, if it is time for one. The first look only says what the next one compares with.
    pub(crate) fn sample_if_due(&mut self) -> Option<ResourceSample> {
        let now_ns = clock::monotonic_ns();
        if now_ns < self.due_ns {
            return None;
        }
        // On a grid, so that lateness does not add up; what was missed altogether is not made up for.
        let next_ns = self.due_ns.saturating_add(self.interval_ns);
        let on_grid = next_ns > now_ns;
        self.due_ns = if on_grid { next_ns } else { now_ns.saturating_add(self.interval_ns) };
        self.sample(now_ns)
    }

    /// What there was since the last sample.
    pub(crate) fn sample_last(&mut self) -> Option<ResourceSample> {
        let now_ns = clock::monotonic_ns();
        let begun_ns = self.before.as_ref().map(|(at_ns, _)| *at_ns)?;
        (now_ns.saturating_sub(begun_ns) >= LAST_PERIOD_NS_MIN).then(|| self.sample(now_ns))?
    }

    fn sample(&mut self, now_ns: u64) -> Option<ResourceSample> {
        let mut look = Look::default();
        self.process.look(&mut look);
        self.host.look(&mut look);
        self.cgroup.look(&mut look);
        if let Some(reported) = memory_report::latest() {
            look.set(Resource::ManagedMemory, Some(reported.managed_bytes));
            look.set(Resource::SpilledMemory, Some(reported.spilled_bytes));
        }
        let (before_ns, before) = self.before.replace((now_ns, look.clone()))?;
        Some(ResourceSample {
            at: clock::at(now_ns),
            period_ns: now_ns.saturating_sub(before_ns),
            values: look.since(&before),
        })
    }
}

/// Nanoseconds of a clock of processor time; `None` for a process that is gone.
pub(crate) fn cpu_clock_ns(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let (seconds, rest) = (u64::try_from(time.tv_sec()).ok()?, u64::try_from(time.tv_nsec()).ok()?);
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(values: &[(Resource, u64)]) -> Look {
        let mut look = Look::default();
        values.iter().for_each(|(resource, value)| look.set(*resource, Some(*value)));
        look
    }

    #[test]
    fn what_is_counted_is_of_the_period_and_what_is_not_of_its_end() {
        use Resource::{HostCpu, NetworkSent, ProcessCpu, ProcessMemory, Threads};
        let before = look(&[(ProcessCpu, 50), (ProcessMemory, 900), (NetworkSent, 70)]);
        let now = look(&[
            (ProcessCpu, 80),
            (ProcessMemory, 400),
            (HostCpu, 5),
            (NetworkSent, 60),
            (Threads, 3),
        ]);
        assert_eq!(now.since(&before), [(ProcessCpu, 30), (ProcessMemory, 400), (Threads, 3)]);
    }

    /// The values of this very process and machine, as far as another way of asking tells them.
    #[test]
    fn samples_hold_what_the_system_tells() {
        let mut sampler = ResourceSampler::start(Duration::ZERO);
        assert_eq!(sampler.sample_if_due(), None, "the first look has nothing to compare with");
        let files: Vec<_> = (0..32).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        crate::report_memory(5, 7);
        let sample = sampler.sample_if_due().unwrap();
        drop(files);
        let get = |resource| sample.get(resource);
        assert!(get(Resource::ProcessMemory).unwrap() >= memory.len() as u64);
        assert!(get(Resource::Threads).unwrap() >= 1);
        assert!(get(Resource::Descriptors).unwrap() >= 32);
        assert!(get(Resource::DescriptorsMax) > get(Resource::Descriptors));
        assert!(get(Resource::ProcessCpu).unwrap() > 0);
        assert!(get(Resource::HostMemoryMax) > get(Resource::HostMemory));
        assert!(get(Resource::HostCpus).unwrap() >= 1);
        assert_eq!(get(Resource::ManagedMemory), Some(5));
        assert_eq!(get(Resource::SpilledMemory), Some(7));
        assert!(sample.values.is_sorted_by_key(|(resource, _)| resource.number()));
    }

    #[test]
    fn lateness_does_not_add_up_and_what_was_missed_is_not_made_up_for() {
        let mut sampler = ResourceSampler::start(Duration::from_secs(3_600));
        assert_eq!(sampler.sample_if_due(), None);
        let due_ns = sampler.due_ns;
        assert!(sampler.sample_if_due().is_none() && sampler.due_ns == due_ns, "not yet due");
        sampler.due_ns = clock::monotonic_ns() - 1_000;
        let due_ns = sampler.due_ns;
        assert!(sampler.sample_if_due().is_some());
        assert_eq!(sampler.due_ns, due_ns + sampler.interval_ns);
        sampler.due_ns = 1;
        sampler.interval_ns = 10;
        assert!(sampler.sample_if_due().is_some());
        assert!(sampler.due_ns > due_ns, "one sample for all that was missed");
    }
}
