//! Per-thread state shared with the agent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use profiler_core::limits::bounded_name;

use super::change::{Change, ChangeNotes};
use super::early::{EarlyAccount, Moment, Usage};
use super::names::TaskContext;
use super::ring::{RING_ROWS, RingSlot};
use super::spill::Spill;
use crate::clock::monotonic_ns;
use crate::threads::{self, ThreadIdentity};
use system::process;
use system::push_list::Link;
use system::queue::{Reader, Writer, queue};

/// A thread's state that the agent reads. The signal handler reads `task` only.
#[derive(Debug)]
pub(crate) struct ThreadCell {
    pub(crate) thread: Arc<ThreadIdentity>,
    task: AtomicU64,
    /// The thread's own account of its time while it is young.
    pub(crate) early: Arc<EarlyAccount>,
    /// The latest changes of its task, noted once it is no longer young.
    pub(crate) changes: ChangeNotes,
    /// The last word of `task` with a task: a thread leaves its task before it ends.
    last_task: AtomicU64,
    /// The thread's CPU clock, plus 1, when the sampler saw that it had left that task; 0 since the
    /// next task began.
    left_cpu: AtomicU64,
    pub(super) gone: AtomicBool,
    /// Its places in the lists of new cells.
    pub(super) sampler_link: Link<ThreadCell>,
    pub(super) drain_link: Link<ThreadCell>,
    /// Rows lost since the last drain.
    pub(super) lost: AtomicU64,
    /// Tasks whose starts found no room since the last drain.
    pub(super) silent_starts: AtomicU64,
    pub(super) rows: Mutex<Reader<RingSlot>>,
    /// Sums of the rows that found the ring full.
    pub(crate) spill: Spill,
}

impl ThreadCell {
    /// The calling thread's cell, and the writing end of its ring.
    pub(crate) fn new() -> (Arc<ThreadCell>, Writer<RingSlot>) {
        let (writer, reader) = queue(RING_ROWS);
        let name = bounded_name(&process::own_thread_name()).into();
        let cell = ThreadCell {
            thread: Arc::new(ThreadIdentity {
                id: threads::own_id(),
                name,
            }),
            task: AtomicU64::new(0),
            early: Arc::new(EarlyAccount::new()),
            changes: ChangeNotes::new(),
            last_task: AtomicU64::new(0),
            left_cpu: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            sampler_link: Link::unlinked(),
            drain_link: Link::unlinked(),
            lost: AtomicU64::new(0),
            silent_starts: AtomicU64::new(0),
            rows: Mutex::new(reader),
            spill: Spill::default(),
        };
        (Arc::new(cell), writer)
    }

    /// The word that the handler copies; [`TaskContext::from_word`] decodes it.
    pub(crate) fn task_word(&self) -> &AtomicU64 {
        &self.task
    }

    pub(crate) fn set_context(&self, context: TaskContext) {
        let word = context.word();
        if self.early.is_open() {
            self.measure_early(word);
        } else if self.changes.is_wanted() {
            self.note_change(word);
        }
        self.store_word(word);
    }

    /// Like [`ThreadCell::set_context`], by another thread, which cannot read the clocks of this one.
    pub(crate) fn set_context_from_outside(&self, context: TaskContext) {
        self.store_word(context.word());
    }

    fn store_word(&self, word: u64) {
        self.task.store(word, Ordering::Release);
        if word != 0 {
            self.last_task.store(word, Ordering::Relaxed);
            self.left_cpu.store(0, Ordering::Relaxed);
        }
    }

    #[cold]
    fn measure_early(&self, next_word: u64) {
        self.early
            .switch(next_word, monotonic_ns(), Usage::of_own_thread);
    }

    #[cold]
    fn note_change(&self, word: u64) {
        let usage = Usage::of_own_thread();
        self.changes.add(Change {
            at_ns: monotonic_ns(),
            usage,
            word,
        });
    }

    /// An agent runs: the calling thread, whose cell this is, begins to measure itself.
    pub(crate) fn begin_early(&self) {
        let word = self.task.load(Ordering::Relaxed);
        self.early
            .begin(word, monotonic_ns(), Usage::of_own_thread());
    }

    /// The word of the last task; 0 before the first.
    pub(crate) fn last_task_word(&self) -> u64 {
        self.last_task.load(Ordering::Relaxed)
    }

    /// The sampler saw that the thread had left its last task, when its CPU clock was `cpu_ns`.
    pub(crate) fn set_left(&self, cpu_ns: u64) {
        self.left_cpu.store(cpu_ns + 1, Ordering::Relaxed);
    }

    /// The thread's CPU clock when the sampler saw that it had left its last task, unless it began
    /// another one.
    pub(crate) fn left_cpu_ns(&self) -> Option<u64> {
        self.left_cpu.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The moment at which the thread ended; `None` while it runs.
    pub(crate) fn end(&self) -> Option<Moment> {
        self.early.ended()
    }

    /// Whether the thread has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_silent_start(&self) {
        self.silent_starts.fetch_add(1, Ordering::Relaxed);
    }

    /// The calling thread, whose cell this is, ends.
    pub(crate) fn finish(&self) {
        self.early.end(monotonic_ns(), Usage::of_own_thread());
        self.set_context(TaskContext::default());
        self.gone.store(true, Ordering::Release);
    }
}
