//! Rows of the sum tables of ended tasks.

use std::sync::Arc;

use profiler_core::bucket::bucket;
use profiler_core::hash::KeyedMap;
use profiler_core::{NodeId, Outcome, PhaseInterval, TaskTotals};

use crate::rows::{OF_SEVERAL, TaskRow, inside_ns, outside_execute};
use crate::sums::row::{Fields, Key, Row, WorkerNumber, sort_and_sum};
use crate::sums::tier::{Second, Tier};

/// Rows in seconds of the sum tables of ended tasks, sorted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DurationRows {
    /// Of `durations`: by name, outcome and [`bucket`].
    pub counts: Vec<Row>,
    /// Of `duration_sums`: by name and outcome.
    pub sums: Vec<Row>,
    /// Of `phases`: by name, outcome and phase; at the task's own node, the tasks without rows.
    pub phases: Vec<Row>,
    /// Of `phase_sums`: by name, outcome and phase; at the task's own node, the part of the durations
    /// outside of `execute`.
    pub phase_sums: Vec<Row>,
}

/// The nodes of tasks and phases, by name.
pub type TaskNodes = KeyedMap<Arc<str>, TaskNode>;

/// A task's first-level node, and those of its phases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskNode {
    pub node: NodeId,
    pub phases: KeyedMap<Arc<str>, NodeId>,
}

/// A tree with nodes of tasks and phases, which are added if they were never sampled.
pub trait TaskTree {
    fn task_node(&mut self, name: &str) -> NodeId;
    fn phase_node(&mut self, task: NodeId, name: &str) -> NodeId;
}

/// The nodes of all names and phases of these tasks.
pub fn task_nodes(
    tree: &mut impl TaskTree,
    tasks: &[Arc<TaskRow>],
    totals: &[Arc<TaskTotals>],
) -> TaskNodes {
    fn phases(task: &TaskRow) -> &[PhaseInterval] {
        task.record
            .detail
            .as_ref()
            .map_or(&[], |detail| &detail.phases)
    }
    let tasks = tasks.iter().map(|task| (&task.record.name, phases(task)));
    let totals = totals
        .iter()
        .map(|totals| (&totals.name, &totals.phases[..]));
    let mut nodes = TaskNodes::default();
    for (name, phases) in tasks.chain(totals) {
        // `entry` would clone the name each time.
        if !nodes.contains_key(name) {
            let node = tree.task_node(name);
            nodes.insert(
                name.clone(),
                TaskNode {
                    node,
                    phases: KeyedMap::default(),
                },
            );
        }
        let task = nodes.get_mut(name).expect("it was just inserted");
        for phase in phases {
            if !task.phases.contains_key(&phase.name) {
                let node = tree.phase_node(task.node, &phase.name);
                task.phases.insert(phase.name.clone(), node);
            }
        }
    }
    nodes
}

/// Ended tasks with the same name and outcome, in one second.
struct Ended<'a> {
    task: &'a TaskNode,
    second: Second,
    outcome: Outcome,
    duration_ns: u64,
    phases: &'a [PhaseInterval],
}

impl DurationRows {
    /// Counts tasks in the seconds in which they stopped; running tasks are not counted. `nodes` has all
    /// names and phases.
    pub fn of<'a>(
        rows: impl IntoIterator<Item = &'a TaskRow>,
        totals: impl IntoIterator<Item = &'a TaskTotals>,
        nodes: &TaskNodes,
    ) -> DurationRows {
        let mut all = DurationRows::default();
        for row in rows {
            let (Some(stop), Some(duration_ns)) = (row.record.stop, row.duration_ns()) else {
                continue;
            };
            let ended = Ended {
                task: &nodes[&row.record.name],
                second: Second::of(stop),
                outcome: row.record.outcome,
                duration_ns,
                phases: row
                    .record
                    .detail
                    .as_ref()
                    .map_or(&[], |detail| &detail.phases),
            };
            all.counts.push(ended.row(bucket(duration_ns), 1));
            all.count(&ended, inside_ns(ended.phases, duration_ns));
        }
        for sum in totals {
            let ended = Ended {
                task: &nodes[&sum.name],
                second: Second::of(sum.second),
                outcome: sum.outcome,
                duration_ns: sum.duration_ns,
                phases: &sum.phases,
            };
            let counts = sum
                .buckets
                .iter()
                .map(|(bucket, count)| ended.row(*bucket, *count));
            all.counts.extend(counts);
            all.count(&ended, inside_ns(ended.phases, OF_SEVERAL));
            all.phases.push(ended.row(ended.task.node.0, sum.count()));
        }
        for rows in [&mut all.phases, &mut all.phase_sums] {
            rows.retain(|row| row.value > 0);
        }
        for rows in [
            &mut all.counts,
            &mut all.sums,
            &mut all.phases,
            &mut all.phase_sums,
        ] {
            sort_and_sum(rows);
        }
        all
    }

    fn count(&mut self, ended: &Ended<'_>, inside_ns: u64) {
        self.sums.push(ended.row(0, ended.duration_ns));
        for phase in outside_execute(ended.phases) {
            let node = ended.task.phases[&phase.name].0;
            self.phases.push(ended.row(node, phase.count.into()));
            self.phase_sums.push(ended.row(node, phase.duration_ns));
        }
        self.phase_sums
            .push(ended.row(ended.task.node.0, inside_ns));
    }
}

impl Ended<'_> {
    fn row(&self, node: u32, value: u64) -> Row {
        let fields = Fields {
            ts: Tier::Second.period(self.second),
            task: self.task.node,
            worker: WorkerNumber::ALL,
            kind: self.outcome as u8,
            node,
        };
        Row {
            key: Key::new(Tier::Second, fields),
            value,
        }
    }
}
