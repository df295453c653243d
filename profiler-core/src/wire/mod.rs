//! The wire: generated messages in [`v1`], and the conversion between them and the model. Every
//! message is checked before any of it is used.

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
    AppliedSettings, SignalBlocked, ThreadDump, decode_applied, decode_settings,
    decode_thread_dump, encode_applied, encode_settings, encode_thread_dump,
};
pub use cycle::{
    cycle_weight_ns, decode_cycle, decode_threads, encode_cycle, weight_bytes_max, with_threads,
};
pub use dictionary::{
    InvalidEntries, Marks, ReceiverId, ShownThreads, Tables, Translation, dictionary_since,
};
pub use entries::measure;
pub use flush_delta::FlushDeltaCodec;
pub use task::{TextAt, decode_detail, decode_task, encode_detail, encode_task};
pub use telemetry::{decode_telemetry, encode_telemetry};

/// Protocol version of this crate.
pub const PROTOCOL: u32 = 1;

/// Why a message was rejected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The dictionary starts after the end of the receiver's table.
    #[error("the dictionary's {table} start at {base}, but the receiver holds only {held}")]
    Gap {
        /// Name of the table.
        table: &'static str,
        /// First index in the message.
        base: u32,
        /// Number of entries that the receiver holds.
        held: u32,
    },
    /// An index points past its table.
    #[error("{what} {index} is outside its table of {count}")]
    OutOfRange {
        /// Meaning of the index.
        what: &'static str,
        /// Value of the index.
        index: u64,
        /// Number of entries in the table.
        count: u64,
    },
    /// A string index without an entry.
    #[error("{what} is string {index}, which is not in the string table")]
    UnknownText {
        /// Name of the field.
        what: &'static str,
        /// Value of the index.
        index: u32,
    },
    /// An impossible number.
    #[error("{what} is {value}; it must be {allowed}")]
    Invalid {
        /// Name of the field.
        what: &'static str,
        /// Its value.
        value: i128,
        /// Allowed values.
        allowed: &'static str,
    },
    /// Something exceeds its limit.
    #[error("{what} is {size}; at most {limit} is allowed")]
    TooLarge {
        /// Name of the quantity.
        what: &'static str,
        /// Actual size.
        size: usize,
        /// Largest allowed size.
        limit: usize,
    },
    /// Two lists that belong together differ in length.
    #[error("{what}: {left} and {right} entries; the lengths must match")]
    Uneven {
        /// Names of the lists.
        what: &'static str,
        /// Length of the first.
        left: usize,
        /// Length of the second.
        right: usize,
    },
    /// The bytes are not a message.
    #[error("the message cannot be read: it is truncated, or a field has an unknown wire type")]
    Unreadable,
    /// A pair without a weight, or with an impossible one.
    #[error("the weight of node {node} is missing, or exceeds 64 bits of nanoseconds")]
    Weight {
        /// Node of the pair.
        node: u64,
    },
    /// More time waiting for an interpreter's lock than for locks.
    #[error("the waits of node {node} for an interpreter exceed those for a lock")]
    Interpreter {
        /// Node of the waits.
        node: u64,
    },
    /// A required field is missing.
    #[error("{what} is missing")]
    Missing {
        /// Name of the field.
        what: &'static str,
    },
}

/// Rejects a size over its limit.
fn check_size(what: &'static str, size: usize, limit: usize) -> Result<(), WireError> {
    if size > limit {
        Err(WireError::TooLarge { what, size, limit })
    } else {
        Ok(())
    }
}
