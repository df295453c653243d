//! Why a recording cannot be read.

/// A recording that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JfrError {
    /// The bytes are not those of a recording.
    #[error("byte {at}: {reason}")]
    #[non_exhaustive]
    Damaged {
        /// Where, from the start of the recording.
        at: usize,
        /// The problem found.
        reason: &'static str,
    },
    /// A limit is exceeded.
    #[error("{what}: at most {limit} are allowed")]
    #[non_exhaustive]
    TooMany {
        /// The exceeded limit, such as `too many types`.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
    },
    /// It refers to the same bytes so often that reading it would take too long.
    #[error("reading it takes more than {limit} steps, which is the limit for its size")]
    #[non_exhaustive]
    TooMuchWork {
        /// How many are allowed.
        limit: u64,
    },
}
