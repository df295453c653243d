//! Inspection and compaction of a store on disk, for `emberline store`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::bucket::{self, Owner, StoreName, StorePlace, TableCache};
use crate::error::StoreError;
use crate::guard::StoreGuard;
use crate::lists::telemetry_lists::LinkRow;
use crate::lists::{FrameRow, NodeRow, SealedTask, WorkerRow};
use crate::load::read_list;
use crate::lock::DirectoryLock;
use crate::manifest::{FORMAT, FileEntry, Manifest};
use crate::objects::{Objects, QUARANTINE};
use crate::rows::{ExpectedRow, LostTask, ResourceRow, RunRow, SessionRecord, TransferRow};
use crate::segment::{ALL_COLUMNS, Scan};
use crate::sums::table::{SumTable, TableName};
use crate::sums::tier::Tier;
use crate::tables::Tables;
use crate::versions::Versions;
use crate::wal::{self, BucketDisk, LocalDisk, LogDisk};
use base::limits::{OWNER_WATCH, TABLE_CACHE_MEMORY_BYTES};
use base::sync::lock;

/// Where one collector's store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreLocation {
    /// A folder of this machine.
    Directory(PathBuf),
    /// Below a name in a place.
    Named(StorePlace, StoreName),
}

impl From<&Path> for StoreLocation {
    fn from(folder: &Path) -> StoreLocation {
        StoreLocation::Directory(folder.to_owned())
    }
}

impl StoreLocation {
    pub fn open(&self) -> Result<OpenStore, StoreError> {
        let folder = match self {
            StoreLocation::Directory(folder) => folder.clone(),
            StoreLocation::Named(StorePlace::Directory(place), name) => {
                let folder = place.join(name.to_string());
                if !is_store(&folder) {
                    return Err(StoreError::NoStoreInPlace {
                        place: StorePlace::Directory(folder).to_string(),
                    });
                }
                folder
            }
            StoreLocation::Named(StorePlace::Bucket { bucket, prefix }, name) => {
                let cache = TableCache::memory(TABLE_CACHE_MEMORY_BYTES);
                let objects = bucket::connect(bucket, prefix, Some(name), cache)?;
                if objects.list("manifest")?.is_empty() {
                    return Err(StoreError::NoStoreInPlace {
                        place: objects.place(),
                    });
                }
                return Ok(OpenStore {
                    objects,
                    folder: None,
                });
            }
        };
        must_be_store(&folder)?;
        Ok(OpenStore {
            objects: Objects::local(&folder)?,
            folder: Some(folder),
        })
    }
}

/// A store that exists.
#[derive(Debug)]
pub struct OpenStore {
    pub objects: Objects,
    /// `None` for a bucket.
    pub folder: Option<PathBuf>,
}

impl OpenStore {
    /// The log, for reading only. That of a collector which acknowledges from its own disk is not in the
    /// bucket.
    pub fn log(&self) -> Box<dyn LogDisk> {
        match &self.folder {
            Some(folder) => Box::new(LocalDisk::read_only(folder.join("wal"))),
            None => Box::new(BucketDisk::new(self.objects.clone())),
        }
    }

    /// Whether the log is where the tables are.
    fn has_log(&self) -> Result<bool, StoreError> {
        Ok(self.folder.is_some() || !self.objects.list("wal")?.is_empty())
    }

    /// Keeps collectors out, and is kept out by them.
    fn lock(&self) -> Result<StoreGuard, StoreError> {
        Ok(match &self.folder {
            Some(folder) => StoreGuard::new(Some(DirectoryLock::take(folder)?), None),
            None => StoreGuard::new(None, Some(Owner::take(&self.objects, OWNER_WATCH)?)),
        })
    }
}

/// Summary of a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct StoreInfo {
    /// Format of its files.
    pub format: u64,
    /// Newest version of the manifest.
    pub version: u64,
    /// When it was published, in nanoseconds since the Unix epoch.
    pub made_at_ns: i64,
    /// The tables that have files.
    pub tables: Vec<TableInfo>,
    /// Files of the log.
    pub wal: FilesInfo,
    /// Copies of damaged files.
    pub quarantine: FilesInfo,
    /// Files and parts of the log that are missing from answers, oldest first, and the reasons.
    pub lost: Vec<Problem>,
    /// Damage found by this call.
    pub reports: Vec<String>,
}

/// Summary of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TableInfo {
    /// The name, with the tier.
    pub table: String,
    /// Number of files.
    pub files: u64,
    /// Number of rows.
    pub rows: u64,
    /// Size of the files.
    pub bytes: u64,
    /// First and last second that it may have rows of, as Unix times; `None` for a table without time.
    pub span_s: Option<(u32, u32)>,
}

/// Files that are not tables.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[non_exhaustive]
pub struct FilesInfo {
    /// Number of files.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
}

/// Damage of a store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// A file, or a table.
    pub name: String,
    /// A description of the damage.
    pub reason: String,
}

/// Result of [`verify`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// Number of files read.
    pub files: u64,
    /// Their size.
    pub bytes: u64,
    /// Rows and sum of the values of each table.
    pub tables: Vec<TableSum>,
    /// Damage that is not yet among the lost files.
    pub problems: Vec<Problem>,
    /// Damage found earlier, which is missing from answers: as [`StoreInfo::lost`].
    pub lost: Vec<Problem>,
}

/// Rows and sum of one table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TableSum {
    /// The name, with the tier.
    pub table: String,
    /// Number of rows.
    pub rows: u64,
    /// The sum of the values; 0 for lists.
    pub sum: u128,
}

/// Result of [`compact`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct CompactionReport {
    /// Number of files before.
    pub files_before: u64,
    /// Number of files after.
    pub files_after: u64,
    /// Their size before.
    pub bytes_before: u64,
    /// Their size after.
    pub bytes_after: u64,
}

/// Summarizes a store. Changes nothing; a collector may be using it.
///
/// # Errors
/// If there is no store, it has another format, or it cannot be read.
pub fn info(location: &StoreLocation) -> Result<StoreInfo, StoreError> {
    let store = location.open()?;
    let (tables, loaded) = Tables::open_read_only(store.objects.clone())?;
    let manifest = tables.manifest();
    let mut reports = loaded.reports;
    if let Err(error) = wal::check_formats(&mut *store.log()) {
        reports.push(error.to_string());
    }
    Ok(StoreInfo {
        format: FORMAT,
        version: manifest.version,
        made_at_ns: manifest.made_at_ns,
        tables: TableName::all()
            .filter_map(|table| table_info(&manifest, table))
            .collect(),
        wal: files_info(&tables.objects, "wal")?,
        quarantine: files_info(&tables.objects, QUARANTINE)?,
        lost: lost(&manifest),
        reports,
    })
}

/// Reads every file of a store and of its log, and compares the sums of the tables. Changes nothing; a
/// collector may be using it.
///
/// # Errors
/// As [`info`], and [`StoreError::Log`] if the log has another format or cannot be read. Damage is not
/// an error, but part of the result.
pub fn verify(location: &StoreLocation) -> Result<Verification, StoreError> {
    let store = location.open()?;
    let (tables, loaded) = Tables::open_read_only(store.objects.clone())?;
    let mut check = Check::new(&tables, loaded.reports);
    let known = lost(&tables.manifest());
    let of_log = problems_of_log(&store, &tables)?.into_iter();
    check
        .problems
        .extend(of_log.filter(|problem| !known.contains(problem)));
    check.run()
}

/// Unreadable parts of the log. A collector may write and remove files meanwhile, so a missing file is
/// checked again with the newest manifest.
fn problems_of_log(store: &OpenStore, tables: &Tables) -> Result<Vec<Problem>, StoreError> {
    let mut wal_from = tables.manifest().wal_from;
    if !store.has_log()? {
        return Ok(Vec::new());
    }
    loop {
        let contents = wal::check(&mut *store.log(), wal_from)?;
        let problems: Vec<Problem> = contents
            .lost()
            .map(|(name, reason)| Problem { name, reason })
            .collect();
        let versions = Versions::load_newest(&tables.objects)?;
        let newest = versions
            .newest()
            .map_or(wal_from, |manifest| manifest.wal_from);
        if problems.is_empty() || newest == wal_from {
            return Ok(problems);
        }
        wal_from = newest;
    }
}

/// Performs all possible merges of the files of a store. No collector may be using it.
///
/// # Errors
/// As [`info`], and [`StoreError::Locked`] if a collector uses it.
pub fn compact(location: &StoreLocation) -> Result<CompactionReport, StoreError> {
    let store = location.open()?;
    // If the log has another format, the tables may have been written by another version too.
    wal::check_formats(&mut *store.log())?;
    let _guard = store.lock()?;
    let (tables, _) = Tables::open(store.objects)?;
    let (files_before, bytes_before) = size(&tables);
    tables.compact()?;
    let (files_after, bytes_after) = size(&tables);
    Ok(CompactionReport {
        files_before,
        files_after,
        bytes_before,
        bytes_after,
    })
}

/// Numbers of files and of bytes.
fn size(tables: &Tables) -> (u64, u64) {
    let manifest = tables.manifest();
    let bytes = manifest.files.iter().map(|file| file.bytes).sum::<u64>();
    (manifest.files.len() as u64, bytes)
}

/// The recorded losses of a store.
pub fn lost(manifest: &Manifest) -> Vec<Problem> {
    manifest
        .all_lost()
        .map(|(name, reason): (String, &str)| Problem {
            name,
            reason: reason.to_owned(),
        })
        .collect()
}

/// Damage that was found when a store was opened to be read: of newer versions, and of lists that are read whole.
pub(crate) fn found_damaged(tables: &Tables) -> Vec<Problem> {
    let versions = lock(&tables.versions);
    let newest = versions.damaged_newest().map(|(version, reason)| Problem {
        name: Manifest::path_of(*version),
        reason: reason.clone(),
    });
    let lists = tables.damaged_lists().into_iter().map(|lost| Problem {
        name: lost.file.path(),
        reason: lost.reason,
    });
    newest.chain(lists).collect()
}

/// Rejects a wrong path: it must not be treated as an empty store, and no store may be created there.
fn must_be_store(directory: &Path) -> Result<(), StoreError> {
    if !is_store(directory) {
        return Err(StoreError::NoStore {
            path: directory.display().to_string(),
        });
    }
    Ok(())
}

fn is_store(directory: &Path) -> bool {
    directory.join("manifest").is_dir()
}

fn table_info(manifest: &Manifest, table: TableName) -> Option<TableInfo> {
    let files = || manifest.files_of(table);
    let seconds = match table {
        TableName::Sums(_, tier) => Some(tier.seconds()),
        table if table.is_by_day() => Some(1),
        _ => None,
    };
    let span_s = seconds.and_then(|seconds| {
        let from = files()
            .map(|file| file.from.0.saturating_mul(seconds))
            .min()?;
        Some((
            from,
            files()
                .filter_map(FileEntry::end)
                .max()?
                .0
                .saturating_sub(1),
        ))
    });
    let info = TableInfo {
        table: table.name(),
        files: files().count() as u64,
        rows: files().map(|file| file.rows).sum(),
        bytes: files().map(|file| file.bytes).sum(),
        span_s,
    };
    (info.files > 0).then_some(info)
}

fn files_info(objects: &Objects, prefix: &str) -> Result<FilesInfo, StoreError> {
    let files = objects.list(prefix)?;
    let bytes = files.iter().map(|file| file.bytes).sum();
    Ok(FilesInfo {
        files: files.len() as u64,
        bytes,
    })
}

/// A day since the Unix epoch: the coarsest period, by which all tiers are compared.
type Day = u32;

/// A running verification.
struct Check<'a> {
    tables: &'a Tables,
    rows: BTreeMap<TableName, u64>,
    sums: BTreeMap<TableName, BTreeMap<Day, u128>>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn new(tables: &Tables, reports: Vec<String>) -> Check<'_> {
        let problems = reports
            .into_iter()
            .map(|reason| Problem {
                name: "store".to_owned(),
                reason,
            })
            .collect();
        Check {
            tables,
            rows: BTreeMap::new(),
            sums: BTreeMap::new(),
            problems,
        }
    }

    fn run(mut self) -> Result<Verification, StoreError> {
        let manifest = self.tables.manifest();
        for file in &manifest.files {
            match self.read(file) {
                Ok(rows) => *self.rows.entry(file.table).or_default() += rows,
                Err(StoreError::Damaged { path, reason }) => {
                    // A report may name the same path.
                    self.problems
                        .retain(|problem| !problem.reason.contains(&path));
                    self.problems.push(Problem { name: path, reason });
                }
                Err(error) => return Err(error),
            }
        }
        self.compare_tiers(&manifest);
        self.problems.sort();
        let sum = |table| self.sums.get(&table).map_or(0, |days| days.values().sum());
        let tables = self.rows.iter().map(|(table, rows)| TableSum {
            table: table.name(),
            rows: *rows,
            sum: sum(*table),
        });
        Ok(Verification {
            files: manifest.files.len() as u64,
            bytes: manifest.files.iter().map(|file| file.bytes).sum(),
            tables: tables.collect(),
            problems: self.problems,
            lost: lost(&manifest),
        })
    }

    /// Reads a file. Returns its number of rows.
    fn read(&mut self, file: &FileEntry) -> Result<u64, StoreError> {
        let objects = &self.tables.objects;
        let rows = match file.table {
            TableName::Sums(_, tier) => return self.read_counting(file, tier),
            TableName::Frames => read_list::<FrameRow>(objects, file)?.len(),
            TableName::Nodes => read_list::<NodeRow>(objects, file)?.len(),
            TableName::Workers => read_list::<WorkerRow>(objects, file)?.len(),
            TableName::Tasks | TableName::Running => read_list::<SealedTask>(objects, file)?.len(),
            TableName::LostTasks => read_list::<LostTask>(objects, file)?.len(),
            TableName::Sessions => read_list::<SessionRecord>(objects, file)?.len(),
            TableName::Links => read_list::<LinkRow>(objects, file)?.len(),
            TableName::Transfers => read_list::<Arc<TransferRow>>(objects, file)?.len(),
            TableName::Resources => read_list::<Arc<ResourceRow>>(objects, file)?.len(),
            TableName::Runs => read_list::<RunRow>(objects, file)?.len(),
            TableName::Expected => read_list::<ExpectedRow>(objects, file)?.len(),
        };
        Ok(rows as u64)
    }

    fn read_counting(&mut self, file: &FileEntry, tier: Tier) -> Result<u64, StoreError> {
        let scan = Scan {
            spans: None,
            periods: file.from..file.to,
            tasks: None,
            workers: None,
            columns: &ALL_COLUMNS,
            sums_only: false,
        };
        let mut days: BTreeMap<Day, u128> = BTreeMap::new();
        let mut rows = 0;
        let day_of = |period: u32| period / (Tier::Day.seconds() / tier.seconds());
        self.tables.scan(file, &scan, &mut |batch| {
            rows += batch.row_count() as u64;
            for (period, value) in batch.ts.iter().zip(&batch.values) {
                *days.entry(day_of(*period)).or_default() += u128::from(*value);
            }
            ControlFlow::Continue(())
        })?;
        if rows != file.rows {
            let reason = format!("it has {rows} rows; {} were written", file.rows);
            return Err(StoreError::damaged(file.path(), reason));
        }
        let sums = self.sums.entry(file.table).or_default();
        days.into_iter()
            .for_each(|(day, sum)| *sums.entry(day).or_default() += sum);
        Ok(rows)
    }

    /// Compares the sums of each tier with those of the days, for all days that neither retention nor
    /// damage affected.
    fn compare_tiers(&mut self, manifest: &Manifest) {
        let damaged: BTreeSet<&str> = self
            .problems
            .iter()
            .map(|problem| problem.name.as_str())
            .collect();
        let broken: BTreeSet<TableName> = manifest
            .files
            .iter()
            .filter(|file| damaged.contains(file.path().as_str()))
            .chain(manifest.lost.iter().map(|lost| &lost.file))
            .map(|file| file.table)
            .collect();
        let nothing = BTreeMap::new();
        let mut problems = Vec::new();
        for table in TableName::all() {
            let TableName::Sums(sum_table, _) = table else {
                continue;
            };
            let whole = TableName::Sums(compared_with(sum_table), Tier::Day);
            if table == whole || broken.contains(&table) || broken.contains(&whole) {
                continue;
            }
            let cut = [table, whole].map(|table| manifest.cut.get(&table).copied().unwrap_or(0));
            let first_day = cut
                .into_iter()
                .max()
                .unwrap_or(0)
                .div_ceil(Tier::Day.seconds());
            let sums = [table, whole].map(|table| self.sums.get(&table).unwrap_or(&nothing));
            let days: BTreeSet<&Day> = sums.iter().flat_map(|sums| sums.keys()).collect();
            for day in days.into_iter().filter(|day| **day >= first_day) {
                let [sum, expected] = sums.map(|sums| sums.get(day).copied().unwrap_or(0));
                if sum != expected {
                    let reason = format!(
                        "day {day} since 1970 sums to {sum}, but to {expected} in {}; this is a bug \
                         of Emberline: please report it",
                        whole.name()
                    );
                    problems.push(Problem {
                        name: table.name(),
                        reason,
                    });
                    break;
                }
            }
        }
        self.problems.append(&mut problems);
    }
}

/// The table whose days have the same sums.
fn compared_with(sum_table: SumTable) -> SumTable {
    match sum_table {
        SumTable::Samples | SumTable::SamplesAll | SumTable::Totals => SumTable::Samples,
        other => other,
    }
}
