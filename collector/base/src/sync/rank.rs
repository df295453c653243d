//! The order of all locks of the collector.
//!
//! A thread takes locks in the order of this list only, so no two threads can wait for each other. It never has two
//! locks of one rank, except by [`super::write_second`]: the same lock twice is a deadlock too, even to read, as soon as
//! a writer waits in between. Debug builds and simulations assert all of it at each lock ([`super::held`]).

/// A type that names the rank of a lock.
pub trait Ranked {
    const RANK: Rank;
}

macro_rules! ranks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The place of a lock in the order: a thread that holds one takes only later ones.
        #[allow(dead_code, reason = "some locks need a feature, and the rest is for debug builds")]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Rank {
            $($(#[$doc])* $name,)*
        }

        impl Rank {
            /// In their order.
            #[cfg(test)]
            pub const ALL: &[Rank] = &[$(Rank::$name,)*];
        }

        $($(#[$doc])*
        #[allow(dead_code, reason = "some locks need a feature")]
        #[derive(Clone, Copy, Default, Debug)]
        pub struct $name;

        impl Ranked for $name {
            const RANK: Rank = Rank::$name;
        })*
    };
}

ranks! {
    /// One sealing at a time. Held during all of it, files included.
    Sealing,
    /// The stores that may be adopted. Held while they are looked at, so that one look follows another.
    AdoptionWatch,
    /// The version of the token file that was last read. Held while it is read.
    TokenFile,
    /// The lock of a store's folder, or its owner. Held while it is released.
    StoreGuard,
    /// The sign of life of a store's owner. Held while it is written, so that beats keep their order.
    OwnerBeat,
    /// The handle of a thread that is started or joined.
    ThreadHandle,
    /// The series that are pushed. Idle ones end under it.
    PushedSeries,
    /// Whether ingest is blocked. Held while the change is reported.
    IngestStatus,
    /// The writer of the log. Held while a group is written, synced and applied, and during a cut.
    LogWriter,
    /// Flushes for the thread that applies large ones.
    ApplierQueue,
    /// How many of them are not applied. The log's writer waits for none, in a cut.
    ApplierCount,
    /// Entries that wait for the log.
    LogQueue,
    /// Why the log accepts no entries.
    LogHealth,
    /// The sealed parts of the tree and of the other lists. Held while a batch is written.
    TablesSealed,
    /// The versions of the tables. Held while one is published or deleted.
    TablesVersions,
    /// The files that readers of a snapshot opened.
    VerifiedFiles,
    /// Whether one of them is intact. Held while it is verified, so that it is read once.
    VerifiedFile,
    /// All sessions. Sessions are opened and evicted under it.
    Registry,
    /// One session. No thread holds two.
    Session,
    /// The settings that agents are to have.
    DesiredSettings,
    /// Messages that wait for one agent's stream.
    AgentMailbox,
    /// Samples that are in no table.
    Windows,
    /// Tasks that are in no table, and the running ones.
    Ledger,
    /// Transfers, resources and runs that are in no table.
    Telemetry,
    /// The stacks of all agents.
    Tree,
    /// Cached shapes of the tree.
    Shapes,
    /// Late hours that are in memory.
    LateHours,
    /// Reads one file with debug information at a time. Held while its process runs.
    SymbolReading,
    /// Changes of the folder of symbol files. Held while files are written.
    SymbolsChanging,
    /// Symbol files that are open.
    SymbolsOpen,
    /// Builds whose files are looked for.
    SymbolFinder,
    /// Builds whose symbols are fetched from agents.
    SymbolFetches,
    /// Names that were looked up.
    KnownNames,
    /// The current version of the tables.
    TablesCurrent,
    /// The stores of a union.
    TablesParts,
    /// The numbers of workers in the tables.
    TablesWorkers,
    /// The numbers of links in the tables.
    TablesLinks,
    /// Tables with damage.
    TablesDamaged,
    /// Tables that are open.
    TablesOpen,
    /// Sums of whole files of tables.
    FileSums,
    /// Uploads to a bucket that run.
    BucketUploads,
    /// The cache of a bucket's tables.
    BucketCache,
    /// The runtime of all buckets.
    BucketRuntime,
    /// The states of followed stores.
    FollowStatus,
    /// Receivers of forwarded data.
    Outlets,
    /// One receiver's queue.
    Outlet,
    /// Samples to be forwarded.
    ForwardSamples,
    /// Tasks to be forwarded.
    ForwardTasks,
    /// Recent events and their subscribers.
    Events,
    /// Ended tasks by name.
    TaskCounters,
    /// Pushes by source.
    PushCounters,
    /// Outcomes of scrapes.
    Scrapes,
    /// Logins of browsers.
    Logins,
    /// Addresses that failed to log in.
    AuditState,
    /// The certificate in use.
    Certificate,
    /// All connections.
    Connections,
    /// The state of one connection.
    Connection,
    /// Memory that peers share. Some of it is taken back under it.
    MemoryPool,
    /// An answer whose memory may be taken back.
    AnswerText,
    /// The use of a short query. Its turn is exchanged under it.
    QueryAllowance,
    /// The turn that a query holds.
    QueryTurn,
    /// Slots that peers share.
    Slots,
    /// Turns that peers take.
    Turns,
    /// The unsealed bytes of each identity.
    UnsealedShares,
    /// All accounts.
    Accounts,
    /// The messages of an account.
    AccountRate,
    /// The quotas that an account met.
    AccountUses,
    /// Limits repeated lines of the log.
    LineLimit,
    /// Whether a thread is to stop.
    StopSignal,
    /// The state of a simulated disk, and its hook.
    SimulatedDisk,
    /// The files that a simulated disk shows.
    SimulatedFiles,
}

/// Locks that may be held while a file is read, written or synced: each exists to let one do so at a time, or belongs
/// to a simulated disk. Every other lock is held for moments, whatever the disk does.
#[cfg(any(debug_assertions, feature = "simulation"))]
const HELD_DURING_IO: &[Rank] = &[
    Rank::Sealing,
    Rank::AdoptionWatch,
    Rank::TokenFile,
    Rank::StoreGuard,
    Rank::OwnerBeat,
    Rank::LogWriter,
    Rank::TablesSealed,
    Rank::TablesVersions,
    Rank::VerifiedFile,
    Rank::SymbolReading,
    Rank::SymbolsChanging,
    Rank::SimulatedDisk,
];

#[cfg(any(debug_assertions, feature = "simulation"))]
impl Rank {
    /// Whether it may be held while a file is read, written or synced.
    pub(super) fn may_do_io(self) -> bool {
        HELD_DURING_IO.contains(&self)
    }
}
