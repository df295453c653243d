//! The agent's own threads, by kernel id, so that the sampler can tell them from the program's; and
//! the identity of a thread in task records.

#[cfg(feature = "tracing-layer")]
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::fork::PerProcess;
use crate::sync::lock;

static AGENT_THREADS: PerProcess<Mutex<Vec<u32>>> = PerProcess::new();

/// Rises with every change of the list.
static VERSION: AtomicU64 = AtomicU64::new(0);

#[cfg(feature = "tracing-layer")]
thread_local! {
    static OF_AGENT: Cell<bool> = const { Cell::new(false) };
}

/// A thread as task records name it.
#[derive(Debug)]
pub(crate) struct ThreadIdentity {
    pub(crate) id: u32,
    pub(crate) name: Arc<str>,
}

/// Marks the calling thread as the agent's until it is dropped.
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

/// Marks the calling thread as the agent's, until [`leave`].
pub(crate) fn enter() {
    #[cfg(feature = "tracing-layer")]
    OF_AGENT.set(true);
    lock(AGENT_THREADS.get()).push(own_id());
    VERSION.fetch_add(1, Ordering::Release);
}

pub(crate) fn leave() {
    let own = own_id();
    lock(AGENT_THREADS.get()).retain(|id| *id != own);
    VERSION.fetch_add(1, Ordering::Release);
}

/// Whether the calling thread is the agent's.
#[cfg(feature = "tracing-layer")]
pub(crate) fn is_agent() -> bool {
    OF_AGENT.get()
}

pub(crate) use crate::sys::process::thread_id as own_id;

/// Changes whenever [`ids`] does.
pub(crate) fn version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// The ids of the agent's threads.
pub(crate) fn ids() -> Vec<u32> {
    lock(AGENT_THREADS.get()).clone()
}
