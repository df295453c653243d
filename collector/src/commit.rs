//! From a checked flush to an acknowledged one: logged, synced, applied, in this order.
//!
//! One thread writes the log. It collects the flushes of some milliseconds, writes them, syncs once,
//! and only then applies them and lets their streams answer. A queued flush carries all that it
//! takes to apply it, and its session's commit_lock: a stream that is cut off meanwhile loses nothing, and
//! the next one of the same session waits until it is known what became of it.
//!
//! Locks: ingest → log → registry → session → the rest. The queue's lock is taken alone.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use prost::Message as _;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::collector::Collector;
use crate::limits::{
    DISK_CHECK_EVERY, WAL_GROUP_BYTES_MAX, WAL_GROUP_WAIT, WAL_GROWTH_BYTES, WAL_QUEUE_BYTES_MAX,
};
use crate::rows::{CheckedFlush, RunRow};
use crate::session::SessionCell;
use crate::store::wal::{Flush, Hello, LogContents, LoggedRun, NotLogged, TreeDelta, Wal, is_full};
use crate::store::{DirectoryLock, TreeSize};
use crate::sync::{lock, read};
use crate::tree::Tree;

/// Name of the thread that writes the log.
const THREAD_NAME: &str = "emberline-log";

/// What an entry takes in the queue beside its bytes.
const ENTRY_BYTES: usize = 512;

const _: () = assert!(WAL_QUEUE_BYTES_MAX <= u32::MAX as usize);

/// Flushes of one session that were checked, and what it takes to apply them.
#[derive(Debug)]
pub(crate) struct AcceptedFlushes {
    pub(crate) cell: Arc<SessionCell>,
    /// Their sequence numbers rise.
    pub(crate) checked: Vec<CheckedFlush>,
    /// Let go when they are applied, or known to be not: nothing else happens in the session before.
    pub(crate) commit_lock: OwnedMutexGuard<()>,
}

#[derive(Debug)]
enum Entry {
    /// All of them are in one group, so that none is safe when one before it is not.
    Flushes {
        accepted: AcceptedFlushes,
        records: Vec<Vec<u8>>,
        done: oneshot::Sender<Result<(), NotLogged>>,
        room: OwnedSemaphorePermit,
    },
    /// Marked through the API, which waits for it.
    Run {
        run: Box<RunRow>,
        record: Vec<u8>,
        done: oneshot::Sender<Result<(), NotLogged>>,
        _room: OwnedSemaphorePermit,
    },
    /// Safe with whatever is synced next.
    Hello { record: Vec<u8>, _room: OwnedSemaphorePermit },
}

impl Entry {
    /// Whether somebody waits until it is safe.
    fn is_awaited(&self) -> bool {
        !matches!(self, Entry::Hello { .. })
    }

    fn bytes(&self) -> usize {
        match self {
            Entry::Flushes { records, .. } => records.iter().map(Vec::len).sum(),
            Entry::Run { record, .. } | Entry::Hello { record, .. } => record.len(),
        }
    }
}

/// The log of a collector that keeps what it acknowledges.
#[derive(Debug)]
pub(crate) struct Log {
    writing: Mutex<Writing>,
    queue: Arc<Queue>,
    /// Bytes that the queue may still take.
    room: Arc<Semaphore>,
    health: Mutex<LogHealth>,
    disk_reserve_bytes: u64,
    /// What was there when the collector started.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "what it lacks is in the manifest; tests ask more")
    )]
    pub(crate) found: LogContents,
    /// Keeps other collectors away from the same folder.
    _lock: Option<DirectoryLock>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What keeps the log from taking anything in.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogHealth {
    /// The disk has no room, and nobody need try.
    pub(crate) full: Option<Full>,
    /// What was written last is not safe, and why. It is tried again with what comes next.
    pub(crate) failed: Option<Arc<str>>,
}

/// A disk without room.
#[derive(Clone, Debug)]
pub(crate) struct Full {
    /// What the system said, if it was found by trying.
    pub(crate) error: Option<Arc<str>>,
    pub(crate) free_bytes: Option<u64>,
}

#[derive(Debug)]
struct Writing {
    wal: Wal,
    logged: TreeSize,
    /// When the disk's room was last looked at.
    looked: Option<Instant>,
}

impl Log {
    pub(crate) fn new(
        (wal, found): (Wal, LogContents),
        logged: TreeSize,
        guard: Option<DirectoryLock>,
        disk_reserve_bytes: u64,
    ) -> Log {
        let log = Log {
            writing: Mutex::new(Writing { wal, logged, looked: None }),
            queue: Arc::default(),
            room: Arc::new(Semaphore::new(WAL_QUEUE_BYTES_MAX)),
            health: Mutex::default(),
            disk_reserve_bytes,
            found,
            _lock: guard,
            thread: Mutex::new(None),
        };
        // A disk that is full already takes nothing in from the first moment on.
        lock(&log.writing).look_at_room(&log);
        log
    }

    /// Whether anything is taken in at present.
    pub(crate) fn check_room(&self) -> Result<(), NotLogged> {
        match &lock(&self.health).full {
            Some(full) => Err(NotLogged::Full { reason: self.reason(full) }),
            None => Ok(()),
        }
    }

    pub(crate) fn health(&self) -> LogHealth {
        lock(&self.health).clone()
    }

    /// Logs flushes, each by its record, and applies them; returns when both are done, or why they are
    /// not. Once they are queued that happens even if this is no longer awaited.
    pub(crate) async fn commit(
        &self,
        accepted: AcceptedFlushes,
        records: Vec<Vec<u8>>,
    ) -> Result<(), NotLogged> {
        self.check_room()?;
        let room = self.room_for(records.iter().map(|record| record.len() + ENTRY_BYTES)).await?;
        let (done, answer) = oneshot::channel();
        self.queue.push(Entry::Flushes { accepted, records, done, room })?;
        answer.await.unwrap_or(Err(NotLogged::Closed))
    }

    /// Logs what an agent said of itself. It is not waited for: the agent says it again.
    pub(crate) async fn log_hello(&self, hello: Hello) -> Result<(), NotLogged> {
        let record = hello.encode_to_vec();
        let room = self.room_for([record.len() + ENTRY_BYTES]).await?;
        self.queue.push(Entry::Hello { record, _room: room })
    }

    /// Logs a run that was marked, and applies it; returns when both are done, or why they are not.
    pub(crate) async fn mark(&self, run: RunRow) -> Result<(), NotLogged> {
        self.check_room()?;
        let record = LoggedRun::of(&run).encode_to_vec();
        let room = self.room_for([record.len() + ENTRY_BYTES]).await?;
        let (done, answer) = oneshot::channel();
        self.queue.push(Entry::Run { run: Box::new(run), record, done, _room: room })?;
        answer.await.unwrap_or(Err(NotLogged::Closed))
    }

    async fn room_for(
        &self,
        bytes: impl IntoIterator<Item = usize>,
    ) -> Result<OwnedSemaphorePermit, NotLogged> {
        let bytes = bytes.into_iter().sum::<usize>().min(WAL_QUEUE_BYTES_MAX);
        let bytes = u32::try_from(bytes).expect("the queue's limit is below 2^32");
        let room = self.room.clone().acquire_many_owned(bytes).await;
        room.map_err(|_| NotLogged::Closed)
    }

    /// Begins a new file of the log, and calls `take` at the moment between: what was applied until
    /// then is in files before the one whose number this gives, and nothing else is.
    ///
    /// # Errors
    /// If the new file cannot be begun; `take` was not called then.
    pub(crate) fn cut<T>(&self, take: impl FnOnce() -> T) -> io::Result<(u64, T)> {
        let mut writing = lock(&self.writing);
        let number = writing.wal.rotate()?;
        Ok((number, take()))
    }

    /// Removes the files before the one of that number, for what they hold is in tables.
    pub(crate) fn remove_before(&self, number: u64) -> io::Result<()> {
        lock(&self.writing).wal.remove_before(number)
    }

    /// Starts the thread that writes; it ends with the collector.
    pub(crate) fn start(collector: &Arc<Collector>) -> io::Result<()> {
        let Some(log) = &collector.log else { return Ok(()) };
        let (queue, weak) = (log.queue.clone(), Arc::downgrade(collector));
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
        let thread = thread.spawn(move || write_groups(&queue, &weak))?;
        *lock(&log.thread) = Some(thread);
        Ok(())
    }

    /// Takes nothing in any more, and returns when what was taken in is safe and applied.
    pub(crate) fn close(&self) {
        self.queue.close();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the log's thread ended by a panic: a bug of Emberline");
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Not joined: it may be this very thread that lets go of the collector last.
        self.queue.close();
    }
}

/// The thread's work: group after group, until the queue is closed and empty.
fn write_groups(queue: &Queue, collector: &Weak<Collector>) {
    /// Whoever waits is let go, even if the thread ends by a panic.
    struct CloseAtEnd<'a>(&'a Queue);
    impl Drop for CloseAtEnd<'_> {
        fn drop(&mut self) {
            self.0.close();
            drop(self.0.take());
        }
    }
    let _close = CloseAtEnd(queue);
    while let Some(group) = queue.next_group() {
        let Some(collector) = collector.upgrade() else { return };
        collector.commit_group(group);
    }
}

impl Collector {
    /// Writes, syncs and applies what is queued.
    fn commit_group(&self, group: Vec<Entry>) {
        let Some(log) = &self.log else { return };
        let mut writing = lock(&log.writing);
        writing.look_at_room(log);
        if group.is_empty() {
            return;
        }
        let logged = writing.logged;
        let written = writing.write(&group, &self.tree);
        let failure = written.err().map(|error| {
            // The delta went with the rest.
            writing.logged = logged;
            log.failed(&error, writing.wal.free_bytes().ok())
        });
        if failure.is_none() && group.iter().any(Entry::is_awaited) {
            lock(&log.health).failed = None;
        }
        // Applied before the log is let go, so that a cut finds in memory what is in the files
        // before it, and nothing else.
        for entry in group {
            if let Entry::Run { run, done, .. } = entry {
                if failure.is_none() {
                    self.put_run(*run);
                }
                let _ = done.send(failure.clone().map_or(Ok(()), Err));
                continue;
            }
            let Entry::Flushes { accepted, done, room, .. } = entry else { continue };
            let result = match &failure {
                None => {
                    self.apply(accepted);
                    Ok(())
                }
                Some(failure) => Err(failure.clone()),
            };
            drop(room);
            // The stream may be gone: its agent learns it from the next Welcome.
            let _ = done.send(result);
        }
    }
}

impl Writing {
    /// Writes a group; what its flushes refer to first. Synced if anybody waits for any of it.
    fn write(&mut self, group: &[Entry], tree: &RwLock<Tree>) -> io::Result<()> {
        let is_awaited = group.iter().any(Entry::is_awaited);
        if is_awaited {
            // In pieces, so that dictionaries wait only for one of them.
            while let Some(delta) = {
                let tree = read(tree);
                tree.delta_since(&mut self.logged, WAL_GROWTH_BYTES)
            } {
                self.wal.append(TreeDelta::KIND, &delta.encode_to_vec())?;
            }
        }
        for entry in group {
            match entry {
                Entry::Flushes { records, .. } => {
                    for record in records {
                        self.wal.append(Flush::KIND, record)?;
                    }
                }
                Entry::Run { record, .. } => self.wal.append(LoggedRun::KIND, record)?,
                Entry::Hello { record, .. } => self.wal.append(Hello::KIND, record)?,
            }
        }
        if is_awaited { self.wal.sync() } else { self.wal.write() }
    }

    /// Finds out now and then whether the disk has room, and takes up work again when it has.
    fn look_at_room(&mut self, log: &Log) {
        if self.looked.is_some_and(|looked| looked.elapsed() < DISK_CHECK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let free_bytes = self.wal.free_bytes().ok();
        let full = match free_bytes {
            Some(free) if free < log.disk_reserve_bytes => Some(Full { error: None, free_bytes }),
            // A disk that was full may say otherwise and still take nothing.
            Some(_) => {
                let error = self.wal.ready().err().filter(is_full);
                error.map(|error| Full { error: Some(error.to_string().into()), free_bytes })
            }
            // The next write will tell.
            None => None,
        };
        lock(&log.health).full = full;
    }
}

impl Log {
    /// What an error means for those who wait. It is looked at later whether there is room again.
    fn failed(&self, error: &io::Error, free_bytes: Option<u64>) -> NotLogged {
        let reason: Arc<str> = error.to_string().into();
        let mut health = lock(&self.health);
        if is_full(error) {
            health.full = Some(Full { error: Some(reason.clone()), free_bytes });
            return NotLogged::Full { reason };
        }
        health.failed = Some(reason.clone());
        NotLogged::Failed { reason }
    }

    /// Why the disk counts as full, in the words that agents are told.
    fn reason(&self, full: &Full) -> Arc<str> {
        full.error.clone().unwrap_or_else(|| {
            let (free, reserve) =
                (full.free_bytes.unwrap_or(0) >> 20, self.disk_reserve_bytes >> 20);
            format!("{free} MiB are free, and below {reserve} MiB nothing is taken in").into()
        })
    }
}

/// What waits to be written.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    entries: VecDeque<Entry>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    fn push(&self, entry: Entry) -> Result<(), NotLogged> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(NotLogged::Closed);
        }
        state.bytes += entry.bytes();
        state.entries.push_back(entry);
        // The thread sleeps until there is something, and then until there is much.
        if state.entries.len() == 1 || state.bytes >= WAL_GROUP_BYTES_MAX {
            self.arrived.notify_one();
        }
        Ok(())
    }

    fn close(&self) {
        lock(&self.state).closed = true;
        self.arrived.notify_one();
    }

    /// Everything that waits.
    fn take(&self) -> Vec<Entry> {
        let mut state = lock(&self.state);
        state.bytes = 0;
        mem::take(&mut state.entries).into()
    }

    /// What arrives within a short time after the first entry, about [`WAL_GROUP_BYTES_MAX`] of it;
    /// nothing if none comes for [`DISK_CHECK_EVERY`]. `None` when the queue is closed and empty.
    fn next_group(&self) -> Option<Vec<Entry>> {
        let state = lock(&self.state);
        let idle = |state: &mut QueueState| state.entries.is_empty() && !state.closed;
        let waited = self.arrived.wait_timeout_while(state, DISK_CHECK_EVERY, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.entries.is_empty() {
            return (!state.closed).then(Vec::new);
        }
        let few = |state: &mut QueueState| state.bytes < WAL_GROUP_BYTES_MAX && !state.closed;
        let waited = self.arrived.wait_timeout_while(state, WAL_GROUP_WAIT, few);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut group = Vec::new();
        let mut bytes = 0;
        while bytes < WAL_GROUP_BYTES_MAX
            && let Some(entry) = state.entries.pop_front()
        {
            bytes += entry.bytes();
            group.push(entry);
        }
        state.bytes -= bytes;
        Some(group)
    }
}

#[cfg(test)]
impl Collector {
    /// The thread's work in a test that has no thread: one group, after a look at the disk.
    pub(crate) fn commit_waiting(&self) {
        if let Some(log) = &self.log {
            lock(&log.writing).looked = None;
            self.commit_group(log.queue.take());
        }
    }

    /// Makes the log begin new files more often.
    pub(crate) fn limit_log_files(&self, bytes_max: u64) {
        if let Some(log) = &self.log {
            lock(&log.writing).wal.limit_files(bytes_max);
        }
    }
}
