//! The write-ahead log: every acknowledged flush can be read back from it, or from tables made from it.
//!
//! Reading order: [`disk`] (file operations), [`bucket_disk`] (the same in a bucket), [`frame`] (bytes), [`reader`] (replay at the start),
//! [`writer`] (appending), [`record`] (messages), [`mark`] (the acknowledged length).
//!
//! 1. Synced data is never written again: an error of a write or a sync poisons the file. The file is
//!    truncated to its last synced length, and a new file is started whose header records that length,
//!    so that bytes which may or may not have reached the disk are not read either.
//! 2. Every start begins a new file, so that nothing is written after a torn end.
//! 3. The length that was acknowledged is recorded in a file of its own ([`mark`]), so that a missing end
//!    differs from a torn write.
//! 4. Damage costs the frames that it touches, and is always reported.

mod bucket_disk;
mod disk;
mod frame;
mod mark;
mod reader;
mod record;
#[cfg(any(test, feature = "testing", emberline_fuzzing))]
#[cfg_attr(
    emberline_fuzzing,
    allow(dead_code, reason = "fuzz targets need only its files")
)]
pub mod sim;
mod telemetry;
mod window;
mod writer;

use std::io;
use std::sync::Arc;

use base::limits::LATE_HOURS_MAX;

pub use bucket_disk::BucketDisk;
pub use disk::{LocalDisk, LogDisk};
pub use reader::{
    ListedLog, LogContents, check, check_formats, follow, has_data, has_files_before, has_records,
    is_new, list_files,
};
pub use record::{Flush, Hello, LoggedFrame, Record, TreeDelta};
pub use telemetry::LoggedRun;
pub use writer::{Wal, begin, is_full};

/// An error that makes the whole log unreadable. Damage is not one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// Another version of Emberline wrote a file.
    #[error(
        "the log file {file} has format {version}, but this version of Emberline reads format \
         {} only; nothing was changed: use the version that wrote it",
        frame::FORMAT_VERSION
    )]
    UnknownVersion {
        /// The file.
        file: String,
        /// Its format.
        version: u32,
    },
    /// The files cannot be read or written.
    #[error("cannot {what}")]
    Io {
        /// The operation.
        what: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

/// The reason why a flush was not logged. It is not stored; its agent keeps it and sends it again, the client of a push
/// perhaps not.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotLogged {
    #[error("the collector's disk is full ({reason}): ingest is blocked until there is space")]
    Full { reason: Arc<str> },
    #[error(
        "{bytes} bytes in memory wait for sealing into tables, which fails or is too slow (see the \
         collector's log): ingest is blocked until there is memory"
    )]
    Behind { bytes: usize },
    #[error(
        "the late data in memory is from {LATE_HOURS_MAX} different hours: data of another late hour is \
         rejected until these are sealed into tables"
    )]
    Late,
    #[error("the collector's log could not be written ({reason})")]
    Failed { reason: Arc<str> },
    #[error("the collector is shutting down")]
    Closed,
}

/// The name of the log file with a number.
fn file_name(number: u64) -> String {
    format!("{number:020}.wal")
}

/// The number in the name of a log file; `None` for another file.
fn file_number(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(".wal")
        .filter(|digits| digits.len() == 20)?;
    digits
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then(|| digits.parse().ok())?
}
