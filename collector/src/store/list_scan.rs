//! Reading the rows of lists by time.

use std::ops::{ControlFlow, Range};

use super::error::StoreError;
use super::manifest::FileEntry;
use super::segment::{ListRow, ListSegment};
use super::tables::Tables;

/// Which rows are wanted of a file. Others may come too: the caller filters.
#[derive(Clone, Debug)]
pub(crate) struct RowScan<'a> {
    /// Names of the columns in which a row begins and ends.
    pub(crate) columns: [&'static str; 2],
    /// Nanoseconds since the Unix epoch of which a row must touch any.
    pub(crate) span_ns: Range<i64>,
    /// The one worker that is wanted.
    pub(crate) worker: Option<&'a str>,
}

impl RowScan<'_> {
    fn may_be_in(&self, segment: &ListSegment, group: usize) -> Result<bool, StoreError> {
        let [starts, stops] = self.columns.map(|column| segment.number_bounds(group, column));
        let is_later = starts.is_some_and(|(first, _)| first >= self.span_ns.end);
        if is_later || stops.is_some_and(|(_, last)| last < self.span_ns.start) {
            return Ok(false);
        }
        self.worker.map_or(Ok(true), |worker| segment.may_hold(group, "worker", worker))
    }
}

impl Tables {
    /// Gives the rows of a list's file that `scan` asks for, and perhaps others.
    ///
    /// # Errors
    /// As [`Tables::scan`].
    pub(crate) fn list_rows<R: ListRow>(
        &self,
        file: &FileEntry,
        scan: &RowScan<'_>,
        visit: &mut dyn FnMut(Vec<R>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
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
