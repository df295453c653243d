//! Task guards.

pub fn task(_name: impl AsRef<str>) -> TaskBuilder {
    TaskBuilder {}
}
#[derive(Debug)]
pub struct TaskBuilder {}
impl TaskBuilder {
    #[must_use]
    pub fn key(self, _key: impl Into<String>) -> Self {
        self
    }
    pub fn start(self) -> TaskGuard {
        TaskGuard { not_send: std::marker::PhantomData }
    }
}
/// Running until dropped: `ok`, or `panicked` when dropped by a panic.
#[derive(Debug)]
#[must_use]
pub struct TaskGuard {
    not_send: std::marker::PhantomData<*const ()>,
}
impl TaskGuard {
    /// Ends the task as `erred`.
    pub fn fail(self, _cause: impl std::fmt::Display) {}
    /// Ends the task as `cancelled`.
    pub fn cancel(self) {}
}
impl Drop for TaskGuard {
    fn drop(&mut self) {}
}
