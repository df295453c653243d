//! Settings of one sampler.

use std::time::Duration;

use profiler_core::{Settings, StateSet};

use crate::Symbols;
use crate::foreign::Walker;
use crate::registry::NameId;

/// Weights are multiples of a tenth of the interval; remainders are carried to the next sample.
const QUANTA_PER_INTERVAL: u64 = 10;

/// Settings of one sampler, and of the symbolizer that serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplerOptions {
    pub(crate) interval_ns: u64,
    pub(crate) cycle_ns: u64,
    /// Part of one processor that sampling may use, in billionths.
    pub(crate) cpu_limit: u64,
    /// Part of the process's own CPU time that sampling may use, in billionths.
    pub(crate) cpu_limit_of_process: Option<u64>,
    /// For the symbolizer: time between two resource samples; `None` for no samples.
    pub(crate) resource_interval: Option<Duration>,
    /// For the symbolizer: most rows of ended tasks per second.
    pub(crate) task_rows_per_second: u32,
    /// Walks the frames of an interpreter.
    pub(crate) walker: Option<Walker>,
    /// For the symbolizer: who names functions.
    pub(crate) symbols: Symbols,
    /// For the symbolizer: the task of the program's threads that are in none; [`NameId::NONE`] for no task.
    pub(crate) default_task: NameId,
    /// Whether threads that are in no task are in one of their name.
    pub(crate) tasks_by_thread: bool,
    /// For the symbolizer: whether it sends symbols when the collector asks for them.
    #[cfg(feature = "ship")]
    pub(crate) symbol_upload: bool,
}

impl SamplerOptions {
    /// The settings that an agent starts with.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            interval_ns: self.interval_ns,
            enabled: true,
            states: StateSet::ALL,
        }
    }

    pub(crate) fn quantum_ns(&self) -> u64 {
        (self.interval_ns / QUANTA_PER_INTERVAL).max(1)
    }
}
