//! What a worker and its machine use and have.

use crate::Timestamp;

/// Something that is measured. Numbers on the wire and in tables are [`Resource::number`]s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// Processor time of the process, user and system.
    ProcessCpu,
    /// Resident memory of the process.
    ProcessMemory,
    /// Memory that the worker says it manages.
    ManagedMemory,
    /// Bytes that the worker says it moved to disk.
    SpilledMemory,
    /// Threads of the process.
    Threads,
    /// Open file descriptors of the process.
    Descriptors,
    /// Descriptors that the process may open.
    DescriptorsMax,
    /// Bytes that the process made the disks read.
    ProcessDiskRead,
    /// Bytes that the process made the disks write.
    ProcessDiskWritten,
    /// Time that the machine's processors worked, summed over them.
    HostCpu,
    /// Processors of the machine.
    HostCpus,
    /// Memory of the machine that is in use and could not be given to another program.
    HostMemory,
    /// Memory of the machine.
    HostMemoryMax,
    /// Bytes that the machine's disks read.
    HostDiskRead,
    /// Bytes that the machine's disks wrote.
    HostDiskWritten,
    /// Bytes that came over the links of the process's network namespace, loopback left out.
    NetworkReceived,
    /// Bytes that left over them.
    NetworkSent,
    /// Memory that the process's control group uses.
    CgroupMemory,
    /// Memory that the group may use, where there is a limit.
    CgroupMemoryMax,
    /// Processors that the group may use, where there is a limit.
    CgroupCpuMax,
    /// Time for which the group was held back by that limit.
    CgroupThrottled,
    /// Time in which some thread of the machine waited for a processor.
    CpuPressure,
    /// Time in which some thread of the machine waited for memory.
    MemoryPressure,
    /// Time in which some thread of the machine waited for a disk.
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

    /// What has that number.
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

    /// Whether a value is what came up in a sample's period, as opposed to what there was at its end.
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

/// What was measured at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceSample {
    /// When.
    pub at: Timestamp,
    /// Since the sample before; what [is counted](Resource::is_counted) is of this time.
    pub period_ns: u64,
    /// Values in the order of [`Resource::number`]; what the system does not tell is left out.
    pub values: Vec<(Resource, u64)>,
}

impl ResourceSample {
    /// The value of one, if the system told it.
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
