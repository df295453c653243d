//! Whether anything is taken in at present, and why not.
//!
//! Agents that are turned away keep what they have and try again, so they say nothing. It is told here:
//! in the log and as an event when it begins and when it ends, and to whoever asks meanwhile.

use std::path::PathBuf;

use nix::sys::statvfs::statvfs;
use profiler_core::Timestamp;

use crate::collector::Collector;
use crate::commit::{Log, LogHealth};
use crate::events::EventKind;
use crate::limits::UNSEALED_BYTES_FULL;
use crate::sync::lock;

/// Why nothing is taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The disk with the data has no room.
    DiskFull,
    /// Too much waits in memory to become tables.
    Behind,
    /// What was written last could not be made safe.
    LogFailed,
}

impl Cause {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Cause::DiskFull => "disk_full",
            Cause::Behind => "behind",
            Cause::LogFailed => "log_failed",
        }
    }
}

/// Nothing is taken in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IngestBlocked {
    pub(crate) cause: Cause,
    /// When that was seen first.
    pub(crate) since: Timestamp,
    /// In words, for people.
    pub(crate) reason: String,
    /// Of a disk that is full.
    pub(crate) disk: Option<DiskRoom>,
}

/// How much room there is for data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DiskRoom {
    pub(crate) folder: Option<String>,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
    /// Below so many free bytes nothing is taken in.
    pub(crate) needed_bytes: u64,
}

/// What was told last.
#[derive(Debug, Default)]
pub(crate) struct IngestStatus {
    /// Where data is kept.
    pub(crate) folder: Option<PathBuf>,
    told: Option<IngestBlocked>,
}

impl Collector {
    /// Why nothing is taken in, if so. What changed since this was last asked is told.
    pub(crate) fn blocked(&self) -> Option<IngestBlocked> {
        let mut ingest = lock(&self.ingest);
        let now = self.clock.now();
        let mut found = self.find_blockage(&ingest, now);
        match (&ingest.told, &mut found) {
            (Some(told), Some(found)) if told.cause == found.cause => found.since = told.since,
            (_, Some(found)) => {
                let (cause, reason) = (found.cause.name(), &found.reason);
                tracing::error!(
                    cause,
                    reason,
                    "nothing is taken in: agents keep their samples and try again"
                );
                self.events.ingest(EventKind::IngestStopped, found.clone(), now);
            }
            (Some(told), None) => {
                tracing::info!(cause = told.cause.name(), "flushes are taken in again");
                self.events.ingest(EventKind::IngestResumed, told.clone(), now);
            }
            (None, None) => {}
        }
        ingest.told = found.clone();
        found
    }

    /// Why nothing is taken in, in words, as [`Collector::blocked`] found it last.
    pub(crate) fn ingest_blocked_reason(&self) -> Option<String> {
        lock(&self.ingest).told.as_ref().map(|told| told.reason.clone())
    }

    fn find_blockage(&self, ingest: &IngestStatus, since: Timestamp) -> Option<IngestBlocked> {
        let health = self.log.as_ref().map(Log::health).unwrap_or_default();
        if health.full.is_some() {
            return Some(self.full_disk(ingest, &health, since));
        }
        let unsealed_bytes = self.unsealed_bytes();
        if unsealed_bytes > UNSEALED_BYTES_FULL {
            let reason = format!(
                "{} wait in memory to become tables, where {} may: writing them fails or is too \
                 slow, and the collector's log says why",
                size(unsealed_bytes as u64),
                size(UNSEALED_BYTES_FULL as u64)
            );
            return Some(IngestBlocked { cause: Cause::Behind, since, reason, disk: None });
        }
        health.failed.map(|error| {
            let reason = format!("the log could not be written ({error})");
            IngestBlocked { cause: Cause::LogFailed, since, reason, disk: None }
        })
    }

    fn full_disk(
        &self,
        ingest: &IngestStatus,
        health: &LogHealth,
        since: Timestamp,
    ) -> IngestBlocked {
        let disk = ingest.folder.as_ref().and_then(|folder| statvfs(folder).ok());
        let disk_bytes = disk.map(|disk| disk.blocks().saturating_mul(disk.fragment_size()));
        let full = health.full.as_ref();
        let room = DiskRoom {
            folder: ingest.folder.as_ref().map(|folder| folder.display().to_string()),
            free_bytes: full.and_then(|full| full.free_bytes),
            disk_bytes,
            needed_bytes: self.limits.disk_reserve_bytes,
        };
        let mut reason = "the disk is full".to_owned();
        // A quota, for example: the disk itself may have room.
        if let Some(error) = full.and_then(|full| full.error.as_ref()) {
            reason += &format!(" ({error})");
        }
        if let Some(free_bytes) = room.free_bytes {
            reason += &format!(": {} free", size(free_bytes));
        }
        if let Some(disk_bytes) = room.disk_bytes {
            reason += &format!(" of {}", size(disk_bytes));
        }
        reason += &format!(", {} needed", size(room.needed_bytes));
        if let Some(folder) = &room.folder {
            reason += &format!(" in {folder}");
        }
        IngestBlocked { cause: Cause::DiskFull, since, reason, disk: Some(room) }
    }
}

/// Bytes in the unit that disks and limits are set in, rounded down.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let steps = units.into_iter().enumerate().rev();
    let scaled = steps.map(|(power, unit)| (bytes >> (10 * (power + 1)), unit));
    match scaled.into_iter().find(|(count, _)| *count >= 10) {
        Some((count, unit)) => format!("{count} {unit}"),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_whole_units() {
        for (bytes, expected) in [
            (0, "0 B"),
            (10_239, "10239 B"),
            (10_240, "10 KiB"),
            ((10 << 20) - 1, "10239 KiB"),
            ((32 << 20) - 1, "31 MiB"),
            (4 << 30, "4096 MiB"),
            (100 << 30, "100 GiB"),
            (u64::MAX, "16777215 TiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
