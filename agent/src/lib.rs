//! Emberline's agent (skeleton: the public surface; being filled in).
#![allow(missing_docs)]
mod cycle;
mod task;
pub use task::{TaskBuilder, TaskGuard, task};

#[derive(Debug)]
pub struct Agent {}
#[derive(Debug, Default)]
pub struct AgentBuilder {}
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {}

impl Agent {
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }
}
impl AgentBuilder {
    #[must_use]
    pub fn collector(self, _url: impl Into<String>) -> Self {
        self
    }
    #[must_use]
    pub fn worker(self, _id: impl Into<String>) -> Self {
        self
    }
    #[must_use]
    pub fn label(self, _key: impl Into<String>, _value: impl Into<String>) -> Self {
        self
    }
    #[must_use]
    pub fn interval(self, _interval: std::time::Duration) -> Self {
        self
    }
    /// Starts sampling; the returned agent flushes and stops when dropped.
    pub fn start(self) -> Result<Agent, StartError> {
        Ok(Agent {})
    }
}
