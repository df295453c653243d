//! Limits on recordings. They bound the memory and the work that any bytes can take.

/// Largest chunk, so that a place in it takes four bytes.
pub const CHUNK_BYTES_MAX: usize = u32::MAX as usize;

/// Latest time and greatest length in nanoseconds: 146 years, so that their sum has 63 bits.
pub const TIME_NS_MAX: i64 = i64::MAX / 2;

/// Most types of a chunk. The JDK has about 250.
pub const TYPES_MAX: usize = 1 << 14;

/// Most texts of a chunk's metadata. The JDK has about 4,000.
pub const METADATA_TEXTS_MAX: usize = 1 << 17;

/// Most constants of a chunk that are stacks, methods, names and the like.
pub const CONSTANTS_MAX: usize = 1 << 22;

/// Deepest nesting of the metadata's elements, and of values in values.
pub const DEPTH_MAX: usize = 16;

/// Most bytes of a text that are decoded. Longer texts are cut.
pub const TEXT_BYTES_MAX: usize = 8 << 10;

/// Most steps of work for a byte of a recording: a field, an element, an event, 16 bytes of a text. Recordings of the
/// JDK and of async-profiler need up to 3.
pub const WORK_PER_BYTE_MAX: u64 = 32;

/// Steps that a recording of any size may take.
pub const WORK_MIN: u64 = 1 << 16;

/// Most bytes of memory that the reader takes at once for a byte of a recording, above [`MEMORY_MIN`].
pub const MEMORY_PER_BYTE_MAX: usize = 32;

/// Bytes of memory that the reader may take for a recording of any size.
pub const MEMORY_MIN: usize = 64 << 10;
