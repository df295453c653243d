//! Limits on what foreign profilers push.

use std::time::Duration;

/// Largest body of a push, in bytes: as large as Pyroscope's own server takes.
pub const PUSH_BODY_BYTES_MAX: usize = 4 << 20;

/// Most bytes of the bodies of all pushes that arrive or wait. Past it, those that stall give way.
pub const PUSH_BODIES_BYTES_MAX: usize = 64 << 20;

/// Most bytes of the content of one push, after decompression.
pub const PUSH_CONTENT_BYTES_MAX: usize = 16 << 20;

/// Most bytes of one request of OTLP, after decompression. Requests in JSON can take 30 times as much memory
/// while they are decoded, so one is decoded at a time.
pub const OTLP_CONTENT_BYTES_MAX: usize = 4 << 20;

/// Pushes that are parsed and stored at once. Parsing takes a multiple of the content.
pub const PUSHES_MAX: usize = 4;

/// Content past which a push is parsed and stored alone: with the names and stacks of its parser it takes up to 200 MB.
/// A profile of ten seconds of a busy program has a tenth.
pub const LARGE_PUSH_BYTES: usize = 1 << 20;

/// Large pushes that are parsed and stored at once, and one more of an identity that has none.
pub const LARGE_PUSHES_MAX: usize = 1;

/// Most series and most profiles of one push.
pub const PUSH_PROFILES_MAX: usize = 1_000;

/// Most labels of all series of one push.
pub const PUSH_LABELS_MAX: usize = 16_000;

/// Largest part of a form that is no profile, in bytes.
pub const PUSH_TEXT_BYTES_MAX: u64 = 64 << 10;

/// Longest time of one push.
pub const PUSH_SPAN_MAX: Duration = Duration::from_secs(3_600);

/// Most series that are pushed at present. Agents have as many sessions of their own.
pub const PUSHED_SERIES_MAX: usize = super::SESSIONS_MAX;

/// Most series of one name that differ in the labels of samples. Past it, these labels are dropped.
pub const PUSHED_LABEL_SETS_MAX: usize = 100;

/// How long after its last push a series ends. The longest windows of clients last a minute.
pub const PUSHED_IDLE_MAX: Duration = Duration::from_secs(180);
