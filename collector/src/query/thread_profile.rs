//! Profiles of single threads. Stacks are counted by task, not by thread, but the time of each thread is
//! known for every second, task, phase and state. Where a thread was alone in one of these, the stacks
//! there are its own; where it was not, its time is known and its stacks are not.
//!
//! Profiles by second read the same rows, of single threads or of all.

use std::collections::BTreeMap;

use profiler_core::hash::KeyedMap;
use profiler_core::{
    CallTrie, Filter, Frame, FrameKind, NoStack, NodeId, Profile, State, ThreadKind, Timestamp,
    Weight, WorkerId,
};

use super::QueryError;
use super::error::echo;
use super::params::Params;
use super::profile::ProfileQuery;
use super::table_reader::{Cancel, ScanFilter, TableReader};
use super::time::format_time;
use crate::id_set::IdSet;
use crate::limits::{PROFILE_SECONDS_MAX as SECONDS_MAX, THREAD_PROFILE_ROWS_MAX};
use crate::state::CollectorState;
use crate::store::{Batch, Column, SumTable};
use crate::sync::read;
use crate::tree::Excerpt;
use crate::windows::WindowSnapshot;

/// Name of the leaf with time of which other threads of the task have the stacks too.
const NOT_TOLD_APART: &str = "[threads not told apart]";

/// The threads of a profile; without any names and ids, all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ThreadFilter {
    names: Vec<String>,
    ids: Vec<u32>,
}

impl ThreadFilter {
    pub(super) const NAMES: [&'static str; 2] = ["thread", "thread_id"];

    pub(super) fn parse(params: &Params<'_>) -> Result<ThreadFilter, QueryError> {
        let ids = params.many("thread_id")?.into_iter().map(|text| {
            let allowed = vec!["the number of a thread"];
            let form = QueryError::Form { name: "thread_id", value: echo(text), allowed };
            text.parse().map_err(|_| form)
        });
        Ok(ThreadFilter {
            names: params.many("thread")?.into_iter().map(str::to_owned).collect(),
            ids: ids.collect::<Result<_, _>>()?,
        })
    }

    /// Whether it keeps every thread.
    pub(super) fn is_all(&self) -> bool {
        self.names.is_empty() && self.ids.is_empty()
    }

    /// The threads in words; `None` for all.
    pub(crate) fn text(&self) -> Option<String> {
        let ids = self.ids.iter().filter(|id| **id != 0).map(u32::to_string);
        let words: Vec<String> = self.names.iter().cloned().chain(ids).collect();
        (!self.is_all()).then(|| words.join(" "))
    }

    fn keeps(&self, name: &str, id: u32) -> bool {
        (self.names.is_empty() || self.names.iter().any(|kept| kept == name))
            && (self.ids.is_empty() || self.ids.contains(&id))
    }
}

/// A worker and a period, in which a thread may be alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Cell {
    worker: u32,
    start: Timestamp,
}

/// Time at a node in one state.
struct Row {
    cell: u32,
    node: u32,
    state: u8,
    nanoseconds: u64,
}

/// The time of a range, by worker and period.
#[derive(Default)]
struct Rows {
    workers: KeyedMap<WorkerId, u32>,
    cells: KeyedMap<Cell, u32>,
    /// By stack.
    samples: Vec<Row>,
    /// By thread: the same time.
    threads: Vec<Row>,
    /// Whether rows were dropped for lack of room.
    omitted: bool,
    /// Whether some periods are longer than a second.
    has_long_periods: bool,
}

impl Rows {
    fn worker(&mut self, worker: &WorkerId) -> u32 {
        let next = u32::try_from(self.workers.len()).expect("workers have numbers of 24 bits");
        *self.workers.entry(worker.clone()).or_insert(next)
    }

    fn cell(&mut self, worker: u32, start: Timestamp) -> u32 {
        let next = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        *self.cells.entry(Cell { worker, start }).or_insert(next)
    }

    fn add(&mut self, table: SumTable, row: Row) {
        if self.samples.len() + self.threads.len() >= THREAD_PROFILE_ROWS_MAX {
            self.omitted = true;
            return;
        }
        match table {
            SumTable::Threads => self.threads.push(row),
            _ => self.samples.push(row),
        }
    }

    fn nodes(&self) -> IdSet {
        self.samples.iter().chain(&self.threads).map(|row| row.node).collect()
    }
}

/// Time of the selected threads and of all others.
#[derive(Clone, Copy, Default)]
struct Shares {
    selected_ns: u64,
    others_ns: u64,
}

/// Where a thread can be alone: a cell, a task or phase by the excerpt's id, and a state.
type Section = (u32, NodeId, u8);

impl CollectorState {
    /// The profile of the query's threads, by second if the query is.
    pub(super) fn profile_by_thread(
        &self,
        query: &ProfileQuery,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        cancel: &Cancel,
    ) -> Result<Profile, QueryError> {
        let rows = read_rows(stored, view, &query.filter, cancel)?;
        if rows.has_long_periods && query.group.is_some() {
            return Err(QueryError::SecondsExpired);
        }
        let nodes = rows.nodes();
        let held = read(&self.tree).node_count();
        let unknown = nodes.iter().filter(|node| *node >= held || *node == 0).count();
        if unknown > 0 {
            return Err(QueryError::UnknownNodes { rows: unknown as u64 });
        }
        let excerpt = self.excerpt(nodes);
        let periods = rows.periods(&excerpt, query)?;
        let profile = |sums: &PeriodSums| {
            let weight = |node: NodeId| sums.own.get(&node.0).copied().unwrap_or_default();
            let known = excerpt.profile(query.scope(), weight, query.form());
            let of_context =
                |node: NodeId| sums.shared.get(&excerpt.node(node)).copied().unwrap_or_default();
            let not_told_apart = excerpt.profile(query.scope(), of_context, query.form());
            known.merge(&with_leaves(&not_told_apart))
        };
        let mut parts = Vec::new();
        for (start, sums) in &periods {
            cancel.check()?;
            parts.push((format_time(*start), profile(sums)));
        }
        match query.group {
            Some(_) => {
                let parts = parts.iter().filter(|(_, part)| !part.is_empty());
                Ok(Profile::grouped(parts.map(|(name, part)| (name.as_str(), part))))
            }
            None => Ok(parts.pop().map(|(_, part)| part).unwrap_or_default()),
        }
    }
}

/// The time of the selected threads in a period.
#[derive(Default)]
struct PeriodSums {
    /// By node of the tree: stacks.
    own: KeyedMap<u32, Weight>,
    /// By task or phase: time without stacks, because other threads have some of them.
    shared: KeyedMap<NodeId, Weight>,
}

impl Rows {
    /// The sums by second if the query is by second; otherwise of the whole range, as one period.
    fn periods(
        &self,
        excerpt: &Excerpt,
        query: &ProfileQuery,
    ) -> Result<BTreeMap<Timestamp, PeriodSums>, QueryError> {
        let contexts = excerpt.contexts();
        let context = |row: &Row| contexts[excerpt.node(NodeId(row.node)).index()];
        let is_all = query.threads.is_all();
        // Without a selection every stack is known.
        let shares = if is_all {
            KeyedMap::default()
        } else {
            shares(self, excerpt, &query.threads, context)
        };
        let mut starts = vec![query.range.start(); self.cells.len()];
        if query.group.is_some() {
            for (cell, number) in &self.cells {
                starts[*number as usize] = cell.start;
            }
        }
        let mut periods: BTreeMap<Timestamp, PeriodSums> = BTreeMap::new();
        for row in &self.samples {
            let section: Section = (row.cell, context(row), row.state);
            let is_own = is_all
                || shares
                    .get(&section)
                    .is_some_and(|shares| shares.selected_ns > 0 && shares.others_ns == 0);
            if let (true, Some(state)) = (is_own, State::ALL.get(usize::from(row.state))) {
                let sums = periods.entry(starts[row.cell as usize]).or_default();
                sums.own.entry(row.node).or_default().count(*state, row.nanoseconds);
            }
        }
        for ((cell, context, state), shares) in &shares {
            if let (true, Some(state)) = (shares.others_ns > 0, State::ALL.get(usize::from(*state)))
            {
                let sums = periods.entry(starts[*cell as usize]).or_default();
                sums.shared.entry(*context).or_default().count(*state, shares.selected_ns);
            }
        }
        if periods.len() > SECONDS_MAX {
            let count = periods.len();
            return Err(QueryError::Seconds { count, limit: SECONDS_MAX });
        }
        Ok(periods)
    }
}

fn read_rows(
    stored: &mut TableReader<'_>,
    view: &WindowSnapshot,
    filter: &Filter,
    cancel: &Cancel,
) -> Result<Rows, QueryError> {
    let mut rows = Rows::default();
    for window in &view.windows {
        cancel.check()?;
        let worker = rows.worker(&window.worker);
        let cell = rows.cell(worker, window.second().start());
        let entries = [(SumTable::Samples, &window.samples), (SumTable::Threads, &window.threads)];
        for (table, weights) in entries {
            for (node, state, nanoseconds) in weights.entries() {
                let state = state as u8;
                rows.add(table, Row { cell, node: node.0, state, nanoseconds });
            }
        }
    }
    let numbers = stored.worker_numbers(&filter.workers);
    let workers: Vec<u32> = stored.all_workers().iter().map(|worker| rows.worker(worker)).collect();
    let columns = &[Column::Worker, Column::Kind, Column::Node];
    let asked = ScanFilter { tasks: None, workers: numbers.as_deref(), columns };
    for table in [SumTable::Samples, SumTable::Threads] {
        stored.scan(
            |_| table,
            asked,
            |batch, asked_rows| {
                rows.has_long_periods |= !asked_rows.are_seconds();
                asked_rows.each(|index| {
                    let number = batch.worker[index].checked_sub(1);
                    let worker = number.and_then(|number| workers.get(number as usize));
                    if let Some(worker) = worker {
                        rows.add_stored(table, *worker, asked_rows.start(index), batch, index);
                    }
                });
            },
        )?;
    }
    if rows.omitted {
        return Err(QueryError::Groups { limit: THREAD_PROFILE_ROWS_MAX });
    }
    Ok(rows)
}

impl Rows {
    fn add_stored(
        &mut self,
        table: SumTable,
        worker: u32,
        start: Timestamp,
        batch: &Batch,
        index: usize,
    ) {
        let cell = self.cell(worker, start);
        let node = batch.node[index];
        let state = batch.kind[index];
        self.add(table, Row { cell, node, state, nanoseconds: batch.values[index] });
    }
}

/// The time of the selected threads and of the others, by section.
fn shares(
    rows: &Rows,
    excerpt: &Excerpt,
    threads: &ThreadFilter,
    context: impl Fn(&Row) -> NodeId,
) -> KeyedMap<Section, Shares> {
    let mut is_selected: KeyedMap<u32, bool> = KeyedMap::default();
    let mut shares: KeyedMap<Section, Shares> = KeyedMap::default();
    for row in &rows.threads {
        let selected = *is_selected.entry(row.node).or_insert_with(|| {
            let frame = excerpt.path(excerpt.node(NodeId(row.node))).next();
            let frame = frame.map(|frame| excerpt.frame(frame));
            let thread = frame.filter(|frame| frame.kind == FrameKind::Thread);
            thread.is_some_and(|thread| threads.keeps(thread.function, thread.line))
        });
        let share = shares.entry((row.cell, context(row), row.state)).or_default();
        let sum = if selected { &mut share.selected_ns } else { &mut share.others_ns };
        *sum = sum.saturating_add(row.nanoseconds);
    }
    shares
}

/// The profile with its nodes' own time in leaves that say why there are no stacks.
fn with_leaves(profile: &Profile) -> Profile {
    let mut symbols = profile.symbols().clone();
    let leaf = Frame { function: NOT_TOLD_APART, ..Frame::no_stack(NoStack::NotSampled) };
    let leaf = symbols.intern(&leaf);
    let mut trie = CallTrie::new(2 * profile.nodes().len());
    let mut ids = vec![NodeId::ROOT];
    for node in profile.nodes() {
        let id = trie.insert_past_limit(ids[node.parent.index()], node.frame);
        ids.push(id);
        if !node.own.is_zero() {
            let leaf = trie.insert_past_limit(id, leaf);
            trie.add_weight(leaf, node.own);
        }
    }
    let delta = trie.take_delta();
    let all = Filter { threads: ThreadKind::All, ..Filter::default() };
    Profile::collect(&symbols, &trie, [&delta], &all)
}
