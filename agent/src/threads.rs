//! The threads of the agent itself, by the system's ids, so that the sampler tells them from the
//! program's without asking for names.

#[cfg(feature = "tracing-layer")]
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::registry;
use crate::sync::lock;

static VERSION: AtomicU64 = AtomicU64::new(0);

#[cfg(feature = "tracing-layer")]
thread_local! {
    static OF_AGENT: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread is the agent's, until this is dropped.
#[derive(Debug)]
pub(crate) struct AgentThread(());

impl AgentThread {
    pub(crate) fn enter() -> Self {
        enter();
        AgentThread(())
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        leave();
    }
}

/// The calling thread is the agent's, until it leaves.
pub(crate) fn enter() {
    #[cfg(feature = "tracing-layer")]
    OF_AGENT.set(true);
    lock(registry::agent_threads()).push(own_id());
    VERSION.fetch_add(1, Ordering::Release);
}

pub(crate) fn leave() {
    let own = own_id();
    lock(registry::agent_threads()).retain(|id| *id != own);
    VERSION.fetch_add(1, Ordering::Release);
}

/// Whether the calling thread is the agent's.
#[cfg(feature = "tracing-layer")]
pub(crate) fn is_agent() -> bool {
    OF_AGENT.get()
}

/// The system's id of the calling thread.
pub(crate) fn own_id() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

/// A number that changes with the list.
pub(crate) fn version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// The ids of the agent's threads.
pub(crate) fn ids() -> Vec<u32> {
    lock(registry::agent_threads()).clone()
}
