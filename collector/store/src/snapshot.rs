//! One version of a store, for query engines that read its files themselves.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use bytes::Bytes;
use object_store::ObjectStore;
use profiler_core::{Frame, FrameId, FrameKind, NodeId, Timestamp};

use super::bucket::{self, StoreName, StorePlace, TableCache};
use super::error::StoreError;
use super::load::StoredState;
use super::manifest::{FileEntry, Manifest};
use super::objects::{Object, Objects};
use super::segment::{ListColumn, ListRow, open_checked};
use super::tables::Tables;
use crate::lists::telemetry_lists::LinkRow;
use crate::lists::{FrameRow, NodeRow, SealedTask, WorkerRow, kind_name};
use crate::rows::{ExpectedRow, LostTask, ResourceRow, RunRow, SessionRecord, TransferRow};
use crate::sums::table::TableName;
use crate::upkeep::inspect::{Problem, StoreLocation, found_damaged, lost};
use base::sync::{Mutex, lock, rank};
use naming::{Addresses, Functions, Naming};

/// One version of a store. Its files stay for at least 10 minutes after the next version was published.
#[derive(Debug)]
pub struct StoreSnapshot {
    manifest: Arc<Manifest>,
    objects: Objects,
    /// `None` for a bucket.
    folder: Option<PathBuf>,
    frames: Vec<Frame>,
    nodes: Vec<(NodeId, FrameId)>,
    /// Found when the store was opened.
    damaged: Vec<Problem>,
    files: Arc<VerifiedFiles>,
}

/// Opens the files of a snapshot's tables. Each is verified before its first use.
#[derive(Debug)]
pub struct VerifiedFiles {
    objects: Objects,
    /// By path. The lock of one is held while it is verified.
    states: Mutex<BTreeMap<String, Arc<FileLock>>, rank::VerifiedFiles>,
}

type FileLock = Mutex<FileState, rank::VerifiedFile>;

/// Result of the verification of a file.
#[derive(Debug, Default)]
enum FileState {
    #[default]
    Unknown,
    Intact,
    /// The reason.
    Damaged(String),
}

/// An open file that is as it was written.
#[derive(Debug)]
pub struct VerifiedFile(Object);

/// A table of a snapshot.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SnapshotTable {
    /// The name, with the tier.
    pub name: String,
    /// The columns of its files.
    pub schema: SchemaRef,
    /// Parquet files. Their rows together are the table.
    pub files: Vec<SnapshotFile>,
}

/// A file of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SnapshotFile {
    /// Where it is in [`StoreSnapshot::object_store`].
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its number of rows.
    pub rows: u64,
    /// The Unix seconds of its data; `None` for a table without time.
    pub seconds: Option<Range<u32>>,
    entry: FileEntry,
}

/// All stacks of a store as a tree. Node 0 is the root; the parent of a node has a smaller number.
#[derive(Debug)]
pub struct SnapshotStacks {
    nodes: Vec<(NodeId, FrameId)>,
    frames: Vec<Frame>,
    /// Of frames that agents did not name.
    names: BTreeMap<FrameId, Functions>,
}

impl StoreSnapshot {
    /// Reads the newest version of a store. Changes nothing; a collector may be using it.
    ///
    /// # Errors
    /// If there is no store, it has another format, or it cannot be read.
    pub fn read(location: &StoreLocation) -> Result<StoreSnapshot, StoreError> {
        let store = location.open()?;
        let (tables, state) = Tables::open_read_only(store.objects.clone())?;
        let StoredState { frames, nodes, .. } = state;
        let files = VerifiedFiles {
            objects: store.objects.clone(),
            states: Mutex::default(),
        };
        Ok(StoreSnapshot {
            manifest: tables.manifest(),
            objects: store.objects,
            folder: store.folder,
            frames,
            nodes,
            damaged: found_damaged(&tables),
            files: Arc::new(files),
        })
    }

    /// When the version was published: it has no later data.
    #[must_use]
    pub fn published_at(&self) -> Timestamp {
        Timestamp::from_unix_ns(self.manifest.made_at_ns)
    }

    /// Losses that are known before a table is read: permanent ones, and damage of versions, and of lists that are
    /// read whole.
    #[must_use]
    pub fn lost(&self) -> Vec<Problem> {
        lost(&self.manifest)
            .into_iter()
            .chain(self.damaged.iter().cloned())
            .collect()
    }

    /// Opens the files of its tables.
    #[must_use]
    pub fn files(&self) -> Arc<VerifiedFiles> {
        self.files.clone()
    }

    /// Where the files are.
    #[must_use]
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.objects.object_store()
    }

    /// All tables, also those without files.
    #[must_use]
    pub fn tables(&self) -> Vec<SnapshotTable> {
        TableName::all()
            .map(|table: TableName| SnapshotTable {
                name: table.name(),
                schema: Arc::new(schema(table)),
                files: self.manifest.files_of(table).map(snapshot_file).collect(),
            })
            .collect()
    }

    /// All stacks, with the names that the store's symbol files have.
    #[must_use]
    pub fn into_stacks(self) -> SnapshotStacks {
        let names = self
            .folder
            .as_ref()
            .map(|folder| names(&folder.join("symbols"), &self.frames));
        SnapshotStacks {
            nodes: self.nodes,
            frames: self.frames,
            names: names.unwrap_or_default(),
        }
    }
}

impl VerifiedFiles {
    /// Opens a file; `None` if it is damaged or missing. It has no rows then, and [`VerifiedFiles::damaged`] names it.
    ///
    /// # Errors
    /// If a request to a bucket fails.
    pub fn open(&self, file: &SnapshotFile) -> Result<Option<VerifiedFile>, StoreError> {
        let state = lock(&self.states)
            .entry(file.path.clone())
            .or_default()
            .clone();
        let mut state = lock(&state);
        let opened = match *state {
            FileState::Damaged(_) => return Ok(None),
            FileState::Intact => self.objects.open(&file.path),
            FileState::Unknown => open_checked(&self.objects, &file.entry),
        };
        match opened {
            Ok(object) => {
                *state = FileState::Intact;
                Ok(Some(VerifiedFile(object)))
            }
            Err(StoreError::Damaged { reason, .. }) => {
                *state = FileState::Damaged(reason);
                Ok(None)
            }
            Err(error @ StoreError::Io { .. }) => {
                *state = FileState::Damaged(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The files that were found damaged or missing.
    #[must_use]
    pub fn damaged(&self) -> Vec<Problem> {
        let states = lock(&self.states);
        let mut damaged = Vec::new();
        for (path, state) in states.iter() {
            let state = lock(state);
            if let FileState::Damaged(reason) = &*state {
                damaged.push(Problem {
                    name: path.clone(),
                    reason: reason.clone(),
                });
            }
        }
        damaged
    }
}

impl VerifiedFile {
    /// Reads a part.
    ///
    /// # Errors
    /// If the file does not have it, or cannot be read.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        self.0
            .read(range.start, range.end.saturating_sub(range.start))
    }
}

impl StorePlace {
    /// The names of the collectors that have a store in this place, in order.
    ///
    /// # Errors
    /// If the place cannot be listed, or is itself the store of one collector.
    pub fn names(&self) -> Result<Vec<StoreName>, StoreError> {
        let objects = match self {
            StorePlace::Directory(folder) => {
                if !folder.is_dir() {
                    return Err(StoreError::NoStore {
                        path: folder.display().to_string(),
                    });
                }
                Objects::local(folder)?
            }
            StorePlace::Bucket { bucket, prefix } => {
                bucket::connect(bucket, prefix, None, TableCache::memory(0))?
            }
        };
        let folders = objects.root_folders()?;
        let has = |part: &str| folders.iter().any(|folder| folder == part);
        if has("manifest") && (has("tables") || has("wal")) {
            return Err(StoreError::OneStore {
                place: self.to_string(),
            });
        }
        let mut names: Vec<String> = folders
            .into_iter()
            .filter(|name| !name.is_empty())
            .collect();
        names.sort_unstable();
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }
}

impl SnapshotStacks {
    /// Number of nodes without the root: they are numbered from 1.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no stack.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node above; 0 for the first level. `None` if there is no such node.
    #[must_use]
    pub fn parent(&self, node: u32) -> Option<u32> {
        self.node(node).map(|(parent, _)| parent.0)
    }

    /// The functions at a node, outermost first: several if functions were inlined that only a symbol file
    /// knows. Empty if there is no such node.
    #[must_use]
    pub fn functions(&self, node: u32) -> &[Frame] {
        let Some((_, frame)) = self.node(node) else {
            return &[];
        };
        match self.names.get(&frame) {
            Some(functions) => functions,
            None => std::slice::from_ref(&self.frames[frame.0 as usize]),
        }
    }

    /// The kind of a node's innermost function, as the table `frames` has it; empty if there is no such node.
    #[must_use]
    pub fn kind(&self, node: u32) -> &'static str {
        self.functions(node)
            .last()
            .map_or("", |frame| kind_name(frame.kind))
    }

    fn node(&self, node: u32) -> Option<(NodeId, FrameId)> {
        self.nodes.get((node as usize).checked_sub(1)?).copied()
    }
}

fn snapshot_file(file: &FileEntry) -> SnapshotFile {
    let seconds = file
        .start()
        .zip(file.end())
        .map(|(start, end)| start.0..end.0);
    let FileEntry { bytes, rows, .. } = *file;
    SnapshotFile {
        path: file.path(),
        bytes,
        rows,
        seconds,
        entry: file.clone(),
    }
}

fn schema(table: TableName) -> Schema {
    let columns = match table {
        TableName::Sums(sum_table, _) => return sum_table.arrow_schema(),
        TableName::Frames => FrameRow::COLUMNS,
        TableName::Nodes => NodeRow::COLUMNS,
        TableName::Workers => WorkerRow::COLUMNS,
        TableName::Tasks | TableName::Running => SealedTask::COLUMNS,
        TableName::LostTasks => LostTask::COLUMNS,
        TableName::Sessions => SessionRecord::COLUMNS,
        TableName::Links => LinkRow::COLUMNS,
        TableName::Transfers => <Arc<TransferRow>>::COLUMNS,
        TableName::Resources => <Arc<ResourceRow>>::COLUMNS,
        TableName::Runs => RunRow::COLUMNS,
        TableName::Expected => ExpectedRow::COLUMNS,
    };
    Schema::new(
        columns
            .iter()
            .map(ListColumn::arrow_field)
            .collect::<Vec<_>>(),
    )
}

/// The names of frames that agents did not name, from the store's symbol files.
fn names(folder: &Path, frames: &[Frame]) -> BTreeMap<FrameId, Functions> {
    let unresolved = || {
        let ids = (0..).map(FrameId).zip(frames);
        ids.filter(|(_, frame)| frame.kind == FrameKind::Unresolved && !frame.build_id.is_empty())
    };
    let mut wanted = Addresses::new();
    for (_, frame) in unresolved() {
        wanted
            .entry(frame.build_id.clone())
            .or_default()
            .insert(frame.offset);
    }
    let found = Naming::open(folder.to_owned(), None).all_names(&wanted);
    unresolved()
        .filter_map(|(id, frame): (FrameId, &Frame)| {
            let functions = found.get(&frame.build_id)?.get(&frame.offset)?;
            (!functions.is_empty()).then(|| (id, functions.clone()))
        })
        .collect()
}
