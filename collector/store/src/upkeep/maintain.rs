//! Maintenance of a store: removes damaged files, drops old ones, merges small ones, deletes garbage.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use profiler_core::Timestamp;
use profiler_core::hash::KeyedSet;

use crate::error::StoreError;
use crate::load::id_of;
use crate::manifest::{FileEntry, Manifest};
use crate::objects::{Listed, Objects};
use crate::tables::{OnPublish, Tables};
use crate::upkeep::compact::{Due, choose};
use crate::upkeep::retention::{DataAge, DroppedFiles, Retention};
use crate::versions::Versions;
use base::limits::{AGE_GAP_MAX, AHEAD_MAX, DAMAGED_LISTS_KEPT, GARBAGE_KEPT, nanoseconds};
use base::sync::lock;

/// Most merges of one call, so that other work waits for a bounded time.
const MERGES_AT_ONCE: usize = 64;

/// Number of files by what was done with them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MaintenanceReport {
    /// Damaged files that were removed and copied to quarantine.
    pub quarantined: usize,
    /// Files that retention dropped.
    pub expired: usize,
    /// Files that were merged into fewer.
    pub merged: usize,
    /// Deleted files that no version lists, and deleted versions.
    pub deleted: usize,
}

impl Tables {
    /// Does all maintenance that is due. `on_publish` is called with each new version before the next
    /// one can be published. A reader of an older version must finish within [`GARBAGE_KEPT`].
    ///
    /// # Errors
    /// The first failure; the other work is done.
    pub fn maintain(
        &self,
        now: Timestamp,
        retention: &Retention,
        on_publish: &mut OnPublish<'_>,
    ) -> Result<MaintenanceReport, StoreError> {
        let mut failures = Failures::default();
        self.warn_of_clock(now);
        let quarantined = failures.note(self.quarantine_damaged(on_publish));
        let expired = failures.note(self.drop_expired(now, retention, on_publish));
        let (merged, failed) = self.merge(Due::By(now), MERGES_AT_ONCE, on_publish);
        failures.note(failed.map_or(Ok(()), Err));
        let deleted = failures.note(self.collect_garbage(now));
        failures.done(MaintenanceReport {
            quarantined,
            expired,
            merged,
            deleted,
        })
    }

    /// Merges all files that can be merged. Returns their number.
    pub fn compact(&self) -> Result<usize, StoreError> {
        let (merged, failed) = self.merge(Due::Everything, usize::MAX, &mut |_| {});
        failed.map_or(Ok(merged), Err)
    }

    /// Does at most `merges_max` merges that are due. Returns the number of files merged, and the first
    /// failure: an unreadable file is omitted from all merges of this call.
    fn merge(
        &self,
        due: Due,
        merges_max: usize,
        on_publish: &mut OnPublish<'_>,
    ) -> (usize, Option<StoreError>) {
        let mut merged = 0;
        let mut merges = 0;
        let mut first = None;
        let mut omitted = BTreeSet::new();
        while merges < merges_max
            && let Some(inputs) = choose(&self.manifest(), due, &omitted)
        {
            match self.compact_step(&inputs, on_publish) {
                Ok(count) => {
                    merged += count;
                    merges += 1;
                }
                Err(error) => {
                    let unread = inputs.iter().find(|file| error.is_about(&file.path()));
                    let Some(file) = unread else {
                        return (merged, Some(error));
                    };
                    tracing::warn!(path = file.path(), %error, "an unreadable file is not merged");
                    omitted.insert(file.id);
                    first.get_or_insert(error);
                }
            }
        }
        (merged, first)
    }

    /// Does one merge. If it finds a damaged file, removes that file instead.
    fn compact_step(
        &self,
        inputs: &[FileEntry],
        on_publish: &mut OnPublish<'_>,
    ) -> Result<usize, StoreError> {
        match self.compact_one(inputs, on_publish) {
            Err(StoreError::Damaged { .. }) if self.quarantine_damaged(on_publish)? > 0 => Ok(0),
            done => done,
        }
    }

    /// Warns if the clock is far ahead of the last maintenance.
    fn warn_of_clock(&self, now: Timestamp) {
        let before_ns = self.maintained_at_ns.swap(now.unix_ns(), Ordering::Relaxed);
        let ahead_ns = now.unix_ns().saturating_sub(before_ns);
        if ahead_ns > nanoseconds(AGE_GAP_MAX) {
            let days = ahead_ns / nanoseconds(AGE_GAP_MAX);
            tracing::warn!(
                days,
                "the clock is days past the last change of the store: the collector was off, or the \
                 clock is wrong; for retention this time counts as one day"
            );
        }
    }

    /// Copies damaged versions to quarantine. The files that only they list are kept for
    /// [`DAMAGED_LISTS_KEPT`].
    pub(crate) fn quarantine_versions(&self) {
        let damaged = lock(&self.versions).damaged.clone();
        for (version, reason) in &damaged {
            let path = Manifest::path_of(*version);
            if self.objects.is_in_quarantine(&path) {
                continue;
            }
            match self.objects.quarantine(&path) {
                Ok(copy) => tracing::warn!(path, reason, copy, "a manifest is damaged"),
                Err(error) => tracing::warn!(path, reason, %error, "a manifest is damaged"),
            }
        }
    }

    /// Copies damaged files to quarantine, and moves them from the manifest's files to its lost files.
    /// Returns their number.
    pub(crate) fn quarantine_damaged(
        &self,
        on_publish: &mut OnPublish<'_>,
    ) -> Result<usize, StoreError> {
        let mut damaged = lock(&self.damaged).clone();
        let before = self.manifest();
        damaged.retain(|id, _| {
            let Some(path) = before.file(*id).map(FileEntry::path) else {
                return true;
            };
            match self.objects.quarantine(&path) {
                Ok(copy) => tracing::warn!(path, copy, "a damaged file is removed from the store"),
                // It stays in the manifest until there is a copy.
                Err(error) => {
                    tracing::warn!(path, %error, "a damaged file cannot be copied to quarantine");
                    return false;
                }
            }
            true
        });
        if damaged.is_empty() {
            return Ok(0);
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
            on_publish,
        )?;
        self.close_files(damaged.keys().copied());
        lock(&self.damaged).retain(|id, _| !damaged.contains_key(id));
        Ok(count)
    }

    fn data_age(&self, manifest: &Manifest, now: Timestamp) -> DataAge {
        let witness = self.witness.get().map(|witness| &**witness);
        DataAge::of(
            [manifest].into_iter().chain(witness),
            now,
            self.opened.elapsed(),
        )
    }

    fn drop_expired(
        &self,
        now: Timestamp,
        retention: &Retention,
        on_publish: &mut OnPublish<'_>,
    ) -> Result<usize, StoreError> {
        let mut expired = Vec::new();
        let mut dropped = None;
        let mut excess_of_names = None;
        self.publish(
            |manifest| {
                let age = self.data_age(manifest, now);
                let horizon = self.horizon(now);
                expired = retention.expired(manifest, &age, horizon);
                dropped = DroppedFiles::of(expired.iter().filter_map(|id| manifest.file(*id)));
                excess_of_names = retention.excess_of_names(manifest);
                manifest.expire(&expired, horizon);
                !expired.is_empty()
            },
            on_publish,
        )?;
        if let Some(dropped) = dropped {
            tracing::info!(%dropped, "retention dropped files");
            if let Some(bytes) = excess_of_names {
                tracing::warn!(
                    bytes,
                    "names take more than half of --retention-size, so data is kept for less time"
                );
            }
        }
        self.close_files(expired.iter().copied());
        Ok(expired.len())
    }

    /// The latest time that a correct clock can have stamped. Counted from the latest `now` of this
    /// process or its predecessor, so that a clock that was set back does not age the newest data.
    fn horizon(&self, now: Timestamp) -> Timestamp {
        let before_ns = self
            .latest_now_ns
            .fetch_max(now.unix_ns(), Ordering::Relaxed);
        let latest = Timestamp::from_unix_ns(before_ns).max(now);
        latest.shifted(nanoseconds(AHEAD_MAX))
    }

    /// Deletes versions that were replaced long enough ago, and files that no version lists.
    fn collect_garbage(&self, now: Timestamp) -> Result<usize, StoreError> {
        let old = now.shifted(-nanoseconds(GARBAGE_KEPT));
        let age = self.data_age(&self.manifest(), now);
        let mut failures = Failures::default();
        let mut deleted = 0;
        let mut versions = lock(&self.versions);
        // Its files would count as garbage.
        versions.resolve(&self.objects)?;
        for version in versions.garbage(old, age.before(DAMAGED_LISTS_KEPT)) {
            let result = versions.delete(&self.objects, version);
            deleted += usize::from(failures.note(result));
        }
        let in_use = versions.in_use(old);
        let named: KeyedSet<u64> = in_use
            .flat_map(|manifest| manifest.files.iter().map(|file| file.id))
            .collect();
        let of_damaged = versions.ids_of_damaged();
        let is_kept =
            |id: u64| named.contains(&id) || of_damaged.iter().any(|ids| ids.contains(&id));
        // Files of later lives belong to other processes, should this one have slept.
        let end_of_ids = self.objects.ids().end;
        for file in self.objects.list("tables")? {
            // The version that is being published may list a recent file.
            if file.modified < old
                && id_of(&file.path).is_some_and(|id: u64| id < end_of_ids && !is_kept(id))
            {
                let result = self.objects.delete(&file.path);
                deleted += usize::from(result.is_ok());
                failures.note(result);
            }
        }
        failures.done(deleted)
    }
}

/// Whether a store that nobody owns needs maintenance: files that are expired, can be merged, or are in no version.
/// Changes nothing.
pub fn needs_maintenance(
    objects: &Objects,
    witness: Option<&Manifest>,
    retention: &Retention,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let versions = Versions::load_newest(objects)?;
    let Some(manifest) = versions.newest() else {
        return Ok(false);
    };
    let age = DataAge::of(
        [&**manifest].into_iter().chain(witness),
        now,
        Duration::ZERO,
    );
    let horizon = now.shifted(nanoseconds(AHEAD_MAX));
    if !retention.expired(manifest, &age, horizon).is_empty()
        || choose(manifest, Due::By(now), &BTreeSet::new()).is_some()
    {
        return Ok(true);
    }
    let named: KeyedSet<u64> = manifest.files.iter().map(|file| file.id).collect();
    let old = now.shifted(-nanoseconds(GARBAGE_KEPT));
    Ok(objects.list("tables")?.iter().any(|file: &Listed| {
        file.modified < old && id_of(&file.path).is_some_and(|id| !named.contains(&id))
    }))
}

/// The first failure of several independent operations.
#[derive(Debug, Default)]
struct Failures(Option<StoreError>);

impl Failures {
    fn note<T: Default>(&mut self, result: Result<T, StoreError>) -> T {
        result.unwrap_or_else(|error| {
            self.0.get_or_insert(error);
            T::default()
        })
    }

    fn done<T>(self, done: T) -> Result<T, StoreError> {
        self.0.map_or(Ok(done), Err)
    }
}
