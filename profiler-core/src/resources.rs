//! Resource usage of a worker and its machine.

use crate::Timestamp;

/// A measured quantity. The wire and the tables store its [`Resource::number`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// CPU time of the process, user and system.
    ProcessCpu,
    /// Resident memory of the process.
    ProcessMemory,
    /// Memory that the worker reports as managed.
    ManagedMemory,
    /// Bytes that the worker reports as spilled to disk.
    SpilledMemory,
    /// Threads of the process.
    Threads,
    /// Open file descriptors of the process.
    Descriptors,
    /// Limit on open descriptors of the process.
    DescriptorsMax,
    /// Bytes that the process read from disks.
    ProcessDiskRead,
    /// Bytes that the process wrote to disks.
    ProcessDiskWritten,
    /// Busy time of the machine's CPU cores, summed over cores.
    HostCpu,
    /// CPU cores of the machine.
    HostCpus,
    /// Used memory of the machine that is not available to other programs.
    HostMemory,
    /// Total memory of the machine.
    HostMemoryMax,
    /// Bytes read from the machine's disks.
    HostDiskRead,
    /// Bytes written to the machine's disks.
    HostDiskWritten,
    /// Bytes received in the process's network namespace, loopback excluded.
    NetworkReceived,
    /// Bytes sent in it.
    NetworkSent,
    /// Memory that the process's control group uses.
    CgroupMemory,
    /// Memory limit of the group, if any.
    CgroupMemoryMax,
    /// CPU limit of the group in cores, if any.
    CgroupCpuMax,
    /// Time for which that limit throttled the group.
    CgroupThrottled,
    /// Time in which at least one thread of the machine waited for a CPU core.
    CpuPressure,
    /// Time in which at least one thread of the machine waited for memory.
    MemoryPressure,
    /// Time in which at least one thread of the machine waited for a disk.
    IoPressure,
}

impl Resource {
    /// All, in the order of their numbers.
    pub const ALL: [Resource; 24] = [
        Resource::ProcessCpu,
        Resource::ProcessMemory,
        Resource::ManagedMemory,
        Resource::SpilledMemory,
        Resource::Threads,
        Resource::Descriptors,
        Resource::DescriptorsMax,
        Resource::ProcessDiskRead,
        Resource::ProcessDiskWritten,
        Resource::HostCpu,
        Resource::HostCpus,
        Resource::HostMemory,
        Resource::HostMemoryMax,
        Resource::HostDiskRead,
        Resource::HostDiskWritten,
        Resource::NetworkReceived,
        Resource::NetworkSent,
        Resource::CgroupMemory,
        Resource::CgroupMemoryMax,
        Resource::CgroupCpuMax,
        Resource::CgroupThrottled,
        Resource::CpuPressure,
        Resource::MemoryPressure,
        Resource::IoPressure,
    ];

    /// The number on the wire and in tables, from 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The resource with that number.
    #[must_use]
    pub fn of_number(number: u32) -> Option<Resource> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        Resource::ALL.get(index).copied()
    }

    /// The name in queries, tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Resource::ProcessCpu => "process_cpu",
            Resource::ProcessMemory => "process_memory",
            Resource::ManagedMemory => "managed_memory",
            Resource::SpilledMemory => "spilled_memory",
            Resource::Threads => "threads",
            Resource::Descriptors => "descriptors",
            Resource::DescriptorsMax => "descriptors_max",
            Resource::ProcessDiskRead => "process_disk_read",
            Resource::ProcessDiskWritten => "process_disk_written",
            Resource::HostCpu => "host_cpu",
            Resource::HostCpus => "host_cpus",
            Resource::HostMemory => "host_memory",
            Resource::HostMemoryMax => "host_memory_max",
            Resource::HostDiskRead => "host_disk_read",
            Resource::HostDiskWritten => "host_disk_written",
            Resource::NetworkReceived => "network_received",
            Resource::NetworkSent => "network_sent",
            Resource::CgroupMemory => "cgroup_memory",
            Resource::CgroupMemoryMax => "cgroup_memory_max",
            Resource::CgroupCpuMax => "cgroup_cpu_max",
            Resource::CgroupThrottled => "cgroup_throttled",
            Resource::CpuPressure => "cpu_pressure",
            Resource::MemoryPressure => "memory_pressure",
            Resource::IoPressure => "io_pressure",
        }
    }

    /// The unit of its values.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Resource::ProcessCpu
            | Resource::HostCpu
            | Resource::CgroupThrottled
            | Resource::CpuPressure
            | Resource::MemoryPressure
            | Resource::IoPressure => "ns",
            Resource::Threads
            | Resource::Descriptors
            | Resource::DescriptorsMax
            | Resource::HostCpus => "count",
            Resource::CgroupCpuMax => "thousandths of a processor",
            _ => "bytes",
        }
    }

    /// Whether a value accumulates over a sample's period, as opposed to a level at its end.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(
            self,
            Resource::ProcessCpu
                | Resource::ProcessDiskRead
                | Resource::ProcessDiskWritten
                | Resource::HostCpu
                | Resource::HostDiskRead
                | Resource::HostDiskWritten
                | Resource::NetworkReceived
                | Resource::NetworkSent
                | Resource::CgroupThrottled
                | Resource::CpuPressure
                | Resource::MemoryPressure
                | Resource::IoPressure
        )
    }
}

/// Resource usage at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceSample {
    /// Time of the sample.
    pub at: Timestamp,
    /// Nanoseconds since the previous sample; [cumulative](Resource::is_counted) values cover this
    /// period.
    pub period_ns: u64,
    /// Values in the order of [`Resource::number`]; those that the system does not report are
    /// missing.
    pub values: Vec<(Resource, u64)>,
}

impl ResourceSample {
    /// The value of one resource, if the system reported it.
    #[must_use]
    pub fn get(&self, resource: Resource) -> Option<u64> {
        let found = self.values.iter().find(|(of, _)| *of == resource);
        found.map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_distinct_and_stay() {
        for (index, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource.number() as usize, index + 1);
            assert_eq!(Resource::of_number(resource.number()), Some(resource));
        }
        assert_eq!([0, 25, u32::MAX].map(Resource::of_number), [None; 3]);
        let mut names = Resource::ALL.map(Resource::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Resource::ALL.len());
        assert_eq!(Resource::IoPressure.number(), 24);
        assert_eq!(Resource::HostCpus.unit(), "count");
        assert_eq!(Resource::SpilledMemory.unit(), "bytes");
    }
}
