//! The lines of a timeline: its time by task, worker, host, label, run, phase or thread.

use profiler_core::hash::KeyedMap;
use profiler_core::{FrameKind, TimeRange, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::parameters::label_scope::NO_TASK;
use crate::profiles::group_by::GroupBy;
use crate::profiles::step_sums::{Cell, NodeGroups, WorkerGroups};
use crate::profiles::time_groups::TimeGroups;
use crate::table_reader::TableReader;
use base::limits::GROUPS_SUMMED_MAX;
use state::tree::{NodeNames, ThreadName, TopNode};
use state::windows::WindowSnapshot;
use store::{SumTable, Tier};

/// Name of the threads that an agent sums in one.
const MANY_THREADS: &str = "[overflow]";

/// The lines that a timeline's time is divided into.
pub(crate) enum TimelineLines<'a> {
    Tasks(&'a [TopNode]),
    Workers(TimeGroups),
    Phases(NodeGroups, Vec<String>),
    Threads(ThreadLines),
}

/// Lines of single threads: by worker and thread.
pub(crate) struct ThreadLines {
    workers: WorkerGroups,
    ids: Vec<WorkerId>,
    threads: NodeGroups,
    names: Vec<ThreadName>,
}

/// Numbers of the pairs of a worker and a thread that have time.
#[derive(Default)]
pub(crate) struct ThreadNumbers {
    numbers: KeyedMap<(usize, u32), usize>,
    pairs: Vec<(usize, u32)>,
    /// Whether there were too many.
    omitted: bool,
}

impl ThreadNumbers {
    fn of(&mut self, pair: (usize, u32)) -> Option<usize> {
        if let Some(number) = self.numbers.get(&pair) {
            return Some(*number);
        }
        if self.pairs.len() >= GROUPS_SUMMED_MAX {
            self.omitted = true;
            return None;
        }
        self.pairs.push(pair);
        self.numbers.insert(pair, self.pairs.len() - 1);
        Some(self.pairs.len() - 1)
    }

    /// # Errors
    /// If there were too many pairs.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        let limit = GROUPS_SUMMED_MAX;
        if self.omitted {
            return Err(QueryError::Groups { limit });
        }
        Ok(())
    }
}

impl<'a> TimelineLines<'a> {
    pub(crate) fn of(
        state: &Queries<'_>,
        by: &GroupBy,
        range: TimeRange,
        tops: &'a [TopNode],
        sources: Sources<'_, '_>,
    ) -> Result<TimelineLines<'a>, QueryError> {
        let Sources {
            stored,
            view,
            coarsest,
        } = sources;
        Ok(match by {
            GroupBy::Task => TimelineLines::Tasks(tops),
            GroupBy::Phase => {
                let NodeNames { by_node, names } = NodeNames::phases(&state.tree);
                let names = names.iter().map(ToString::to_string);
                let names = [NO_TASK.to_owned()].into_iter().chain(names);
                let table = SumTable::Samples;
                TimelineLines::Phases(NodeGroups { by_node, table }, names.collect())
            }
            GroupBy::Thread => {
                let NodeNames { by_node, names } = NodeNames::threads(&state.tree);
                let mut ids: Vec<WorkerId> = Vec::new();
                let mut numbers: KeyedMap<WorkerId, usize> = KeyedMap::default();
                let workers = WorkerGroups::of_each(stored, view, |worker| {
                    *numbers.entry(worker.clone()).or_insert_with(|| {
                        ids.push(worker.clone());
                        ids.len() - 1
                    })
                });
                let table = SumTable::Threads;
                TimelineLines::Threads(ThreadLines {
                    workers,
                    ids,
                    threads: NodeGroups { by_node, table },
                    names,
                })
            }
            by => TimelineLines::Workers(TimeGroups::of(state, by, range, stored, view, coarsest)?),
        })
    }

    pub(crate) fn workers(&self) -> Option<&WorkerGroups> {
        match self {
            TimelineLines::Workers(groups) => Some(&groups.workers),
            TimelineLines::Threads(threads) => Some(&threads.workers),
            _ => None,
        }
    }

    pub(crate) fn nodes(&self) -> Option<&NodeGroups> {
        match self {
            TimelineLines::Phases(groups, _) => Some(groups),
            TimelineLines::Threads(threads) => Some(&threads.threads),
            _ => None,
        }
    }

    /// Plans the reader's seconds with the fewest periods.
    pub(crate) fn coarsen(&self, stored: &mut TableReader<'_>) -> Result<(), QueryError> {
        match self {
            TimelineLines::Workers(groups) if groups.have_times() => {
                groups.plan(stored, Tier::Day)?;
            }
            _ => stored.coarsen(),
        }
        Ok(())
    }

    /// The number of a cell's line; `None` past the limit.
    #[inline]
    pub(crate) fn number(&self, cell: &Cell, threads: &mut ThreadNumbers) -> Option<usize> {
        match self {
            TimelineLines::Tasks(_) => Some(cell.top),
            TimelineLines::Workers(groups) => Some(groups.of_cell(cell)),
            TimelineLines::Phases(..) => Some(cell.node_group as usize),
            TimelineLines::Threads(_) => threads.of((cell.group, cell.node_group)),
        }
    }

    /// The kind and name of a line.
    pub(crate) fn name(&self, line: usize, threads: &ThreadNumbers) -> (FrameKind, String) {
        let name = match self {
            TimelineLines::Tasks(tops) => return (tops[line].kind, tops[line].name.to_string()),
            TimelineLines::Workers(groups) => groups.names()[line].clone(),
            TimelineLines::Phases(_, names) => names[line].clone(),
            TimelineLines::Threads(lines) => {
                let (worker, thread) = threads.pairs[line];
                lines.name(worker, thread)
            }
        };
        (FrameKind::Group, name)
    }
}

impl ThreadLines {
    /// Such as `w-1 pool-3 4711`.
    fn name(&self, worker: usize, thread: u32) -> String {
        let worker = &self.ids[worker];
        match (thread as usize).checked_sub(1).map(|at| &self.names[at]) {
            None => format!("{worker} {MANY_THREADS}"),
            // Profiles without threads have one without a name.
            Some((name, 0)) if name.is_empty() => worker.to_string(),
            Some((name, 0)) => format!("{worker} {name}"),
            Some((name, id)) => format!("{worker} {name} {id}"),
        }
    }
}

/// The data of an answer, and the coarsest periods of its steps.
pub(crate) struct Sources<'a, 'r> {
    pub(crate) stored: &'a mut TableReader<'r>,
    pub(crate) view: &'a WindowSnapshot,
    pub(crate) coarsest: Tier,
}
