//! Recording into this process's own memory: no collector, no network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use profiler_core::{Delta, Filter, Profile, TaskId, TaskRecord, ThreadKind, Ticks};

use crate::cycle::{SealedCycle, Tables};
use crate::fold::Sink;
use crate::sync::lock;

/// Most tasks that a recording keeps; the oldest go first and are counted.
const TASKS_MAX: usize = 100_000;

/// What was recorded so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    delta: Delta,
    tasks: BTreeMap<TaskId, TaskRecord>,
    ticks: Ticks,
    lost_tasks: u64,
}

/// A recording, shared by the folder that writes it and the program that reads it.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    tables: Arc<Mutex<Tables>>,
    recorded: Arc<Mutex<Recorded>>,
}

impl Recorder {
    pub(crate) fn new(tables: Arc<Mutex<Tables>>) -> Self {
        Recorder { tables, recorded: Arc::default() }
    }

    pub(crate) fn recording(&self) -> Recording {
        let recorded = lock(&self.recorded).clone();
        let tables = lock(&self.tables);
        let all = Filter { threads: ThreadKind::All, ..Filter::default() };
        Recording {
            profile: Profile::collect(&tables.symbols, &tables.trie, [&recorded.delta], &all),
            tasks: recorded.tasks.into_values().collect(),
            ticks: recorded.ticks,
            lost_tasks: recorded.lost_tasks,
        }
    }
}

impl Sink for Recorder {
    fn push(&mut self, cycle: SealedCycle) {
        let mut recorded = lock(&self.recorded);
        recorded.delta = recorded.delta.merge(&cycle.delta);
        recorded.ticks += cycle.ticks;
        recorded.lost_tasks += cycle.lost_tasks;
        recorded.tasks.extend(cycle.tasks.into_iter().map(|task| (task.id, task)));
        while recorded.tasks.len() > TASKS_MAX {
            recorded.tasks.pop_first();
            recorded.lost_tasks += 1;
        }
    }
}

/// What an agent recorded in its own process.
#[derive(Clone, Debug)]
pub struct Recording {
    /// All samples, by task and stack, with the agent's own threads below `[agent]`.
    pub profile: Profile,
    /// The tasks, by id; times are this process's real time when it started, steadily advanced.
    pub tasks: Vec<TaskRecord>,
    /// How often the sampler looked over the recorded time.
    pub ticks: Ticks,
    /// Tasks whose end had no room in a queue: their rows are missing.
    pub lost_tasks: u64,
}
