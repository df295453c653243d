//! The manifest: the list of the store's files. Each change writes a new version, so it is atomic.
//!
//! A version is a new file `manifest/<version>.json`, never overwritten. Older versions are kept for a
//! time: for readers that use them, and in case the newest is unreadable.

use std::collections::BTreeMap;

use bytes::Bytes;
use profiler_core::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::StoreError;
use super::objects::Objects;
use crate::sums::table::TableName;
use crate::sums::tier::{Period, Second, Tier};
use base::limits::LOST_FILES_MAX;

/// The store's format. A change that an older program would misread increments it.
pub(crate) const FORMAT: u64 = 1;

/// One version of the store.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub version: u64,
    /// When it was published, in nanoseconds since the Unix epoch.
    pub made_at_ns: i64,
    /// The first file of the log with records that are in no table.
    pub wal_from: u64,
    /// The id of the next file; no file has it or a greater one.
    pub next_id: u64,
    /// In rising order of ids.
    pub files: Vec<FileEntry>,
    /// By table, the second before which retention has dropped files: older data is incomplete.
    pub cut: BTreeMap<TableName, u32>,
    /// Damaged files, newest last.
    pub lost: Vec<LostFile>,
    /// Unreadable parts of the log, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_log: Vec<LostLog>,
    /// The life of the collector that published it; 0 where one process at a time can write.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// The second in which the newest window of the tables ends, of those that were not ahead of the collector's clock
    /// when they were sealed; 0 if none is known. Rows have only the second in which a window starts.
    #[serde(default, skip_serializing_if = "Second::is_zero")]
    pub windows_to: Second,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A file of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    pub table: TableName,
    pub id: u64,
    pub bytes: u64,
    pub rows: u64,
    pub crc32: u32,
    /// The first period, in the table's tier; in lists, the first second or id of a row.
    pub from: Period,
    /// The period, second or id after the last one.
    pub to: Period,
    /// Number of merges that its rows went through.
    pub level: u8,
}

/// A file whose rows are missing from every answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostFile {
    pub file: FileEntry,
    pub reason: String,
}

/// An unreadable part of the log: it is missing from every answer about its time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostLog {
    /// The file's path in the store.
    pub path: String,
    pub reason: String,
    /// The first second that it may cover, and the one after the last. The exact ones are lost with the
    /// records, so these are when the log's first and last record may have been received.
    pub from: u32,
    pub to: u32,
}

impl FileEntry {
    /// Its path in the store.
    pub fn path(&self) -> String {
        path(self.table, self.id)
    }

    /// The first second of its data; `None` for tables without time.
    pub fn start(&self) -> Option<Second> {
        match self.table {
            TableName::Sums(_, tier) => Some(Second(self.from.0.saturating_mul(tier.seconds()))),
            table if table.is_by_day() => Some(Second(self.from.0)),
            _ => None,
        }
    }

    /// The second after the last one of its data; `None` for tables without time.
    pub fn end(&self) -> Option<Second> {
        match self.table {
            TableName::Sums(_, tier) => Some(Second(self.to.0.saturating_mul(tier.seconds()))),
            table if table.is_by_day() => Some(Second(self.to.0)),
            _ => None,
        }
    }
}

/// The path of a table's file.
pub(crate) fn path(table: TableName, id: u64) -> String {
    format!("tables/{}/{id:016x}.parquet", table.name())
}

/// The outermost object of every manifest in every format, so that a program recognizes each format.
#[derive(Serialize, Deserialize)]
pub(super) struct Envelope<'a> {
    pub(super) format: u64,
    pub(super) crc32: u32,
    #[serde(borrow)]
    pub(super) body: &'a RawValue,
}

impl Manifest {
    /// The folder of all versions.
    pub const DIRECTORY: &str = "manifest";

    /// The path of a version in the store.
    pub fn path_of(version: u64) -> String {
        format!("{}/{version:020}.json", Manifest::DIRECTORY)
    }

    /// Files of one table.
    pub fn files_of(&self, table: TableName) -> impl Iterator<Item = &FileEntry> {
        self.files.iter().filter(move |file| file.table == table)
    }

    pub fn file(&self, id: u64) -> Option<&FileEntry> {
        let found = self.files.binary_search_by_key(&id, |file| file.id);
        found.ok().map(|index| &self.files[index])
    }

    /// Removes files that are too old, and records from when on each table is complete: late data may
    /// add files for an expired time. A file whose data begins after `horizon` leaves no such record,
    /// because it would make all of the present incomplete.
    pub fn expire(&mut self, ids: &[u64], horizon: Timestamp) {
        for file in self.files.extract_if(.., |file| ids.contains(&file.id)) {
            let is_past_horizon = file.start().is_some_and(|start| start.start() > horizon);
            if is_past_horizon {
                self.windows_to = Second::default();
            }
            if let Some(end) = file.end().filter(|_| !is_past_horizon) {
                let cut = self.cut.entry(file.table).or_default();
                *cut = end.0.max(*cut);
            }
        }
    }

    /// By tier, from the finest: the first second from which retention has dropped nothing.
    pub fn complete_from(&self) -> [Second; Tier::ALL.len()] {
        Tier::ALL.map(|tier| {
            let of_tier =
                |table: &TableName| matches!(table, TableName::Sums(_, of) if *of == tier);
            let cuts = self
                .cut
                .iter()
                .filter(|(table, _)| of_tier(table))
                .map(|(_, cut)| *cut);
            Second(cuts.max().unwrap_or(0))
        })
    }

    /// Records a file as lost, in place of the oldest lost file past the limit.
    pub fn lose(&mut self, file: FileEntry, reason: String) {
        self.files.retain(|kept| kept.id != file.id);
        if self.lost.len() >= LOST_FILES_MAX {
            self.lost.remove(0);
        }
        self.lost.push(LostFile { file, reason });
    }

    /// Records parts of the log as lost, each once, in place of the oldest ones past the limit.
    pub fn lose_log(&mut self, lost: Vec<LostLog>) {
        for lost in lost {
            if self
                .lost_log
                .iter()
                .any(|known: &LostLog| (&known.path, &known.reason) == (&lost.path, &lost.reason))
            {
                continue;
            }
            if self.lost_log.len() >= LOST_FILES_MAX {
                self.lost_log.remove(0);
            }
            self.lost_log.push(lost);
        }
    }

    /// Lost files without which no answer is known to be complete: those with the names of ids.
    pub fn lost_lists(&self) -> impl Iterator<Item = &FileEntry> {
        self.lost
            .iter()
            .map(|lost| &lost.file)
            .filter(|file| file.table.is_timeless())
    }

    /// Paths of everything that is lost, and the reasons, for people to read.
    pub fn all_lost(&self) -> impl Iterator<Item = (String, &str)> {
        let files = self
            .lost
            .iter()
            .map(|lost| (lost.file.path(), lost.reason.as_str()));
        files.chain(
            self.lost_log
                .iter()
                .map(|lost| (lost.path.clone(), lost.reason.as_str())),
        )
    }

    pub(super) fn encode(&self) -> Bytes {
        let body = serde_json::value::to_raw_value(self)
            .expect("a manifest has only numbers, texts and lists");
        let envelope = Envelope {
            format: FORMAT,
            crc32: crc32(FORMAT, body.get()),
            body: &body,
        };
        serde_json::to_vec(&envelope)
            .expect("the body was encoded already")
            .into()
    }

    pub(super) fn decode(path: &str, text: &[u8]) -> Result<Manifest, StoreError> {
        let damaged = |reason: String| StoreError::damaged(path, reason);
        let Envelope {
            format,
            crc32: expected,
            body,
        } = serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        if crc32(format, body.get()) != expected {
            return Err(damaged("its checksum is wrong".to_owned()));
        }
        if format != FORMAT {
            return Err(StoreError::Format {
                path: path.into(),
                found: format,
                known: FORMAT,
            });
        }
        // An older version in its place would hide data, and be continued.
        let manifest: Manifest =
            serde_json::from_str(body.get()).map_err(|error| StoreError::Unknown {
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
        if !manifest.files.is_sorted_by(|a, b| a.id < b.id) {
            return Err(damaged("its files are not in rising order".to_owned()));
        }
        Ok(manifest)
    }

    /// Deletes the first version if it is the only one and there is no table, so that the store counts
    /// as new. A crash may have left it unfinished; or its sync failed, so that it can be read now, and
    /// not after a crash.
    ///
    /// Call it only if the log is new too: its first file is created after the first version is
    /// durable, so nothing was acknowledged. With any trace of data, the store stays unreadable.
    pub fn delete_lone_first(objects: &Objects) -> Result<(), StoreError> {
        let first = Manifest::path_of(1);
        let versions = objects.list(Manifest::DIRECTORY)?;
        if versions.len() != 1 || versions[0].path != first || !objects.list("tables")?.is_empty() {
            return Ok(());
        }
        let Some(text) = objects.get_if_exists(&first)? else {
            return Ok(());
        };
        match Manifest::decode(&first, &text) {
            Ok(_) => objects.delete(&first),
            Err(StoreError::Damaged { reason, .. }) => {
                tracing::warn!(reason, "a crash left {first} unfinished at the first start");
                objects.delete(&first)
            }
            Err(_) => Ok(()),
        }
    }

    /// Writes this version, which must not exist yet.
    pub fn publish(&self, objects: &Objects) -> Result<(), StoreError> {
        objects.put_new(&Manifest::path_of(self.version), self.encode())
    }
}

/// Includes the format, so that a damaged format number is not mistaken for a newer format.
pub(super) fn crc32(format: u64, body: &str) -> u32 {
    let mut crc32 = crc32fast::Hasher::new();
    crc32.update(format!("{format}\n").as_bytes());
    crc32.update(body.as_bytes());
    crc32.finalize()
}
