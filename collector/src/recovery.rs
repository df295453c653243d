//! A collector that starts again with what it kept.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler_core::limits::NAME_BYTES_MAX;
use profiler_core::{Epoch, Timestamp, WorkerId};

use crate::collector::{Collector, Settings};
use crate::commit::Log;
use crate::late_hours::late_hours;
use crate::limits::{LOST_LOG_MARGIN, nanoseconds};
use crate::session::{Presence, SessionCell};
use crate::store::wal::{
    Flush, Hello, LocalDisk, LogContents, LogDisk, LoggedRun, Record, Wal, WalError,
};
use crate::store::{DirectoryLock, LostLog, Objects, Second, StoreError, StoredState, TreeSize};
use crate::sync::{lock, read, write};

/// Why a collector cannot keep its data in a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Another collector uses it.
    #[error(
        "the data in {} is in use by another collector; end that one, or choose another folder with \
         `--data`",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// There is something else of that name.
    #[error("{} is {what} and no folder; choose a folder to keep data in with `--data`", path.display())]
    NoFolder {
        /// The folder that was asked for, or one above it.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The folder cannot be made or written to.
    #[error("cannot keep data in {}; choose a folder that can be written to with `--data`", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// What is there cannot be used.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The tables cannot be used.
    #[error(transparent)]
    Tables(#[from] StoreError),
}

impl Collector {
    /// A collector with all that a folder holds, which keeps there what it acknowledges.
    pub(crate) fn open_folder(
        settings: Settings,
        folder: &Path,
    ) -> Result<Arc<Collector>, DataError> {
        let failed = |source| DataError::Folder { folder: folder.to_owned(), source };
        fs::create_dir_all(folder)
            .map_err(|error| no_folder(folder).unwrap_or_else(|| failed(error)))?;
        // So that a folder which was just made outlives a crash. It may be that the one above it cannot
        // be opened; then it was there before us.
        let whole = fs::canonicalize(folder);
        if let Some(above) = whole.ok().as_deref().and_then(Path::parent) {
            let _ = File::open(above).and_then(|above| above.sync_all());
        }
        let guard = DirectoryLock::take(folder).map_err(|error| match error {
            StoreError::Locked { .. } => DataError::InUse { folder: folder.to_owned() },
            error => error.into(),
        })?;
        let disk = LocalDisk::new(folder.join("wal"), folder.join("quarantine")).map_err(failed)?;
        let objects = Objects::local(folder)?;
        let collector = Collector::open(settings, objects, Box::new(disk), Some(guard))?;
        lock(&collector.ingest).folder = Some(folder.to_owned());
        let collector = Arc::new(collector);
        Log::start(&collector).map_err(failed)?;
        Ok(collector)
    }

    /// As [`Collector::open_folder`], on any disk and without the thread that writes.
    pub(crate) fn open(
        settings: Settings,
        objects: Objects,
        disk: Box<dyn LogDisk>,
        guard: Option<DirectoryLock>,
    ) -> Result<Collector, DataError> {
        let mut collector = Collector::over(settings, objects)?;
        let now = collector.clock.now();
        let wal_from = collector.tables.manifest().wal_from;
        // What was told before is no news.
        collector.events.pause(true);
        let (wal, found) = Wal::open(disk, wal_from, &mut |record| collector.replay(record))?;
        collector.events.pause(false);
        collector.await_agents(now);
        let logged = TreeSize::of(&read(&collector.tree));
        collector.note_lost_log(&found, now);
        let LogContents { files, records, bytes, torn_bytes, damages, .. } = found;
        let sessions = lock(&collector.registry).all().len();
        tracing::info!(files, records, bytes, torn_bytes, damages, sessions, "the log was read");
        let reserve = collector.limits.disk_reserve_bytes;
        collector.log = Some(Log::new((wal, found), logged, guard, reserve));
        Ok(collector)
    }

    /// What the log no longer tells is missing from answers about the time in which it was told.
    fn note_lost_log(&self, found: &LogContents, now: Timestamp) {
        let before = self.tables.manifest();
        let made_at = Timestamp::from_unix_ns(before.made_at_ns);
        let from = Second::of(made_at.min(now).shifted(-nanoseconds(LOST_LOG_MARGIN))).0;
        // The clock may have been set back meanwhile.
        let to = Second::of(made_at.max(now)).0.saturating_add(1);
        let lost = found.lost().map(|(path, reason)| LostLog { path, reason, from, to });
        let manifest = self.tables.note_lost_log(lost.collect());
        let known = before.lost_log.len();
        for lost in manifest.lost_log.iter().skip(known) {
            self.events.damaged(lost.path.clone(), lost.reason.clone(), now);
        }
        let lost = manifest.lost.len() + manifest.lost_log.len();
        if lost > 0 {
            tracing::warn!(lost, "parts of the data are lost; `emberline store info` names them");
        }
        self.show_manifest(&manifest);
    }

    /// Takes in what the tables say of the tree, the sessions and what ran.
    pub(crate) fn restore(&self, loaded: StoredState) {
        let StoredState { manifest, frames, nodes, workers, sessions, running, .. } = loaded;
        let StoredState { lost_tasks, runs, expected, reports, .. } = loaded;
        self.events.note_lost(&manifest);
        for report in reports {
            self.events.damaged("store".to_owned(), report, self.clock.now());
        }
        tracing::info!(
            files = manifest.files.len(),
            nodes = nodes.len(),
            workers = workers.len(),
            sessions = sessions.len(),
            "the tables were read"
        );
        write(&self.tree).restore_all(frames, nodes);
        for record in sessions {
            let mut registry = lock(&self.registry);
            let (cell, _) = registry.restore_session(&record.worker, record.epoch);
            let mut session = lock(&cell.state);
            let agent = session.restore(record);
            registry.set_agent(&mut session, agent);
        }
        write(&self.ledger).restore(running.into_iter().map(Arc::unwrap_or_clone), lost_tasks);
        write(&self.records).restore(runs, expected);
    }

    /// Takes in a record of the log, as it was taken in when it was logged.
    fn replay(&self, record: Record) -> Result<(), String> {
        match record {
            Record::TreeDelta(delta) => {
                let filled =
                    write(&self.tree).restore(&delta).map_err(|error| error.to_string())?;
                if filled != Default::default() {
                    tracing::warn!(
                        ?filled,
                        "stacks that a damaged log no longer tells are [overflow]"
                    );
                }
                Ok(())
            }
            Record::Hello(hello) => self.replay_hello(hello),
            Record::Flush(flush) => self.replay_flush(*flush),
            Record::Run(run) => {
                self.replay_run(run);
                Ok(())
            }
        }
    }

    fn replay_run(&self, run: LoggedRun) {
        write(&self.records).put_run(run.row());
    }

    fn replay_hello(&self, hello: Hello) -> Result<(), String> {
        let said_at = Timestamp::from_unix_ns(hello.received_at_ns);
        let cell = self.restored(&hello.worker, hello.epoch)?;
        let mut registry = lock(&self.registry);
        let mut session = lock(&cell.state);
        session.note_seen(said_at);
        registry.set_agent(&mut session, hello.agent());
        Ok(())
    }

    /// A flush counts once, however often it is in the log: one that could not be acknowledged was
    /// sent again, with the same content.
    fn replay_flush(&self, flush: Flush) -> Result<(), String> {
        let received_at = Timestamp::from_unix_ns(flush.received_at_ns);
        let cell = self.restored(&flush.worker, flush.epoch)?;
        let mut session = lock(&cell.state);
        if flush.seq <= session.acked_seq {
            return Ok(());
        }
        let last = flush.last_node().map_err(|error| error.to_string())?;
        if last.0 >= read(&self.tree).node_count() {
            let filled = write(&self.tree).restore_node(last).map_err(|error| error.to_string())?;
            tracing::warn!(?filled, "stacks that a damaged log no longer tells are [overflow]");
        }
        let checked = {
            let tree = read(&self.tree);
            let checked = flush.checked(&cell.worker, |node| tree.task_of(node));
            checked.map_err(|error| error.to_string())?
        };
        session.note_seen(received_at);
        session.note_applied(&checked);
        lock(&self.late).restore(late_hours(&checked, received_at));
        self.store(&cell, checked);
        Ok(())
    }

    /// The session that a record is about.
    fn restored(&self, worker: &str, epoch: u64) -> Result<Arc<SessionCell>, String> {
        if worker.is_empty() || worker.len() > NAME_BYTES_MAX {
            return Err(format!("a worker's id of {} bytes", worker.len()));
        }
        let (cell, evicted) =
            lock(&self.registry).restore_session(&WorkerId(worker.into()), Epoch(epoch));
        if let Some(evicted) = evicted {
            let last_seen = lock(&evicted.state).last_seen;
            let (worker, epoch) = (&evicted.worker, evicted.epoch);
            write(&self.ledger).end_as_lost(worker, epoch, last_seen);
            write(&self.records).end_runs_as_lost(worker, epoch, last_seen);
        }
        Ok(cell)
    }

    /// No agent is there yet. Each may come back within the grace and find its tasks running.
    fn await_agents(&self, now: Timestamp) {
        for cell in lock(&self.registry).all() {
            lock(&cell.state).presence = Presence::Away(now);
        }
    }
}

/// The first of a folder and those above it that is something else, if that is why it cannot be made.
fn no_folder(folder: &Path) -> Option<DataError> {
    let other = |path: &Path| match fs::metadata(path) {
        Ok(found) if found.is_dir() => None,
        Ok(found) if found.is_file() => Some("a file"),
        Ok(_) => Some("a device or the like"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::symlink_metadata(path).is_ok().then_some("a link that leads nowhere")
        }
        Err(_) => None,
    };
    let found = folder.ancestors().find_map(|path| Some((path, other(path)?)));
    found.map(|(path, what)| DataError::NoFolder { path: path.to_owned(), what })
}

#[cfg(test)]
mod tests;
