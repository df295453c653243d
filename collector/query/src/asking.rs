//! A query that is about to be answered.

use profiler_core::Timestamp;
use state::Collector;

use crate::Cancel;

/// A query as it came, and what it needs to be answered.
pub struct Asking<'a> {
    pub collector: &'a Collector,
    pub pairs: &'a [(String, String)],
    pub now: Timestamp,
    pub cancel: &'a Cancel,
}
