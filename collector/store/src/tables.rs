//! The tables of a store: the manifest of their files, reads and new versions.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use profiler_core::WorkerId;
use profiler_core::hash::KeyedMap;

use super::error::StoreError;
use super::manifest::{FileEntry, LostFile, LostLog, Manifest, path};
use super::objects::Objects;
use super::segment::{Batch, EncodedFile, ListRow, ListSegment, Scan, Segment, WorkerRanges};
use super::union::{PartFile, UnionPart};
use super::versions::Versions;
use crate::lists::links::{Link, Links};
use crate::lists::{SealedTask, WorkerRow};
use crate::seal::seal_buffer::SealBuffer;
use crate::sums::file_sums::{Adding, FileSums, Selection};
use crate::sums::row::WorkerNumber;
use crate::sums::table::TableName;
use base::clock::Clock;
use base::limits::{FILE_WORKERS_BYTES_MAX, OPEN_FILES_BYTES_MAX, OPEN_FILES_MAX, WORKERS_MAX};
use base::sync::{Mutex, RwLock, lock, rank, read, write};

/// Stands for the workers past [`WORKERS_MAX`].
const OVERFLOW: &str = "[overflow]";

const _: () = assert!(WORKERS_MAX < WorkerNumber::MAX.0 as usize);

/// Called with a new version before the next one can be published.
pub(crate) type OnPublish<'a> = dyn FnMut(&Arc<Manifest>) + 'a;

/// All tables of a store. One process at a time may open them.
#[derive(Debug)]
pub struct Tables {
    pub(super) objects: Objects,
    pub(crate) clock: Clock,
    /// The newest version.
    current: RwLock<Arc<Manifest>, rank::TablesCurrent>,
    /// Locked while a version is published.
    pub(super) versions: Mutex<Versions, rank::TablesVersions>,
    next_id: AtomicU64,
    /// Locked throughout a sealing.
    pub(super) sealed: Mutex<SealedIds, rank::TablesSealed>,
    pub(super) workers: RwLock<Workers, rank::TablesWorkers>,
    /// Lock order: after `workers`.
    pub(super) links: RwLock<Links, rank::TablesLinks>,
    open_files: Mutex<OpenFiles, rank::TablesOpen>,
    file_sums: Mutex<FileSums, rank::FileSums>,
    /// The stores of which this is the union; otherwise none.
    pub(super) parts: RwLock<Vec<Arc<UnionPart>>, rank::TablesParts>,
    /// Damaged files that the manifest still lists, and the reasons.
    pub(super) damaged: Mutex<BTreeMap<u64, String>, rank::TablesDamaged>,
    /// When the store was opened, by a clock that cannot jump.
    pub(super) opened: Instant,
    /// Of a collector that was running while this store had no owner: its data shows how much time has passed.
    pub(super) witness: OnceLock<Arc<Manifest>>,
    /// When maintenance last ran, in nanoseconds since the Unix epoch; before the first time, when the
    /// newest version was made.
    pub(super) maintained_at_ns: AtomicI64,
    /// The latest time at which maintenance ran, or the newest version was made.
    pub(super) latest_now_ns: AtomicI64,
}

/// How many ids are in tables.
#[derive(Debug, Default)]
pub(super) struct SealedIds {
    pub(super) frames: u32,
    /// Includes the root, which is in no table.
    pub(super) nodes: u32,
    pub(super) workers: usize,
    pub(super) links: usize,
    /// Memory that the next sealing reuses.
    pub(super) buffer: SealBuffer,
}

/// The numbers of workers.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    ids: Vec<WorkerId>,
    numbers: KeyedMap<WorkerId, WorkerNumber>,
}

impl Workers {
    pub(super) fn number(&self, worker: &WorkerId) -> Option<WorkerNumber> {
        self.numbers.get(worker).copied()
    }

    /// The number of a worker; assigns the next one to a new worker. New workers past
    /// [`WORKERS_MAX`] share one number, so that a sealing never fails for lack of numbers.
    pub(super) fn assign(&mut self, worker: &WorkerId) -> WorkerNumber {
        if let Some(number) = self.number(worker) {
            return number;
        }
        if self.ids.len() < WORKERS_MAX {
            return self.add(worker.clone());
        }
        let overflow = WorkerId(OVERFLOW.into());
        self.number(&overflow).unwrap_or_else(|| self.add(overflow))
    }

    /// Restores the workers of a store, by number from 1.
    pub(super) fn restore(&mut self, ids: &[WorkerId]) {
        for id in ids {
            self.add(id.clone());
        }
    }

    fn add(&mut self, worker: WorkerId) -> WorkerNumber {
        self.ids.push(worker.clone());
        let number = u32::try_from(self.ids.len()).expect("workers are limited");
        self.numbers.insert(worker, WorkerNumber(number));
        WorkerNumber(number)
    }

    /// Rows from the `from`th worker on.
    pub(super) fn rows_from(&self, from: usize) -> Vec<WorkerRow> {
        let rows = self.ids.iter().zip(1u32..).skip(from);
        rows.map(|(worker, number)| WorkerRow {
            number,
            worker: worker.clone(),
        })
        .collect()
    }
}

/// Open files whose checksums were verified, with their footers.
#[derive(Debug, Default)]
struct OpenFiles {
    sum_table: KeyedMap<u64, Arc<Segment>>,
    lists: KeyedMap<u64, Arc<ListSegment>>,
    bytes: usize,
    workers: FileWorkers,
}

/// The workers of files that need not be open, by file; `None` for files that do not tell.
#[derive(Debug, Default)]
struct FileWorkers {
    by_file: KeyedMap<u64, Option<Arc<WorkerRanges>>>,
    bytes: usize,
}

impl FileWorkers {
    fn insert(&mut self, file: u64, workers: Option<Arc<WorkerRanges>>) {
        let bytes = FileWorkers::bytes_of(workers.as_ref());
        if self.bytes + bytes > FILE_WORKERS_BYTES_MAX {
            *self = FileWorkers::default();
        }
        self.remove(file);
        self.bytes += bytes;
        self.by_file.insert(file, workers);
    }

    fn remove(&mut self, file: u64) {
        if let Some(workers) = self.by_file.remove(&file) {
            self.bytes -= FileWorkers::bytes_of(workers.as_ref());
        }
    }

    fn bytes_of(workers: Option<&Arc<WorkerRanges>>) -> usize {
        /// An entry of the map and the counters of an `Arc`.
        const ENTRY_BYTES: usize = 64;
        ENTRY_BYTES + workers.map_or(0, |workers| workers.bytes())
    }
}

impl OpenFiles {
    /// Makes room for one more file that takes `bytes` of memory.
    fn make_room(&mut self, bytes: usize) {
        let count = self.sum_table.len() + self.lists.len();
        if count >= OPEN_FILES_MAX || self.bytes + bytes > OPEN_FILES_BYTES_MAX {
            *self = OpenFiles {
                workers: std::mem::take(&mut self.workers),
                ..OpenFiles::default()
            };
        }
        self.bytes += bytes;
    }

    fn close(&mut self, id: u64) {
        let sum_table = self
            .sum_table
            .remove(&id)
            .map(|segment| segment.footer_bytes());
        let list = self.lists.remove(&id).map(|segment| segment.memory_bytes());
        let bytes = sum_table.unwrap_or(0) + list.unwrap_or(0);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Selects the tasks of a file to read. A scan may return others too: the caller filters.
#[derive(Clone, Default, Debug)]
pub struct TaskScan<'a> {
    /// Tasks that ran at any point of this span, in nanoseconds since the Unix epoch.
    pub span_ns: Option<Range<i64>>,
    pub name: Option<&'a str>,
    pub key: Option<&'a str>,
}

impl Tables {
    pub(super) fn new(objects: Objects, clock: Clock, versions: Versions, first_id: u64) -> Tables {
        let current = versions.newest().cloned().unwrap_or_default();
        Tables {
            clock,
            next_id: AtomicU64::new(first_id.max(current.next_id).max(objects.ids().start)),
            opened: Instant::now(),
            witness: OnceLock::new(),
            maintained_at_ns: AtomicI64::new(match current.version {
                0 => i64::MAX,
                _ => current.made_at_ns,
            }),
            objects,
            latest_now_ns: AtomicI64::new(current.made_at_ns),
            current: RwLock::new(current),
            versions: Mutex::new(versions),
            sealed: Mutex::default(),
            workers: RwLock::default(),
            links: RwLock::default(),
            open_files: Mutex::default(),
            file_sums: Mutex::default(),
            parts: RwLock::default(),
            damaged: Mutex::default(),
        }
    }

    /// The newest version.
    pub fn manifest(&self) -> Arc<Manifest> {
        read(&self.current).clone()
    }

    /// Makes a version the newest one, which nobody publishes.
    pub(super) fn show(&self, manifest: Arc<Manifest>) {
        *write(&self.current) = manifest;
    }

    /// Whether a file with names is lost, so that an unknown name may still be in the tables.
    pub fn lacks_names(&self) -> bool {
        self.manifest().lost_lists().next().is_some()
    }

    /// Why this process must not write any more; `None` while it owns the store.
    pub fn taken_over(&self) -> Option<StoreError> {
        self.objects.check_fence().err()
    }

    /// Records lost parts of the log: in the current version in memory, and in all later versions.
    pub fn note_lost_log(&self, lost: Vec<LostLog>) -> Arc<Manifest> {
        // Locked as in `publish`: no version is published meanwhile.
        let _versions = lock(&self.versions);
        let mut manifest = Manifest::clone(&self.manifest());
        manifest.lose_log(lost);
        let manifest = Arc::new(manifest);
        *write(&self.current) = manifest.clone();
        manifest
    }

    /// Publishes a version if the newest one lacks lost parts of the log. The next start does not find a
    /// lost log again after an orderly stop, which says that nothing of it is needed.
    pub fn publish_losses(&self) -> Result<(), StoreError> {
        let published = lock(&self.versions).newest().cloned();
        let known = published
            .as_ref()
            .map_or(&[][..], |published| &published.lost_log);
        if self.manifest().lost_log == known {
            return Ok(());
        }
        self.publish(|_| true, &mut |_| {}).map(drop)
    }

    /// The store of a collector that was running while this one had no owner.
    pub fn attended_by(&self, witness: Option<Arc<Manifest>>) {
        if let Some(witness) = witness {
            // There is one at most.
            let _ = self.witness.set(witness);
        }
    }

    /// The number of a worker; `None` if no table has rows of it.
    pub fn worker_number(&self, worker: &WorkerId) -> Option<WorkerNumber> {
        read(&self.workers).number(worker)
    }

    /// The workers in the order of their numbers, from number 1.
    pub fn worker_ids(&self) -> Vec<WorkerId> {
        read(&self.workers).ids.clone()
    }

    /// Numbers new links, past the common limit only if `may_reserve`. A sealing counts the others as
    /// `[overflow]`.
    pub fn add_links<'a>(
        &self,
        links: impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)>,
        may_reserve: impl Fn() -> bool,
    ) {
        let known = read(&self.links);
        let links = links.map(|(peer, type_name)| (peer.clone(), type_name.clone()));
        let new: BTreeSet<Link> = links.filter(|link| !known.contains(link)).collect();
        drop(known);
        for link in new {
            write(&self.links).add(link, &may_reserve);
        }
    }

    /// Peers and types of the links in the order of their numbers, from number 1.
    pub fn links(&self) -> Vec<(Arc<str>, Arc<str>)> {
        read(&self.links).all()
    }

    /// Calls `visit` with the rows of a sum table's file that match `scan`, and perhaps others, in
    /// order.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the file is not as it was written. `visit` may have been called with
    /// some of its rows, which must be discarded then.
    pub fn scan(
        &self,
        file: &FileEntry,
        scan: &Scan<'_>,
        visit: &mut dyn FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if let Some(of_part) = self.part_of(file) {
            return of_part.scan(scan, visit);
        }
        let workers = scan.workers.map(|asked| self.workers_in(file, asked));
        if workers.as_ref().is_some_and(|workers| workers.is_empty()) {
            return Ok(());
        }
        let scan = &Scan {
            workers: workers.as_deref(),
            ..scan.clone()
        };
        let Some(selection) = Selection::of(file, scan) else {
            return self.read_rows(file, scan, visit);
        };
        let known = lock(&self.file_sums).get(&selection);
        if let Some(sums) = known {
            // Nothing follows.
            let _ = visit(&sums);
            return Ok(());
        }
        let mut adding = Adding::new(selection, file);
        let mut is_whole = true;
        self.read_rows(file, scan, &mut |batch| {
            adding.add(batch);
            let flow = visit(batch);
            is_whole &= flow.is_continue();
            flow
        })?;
        if is_whole {
            adding.keep(&self.file_sums);
        }
        Ok(())
    }

    fn read_rows(
        &self,
        file: &FileEntry,
        scan: &Scan<'_>,
        visit: &mut dyn FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let segment = self.segment(file)?;
        let mut cursor = segment.cursor(scan);
        let mut batch = Batch::default();
        while self.note_damage(file, cursor.next(&mut batch))? {
            if visit(&batch).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the tasks of a file of `tasks` that match `scan`, and perhaps others.
    ///
    /// # Errors
    /// As [`Tables::scan`].
    pub fn tasks(
        &self,
        file: &FileEntry,
        scan: &TaskScan<'_>,
        visit: &mut dyn FnMut(Vec<SealedTask>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if let Some(PartFile { part, file }) = self.part_of(file) {
            return part.tables.tasks(&file, scan, visit);
        }
        let segment = self.list::<SealedTask>(file)?;
        for group in 0..segment.group_count() {
            let ranges = self.note_damage(file, scan.rows_in(&segment, group))?;
            if !ranges.is_empty() {
                let rows = self.note_damage(file, segment.rows::<SealedTask>(group, &ranges))?;
                if visit(rows).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Those of the workers of which a file may have rows, by its footer. Files that are not merged do not tell.
    fn workers_in<'a>(
        &self,
        file: &FileEntry,
        asked: &'a [WorkerNumber],
    ) -> Cow<'a, [WorkerNumber]> {
        if file.level == 0 {
            return Cow::Borrowed(asked);
        }
        let known = lock(&self.open_files)
            .workers
            .by_file
            .get(&file.id)
            .cloned();
        let workers = known.unwrap_or_else(|| {
            let workers = WorkerRanges::read(&self.objects, file).map(Arc::new);
            lock(&self.open_files)
                .workers
                .insert(file.id, workers.clone());
            workers
        });
        match workers {
            Some(workers) => Cow::Owned(workers.among(asked)),
            None => Cow::Borrowed(asked),
        }
    }

    /// Opens a sum table's file. Verifies its checksum the first time.
    pub(super) fn segment(&self, file: &FileEntry) -> Result<Arc<Segment>, StoreError> {
        let known = lock(&self.open_files).sum_table.get(&file.id).cloned();
        if let Some(segment) = known {
            return Ok(segment);
        }
        let TableName::Sums(sum_table, tier) = file.table else {
            return Err(StoreError::damaged(file.path(), "its table has no sums"));
        };
        let opened = Segment::open(&self.objects, file, sum_table, tier);
        let segment = Arc::new(self.note_damage(file, opened)?);
        let mut open = lock(&self.open_files);
        open.close(file.id);
        open.make_room(segment.footer_bytes());
        open.sum_table.insert(file.id, segment.clone());
        Ok(segment)
    }

    /// Opens a list's file. Verifies its checksum the first time.
    pub(super) fn list<R: ListRow>(
        &self,
        file: &FileEntry,
    ) -> Result<Arc<ListSegment>, StoreError> {
        let known = lock(&self.open_files).lists.get(&file.id).cloned();
        if let Some(segment) = known {
            return Ok(segment);
        }
        let opened = ListSegment::open::<R>(&self.objects, file);
        let segment = Arc::new(self.note_damage(file, opened)?);
        let mut open = lock(&self.open_files);
        open.close(file.id);
        open.make_room(segment.memory_bytes());
        open.lists.insert(file.id, segment.clone());
        Ok(segment)
    }

    /// Records damage until the file is removed from the manifest.
    pub(super) fn note_damage<T>(
        &self,
        file: &FileEntry,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged { reason, .. }) = &result {
            // A file that was deleted while a reader used an older version is not damaged.
            if self.manifest().file(file.id).is_some() {
                lock(&self.damaged).insert(file.id, reason.clone());
            }
            lock(&self.open_files).close(file.id);
        }
        result
    }

    /// Files with names and numbers that were found damaged when the store was opened. A collector moves them to the
    /// lost files of its manifest; a reader of its store cannot.
    pub(super) fn damaged_lists(&self) -> Vec<LostFile> {
        let manifest = self.manifest();
        let damaged = lock(&self.damaged);
        damaged
            .iter()
            .filter_map(|(id, reason): (&u64, &String)| {
                let file = manifest
                    .file(*id)
                    .filter(|file| file.table.is_timeless())?
                    .clone();
                Some(LostFile {
                    file,
                    reason: reason.clone(),
                })
            })
            .collect()
    }

    /// Closes files that were removed from the manifest.
    pub(super) fn close_files(&self, ids: impl IntoIterator<Item = u64>) {
        let mut open = lock(&self.open_files);
        for id in ids {
            open.close(id);
            open.workers.remove(id);
            lock(&self.file_sums).remove(id);
        }
    }

    /// Writes a file. It is part of the store, and survives a crash, once a version lists it.
    pub(super) fn put(
        &self,
        table: TableName,
        level: u8,
        written: EncodedFile,
    ) -> Result<FileEntry, StoreError> {
        let EncodedFile {
            content,
            rows,
            from,
            to,
        } = written;
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
        self.objects.put_unsynced(&path(table, id), content)?;
        Ok(entry)
    }

    /// Publishes a version made from the newest one by `edit`; none if `edit` returns `false`. `on_publish` is
    /// called before the next version can be published.
    pub(super) fn publish(
        &self,
        edit: impl FnOnce(&mut Manifest) -> bool,
        on_publish: &mut OnPublish<'_>,
    ) -> Result<Option<Arc<Manifest>>, StoreError> {
        let mut versions = lock(&self.versions);
        versions
            .resolve(&self.objects)
            .map_err(|error| self.fenced_by(error))?;
        let before = self.manifest();
        let mut manifest = Manifest::clone(&before);
        if !edit(&mut manifest) {
            return Ok(None);
        }
        let new = manifest
            .files
            .iter()
            .filter(|file| before.file(file.id).is_none());
        self.objects
            .sync(&new.map(FileEntry::path).collect::<Vec<_>>())?;
        manifest.version = versions.take_next();
        manifest.made_at_ns = self.clock.now().unix_ns();
        manifest.next_id = self.next_id.load(Ordering::Relaxed);
        manifest.files.sort_unstable_by_key(|file| file.id);
        manifest.epoch = self.objects.epoch();
        if let Err(error) = manifest.publish(&self.objects) {
            if self.objects.is_bucket() && !matches!(error, StoreError::AlreadyExists { .. }) {
                versions.note_unresolved(manifest);
            }
            return Err(self.fenced_by(error));
        }
        let manifest = Arc::new(manifest);
        versions.readable.insert(manifest.version, manifest.clone());
        *write(&self.current) = manifest.clone();
        on_publish(&manifest);
        Ok(Some(manifest))
    }

    /// In a bucket, only a later life of the collector publishes a version that this one would publish.
    fn fenced_by(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::AlreadyExists { path } if self.objects.is_bucket() => {
                self.objects.fence(format!(
                    "its tables go on in {path}, which this process did not write"
                ));
                let error = self.objects.check_fence().err();
                error.unwrap_or(StoreError::AlreadyExists { path })
            }
            error => error,
        }
    }

    /// Publishes the newest version again, as the next one, so that no earlier life of the collector can
    /// publish any more. `false` if one was faster: then the store must be read again.
    pub(super) fn take_over(&self) -> Result<bool, StoreError> {
        let mut versions = lock(&self.versions);
        let mut manifest = Manifest::clone(&self.manifest());
        manifest.version = versions.take_next();
        manifest.made_at_ns = self.clock.now().unix_ns();
        manifest.epoch = self.objects.epoch();
        match manifest.publish(&self.objects) {
            Ok(()) => {}
            Err(StoreError::AlreadyExists { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        let manifest = Arc::new(manifest);
        versions.readable.insert(manifest.version, manifest.clone());
        *write(&self.current) = manifest;
        Ok(true)
    }
}

impl TaskScan<'_> {
    /// The rows of a row group that may match: first by the statistics in the footer, then by the
    /// columns of the query.
    fn rows_in(
        &self,
        segment: &ListSegment,
        group: usize,
    ) -> Result<Vec<Range<usize>>, StoreError> {
        let texts = [("key", self.key), ("name", self.name)];
        let texts = || {
            texts
                .into_iter()
                .filter_map(|(column, text)| Some((column, text?)))
        };
        let span = self.span_ns.clone().unwrap_or(i64::MIN..i64::MAX);
        let starts = segment
            .number_bounds(group, "start")
            .unwrap_or((i64::MIN, i64::MAX));
        let stops = segment
            .number_bounds(group, "stop")
            .unwrap_or((i64::MIN, i64::MAX));
        if starts.0 >= span.end || stops.1 < span.start {
            return Ok(Vec::new());
        }
        for (column, text) in texts() {
            if !segment.may_hold(group, column, text)? {
                return Ok(Vec::new());
            }
        }
        let mut ranges = vec![segment.all_rows(group)];
        for (column, text) in texts() {
            ranges = segment.rows_with_text(group, &ranges, column, text)?;
        }
        if starts.1 >= span.end && !ranges.is_empty() {
            ranges = segment.rows_with_number(group, &ranges, "start", |at| at < span.end)?;
        }
        if stops.0 < span.start && !ranges.is_empty() {
            ranges = segment.rows_with_number(group, &ranges, "stop", |at| at >= span.start)?;
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_past_the_limit_share_a_number_also_after_a_restart() {
        let mut workers = Workers::default();
        let numbers: Vec<u32> = (0..WORKERS_MAX + 3)
            .map(|n| workers.assign(&id(n)).0)
            .collect();
        let last = u32::try_from(WORKERS_MAX).unwrap();
        assert_eq!(
            numbers[WORKERS_MAX - 2..],
            [last - 1, last, last + 1, last + 1, last + 1]
        );
        assert_eq!((numbers[0], workers.assign(&id(0)).0), (1, 1));
        let rows = workers.rows_from(WORKERS_MAX);
        assert_eq!(
            (rows.len(), &*rows[0].worker.0, rows[0].number),
            (1, OVERFLOW, last + 1)
        );
        let mut restored = Workers::default();
        restored.restore(&workers.ids);
        assert_eq!(restored.assign(&id(WORKERS_MAX)).0, last + 1);
        assert_eq!(restored.assign(&id(7)).0, 8);
    }

    fn id(n: usize) -> WorkerId {
        WorkerId(n.to_string().into())
    }
}
