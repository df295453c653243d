//! The agent of platforms without a sampler: its settings are checked, and it does nothing.

use crate::{AgentBuilder, Overhead, Recording, SamplerMode, StartError};

/// An agent for a platform without a sampler. It does nothing.
#[cfg(feature = "ship")]
#[derive(Debug)]
#[must_use = "sampling stops when the agent is dropped"]
pub struct Agent(());

#[cfg(feature = "ship")]
impl Agent {
    /// Returns the default settings.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    pub(crate) fn start(builder: AgentBuilder) -> Result<Agent, StartError> {
        builder.with_environment()?.check()?;
        Ok(Agent(()))
    }

    /// Returns zeros: nothing is sampled.
    #[must_use]
    pub fn report(&self) -> crate::ShipReport {
        crate::ShipReport::default()
    }

    /// Returns zeros: the agent costs nothing.
    #[must_use]
    pub fn overhead(&self) -> Overhead {
        Overhead::default()
    }

    /// Returns [`SamplerMode::Unsupported`].
    #[must_use]
    pub fn mode(&self) -> SamplerMode {
        SamplerMode::Unsupported
    }

    /// Returns `true`: nothing was recorded.
    pub fn flush(&self, _limit: std::time::Duration) -> bool {
        true
    }

    /// Returns zeros: nothing was sampled.
    pub fn finish(self) -> crate::ShipReport {
        self.report()
    }
}

/// A recording agent for a platform without a sampler. It records nothing.
#[derive(Debug)]
#[must_use = "recording stops when this is dropped"]
pub struct LocalAgent(());

impl LocalAgent {
    pub(crate) fn start(builder: &AgentBuilder) -> Result<LocalAgent, StartError> {
        builder.check()?;
        Ok(LocalAgent(()))
    }

    /// Returns an empty recording.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording::default()
    }

    /// Returns zeros: the agent costs nothing.
    #[must_use]
    pub fn overhead(&self) -> Overhead {
        Overhead::default()
    }

    /// Returns [`SamplerMode::Unsupported`].
    #[must_use]
    pub fn mode(&self) -> SamplerMode {
        SamplerMode::Unsupported
    }

    /// Returns an empty recording.
    #[must_use]
    pub fn finish(self) -> Recording {
        self.recording()
    }
}
