//! Rows of `nodes` and `frames` by id.

use std::collections::BTreeSet;
use std::sync::Arc;

use profiler_core::{FrameId, NodeId};

use super::{FrameRow, NodeRow};
use crate::error::StoreError;
use crate::manifest::FileEntry;
use crate::segment::{ListRow, ListSegment};
use crate::sums::table::TableName;
use crate::tables::Tables;
use base::heartbeat;

/// A row with an id.
trait IdRow: ListRow {
    const TABLE: TableName;

    fn id(&self) -> u32;
}

impl IdRow for NodeRow {
    const TABLE: TableName = TableName::Nodes;

    fn id(&self) -> u32 {
        self.id.0
    }
}

impl IdRow for FrameRow {
    const TABLE: TableName = TableName::Frames;

    fn id(&self) -> u32 {
        self.id.0
    }
}

impl Tables {
    /// The rows of nodes and of those of their ancestors that `lacks` says are needed too, by rising id. Reads the row
    /// groups that may have them, from the newest ids down, because a parent's is smaller. Unknown ids are left out.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn node_rows(
        &self,
        mut wanted: BTreeSet<NodeId>,
        lacks: impl Fn(NodeId) -> bool,
    ) -> Result<Vec<NodeRow>, StoreError> {
        let mut found = Vec::new();
        for file in self.files_down::<NodeRow>() {
            let has_wanted = |wanted: &BTreeSet<NodeId>| {
                wanted
                    .range(NodeId(file.from.0)..NodeId(file.to.0))
                    .next()
                    .is_some()
            };
            if !has_wanted(&wanted) {
                continue;
            }
            let segment = self.list::<NodeRow>(&file)?;
            for group in (0..segment.group_count()).rev() {
                let ids = segment.ids(&file, group);
                if wanted
                    .range(NodeId(ids.start)..NodeId(ids.end))
                    .next()
                    .is_none()
                {
                    continue;
                }
                for row in self
                    .group_rows::<NodeRow>(&file, &segment, group)?
                    .into_iter()
                    .rev()
                {
                    if wanted.remove(&row.id) {
                        if row.parent != NodeId::ROOT && lacks(row.parent) {
                            wanted.insert(row.parent);
                        }
                        found.push(row);
                    }
                }
            }
        }
        found.sort_unstable_by_key(|row| row.id);
        Ok(found)
    }

    /// The rows of frames. Unknown ids are left out.
    ///
    /// # Errors
    /// As [`Tables::node_rows`].
    pub fn frame_rows(&self, wanted: &BTreeSet<FrameId>) -> Result<Vec<FrameRow>, StoreError> {
        let mut found = Vec::new();
        for file in self.files_down::<FrameRow>() {
            if wanted
                .range(FrameId(file.from.0)..FrameId(file.to.0))
                .next()
                .is_none()
            {
                continue;
            }
            let segment = self.list::<FrameRow>(&file)?;
            for group in 0..segment.group_count() {
                let ids = segment.ids(&file, group);
                if wanted
                    .range(FrameId(ids.start)..FrameId(ids.end))
                    .next()
                    .is_none()
                {
                    continue;
                }
                let rows = self.group_rows::<FrameRow>(&file, &segment, group)?;
                found.extend(rows.into_iter().filter(|row| wanted.contains(&row.id)));
            }
        }
        Ok(found)
    }

    /// The files of a table, those with the greatest ids first.
    fn files_down<R: IdRow>(&self) -> Vec<FileEntry> {
        let manifest = self.manifest();
        let mut files: Vec<FileEntry> = manifest.files_of(R::TABLE).cloned().collect();
        files.sort_unstable_by_key(|file| std::cmp::Reverse(file.to.0));
        files
    }

    /// The rows of a row group, by rising id.
    fn group_rows<R: IdRow>(
        &self,
        file: &FileEntry,
        segment: &Arc<ListSegment>,
        group: usize,
    ) -> Result<Vec<R>, StoreError> {
        heartbeat::beat();
        let mut rows = self.note_damage(file, segment.group::<R>(group))?;
        rows.sort_unstable_by_key(IdRow::id);
        Ok(rows)
    }
}
