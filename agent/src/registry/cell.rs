//! What each thread shares with the agent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use profiler_core::limits::bounded_name;

use super::names::TaskContext;
use super::ring::{RING_ROWS, RingSlot};
use crate::spill::Spill;
use crate::sys::process;
use crate::threads::{self, ThreadIdentity};

/// A thread's state that the agent reads. The signal handler reads `task` only.
#[derive(Debug)]
pub(crate) struct ThreadCell {
    pub(crate) thread: Arc<ThreadIdentity>,
    task: AtomicU64,
    pub(super) gone: AtomicBool,
    /// Rows lost since the last drain.
    pub(super) lost: AtomicU64,
    pub(super) rows: Mutex<rtrb::Consumer<RingSlot>>,
    /// Sums of the rows that found the ring full.
    pub(crate) spill: Spill,
}

impl ThreadCell {
    /// The calling thread's cell, and the writing end of its ring.
    pub(crate) fn new() -> (Arc<ThreadCell>, rtrb::Producer<RingSlot>) {
        let (producer, consumer) = rtrb::RingBuffer::new(RING_ROWS);
        let name = bounded_name(&process::own_thread_name()).into();
        let cell = ThreadCell {
            thread: Arc::new(ThreadIdentity { id: threads::own_id(), name }),
            task: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            rows: Mutex::new(consumer),
            spill: Spill::new(),
        };
        (Arc::new(cell), producer)
    }

    /// The word that the handler copies; [`TaskContext::from_word`] decodes it.
    pub(crate) fn task_word(&self) -> &AtomicU64 {
        &self.task
    }

    pub(crate) fn set_context(&self, context: TaskContext) {
        self.task.store(context.word(), Ordering::Release);
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}
