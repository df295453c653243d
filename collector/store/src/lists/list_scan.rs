//! Reads rows of lists by time.

use std::ops::{ControlFlow, Range};

use crate::error::StoreError;
use crate::manifest::FileEntry;
use crate::segment::{ListRow, ListSegment};
use crate::tables::Tables;
use crate::union::PartFile;

/// Selects the rows of a file to read. Others may be returned too: the caller filters.
#[derive(Clone, Debug)]
pub struct RowScan<'a> {
    /// Names of the columns with a row's start and stop.
    pub columns: [&'static str; 2],
    /// The span that a row must overlap, in nanoseconds since the Unix epoch.
    pub span_ns: Range<i64>,
    /// The worker whose rows to read; `None` for all.
    pub worker: Option<&'a str>,
}

impl RowScan<'_> {
    fn may_be_in(&self, segment: &ListSegment, group: usize) -> Result<bool, StoreError> {
        let [starts, stops] = self
            .columns
            .map(|column| segment.number_bounds(group, column));
        let is_later = starts.is_some_and(|(first, _)| first >= self.span_ns.end);
        if is_later || stops.is_some_and(|(_, last)| last < self.span_ns.start) {
            return Ok(false);
        }
        self.worker
            .map_or(Ok(true), |worker| segment.may_hold(group, "worker", worker))
    }
}

impl Tables {
    /// Calls `visit` with the rows of a list's file that match `scan`, and perhaps others.
    ///
    /// # Errors
    /// As [`Tables::scan`].
    pub fn list_rows<R: ListRow>(
        &self,
        file: &FileEntry,
        scan: &RowScan<'_>,
        visit: &mut dyn FnMut(Vec<R>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        if let Some(PartFile { part, file }) = self.part_of(file) {
            return part.tables.list_rows(&file, scan, visit);
        }
        let segment = self.note_damage(file, ListSegment::open::<R>(&self.objects, file))?;
        for group in 0..segment.group_count() {
            if self.note_damage(file, scan.may_be_in(&segment, group))? {
                let rows = self.note_damage(file, segment.group::<R>(group))?;
                if visit(rows).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}
