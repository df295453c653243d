//! How much is still to come.

use profiler_core::ExpectedTasks;
use profiler_core::limits::bounded_name;

use crate::records::{self, Told};
use crate::{clock, wanted};

/// So many tasks of this name, more than was said before, will run in this process. The collector
/// then tells how far the fleet is, and how long the rest will take.
///
/// Tasks count from the first time that their name is expected. Of more than 1,000 names the later
/// ones are not kept, and counted as lost. While no agent runs this does nothing.
///
/// ```
/// emberline_agent::expect_tasks("load", 100);
/// for number in 0..100 {
///     let _task = emberline_agent::task("load").key(format!("load-{number}")).start();
///     // … the work …
/// }
/// ```
///
/// A progress bar in this process's own terminal is
/// [`diagnostics::ProgressBar`](crate::diagnostics::ProgressBar), which counts what
/// [`diagnostics::run`](crate::diagnostics::run()) expects.
pub fn expect_tasks(name: impl AsRef<str>, tasks: u64) {
    if wanted::by_agent() {
        let name = bounded_name(name.as_ref()).into();
        let more = ExpectedTasks { name, total: tasks, since: clock::now() };
        records::tell(Told::Expect(Box::new(more)));
    }
}
