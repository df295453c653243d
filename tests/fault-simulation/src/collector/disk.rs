//! A disk for the log and the tables that fails and crashes on request, and then has what a real one may
//! have: all that was synced, and any part of the rest.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::mem;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutOptions, PutPayload};

use super::faults::{DiskCondition, DiskFault, DiskFaultCounts, Operation, Synced};
use super::log_files::LogFile;
use super::tables::{TableFile, block};
use base::clock::Clock;
use base::sync::{Mutex, as_another_thread, lock, rank};

type Hook = Box<dyn FnMut() + Send>;

/// A disk. Clones share it.
#[derive(Clone)]
pub struct SimulatedDisk {
    pub(super) state: Arc<Mutex<State, rank::SimulatedDisk>>,
    /// Whether it is a bucket: all that was written is durable.
    pub(super) is_bucket: bool,
    /// Objects that readers of tables see.
    visible: Arc<Mutex<Arc<InMemory>, rank::SimulatedFiles>>,
    between_writes: Arc<Mutex<Option<Hook>, rank::SimulatedDisk>>,
}

pub(super) struct State {
    random: Box<dyn FnMut() -> u64 + Send>,
    pub(super) clock: Clock,
    pub(super) condition: DiskCondition,
    /// Reads succeed whatever the condition: those of comparisons with the truth.
    is_observed: bool,
    /// Changes until the process dies, if it shall.
    crash_in: Option<u64>,
    /// The next sync of this kind fails, and the process dies after that many more changes.
    sync_fails_then: Option<(Operation, u64)>,
    is_dead: bool,
    pub(super) log: BTreeMap<String, LogFile>,
    /// Removed names whose removal is not synced.
    pub(super) removed_log: BTreeMap<String, LogFile>,
    pub(super) mark: Option<Vec<u8>>,
    pub(super) durable_mark: Option<Vec<u8>>,
    pub(super) tables: BTreeMap<String, TableFile>,
    pub(super) removed_tables: BTreeMap<String, TableFile>,
    /// Requests of a bucket that failed and may still take effect.
    pub(super) late: Vec<LatePut>,
    counts: DiskFaultCounts,
}

pub(super) struct LatePut {
    pub(super) location: Path,
    pub(super) payload: PutPayload,
    pub(super) options: PutOptions,
}

/// Outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Error,
    Full,
    /// It may be done, but the process does not live to see it.
    Dies,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SimulatedDisk")
    }
}

impl fmt::Display for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SimulatedDisk")
    }
}

impl SimulatedDisk {
    /// An empty disk. All its decisions are by `random`.
    #[must_use]
    pub fn new(random: impl FnMut() -> u64 + Send + 'static, clock: Clock) -> SimulatedDisk {
        let state = State {
            random: Box::new(random),
            clock,
            condition: DiskCondition::Healthy,
            is_observed: false,
            crash_in: None,
            sync_fails_then: None,
            is_dead: false,
            log: BTreeMap::new(),
            removed_log: BTreeMap::new(),
            mark: None,
            durable_mark: None,
            tables: BTreeMap::new(),
            removed_tables: BTreeMap::new(),
            late: Vec::new(),
            counts: DiskFaultCounts::default(),
        };
        SimulatedDisk {
            is_bucket: false,
            state: Arc::new(Mutex::new(state)),
            visible: Arc::default(),
            between_writes: Arc::default(),
        }
    }

    /// The same as a bucket, which has both log and tables.
    #[must_use]
    pub fn into_bucket(mut self) -> SimulatedDisk {
        self.is_bucket = true;
        self
    }

    /// Sets what goes wrong from now on.
    pub fn set_condition(&self, condition: DiskCondition) {
        lock(&self.state).condition = condition;
    }

    /// Lets the process die at the change after that many more.
    pub fn crash_in(&self, changes: u64) {
        lock(&self.state).crash_in = Some(changes);
    }

    /// Lets the next sync of the log or of a version of the manifest fail, and the process die at the
    /// change after that many more.
    pub fn fail_sync_and_crash_in(&self, is_of_version: bool, changes: u64) {
        let operation = if is_of_version {
            Operation::SyncVersion
        } else {
            Operation::Sync
        };
        lock(&self.state).sync_fails_then = Some((operation, changes));
    }

    /// Takes back crashes that have not happened yet.
    pub fn cancel_crash(&self) {
        let mut state = lock(&self.state);
        state.crash_in = None;
        state.sync_fails_then = None;
    }

    /// Whether the process has died: no change after that is done.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        lock(&self.state).is_dead
    }

    /// Faults so far.
    #[must_use]
    pub fn fault_counts(&self) -> DiskFaultCounts {
        lock(&self.state).counts
    }

    /// Starts another process. After a crash of the machine too, everything that was synced is there, and
    /// any part of the rest.
    pub fn restart(&self, is_machine: bool) {
        *lock(&self.between_writes) = None;
        let mut state = lock(&self.state);
        state.is_dead = false;
        state.crash_in = None;
        state.sync_fails_then = None;
        if !is_machine || self.is_bucket {
            return;
        }
        state.crash_log_files();
        state.crash_tables();
        let visible = InMemory::new();
        for (path, file) in &state.tables {
            let content = file.content.clone().into();
            block(visible.put(&Path::from(path.as_str()), content)).expect("memory has room");
        }
        *lock(&self.visible) = Arc::new(visible);
    }

    /// Makes reads succeed while `ask` runs.
    pub(super) fn observe<T>(&self, ask: impl FnOnce() -> T) -> T {
        lock(&self.state).is_observed = true;
        let answer = ask();
        lock(&self.state).is_observed = false;
        answer
    }

    /// Sets what happens before each write of a table.
    pub(super) fn between_writes(&self, hook: Option<Hook>) {
        *lock(&self.between_writes) = hook;
    }

    pub(super) fn call_hook(&self) {
        let hook = lock(&self.between_writes).take();
        if let Some(mut hook) = hook {
            as_another_thread(&mut hook);
            *lock(&self.between_writes) = Some(hook);
        }
    }

    pub(super) fn memory(&self) -> Arc<InMemory> {
        lock(&self.visible).clone()
    }
}

impl State {
    pub(super) fn below(&mut self, end: usize) -> usize {
        let random = (self.random)();
        usize::try_from((u128::from(random) * end as u128) >> 64).expect("it is below `end`")
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn count(&mut self, fault: DiskFault) {
        self.counts[fault as usize] += 1;
    }

    pub(super) fn count_if(&mut self, happened: bool, fault: DiskFault) {
        if happened {
            self.count(fault);
        }
    }

    /// Decides how a change or a sync ends.
    pub(super) fn begin(&mut self, operation: Operation) -> io::Result<Outcome> {
        if self.is_dead {
            return Err(dead());
        }
        if let Some(left) = &mut self.crash_in {
            if *left == 0 {
                self.is_dead = true;
                self.crash_in = None;
                return Ok(Outcome::Dies);
            }
            *left -= 1;
        }
        let fails_now = self.sync_fails_then.take_if(|(kind, _)| *kind == operation);
        if let Some((_, changes)) = fails_now {
            self.crash_in = Some(changes);
            self.count(DiskFault::SyncError);
            return Ok(Outcome::Error);
        }
        if self.fails() {
            self.count(operation.error());
            return Ok(Outcome::Error);
        }
        let is_full = matches!(self.condition, DiskCondition::Full { .. });
        if is_full && operation == Operation::Write {
            self.count(DiskFault::Full);
            return Ok(Outcome::Full);
        }
        Ok(Outcome::Done)
    }

    /// Fails if a read does.
    pub(super) fn read(&mut self) -> io::Result<()> {
        if self.is_dead {
            return Err(dead());
        }
        if !self.is_observed && self.fails() {
            self.count(Operation::Read.error());
            return Err(eio());
        }
        Ok(())
    }

    fn fails(&mut self) -> bool {
        match self.condition {
            DiskCondition::Failing { one_of } => (self.random)().is_multiple_of(one_of),
            DiskCondition::Healthy | DiskCondition::Full { .. } => false,
        }
    }

    /// The length that a write of `length` bytes writes.
    pub(super) fn written(&mut self, outcome: Outcome, length: usize) -> usize {
        if outcome == Outcome::Done {
            return length;
        }
        let written = self.below(length + 1);
        if 0 < written && written < length {
            self.count(DiskFault::ShortWrite);
        }
        written
    }

    /// Whether the operation takes effect.
    pub(super) fn is_done(&mut self, outcome: Outcome) -> bool {
        outcome == Outcome::Done || outcome == Outcome::Dies && self.coin()
    }

    /// Applies a crash of the machine to the tables.
    fn crash_tables(&mut self) {
        for (path, file) in mem::take(&mut self.removed_tables) {
            if !self.tables.contains_key(&path) && file.is_durable() && self.coin() {
                self.count(DiskFault::RevivedTable);
                self.tables.insert(path, file);
            }
        }
        for (path, mut file) in mem::take(&mut self.tables) {
            if file.named != Synced::Yes && self.coin() {
                self.count(DiskFault::LostTable);
                continue;
            }
            if file.written != Synced::Yes && self.coin() {
                let kept = if self.coin() {
                    0
                } else {
                    self.below(file.content.len() + 1)
                };
                file.content = file.content.slice(..kept);
                self.count(DiskFault::TornTable);
            }
            let synced = TableFile {
                written: Synced::Yes,
                named: Synced::Yes,
                ..file
            };
            self.tables.insert(path, synced);
        }
    }
}

pub(super) fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

pub(super) fn finish(outcome: Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Error => Err(eio()),
        Outcome::Full => Err(io::ErrorKind::StorageFull.into()),
        Outcome::Dies => Err(dead()),
    }
}
