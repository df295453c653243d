//! A task by reference, for work that its thread hands to others.

use profiler_core::TaskId;

use super::TaskGuard;
use super::running::with_here;
use super::scope::Scope;
use super::thread::{self, TaskRef};
use crate::registry::{self, NameId};
use crate::wanted;

/// The task that this thread runs now, to carry it to other threads; the handle of no task if it
/// runs none, or no agent is running.
///
/// A thread pool does not know whose work its threads do. Give each closure the handle:
///
/// ```
/// let _task = emberline_agent::task("render").start();
/// let here = emberline_agent::current_task();
/// std::thread::scope(|threads| {
///     for part in 0..4 {
///         let here = here.clone();
///         threads.spawn(move || {
///             let _in = here.enter();
///             // … work on `part`: samples of this thread belong to `render` …
/// #           let _ = part;
///         });
///     }
/// });
/// ```
///
/// With rayon, enter it inside the closure that rayon runs: `items.par_iter().for_each(|item| { let
/// _in = here.enter(); … })`. A thread that steals work in the middle of other work goes back to its
/// own task when the scope ends.
#[must_use = "a handle does nothing until it is entered"]
pub fn current_task() -> TaskHandle {
    TaskHandle(if wanted::by_anyone() { thread::current() } else { TaskRef::NONE })
}

/// A task, or none, from any thread: made by [`current_task`] and [`TaskGuard::handle`].
///
/// It keeps nothing alive. After the task has ended a handle can still be entered, and samples then
/// still count for the task's name, for the work was done on its behalf; the ledger's row does not
/// change.
#[derive(Clone, Debug)]
pub struct TaskHandle(pub(super) TaskRef);

impl TaskHandle {
    /// The task's number, if it is one.
    pub(crate) fn id(&self) -> Option<TaskId> {
        self.0.id.map(TaskId::from)
    }

    /// Lets this thread's samples belong to the task while the scope lives; after it, they belong to
    /// what they belonged to before. The ledger gets no row. The handle of no task puts the thread's
    /// samples outside any task.
    pub fn enter(&self) -> TaskScope {
        TaskScope { _scope: if wanted::by_anyone() { Scope::enter(self.0) } else { Scope::none() } }
    }

    /// Tells the size of the task's result, while the task runs; the last word holds. Inside a future
    /// that is a task, [`current_task`] gives the handle.
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
        self.tell_result(Some(bytes), None);
    }

    /// Tells the type of the task's result, as [`TaskHandle::result_bytes`].
    pub fn result_type(&self, name: impl AsRef<str>) {
        self.tell_result(None, Some(name.as_ref()));
    }

    /// As [`TaskHandle::result_type`], with the name that the compiler has for `T`.
    pub fn result_of<T: ?Sized>(&self) {
        self.result_type(std::any::type_name::<T>());
    }

    fn tell_result(&self, bytes: Option<u64>, type_name: Option<&str>) {
        if let Some(id) = self.0.id.filter(|_| wanted::by_anyone()) {
            let type_name = type_name.map_or(NameId::NONE, registry::name_id);
            thread::tell_result(id, bytes, type_name);
        }
    }
}

/// A thread at work for a task. It stays on its thread, and is not held across an `.await`: wrap the
/// future instead, with [`TaskBuilder::future`](super::TaskBuilder::future).
#[derive(Debug)]
#[must_use = "the thread goes back to what it did before when this is dropped"]
pub struct TaskScope {
    _scope: Scope,
}

impl TaskGuard {
    /// The task, for other threads that work for it.
    #[must_use = "a handle does nothing until it is entered"]
    pub fn handle(&self) -> TaskHandle {
        let task = self.scope.and_then(|scope| with_here(scope, |running| running.task()));
        TaskHandle(task.unwrap_or(TaskRef::NONE))
    }
}
