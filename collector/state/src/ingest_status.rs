//! Whether ingest is blocked, and why.
//!
//! Agents that are refused keep their samples and retry, so they report nothing. The collector reports
//! it instead: in its log and as an event when ingest stops and when it resumes, and in answers meanwhile.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use profiler_core::Timestamp;

use crate::commit::{Full, LogHealth};
use base::limits::{Limits, UNSEALED_BYTES_FULL};
use base::sync;

/// Why ingest is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The data's disk is full.
    DiskFull,
    /// Sealing is behind: too much is in memory.
    Behind,
    /// The last write of the log failed, or the store belongs to another collector now.
    LogFailed,
}

impl Cause {
    pub const fn name(self) -> &'static str {
        match self {
            Cause::DiskFull => "disk_full",
            Cause::Behind => "behind",
            Cause::LogFailed => "log_failed",
        }
    }
}

/// A period in which no flushes are accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IngestBlocked {
    pub cause: Cause,
    /// When it was first observed.
    pub since: Timestamp,
    /// For people.
    pub reason: String,
    /// With [`Cause::DiskFull`].
    pub disk: Option<DiskRoom>,
}

/// The free space for data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRoom {
    pub folder: Option<String>,
    pub free_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    /// Ingest is blocked below this number of free bytes.
    pub needed_bytes: u64,
}

/// The status that was reported last.
#[derive(Debug, Default)]
pub struct IngestStatus {
    /// The directory of the data.
    pub folder: Option<PathBuf>,
    reported: Option<IngestBlocked>,
}

/// A change of the status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatusChange {
    Stopped(IngestBlocked),
    /// With the period that ended.
    Resumed(IngestBlocked),
}

/// The facts by which ingest is blocked or not.
#[derive(Debug)]
pub struct IngestHealth {
    pub log: LogHealth,
    /// Why the store belongs to another collector now.
    pub taken_over: Option<String>,
    /// The size of a disk that is full, if it is known.
    pub disk_bytes: Option<u64>,
    pub unsealed_bytes: usize,
}

/// The size of the disk of a folder. Uses the disk, so no lock may be held.
pub fn disk_bytes(folder: &Path) -> Option<u64> {
    sync::before_io();
    let disk = statvfs(folder).ok()?;
    Some(disk.blocks().saturating_mul(disk.fragment_size()))
}

impl IngestStatus {
    pub fn blocked(&self) -> Option<&IngestBlocked> {
        self.reported.as_ref()
    }

    /// Determines the status and logs a change. Returns the change.
    pub fn update(
        &mut self,
        health: &IngestHealth,
        limits: &Limits,
        now: Timestamp,
    ) -> Option<StatusChange> {
        let mut blocked = self.find_blockage(health, limits, now);
        let change = match (&self.reported, &mut blocked) {
            (Some(reported), Some(blocked)) if reported.cause == blocked.cause => {
                blocked.since = reported.since;
                None
            }
            (_, Some(blocked)) => {
                let cause = blocked.cause.name();
                let reason = &blocked.reason;
                tracing::error!(
                    cause,
                    reason,
                    "ingest is blocked: agents keep their samples and retry, pushes are refused"
                );
                Some(StatusChange::Stopped(blocked.clone()))
            }
            (Some(reported), None) => {
                tracing::info!(cause = reported.cause.name(), "ingest resumed");
                Some(StatusChange::Resumed(reported.clone()))
            }
            (None, None) => None,
        };
        self.reported = blocked;
        change
    }

    fn find_blockage(
        &self,
        health: &IngestHealth,
        limits: &Limits,
        since: Timestamp,
    ) -> Option<IngestBlocked> {
        let IngestHealth {
            log,
            taken_over,
            disk_bytes,
            unsealed_bytes,
        } = health;
        let unsealed_bytes = *unsealed_bytes;
        if let Some(reason) = taken_over {
            return Some(IngestBlocked {
                cause: Cause::LogFailed,
                since,
                reason: reason.clone(),
                disk: None,
            });
        }
        if let Some(full) = &log.full {
            return Some(self.full_disk(full, *disk_bytes, limits, since));
        }
        if unsealed_bytes > UNSEALED_BYTES_FULL {
            let reason = format!(
                "{} wait in memory to be sealed, more than the limit of {}: sealing fails or is too \
                 slow; see the collector's log",
                size(unsealed_bytes as u64),
                size(UNSEALED_BYTES_FULL as u64)
            );
            return Some(IngestBlocked {
                cause: Cause::Behind,
                since,
                reason,
                disk: None,
            });
        }
        log.failed.as_ref().map(|error| {
            let reason = format!("the log could not be written ({error})");
            IngestBlocked {
                cause: Cause::LogFailed,
                since,
                reason,
                disk: None,
            }
        })
    }

    fn full_disk(
        &self,
        full: &Full,
        disk_bytes: Option<u64>,
        limits: &Limits,
        since: Timestamp,
    ) -> IngestBlocked {
        let room = DiskRoom {
            folder: self
                .folder
                .as_ref()
                .map(|folder| folder.display().to_string()),
            free_bytes: full.free_bytes,
            disk_bytes,
            needed_bytes: limits.disk_reserve_bytes,
        };
        let mut reason = "the disk is full".to_owned();
        // The error shows a quota, for example: the disk itself may have room.
        if let Some(error) = &full.error {
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
        IngestBlocked {
            cause: Cause::DiskFull,
            since,
            reason,
            disk: Some(room),
        }
    }
}

/// Bytes in binary units, rounded down.
fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let scaled = [1, 2, 3, 4].map(|power| bytes >> (10 * power));
    match scaled
        .into_iter()
        .zip(units)
        .rev()
        .find(|(count, _)| *count >= 10)
    {
        Some((count, unit)) => format!("{count} {unit}"),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_whole_units() {
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
