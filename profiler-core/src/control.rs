//! Settings and thread dumps of a running agent.

use std::sync::Arc;

use crate::{NodeId, State, StateSet};

/// Settings of a sampler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Nanoseconds between two samples of a thread.
    pub interval_ns: u64,
    /// Whether threads are sampled at all.
    pub enabled: bool,
    /// States whose weight is kept. Filtered weight is neither accepted nor lost.
    pub states: StateSet,
}

impl Settings {
    /// Returns these settings with `change` applied.
    #[must_use]
    pub fn with(self, change: SettingsChange) -> Settings {
        Settings {
            interval_ns: change.interval_ns.unwrap_or(self.interval_ns),
            enabled: change.enabled.unwrap_or(self.enabled),
            states: change.states.unwrap_or(self.states),
        }
    }
}

/// A change of [`Settings`]; a `None` field stays as it is.
///
/// ```
/// use emberline_profiler_core::SettingsChange;
///
/// let slower = SettingsChange { interval_ns: Some(100_000_000), ..Default::default() };
/// let off = SettingsChange { enabled: Some(false), ..Default::default() };
/// let both = slower.then(off);
/// assert_eq!((both.interval_ns, both.enabled), (Some(100_000_000), Some(false)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SettingsChange {
    /// See [`Settings::interval_ns`].
    pub interval_ns: Option<u64>,
    /// See [`Settings::enabled`].
    pub enabled: Option<bool>,
    /// See [`Settings::states`].
    pub states: Option<StateSet>,
}

impl SettingsChange {
    /// Combines two changes; `later` wins where both change the same setting.
    #[must_use]
    pub fn then(self, later: SettingsChange) -> SettingsChange {
        SettingsChange {
            interval_ns: later.interval_ns.or(self.interval_ns),
            enabled: later.enabled.or(self.enabled),
            states: later.states.or(self.states),
        }
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == SettingsChange::default()
    }
}

/// Current stack and state of one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadSnapshot {
    /// The operating system's id.
    pub thread_id: u32,
    /// The operating system's name, at most 15 bytes; empty if the thread has ended.
    pub name: Arc<str>,
    /// Its innermost frame; the root if the thread has not been sampled yet.
    pub node: NodeId,
    /// Its state; `None` if the thread has not been sampled yet.
    pub state: Option<State>,
    /// Nanoseconds since this observation.
    pub age_ns: u64,
    /// Nanoseconds for which the thread has been blocked there, as far as it was observed.
    pub blocked_ns: u64,
}
