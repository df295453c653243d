//! Recording into this process's own memory: no collector, no network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use profiler_core::{
    Delta, Filter, Profile, TaskId, TaskRecord, TaskTotals, Telemetry, ThreadKind, Ticks,
};

use crate::cycle::{SealedCycle, Tables};
use crate::fold::Sink;
use crate::recording::Recording;
use crate::sync::lock;
use crate::totals;

/// Most tasks that a recording keeps; the oldest go first and are counted.
const TASKS_MAX: usize = 100_000;

/// Most records of each other kind; as with tasks.
const RECORDS_MAX: usize = 100_000;

/// Most sums of tasks that a recording keeps apart by the second.
const TOTALS_MAX: usize = 100_000;

/// What was recorded so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    delta: Delta,
    threads: Delta,
    tasks: BTreeMap<TaskId, TaskRecord>,
    totals: Vec<TaskTotals>,
    ticks: Ticks,
    lost_tasks: u64,
    telemetry: Telemetry,
    lost_telemetry: u64,
    aggregated_tasks: u64,
}

/// A recording, shared by the folder that writes it and the program that reads it.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    tables: Arc<Mutex<Tables>>,
    recorded: Arc<Mutex<Recorded>>,
    /// Whether phases are a level of the profile.
    phases: bool,
}

impl Recorder {
    pub(crate) fn new(tables: Arc<Mutex<Tables>>, phases: bool) -> Self {
        Recorder { tables, recorded: Arc::default(), phases }
    }

    pub(crate) fn recording(&self) -> Recording {
        let recorded = lock(&self.recorded).clone();
        let mut tasks: Vec<TaskRecord> = recorded.tasks.into_values().collect();
        tasks.sort_by_key(|task| (task.start, task.id));
        let tables = lock(&self.tables);
        let all = Filter { threads: ThreadKind::All, ..Filter::default() };
        let profile =
            |delta: &Delta| Profile::collect(&tables.symbols, &tables.trie, [delta], &all);
        let (by_phase, threads) = (profile(&recorded.delta), profile(&recorded.threads));
        drop(tables);
        Recording {
            profile: if self.phases { by_phase } else { by_phase.without_phases() },
            threads,
            tasks,
            totals: recorded.totals,
            ticks: recorded.ticks,
            lost_tasks: recorded.lost_tasks,
            telemetry: recorded.telemetry,
            lost_telemetry: recorded.lost_telemetry,
            aggregated_tasks: recorded.aggregated_tasks,
        }
    }
}

impl Sink for Recorder {
    fn push(&mut self, cycle: SealedCycle) {
        let mut recorded = lock(&self.recorded);
        recorded.delta = recorded.delta.merge(&cycle.delta);
        recorded.threads = recorded.threads.merge(&cycle.threads);
        totals::merge(&mut recorded.totals, cycle.totals);
        if recorded.totals.len() > TOTALS_MAX {
            totals::coarsen(&mut recorded.totals);
        }
        recorded.aggregated_tasks += cycle.aggregated_tasks;
        recorded.ticks += cycle.ticks;
        recorded.lost_tasks += cycle.lost_tasks;
        recorded.tasks.extend(cycle.tasks.into_iter().map(|task| (task.id, task)));
        while recorded.tasks.len() > TASKS_MAX {
            recorded.tasks.pop_first();
            recorded.lost_tasks += 1;
        }
        let lost = recorded.keep(cycle.records);
        recorded.lost_telemetry += cycle.lost_telemetry + lost;
    }
}

impl Recorded {
    /// Keeps what came, of names and ids the latest. Gives how much went for want of room.
    fn keep(&mut self, later: Telemetry) -> u64 {
        let telemetry = &mut self.telemetry;
        telemetry.expected.retain(|known| later.expected.iter().all(|new| new.name != known.name));
        telemetry.runs.retain(|known| later.runs.iter().all(|new| new.id != known.id));
        telemetry.append(later);
        shed_oldest(&mut telemetry.transfers)
            + shed_oldest(&mut telemetry.resources)
            + shed_oldest(&mut telemetry.runs)
    }
}

fn shed_oldest<T>(records: &mut Vec<T>) -> u64 {
    let excess = records.len().saturating_sub(RECORDS_MAX);
    records.drain(..excess);
    excess as u64
}
