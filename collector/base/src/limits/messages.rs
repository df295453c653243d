//! Limits of messages that arrive and of answers that are not read yet.

use std::time::Duration;

/// Most memory of decoded messages that are not applied yet.
pub const DECODED_BYTES_MAX: usize = 128 << 20;

/// Part of [`DECODED_BYTES_MAX`] that only small messages may take.
pub const DECODED_SMALL_BYTES: usize = 32 << 20;

/// Most memory of a small message: an ordinary second of a large worker, many times over.
pub const SMALL_MESSAGE_BYTES: usize = 1 << 20;

/// Most bytes of messages of which only a part arrived. Past it, those that stall give way.
pub const BEGUN_BYTES_MAX: usize = 64 << 20;

/// A message that has begun must bring at least [`BEGUN_BYTES_MIN`] in each such time.
pub const BEGUN_WINDOW: Duration = Duration::from_secs(10);

/// Fewest bytes of a message that has begun in each [`BEGUN_WINDOW`], unless it ends.
pub const BEGUN_BYTES_MIN: usize = 64 << 10;

/// How often a message that found no room looks again.
pub const ROOM_RETRY_EVERY: Duration = Duration::from_millis(100);

/// Most messages of one identity that wait for room, while no others do; further ones are refused. Each
/// keeps up to [`RECEIVE_WINDOW_BYTES`](super::RECEIVE_WINDOW_BYTES) in the buffers of its connection.
pub const WAITING_FOR_ROOM_MAX: usize = 256;

/// Most bytes of answers that are not read yet. Past it, those that nobody reads give way. A larger answer
/// needs all of it.
pub const ANSWER_BYTES_MAX: usize = 128 << 20;

/// Bytes of an answer that are handed to its connection at once.
pub const ANSWER_PIECE_BYTES: usize = 64 << 10;

/// Largest answer that is not counted: errors, health checks.
pub const ANSWER_UNCOUNTED_BYTES: usize = 4 << 10;

/// How often a finished answer that found no room looks again.
pub const ANSWER_RETRY_EVERY: Duration = Duration::from_millis(50);
