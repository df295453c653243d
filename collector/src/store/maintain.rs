//! What a store needs done from time to time: damaged files taken out, old ones dropped, small ones
//! merged, garbage deleted.

use std::sync::Arc;

use profiler_core::Timestamp;
use rustc_hash::FxHashSet;

use super::compact::Due;
use super::error::StoreError;
use super::load::id_of;
use super::manifest::Manifest;
use super::retention::Retention;
use super::tables::{Swap, Tables};
use crate::limits::{GARBAGE_KEPT, nanoseconds};
use crate::sync::lock;

/// Most merges of one call, so that what else is due waits for a bounded time.
const MERGES_AT_ONCE: usize = 64;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Maintained {
    /// Files that were damaged and are in quarantine now.
    pub(crate) quarantined: usize,
    /// Files that were too old, or too much.
    pub(crate) expired: usize,
    /// Files that were merged into fewer.
    pub(crate) merged: usize,
    /// Files that nothing names any more, and old versions.
    pub(crate) deleted: usize,
}

impl Tables {
    /// Does what is due. `swap` sees each new version before another can be made; a reader that
    /// began with an older one has [`GARBAGE_KEPT`] to end.
    pub(crate) fn maintain(
        &self,
        now: Timestamp,
        retention: &Retention,
        swap: &mut Swap<'_>,
    ) -> Result<Maintained, StoreError> {
        let mut done = Maintained {
            quarantined: self.quarantine_damaged(swap)?,
            expired: self.drop_expired(now, retention, swap)?,
            ..Maintained::default()
        };
        for _ in 0..MERGES_AT_ONCE {
            match self.compact_step(Due::By(now), swap)? {
                Some(count) => done.merged += count,
                None => break,
            }
        }
        done.deleted = self.collect_garbage(now)?;
        Ok(done)
    }

    /// Merges all that can be merged. Gives how many files that were.
    pub(crate) fn compact(&self) -> Result<usize, StoreError> {
        let mut merged = 0;
        while let Some(count) = self.compact_step(Due::Everything, &mut |_| {})? {
            merged += count;
        }
        Ok(merged)
    }

    /// One merge; one that finds a damaged file takes that out instead.
    fn compact_step(&self, due: Due, swap: &mut Swap<'_>) -> Result<Option<usize>, StoreError> {
        match self.compact_one(due, swap) {
            Err(StoreError::Damaged { .. }) if self.quarantine_damaged(swap)? > 0 => Ok(Some(0)),
            done => done,
        }
    }

    /// Copies files that were found damaged to quarantine, and takes them out of the list, where
    /// they stay named as lost. Gives how many.
    pub(super) fn quarantine_damaged(&self, swap: &mut Swap<'_>) -> Result<usize, StoreError> {
        let damaged = lock(&self.damaged).clone();
        if damaged.is_empty() {
            return Ok(0);
        }
        for id in damaged.keys() {
            if let Some(file) = self.manifest().file(*id) {
                let (path, copy) = (file.path(), self.objects.quarantine(&file.path())?);
                tracing::warn!(path, copy, "a damaged file was taken out of the store");
            }
        }
        let mut count = 0;
        self.publish(
            |manifest| {
                for (id, reason) in &damaged {
                    if let Some(file) = manifest.file(*id).cloned() {
                        manifest.lose(file, reason.clone());
                        count += 1;
                    }
                }
                count > 0
            },
            swap,
        )?;
        self.close_files(damaged.keys().copied());
        lock(&self.damaged).retain(|id, _| !damaged.contains_key(id));
        Ok(count)
    }

    fn drop_expired(
        &self,
        now: Timestamp,
        retention: &Retention,
        swap: &mut Swap<'_>,
    ) -> Result<usize, StoreError> {
        let mut expired = Vec::new();
        self.publish(
            |manifest| {
                expired = retention.expired(manifest, now);
                manifest.expire(&expired);
                !expired.is_empty()
            },
            swap,
        )?;
        self.close_files(expired.iter().copied());
        Ok(expired.len())
    }

    /// Deletes versions that were replaced long enough ago, and files that no version names.
    fn collect_garbage(&self, now: Timestamp) -> Result<usize, StoreError> {
        let old = now.shifted(-nanoseconds(GARBAGE_KEPT));
        let mut versions = lock(&self.versions);
        let mut deleted = 0;
        for version in versions.replaced_before(old) {
            self.objects.delete(&Manifest::path_of(version))?;
            versions.forget(version);
            deleted += 1;
        }
        let named: FxHashSet<u64> = versions
            .readable
            .values()
            .flat_map(|manifest: &Arc<Manifest>| manifest.files.iter().map(|file| file.id))
            .collect();
        for file in self.objects.list("tables")? {
            // A young one may yet be named by the version that is being made.
            let is_named = id_of(&file.path).is_none_or(|id| named.contains(&id));
            if !is_named && file.modified < old {
                self.objects.delete(&file.path)?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}
