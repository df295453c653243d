//! Sums of whole files without their periods, kept in memory. A file never changes, so a query that is asked again
//! reads only the files that are new.

use std::mem::size_of;
use std::sync::Arc;

use profiler_core::NodeId;
use profiler_core::hash::KeyedMap;

use crate::manifest::FileEntry;
use crate::segment::{Batch, Scan, value_at};
use crate::sums::row::WorkerNumber;
use crate::sums::table::Column;
use crate::sums::tier::Period;
use base::id_set::IdSet;
use base::limits::FILE_SUMS_BYTES_MAX;
use base::sync::{Mutex, lock, rank};

/// Rows of a file from which on its sums are kept: reading fewer is cheap.
const ROWS_MIN: u64 = 16_384;

/// Most sums of a file that are kept.
const SUMS_MAX: usize = FILE_SUMS_BYTES_MAX / 32;

/// Key of the sums of a file: its rows of these tasks and workers, by these columns.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct Selection {
    file: u64,
    columns: Vec<Column>,
    tasks: Option<Vec<NodeId>>,
    workers: Option<Vec<WorkerNumber>>,
}

impl Selection {
    /// `None` if the scan is of a part of the file's time, needs periods, or reads few rows.
    pub(crate) fn of(file: &FileEntry, scan: &Scan<'_>) -> Option<Selection> {
        let is_whole =
            scan.spans.is_none() && scan.periods.start <= file.from && file.to <= scan.periods.end;
        (scan.sums_only && is_whole && file.rows >= ROWS_MIN).then(|| Selection {
            file: file.id,
            columns: scan.columns.to_vec(),
            tasks: scan.tasks.map(<[NodeId]>::to_vec),
            workers: scan.workers.map(<[WorkerNumber]>::to_vec),
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Selection>()
            + self.columns.len() * size_of::<Column>()
            + self.tasks.as_ref().map_or(0, Vec::len) * size_of::<NodeId>()
            + self.workers.as_ref().map_or(0, Vec::len) * size_of::<WorkerNumber>()
    }
}

/// The sums that are kept.
#[derive(Default, Debug)]
pub(crate) struct FileSums {
    by_selection: KeyedMap<Selection, Arc<Batch>>,
    bytes: usize,
}

impl FileSums {
    pub(crate) fn get(&self, selection: &Selection) -> Option<Arc<Batch>> {
        self.by_selection.get(selection).cloned()
    }

    /// Keeps sums that fit. If there is no room, all others go.
    pub(crate) fn insert(&mut self, selection: Selection, sums: Arc<Batch>) {
        let bytes = selection.bytes() + sums.bytes();
        if bytes > FILE_SUMS_BYTES_MAX {
            return;
        }
        if self.bytes + bytes > FILE_SUMS_BYTES_MAX {
            *self = FileSums::default();
        }
        if self.by_selection.insert(selection, sums).is_none() {
            self.bytes += bytes;
        }
    }

    /// Drops the sums of a file that is no longer part of the store.
    pub(crate) fn remove(&mut self, file: u64) {
        let mut freed = 0;
        self.by_selection.retain(|selection, sums| {
            let stays = selection.file != file;
            if !stays {
                freed += selection.bytes() + sums.bytes();
            }
            stays
        });
        self.bytes -= freed;
    }
}

/// A row's key without its period; 0 for columns that were not requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Cell {
    task: u32,
    worker: u32,
    kind: u8,
    node: u32,
}

/// Adds up rows of a file.
pub(crate) struct Adding {
    selection: Selection,
    workers: Option<IdSet>,
    sums: KeyedMap<Cell, u64>,
    period: Period,
}

impl Adding {
    pub(crate) fn new(selection: Selection, file: &FileEntry) -> Adding {
        let workers = selection.workers.as_ref();
        Adding {
            workers: workers.map(|asked| asked.iter().map(|worker| worker.0).collect()),
            selection,
            sums: KeyedMap::default(),
            period: file.from,
        }
    }

    /// Adds the rows of the requested workers.
    pub(crate) fn add(&mut self, batch: &Batch) {
        if self.is_full() {
            return;
        }
        let by_worker = self.selection.columns.contains(&Column::Worker);
        for index in 0..batch.row_count() {
            let worker = value_at(&batch.worker, index);
            let is_asked = self
                .workers
                .as_ref()
                .is_none_or(|asked| asked.contains(worker));
            if !is_asked {
                continue;
            }
            let cell = Cell {
                task: value_at(&batch.task, index),
                worker: if by_worker { worker } else { 0 },
                kind: batch.kind.get(index).copied().unwrap_or(0),
                node: value_at(&batch.node, index),
            };
            let sum = self.sums.entry(cell).or_default();
            *sum = sum.saturating_add(batch.values[index]);
        }
    }

    fn is_full(&self) -> bool {
        self.sums.len() > SUMS_MAX
    }

    /// Keeps the sums, unless they are too many.
    pub(crate) fn keep(self, known: &Mutex<FileSums, rank::FileSums>) {
        if self.is_full() {
            return;
        }
        let mut batch = Batch {
            is_summed: true,
            ..Batch::default()
        };
        for (cell, sum) in self.sums {
            batch.ts.push(self.period.0);
            batch.values.push(sum);
            for column in &self.selection.columns {
                match column {
                    Column::Task => batch.task.push(cell.task),
                    Column::Worker => batch.worker.push(cell.worker),
                    Column::Kind => batch.kind.push(cell.kind),
                    Column::Node => batch.node.push(cell.node),
                }
            }
        }
        lock(known).insert(self.selection, Arc::new(batch));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_the_limit_all_others_go_and_what_is_too_large_is_not_kept() {
        let selection = |file: u64| Selection {
            file,
            columns: vec![Column::Kind],
            tasks: None,
            workers: None,
        };
        let of_rows = |rows: usize| {
            Arc::new(Batch {
                values: vec![1; rows],
                ..Batch::default()
            })
        };
        let half = FILE_SUMS_BYTES_MAX / 2 / size_of::<u64>();
        let mut known = FileSums::default();
        known.insert(selection(1), of_rows(half / 2));
        known.insert(selection(2), of_rows(half));
        assert!(known.get(&selection(1)).is_some() && known.get(&selection(2)).is_some());
        known.insert(selection(3), of_rows(half));
        assert!(known.get(&selection(1)).is_none() && known.get(&selection(3)).is_some());
        known.insert(selection(4), of_rows(2 * half));
        assert!(known.get(&selection(3)).is_some() && known.get(&selection(4)).is_none());
        known.remove(3);
        assert_eq!((known.bytes, known.by_selection.len()), (0, 0));
    }
}
