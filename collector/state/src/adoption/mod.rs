//! Adoption: a process seals and maintains the store of a dead collector, in its stead.
//!
//! It is a short life of that collector. It takes the store and reads the log as a start does, seals as a stop
//! does, and releases the store. `docs/design/scale.md` has the argument why nothing counts twice.
//!
//! Reading order: this file (one adoption), [`watch`] (which stores need one).

mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::recovery::{DataError, lock_folder, log_in_store, log_on_disk};
use crate::sealing::{SealError, give_way};
use crate::{Collector, Settings};
use base::clock::Clock;
use base::limits::OWNER_WATCH;
use base::sync::lock;
use store::bucket::{LogState, Owner, OwnerSighting};
use store::wal::{LocalDisk, LogDisk, WalError};
use store::{
    Manifest, Objects, Problem, Retention, StoreError, StoreGuard, StoreLocation, Tables, Versions,
    lost,
};

pub use self::watch::StoreWatch;

/// How a store is adopted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdoptionOptions {
    /// How long data is retained.
    pub retention: Retention,
    /// The data folder of a collector that acknowledged from its own disk. An empty one records that the disk is
    /// lost. `None`: the log is where the tables are.
    pub log: Option<PathBuf>,
    /// The store of a collector that was running while this one had no owner. Its data shows how much time has
    /// passed; otherwise that counts as a day at most.
    pub witness: Option<StoreLocation>,
    /// How long the owner must not have shown that it lives.
    pub owner_watch: Duration,
}

impl Default for AdoptionOptions {
    fn default() -> Self {
        AdoptionOptions {
            retention: Retention::default(),
            log: None,
            witness: None,
            owner_watch: OWNER_WATCH,
        }
    }
}

impl AdoptionOptions {
    fn settings(&self) -> Settings {
        Settings {
            retention: self.retention,
            ..Settings::default()
        }
    }

    fn witness(&self) -> Option<Arc<Manifest>> {
        read_witness(self.witness.as_ref())
    }
}

/// Outcome of an adoption.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[non_exhaustive]
pub struct Adoption {
    /// Files of the log that were read.
    pub log_files: u64,
    /// Their size.
    pub log_bytes: u64,
    /// Their records, which are in tables now.
    pub records: u64,
    /// Lives of workers that the store knows.
    pub sessions: u64,
    /// Files of tables before.
    pub files_before: u64,
    /// Files of tables after sealing, retention and merging.
    pub files_after: u64,
    /// Their size before.
    pub bytes_before: u64,
    /// Their size after.
    pub bytes_after: u64,
    /// Files and parts of the log that are missing from answers, and the reasons.
    pub lost: Vec<Problem>,
}

/// Seals the log of a store into tables, applies retention and merges files. The store's collector must be gone; it
/// can be started again afterwards.
///
/// # Errors
/// If there is no store, its owner lives, or it cannot be read or written. Acknowledged flushes stay in the log
/// then. [`DataError::LogOnDisk`] changes nothing: the log is on another machine's disk.
pub fn adopt(location: &StoreLocation, options: &AdoptionOptions) -> Result<Adoption, DataError> {
    give_way();
    let store = location.open()?;
    let Some(folder) = &store.folder else {
        return adopt_in_bucket(store.objects, options);
    };
    let guard = StoreGuard::new(Some(lock_folder(folder)?), None);
    let disk = LocalDisk::new(folder.join("wal"), folder.join("quarantine")).map_err(|source| {
        DataError::Directory {
            folder: folder.clone(),
            source,
        }
    })?;
    seal_and_maintain(
        store.objects,
        Box::new(disk),
        guard,
        options.settings(),
        options.witness(),
    )
}

pub fn adopt_in_bucket(objects: Objects, options: &AdoptionOptions) -> Result<Adoption, DataError> {
    // Before anything is taken, because a collector may live that can reach its disk, and not the bucket.
    let owner = OwnerSighting::of(&objects)?;
    if options.log.is_none() && owner.is_some_and(|owner| owner.log_elsewhere().is_some()) {
        return Err(DataError::LogOnDisk {
            store: objects.place(),
        });
    }
    let directory = options.log.as_deref().map(lock_folder).transpose()?;
    let owner = Owner::take(&objects, options.owner_watch)?;
    let disk: Box<dyn LogDisk> = match (&options.log, owner.log()) {
        (Some(folder), _) => Box::new(log_on_disk(folder, &objects, &owner)?),
        (
            None,
            Some(LogState {
                is_sealed: false, ..
            }),
        ) => Box::new(log_in_store(&objects, &owner)?),
        // The collector stopped in order. Its log, which may be on its disk, stays as it is.
        (None, _) => {
            let _guard = StoreGuard::new(directory, Some(owner));
            return Ok(maintain(objects, options)?);
        }
    };
    let guard = StoreGuard::new(directory, Some(owner));
    seal_and_maintain(objects, disk, guard, options.settings(), options.witness())
}

fn maintain(objects: Objects, options: &AdoptionOptions) -> Result<Adoption, StoreError> {
    let (tables, loaded) = Tables::open(objects)?;
    tables.attended_by(options.witness());
    let mut done = Adoption {
        sessions: loaded.sessions.len() as u64,
        ..Adoption::default()
    };
    done.note_before(&tables.manifest());
    tables.maintain(Clock::default().now(), &options.retention, &mut |_| {})?;
    done.note_after(&tables.manifest());
    Ok(done)
}

/// The newest version of the store that shows how much time has passed. Without it, expired data stays longer.
fn read_witness(location: Option<&StoreLocation>) -> Option<Arc<Manifest>> {
    let location = location?;
    let versions = location
        .open()
        .and_then(|store| Versions::load_newest(&store.objects));
    match versions {
        Ok(versions) => versions.newest().cloned(),
        Err(error) => {
            tracing::warn!(%error, "the store that shows how much time has passed cannot be read");
            None
        }
    }
}

/// The adoption of a store that is taken, with `settings` of the adopter.
pub fn seal_and_maintain(
    objects: Objects,
    disk: Box<dyn LogDisk>,
    guard: StoreGuard,
    settings: Settings,
    witness: Option<Arc<Manifest>>,
) -> Result<Adoption, DataError> {
    let retention = settings.retention;
    let collector = Collector::open(settings, objects, disk, guard)?;
    let state = &collector.state;
    state.tables.attended_by(witness);
    let log = collector
        .ingest
        .log
        .as_ref()
        .expect("the collector was opened with a log");
    let sessions = lock(&state.registry).all().len();
    let mut done = Adoption {
        log_files: log.found.files,
        log_bytes: log.found.bytes,
        records: log.found.records,
        sessions: sessions as u64,
        ..Adoption::default()
    };
    done.note_before(&state.tables.manifest());
    collector.sealer.seal()?;
    log.close();
    let maintained = collector.sealer.maintain(state.clock.now(), &retention);
    log.release(true);
    maintained?;
    done.note_after(&state.tables.manifest());
    Ok(done)
}

impl Adoption {
    fn note_before(&mut self, manifest: &Manifest) {
        self.files_before = manifest.files.len() as u64;
        self.bytes_before = manifest.files.iter().map(|file| file.bytes).sum();
    }

    fn note_after(&mut self, manifest: &Manifest) {
        self.files_after = manifest.files.len() as u64;
        self.bytes_after = manifest.files.iter().map(|file| file.bytes).sum();
        self.lost = lost(manifest);
    }
}

impl From<SealError> for DataError {
    fn from(error: SealError) -> DataError {
        match error {
            SealError::Log(source) => WalError::Io {
                what: "cut the log".to_owned(),
                source,
            }
            .into(),
            SealError::Store(error) => error.into(),
        }
    }
}
