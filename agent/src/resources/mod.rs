//! Samples the resources that this process, its control group and its machine use. Values that the
//! system does not provide are omitted, and nothing here can fail.

mod cgroup;
mod file;
mod host;
mod process;

use std::time::Duration;

use profiler_core::{Resource, ResourceSample};

use self::cgroup::Cgroup;
use self::host::Host;
use self::process::Process;
use crate::clock;
use crate::telemetry::memory_report;

/// The unit of times in `/proc`: a hundredth of a second for every program on Linux.
const TICK_NS: u64 = 10_000_000;

/// Shortest period that gets a sample of its own when an agent ends.
const LAST_PERIOD_NS_MIN: u64 = 1_000_000;

/// Longest time that a reading may take. It takes 80 µs; a thread that is preempted within it does not
/// know when it read each counter, and rates would divide by a wrong period. 5 ms are 1% of the usual
/// interval.
const READING_NS_MAX: u64 = 5_000_000;

/// Attempts at a reading. After the last one the sample is skipped: the next one covers its time too.
const READINGS_MAX: u32 = 3;

/// One reading by [`Resource`]; of counters, the sum so far.
#[derive(Clone, Debug, Default)]
struct Reading([Option<u64>; Resource::ALL.len()]);

impl Reading {
    fn set(&mut self, resource: Resource, value: Option<u64>) {
        self.0[resource as usize] = value;
    }

    /// Returns the increase of counters since `before`, which was read `period_ns` earlier, and the
    /// present value of others. A counter that shrank, for example because a network link is gone, is
    /// omitted.
    fn since(&self, before: &Reading, period_ns: u64) -> Vec<(Resource, u64)> {
        let value = |resource: Resource| {
            let now = self.0[resource as usize]?;
            if resource.is_counted() {
                let increase = now.checked_sub(before.0[resource as usize]?)?;
                Some(increase.min(self.increase_max(resource, period_ns)))
            } else {
                Some(now)
            }
        };
        let all = Resource::ALL.into_iter();
        all.filter_map(|resource| Some((resource, value(resource)?)))
            .collect()
    }

    /// The most by which a counter can grow in a period. Counters of time are rounded to ticks of 10 ms,
    /// and are read up to [`READING_NS_MAX`] away from the time of their reading.
    fn increase_max(&self, resource: Resource, period_ns: u64) -> u64 {
        match resource {
            Resource::ProcessCpu | Resource::HostCpu | Resource::CgroupThrottled => {
                let cores = self.0[Resource::HostCpus as usize];
                cores.map_or(u64::MAX, |cores| cores.saturating_mul(period_ns))
            }
            Resource::CpuPressure | Resource::MemoryPressure | Resource::IoPressure => period_ns,
            _ => u64::MAX,
        }
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
        self.due_ns = if on_grid {
            next_ns
        } else {
            now_ns.saturating_add(self.interval_ns)
        };
        self.sample()
    }

    /// Returns a sample of the time since the last one.
    pub(crate) fn sample_last(&mut self) -> Option<ResourceSample> {
        let now_ns = clock::monotonic_ns();
        let begun_ns = self.before.as_ref().map(|(at_ns, _)| *at_ns)?;
        (now_ns.saturating_sub(begun_ns) >= LAST_PERIOD_NS_MIN).then(|| self.sample())?
    }

    fn sample(&mut self) -> Option<ResourceSample> {
        let (now_ns, reading) = read_promptly(clock::monotonic_ns, || self.read())?;
        let (before_ns, before) = self.before.replace((now_ns, reading.clone()))?;
        let period_ns = now_ns.saturating_sub(before_ns);
        let values = reading.since(&before, period_ns);
        Some(ResourceSample {
            at: clock::at(now_ns),
            period_ns,
            values,
        })
    }

    fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        self.process.read(&mut reading);
        self.host.read(&mut reading);
        self.cgroup.read(&mut reading);
        if let Some(reported) = memory_report::latest() {
            reading.set(Resource::ManagedMemory, Some(reported.managed_bytes));
            reading.set(Resource::SpilledMemory, Some(reported.spilled_bytes));
        }
        reading
    }
}

/// Reads until a reading takes at most [`READING_NS_MAX`]. Returns it with the time of its middle; `None`
/// after [`READINGS_MAX`] attempts.
fn read_promptly(
    now_ns: impl Fn() -> u64,
    mut read: impl FnMut() -> Reading,
) -> Option<(u64, Reading)> {
    (0..READINGS_MAX).find_map(|_| {
        let begun_ns = now_ns();
        let reading = read();
        let ended_ns = now_ns();
        let is_prompt = ended_ns.saturating_sub(begun_ns) <= READING_NS_MAX;
        is_prompt.then(|| (begun_ns.midpoint(ended_ns), reading))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(values: &[(Resource, u64)]) -> Reading {
        let mut reading = Reading::default();
        values
            .iter()
            .for_each(|(resource, value)| reading.set(*resource, Some(*value)));
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
        let expected = [(ProcessCpu, 30), (ProcessMemory, 400), (Threads, 3)];
        assert_eq!(now.since(&before, 1_000), expected);
    }

    #[test]
    fn counters_grow_by_no_more_than_the_period_allows() {
        use Resource::{CpuPressure, HostCpu, HostCpus, IoPressure, NetworkSent, ProcessCpu};
        let counters = [ProcessCpu, HostCpu, NetworkSent, CpuPressure, IoPressure];
        let before = reading(&counters.map(|counter| (counter, 0)));
        let mut now = reading(&counters.map(|counter| (counter, 230)));
        now.set(HostCpus, Some(2));
        let expected = [
            (ProcessCpu, 200),
            (HostCpu, 200),
            (HostCpus, 2),
            (NetworkSent, 230),
            (CpuPressure, 100),
            (IoPressure, 100),
        ];
        assert_eq!(now.since(&before, 100), expected);
    }

    /// A machine with two busy cores, read by a thread that is preempted before and after it reads the
    /// counter.
    #[test]
    fn late_ticks_divide_by_the_time_between_their_readings() {
        const TICK_MS: u64 = 500;
        const CORES: u64 = 2;
        let late_ms = [
            0, 0, 3_000, 0, 700, 40, 0, 0, 0, 90, 6_000, 1, 2, 0, 8, 0, 900, 900, 900, 0,
        ];
        let clock_ns = std::cell::Cell::new(0);
        let pass_ms = |milliseconds: u64| clock_ns.set(clock_ns.get() + milliseconds * 1_000_000);
        for is_late_before in [true, false] {
            let mut late = late_ms.iter().cycle().copied();
            let mut before: Option<(u64, Reading)> = None;
            let mut samples = 0;
            for _ in 0..200 {
                pass_ms(TICK_MS);
                let mut read = || {
                    let late_ms = late.next().unwrap_or_default();
                    pass_ms(if is_late_before { late_ms } else { 0 });
                    let busy_ns = CORES * clock_ns.get();
                    pass_ms(if is_late_before { 0 } else { late_ms });
                    reading(&[(Resource::HostCpu, busy_ns), (Resource::HostCpus, CORES)])
                };
                let Some((at_ns, now)) = read_promptly(|| clock_ns.get(), &mut read) else {
                    continue;
                };
                if let Some((before_ns, before)) = before.replace((at_ns, now.clone())) {
                    let period_ns = at_ns - before_ns;
                    let (_, busy_ns) = now.since(&before, period_ns)[0];
                    let possible_ns = CORES * period_ns;
                    assert!(busy_ns <= possible_ns, "{busy_ns} of {possible_ns} ns");
                    // All of the time was busy, up to what a prompt reading may be off at both ends.
                    let missing_ns = possible_ns - busy_ns;
                    assert!(
                        missing_ns <= CORES * READING_NS_MAX,
                        "{busy_ns} of {possible_ns} ns"
                    );
                    samples += 1;
                }
            }
            assert!(samples > 100, "{samples} samples");
        }
    }

    #[test]
    fn a_reading_that_is_never_prompt_is_skipped() {
        let clock_ns = std::cell::Cell::new(0);
        let attempts = std::cell::Cell::new(0);
        let taken = read_promptly(
            || clock_ns.get(),
            || {
                attempts.set(attempts.get() + 1);
                clock_ns.set(clock_ns.get() + READING_NS_MAX + 1);
                Reading::default()
            },
        );
        assert!(taken.is_none());
        assert_eq!(attempts.get(), READINGS_MAX);
    }

    /// Compares values of this process and machine with independently known ones.
    #[test]
    fn samples_match_the_process_and_machine() {
        let mut sampler = ResourceSampler::start(Duration::ZERO);
        assert_eq!(
            sampler.sample_if_due(),
            None,
            "the first reading has no base"
        );
        let files: Vec<_> = (0..32)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
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
        assert!(
            sample
                .values
                .is_sorted_by_key(|(resource, _)| resource.number())
        );
    }

    #[test]
    fn delays_do_not_add_up_and_missed_samples_are_skipped() {
        let mut sampler = ResourceSampler::start(Duration::from_secs(3_600));
        assert_eq!(sampler.sample_if_due(), None);
        let due_ns = sampler.due_ns;
        assert!(
            sampler.sample_if_due().is_none() && sampler.due_ns == due_ns,
            "not yet due"
        );
        sampler.due_ns = clock::monotonic_ns() - 1_000;
        let due_ns = sampler.due_ns;
        assert!(sampler.sample_if_due().is_some());
        assert_eq!(sampler.due_ns, due_ns + sampler.interval_ns);
        sampler.due_ns = 1;
        sampler.interval_ns = 10;
        assert!(sampler.sample_if_due().is_some());
        assert!(
            sampler.due_ns > due_ns,
            "one sample for all that was missed"
        );
    }
}
