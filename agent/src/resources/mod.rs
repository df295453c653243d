//! Samples the resources that this process, its control group and its machine use. Values that the
//! system does not provide are omitted, and nothing here can fail.

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

/// Shortest period that gets a sample of its own when an agent ends.
const LAST_PERIOD_NS_MIN: u64 = 1_000_000;

/// One reading by [`Resource`]; of counters, the sum so far.
#[derive(Clone, Debug, Default)]
struct Reading([Option<u64>; Resource::ALL.len()]);

impl Reading {
    fn set(&mut self, resource: Resource, value: Option<u64>) {
        self.0[resource as usize] = value;
    }

    /// Returns the increase of counters since `before`, and the present value of others. A counter that
    /// shrank, for example because a network link is gone, is omitted.
    fn since(&self, before: &Reading) -> Vec<(Resource, u64)> {
        let value = |resource: Resource| {
            let now = self.0[resource as usize]?;
            if resource.is_counted() {
                now.checked_sub(before.0[resource as usize]?)
            } else {
                Some(now)
            }
        };
        let all = Resource::ALL.into_iter();
        all.filter_map(|resource| Some((resource, value(resource)?))).collect()
    }
}

/// Takes samples at an interval. Keeps its files open.
#[derive(Debug)]
pub(crate) struct ResourceSampler {
    interval_ns: u64,
    /// By the monotonic clock.
    due_ns: u64,
    before: Option<(u64, Reading)>,
    process: Process,
    host: Host,
    cgroup: Cgroup,
}

impl ResourceSampler {
    /// Samples immediately, and then at every `interval`. A reading takes about 80 µs, two thirds of it for
    /// the machine's files.
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

    /// Returns a sample if one is due. The first reading is only the base of the next one.
    pub(crate) fn sample_if_due(&mut self) -> Option<ResourceSample> {
        let now_ns = clock::monotonic_ns();
        if now_ns < self.due_ns {
            return None;
        }
        // On a grid, so that delays do not add up; missed samples are skipped.
        let next_ns = self.due_ns.saturating_add(self.interval_ns);
        let on_grid = next_ns > now_ns;
        self.due_ns = if on_grid { next_ns } else { now_ns.saturating_add(self.interval_ns) };
        self.sample(now_ns)
    }

    /// Returns a sample of the time since the last one.
    pub(crate) fn sample_last(&mut self) -> Option<ResourceSample> {
        let now_ns = clock::monotonic_ns();
        let begun_ns = self.before.as_ref().map(|(at_ns, _)| *at_ns)?;
        (now_ns.saturating_sub(begun_ns) >= LAST_PERIOD_NS_MIN).then(|| self.sample(now_ns))?
    }

    fn sample(&mut self, now_ns: u64) -> Option<ResourceSample> {
        let mut reading = Reading::default();
        self.process.read(&mut reading);
        self.host.read(&mut reading);
        self.cgroup.read(&mut reading);
        if let Some(reported) = memory_report::latest() {
            reading.set(Resource::ManagedMemory, Some(reported.managed_bytes));
            reading.set(Resource::SpilledMemory, Some(reported.spilled_bytes));
        }
        let (before_ns, before) = self.before.replace((now_ns, reading.clone()))?;
        Some(ResourceSample {
            at: clock::at(now_ns),
            period_ns: now_ns.saturating_sub(before_ns),
            values: reading.since(&before),
        })
    }
}

/// Reads a CPU-time clock, in nanoseconds; `None` for a process that has ended.
pub(crate) fn cpu_clock_ns(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    let (seconds, rest) = (u64::try_from(time.tv_sec()).ok()?, u64::try_from(time.tv_nsec()).ok()?);
    Some(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(values: &[(Resource, u64)]) -> Reading {
        let mut reading = Reading::default();
        values.iter().for_each(|(resource, value)| reading.set(*resource, Some(*value)));
        reading
    }

    #[test]
    fn counters_are_of_the_period_and_other_values_of_its_end() {
        use Resource::{HostCpu, NetworkSent, ProcessCpu, ProcessMemory, Threads};
        let before = reading(&[(ProcessCpu, 50), (ProcessMemory, 900), (NetworkSent, 70)]);
        let now = reading(&[
            (ProcessCpu, 80),
            (ProcessMemory, 400),
            (HostCpu, 5),
            (NetworkSent, 60),
            (Threads, 3),
        ]);
        assert_eq!(now.since(&before), [(ProcessCpu, 30), (ProcessMemory, 400), (Threads, 3)]);
    }

    /// Compares values of this process and machine with independently known ones.
    #[test]
    fn samples_match_the_process_and_machine() {
        let mut sampler = ResourceSampler::start(Duration::ZERO);
        assert_eq!(sampler.sample_if_due(), None, "the first reading has no base");
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
    fn delays_do_not_add_up_and_missed_samples_are_skipped() {
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
