//! References to tasks, for work that a thread hands to other threads.

use std::sync::Arc;

use profiler_core::TaskId;

use super::TaskGuard;
use super::running::with_here;
use super::scope::Scope;
use super::thread::{self, TaskRef};
use crate::registry::{self, NameId};
use crate::wanted;

/// Returns a handle of this thread's current task, to carry it to other threads. The handle is empty if
/// the thread runs no task, or no agent is running.
///
/// A thread pool does not know for which task its threads work. Give each closure the handle:
///
/// ```
/// let _task = emberline_agent::task("render").start();
/// let task = emberline_agent::current_task();
/// std::thread::scope(|threads| {
///     for part in 0..4 {
///         let task = task.clone();
///         threads.spawn(move || {
///             let _scope = task.enter();
///             // … work on `part`: samples of this thread belong to `render` …
/// #           let _ = part;
///         });
///     }
/// });
/// ```
///
/// With rayon, enter it inside the closure that rayon runs: `items.par_iter().for_each(|item| { let
/// _scope = task.enter(); … })`. A thread that steals work in the middle of other work returns to its
/// own task when the scope ends.
#[must_use = "a handle does nothing until it is entered"]
pub fn current_task() -> TaskHandle {
    TaskHandle(if wanted::by_anyone() {
        thread::current()
    } else {
        TaskRef::NONE
    })
}

/// A reference to a task, or to none, for any thread: made by [`current_task`] and
/// [`TaskGuard::handle`].
///
/// A handle keeps nothing alive. It can be entered after the task has ended; samples then still count
/// for the task's name, because the work was done on its behalf, but its row does not change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskHandle(pub(super) TaskRef);

/// The empty handle.
impl Default for TaskHandle {
    fn default() -> TaskHandle {
        TaskHandle(TaskRef::NONE)
    }
}

impl TaskHandle {
    /// Returns the name of the task, unless the handle is empty.
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        (self.0.name != NameId::NONE).then(|| registry::name(self.0.name))
    }

    /// Returns the id of the task, unless the handle is empty.
    pub(crate) fn id(&self) -> Option<TaskId> {
        self.0.id.map(TaskId::from)
    }

    /// Makes this thread's samples belong to the task until the scope is dropped; after that they belong
    /// to the previous task again. No row is recorded. An empty handle puts the samples outside any
    /// task.
    pub fn enter(&self) -> TaskScope {
        TaskScope {
            _scope: if wanted::by_anyone() {
                Scope::enter(self.0)
            } else {
                Scope::none()
            },
        }
    }

    /// Runs `work` for the task, as between [`TaskHandle::enter`] and the end of its scope. Returns
    /// the result.
    ///
    /// ```
    /// let _task = emberline_agent::task("render").start();
    /// let task = emberline_agent::current_task();
    /// let sum = std::thread::scope(|threads| {
    ///     let part = threads.spawn(|| task.run(|| 1 + 1));
    ///     part.join().unwrap_or(0)
    /// });
    /// # assert_eq!(sum, 2);
    /// ```
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let _scope = self.enter();
        work()
    }

    /// Sets the size of the task's result while the task runs; the last call wins. Inside a future that
    /// is a task, [`current_task`] returns the handle.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// emberline_agent::task("load").future(async {
    ///     let rows = vec![0u8; 512];
    ///     emberline_agent::current_task().result_bytes(rows.len() as u64);
    /// }).await;
    /// # });
    /// ```
    pub fn result_bytes(&self, bytes: u64) {
        self.record_result(Some(bytes), None);
    }

    /// Sets the type of the task's result, like [`TaskHandle::result_bytes`].
    pub fn result_type(&self, name: impl AsRef<str>) {
        self.record_result(None, Some(name.as_ref()));
    }

    /// Like [`TaskHandle::result_type`], with the compiler's name of `T`.
    pub fn result_of<T: ?Sized>(&self) {
        self.result_type(std::any::type_name::<T>());
    }

    fn record_result(&self, bytes: Option<u64>, type_name: Option<&str>) {
        if let Some(id) = self.0.id.filter(|_| wanted::by_anyone()) {
            let type_name = type_name.map_or(NameId::NONE, registry::name_id);
            thread::record_result(id, bytes, type_name);
        }
    }
}

/// The time in which a thread works for a task. It stays on its thread. Do not hold it across an
/// `.await`: wrap the future with [`TaskBuilder::future`](super::TaskBuilder::future) instead.
#[derive(Debug)]
#[must_use = "the thread returns to its previous task when this is dropped"]
pub struct TaskScope {
    _scope: Scope,
}

impl TaskGuard {
    /// Returns a handle of the task, for other threads that work for it.
    #[must_use = "a handle does nothing until it is entered"]
    pub fn handle(&self) -> TaskHandle {
        let task = self
            .scope
            .and_then(|scope| with_here(scope, |running| running.task()));
        TaskHandle(task.unwrap_or(TaskRef::NONE))
    }
}
