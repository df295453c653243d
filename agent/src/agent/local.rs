//! Records into this process's own memory: no collector, no network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use profiler_core::{
    Delta, Filter, Profile, TaskId, TaskRecord, TaskTotals, Telemetry, ThreadKind, Ticks,
};

use crate::recording::Recording;
use crate::symbolizer::Sink;
use ship::batch::{Batch, coarsen_totals, merge_telemetry, merge_totals};
use ship::tables::Tables;
use system::sync::lock;

/// Most tasks of a recording; the oldest are dropped and counted as lost.
const TASKS_MAX: usize = 100_000;

/// Most telemetry items of each kind; the oldest are dropped and counted as lost.
const TELEMETRY_MAX: usize = 100_000;

/// Most sums of tasks that a recording keeps by the second.
const TOTALS_MAX: usize = 100_000;

/// Everything recorded so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    delta: Delta,
    threads: Delta,
    tasks: BTreeMap<TaskId, TaskRecord>,
    totals: Vec<TaskTotals>,
    ticks: Ticks,
    lost_tasks: u64,
    lost_unseen_ns: u64,
    telemetry: Telemetry,
    lost_telemetry: u64,
    aggregated_tasks: u64,
}

/// A recording, shared by the symbolizer, which writes it, and the program, which reads it.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    tables: Arc<Mutex<Tables>>,
    recorded: Arc<Mutex<Recorded>>,
    /// Whether phases are a level of the profile.
    phases: bool,
}

impl Recorder {
    pub(crate) fn new(tables: Arc<Mutex<Tables>>, phases: bool) -> Self {
        Recorder {
            tables,
            recorded: Arc::default(),
            phases,
        }
    }

    pub(crate) fn recording(&self) -> Recording {
        let recorded = lock(&self.recorded).clone();
        let mut tasks: Vec<TaskRecord> = recorded.tasks.into_values().collect();
        tasks.sort_by_key(|task| (task.start, task.id));
        let tables = lock(&self.tables);
        let all = Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        };
        let profile =
            |delta: &Delta| Profile::collect(&tables.symbols, &tables.trie, [delta], &all);
        let by_phase = profile(&recorded.delta);
        let threads = profile(&recorded.threads);
        drop(tables);
        Recording {
            profile: if self.phases {
                by_phase
            } else {
                by_phase.without_phases()
            },
            threads,
            tasks,
            totals: recorded.totals,
            ticks: recorded.ticks,
            lost_tasks: recorded.lost_tasks,
            lost_unseen_ns: recorded.lost_unseen_ns,
            telemetry: recorded.telemetry,
            lost_telemetry: recorded.lost_telemetry,
            aggregated_tasks: recorded.aggregated_tasks,
        }
    }
}

impl Sink for Recorder {
    fn push(&mut self, batch: Batch) {
        let mut recorded = lock(&self.recorded);
        recorded.delta = recorded.delta.merge(&batch.delta);
        recorded.threads = recorded.threads.merge(&batch.threads);
        merge_totals(&mut recorded.totals, batch.totals);
        if recorded.totals.len() > TOTALS_MAX {
            coarsen_totals(&mut recorded.totals);
        }
        recorded.aggregated_tasks += batch.aggregated_tasks;
        recorded.ticks += batch.span.map_or(Ticks::default(), |span| span.ticks);
        recorded.lost_tasks += batch.lost_tasks;
        recorded.lost_unseen_ns += batch.lost_unseen_ns;
        recorded
            .tasks
            .extend(batch.tasks.into_iter().map(|task| (task.id, task)));
        while recorded.tasks.len() > TASKS_MAX {
            recorded.tasks.pop_first();
            recorded.lost_tasks += 1;
        }
        let dropped = recorded.add_telemetry(batch.telemetry);
        recorded.lost_telemetry += batch.lost_telemetry + dropped;
    }
}

impl Recorded {
    /// Adds telemetry, replacing earlier values of the same name or id. Returns the number of items
    /// dropped for want of room.
    fn add_telemetry(&mut self, later: Telemetry) -> u64 {
        let telemetry = &mut self.telemetry;
        merge_telemetry(telemetry, later);
        drop_oldest(&mut telemetry.transfers)
            + drop_oldest(&mut telemetry.resources)
            + drop_oldest(&mut telemetry.runs)
    }
}

fn drop_oldest<T>(items: &mut Vec<T>) -> u64 {
    let excess = items.len().saturating_sub(TELEMETRY_MAX);
    items.drain(..excess);
    excess as u64
}
