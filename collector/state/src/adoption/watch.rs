//! Detection of the stores in a place that need an adoption.
//!
//! An owner shows that it lives by changing its store. This process measures how long it has seen no change, by a
//! clock that cannot jump: clocks of machines are never compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use profiler_core::Timestamp;

use super::read_witness;
use crate::recovery::DataError;
use base::limits::{
    ADOPT_LOOK_EVERY_MAX, ADOPT_LOOKS, ADOPT_MAINTAIN_EVERY, ADOPT_RETRY_AFTER, ADOPT_STORES_MAX,
};
use store::bucket::OwnerSighting;
use store::wal::{self, ListedLog, LocalDisk};
use store::{
    Manifest, OpenStore, Retention, StoreError, StoreLocation, StoreName, StorePlace,
    needs_maintenance,
};

/// Watches the stores of a place that belong to others.
#[derive(Debug)]
pub struct StoreWatch {
    place: StorePlace,
    own: StoreName,
    /// How long an owner must not have shown that it lives.
    after: Duration,
    retention: Retention,
    stores: BTreeMap<String, Watched>,
    /// Stores that could not be read or adopted, and when they are looked at again.
    failed: BTreeMap<String, Instant>,
}

#[derive(Debug)]
struct Watched {
    store: OpenStore,
    sighting: Sighting,
    /// There is nothing to do before, unless the store changes.
    check_at: Instant,
}

/// State of a store that changes while its owner lives.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Sighting {
    Bucket(Option<OwnerSighting>),
    /// Of a folder: its newest version and its log.
    Directory(Option<String>, Vec<ListedLog>),
}

impl StoreWatch {
    pub fn new(
        place: StorePlace,
        own: StoreName,
        after: Duration,
        retention: Retention,
    ) -> StoreWatch {
        let stores = BTreeMap::new();
        StoreWatch {
            place,
            own,
            after,
            retention,
            stores,
            failed: BTreeMap::new(),
        }
    }

    /// How often to look.
    pub fn every(&self) -> Duration {
        (self.after / ADOPT_LOOKS).min(ADOPT_LOOK_EVERY_MAX)
    }

    /// The stores of others. Forgets those that were removed.
    pub fn names(&mut self) -> Result<Vec<StoreName>, DataError> {
        let mut names = self.place.names()?;
        names.retain(|name| *name != self.own);
        names.truncate(ADOPT_STORES_MAX);
        let is_there = |known: &String| names.iter().any(|name| name.to_string() == *known);
        self.stores.retain(|known, _| is_there(known));
        self.failed.retain(|known, _| is_there(known));
        Ok(names)
    }

    /// Looks at a store at the time `now`. Returns whether it should be adopted.
    ///
    /// # Errors
    /// If it cannot be read, or its log is on the disk of a dead machine: [`StoreWatch::note_failure`].
    pub fn look(
        &mut self,
        name: &StoreName,
        now: Instant,
        time: Timestamp,
    ) -> Result<bool, DataError> {
        let key = name.to_string();
        if self.failed.get(&key).is_some_and(|until| now < *until) {
            return Ok(false);
        }
        let location = |name: &StoreName| StoreLocation::Named(self.place.clone(), name.clone());
        let Some(watched) = self.stores.get_mut(&key) else {
            let store = match location(name).open() {
                Err(StoreError::NoStore { .. } | StoreError::NoStoreInPlace { .. }) => {
                    return Ok(false);
                }
                opened => opened?,
            };
            self.add(name, store, now)?;
            return Ok(false);
        };
        let sighting = Sighting::of(&watched.store)?;
        if watched.sighting != sighting {
            watched.sighting = sighting;
            watched.check_at = now + self.after;
            return Ok(false);
        }
        if now < watched.check_at {
            return Ok(false);
        }
        if watched.has_unsealed()? {
            return Ok(true);
        }
        watched.check_at = now + ADOPT_MAINTAIN_EVERY;
        let witness = read_witness(Some(&location(&self.own)));
        let objects = &watched.store.objects;
        Ok(needs_maintenance(
            objects,
            witness.as_deref(),
            &self.retention,
            time,
        )?)
    }

    /// Begins to watch a store.
    pub fn add(
        &mut self,
        name: &StoreName,
        store: OpenStore,
        now: Instant,
    ) -> Result<(), DataError> {
        let sighting = Sighting::of(&store)?;
        let check_at = now + self.after;
        self.stores.insert(
            name.to_string(),
            Watched {
                store,
                sighting,
                check_at,
            },
        );
        Ok(())
    }

    /// Postpones the next look at a store that could not be read or adopted.
    pub fn note_failure(&mut self, name: &StoreName, now: Instant) {
        let key = name.to_string();
        self.stores.remove(&key);
        self.failed.insert(key, now + ADOPT_RETRY_AFTER);
    }
}

impl Sighting {
    fn of(store: &OpenStore) -> Result<Sighting, DataError> {
        let Some(folder) = &store.folder else {
            return Ok(Sighting::Bucket(OwnerSighting::of(&store.objects)?));
        };
        let newest = store
            .objects
            .list(Manifest::DIRECTORY)?
            .pop()
            .map(|file| file.path);
        let log = wal::list_files(&mut LocalDisk::read_only(folder.join("wal")))?;
        Ok(Sighting::Directory(newest, log))
    }
}

impl Watched {
    /// Whether the log has data that is in no table.
    fn has_unsealed(&self) -> Result<bool, DataError> {
        match &self.sighting {
            Sighting::Bucket(None) => Ok(false),
            Sighting::Bucket(Some(owner)) if owner.log_elsewhere().is_some() => {
                Err(DataError::LogOnDisk {
                    store: self.store.objects.place(),
                })
            }
            Sighting::Bucket(Some(owner)) => Ok(owner.is_unsealed_in_store()),
            Sighting::Directory(..) => Ok(wal::has_data(&mut *self.store.log())?),
        }
    }
}
