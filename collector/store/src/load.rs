//! Opening a store: loads the tree, workers, sessions and running tasks from its tables.

use std::sync::Arc;

use profiler_core::{Frame, FrameId, FrameKind, NodeId, WorkerId};

use super::error::StoreError;
use super::manifest::{FileEntry, Manifest};
use super::objects::Objects;
use super::segment::{ListRow, ListSegment};
use super::tables::Tables;
use super::versions::Versions;
use crate::lists::{FrameRow, NodeRow, SealedTask, WorkerRow};
use crate::rows::{ExpectedRow, LostTask, RunRow, SessionRecord, TaskRow};
use crate::sums::table::TableName;
use base::clock::Clock;
use base::limits::OWNER_CLAIMS_MAX;
use base::sync::{lock, write};

/// The part of a store that is loaded when it is opened; the rest is read by queries.
#[derive(Debug)]
pub struct StoredState {
    pub manifest: Arc<Manifest>,
    /// By id, from 0, all different. `[damaged]` frames replace those of damaged files.
    pub frames: Vec<Frame>,
    /// Parent and frame by id, from 1. Nodes of damaged files become children of the root, where several
    /// may have the same frame: a tree must add them without merging equal ones.
    pub nodes: Vec<(NodeId, FrameId)>,
    /// By number, from 1.
    pub workers: Vec<WorkerId>,
    pub sessions: Vec<SessionRecord>,
    pub running: Vec<Arc<TaskRow>>,
    pub lost_tasks: Vec<LostTask>,
    pub runs: Vec<RunRow>,
    pub expected: Vec<ExpectedRow>,
    /// Damage that was found, for people to read.
    pub reports: Vec<String>,
}

impl Tables {
    /// Opens the store, or creates one. Damaged files are copied to quarantine and reported.
    ///
    /// # Errors
    /// With [`StoreError::Format`] and [`StoreError::ManifestsLost`] nothing was changed.
    pub fn open(objects: Objects) -> Result<(Tables, StoredState), StoreError> {
        Tables::open_by(Clock::default(), objects)
    }

    /// Like [`Tables::open`]; new versions are stamped by `clock`.
    pub fn open_by(clock: Clock, objects: Objects) -> Result<(Tables, StoredState), StoreError> {
        if objects.is_bucket() {
            return Tables::open_bucket(&clock, &objects);
        }
        let versions = Versions::load(&objects)?;
        let (tables, loaded) = Tables::read(clock, objects, versions)?;
        // No other process writes to the store, and this one has not started to.
        let unfinished = tables.objects.delete_unfinished()?;
        if unfinished > 0 {
            tracing::info!(
                unfinished,
                "files that a crash left unfinished were deleted"
            );
        }
        if loaded.manifest.version == 0 {
            // Before any table, so that tables without a version mean that the versions were lost.
            tables.publish(|_| true, &mut |_| {})?;
        } else {
            // A process that was killed may have written the version without syncing it.
            tables
                .objects
                .sync(&[Manifest::path_of(loaded.manifest.version)])?;
        }
        tables.opened(loaded)
    }

    /// Opens a store in a bucket, and keeps earlier lives of its collector from publishing.
    fn open_bucket(clock: &Clock, objects: &Objects) -> Result<(Tables, StoredState), StoreError> {
        for _ in 0..OWNER_CLAIMS_MAX {
            let versions = Versions::load(objects)?;
            let (tables, loaded) = Tables::read(clock.clone(), objects.clone(), versions)?;
            if tables.take_over()? {
                return tables.opened(loaded);
            }
        }
        let reason = "another collector goes on publishing versions";
        Err(StoreError::damaged("manifest", reason))
    }

    /// Checks that a bucket has a store of this format, or nothing. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Foreign`], and as [`Tables::open`].
    pub fn check_place(objects: &Objects) -> Result<(), StoreError> {
        if objects.list("owner")?.is_empty()
            && objects.list("manifest")?.is_empty()
            && let Some(found) = objects.any_path()?
        {
            return Err(StoreError::Foreign {
                place: objects.place(),
                found,
            });
        }
        Versions::load_newest(objects).map(|_| ())
    }

    /// The first file of the log with records that are in no table.
    pub fn log_from(objects: &Objects) -> Result<u64, StoreError> {
        let versions = Versions::load_newest(objects)?;
        Ok(versions.newest().map_or(0, |manifest| manifest.wal_from))
    }

    fn opened(self, mut loaded: StoredState) -> Result<(Tables, StoredState), StoreError> {
        self.quarantine_versions();
        self.quarantine_damaged(&mut |_| {})?;
        loaded.manifest = self.manifest();
        for report in &loaded.reports {
            tracing::warn!(report, "the store is damaged");
        }
        Ok((self, loaded))
    }

    /// Publishes the newest version again, as the next one: it may be readable and not durable. If the
    /// sync of a file fails, the system drops what it could not write, and reports the next sync as a
    /// success. Only a new file shows whether it reaches the disk.
    pub fn republish(&self) -> Result<(), StoreError> {
        self.publish(|_| true, &mut |_| {}).map(|_| ())
    }

    /// Opens the store without changing anything.
    pub fn open_read_only(objects: Objects) -> Result<(Tables, StoredState), StoreError> {
        let versions = Versions::load_newest(&objects)?;
        Tables::read(Clock::default(), objects, versions)
    }

    fn read(
        clock: Clock,
        objects: Objects,
        versions: Versions,
    ) -> Result<(Tables, StoredState), StoreError> {
        let damaged = versions.damaged_newest();
        let mut reports: Vec<String> = damaged
            .map(|(version, reason)| {
                format!("{} is damaged: {reason}", Manifest::path_of(*version))
            })
            .collect();
        let files = objects.list("tables")?;
        let ids = files.iter().filter_map(|file| id_of(&file.path));
        let first_id = ids.max().map_or(1, |id| id + 1);
        let tables = Tables::new(objects, clock, versions, first_id);
        let loaded = tables.load(&mut reports)?;
        Ok((tables, StoredState { reports, ..loaded }))
    }

    fn load(&self, reports: &mut Vec<String>) -> Result<StoredState, StoreError> {
        let manifest = self.manifest();
        let mut frames = Vec::new();
        frames.resize(ids_of(&manifest, TableName::Frames), None);
        for FrameRow { id, frame } in self.rows(TableName::Frames, reports)? {
            frames[id.0 as usize] = Some(frame);
        }
        let (frames, lost_frame) = replace_lost_frames(frames);
        // Node 0 is the root.
        let mut nodes = vec![None; ids_of(&manifest, TableName::Nodes).max(1)];
        for NodeRow { id, parent, frame } in self.rows(TableName::Nodes, reports)? {
            let is_known = (frame.0 as usize) < frames.len();
            nodes[id.index()] = is_known.then_some((parent, frame));
        }
        let nodes: Vec<(NodeId, FrameId)> = nodes
            .into_iter()
            .skip(1)
            .map(|node| node.unwrap_or((NodeId::ROOT, lost_frame)))
            .collect();
        let mut workers = Vec::new();
        let last = ids_of(&manifest, TableName::Workers).max(1);
        workers
            .extend((1..last).map(|number| WorkerId(format!("[damaged worker {number}]").into())));
        for WorkerRow { number, worker } in self.rows(TableName::Workers, reports)? {
            if let Some(index) = number.checked_sub(1) {
                workers[index as usize] = worker;
            }
        }
        let sessions = self.rows(TableName::Sessions, reports)?;
        let running = self
            .rows::<SealedTask>(TableName::Running, reports)?
            .into_iter()
            .map(|task| task.row)
            .collect();
        let lost_tasks = self.rows(TableName::LostTasks, reports)?;
        let runs = self.rows(TableName::Runs, reports)?;
        let expected = self.rows(TableName::Expected, reports)?;
        self.remember(&frames, &nodes, &workers);
        let links = ids_of(&manifest, TableName::Links).saturating_sub(1);
        let link_rows = self.rows(TableName::Links, reports)?;
        write(&self.links).restore(link_rows, links);
        lock(&self.sealed).links = links;
        Ok(StoredState {
            manifest,
            frames,
            nodes,
            workers,
            sessions,
            running,
            lost_tasks,
            runs,
            expected,
            reports: Vec::new(),
        })
    }

    /// All rows of a list, without those of damaged files.
    fn rows<R: ListRow>(
        &self,
        table: TableName,
        reports: &mut Vec<String>,
    ) -> Result<Vec<R>, StoreError> {
        let mut all = Vec::new();
        for file in self.manifest().files_of(table) {
            match self.note_damage(file, read_list(&self.objects, file)) {
                Ok(rows) => all.extend(rows),
                Err(error @ StoreError::Damaged { .. }) => reports.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Records which ids are in tables, so that the next sealing continues from there.
    fn remember(&self, frames: &[Frame], nodes: &[(NodeId, FrameId)], ids: &[WorkerId]) {
        let mut sealed = lock(&self.sealed);
        sealed.frames = u32::try_from(frames.len()).expect("ids have 32 bits");
        sealed.nodes = u32::try_from(nodes.len() + 1).expect("ids have 32 bits");
        sealed.workers = ids.len();
        write(&self.workers).restore(ids);
    }
}

/// All rows of a list's file; their spans are checked against the manifest.
pub(super) fn read_list<R: ListRow>(
    objects: &Objects,
    file: &FileEntry,
) -> Result<Vec<R>, StoreError> {
    let segment = ListSegment::open::<R>(objects, file)?;
    let mut all = Vec::new();
    for group in 0..segment.group_count() {
        all.extend(segment.group::<R>(group)?);
    }
    if !all.iter().all(|row: &R| {
        let span = row.span();
        file.from.0 <= span.start && span.end <= file.to.0
    }) {
        let reason = "it has rows outside of the span that the manifest records";
        return Err(StoreError::damaged(file.path(), reason));
    }
    Ok(all)
}

/// One more than the last id of a table, including those of lost files.
fn ids_of(manifest: &Manifest, table: TableName) -> usize {
    let lost = manifest
        .lost
        .iter()
        .map(|lost| &lost.file)
        .filter(|file| file.table == table);
    let ends = manifest.files_of(table).chain(lost).map(|file| file.to.0);
    ends.max().unwrap_or(0) as usize
}

/// Replaces lost frames. Returns also the frame of lost nodes.
fn replace_lost_frames(frames: Vec<Option<Frame>>) -> (Vec<Frame>, FrameId) {
    let overflow = Frame::overflow().map(Arc::<str>::from);
    let lost_frame = frames
        .iter()
        .position(|frame: &Option<Frame>| frame.as_ref().is_none_or(|frame| *frame == overflow))
        .unwrap_or(0);
    let frames = frames
        .into_iter()
        .enumerate()
        .map(|(index, frame): (usize, Option<Frame>)| {
            frame.unwrap_or_else(|| Frame {
                kind: FrameKind::Unresolved,
                module: "[damaged]".into(),
                offset: index as u64 + 1,
                ..Frame::function("", "", 0).map(Arc::<str>::from)
            })
        })
        .collect();
    (
        frames,
        FrameId(u32::try_from(lost_frame).expect("ids have 32 bits")),
    )
}

/// The id in the name of a table's file.
pub(super) fn id_of(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?.strip_suffix(".parquet")?;
    u64::from_str_radix(name, 16).ok()
}
