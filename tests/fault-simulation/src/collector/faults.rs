//! Faults of a simulated disk, and their counts.

/// Faults injected from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskCondition {
    /// Nothing.
    Healthy,
    /// One operation of that many fails with EIO; a write may write a part.
    Failing {
        /// The mean number of operations from one error to the next.
        one_of: u64,
    },
    /// Writes fail with ENOSPC, after a part.
    Full {
        /// Whether the disk reports that it has no free space.
        is_known: bool,
    },
}

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFault {
    /// EIO of a read or a listing.
    ReadError,
    /// EIO of a write.
    WriteError,
    /// EIO of a sync: what was written since the last one may be on the disk or not, and no later sync
    /// writes it.
    SyncError,
    /// A later sync that reported success for what a failed one had dropped.
    HollowSync,
    /// EIO of another operation.
    OtherError,
    /// ENOSPC.
    Full,
    /// A write that failed after a part.
    ShortWrite,
    /// A crash lost unsynced bytes of the log.
    LostLogBytes,
    /// A crash left a part of an unsynced write to the log.
    TornLogWrite,
    /// A crash undid an unsynced truncation of the log.
    UndoneTruncation,
    /// A crash lost a new file of the log, because its name was not synced.
    LostLogFile,
    /// A crash brought a removed file of the log back.
    RevivedLogFile,
    /// A crash lost what was written to the mark since it was synced.
    LostMark,
    /// A crash lost an unsynced file of the tables.
    LostTable,
    /// A crash left a part of an unsynced file of the tables.
    TornTable,
    /// A crash brought a removed file of the tables back.
    RevivedTable,
    /// A bucket created an object, and the answer was lost.
    LostAnswer,
    /// A bucket created an object long after the request had failed, perhaps in another life of the collector.
    LatePut,
}

impl DiskFault {
    /// All kinds.
    pub const ALL: [DiskFault; 18] = [
        DiskFault::ReadError,
        DiskFault::WriteError,
        DiskFault::SyncError,
        DiskFault::HollowSync,
        DiskFault::OtherError,
        DiskFault::Full,
        DiskFault::ShortWrite,
        DiskFault::LostLogBytes,
        DiskFault::TornLogWrite,
        DiskFault::UndoneTruncation,
        DiskFault::LostLogFile,
        DiskFault::RevivedLogFile,
        DiskFault::LostMark,
        DiskFault::LostTable,
        DiskFault::TornTable,
        DiskFault::RevivedTable,
        DiskFault::LostAnswer,
        DiskFault::LatePut,
    ];
}

/// How often each kind happened, in the order of [`DiskFault::ALL`].
pub type DiskFaultCounts = [u64; DiskFault::ALL.len()];

/// Whether something is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Synced {
    /// It is.
    Yes,
    /// After the next sync.
    #[default]
    No,
    /// Nobody knows: a sync of it failed, and no later one writes it.
    Failed,
}

impl Synced {
    /// After a sync.
    pub(super) fn after_sync(self) -> Synced {
        if self == Synced::No {
            Synced::Yes
        } else {
            self
        }
    }

    /// After a sync that failed.
    pub(super) fn after_failure(self) -> Synced {
        if self == Synced::No {
            Synced::Failed
        } else {
            self
        }
    }
}

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Read,
    /// It needs space.
    Write,
    Sync,
    /// The sync of a version of the manifest.
    SyncVersion,
    Other,
}

impl Operation {
    pub(super) fn error(self) -> DiskFault {
        match self {
            Operation::Read => DiskFault::ReadError,
            Operation::Write => DiskFault::WriteError,
            Operation::Sync | Operation::SyncVersion => DiskFault::SyncError,
            Operation::Other => DiskFault::OtherError,
        }
    }
}
