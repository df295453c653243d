//! The commit of flushes: logged, synced, applied, in this order.
//!
//! One thread writes the log. It collects flushes for some milliseconds, writes them, syncs once, and
//! only then applies them and lets their streams acknowledge. A queued flush carries everything that is
//! needed to apply it, and its session's commit lock. So a stream that is cut off meanwhile loses
//! nothing, and the next stream of the session waits until the flush is applied or has failed.
//! Large flushes are applied by [another thread](applier).

mod applier;
mod queue;

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::applier::Applier;
use self::queue::{GroupLimits, Queue};
use crate::session::{CommitLock, SessionCell};
use crate::tree::TreeLock;
use base::heartbeat::{self, ThreadPulse};
use base::limits::{DISK_CHECK_EVERY, WAL_GROWTH_BYTES, WAL_QUEUE_BYTES_MAX};
use base::sync::{Mutex, lock, rank, read};
use shares::identity::Identity;
use store::late_hours::first_second;
use store::rows::{CheckedFlush, RunRow};
use store::wal::{Flush, Hello, LogContents, LoggedRun, NotLogged, TreeDelta, Wal, is_full};
use store::{StoreGuard, TreeSize};

/// Name of the thread that writes the log.
const THREAD_NAME: &str = "emberline-log";

/// Tasks of flushes that are applied apart: about as many as are applied in [`WAL_GROUP_WAIT`](base::limits::WAL_GROUP_WAIT).
const APPLIED_APART_TASKS: usize = 1 << 13;

/// Memory of a queue entry without its record, in bytes.
const ENTRY_BYTES: usize = 512;

const _: () = assert!(WAL_QUEUE_BYTES_MAX <= u32::MAX as usize);

/// Target of the log's entries: they are applied to it once they are durable.
pub trait Apply: fmt::Debug + Send + Sync {
    /// The tree that the entries refer to. Its growth is logged before them.
    fn tree(&self) -> &TreeLock;

    fn apply(&self, accepted: AcceptedFlushes);

    /// Forgets what is open of an agent that has moved.
    fn forget_open(&self, cell: &SessionCell);

    fn put_run(&self, run: RunRow);
}

/// Checked flushes of one session.
#[derive(Debug)]
pub struct AcceptedFlushes {
    pub cell: Arc<SessionCell>,
    /// By sequence number, ascending.
    pub flushes: Vec<CheckedFlush>,
    /// Released when the flushes are applied or have failed.
    pub commit_lock: CommitLock,
    /// Of an import; released at the same time.
    pub import_lock: Option<CommitLock>,
}

impl AcceptedFlushes {
    /// Whether applying them would delay the next group.
    fn are_large(&self) -> bool {
        let tasks = self.flushes.iter().map(|flush| flush.tasks.len());
        self.cell.worker.is_import() || tasks.sum::<usize>() >= APPLIED_APART_TASKS
    }
}

#[derive(Debug)]
enum Entry {
    /// All of them are written in one group, so none is durable unless those before it are.
    Flushes {
        accepted: AcceptedFlushes,
        records: Vec<Vec<u8>>,
        done: oneshot::Sender<Result<(), NotLogged>>,
        room: OwnedSemaphorePermit,
    },
    /// A run marked through the API, which waits for the result.
    Run {
        run: Box<RunRow>,
        record: Vec<u8>,
        done: oneshot::Sender<Result<(), NotLogged>>,
        _room: OwnedSemaphorePermit,
    },
    /// Becomes durable with the next sync, or at once if nothing may follow.
    Hello {
        record: Vec<u8>,
        is_end: bool,
        _room: OwnedSemaphorePermit,
    },
    /// The end of a stream whose agent has moved, which waits for the result.
    Moved {
        cell: Arc<SessionCell>,
        record: Vec<u8>,
        done: oneshot::Sender<Result<(), NotLogged>>,
        _room: OwnedSemaphorePermit,
    },
}

impl Entry {
    /// Whether a stream, a request or a reader of the store waits until the entry is durable.
    fn is_awaited(&self) -> bool {
        !matches!(self, Entry::Hello { is_end: false, .. })
    }

    fn bytes(&self) -> usize {
        match self {
            Entry::Flushes { records, .. } => records.iter().map(Vec::len).sum(),
            Entry::Run { record, .. }
            | Entry::Hello { record, .. }
            | Entry::Moved { record, .. } => record.len(),
        }
    }
}

/// The log of a collector that keeps what it acknowledges.
#[derive(Debug)]
pub struct Log {
    writer: Mutex<Writer, rank::LogWriter>,
    apply: Arc<dyn Apply>,
    applier: Applier,
    queue: Arc<Queue>,
    /// Bytes that the queue still accepts.
    room: Arc<Semaphore>,
    health: Mutex<LogHealth, rank::LogHealth>,
    disk_reserve_bytes: u64,
    /// Contents of the log that were read at the start.
    pub found: LogContents,
    guard: Mutex<StoreGuard, rank::StoreGuard>,
    thread: Mutex<Option<JoinHandle<()>>, rank::ThreadHandle>,
}

/// Why the log does not accept entries.
#[derive(Clone, Debug, Default)]
pub struct LogHealth {
    /// The disk is full; entries are refused without a try.
    pub full: Option<Full>,
    /// The last write failed, and why. The next entry is tried again.
    pub failed: Option<Arc<str>>,
}

/// A disk without room.
#[derive(Clone, Debug)]
pub struct Full {
    /// The system's error, if a write found the disk full.
    pub error: Option<Arc<str>>,
    pub free_bytes: Option<u64>,
}

#[derive(Debug)]
struct Writer {
    wal: Wal,
    logged: TreeSize,
    /// When the free space was last checked.
    checked_at: Option<Instant>,
}

impl Log {
    /// A log whose files were read. Their records are applied already.
    pub fn new(
        wal: Wal,
        found: LogContents,
        apply: Arc<dyn Apply>,
        guard: StoreGuard,
        disk_reserve_bytes: u64,
    ) -> Log {
        let group = if wal.is_write_once() {
            GroupLimits::BUCKET
        } else {
            GroupLimits::DISK
        };
        let logged = read(apply.tree()).size();
        let log = Log {
            writer: Mutex::new(Writer {
                wal,
                logged,
                checked_at: None,
            }),
            apply,
            applier: Applier::default(),
            queue: Arc::new(Queue::new(group)),
            room: Arc::new(Semaphore::new(WAL_QUEUE_BYTES_MAX)),
            health: Mutex::default(),
            disk_reserve_bytes,
            found,
            guard: Mutex::new(guard),
            thread: Mutex::new(None),
        };
        // A disk that is full at the start blocks ingest from the first flush on.
        lock(&log.writer).check_disk(&log);
        log
    }

    /// Whether the disk has room for entries.
    pub fn check_room(&self) -> Result<(), NotLogged> {
        let full = lock(&self.health).full.clone();
        match full {
            Some(full) => Err(NotLogged::Full {
                reason: self.reason(&full),
            }),
            None => Ok(()),
        }
    }

    pub fn health(&self) -> LogHealth {
        lock(&self.health).clone()
    }

    /// Logs the flushes durably, each by its record, then applies them. Cancel-safe: once queued they are
    /// committed even if this future is dropped.
    pub async fn commit(
        &self,
        identity: &Identity,
        accepted: AcceptedFlushes,
        records: Vec<Vec<u8>>,
    ) -> Result<(), NotLogged> {
        self.check_room()?;
        let room = self
            .room_for(records.iter().map(|record| record.len() + ENTRY_BYTES))
            .await?;
        let (done, answer) = oneshot::channel();
        self.queue.push(
            Some(identity),
            Entry::Flushes {
                accepted,
                records,
                done,
                room,
            },
        )?;
        answer.await.unwrap_or(Err(NotLogged::Closed))
    }

    /// Logs a Hello. Does not wait until it is durable: the agent sends it again after a reconnect.
    pub async fn log_hello(&self, identity: &Identity, hello: Hello) -> Result<(), NotLogged> {
        let record = hello.encode_to_vec();
        let room = self.room_for([record.len() + ENTRY_BYTES]).await?;
        self.queue.push(
            Some(identity),
            Entry::Hello {
                record,
                is_end: hello.ended,
                _room: room,
            },
        )
    }

    /// Logs durably that the agent of a session has moved, then forgets what is open of it.
    pub async fn log_move(
        &self,
        identity: &Identity,
        cell: Arc<SessionCell>,
        moved: Hello,
    ) -> Result<(), NotLogged> {
        self.check_room()?;
        let record = moved.encode_to_vec();
        let room = self.room_for([record.len() + ENTRY_BYTES]).await?;
        let (done, answer) = oneshot::channel();
        self.queue.push(
            Some(identity),
            Entry::Moved {
                cell,
                record,
                done,
                _room: room,
            },
        )?;
        answer.await.unwrap_or(Err(NotLogged::Closed))
    }

    /// Logs a run durably, then applies it.
    pub async fn mark_run(&self, run: RunRow) -> Result<(), NotLogged> {
        self.check_room()?;
        let record = LoggedRun::of(&run).encode_to_vec();
        let room = self.room_for([record.len() + ENTRY_BYTES]).await?;
        let (done, answer) = oneshot::channel();
        self.queue.push(
            None,
            Entry::Run {
                run: Box::new(run),
                record,
                done,
                _room: room,
            },
        )?;
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

    /// Starts a new file and calls `take` before anything is written to it. Everything that is applied
    /// then, and nothing else, is in the files before the one whose number this returns.
    ///
    /// # Errors
    /// If the new file cannot be created; `take` is not called then.
    pub fn cut<T>(&self, take: impl FnOnce() -> T) -> io::Result<(u64, T)> {
        let mut writer = lock(&self.writer);
        // Only who has the writer hands it more.
        self.applier.wait();
        let number = writer.wal.rotate()?;
        Ok((number, take()))
    }

    /// How much of the tree is in the log.
    pub fn logged_tree(&self) -> TreeSize {
        lock(&self.writer).logged
    }

    /// Removes the files before the one of that number, because what they hold is in tables.
    pub fn remove_before(&self, number: u64) -> io::Result<()> {
        lock(&self.writer).wal.remove_before(number)
    }

    /// Starts the threads that write and apply. They end when the log is dropped.
    pub fn start(self: &Arc<Log>) -> io::Result<()> {
        self.applier.start()?;
        let queue = self.queue.clone();
        let log = Arc::downgrade(self);
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
        *lock(&self.thread) = Some(thread.spawn(move || write_groups(&queue, &log))?);
        Ok(())
    }

    /// Lets the next collector use the store; `is_sealed` if the log has nothing that the tables lack.
    pub fn release(&self, is_sealed: bool) {
        lock(&self.guard).release(is_sealed);
    }

    /// Accepts no more entries. Returns when those that were accepted are durable and applied.
    pub fn close(&self) {
        self.queue.close();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the log's thread ended by a panic: a bug of Emberline");
        }
        self.applier.end();
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Not joined: the log's own thread may be the one that drops it.
        self.queue.close();
    }
}

/// Commits group after group, until the queue is closed and empty.
fn write_groups(queue: &Queue, log: &Weak<Log>) {
    /// Ends the wait of queued entries, even if the thread panics.
    struct CloseAtEnd<'a>(&'a Queue);
    impl Drop for CloseAtEnd<'_> {
        fn drop(&mut self) {
            self.0.close();
            drop(self.0.take());
        }
    }
    let _close = CloseAtEnd(queue);
    let _pulse = ThreadPulse::of_log();
    while let Some(group) = queue.next_group() {
        heartbeat::beat();
        let Some(log) = log.upgrade() else { return };
        log.commit_group(group);
    }
}

impl Log {
    /// Writes, syncs and applies a group.
    fn commit_group(&self, mut group: Vec<Entry>) {
        let mut writer = lock(&self.writer);
        writer.check_disk(self);
        if group.is_empty() {
            return;
        }
        let logged = writer.logged;
        let written = writer.write(&group, self.apply.tree());
        let failure = written.err().map(|error| {
            // The tree's delta was cut off with the rest.
            writer.logged = logged;
            self.note_failure(&error, writer.wal.free_bytes().ok())
        });
        if failure.is_none() && group.iter().any(Entry::is_awaited) {
            lock(&self.health).failed = None;
        }
        let result = || failure.clone().map_or(Ok(()), Err);
        // A session has one entry at most, so their order does not matter here: a small flush need not wait
        // until a large one is applied.
        group.sort_by_key(Entry::bytes);
        // Applied, or handed to the applier, before the log is unlocked, so that a cut finds in memory exactly
        // what is in the files before it.
        for entry in group {
            heartbeat::beat();
            match entry {
                Entry::Flushes {
                    accepted,
                    done,
                    room,
                    ..
                } => {
                    let result = result();
                    let is_large = accepted.are_large();
                    let apply = self.apply.clone();
                    let finish = move || {
                        if result.is_ok() {
                            apply.apply(accepted);
                        }
                        drop(room);
                        // The stream may be gone; its agent learns the result from the next Welcome.
                        let _ = done.send(result);
                    };
                    if is_large {
                        self.applier.run(finish)
                    } else {
                        finish()
                    }
                }
                Entry::Run { run, done, .. } => {
                    if failure.is_none() {
                        self.apply.put_run(*run);
                    }
                    let _ = done.send(result());
                }
                Entry::Moved { cell, done, .. } => {
                    if failure.is_none() {
                        self.apply.forget_open(&cell);
                    }
                    let _ = done.send(result());
                }
                Entry::Hello { .. } => {}
            }
        }
    }
}

impl Writer {
    /// Writes a group, after the growth of the tree that it refers to. Syncs if any entry is awaited.
    fn write(&mut self, group: &[Entry], tree: &TreeLock) -> io::Result<()> {
        let is_awaited = group.iter().any(Entry::is_awaited);
        if is_awaited {
            // In pieces, so that a dictionary waits for one piece at most.
            while let Some(delta) = {
                let tree = read(tree);
                tree.delta_since(&mut self.logged, WAL_GROWTH_BYTES)
            } {
                self.wal.append(TreeDelta::KIND, &delta.encode_to_vec())?;
            }
        }
        for entry in group {
            match entry {
                Entry::Flushes {
                    accepted, records, ..
                } => {
                    let first = accepted.flushes.iter().filter_map(first_second).min();
                    first
                        .into_iter()
                        .for_each(|second| self.wal.note_data(second));
                    for record in records {
                        self.wal.append(Flush::KIND, record)?;
                    }
                }
                Entry::Run { record, .. } => self.wal.append(LoggedRun::KIND, record)?,
                Entry::Hello { record, .. } | Entry::Moved { record, .. } => {
                    self.wal.append(Hello::KIND, record)?;
                }
            }
        }
        // Not written before it is synced: of two unsynced writes a crash may keep the later one only, and
        // that looks like damage.
        if is_awaited { self.wal.sync() } else { Ok(()) }
    }

    /// Checks the free space every [`DISK_CHECK_EVERY`], and resumes work when the disk has room again.
    fn check_disk(&mut self, log: &Log) {
        if self
            .checked_at
            .is_some_and(|checked_at| checked_at.elapsed() < DISK_CHECK_EVERY)
        {
            return;
        }
        self.checked_at = Some(Instant::now());
        let free_bytes = self.wal.free_bytes().ok();
        let full = match free_bytes {
            Some(free) if free < log.disk_reserve_bytes => Some(Full {
                error: None,
                free_bytes,
            }),
            // A disk that was full may report free space and still refuse writes.
            Some(_) => {
                let error = self.wal.ready().err().filter(is_full);
                error.map(|error| Full {
                    error: Some(error.to_string().into()),
                    free_bytes,
                })
            }
            // Unknown; the next write shows it.
            None => None,
        };
        lock(&log.health).full = full;
    }
}

impl Log {
    /// Records a failed write. Returns the error for the entries that wait.
    fn note_failure(&self, error: &io::Error, free_bytes: Option<u64>) -> NotLogged {
        let reason: Arc<str> = error.to_string().into();
        let mut health = lock(&self.health);
        if is_full(error) {
            health.full = Some(Full {
                error: Some(reason.clone()),
                free_bytes,
            });
            return NotLogged::Full { reason };
        }
        health.failed = Some(reason.clone());
        NotLogged::Failed { reason }
    }

    /// Why the disk counts as full, as agents read it.
    fn reason(&self, full: &Full) -> Arc<str> {
        full.error.clone().unwrap_or_else(|| {
            let free = full.free_bytes.unwrap_or(0) >> 20;
            let reserve = self.disk_reserve_bytes >> 20;
            format!("{free} MiB free, {reserve} MiB needed").into()
        })
    }
}

#[cfg(any(test, feature = "testing"))]
impl Log {
    /// The thread's work where there is no thread: one group, after a check of the disk.
    pub fn commit_waiting(&self) {
        lock(&self.writer).checked_at = None;
        self.commit_group(self.queue.take());
    }

    /// Starts the thread that applies, without the one that writes.
    #[cfg(any(test, feature = "testing"))]
    pub fn start_applier(&self) {
        self.applier.start().expect("a thread starts");
    }

    /// Makes the log start new files more often.
    pub fn limit_files(&self, bytes_max: u64) {
        lock(&self.writer).wal.limit_files(bytes_max);
    }
}
