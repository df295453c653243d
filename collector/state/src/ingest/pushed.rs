//! Data of pushed and imported profiles.

use std::time::Duration;

use profiler_core::WorkerId;

use super::Ingest;
use base::limits::BEHIND_MAX;

impl Ingest {
    /// How old data of a worker may be.
    pub(super) fn behind_max(&self, worker: &WorkerId) -> Duration {
        if worker.is_import() {
            self.imports_behind_max
        } else {
            BEHIND_MAX
        }
    }
}
