//! Sealing of what agents tell beside samples and tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::StoreError;
use super::manifest::FileEntry;
use super::record_lists::{compare_samples, compare_transfers};
use super::row::Row;
use super::seal::TASKS_FILE_SECONDS;
use super::segment::ListRow;
use super::table::{Counting, TableName};
use super::tables::{Sealed, Tables};
use crate::rows::{RunRow, TelemetryBatch, TransferRow};
use crate::sync::{read, write};
use crate::telemetry::transfer_rows;

impl Tables {
    /// Writes all of them; gives how many links stand in tables then.
    pub(super) fn seal_records(
        &self,
        records: &TelemetryBatch,
        sealed: &Sealed,
        files: &mut Vec<FileEntry>,
    ) -> Result<usize, StoreError> {
        let TelemetryBatch { transfers, samples, runs, expected } = records;
        self.put_tiers(Counting::TransferSums, self.transfer_sums(transfers)?, files)?;
        let links = read(&self.links).rows_from(sealed.links);
        let links_end = sealed.links + links.len();
        self.put_list(TableName::Links, links, files)?;
        self.put_days(TableName::Transfers, transfers, compare_transfers, files)?;
        self.put_days(TableName::Resources, samples, compare_samples, files)?;
        let runs: Vec<RunRow> = runs.iter().map(|run| RunRow::clone(run)).collect();
        self.put_list(TableName::Runs, runs, files)?;
        self.put_list(TableName::Expected, expected.clone(), files)?;
        Ok(links_end)
    }

    fn transfer_sums(&self, transfers: &[Arc<TransferRow>]) -> Result<Vec<Row>, StoreError> {
        let (mut workers, mut links) = (write(&self.workers), write(&self.links));
        let mut rows = Vec::new();
        for transfer in transfers {
            let worker = workers.give(&transfer.worker)?;
            let link = links.give(&transfer.record.peer, &transfer.record.type_name);
            rows.extend(transfer_rows(transfer, worker, link));
        }
        Ok(rows)
    }

    /// Writes a list, a file for each UTC day of the ends of its rows.
    fn put_days<R: ListRow + Clone>(
        &self,
        table: TableName,
        rows: &[R],
        compare: impl Fn(&R, &R) -> std::cmp::Ordering,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let mut days: BTreeMap<u32, Vec<R>> = BTreeMap::new();
        for row in rows {
            let last = row.span().end.saturating_sub(1);
            days.entry(last / TASKS_FILE_SECONDS).or_default().push(row.clone());
        }
        for mut rows in days.into_values() {
            rows.sort_by(&compare);
            self.put_list(table, rows, files)?;
        }
        Ok(())
    }
}
