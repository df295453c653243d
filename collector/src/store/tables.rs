//! The tables as a whole: the list of their files, and what reads and changes it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use profiler_core::WorkerId;
use rustc_hash::FxHashMap;

use super::error::StoreError;
use super::lists::{SealedTask, WorkerRow};
use super::manifest::{FileEntry, Manifest, Versions, path};
use super::objects::Objects;
use super::row::WorkerNumber;
use super::segment::{Batch, ListSegment, Scan, Segment, Written};
use super::table::TableName;
use crate::clock::Clock;
use crate::limits::OPEN_FILES_BYTES_MAX;
use crate::sync::{lock, read, write};

/// Sees a new version before another can be made.
pub(crate) type Swap<'a> = dyn FnMut(&Arc<Manifest>) + 'a;

/// All tables of a store. One process has them at a time.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(super) objects: Objects,
    clock: Clock,
    /// What readers begin with.
    current: RwLock<Arc<Manifest>>,
    /// Held while a version is made.
    pub(super) versions: Mutex<Versions>,
    next_id: AtomicU64,
    /// What the tables `frames`, `nodes` and `workers` hold; held throughout a sealing.
    pub(super) sealed: Mutex<Sealed>,
    pub(super) workers: RwLock<Workers>,
    open_files: Mutex<OpenFiles>,
    /// Damaged files that are still in the list, and why.
    pub(super) damaged: Mutex<BTreeMap<u64, String>>,
}

/// How much of the tree stands in tables.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    pub(super) frames: u32,
    /// With the root, which is in no table.
    pub(super) nodes: u32,
    pub(super) workers: usize,
    /// The first-level node above each node that was seen, by node.
    pub(super) tasks: Vec<u32>,
}

/// The numbers of workers.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    ids: Vec<WorkerId>,
    numbers: FxHashMap<WorkerId, WorkerNumber>,
}

impl Workers {
    pub(super) fn number(&self, worker: &WorkerId) -> Option<WorkerNumber> {
        self.numbers.get(worker).copied()
    }

    /// The number of a worker, a new one if it has none.
    pub(super) fn give(&mut self, worker: &WorkerId) -> Result<WorkerNumber, StoreError> {
        if let Some(number) = self.number(worker) {
            return Ok(number);
        }
        let limit = WorkerNumber::MAX.0;
        let number = u32::try_from(self.ids.len() + 1).ok().filter(|number| *number <= limit);
        let number = WorkerNumber(number.ok_or(StoreError::TooManyWorkers { limit })?);
        self.ids.push(worker.clone());
        self.numbers.insert(worker.clone(), number);
        Ok(number)
    }

    /// Rows from the `from`th worker on.
    pub(super) fn rows_from(&self, from: usize) -> Vec<WorkerRow> {
        let rows = self.ids.iter().zip(1u32..).skip(from);
        rows.map(|(worker, number)| WorkerRow { number, worker: worker.clone() }).collect()
    }
}

/// Footers of files that were opened.
#[derive(Debug, Default)]
struct OpenFiles {
    counting: FxHashMap<u64, Arc<Segment>>,
    bytes: usize,
}

/// Which tasks are wanted of a file. Others may come too: the caller filters.
#[derive(Clone, Default, Debug)]
pub(crate) struct TaskScan<'a> {
    /// That were running at some point of this span, in nanoseconds since the Unix epoch.
    pub(crate) span_ns: Option<std::ops::Range<i64>>,
    pub(crate) name: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
}

impl Tables {
    pub(super) fn new(objects: Objects, versions: Versions, first_id: u64) -> Tables {
        let current = versions.newest().cloned().unwrap_or_default();
        Tables {
            objects,
            clock: Clock::default(),
            next_id: AtomicU64::new(first_id.max(current.next_id)),
            current: RwLock::new(current),
            versions: Mutex::new(versions),
            sealed: Mutex::default(),
            workers: RwLock::default(),
            open_files: Mutex::default(),
            damaged: Mutex::default(),
        }
    }

    /// The newest version.
    pub(crate) fn manifest(&self) -> Arc<Manifest> {
        read(&self.current).clone()
    }

    /// The number of a worker, if any table has rows of it.
    pub(crate) fn worker_number(&self, worker: &WorkerId) -> Option<WorkerNumber> {
        read(&self.workers).number(worker)
    }

    /// All workers that have numbers: the first has number 1.
    pub(crate) fn worker_ids(&self) -> Vec<WorkerId> {
        read(&self.workers).ids.clone()
    }

    /// Gives the rows of a counting table's file that `scan` asks for, and perhaps others, in order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the file is not as it was written; `visit` may have seen rows of
    /// it, which must not be used then.
    pub(crate) fn scan(
        &self,
        file: &FileEntry,
        scan: &Scan<'_>,
        visit: &mut dyn FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let segment = self.segment(file)?;
        let mut cursor = segment.cursor(scan);
        let mut batch = Batch::default();
        while self.noting_damage(file, cursor.next(&mut batch))? {
            if visit(&batch).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Gives the tasks of a file of `tasks` that `scan` asks for, and perhaps others.
    ///
    /// # Errors
    /// As [`Tables::scan`].
    pub(crate) fn tasks(
        &self,
        file: &FileEntry,
        scan: &TaskScan<'_>,
        visit: &mut dyn FnMut(Vec<SealedTask>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let opened = ListSegment::open::<SealedTask>(&self.objects, file);
        let segment = self.noting_damage(file, opened)?;
        for group in 0..segment.group_count() {
            if self.noting_damage(file, scan.may_be_in(&segment, group))? {
                let rows = self.noting_damage(file, segment.group::<SealedTask>(group))?;
                if visit(rows).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A counting table's file, open. Its checksum is compared the first time.
    pub(super) fn segment(&self, file: &FileEntry) -> Result<Arc<Segment>, StoreError> {
        if let Some(segment) = lock(&self.open_files).counting.get(&file.id) {
            return Ok(segment.clone());
        }
        let TableName::Counting(counting, tier) = file.table else {
            return Err(StoreError::damaged(file.path(), "its table does not count"));
        };
        let opened = Segment::open(&self.objects, file, (counting, tier));
        let segment = Arc::new(self.noting_damage(file, opened)?);
        let mut open = lock(&self.open_files);
        if open.bytes > OPEN_FILES_BYTES_MAX {
            *open = OpenFiles::default();
        }
        open.bytes += segment.footer_bytes();
        open.counting.insert(file.id, segment.clone());
        Ok(segment)
    }

    /// Remembers damage until the file is taken out of the list.
    pub(super) fn noting_damage<T>(
        &self,
        file: &FileEntry,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged { reason, .. }) = &result {
            // A file that went while somebody still read an older version is not damaged.
            if self.manifest().file(file.id).is_some() {
                lock(&self.damaged).insert(file.id, reason.clone());
            }
            lock(&self.open_files).counting.remove(&file.id);
        }
        result
    }

    /// Forgets what is known of files that are gone.
    pub(super) fn close_files(&self, ids: impl IntoIterator<Item = u64>) {
        let mut open = lock(&self.open_files);
        for id in ids {
            if let Some(segment) = open.counting.remove(&id) {
                open.bytes = open.bytes.saturating_sub(segment.footer_bytes());
            }
        }
    }

    /// Puts a file in its place. It belongs to the store once a version names it.
    pub(super) fn put(
        &self,
        table: TableName,
        level: u8,
        written: Written,
    ) -> Result<FileEntry, StoreError> {
        let Written { content, rows, from, to } = written;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let entry = FileEntry {
            table,
            id,
            bytes: content.len() as u64,
            rows,
            crc32: crc32fast::hash(&content),
            from,
            to,
            level,
        };
        self.objects.put_new(&path(table, id), content)?;
        Ok(entry)
    }

    /// Makes the next version from the newest; no other is made meanwhile. Nothing happens if `edit`
    /// says that there is nothing to do. `swap` sees the new version before anybody else may make
    /// or read another.
    pub(super) fn publish(
        &self,
        edit: impl FnOnce(&mut Manifest) -> bool,
        swap: &mut Swap<'_>,
    ) -> Result<Option<Arc<Manifest>>, StoreError> {
        let mut versions = lock(&self.versions);
        let mut manifest = Manifest::clone(&self.manifest());
        if !edit(&mut manifest) {
            return Ok(None);
        }
        manifest.version = versions.take_next();
        manifest.made_at_ns = self.clock.now().unix_ns();
        manifest.next_id = self.next_id.load(Ordering::Relaxed);
        manifest.files.sort_unstable_by_key(|file| file.id);
        manifest.publish(&self.objects)?;
        let manifest = Arc::new(manifest);
        versions.readable.insert(manifest.version, manifest.clone());
        *write(&self.current) = manifest.clone();
        swap(&manifest);
        Ok(Some(manifest))
    }
}

impl TaskScan<'_> {
    fn may_be_in(&self, segment: &ListSegment, group: usize) -> Result<bool, StoreError> {
        if let Some(span) = &self.span_ns {
            let starts = segment.number_bounds(group, "start");
            let stops = segment.number_bounds(group, "stop");
            let is_later = starts.is_some_and(|(first, _)| first >= span.end);
            if is_later || stops.is_some_and(|(_, last)| last < span.start) {
                return Ok(false);
            }
        }
        for (column, text) in [("name", self.name), ("key", self.key)] {
            if let Some(text) = text
                && !segment.may_hold(group, column, text)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
