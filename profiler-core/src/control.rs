//! What is changed in, and asked of, an agent while it runs.

use std::sync::Arc;

use crate::{NodeId, State, StateSet};

/// What a sampler works by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Nanoseconds between two samples of a thread.
    pub interval_ns: u64,
    /// Whether it looks at all.
    pub enabled: bool,
    /// States whose weight is kept. What is filtered away is neither accepted nor lost.
    pub states: StateSet,
}

impl Settings {
    /// These, with a change.
    #[must_use]
    pub fn with(self, change: SettingsChange) -> Settings {
        Settings {
            interval_ns: change.interval_ns.unwrap_or(self.interval_ns),
            enabled: change.enabled.unwrap_or(self.enabled),
            states: change.states.unwrap_or(self.states),
        }
    }
}

/// A change of [`Settings`]; what is `None` stays as it is.
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
    /// Both changes, where `later` counts if both change the same.
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

/// What one thread is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadSnapshot {
    /// The operating system's id.
    pub thread_id: u32,
    /// The operating system's name, at most 15 bytes; empty if the thread is gone by now.
    pub name: Arc<str>,
    /// Its innermost frame; the root if it was not seen yet.
    pub node: NodeId,
    /// What it did there; `None` if it was not seen yet.
    pub state: Option<State>,
    /// Nanoseconds since it was seen so last.
    pub age_ns: u64,
    /// Nanoseconds for which it has been there without running, as far as it was seen.
    pub blocked_ns: u64,
}
