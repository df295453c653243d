//! The start of a collector whose store is in a bucket.

use std::fs;
use std::io;
use std::path::Path;

use super::{DataError, create_folder, folder_error};
use crate::{Collector, Settings};
use base::sync::lock;
use store::bucket::{self, LogState, Owner, TableCache};
use store::wal::{self, BucketDisk, LocalDisk, LogDisk};
use store::{Ack, Objects, StoreGuard, StoreName, StorePlace, Tables};

/// A store that other machines can reach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreOptions {
    /// Where the stores of the fleet's collectors are.
    pub place: StorePlace,
    /// The collector's name: it owns the part of the place below it.
    pub name: StoreName,
    /// Meaning of an acknowledgment.
    pub ack: Ack,
    /// Most bytes of tables that are kept near. Default:
    /// [`TABLE_CACHE_BYTES`](base::limits::TABLE_CACHE_BYTES) in the data folder, or
    /// [`TABLE_CACHE_MEMORY_BYTES`](base::limits::TABLE_CACHE_MEMORY_BYTES) in memory.
    pub cache_bytes: Option<u64>,
}

/// The file of the data folder with the id of its log.
const LOG_ID: &str = "log-id";

impl Collector {
    /// A collector whose tables are in `options.place`. `data` is a local folder for the log, if that is not
    /// in the bucket, and for copies of tables.
    pub fn open_store(
        settings: Settings,
        options: &StoreOptions,
        data: Option<&Path>,
    ) -> Result<Collector, DataError> {
        let (bucket, prefix) = match &options.place {
            StorePlace::Directory(folder) => {
                return Collector::open_folder(settings, &folder.join(options.name.to_string()));
            }
            StorePlace::Bucket { bucket, prefix } => (bucket, prefix),
        };
        if options.ack == Ack::Disk && data.is_none() {
            return Err(DataError::NoLogFolder);
        }
        let mut directory = None;
        if let Some(data) = data {
            create_folder(data)?;
            directory = Some(super::lock_folder(data)?);
        }
        let cache = table_cache(options, data)?;
        let objects = bucket::connect(bucket, prefix, Some(&options.name), cache)?;
        Tables::check_place(&objects)?;
        let owner = Owner::take(&objects, settings.limits.owner_watch)?;
        let log_folder = data.filter(|_| options.ack == Ack::Disk);
        let disk: Box<dyn LogDisk> = match log_folder {
            None => Box::new(log_in_store(&objects, &owner)?),
            Some(data) => Box::new(log_on_disk(data, &objects, &owner)?),
        };
        let guard = StoreGuard::new(directory, Some(owner));
        let collector = Collector::open(settings, objects, disk, guard)?;
        lock(&collector.ingest.status).folder = log_folder.map(Path::to_owned);
        if let Some(log) = &collector.ingest.log {
            log.start()
                .map_err(|source| DataError::LogThread { source })?;
        }
        Ok(collector)
    }
}

fn table_cache(options: &StoreOptions, data: Option<&Path>) -> Result<TableCache, DataError> {
    let folder = data.map(|data| data.join("cache"));
    TableCache::of(folder, options.cache_bytes).map_err(|source| DataError::Directory {
        // Memory cannot fail.
        folder: data.map(Path::to_owned).unwrap_or_default(),
        source,
    })
}

/// The log in the bucket, unless the tables need one on a disk.
pub fn log_in_store(objects: &Objects, owner: &Owner) -> Result<BucketDisk, DataError> {
    let store = objects.place();
    match owner.log() {
        Some(LogState {
            id,
            is_sealed: false,
        }) if id != LogState::IN_STORE => {
            return Err(DataError::LogOnDisk { store });
        }
        _ => owner.use_log(LogState::IN_STORE)?,
    }
    Ok(BucketDisk::new(objects.clone()))
}

/// The log in the data folder, if the tables need it, or if it is empty.
pub fn log_on_disk(data: &Path, objects: &Objects, owner: &Owner) -> Result<LocalDisk, DataError> {
    let mut disk = LocalDisk::new(data.join("wal"), data.join("quarantine"))
        .map_err(|source| folder_error(data, source))?;
    let id = log_id(data)?;
    let needed = owner.log();
    if needed.as_ref().is_none_or(|needed| needed.id != id) {
        if wal::has_records(&mut disk)? {
            let folder = data.join("wal");
            return Err(DataError::ForeignLog {
                folder,
                store: objects.place(),
            });
        }
        match needed {
            Some(LogState {
                id,
                is_sealed: false,
            }) if id == LogState::IN_STORE => {
                return Err(DataError::LogInStore {
                    store: objects.place(),
                });
            }
            // The start finds that the log is missing, and records it.
            Some(LogState {
                is_sealed: false, ..
            })
            | None => {}
            Some(LogState {
                is_sealed: true, ..
            }) => {
                let from = Tables::log_from(objects)?;
                if from > 0 {
                    wal::begin(&mut disk, from).map_err(|source| folder_error(data, source))?;
                }
            }
        }
    }
    owner.use_log(&id)?;
    Ok(disk)
}

/// The id of the log in a data folder, which is drawn if there is none.
fn log_id(data: &Path) -> Result<String, DataError> {
    let path = data.join(LOG_ID);
    match fs::read_to_string(&path) {
        Ok(id) if !id.is_empty() => return Ok(id),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(folder_error(data, error));
        }
        _ => {}
    }
    let id = bucket::random_id()?;
    let written = fs::write(&path, &id)
        .and_then(|()| fs::File::open(&path)?.sync_all())
        .and_then(|()| fs::File::open(data)?.sync_all());
    written.map_err(|source| folder_error(data, source))?;
    Ok(id)
}
