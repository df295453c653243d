//! Starts the agent's threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use crate::StartError;
use crate::log;
use crate::threads::AgentThread;
use system::process;
use system::signals::BlockedSignals;

/// Prefix of the names of all threads of the agent. Linux keeps 15 bytes of a thread's name, so
/// five remain for the rest.
const THREAD_PREFIX: &str = "emberline-";

/// The standard library's size. Without one it would read the environment.
const STACK_BYTES: usize = 2 << 20;

/// Returns the full name of a thread of the agent.
pub(crate) fn name_of(name: &str) -> String {
    format!("{THREAD_PREFIX}{name}")
}

/// Starts a thread of the agent. It blocks all signals, and a panic in it is logged without ending
/// the program.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let _blocked = BlockedSignals::block();
    let name = name_of(name);
    std::thread::Builder::new()
        .name(name.clone())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            process::allow_clocks();
            let _of_agent = AgentThread::enter();
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                log::emit(move || {
                    tracing::error!("{name} panicked; this process is no longer profiled");
                });
            }
        })
        .map_err(|source| StartError::Spawn { source })
}
