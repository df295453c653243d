//! Starts the agent's threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use crate::StartError;
use crate::log;
use crate::threads::AgentThread;
use ship::control::Control;
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
/// the program. On return it is known as the agent's, so that none of its time counts as the program's.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    spawn_watched(name, body, |_| {})
}

/// Starts a thread of the agent without which it does not profile: a panic in it is its mode from then on.
pub(crate) fn spawn_needed(
    name: &str,
    control: Arc<Control>,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    spawn_watched(name, body, move |reason| control.fail(reason))
}

fn spawn_watched(
    name: &str,
    body: impl FnOnce() + Send + 'static,
    on_panic: impl FnOnce(&str) + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let blocked = BlockedSignals::block();
    let name = name_of(name);
    let (entered, is_entered) = channel::<()>();
    let handle = std::thread::Builder::new()
        .name(name.clone())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            process::allow_clocks();
            let _of_agent = AgentThread::enter();
            drop(entered);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                let message = text_of_panic(&*payload);
                let reason = format!("the agent's thread {name} panicked: {message}");
                on_panic(&reason);
                log::emit(move || tracing::error!("this process is no longer profiled: {reason}"));
            }
        })
        .map_err(|source| StartError::Spawn { source })?;
    drop(blocked);
    // Nothing is sent: it fails once the other end is dropped.
    let _ = is_entered.recv();
    Ok(handle)
}

/// Returns the message of a panic.
fn text_of_panic(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    literal.or(formatted).unwrap_or("without a message")
}
