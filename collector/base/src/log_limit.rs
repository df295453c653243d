//! Log lines that a stranger can cause are limited by kind, so that nobody fills the disk with them. Lines
//! past the limit are counted, and the next line has their number.

use std::panic;
use std::time::Instant;

use crate::limits::{LOG_LINE_EVERY, LOG_LINES_AT_ONCE};
use crate::sync::{Mutex, lock, rank};

/// The limit of one kind of line: [`LOG_LINES_AT_ONCE`], then one each [`LOG_LINE_EVERY`].
#[derive(Debug)]
pub struct LineLimit {
    /// `None` before the first line.
    bucket: Mutex<Option<Bucket>, rank::LineLimit>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    lines: u32,
    /// When the number of lines was last increased.
    filled_at: Instant,
    suppressed: u64,
}

/// A line that may be written, with the number of lines that were left out before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// `None` instead of 0, so that usual lines do not have the field.
    pub suppressed: Option<u64>,
}

impl Default for LineLimit {
    fn default() -> LineLimit {
        LineLimit::new()
    }
}

impl LineLimit {
    pub const fn new() -> LineLimit {
        LineLimit {
            bucket: Mutex::new(None),
        }
    }

    /// Whether a line may be written now.
    pub fn admit(&self) -> Option<Admitted> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<Admitted> {
        let mut bucket = lock(&self.bucket);
        let full = Bucket {
            lines: LOG_LINES_AT_ONCE,
            filled_at: now,
            suppressed: 0,
        };
        let bucket = bucket.get_or_insert(full);
        let elapsed = now.saturating_duration_since(bucket.filled_at);
        let new = u32::try_from(elapsed.as_nanos() / LOG_LINE_EVERY.as_nanos()).unwrap_or(u32::MAX);
        if new > 0 {
            bucket.lines = bucket.lines.saturating_add(new).min(LOG_LINES_AT_ONCE);
            bucket.filled_at = now;
        }
        if bucket.lines == 0 {
            bucket.suppressed += 1;
            return None;
        }
        bucket.lines -= 1;
        let suppressed = std::mem::take(&mut bucket.suppressed);
        Some(Admitted {
            suppressed: (suppressed > 0).then_some(suppressed),
        })
    }
}

/// Panics of requests, each with a backtrace if `RUST_BACKTRACE` is set.
static PANICS: LineLimit = LineLimit::new();

/// Limits the messages of panics: a client with a request that panics could fill the disk with them.
pub fn limit_panic_messages() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| limited(&PANICS, || print(info))));
}

fn limited(limit: &LineLimit, print: impl FnOnce()) {
    if let Some(Admitted { suppressed }) = limit.admit() {
        print();
        if let Some(suppressed) = suppressed {
            tracing::error!(suppressed, "earlier panics were not printed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_panics_are_limited() {
        let limit = LineLimit::new();
        let mut printed = 0;
        (0..6_000).for_each(|_| limited(&limit, || printed += 1));
        assert!(
            (LOG_LINES_AT_ONCE..LOG_LINES_AT_ONCE + 10).contains(&printed),
            "{printed}"
        );
    }

    #[test]
    fn lines_past_the_limit_are_counted_in_the_next_one() {
        let limit = LineLimit::new();
        let start = Instant::now();
        let written = |at: Instant, tries: usize| -> Vec<Option<u64>> {
            let lines = (0..tries).filter_map(|_| limit.admit_at(at));
            lines.map(|line| line.suppressed).collect()
        };
        let burst = LOG_LINES_AT_ONCE as usize;
        assert_eq!(written(start, 6_000), vec![None; burst]);
        let next = start + LOG_LINE_EVERY;
        assert_eq!(written(next - LOG_LINE_EVERY / 2, 10), []);
        assert_eq!(written(next, 10), [Some(6_010 - burst as u64)]);
        let much_later = next + 1_000 * LOG_LINE_EVERY;
        let mut expected = vec![None; burst];
        expected[0] = Some(9);
        assert_eq!(written(much_later, 100), expected);
    }
}
