//! Sealing of telemetry.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::StoreError;
use crate::lists::telemetry_lists::{compare_samples, compare_transfers};
use crate::manifest::FileEntry;
use crate::rows::{RunRow, TelemetryBatch, TransferRow};
use crate::seal::TASKS_FILE_SECONDS;
use crate::segment::ListRow;
use crate::sums::row::Row;
use crate::sums::table::{SumTable, TableName};
use crate::sums::transfer_sums::transfer_rows;
use crate::tables::{SealedIds, Tables};
use base::sync::{read, write};

impl Tables {
    /// Writes all tables of telemetry. Returns the number of links that are then in tables.
    pub(crate) fn seal_telemetry(
        &self,
        telemetry: &TelemetryBatch,
        sealed: &SealedIds,
        files: &mut Vec<FileEntry>,
    ) -> Result<usize, StoreError> {
        let TelemetryBatch {
            transfers,
            samples,
            runs,
            expected,
        } = telemetry;
        self.put_tiers(
            SumTable::TransferSums,
            self.transfer_sums(transfers)?,
            files,
        )?;
        let links = read(&self.links).rows_from(sealed.links);
        let links_end = sealed.links + links.len();
        self.put_list(TableName::Links, links, files)?;
        self.put_days(TableName::Transfers, transfers, compare_transfers, files)?;
        self.put_days(TableName::Resources, samples, compare_samples, files)?;
        self.put_list(
            TableName::Runs,
            runs.iter().map(|run| RunRow::clone(run)),
            files,
        )?;
        self.put_list(TableName::Expected, expected.iter().cloned(), files)?;
        Ok(links_end)
    }

    fn transfer_sums(&self, transfers: &[Arc<TransferRow>]) -> Result<Vec<Row>, StoreError> {
        let mut workers = write(&self.workers);
        let mut links = write(&self.links);
        let mut rows = Vec::new();
        for transfer in transfers {
            let worker = workers.assign(&transfer.worker);
            let link = links.assign(&transfer.record.peer, &transfer.record.type_name);
            rows.extend(transfer_rows(transfer, worker, link));
        }
        Ok(rows)
    }

    /// Writes a list, one file for each UTC day in which rows end.
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
            days.entry(last / TASKS_FILE_SECONDS)
                .or_default()
                .push(row.clone());
        }
        for mut rows in days.into_values() {
            rows.sort_by(&compare);
            self.put_list(table, rows, files)?;
        }
        Ok(())
    }
}
