//! The agent's own threads, by kernel id, so that the sampler can tell them from the program's; and
//! the identity of a thread in task records.

#[cfg(feature = "tracing-layer")]
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::fork::PerProcess;

/// Most threads of the agent at a time: four, and two for each open report. Further ones count as the
/// program's.
const AGENT_THREADS_MAX: usize = 64;

/// Their ids; 0 for none. The sampler reads them without a lock.
struct AgentThreads([AtomicU32; AGENT_THREADS_MAX]);

impl Default for AgentThreads {
    fn default() -> AgentThreads {
        AgentThreads([const { AtomicU32::new(0) }; AGENT_THREADS_MAX])
    }
}

static AGENT_THREADS: PerProcess<AgentThreads> = PerProcess::new();

/// Ids of the threads that were the last to leave: the kernel removes a thread a moment after it is joined.
static LEFT: PerProcess<AgentThreads> = PerProcess::new();

/// Number of threads that have left.
static LEFT_COUNT: AtomicUsize = AtomicUsize::new(0);

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
pub fn enter() {
    #[cfg(feature = "tracing-layer")]
    OF_AGENT.set(true);
    replace(0, own_id());
    VERSION.fetch_add(1, Ordering::Release);
}

pub(crate) fn leave() {
    let index = LEFT_COUNT.fetch_add(1, Ordering::Relaxed) % AGENT_THREADS_MAX;
    LEFT.get().0[index].store(own_id(), Ordering::Release);
    replace(own_id(), 0);
    VERSION.fetch_add(1, Ordering::Release);
}

/// Whether a thread that was the agent's exists yet. On a busy machine it may do so for a while after it was joined.
pub fn any_left_exists() -> bool {
    let exists = |id: u32| Path::new(&format!("/proc/self/task/{id}")).exists();
    LEFT.get().0.iter().any(|left| {
        let id = left.load(Ordering::Acquire);
        id != 0 && exists(id)
    })
}

/// Replaces the first id `old`.
fn replace(old: u32, new: u32) {
    let AgentThreads(ids) = AGENT_THREADS.get();
    // Without room a thread counts as the program's.
    let _ = ids.iter().any(|id: &AtomicU32| {
        id.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
}

/// Whether the calling thread is the agent's.
#[cfg(feature = "tracing-layer")]
pub(crate) fn is_agent() -> bool {
    OF_AGENT.get()
}

pub(crate) use system::process::thread_id as own_id;

/// Changes whenever [`is_of_agent`] does.
pub(crate) fn version() -> u64 {
    VERSION.load(Ordering::Acquire)
}

/// Whether a thread is the agent's.
pub(crate) fn is_of_agent(id: u32) -> bool {
    AGENT_THREADS
        .get()
        .0
        .iter()
        .any(|own| own.load(Ordering::Acquire) == id)
}
