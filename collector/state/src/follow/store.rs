//! One collector's store, as a process reads it that does not own it.

use std::sync::Arc;

use profiler_core::Timestamp;

use super::{FollowError, FollowOptions, missing_since};
use crate::CollectorState;
use crate::recovery::{Replay, lost_log};
use base::clock::Clock;
use base::limits::{FOLLOW_READS_MAX, Limits};
use store::bucket::{self, OwnerSighting, TableCache};
use store::wal::{self, BucketDisk, ListedLog, LocalDisk, LogContents, LogDisk};
use store::{Listed, LostLog, Manifest, Objects, StoreName, StorePlace, fits_union};

/// The store of one collector.
#[derive(Debug)]
pub(super) struct FollowedStore {
    objects: Objects,
    log: Box<dyn LogDisk>,
    clock: Clock,
    limits: Limits,
    opened: Option<Opened>,
    /// When the store was last found to be as it is here.
    pub(super) read_at: Option<Timestamp>,
    /// How far the collector's clock was ahead of that of the store's server when it published the last two versions that this
    /// process saw appear, in nanoseconds. A slow request makes it smaller. A copy of a store has other times, but nothing
    /// is published there.
    clocks_ahead_ns: [Option<i64>; 2],
}

/// Data read from a store.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) state: Arc<CollectorState>,
    /// The host that has the unsealed data on its disk.
    pub(super) log_host: Option<String>,
    replay: Replay,
    /// The newest version.
    version: Option<Listed>,
    /// The log's files.
    files: Vec<ListedLog>,
    /// The number of the last file that was read.
    last_file: u64,
}

/// Result of a poll of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    None,
    /// The log has grown.
    Grown,
    /// The store was opened again: its numbers of stacks may mean something else.
    Opened,
}

impl FollowedStore {
    pub(super) fn new(
        options: &FollowOptions,
        name: &StoreName,
        clock: Clock,
        limits: Limits,
    ) -> Result<FollowedStore, FollowError> {
        let (objects, log): (Objects, Box<dyn LogDisk>) = match &options.place {
            StorePlace::Directory(folder) => {
                let folder = folder.join(name.to_string());
                let log = LocalDisk::read_only(folder.join("wal"));
                (Objects::local(&folder)?, Box::new(log))
            }
            StorePlace::Bucket { bucket, prefix } => {
                let cache = table_cache(options, name)?;
                let objects = bucket::connect(bucket, prefix, Some(name), cache)?;
                (objects.clone(), Box::new(BucketDisk::new(objects)))
            }
        };
        Ok(FollowedStore {
            objects,
            log,
            clock,
            limits,
            opened: None,
            read_at: None,
            clocks_ahead_ns: [None, None],
        })
    }

    /// How far the collector's clock is ahead of that of the store's server, in nanoseconds; `None` before the first
    /// version that was published meanwhile.
    pub(super) fn clock_ahead_ns(&self) -> Option<i64> {
        self.clocks_ahead_ns.into_iter().flatten().max()
    }

    /// Notes the clock of the version that has just been opened.
    fn note_clock(&mut self) {
        let Some(opened) = &self.opened else { return };
        let Some(version) = &opened.version else {
            return;
        };
        let manifest = opened.state.tables.manifest();
        // The opened version may be newer than the listed one; then the next poll notes it.
        if version.path == Manifest::path_of(manifest.version) {
            let ahead_ns = manifest
                .made_at_ns
                .saturating_sub(version.modified.unix_ns());
            let [newest, _] = self.clocks_ahead_ns;
            self.clocks_ahead_ns = [Some(ahead_ns), newest];
        }
    }

    pub(super) fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }

    /// Reads what the store has more than at the last call.
    pub(super) fn poll(&mut self) -> Result<Change, FollowError> {
        let change = self.poll_or_fail()?;
        self.read_at = Some(self.clock.now());
        Ok(change)
    }

    fn poll_or_fail(&mut self) -> Result<Change, FollowError> {
        let version = self.newest_version()?;
        let Some(opened) = self
            .opened
            .as_mut()
            .filter(|opened| opened.version == version)
        else {
            let is_first = self.opened.is_none();
            let change = self.open()?;
            if !is_first {
                self.note_clock();
            }
            return Ok(change);
        };
        if opened.log_host.is_some() {
            return Ok(Change::None);
        }
        let files = wal::list_files(&mut *self.log)?;
        if files == opened.files {
            return Ok(Change::None);
        }
        // A file on a disk grows; one in a bucket never changes.
        if !self.log.is_write_once() {
            return self.open();
        }
        if files
            .last()
            .is_none_or(|last| last.number <= opened.last_file)
        {
            opened.files = files;
            return Ok(Change::None);
        }
        let from = opened.last_file + 1;
        let replay = &mut opened.replay;
        let found = wal::follow(&mut *self.log, from, &mut |record| replay.record(record))?;
        // The owner may have removed files meanwhile, because there is a newer version.
        if found.damages > 0 {
            return self.open();
        }
        opened.last_file = opened.last_file.max(found.last_number);
        opened.files = files;
        Ok(Change::Grown)
    }

    /// Reads the store from its newest version on.
    fn open(&mut self) -> Result<Change, FollowError> {
        let mut reads = 0;
        loop {
            reads += 1;
            let version = self.newest_version()?;
            let limits = self.limits.clone();
            let state =
                CollectorState::open_read_only(self.clock.clone(), limits, self.objects.clone())?;
            let manifest = state.tables.manifest();
            if !fits_union(&manifest) {
                return Err(FollowError::TooManyLives {
                    place: self.objects.place(),
                });
            }
            // Events are those of the union.
            state.events.pause(true);
            let state = Arc::new(state);
            let mut replay = Replay::new(state.clone());
            let mut log_host = None;
            if self.objects.is_bucket() {
                let owner = OwnerSighting::of(&self.objects)?;
                log_host = owner.and_then(|owner| owner.log_elsewhere().map(str::to_owned));
            }
            let files = wal::list_files(&mut *self.log)?;
            let mut found = LogContents::default();
            if log_host.is_none() {
                let from = manifest.wal_from;
                found = wal::follow(&mut *self.log, from, &mut |record| replay.record(record))?;
            }
            // A missing file may have been removed, because a newer version has its rows in tables.
            let is_moving = found.damages > 0 && self.newest_version()? != version;
            if is_moving && reads < FOLLOW_READS_MAX {
                continue;
            }
            let lost = lost_log(&manifest, &found, self.clock.now());
            state.show_manifest(&state.tables.note_lost_log(lost));
            let last_file = found.last_number;
            self.opened = Some(Opened {
                state,
                log_host,
                replay,
                version,
                files,
                last_file,
            });
            return Ok(Change::Opened);
        }
    }

    /// The newest version of the tables.
    fn newest_version(&self) -> Result<Option<Listed>, FollowError> {
        Ok(self.objects.list(Manifest::DIRECTORY)?.pop())
    }
}

impl Opened {
    /// The data that this process cannot read.
    pub(super) fn unsealed_elsewhere(&self) -> Option<LostLog> {
        let host = self.log_host.as_ref()?;
        let made_at = Timestamp::from_unix_ns(self.state.tables.manifest().made_at_ns);
        let reason = format!("data that is not sealed yet is only on the disk of {host}");
        Some(missing_since(Some(made_at), reason))
    }
}

fn table_cache(options: &FollowOptions, name: &StoreName) -> Result<TableCache, FollowError> {
    let folder = options
        .data
        .as_ref()
        .map(|data| data.join("cache").join(name.to_string()));
    TableCache::of(folder.clone(), options.cache_bytes).map_err(|source| FollowError::Cache {
        // Memory cannot fail.
        folder: folder.unwrap_or_default(),
        source,
    })
}
