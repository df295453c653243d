//! Time by thread: the same time as that of the samples, by thread instead of by stack.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{Filter, FrameKind, NodeId, State, TimeRange, Timestamp, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::parameters::parameter::{Parameter, Parameters, names};
use crate::parameters::params::{Filters, LABEL, Params, THREADS, WORKER, known_workers};
use crate::parameters::range::{RANGE, asked_range};
use crate::profiles::profile::windows_in;
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use base::id_set::IdSet;
use base::limits::{THREAD_TIME_SUMS_MAX, THREAD_TIME_THREADS_MAX};
use base::sync::read;
use state::CollectorState;
use state::ledger::EXECUTE;
use state::tree::Excerpt;
use store::{Column, Coverage, Measure, SumTable};

/// The name of the threads past the limit.
const OTHERS: &str = "[other]";

/// A query for time by thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadTimeQuery {
    pub range: TimeRange,
    /// Workers, and the program's or the agent's threads.
    pub filter: Filter,
    /// Whether the threads of a worker are summed.
    pub by_worker: bool,
}

impl ThreadTimeQuery {
    const BY: [(&str, bool); 2] = [("thread", false), ("worker", true)];

    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &[
            WORKER,
            LABEL,
            THREADS,
            Parameter::choice(
                "by",
                || names(&ThreadTimeQuery::BY),
                "worker",
                "Whose time is summed.",
            )
            .default("thread"),
        ],
    ];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<ThreadTimeQuery, QueryError> {
        let params = Params::of(pairs, ThreadTimeQuery::PARAMETERS)?;
        let (range, _) = asked_range(&params, state, now)?;
        Ok(ThreadTimeQuery {
            range,
            filter: Filter {
                workers: known_workers(&params, state)?.to_vec(),
                threads: params.choice("threads", &Filters::THREADS)?,
                ..Filter::default()
            },
            by_worker: params.choice("by", &ThreadTimeQuery::BY)?,
        })
    }
}

/// Activity of a thread. Parts of equal time are in this order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadTimePart {
    /// `None`: outside of tasks.
    pub task: Option<Arc<str>>,
    pub phase: Option<Arc<str>>,
    pub state: State,
}

/// A thread of a worker.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadKey {
    pub worker: WorkerId,
    /// `None` for the sum of a worker's threads.
    pub name: Option<Arc<str>>,
    /// 0 for several threads.
    pub id: u32,
}

/// A thread's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadTime {
    pub thread: ThreadKey,
    pub total_ns: u64,
    /// The longest first.
    pub parts: Vec<(ThreadTimePart, u64)>,
}

/// Time by thread, by worker; the longest observed threads first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadTimeAnswer {
    pub range: TimeRange,
    /// How long the worker with the most sampled time was sampled.
    pub elapsed_ns: u64,
    pub threads: Vec<ThreadTime>,
    pub damaged: Vec<String>,
}

/// Nanoseconds by worker, node and state; and the sampled time of each worker.
#[derive(Default)]
struct Sums {
    workers: Vec<WorkerId>,
    numbers: KeyedMap<WorkerId, u32>,
    times: KeyedMap<(u32, u32, u8), u64>,
    sampled: KeyedMap<u32, u64>,
    omitted: bool,
}

impl Sums {
    fn worker(&mut self, worker: &WorkerId) -> u32 {
        let Sums {
            workers, numbers, ..
        } = self;
        *numbers.entry(worker.clone()).or_insert_with(|| {
            workers.push(worker.clone());
            u32::try_from(workers.len() - 1).expect("workers have numbers of 24 bits")
        })
    }

    fn add(&mut self, worker: u32, node: u32, state: u8, nanoseconds: u64) {
        let has_room = self.times.len() < THREAD_TIME_SUMS_MAX;
        match self.times.get_mut(&(worker, node, state)) {
            Some(sum) => *sum = sum.saturating_add(nanoseconds),
            None if has_room => drop(self.times.insert((worker, node, state), nanoseconds)),
            None => self.omitted = true,
        }
    }

    fn add_sampled(&mut self, worker: u32, nanoseconds: u64) {
        let sum = self.sampled.entry(worker).or_default();
        *sum = sum.saturating_add(nanoseconds);
    }
}

impl Queries<'_> {
    /// Sums the time by thread of the windows that start in the range.
    pub fn thread_time(
        &self,
        query: &ThreadTimeQuery,
        cancel: &Cancel,
    ) -> Result<ThreadTimeAnswer, QueryError> {
        let ThreadTimeQuery {
            range,
            filter,
            by_worker,
        } = query;
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            *range,
            |c, seconds| windows_in(c, seconds, filter),
            Coverage::plan,
        );
        let mut sums = Sums::default();
        for window in &view.windows {
            cancel.check()?;
            let worker = sums.worker(&window.worker);
            sums.add_sampled(worker, window.range.length_ns());
            for (node, state, nanoseconds) in window.threads.entries() {
                sums.add(worker, node.0, state as u8, nanoseconds);
            }
        }
        add_stored(&mut stored, filter, &mut sums)?;
        if sums.omitted {
            return Err(QueryError::Groups {
                limit: THREAD_TIME_SUMS_MAX,
            });
        }
        Ok(ThreadTimeAnswer {
            range: stored.range(*range),
            elapsed_ns: sums.sampled.values().copied().max().unwrap_or(0),
            threads: self.threads(&sums, filter, *by_worker)?,
            damaged: stored.damaged(),
        })
    }

    /// The sums by thread, with the labels of their nodes.
    fn threads(
        &self,
        sums: &Sums,
        filter: &Filter,
        by_worker: bool,
    ) -> Result<Vec<ThreadTime>, QueryError> {
        let held = read(&self.tree).node_count();
        let nodes: IdSet = sums.times.keys().map(|(_, node, _)| *node).collect();
        let unknown = nodes
            .iter()
            .filter(|node| *node >= held || *node == 0)
            .count();
        if unknown > 0 {
            return Err(QueryError::UnknownNodes {
                rows: unknown as u64,
            });
        }
        let excerpt = self.excerpt(nodes.clone());
        let labels: KeyedMap<u32, ThreadLabel> = nodes
            .iter()
            .filter_map(|node| Some((node, ThreadLabel::of(&excerpt, NodeId(node), filter)?)))
            .collect();
        let mut threads: BTreeMap<ThreadKey, BTreeMap<ThreadTimePart, u64>> = BTreeMap::new();
        for ((worker, node, state), nanoseconds) in &sums.times {
            let state = State::ALL.get(usize::from(*state));
            let (Some(label), Some(state)) = (labels.get(node), state) else {
                continue;
            };
            let worker = sums.workers[*worker as usize].clone();
            let (name, id) = if by_worker {
                (None, 0)
            } else {
                (Some(label.thread.clone()), label.id)
            };
            let task = label.task.clone();
            let phase = label.phase.clone();
            let parts = threads.entry(ThreadKey { worker, name, id }).or_default();
            let part = parts
                .entry(ThreadTimePart {
                    task,
                    phase,
                    state: *state,
                })
                .or_default();
            *part = part.saturating_add(*nanoseconds);
        }
        Ok(bounded(threads, THREAD_TIME_THREADS_MAX))
    }
}

/// Adds the time in tables.
fn add_stored(
    stored: &mut TableReader<'_>,
    filter: &Filter,
    sums: &mut Sums,
) -> Result<(), QueryError> {
    let numbers = stored.worker_numbers(&filter.workers);
    let workers: Vec<u32> = stored
        .all_workers()
        .iter()
        .map(|worker| sums.worker(worker))
        .collect();
    let worker = |number: u32| workers.get(number.checked_sub(1)? as usize).copied();
    let columns = &[Column::Worker, Column::Kind, Column::Node];
    let asked = ScanFilter {
        tasks: None,
        workers: numbers.as_deref(),
        columns,
        sums_only: true,
    };
    stored.scan(
        |_| SumTable::Threads,
        asked,
        |batch, rows| {
            rows.each(|index| {
                if let Some(worker) = worker(batch.worker[index]) {
                    sums.add(
                        worker,
                        batch.node[index],
                        batch.kind[index],
                        batch.values[index],
                    );
                }
            });
        },
    )?;
    let columns = &[Column::Worker, Column::Kind];
    let asked = ScanFilter {
        tasks: None,
        workers: numbers.as_deref(),
        columns,
        sums_only: true,
    };
    stored.scan(
        |_| SumTable::Cycles,
        asked,
        |batch, rows| {
            rows.each(|index| {
                let is_length = batch.kind[index] == Measure::SampledNs as u8;
                if let (true, Some(worker)) = (is_length, worker(batch.worker[index])) {
                    sums.add_sampled(worker, batch.values[index]);
                }
            });
        },
    )
}

/// The task, phase and thread of a node.
struct ThreadLabel {
    task: Option<Arc<str>>,
    phase: Option<Arc<str>>,
    thread: Arc<str>,
    id: u32,
}

impl ThreadLabel {
    /// `None` if the filter drops its first-level node.
    fn of(excerpt: &Excerpt, node: NodeId, filter: &Filter) -> Option<ThreadLabel> {
        let mut path: Vec<_> = excerpt
            .path(excerpt.node(node))
            .map(|frame| excerpt.frame(frame))
            .collect();
        let top = path.pop()?;
        if !filter.keeps_top(&top) {
            return None;
        }
        let task = match top.kind {
            FrameKind::NoTask | FrameKind::Agent => None,
            _ => Some(top.function.into()),
        };
        let phase = path
            .iter()
            .find(|frame| frame.kind == FrameKind::Phase)
            .map_or(EXECUTE, |frame| frame.function);
        let thread = path.first().filter(|frame| frame.kind == FrameKind::Thread);
        let (thread, id) = thread.map_or(("[overflow]", 0), |frame| (frame.function, frame.line));
        Some(ThreadLabel {
            phase: task.as_ref().map(|_: &Arc<str>| phase.into()),
            task,
            thread: thread.into(),
            id,
        })
    }
}

/// The threads; all but the `limit` heaviest are summed by worker.
fn bounded(
    threads: BTreeMap<ThreadKey, BTreeMap<ThreadTimePart, u64>>,
    limit: usize,
) -> Vec<ThreadTime> {
    let mut threads: Vec<_> = threads
        .into_iter()
        .map(|(thread, parts)| (total_ns(&parts), thread, parts))
        .collect();
    threads.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let rest = threads.split_off(threads.len().min(limit));
    let mut others: BTreeMap<ThreadKey, BTreeMap<ThreadTimePart, u64>> = BTreeMap::new();
    for (_, thread, parts) in rest {
        let thread = ThreadKey {
            name: Some(OTHERS.into()),
            id: 0,
            ..thread
        };
        let sums = others.entry(thread).or_default();
        for (part, nanoseconds) in parts {
            let sum = sums.entry(part).or_default();
            *sum = sum.saturating_add(nanoseconds);
        }
    }
    threads.extend(
        others
            .into_iter()
            .map(|(thread, parts)| (total_ns(&parts), thread, parts)),
    );
    let mut threads: Vec<ThreadTime> = threads
        .into_iter()
        .map(|(total_ns, thread, parts)| {
            let mut parts: Vec<_> = parts.into_iter().collect();
            parts.sort_by_key(|(_, nanoseconds)| Reverse(*nanoseconds));
            ThreadTime {
                thread,
                total_ns,
                parts,
            }
        })
        .collect();
    threads.sort_by(|a, b| a.thread.worker.cmp(&b.thread.worker));
    threads
}

fn total_ns(parts: &BTreeMap<ThreadTimePart, u64>) -> u64 {
    parts.values().copied().fold(0u64, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lightest_threads_are_summed_by_worker_and_no_time_is_lost() {
        let threads: BTreeMap<_, _> = (0..20u32)
            .map(|id| {
                let worker = WorkerId(format!("w{}", id % 2).as_str().into());
                let parts = [(part(State::Cpu), 1), (part(State::Sleep), u64::from(id))];
                (
                    ThreadKey {
                        worker,
                        name: Some("pool".into()),
                        id,
                    },
                    BTreeMap::from(parts),
                )
            })
            .collect();
        let found = bounded(threads, 4);
        let shown: Vec<String> = found
            .iter()
            .map(|it| {
                let ThreadKey { worker, name, id } = &it.thread;
                format!(
                    "{worker} {} {id}: {}",
                    name.as_deref().unwrap_or("-"),
                    it.total_ns
                )
            })
            .collect();
        let expected = [
            "w0 pool 18: 19",
            "w0 pool 16: 17",
            "w0 [other] 0: 64",
            "w1 pool 19: 20",
            "w1 pool 17: 18",
            "w1 [other] 0: 72",
        ];
        assert_eq!(shown, expected);
        assert!(
            found
                .iter()
                .all(|it| it.total_ns == it.parts.iter().map(|part| part.1).sum::<u64>())
        );
    }

    fn part(state: State) -> ThreadTimePart {
        ThreadTimePart {
            task: None,
            phase: None,
            state,
        }
    }
}
