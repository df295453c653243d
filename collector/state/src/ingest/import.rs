//! Imports: each is stored whole with its last flush, the one with the run, or not at all.
//!
//! The flushes before it are checked, acknowledged as received, and kept in memory. If one is refused or the
//! stream ends, they are dropped, and the import starts over.

use std::collections::VecDeque;
use std::sync::Arc;

use profiler_core::TimeRange;
use profiler_core::wire::v1::collector_message::Kind;
use tokio::sync::Semaphore;

use super::{Attachment, Ingest, LogRecords, ReceivedFlush, StreamError};
use crate::commit::AcceptedFlushes;
use crate::session::{CommitLock, FlushError, SessionCell, StagedFlush, StagedRoom};
use base::limits::{IMPORTS_BYTES_MAX, LATE_HOURS_MAX};
use base::sync::{lock, read};
use store::late_hours::{Hours, late_hours};
use store::rows::CheckedFlush;
use store::wal::NotLogged;

/// Memory of a staged task besides its record, in bytes.
const TASK_BYTES: usize = 1 << 10;

/// State of all imports.
#[derive(Debug)]
pub(super) struct Imports {
    /// Held from the last check of an import until it is applied: of two imports at once, one sees the other.
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Memory for staged flushes that is free.
    room: Arc<Semaphore>,
}

impl Default for Imports {
    fn default() -> Imports {
        Imports {
            lock: Arc::default(),
            room: Arc::new(Semaphore::new(IMPORTS_BYTES_MAX)),
        }
    }
}

/// Unfinished imports take all memory that they may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the imports under way take the memory for unfinished imports: {} MiB, half of it of one identity",
    IMPORTS_BYTES_MAX >> 20
)]
pub struct NoRoomForImport;

/// Checked flushes with their records.
pub(super) fn staged(flushes: Vec<CheckedFlush>, records: LogRecords) -> Vec<StagedFlush> {
    let pairs = flushes.into_iter().zip(records);
    pairs
        .map(|(flush, record)| StagedFlush {
            flush,
            record,
            room: None,
        })
        .collect()
}

impl Ingest {
    /// Stages checked flushes of an import, the first of those that wait, or stores the import with its last one.
    pub(super) async fn receive_import(
        &self,
        attachment: &Attachment,
        commit_lock: CommitLock,
        mut checked: Vec<StagedFlush>,
        waiting: &mut VecDeque<ReceivedFlush>,
    ) -> Result<Vec<Kind>, StreamError> {
        let last = checked.iter().position(|staged| is_last(&staged.flush));
        checked.truncate(last.map_or(checked.len(), |last| last + 1));
        let count = checked.len();
        let at = waiting[0].at;
        if last.is_none() {
            for staged in &mut checked {
                staged.room = Some(self.room_for_import(attachment, staged)?);
            }
            attachment.session(at)?.stage(checked);
            return Ok(self.acknowledge(waiting.drain(..count)));
        }
        let import_lock = self.imports.lock.clone().lock_owned().await;
        let mut import = std::mem::take(&mut attachment.session(at)?.staged.flushes);
        import.append(&mut checked);
        let flushes = || import.iter().map(|staged| &staged.flush);
        let mut hours = Hours::new();
        flushes().for_each(|flush| hours.extend(late_hours(flush, at)));
        let is_valid = match hours.len() {
            hours if hours > LATE_HOURS_MAX => Err(FlushError::TooManyHours { hours }),
            _ => self.check_import(&attachment.cell, flushes()),
        };
        if let Err(error) = is_valid {
            let refused = self.refuse_flush(attachment, &waiting[0], &error)?;
            waiting.pop_front();
            return Ok(vec![refused]);
        }
        self.wait_for_room(&attachment.account).await?;
        if !lock(&self.late).admit(&hours) {
            return Err(NotLogged::Late.into());
        }
        let bytes = import.iter().map(|staged| staged.record.len()).sum();
        self.unsealed_shares.note(&attachment.account, bytes);
        let mut flushes = Vec::new();
        let mut records = LogRecords::new();
        for staged in import {
            flushes.push(staged.flush);
            records.push(staged.record);
        }
        let accepted = AcceptedFlushes {
            cell: attachment.cell.clone(),
            flushes,
            commit_lock,
            import_lock: Some(import_lock),
        };
        self.commit(&attachment.account, accepted, records).await?;
        Ok(self.acknowledge(waiting.drain(..count)))
    }

    /// Takes the memory of a flush that is to be staged.
    fn room_for_import(
        &self,
        attachment: &Attachment,
        staged: &StagedFlush,
    ) -> Result<StagedRoom, NoRoomForImport> {
        // A record is about as large as the weights that it was made of.
        let bytes = 2 * staged.record.len() + TASK_BYTES * staged.flush.tasks.len();
        let permits = u32::try_from(bytes).map_err(|_| NoRoomForImport)?;
        let rooms = [&attachment.account.staging, &self.imports.room];
        match rooms.map(|room| room.clone().try_acquire_many_owned(permits)) {
            [Ok(own), Ok(shared)] => Ok(StagedRoom { own, shared }),
            _ => Err(NoRoomForImport),
        }
    }

    /// Refuses an imported profile at the time of another one of its worker: queries for either would add up both.
    pub(super) fn check_import<'f>(
        &self,
        cell: &SessionCell,
        flushes: impl IntoIterator<Item = &'f CheckedFlush>,
    ) -> Result<(), FlushError> {
        let ranges = flushes.into_iter().flat_map(|flush| self.ranges(flush));
        let hull = ranges.reduce(|a, b| {
            let start = a.start().min(b.start());
            TimeRange::new(start, a.stop().max(b.stop())).unwrap_or(a)
        });
        let Some(range) = hull.filter(|_| cell.worker.is_import()) else {
            return Ok(());
        };
        let now = self.state.clock.now();
        let telemetry = read(&self.state.telemetry);
        let other = telemetry.runs().all().find(|row| {
            let of_run = row.range(now);
            row.worker.as_ref() == Some(&cell.worker)
                && row.epoch != cell.epoch
                && of_run.start() < range.stop()
                && range.start() < of_run.stop()
        });
        match other {
            Some(row) => Err(FlushError::SecondProfile {
                worker: cell.worker.to_string(),
                run: row.run.name.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// The times of a flush's cycle and runs.
    fn ranges(&self, flush: &CheckedFlush) -> impl Iterator<Item = TimeRange> {
        let now = self.state.clock.now();
        let window = flush.window.as_ref().map(|window| window.range);
        let runs = flush.telemetry.runs.iter().filter_map(move |run| {
            let stop = run.stop.unwrap_or(now).max(run.start);
            TimeRange::new(run.start, stop)
        });
        window.into_iter().chain(runs)
    }
}

/// Whether a flush is the last one of an import.
pub(crate) fn is_last(flush: &CheckedFlush) -> bool {
    !flush.telemetry.runs.is_empty()
}
