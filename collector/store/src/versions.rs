//! The versions of the manifest in a store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

use profiler_core::Timestamp;

use super::error::StoreError;
use super::manifest::Manifest;
use super::objects::Objects;

/// How often versions are listed because the newest was deleted meanwhile: each time, a collector has
/// published two newer ones.
const LISTINGS_MAX: usize = 10;

/// Versions to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    All,
    Newest,
}

/// The versions in the store.
#[derive(Debug, Default)]
pub struct Versions {
    pub readable: BTreeMap<u64, Arc<Manifest>>,
    /// Unreadable versions, and the reasons.
    pub damaged: BTreeMap<u64, String>,
    /// Greater than every version whose writing was ever started.
    next: u64,
    /// A version of which nobody knows whether it is in the bucket.
    unresolved: Option<Arc<Manifest>>,
}

impl Versions {
    /// Reads all versions.
    ///
    /// # Errors
    /// [`StoreError::Format`] or [`StoreError::Unknown`] if any was written by a newer program;
    /// [`StoreError::ManifestsLost`] if there are files, but no readable version; the I/O error of a version that is newer than all
    /// readable ones, because an older one would hide acknowledged data.
    pub fn load(objects: &Objects) -> Result<Versions, StoreError> {
        Versions::load_some(objects, Wanted::All)
    }

    /// Reads the newest readable version, and finds the damaged ones after it. A busy store has hundreds of
    /// versions of the last minutes.
    ///
    /// # Errors
    /// As for [`Versions::load`], of the versions that it reads.
    pub fn load_newest(objects: &Objects) -> Result<Versions, StoreError> {
        Versions::load_some(objects, Wanted::Newest)
    }

    fn load_some(objects: &Objects, wanted: Wanted) -> Result<Versions, StoreError> {
        for _ in 0..LISTINGS_MAX {
            let Some(mut versions) = Versions::read_listed(objects, wanted)? else {
                continue;
            };
            let newest = [
                versions.readable.keys().next_back(),
                versions.damaged.keys().next_back(),
            ];
            versions.next = newest
                .into_iter()
                .flatten()
                .max()
                .map_or(1, |version| version + 1);
            if versions.readable.is_empty() {
                let count = versions.damaged.len();
                // The first version is written before the first table.
                if count > 0 || !objects.list("tables")?.is_empty() {
                    return Err(StoreError::ManifestsLost { count });
                }
            }
            return Ok(versions);
        }
        let reason =
            format!("the newest version was deleted {LISTINGS_MAX} times while it was read");
        Err(StoreError::damaged(Manifest::DIRECTORY, reason))
    }

    /// Reads the listed versions; `None` if the newest was deleted meanwhile, because then there are
    /// newer ones. A collector deletes the versions that it replaced.
    fn read_listed(objects: &Objects, wanted: Wanted) -> Result<Option<Versions>, StoreError> {
        let listed: BTreeMap<u64, String> = objects
            .list(Manifest::DIRECTORY)?
            .into_iter()
            .filter_map(|file| Some((version_of(&file.path)?, file.path)))
            .collect();
        let mut versions = Versions::default();
        let mut unread = Vec::new();
        for (version, path) in listed.iter().rev() {
            if wanted == Wanted::Newest && !versions.readable.is_empty() {
                break;
            }
            let read = objects.get_if_exists(path);
            match read.and_then(|text| text.map(|text| Manifest::decode(path, &text)).transpose()) {
                Ok(Some(manifest)) if manifest.version == *version => {
                    versions.readable.insert(*version, Arc::new(manifest));
                }
                Ok(Some(manifest)) => {
                    let reason = format!("it contains version {}", manifest.version);
                    versions.damaged.insert(*version, reason);
                }
                Ok(None) if listed.keys().next_back() == Some(version) => return Ok(None),
                Ok(None) => {}
                Err(StoreError::Damaged { reason, .. }) => {
                    versions.damaged.insert(*version, reason);
                }
                Err(
                    error @ (StoreError::Io { .. }
                    | StoreError::Objects { .. }
                    | StoreError::Bucket { .. }),
                ) => {
                    unread.push((*version, error));
                }
                Err(error) => return Err(error),
            }
        }
        for (version, error) in unread {
            if versions
                .readable
                .last_key_value()
                .is_none_or(|(newest, _)| *newest < version)
            {
                return Err(error);
            }
            versions.damaged.insert(version, error.to_string());
        }
        Ok(Some(versions))
    }

    /// Publishes the version whose publication has an unknown end: a gap would let another life of the
    /// collector publish behind this one. Nothing else changes: the next version replaces it.
    pub fn resolve(&mut self, objects: &Objects) -> Result<(), StoreError> {
        let Some(manifest) = &self.unresolved else {
            return Ok(());
        };
        manifest.publish(objects)?;
        self.readable.insert(manifest.version, manifest.clone());
        self.unresolved = None;
        Ok(())
    }

    /// Records that the publication of a version failed with an unknown end.
    pub fn note_unresolved(&mut self, manifest: Manifest) {
        self.unresolved = Some(Arc::new(manifest));
    }

    /// Damaged versions newer than every readable one, and the reasons: an older version is used.
    pub fn damaged_newest(&self) -> impl Iterator<Item = (&u64, &String)> {
        let newest = self
            .readable
            .last_key_value()
            .map_or(0, |(newest, _)| newest + 1);
        self.damaged.range(newest..)
    }

    /// The newest readable version.
    pub fn newest(&self) -> Option<&Arc<Manifest>> {
        self.readable.last_key_value().map(|(_, manifest)| manifest)
    }

    /// Returns an unused version number. A version whose writing failed may still exist.
    pub fn take_next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The oldest version that is kept whatever its age: the last but one readable version.
    fn keep_from(&self) -> u64 {
        self.readable.keys().rev().nth(1).copied().unwrap_or(0)
    }

    /// Readable versions that were not replaced before `point`, and the newest two.
    pub fn in_use(&self, point: Timestamp) -> impl Iterator<Item = &Arc<Manifest>> {
        let keep_from = self.keep_from();
        self.readable.values().filter(move |manifest| {
            let (_, next) = self.around(manifest.version);
            let is_replaced = next.is_some_and(|next| next.made_at_ns < point.unix_ns());
            manifest.version >= keep_from || !is_replaced
        })
    }

    /// Versions that may be deleted: those not in use since `point`, and damaged ones that were
    /// replaced before `damaged_point`. While a damaged one is kept, so are its neighbors, because they
    /// tell which files only the damaged one lists.
    pub fn garbage(&self, point: Timestamp, damaged_point: Timestamp) -> Vec<u64> {
        let keep_from = self.keep_from();
        let (over, kept): (Vec<u64>, Vec<u64>) =
            self.damaged.keys().copied().partition(|version: &u64| {
                let (_, next) = self.around(*version);
                *version < keep_from
                    && next.is_some_and(|next| next.made_at_ns < damaged_point.unix_ns())
            });
        let around = kept
            .iter()
            .flat_map(|version| <[_; 2]>::from(self.around(*version)));
        let needed: BTreeSet<u64> = around
            .flatten()
            .chain(self.in_use(point))
            .map(|manifest| manifest.version)
            .collect();
        let readable = self
            .readable
            .keys()
            .filter(|version| !needed.contains(version));
        readable.copied().chain(over).collect()
    }

    /// Ids of files that perhaps only damaged versions list: those assigned between the neighbors of
    /// each.
    pub fn ids_of_damaged(&self) -> Vec<Range<u64>> {
        self.damaged
            .keys()
            .filter_map(|version: &u64| {
                let (before, next) = self.around(*version);
                Some(before?.next_id..next.map_or(u64::MAX, |next| next.next_id))
            })
            .collect()
    }

    /// The readable versions before and after a version.
    fn around(&self, version: u64) -> (Option<&Arc<Manifest>>, Option<&Arc<Manifest>>) {
        let before = self.readable.range(..version).next_back();
        let next = self
            .readable
            .range((Bound::Excluded(version), Bound::Unbounded))
            .next();
        (
            before.map(|(_, manifest)| manifest),
            next.map(|(_, manifest)| manifest),
        )
    }

    /// Deletes a version that is garbage. The first version of each life of a collector stays, without its
    /// content: an earlier life, however long it was paused, still has that version to publish. Returns
    /// whether anything was deleted.
    pub fn delete(&mut self, objects: &Objects, version: u64) -> Result<bool, StoreError> {
        let path = Manifest::path_of(version);
        let Some(tombstone) = self.tombstone(version) else {
            // A damaged one may be a tombstone.
            let is_kept = objects.is_bucket() && self.damaged.contains_key(&version);
            if !is_kept {
                objects.delete(&path)?;
            }
            self.readable.remove(&version);
            self.damaged.remove(&version);
            return Ok(!is_kept);
        };
        if *self.readable[&version] == tombstone {
            return Ok(false);
        }
        objects.replace(&path, tombstone.encode())?;
        self.readable.insert(version, Arc::new(tombstone));
        Ok(true)
    }

    /// Part of a version that must remain; `None` if nothing.
    fn tombstone(&self, version: u64) -> Option<Manifest> {
        let manifest = self.readable.get(&version)?;
        let before = self.readable.range(..version).next_back();
        let epoch_before = before.map_or(0, |(_, before)| before.epoch);
        let Manifest {
            made_at_ns,
            wal_from,
            next_id,
            epoch,
            ..
        } = **manifest;
        let rest = Manifest {
            version,
            made_at_ns,
            wal_from,
            next_id,
            epoch,
            ..Manifest::default()
        };
        (epoch > epoch_before).then_some(rest)
    }
}

fn version_of(path: &str) -> Option<u64> {
    let name = path.strip_prefix(Manifest::DIRECTORY)?.strip_prefix('/')?;
    name.strip_suffix(".json")?.parse::<u64>().ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::value::RawValue;

    use super::*;
    use crate::manifest::{Envelope, FileEntry, LostFile, crc32};
    use crate::sums::table::{SumTable, TableName};
    use crate::sums::tier::{Period, Second, Tier};

    fn manifest(version: u64) -> Manifest {
        let lost = vec![LostFile {
            file: file(1),
            reason: "its \"checksum\" is wrong".into(),
        }];
        let cut = [(file(1).table, 60)].into();
        Manifest {
            version,
            made_at_ns: i64::try_from(version).unwrap() * 1_000,
            wal_from: 3,
            next_id: 5,
            files: vec![file(2), file(4)],
            cut,
            lost,
            lost_log: vec![],
            epoch: 0,
            windows_to: Second(120),
        }
    }

    fn file(id: u64) -> FileEntry {
        FileEntry {
            table: TableName::Sums(SumTable::Samples, Tier::Minute),
            id,
            bytes: 1_000,
            rows: 70,
            crc32: 0xdead_beef,
            from: Period(5),
            to: Period(9),
            level: 1,
        }
    }

    #[test]
    fn a_version_is_read_back_and_never_overwritten() {
        let objects = Objects::memory();
        assert!(Versions::load(&objects).unwrap().newest().is_none());
        for version in [7, 8, 12] {
            manifest(version).publish(&objects).unwrap();
        }
        assert!(matches!(
            manifest(8).publish(&objects),
            Err(StoreError::AlreadyExists { .. })
        ));
        let mut versions = Versions::load(&objects).unwrap();
        assert_eq!(**versions.newest().unwrap(), manifest(12));
        assert_eq!(versions.readable.len(), 3);
        assert_eq!([versions.take_next(), versions.take_next()], [13, 14]);
        let garbage = |ns| versions.garbage(Timestamp::from_unix_ns(ns), Timestamp::MIN);
        assert_eq!(garbage(8_001), [7]);
        assert_eq!(garbage(8_000), [0u64; 0]);
        assert_eq!(garbage(i64::MAX), [7]);
    }

    #[test]
    fn a_damaged_version_and_its_neighbors_are_kept_for_a_time() {
        let objects = Objects::memory();
        for version in [1, 2, 3, 5, 6, 7, 8] {
            let next_id = version * 10;
            Manifest {
                next_id,
                ..manifest(version)
            }
            .publish(&objects)
            .unwrap();
        }
        objects.put_new(&Manifest::path_of(4), "{".into()).unwrap();
        let versions = Versions::load(&objects).unwrap();
        assert_eq!(versions.damaged_newest().count(), 0);
        assert_eq!(
            &versions.ids_of_damaged()[..],
            std::slice::from_ref(&(30..50))
        );
        let at = Timestamp::from_unix_ns;
        // All but the newest two were replaced; version n was published at n · 1,000 ns.
        assert_eq!(versions.garbage(Timestamp::MAX, at(5_000)), [1, 2, 6]);
        assert_eq!(
            versions.garbage(Timestamp::MAX, at(5_001)),
            [1, 2, 3, 5, 6, 4]
        );
        let in_use = |point| {
            versions
                .in_use(at(point))
                .map(|manifest| manifest.version)
                .collect::<Vec<_>>()
        };
        assert_eq!(in_use(i64::MAX), [7, 8]);
        assert_eq!(in_use(6_000), [5, 6, 7, 8]);
        // The newest is damaged: its last file id is unknown.
        objects.put_new(&Manifest::path_of(9), "{".into()).unwrap();
        let versions = Versions::load(&objects).unwrap();
        assert_eq!(versions.ids_of_damaged(), [30..50, 80..u64::MAX]);
        let newest: Vec<_> = versions.damaged_newest().collect();
        assert_eq!((newest.len(), newest[0].0), (1, &9));
        assert_eq!(
            versions.garbage(Timestamp::MAX, Timestamp::MAX),
            [1, 2, 3, 5, 6, 4]
        );
        let newest = Versions::load_newest(&objects).unwrap();
        assert!(
            newest.readable.keys().eq(&[8]) && newest.damaged.keys().eq(&[9]),
            "{newest:?}"
        );
    }

    #[test]
    fn a_torn_or_changed_version_is_reported_and_the_one_before_is_used() {
        let text = manifest(2).encode();
        let cuts = (0..text.len()).map(|length| text.slice(..length));
        let changes = (0..text.len()).flat_map(|at| {
            let text = &text;
            [1u8, 2, 0x80].map(|bits| {
                let mut text = text.to_vec();
                text[at] ^= bits;
                Bytes::from(text)
            })
        });
        for text in cuts.chain(changes) {
            let objects = Objects::memory();
            manifest(1).publish(&objects).unwrap();
            objects
                .put_new(&Manifest::path_of(2), text.clone())
                .unwrap();
            let mut versions = Versions::load(&objects).unwrap();
            assert_eq!(**versions.newest().unwrap(), manifest(1), "{text:?}");
            assert_eq!((versions.damaged.len(), versions.take_next()), (1, 3));
        }
    }

    #[test]
    fn a_store_without_a_readable_version_or_of_a_newer_format_is_rejected() {
        let objects = Objects::memory();
        objects.put_new(&Manifest::path_of(1), "{}".into()).unwrap();
        let error = Versions::load(&objects).unwrap_err();
        assert!(
            matches!(error, StoreError::ManifestsLost { count: 1 }),
            "{error}"
        );

        let objects = Objects::memory();
        objects
            .put_new("tables/samples_1s/1.parquet", "".into())
            .unwrap();
        let error = Versions::load(&objects).unwrap_err();
        assert!(
            matches!(error, StoreError::ManifestsLost { count: 0 }),
            "{error}"
        );

        let objects = Objects::memory();
        manifest(1).publish(&objects).unwrap();
        let body = RawValue::from_string("{\"what\":1}".into()).unwrap();
        let newer = Envelope {
            format: 2,
            crc32: crc32(2, body.get()),
            body: &body,
        };
        let newer = serde_json::to_vec(&newer).unwrap();
        objects
            .put_new(&Manifest::path_of(2), newer.into())
            .unwrap();
        let error = Versions::load(&objects).unwrap_err();
        assert!(
            matches!(error, StoreError::Format { found: 2, .. }),
            "{error}"
        );
    }

    /// Each part that a newer program may add: an older version must not be continued in place of it.
    #[test]
    fn an_intact_version_with_unknown_keys_or_tables_is_rejected() {
        let known = serde_json::to_value(manifest(2)).unwrap();
        let file = serde_json::json!({"table": "totals_1m", "id": 1, "bytes": 1, "rows": 1, "crc32": 0,
            "from": 1, "to": 2, "level": 0});
        for (pointer, key, value) in [
            ("", "new", serde_json::json!(1)),
            ("/files/0", "new", serde_json::json!(1)),
            ("/files/0", "table", serde_json::json!("heap_1m")),
        ] {
            let objects = Objects::memory();
            manifest(1).publish(&objects).unwrap();
            let mut body = known.clone();
            body["files"] = serde_json::json!([file]);
            body.pointer_mut(pointer).unwrap()[key] = value;
            let body = serde_json::value::to_raw_value(&body).unwrap();
            let newer = Envelope {
                format: 1,
                crc32: crc32(1, body.get()),
                body: &body,
            };
            let text = serde_json::to_vec(&newer).unwrap();
            objects.put_new(&Manifest::path_of(2), text.into()).unwrap();
            let error = Versions::load(&objects).unwrap_err();
            assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
        }
    }
}
