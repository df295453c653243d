//! Why a file cannot be imported.

use super::limits::{DURATION_MAX, NAMES_BYTES_MAX};
use super::model::ImportFormat;

/// Longest part of a file that an error repeats, in characters.
const ECHO_CHARS_MAX: usize = 80;

/// A file that cannot be imported. Nothing of it is used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// No format fits the content.
    #[error(
        "unknown format; known are {}: choose one of them if the content is one",
        ImportFormat::names()
    )]
    UnknownFormat,
    /// The content is of a format that is not read.
    #[error("this is {name}, which is not read: {instead}")]
    #[non_exhaustive]
    OtherFormat {
        /// Its format.
        name: &'static str,
        /// The way on.
        instead: &'static str,
    },
    /// The content is not what its format demands.
    #[error("invalid {format}: {reason}")]
    #[non_exhaustive]
    Invalid {
        /// The format that was chosen or detected.
        format: ImportFormat,
        /// The problem found, and its place.
        reason: String,
    },
    /// The compressed content cannot be read.
    #[error("invalid gzip: {reason}")]
    #[non_exhaustive]
    Gzip {
        /// The problem found.
        reason: String,
    },
    /// A limit is exceeded.
    #[error("{what}: at most {limit} are allowed")]
    #[non_exhaustive]
    TooMany {
        /// The exceeded limit, such as `too many bytes of content`.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
    },
    /// The unit of weights is not stated, and the usual one would be wrong.
    #[error("{found}: choose {instead}")]
    #[non_exhaustive]
    NoUnit {
        /// The sign of another unit.
        found: &'static str,
        /// The options that say the unit.
        instead: &'static str,
    },
    /// The profile does not measure time.
    #[error("no type of sample is time; the {format} profile has {found}")]
    #[non_exhaustive]
    NoTime {
        /// The format.
        format: ImportFormat,
        /// Its types.
        found: String,
    },
    /// The profile spans too much time.
    #[error(
        "the profile spans {seconds} s; at most {} s are allowed: import a shorter part",
        DURATION_MAX.as_secs()
    )]
    #[non_exhaustive]
    TooLong {
        /// Its length.
        seconds: u64,
    },
    /// There is nothing to import.
    #[error("the {format} profile has no samples with time")]
    #[non_exhaustive]
    Empty {
        /// The format.
        format: ImportFormat,
    },
}

impl ImportError {
    /// The names and frames of a file take too much memory.
    pub(super) const TOO_MANY_NAMES: ImportError = ImportError::TooMany {
        what: "too many bytes of names and frames",
        limit: NAMES_BYTES_MAX,
    };

    /// Too large a content.
    pub(super) const fn content(limit: usize) -> ImportError {
        ImportError::TooMany {
            what: "too many bytes of content",
            limit,
        }
    }
}

/// The start of a text from a file.
pub(super) fn echo(text: &str) -> String {
    let short: String = text.chars().take(ECHO_CHARS_MAX).collect();
    flamegraph::text::printable(&short).into_owned()
}
