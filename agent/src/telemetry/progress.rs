//! How many tasks are still to come.

use profiler_core::ExpectedTasks;
use profiler_core::limits::bounded_name;

use crate::telemetry::{self, TelemetryEvent};
use crate::{clock, wanted};

/// Announces that this process will run `tasks` further tasks of this name. The collector then shows
/// the progress of the fleet and estimates how long the rest will take.
///
/// Tasks count from the first announcement of their name. At most 1,000 names are kept; later ones
/// are counted as lost. While no agent runs this does nothing.
///
/// ```
/// emberline_agent::expect_tasks("load", 100);
/// for number in 0..100 {
///     let _task = emberline_agent::task("load").key(format!("load-{number}")).start();
///     // … the work …
/// }
/// ```
///
/// For a progress bar in this process's own terminal see `ProgressBar` of `emberline-diagnostics`, which counts
/// what its `run` expects.
pub fn expect_tasks(name: impl AsRef<str>, tasks: u64) {
    if wanted::by_agent() {
        let name = bounded_name(name.as_ref()).into();
        let expected = ExpectedTasks {
            name,
            total: tasks,
            since: clock::now(),
        };
        telemetry::record(TelemetryEvent::Expect(Box::new(expected)));
    }
}
