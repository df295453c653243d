//! Times in answers and error texts.

use profiler_core::Timestamp;

/// RFC 3339 in UTC, to the nanosecond.
pub fn format_time(time: Timestamp) -> String {
    api::time::format_time(time.unix_ns())
}
