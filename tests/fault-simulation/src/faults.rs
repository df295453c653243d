//! Kinds of faults, and their counts: a run in which nothing fails proves nothing.

use crate::collector::{DiskFault, DiskFaultCounts};

/// A kind of fault outside of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A packet is lost, and its message arrives later.
    LostPacket,
    /// A stream breaks: the rest of it is lost.
    BrokenStream,
    /// A message arrives on a stream that its agent has given up.
    LateMessage,
    /// A message arrives after one of a newer stream of the same agent.
    ReorderedMessage,
    /// The collector gets a flush again that it already had.
    RepeatedFlush,
    /// The stream ends because the agent hears nothing.
    SilentCollector,
    /// The stream ends because the collector hears nothing.
    SilentAgent,
    /// A new stream takes over from one that the collector believes to be open.
    TakenOver,
    /// An agent does not reach the collector.
    Unreachable,
    /// A partition begins.
    Partition,
    /// A partition of an hour or more begins.
    PartitionOfHours,
    /// An agent starts whose clock is off by more than an hour.
    AgentClockOff,
    /// The collector's clock is set.
    ClockSet,
    /// The collector's clock is set back by more than an hour.
    ClockSetBack,
    /// An agent is killed with unacknowledged cycles.
    AgentKilled,
    /// An agent ends with Goodbye.
    AgentEnded,
    /// The collector's process is killed.
    CollectorKilled,
    /// The collector's machine crashes.
    MachineCrashed,
    /// The collector dies during its first start.
    CrashAtFirstStart,
    /// The collector dies during a later start.
    CrashAtStart,
    /// The collector dies while it writes the log.
    CrashInCommit,
    /// The collector dies while it seals.
    CrashInSealing,
    /// The collector dies while it merges and deletes files.
    CrashInMaintenance,
    /// The collector does not start because the disk fails.
    StartFailed,
    /// A sealing fails.
    SealingFailed,
    /// Merging or deleting fails.
    MaintenanceFailed,
    /// A stream ends because the log does not accept its flush.
    LogRejected,
    /// A paused collector wakes up after another one has taken its store over.
    Awoken,
    /// Another process seals and maintains the store of a dead collector.
    Adopted,
    /// The same, and the collector was only paused and wakes up then.
    AdoptedFromPaused,
    /// The adopter dies.
    CrashInAdoption,
    /// An adoption fails.
    AdoptionFailed,
    /// A paused collector wakes up, and processes what has arrived meanwhile.
    Resumed,
    /// An agent is cut off from some of its collectors.
    PartialPartition,
    /// An agent ships to another collector.
    Moved,
    /// An agent ships again to a collector that it had left.
    Returned,
    /// An agent moves, and flushes without an answer stay behind.
    MovedInFlight,
    /// An agent asks a collector that it has left which flushes it has.
    Settled,
    /// An agent ends while collectors that it has left owe it answers.
    EndedWithStays,
    /// An agent ends by its deadline, with unacknowledged cycles.
    EndedUnacknowledged,
}

impl Fault {
    const ALL: [Fault; 40] = [
        Fault::LostPacket,
        Fault::BrokenStream,
        Fault::LateMessage,
        Fault::ReorderedMessage,
        Fault::RepeatedFlush,
        Fault::SilentCollector,
        Fault::SilentAgent,
        Fault::TakenOver,
        Fault::Unreachable,
        Fault::Partition,
        Fault::PartitionOfHours,
        Fault::AgentClockOff,
        Fault::ClockSet,
        Fault::ClockSetBack,
        Fault::AgentKilled,
        Fault::AgentEnded,
        Fault::CollectorKilled,
        Fault::MachineCrashed,
        Fault::CrashAtFirstStart,
        Fault::CrashAtStart,
        Fault::CrashInCommit,
        Fault::CrashInSealing,
        Fault::CrashInMaintenance,
        Fault::StartFailed,
        Fault::SealingFailed,
        Fault::MaintenanceFailed,
        Fault::LogRejected,
        Fault::Awoken,
        Fault::Adopted,
        Fault::AdoptedFromPaused,
        Fault::CrashInAdoption,
        Fault::AdoptionFailed,
        Fault::Resumed,
        Fault::PartialPartition,
        Fault::Moved,
        Fault::Returned,
        Fault::MovedInFlight,
        Fault::Settled,
        Fault::EndedWithStays,
        Fault::EndedUnacknowledged,
    ];
}

/// How often each kind of fault happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultCounts {
    world: [u64; Fault::ALL.len()],
    pub(crate) disk: DiskFaultCounts,
}

impl Default for FaultCounts {
    fn default() -> FaultCounts {
        FaultCounts {
            world: [0; Fault::ALL.len()],
            disk: DiskFaultCounts::default(),
        }
    }
}

impl FaultCounts {
    pub(crate) fn count(&mut self, fault: Fault) {
        self.world[fault as usize] += 1;
    }

    pub(crate) fn add_disk(&mut self, disk: &DiskFaultCounts) {
        self.disk
            .iter_mut()
            .zip(disk)
            .for_each(|(sum, count)| *sum += count);
    }

    pub(crate) fn add(&mut self, other: &FaultCounts) {
        let ours = self.world.iter_mut().chain(&mut self.disk);
        let theirs = other.world.iter().chain(&other.disk);
        ours.zip(theirs).for_each(|(sum, count)| *sum += count);
    }

    /// All kinds by name.
    pub fn iter(&self) -> impl Iterator<Item = (String, u64)> {
        let world = Fault::ALL
            .iter()
            .map(|fault| format!("{fault:?}"))
            .zip(self.world);
        let disk = DiskFault::ALL
            .iter()
            .map(|fault| format!("disk {fault:?}"))
            .zip(self.disk);
        world.chain(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_under_its_own_name() {
        for (index, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, index);
        }
        for (index, fault) in DiskFault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, index);
        }
        let mut counts = FaultCounts::default();
        counts.count(Fault::TakenOver);
        counts.disk[DiskFault::TornTable as usize] += 2;
        counts.add(&counts.clone());
        let counted: Vec<_> = counts.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            counted,
            [
                ("TakenOver".to_owned(), 2),
                ("disk TornTable".to_owned(), 4)
            ]
        );
    }
}
