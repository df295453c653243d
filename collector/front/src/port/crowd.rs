//! Threads for the connections of addresses that have many, so that those of others do not wait for them.
//!
//! All tasks of a runtime wait in one queue for the same threads: a hundred busy connections delay each of
//! the others at each of its steps. So an address has only its first connections among the others. All that
//! its further ones need, queries included, runs on threads that yield to the rest of the collector.

use std::io;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use base::priority::Priority;

/// How much lower their priority is: less than that of sealing. They have a third of a processor that one
/// other thread wants too, so a lock that one of them has is soon free.
const PRIORITY_STEPS: i32 = 3;

/// The threads, which start when they are first needed.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// `None` if they could not be started.
    runtime: OnceLock<Option<Runtime>>,
}

impl Crowd {
    /// The runtime of these threads, or the current one if they could not be started.
    pub(super) fn handle(&self) -> Handle {
        let start = || match start() {
            Ok(runtime) => Some(runtime),
            Err(error) => {
                tracing::warn!(%error, "no threads for addresses with many connections");
                None
            }
        };
        let runtime = self.runtime.get_or_init(start).as_ref();
        runtime.map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // A runtime's own drop may not wait for its threads within another runtime.
        if let Some(runtime) = self.runtime.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

fn start() -> io::Result<Runtime> {
    let priority = Priority::lowered_by(PRIORITY_STEPS);
    Builder::new_multi_thread()
        .enable_all()
        .thread_name("emberline-crowd")
        .on_thread_start(move || priority.apply())
        .build()
}

#[cfg(test)]
mod tests {
    use tokio::task::spawn_blocking;

    use super::*;

    #[tokio::test]
    async fn all_its_threads_yield() {
        let expected = Priority::lowered_by(PRIORITY_STEPS);
        let crowd = Crowd::default();
        let both = async {
            (
                Priority::current(),
                spawn_blocking(Priority::current).await.unwrap(),
            )
        };
        assert_eq!(
            crowd.handle().spawn(both).await.unwrap(),
            (expected, expected)
        );
    }
}
