//! The start of a collector that keeps its data: tables are opened, then the log is replayed.

mod bucket;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler_core::limits::NAME_BYTES_MAX;
use profiler_core::{Epoch, Timestamp, WorkerId};

use crate::CollectorState;
use crate::commit::Log;
use crate::ingest::{Ingest, is_last};
use crate::session::{Presence, SessionCell};
use crate::{Collector, Settings};
use base::limits::{BEHIND_MAX, LOST_LOG_MARGIN, nanoseconds};
use base::sync::{lock, read, write};
use store::late_hours::{LateHours, late_hours};
use store::rows::{CheckedFlush, DisconnectReason};
use store::wal::{
    self, Flush, Hello, LocalDisk, LogContents, LogDisk, Record, TreeDelta, Wal, WalError,
};
use store::{DirectoryLock, LostLog, Manifest, Objects, Second, StoreError, StoreGuard};

pub use self::bucket::StoreOptions;
pub use self::bucket::{log_in_store, log_on_disk};

/// A data folder that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Another collector uses the folder.
    #[error(
        "{} is in use by another collector; stop it or choose another folder with `--data`",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The path is not a folder.
    #[error("{} is {what}, not a folder; choose a folder with `--data`", path.display())]
    NotADirectory {
        /// The requested folder or one above it.
        path: PathBuf,
        /// The type of the file.
        what: &'static str,
    },
    /// The folder cannot be created or written to.
    #[error("cannot write to {}; choose a writable folder with `--data`", folder.display())]
    Directory {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The log must be on a local disk, and there is no folder.
    #[error("`--ack disk` needs a folder for the log: add `--data DIR`, or choose `--ack store`")]
    NoLogFolder,
    /// The log in the folder is not the one that the store needs.
    #[error(
        "the log in {} is not the one that {store} needs, which other collectors have written to since: \
         move the folder away to go on without what it holds",
        folder.display()
    )]
    ForeignLog {
        /// The log's folder.
        folder: PathBuf,
        /// The store that was to be opened.
        store: String,
    },
    /// Acknowledged data is on another collector's disk.
    #[error(
        "the last collector of {store} acknowledged from its own disk, and not all of that is in the store: \
         start it there once more with `--ack disk`. If that disk is lost, start with `--ack disk` and an \
         empty `--data` folder, which records the loss"
    )]
    LogOnDisk {
        /// The store.
        store: String,
    },
    /// Acknowledged data is in the bucket's log.
    #[error(
        "the last collector of {store} did not stop cleanly, and the log in the store may have data that is \
         in no table: start once more with `--ack store`, then stop it"
    )]
    LogInStore {
        /// The store.
        store: String,
    },
    /// The log's thread cannot be started.
    #[error("cannot start the log's thread")]
    LogThread {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The log cannot be used.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The tables cannot be used.
    #[error(transparent)]
    Tables(#[from] StoreError),
    /// The newest version of the tables cannot be written again.
    #[error(
        "cannot write to the tables; nothing was removed: free some space or repair the disk, then \
         start again"
    )]
    Unpublished {
        /// The reason.
        #[source]
        source: StoreError,
    },
}

/// Mode of a new data folder. Profiles reveal as much as source code and logs.
const PRIVATE_FOLDER: u32 = 0o700;

/// Warns if users other than the folder's owner can enter it.
fn warn_if_public(folder: &Path) {
    let mode = fs::metadata(folder).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
    if mode & !PRIVATE_FOLDER != 0 {
        let folder = folder.display();
        tracing::warn!("other users can read {folder} (mode {mode:o}): run chmod 700 {folder}");
    }
}

/// Creates a data folder if it does not exist.
fn create_folder(folder: &Path) -> Result<(), DataError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(folder)
        .map_err(|error| no_folder(folder).unwrap_or_else(|| folder_error(folder, error)))?;
    warn_if_public(folder);
    // Makes a new folder durable. If its parent cannot be opened, the folder existed before.
    if let Some(parent) = fs::canonicalize(folder)
        .ok()
        .as_deref()
        .and_then(Path::parent)
    {
        let _ = File::open(parent).and_then(|parent| parent.sync_all());
    }
    Ok(())
}

fn folder_error(folder: &Path, source: io::Error) -> DataError {
    DataError::Directory {
        folder: folder.to_owned(),
        source,
    }
}

pub fn lock_folder(folder: &Path) -> Result<DirectoryLock, DataError> {
    DirectoryLock::take(folder).map_err(|error| match error {
        StoreError::Locked { .. } => DataError::InUse {
            folder: folder.to_owned(),
        },
        error => error.into(),
    })
}

impl Collector {
    /// A collector with the data in a folder, which keeps there what it acknowledges.
    pub fn open_folder(settings: Settings, folder: &Path) -> Result<Collector, DataError> {
        create_folder(folder)?;
        let guard = StoreGuard::new(Some(lock_folder(folder)?), None);
        let disk = LocalDisk::new(folder.join("wal"), folder.join("quarantine"))
            .map_err(|source| folder_error(folder, source))?;
        let objects = Objects::local(folder)?;
        let collector = Collector::open(settings, objects, Box::new(disk), guard)?;
        lock(&collector.ingest.status).folder = Some(folder.to_owned());
        if let Some(log) = &collector.ingest.log {
            log.start().map_err(|source| folder_error(folder, source))?;
        }
        Ok(collector)
    }

    /// Like [`Collector::open_folder`], on any disk and without the log's thread.
    pub fn open(
        settings: Settings,
        objects: Objects,
        mut disk: Box<dyn LogDisk>,
        guard: StoreGuard,
    ) -> Result<Collector, DataError> {
        let Settings {
            clock,
            limits,
            quotas,
            retention,
            grace,
            naming,
        } = settings;
        let is_bucket = objects.is_bucket();
        if !is_bucket && wal::is_new(&mut *disk)? {
            Manifest::delete_lone_first(&objects)?;
        }
        let state = Arc::new(CollectorState::open(clock, limits, objects, naming)?);
        let now = state.clock.now();
        let wal_from = state.tables.manifest().wal_from;
        // The last process ended between writing a version and removing the log that it replaces, so its
        // sync may have failed. The log is removed below.
        if !is_bucket && wal::has_files_before(&mut *disk, wal_from)? {
            state
                .tables
                .republish()
                .map_err(|source| DataError::Unpublished { source })?;
        }
        let taken_over = disk.take_over(wal_from);
        taken_over.map_err(|source| WalError::Io {
            what: "take over the log".to_owned(),
            source,
        })?;
        let mut replay = Replay::new(state.clone());
        // Replayed events are not reported again.
        state.events.pause(true);
        let (wal, found) = Wal::open(disk, wal_from, &mut |record| replay.record(record))?;
        state.events.pause(false);
        let late = replay.late;
        await_agents(&state, now);
        note_lost_log(&state, &found, now);
        let LogContents {
            files,
            records,
            bytes,
            torn_bytes,
            damages,
            ..
        } = found;
        let sessions = lock(&state.registry).all().len();
        tracing::info!(
            files,
            records,
            bytes,
            torn_bytes,
            damages,
            sessions,
            "log replayed"
        );
        let reserve = state.limits.disk_reserve_bytes;
        let log = Arc::new(Log::new(wal, found, state.clone(), guard, reserve));
        let ingest = Ingest::new(state.clone(), Some(log), late, grace, &retention);
        Ok(Collector::of(state, ingest, retention, &quotas))
    }
}

/// The lost parts of a log, with the time that they may be about. `manifest` is the version that needs the log.
pub fn lost_log(manifest: &Manifest, found: &LogContents, now: Timestamp) -> Vec<LostLog> {
    let made_at = Timestamp::from_unix_ns(manifest.made_at_ns);
    let ago = |span| Second::of(made_at.min(now).shifted(-nanoseconds(span)));
    let recent = ago(LOST_LOG_MARGIN);
    // Lost records may have had late data. Without a mark it may be as late as any.
    let from = match found.data_from {
        Some(first) => first.min(recent).0,
        None if found.is_marked => recent.0,
        None => ago(BEHIND_MAX).0,
    };
    // The clock may have been set back meanwhile.
    let to = Second::of(made_at.max(now)).0.saturating_add(1);
    found
        .lost()
        .map(|(path, reason)| LostLog {
            path,
            reason,
            from,
            to,
        })
        .collect()
}

/// Records lost parts of the log in the manifest, so that answers about their time name them.
fn note_lost_log(state: &CollectorState, found: &LogContents, now: Timestamp) {
    let before = state.tables.manifest();
    let manifest = state.tables.note_lost_log(lost_log(&before, found, now));
    let known = before.lost_log.len();
    for lost in manifest.lost_log.iter().skip(known) {
        state
            .events
            .damaged(lost.path.clone(), lost.reason.clone(), now);
    }
    let lost = manifest.lost.len() + manifest.lost_log.len();
    if lost > 0 {
        tracing::warn!(
            lost,
            "parts of the data are lost; `emberline store info` lists them"
        );
    }
    state.show_manifest(&manifest);
}

/// Marks all agents that were not gone as away: each may reconnect within the grace period and find
/// its tasks running.
fn await_agents(state: &CollectorState, now: Timestamp) {
    let sessions = lock(&state.registry).all();
    for cell in sessions {
        let mut session = lock(&cell.state);
        if session.presence == Presence::Connected {
            let disconnect = cell.disconnect(now, DisconnectReason::Unknown);
            session.presence = Presence::Away(disconnect);
        }
    }
}

/// Applies the records of the log in their order.
#[derive(Debug)]
pub struct Replay {
    state: Arc<CollectorState>,
    late: LateHours,
    /// Flushes of imports whose last one has not come. Those at the end of the log were never acknowledged.
    imports: BTreeMap<(WorkerId, Epoch), Vec<ReplayedFlush>>,
}

/// A flush of an import.
#[derive(Debug)]
struct ReplayedFlush {
    flush: CheckedFlush,
    received_at: Timestamp,
}

impl Replay {
    pub fn new(state: Arc<CollectorState>) -> Replay {
        Replay {
            state,
            late: LateHours::default(),
            imports: BTreeMap::new(),
        }
    }

    pub fn record(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::TreeDelta(delta) => self.tree_delta(&delta),
            Record::Hello(hello) => self.hello(hello),
            Record::Flush(flush) => self.flush(*flush),
            Record::Run(run) => {
                write(&self.state.telemetry).put_run(run.row(), None);
                Ok(())
            }
            Record::Owner(_) => Ok(()),
        }
    }

    fn tree_delta(&self, delta: &TreeDelta) -> Result<(), String> {
        let filled = write(&self.state.tree)
            .restore(delta)
            .map_err(|error| error.to_string())?;
        if filled != Default::default() {
            warn_filled(&filled);
        }
        Ok(())
    }

    fn hello(&self, hello: Hello) -> Result<(), String> {
        let received_at = Timestamp::from_unix_ns(hello.received_at_ns);
        let cell = self.session(&hello.worker, hello.epoch)?;
        let mut registry = lock(&self.state.registry);
        let mut session = lock(&cell.state);
        session.note_seen(received_at);
        // The tables may have the end of an earlier stream.
        session.presence = Presence::Connected;
        if hello.moved {
            self.state.forget_open(&cell.worker, cell.epoch);
            session.end(cell.disconnect(received_at, DisconnectReason::Clean));
        } else if hello.ended {
            // Its open tasks end as lost with the next sweep.
            let disconnect = cell.disconnect(received_at, DisconnectReason::Clean);
            session.presence = Presence::Away(disconnect);
        }
        registry.set_agent(&mut session, hello.agent());
        Ok(())
    }

    /// A flush counts once, however often it is in the log: an agent sends a flush that was not
    /// acknowledged again, with the same content.
    fn flush(&mut self, flush: Flush) -> Result<(), String> {
        let state = &self.state;
        let received_at = Timestamp::from_unix_ns(flush.received_at_ns);
        let cell = self.session(&flush.worker, flush.epoch)?;
        if flush.seq <= lock(&cell.state).acked_seq {
            return Ok(());
        }
        let last = flush.last_node().map_err(|error| error.to_string())?;
        if last.0 >= read(&state.tree).node_count() {
            let filled = write(&state.tree)
                .restore_node(last)
                .map_err(|error| error.to_string())?;
            warn_filled(&filled);
        }
        let checked = {
            let tree = read(&state.tree);
            let checked = flush.checked(&cell.worker, |node| tree.task_of(node));
            checked.map_err(|error| error.to_string())?
        };
        let flush = ReplayedFlush {
            flush: checked,
            received_at,
        };
        if !cell.worker.is_import() {
            self.apply(&cell, flush);
            return Ok(());
        }
        let key = (cell.worker.clone(), cell.epoch);
        let is_last = is_last(&flush.flush);
        let import = self.imports.entry(key.clone()).or_default();
        // A failed write may have left a part of it.
        import.retain(|earlier| earlier.flush.seq < flush.flush.seq);
        import.push(flush);
        if is_last && let Some(import) = self.imports.remove(&key) {
            import
                .into_iter()
                .for_each(|flush| self.apply(&cell, flush));
        }
        Ok(())
    }

    fn apply(&mut self, cell: &SessionCell, flush: ReplayedFlush) {
        let ReplayedFlush { flush, received_at } = flush;
        let mut session = lock(&cell.state);
        session.note_seen(received_at);
        session.note_applied(&flush.facts());
        drop(session);
        self.late.restore(late_hours(&flush, received_at));
        self.state.insert(cell, None, flush);
    }

    /// The session of a record.
    fn session(&self, worker: &str, epoch: u64) -> Result<Arc<SessionCell>, String> {
        if worker.is_empty() || worker.len() > NAME_BYTES_MAX {
            return Err(format!("a worker's id of {} bytes", worker.len()));
        }
        let (cell, evicted) =
            lock(&self.state.registry).restore_session(&WorkerId(worker.into()), Epoch(epoch));
        if let Some(evicted) = evicted {
            let last_seen = lock(&evicted.state).last_seen;
            let state = &self.state;
            write(&state.ledger).end_as_lost(&evicted.worker, evicted.epoch, last_seen);
            write(&state.telemetry).end_runs_as_lost(&evicted.worker, evicted.epoch, last_seen);
        }
        Ok(cell)
    }
}

fn warn_filled(filled: &impl std::fmt::Debug) {
    tracing::warn!(?filled, "stacks that a damaged log lost are [overflow]");
}

/// The error for a folder that cannot be created because it, or one above it, is something else.
pub fn no_folder(folder: &Path) -> Option<DataError> {
    let found = folder
        .ancestors()
        .find_map(|path| Some((path, other_kind(path)?)));
    found.map(|(path, what)| DataError::NotADirectory {
        path: path.to_owned(),
        what,
    })
}

/// Returns the kind of a file that is no folder; `None` for a folder or a missing file.
fn other_kind(path: &Path) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => None,
        Ok(found) if found.is_file() => Some("a file"),
        Ok(_) => Some("a special file"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => fs::symlink_metadata(path)
            .is_ok()
            .then_some("a dangling link"),
        Err(_) => None,
    }
}
