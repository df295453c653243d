//! Opening a store: what its tables say of the tree, the workers, the sessions and what ran.

use std::sync::Arc;

use profiler_core::{Frame, FrameId, FrameKind, NodeId, WorkerId};

use super::error::StoreError;
use super::lists::{FrameRow, NodeRow, SealedTask, WorkerRow};
use super::manifest::{FileEntry, Manifest, Versions};
use super::objects::Objects;
use super::segment::{ListRow, ListSegment};
use super::table::TableName;
use super::tables::Tables;
use crate::rows::{ExpectedRow, LostTask, RunRow, SessionRecord, TaskRow};
use crate::sync::{lock, write};

/// What a store holds beside what is read when it is asked for.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) manifest: Arc<Manifest>,
    /// By id, from 0, all different. One whose file is damaged says so.
    pub(crate) frames: Vec<Frame>,
    /// Parent and frame by id, from 1. One whose file is damaged stands below the root, perhaps
    /// beside others with the same frame: a tree must take them in without looking for equal ones.
    pub(crate) nodes: Vec<(NodeId, FrameId)>,
    /// By number, from 1.
    pub(crate) workers: Vec<WorkerId>,
    pub(crate) sessions: Vec<SessionRecord>,
    pub(crate) running: Vec<Arc<TaskRow>>,
    pub(crate) settled: Vec<LostTask>,
    pub(crate) runs: Vec<RunRow>,
    pub(crate) expected: Vec<ExpectedRow>,
    /// What was damaged, for people to read.
    pub(crate) reports: Vec<String>,
}

impl Tables {
    /// Opens the store, or begins one. Damaged files are moved to quarantine and reported.
    ///
    /// # Errors
    /// [`StoreError::Format`] and [`StoreError::ManifestsLost`] leave all as it is.
    pub(crate) fn open(objects: Objects) -> Result<(Tables, Loaded), StoreError> {
        let (tables, mut loaded) = Tables::look(objects)?;
        // Nobody else writes here, and we have not begun.
        let unfinished = tables.objects.delete_unfinished()?;
        if unfinished > 0 {
            tracing::info!(unfinished, "files that a crash left unfinished were deleted");
        }
        if loaded.manifest.version == 0 {
            // Before any table: so tables without a version mean that the versions were lost.
            tables.publish(|_| true, &mut |_| {})?;
        }
        tables.quarantine_versions();
        tables.quarantine_damaged(&mut |_| {})?;
        loaded.manifest = tables.manifest();
        for report in &loaded.reports {
            tracing::warn!(report, "the store is damaged");
        }
        Ok((tables, loaded))
    }

    /// Opens the store and changes nothing.
    pub(crate) fn look(objects: Objects) -> Result<(Tables, Loaded), StoreError> {
        let versions = Versions::load(&objects)?;
        let damaged = versions.damaged_newest();
        let mut reports: Vec<String> = damaged
            .map(|(version, reason)| {
                format!("{} is damaged: {reason}", Manifest::path_of(*version))
            })
            .collect();
        let files = objects.list("tables")?;
        let ids = files.iter().filter_map(|file| id_of(&file.path));
        let first_id = ids.max().map_or(1, |id| id + 1);
        let tables = Tables::new(objects, versions, first_id);
        let loaded = tables.load(&mut reports)?;
        Ok((tables, Loaded { reports, ..loaded }))
    }

    fn load(&self, reports: &mut Vec<String>) -> Result<Loaded, StoreError> {
        let manifest = self.manifest();
        let mut frames = Vec::new();
        frames.resize(ids_of(&manifest, TableName::Frames), None);
        for FrameRow { id, frame } in self.rows(TableName::Frames, reports)? {
            frames[id.0 as usize] = Some(frame);
        }
        let (frames, stand_in) = with_lost_frames(frames);
        // Node 0 is the root.
        let mut nodes = vec![None; ids_of(&manifest, TableName::Nodes).max(1)];
        for NodeRow { id, parent, frame } in self.rows(TableName::Nodes, reports)? {
            let is_known = (frame.0 as usize) < frames.len();
            nodes[id.index()] = is_known.then_some((parent, frame));
        }
        let nodes = nodes.into_iter().skip(1);
        let nodes = nodes.map(|node| node.unwrap_or((NodeId::ROOT, stand_in))).collect::<Vec<_>>();
        let mut workers = Vec::new();
        let lost = |number| WorkerId(format!("[damaged worker {number}]").into());
        let last = ids_of(&manifest, TableName::Workers).max(1);
        workers.extend((1..last).map(lost));
        for WorkerRow { number, worker } in self.rows(TableName::Workers, reports)? {
            if let Some(place) = number.checked_sub(1) {
                workers[place as usize] = worker;
            }
        }
        let sessions = self.rows(TableName::Sessions, reports)?;
        let running = self.rows::<SealedTask>(TableName::Running, reports)?;
        let running = running.into_iter().map(|task| task.row).collect();
        let settled = self.rows(TableName::Settled, reports)?;
        let runs = self.rows(TableName::Runs, reports)?;
        let expected = self.rows(TableName::Expected, reports)?;
        self.remember(&frames, &nodes, &workers)?;
        let links = ids_of(&manifest, TableName::Links).saturating_sub(1);
        write(&self.links).restore(self.rows(TableName::Links, reports)?, links);
        lock(&self.sealed).links = links;
        Ok(Loaded {
            manifest,
            frames,
            nodes,
            workers,
            sessions,
            running,
            settled,
            runs,
            expected,
            reports: Vec::new(),
        })
    }

    /// All rows of a list's files, without those of damaged ones.
    fn rows<R: ListRow>(
        &self,
        table: TableName,
        reports: &mut Vec<String>,
    ) -> Result<Vec<R>, StoreError> {
        let mut all = Vec::new();
        for file in self.manifest().files_of(table) {
            match self.noting_damage(file, read_list(&self.objects, file)) {
                Ok(rows) => all.extend(rows),
                Err(error @ StoreError::Damaged { .. }) => reports.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Notes what the tables hold, so that the next sealing goes on from there.
    fn remember(
        &self,
        frames: &[Frame],
        nodes: &[(NodeId, FrameId)],
        ids: &[WorkerId],
    ) -> Result<(), StoreError> {
        let mut sealed = lock(&self.sealed);
        sealed.frames = u32::try_from(frames.len()).expect("ids have 32 bits");
        sealed.nodes = u32::try_from(nodes.len() + 1).expect("ids have 32 bits");
        sealed.workers = ids.len();
        let mut workers = write(&self.workers);
        ids.iter().try_for_each(|worker| workers.give(worker).map(|_| ()))
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
    let is_inside = |row: &R| {
        let span = row.span();
        file.from.0 <= span.start && span.end <= file.to.0
    };
    if !all.iter().all(is_inside) {
        let reason = "it has rows outside of the span that the manifest records";
        return Err(StoreError::damaged(file.path(), reason));
    }
    Ok(all)
}

/// One more than the last id of a table, with those whose files were lost.
fn ids_of(manifest: &Manifest, table: TableName) -> usize {
    let lost = manifest.lost.iter().map(|lost| &lost.file).filter(|file| file.table == table);
    let ends = manifest.files_of(table).chain(lost).map(|file| file.to.0);
    ends.max().unwrap_or(0) as usize
}

/// Fills the gaps, and gives a frame to stand for what a lost node was.
fn with_lost_frames(frames: Vec<Option<Frame>>) -> (Vec<Frame>, FrameId) {
    let overflow = Frame::overflow().map(Arc::<str>::from);
    let stands_in = |frame: &Option<Frame>| frame.as_ref().is_none_or(|frame| *frame == overflow);
    let stand_in = frames.iter().position(stands_in).unwrap_or(0);
    let fill = |(index, frame): (usize, Option<Frame>)| {
        frame.unwrap_or_else(|| Frame {
            kind: FrameKind::Unresolved,
            module: "[damaged]".into(),
            offset: index as u64 + 1,
            ..Frame::function("", "", 0).map(Arc::<str>::from)
        })
    };
    let frames = frames.into_iter().enumerate().map(fill).collect();
    (frames, FrameId(u32::try_from(stand_in).expect("ids have 32 bits")))
}

/// The id in a table's file's name.
pub(super) fn id_of(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?.strip_suffix(".parquet")?;
    u64::from_str_radix(name, 16).ok()
}
