//! The wire: generated messages in [`v1`], and the translation between them and the model. What a
//! message claims is checked before anything of it is used.

mod control;
mod cycle;
mod dictionary;
mod entries;
mod flush_delta;
mod task;
mod telemetry;
/// Messages, generated from `proto/emberline.proto` by `cargo xtask proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod v1;

pub use control::{
    AppliedSettings, ThreadDump, decode_applied, decode_settings, decode_thread_dump,
    encode_applied, encode_settings, encode_thread_dump,
};
pub use cycle::{decode_cycle, decode_threads, encode_cycle, encode_weights, weight_bytes_max};
pub use dictionary::{Marks, Translation, dictionary_since};
pub use entries::check_entries;
pub use flush_delta::FlushDeltaCodec;
pub use task::{TextAt, decode_detail, decode_task, encode_detail, encode_task};
pub use telemetry::{decode_telemetry, encode_telemetry};

/// Version of the protocol that this crate speaks.
pub const PROTOCOL: u32 = 1;

/// What is wrong with a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The dictionary starts after what the receiver holds.
    #[error("the dictionary's {table} start at {base}, but the receiver holds only {held}")]
    Gap {
        /// Which table.
        table: &'static str,
        /// Where the message starts.
        base: u32,
        /// What the receiver holds.
        held: u32,
    },
    /// An index points past its table.
    #[error("{what} {index} is outside its table of {count}")]
    OutOfRange {
        /// What the index stands for.
        what: &'static str,
        /// The index.
        index: u64,
        /// Entries in the table.
        count: u64,
    },
    /// An index into the table of strings that leads nowhere.
    #[error("{what} is string {index}, which the table of strings does not have")]
    UnknownText {
        /// Which field.
        what: &'static str,
        /// The index.
        index: u32,
    },
    /// A number that cannot be.
    #[error("{what} is {value}; it must be {allowed}")]
    Invalid {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: i128,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Something is larger than its limit.
    #[error("{what} is {size}; at most {limit} is allowed")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How large it is.
        size: usize,
        /// Its limit.
        limit: usize,
    },
    /// Two lists that belong together differ in length.
    #[error("{what}: {left} and {right} entries, which must be equally many")]
    Uneven {
        /// Which lists.
        what: &'static str,
        /// Length of the first.
        left: usize,
        /// Length of the second.
        right: usize,
    },
    /// The bytes are no message.
    #[error("the message cannot be read: it ends early, or has a field of no known form")]
    Unreadable,
    /// A pair without a weight, or with one that cannot be.
    #[error("the weight of node {node} is missing, or exceeds 64 bits of nanoseconds")]
    Weight {
        /// Which.
        node: u64,
    },
    /// A field that must be there is not.
    #[error("{what} is missing")]
    Missing {
        /// Which field.
        what: &'static str,
    },
}

/// Refuses what is larger than its limit.
fn check_size(what: &'static str, size: usize, limit: usize) -> Result<(), WireError> {
    if size > limit { Err(WireError::TooLarge { what, size, limit }) } else { Ok(()) }
}
