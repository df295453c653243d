//! How much of a process the sampler can see.

use std::fmt;
use std::sync::Arc;

/// How much of this process the sampler can see. Each refusal of the system has its reason, as
/// text for a person.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SamplerMode {
    /// The sampler's thread has not started yet.
    Starting,
    /// Running and blocked threads are sampled with their stacks.
    Full,
    /// Blocked threads are counted without stacks.
    RunningOnly {
        /// Why stacks of blocked threads cannot be read.
        reason: Arc<str>,
    },
    /// Running threads are counted without stacks.
    BlockedOnly {
        /// Why stacks of running threads cannot be read.
        reason: Arc<str>,
    },
    /// The system refuses everything that the sampler needs.
    Off {
        /// The reason for the refusal.
        reason: Arc<str>,
    },
    /// There is no sampler for this platform; the agent does nothing.
    Unsupported,
}

impl SamplerMode {
    /// Whether samples with stacks are taken, of some threads at least.
    #[must_use]
    pub fn is_sampling(&self) -> bool {
        match self {
            SamplerMode::Full
            | SamplerMode::RunningOnly { .. }
            | SamplerMode::BlockedOnly { .. } => true,
            SamplerMode::Starting | SamplerMode::Off { .. } | SamplerMode::Unsupported => false,
        }
    }
}

impl fmt::Display for SamplerMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SamplerMode::Starting => write!(formatter, "starting"),
            SamplerMode::Full => write!(formatter, "full"),
            SamplerMode::RunningOnly { reason } => {
                write!(
                    formatter,
                    "running threads only, blocked ones without stacks: {reason}"
                )
            }
            SamplerMode::BlockedOnly { reason } => {
                write!(
                    formatter,
                    "blocked threads only, running ones without stacks: {reason}"
                )
            }
            SamplerMode::Off { reason } => write!(formatter, "off: {reason}"),
            SamplerMode::Unsupported => {
                write!(formatter, "off: there is no sampler for this platform")
            }
        }
    }
}
