//! The log of what was acknowledged: everything that an agent was told is safe can be read back from
//! it, or from tables made from it.
//!
//! Reading order: [`disk`] (the file operations), [`frame`] (the bytes), [`reader`] (what is found
//! at the start), [`writer`] (what is added), [`record`] (what it means), [`growth`] (how the tree
//! of stacks is kept).
//!
//! 1. What was synced is never written again: an error while writing or syncing poisons the file.
//!    It is cut where it was last synced, and a new file is begun whose header says where the one
//!    before ends, so that what may or may not have reached the disk is not read either.
//! 2. A file is begun at every start, so that nothing is written behind what a crash left.
//! 3. Damage costs the frames that it touches. It is told, never passed over in silence.

mod disk;
mod frame;
mod growth;
mod reader;
mod record;
#[cfg(test)]
pub(crate) mod sim;
mod told;
mod window;
mod writer;

use std::io;
use std::sync::Arc;

use crate::limits::LATE_HOURS_MAX;

pub(crate) use disk::{LocalDisk, LogDisk};
pub(crate) use growth::Logged;
pub(crate) use reader::{Found, check, check_formats};
pub(crate) use record::{Flush, Growth, Hello, Record};
pub(crate) use told::MarkedRun;
pub(crate) use writer::{Wal, is_full};

/// Why the log cannot be read at all. Damage is no such reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// A file of another version of Emberline.
    #[error(
        "the log file {file} has format {version}, and this version of Emberline reads format \
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
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// Why a flush was not logged. It is not stored, and its agent keeps it and sends it again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum NotLogged {
    #[error(
        "the collector's disk is full ({reason}): nothing is taken in until there is room; agents \
         keep and merge their samples"
    )]
    Full { reason: Arc<str> },
    #[error(
        "{bytes} bytes wait in memory to become tables, which fails or is too slow (the collector's log \
         says why): nothing is taken in until there is room; agents keep and merge their samples"
    )]
    Behind { bytes: usize },
    #[error(
        "what is in memory is about {LATE_HOURS_MAX} different hours of long ago: no other such hour \
         is taken in until it became tables; agents keep and merge their samples"
    )]
    Late,
    #[error(
        "the collector's log could not be written ({reason}); what it did not acknowledge must be sent again"
    )]
    Failed { reason: Arc<str> },
    #[error("the collector is shutting down")]
    Closed,
}

/// The name of a log file.
fn file_name(number: u64) -> String {
    format!("{number:020}.wal")
}

/// The number in a log file's name; `None` if it is another file's.
fn file_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}
