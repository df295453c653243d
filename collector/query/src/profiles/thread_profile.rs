//! Profiles of single threads. Stacks are counted by task, not by thread, but the time of each thread is
//! known for every second, task, phase and state. Where a thread was alone in one of these, the stacks
//! there are its own; where it was not, its time is known and its stacks are not.
//!
//! Profiles by second read the same rows, of single threads or of all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use profiler_core::hash::KeyedMap;
use profiler_core::{
    CallTrie, Filter, Frame, FrameKind, NoStack, NodeId, Profile, State, StateSet, ThreadKind,
    Timestamp, Weight, WorkerId,
};

use crate::Queries;
use crate::QueryError;
use crate::error::echo;
use crate::parameters::parameter::Parameter;
use crate::parameters::params::Params;
use crate::parameters::time::format_time;
use crate::profiles::busy::{BusyPeriods, busy_in_tables, busy_seconds, check_count};
use crate::profiles::cycles::{Cycles, LongWindows};
use crate::profiles::profile::{ProfileQuery, sample_columns};
use crate::profiles::step_sums::{StepScan, Steps};
use crate::profiles::timeline::period_ns;
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use base::id_set::IdSet;
use base::limits::{PROFILE_SECONDS_MAX as SECONDS_MAX, THREAD_PROFILE_ROWS_MAX};
use base::sync::read;
use state::CollectorState;
use state::tree::{Excerpt, TopNode};
use state::windows::WindowSnapshot;
use store::{Batch, Column, SumTable, Tier};

/// Name of the leaf with time of which other threads of the task have the stacks too.
const NOT_TOLD_APART: &str = "[threads not told apart]";

/// The threads of a profile; without any names and ids, all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadFilter {
    names: Vec<String>,
    ids: Vec<u32>,
}

impl ThreadFilter {
    pub(crate) const PARAMETERS: [Parameter; 2] = [
        Parameter::text("thread", "pool-3", "Names of threads. Default: all.").repeated(),
        Parameter::integer(
            "thread_id",
            0..=u32::MAX as usize,
            None,
            "4711",
            "Ids of threads; 0 is short-lived ones. Default: all.",
        )
        .repeated(),
    ];

    pub(crate) fn parse(params: &Params<'_>) -> Result<ThreadFilter, QueryError> {
        let ids = params.many("thread_id")?.into_iter().map(|text| {
            let allowed = vec!["the number of a thread"];
            let form = QueryError::Form {
                name: "thread_id",
                value: echo(text),
                allowed,
            };
            text.parse().map_err(|_| form)
        });
        Ok(ThreadFilter {
            names: params
                .many("thread")?
                .into_iter()
                .map(str::to_owned)
                .collect(),
            ids: ids.collect::<Result<_, _>>()?,
        })
    }

    /// Whether it keeps every thread.
    pub(crate) fn is_all(&self) -> bool {
        self.names.is_empty() && self.ids.is_empty()
    }

    /// The threads in words; `None` for all.
    pub fn text(&self) -> Option<String> {
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
    /// The periods to read; `None` for all.
    shown: Option<BusyPeriods>,
    /// Whether rows were dropped for lack of room.
    omitted: bool,
    /// Lengths of the periods that are longer than a second, by start.
    long_periods: KeyedMap<Timestamp, u64>,
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
        self.samples
            .iter()
            .chain(&self.threads)
            .map(|row| row.node)
            .collect()
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

impl Queries<'_> {
    /// The profile of the query's threads, by second if the query is. Each second costs by its own stacks.
    pub(crate) fn profile_by_thread(
        &self,
        query: &ProfileQuery,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
        cycles: &Cycles,
        cancel: &Cancel,
    ) -> Result<Profile, QueryError> {
        if tops.is_empty() {
            return Ok(Profile::default());
        }
        let rows = self.read_rows(query, stored, view, tops, cancel)?;
        if !rows.long_periods.is_empty() && query.group.is_some() {
            return Err(QueryError::SecondsExpired);
        }
        let held = read(&self.tree).node_count();
        let unknown = rows
            .nodes()
            .iter()
            .filter(|node| *node >= held || *node == 0)
            .count();
        if unknown > 0 {
            return Err(QueryError::UnknownNodes {
                rows: unknown as u64,
            });
        }
        let mut parts = Vec::new();
        let long = cycles.long_windows(stored, period_ns(Tier::Second));
        for (start, sums) in rows.periods(self, query, &long)? {
            cancel.check()?;
            parts.push((format_time(start), self.period_profile(query, &sums)));
        }
        match query.group {
            Some(_) => {
                let parts = parts.iter().filter(|(_, part)| !part.is_empty());
                Ok(Profile::grouped(
                    parts.map(|(name, part)| (name.as_str(), part)),
                ))
            }
            None => Ok(parts.pop().map(|(_, part)| part).unwrap_or_default()),
        }
    }

    fn period_profile(&self, query: &ProfileQuery, sums: &PeriodSums) -> Profile {
        let excerpt = self.excerpt(sums.own.keys().chain(sums.shared.keys()).copied().collect());
        let of = |sums: &KeyedMap<u32, Weight>| {
            excerpt.profile(
                query.scope(),
                |node: NodeId| sums.get(&node.0).copied().unwrap_or_default(),
                query.form(),
            )
        };
        of(&sums.own).merge(&with_leaves(&of(&sums.shared)))
    }

    /// Reads the rows of the answer: of its tasks, and of the periods that it shows.
    fn read_rows(
        &self,
        query: &ProfileQuery,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
        cancel: &Cancel,
    ) -> Result<Rows, QueryError> {
        let limit = if query.group.is_some() {
            SECONDS_MAX
        } else {
            usize::MAX
        };
        let mut rows = Rows::default();
        if !query.threads.is_all() {
            busy_in_tables(stored, |stored| {
                let mut coarse = Rows::default();
                coarse.read_stored(SumTable::Threads, query, stored, tops)?;
                let found = coarse.busy(self, &query.threads);
                check_count(&found, limit)?;
                Ok(found)
            })?;
            rows.read(SumTable::Threads, query, stored, view, tops, cancel)?;
            let shown = rows.busy(self, &query.threads);
            check_count(&shown, limit)?;
            rows.shown = Some(shown);
        } else if query.group.is_some() {
            let numbers = stored.worker_numbers(&query.filter.workers);
            let nodes = query.phases.nodes(&self.tree);
            let scan = StepScan {
                tops,
                numbers: numbers.as_deref(),
                states: StateSet::ALL,
                nodes: nodes.as_deref(),
                groups: None,
                node_groups: None,
                long: None,
            };
            rows.shown = Some(busy_seconds(scan, stored, view, limit)?);
        }
        rows.read(SumTable::Samples, query, stored, view, tops, cancel)?;
        Ok(rows)
    }
}

/// When the time of a cell is shown.
#[derive(Clone, Copy)]
struct Shown {
    start: Timestamp,
    /// Length of its windows if they are spread over seconds, else 0.
    length_ns: u64,
}

/// The time of the selected threads in a period, by node of the tree.
#[derive(Default)]
struct PeriodSums {
    /// By stack.
    own: KeyedMap<u32, Weight>,
    /// By task or phase: time without stacks, because other threads have some of them.
    shared: KeyedMap<u32, Weight>,
}

impl Rows {
    /// The sums by second if the query is by second; otherwise of the whole range, as one period.
    fn periods(
        &self,
        state: &CollectorState,
        query: &ProfileQuery,
        long: &LongWindows,
    ) -> Result<BTreeMap<Timestamp, PeriodSums>, QueryError> {
        let seconds = Steps::new(query.range, period_ns(Tier::Second));
        let cells = self.shown_cells(query, long, &seconds)?;
        let each_second = |cell: u32, weight: Weight, add: &mut dyn FnMut(Timestamp, Weight)| {
            let Shown { start, length_ns } = cells[cell as usize];
            seconds.split(start, length_ns, &weight, |second, part| {
                add(seconds.start(second), part);
            });
        };
        let mut periods: BTreeMap<Timestamp, PeriodSums> = BTreeMap::new();
        let mut add_own = |row: &Row| {
            if let Some(state) = State::ALL.get(usize::from(row.state)) {
                let weight = Weight::of(*state, row.nanoseconds);
                each_second(row.cell, weight, &mut |start, part| {
                    let own = &mut periods.entry(start).or_default().own;
                    *own.entry(row.node).or_default() += part;
                });
            }
        };
        // Without a selection every stack is known.
        if query.threads.is_all() {
            self.samples.iter().for_each(add_own);
            return Ok(periods);
        }
        let excerpt = state.excerpt(self.nodes());
        let contexts = excerpt.contexts();
        let context = |row: &Row| contexts[excerpt.node(NodeId(row.node)).index()];
        let shares = shares(self, &excerpt, &query.threads, context);
        for row in &self.samples {
            let section: Section = (row.cell, context(row), row.state);
            if shares
                .get(&section)
                .is_some_and(|shares: &Shares| shares.selected_ns > 0 && shares.others_ns == 0)
            {
                add_own(row);
            }
        }
        let tree_ids = excerpt.tree_ids();
        for ((cell, context, state), shares) in &shares {
            if let (true, Some(state)) = (shares.others_ns > 0, State::ALL.get(usize::from(*state)))
            {
                let node = tree_ids[context.index()].0;
                let weight = Weight::of(*state, shares.selected_ns);
                each_second(*cell, weight, &mut |start, part| {
                    let shared = &mut periods.entry(start).or_default().shared;
                    *shared.entry(node).or_default() += part;
                });
            }
        }
        Ok(periods)
    }

    /// When each cell's time is shown: of a query by second, in all seconds of its windows.
    fn shown_cells(
        &self,
        query: &ProfileQuery,
        long: &LongWindows,
        seconds: &Steps,
    ) -> Result<Vec<Shown>, QueryError> {
        let whole = Shown {
            start: query.range.start(),
            length_ns: 0,
        };
        let mut cells = vec![whole; self.cells.len()];
        if query.group.is_none() {
            return Ok(cells);
        }
        let mut lengths = vec![0; self.workers.len()];
        for (worker, number) in &self.workers {
            lengths[*number as usize] = long.of(worker);
        }
        let mut shown = BTreeSet::new();
        for (cell, number) in self.cells.iter().filter(|(cell, _)| self.shows(cell.start)) {
            let start = cell.start;
            let length_ns = lengths[cell.worker as usize];
            cells[*number as usize] = Shown { start, length_ns };
            if shown.len() <= SECONDS_MAX {
                shown.extend(seconds.touched(start, length_ns).take(SECONDS_MAX + 1));
            }
        }
        if shown.len() > SECONDS_MAX {
            return Err(QueryError::Seconds { limit: SECONDS_MAX });
        }
        let parts: usize = self
            .samples
            .iter()
            .chain(&self.threads)
            .map(|row| cells[row.cell as usize])
            .map(|cell| seconds.touched(cell.start, cell.length_ns).count())
            .sum();
        if parts > THREAD_PROFILE_ROWS_MAX {
            let limit = THREAD_PROFILE_ROWS_MAX;
            return Err(QueryError::Groups { limit });
        }
        Ok(cells)
    }

    /// The periods in which any of the selected threads has time.
    fn busy(&self, state: &CollectorState, threads: &ThreadFilter) -> BusyPeriods {
        let held = read(&state.tree).node_count();
        let known = self.nodes().iter().filter(|node| *node < held).collect();
        let excerpt = state.excerpt(known);
        let mut is_selected = selection(&excerpt, threads);
        let rows = self.threads.iter().filter(|row| row.node < held);
        let selected: IdSet = rows
            .filter(|row| is_selected(row.node))
            .map(|row| row.cell)
            .collect();
        let mut found = BusyPeriods::default();
        for (cell, number) in &self.cells {
            if selected.contains(*number) {
                let length_ns = self.long_periods.get(&cell.start).copied();
                found.add(cell.start, length_ns.unwrap_or(period_ns(Tier::Second)));
            }
        }
        found
    }

    /// Reads a table, of the tasks `tops` and of the periods that are shown.
    fn read(
        &mut self,
        table: SumTable,
        query: &ProfileQuery,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
        cancel: &Cancel,
    ) -> Result<(), QueryError> {
        for window in &view.windows {
            cancel.check()?;
            let start = window.second().start();
            if !self.shows(start) {
                continue;
            }
            let worker = self.worker(&window.worker);
            let cell = self.cell(worker, start);
            let weights = if table == SumTable::Threads {
                &window.threads
            } else {
                &window.samples
            };
            let is_kept = |task| tops.binary_search_by_key(&task, |top| top.node).is_ok();
            for part in weights.parts().filter(|part| is_kept(part.task)) {
                for (node, nanoseconds) in part.entries() {
                    let state = part.state as u8;
                    self.add(
                        table,
                        Row {
                            cell,
                            node: node.0,
                            state,
                            nanoseconds,
                        },
                    );
                }
            }
        }
        self.read_stored(table, query, stored, tops)
    }

    /// Reads a table's rows in files.
    fn read_stored(
        &mut self,
        table: SumTable,
        query: &ProfileQuery,
        stored: &mut TableReader<'_>,
        tops: &[TopNode],
    ) -> Result<(), QueryError> {
        let numbers = stored.worker_numbers(&query.filter.workers);
        let workers: Vec<u32> = stored
            .all_workers()
            .iter()
            .map(|worker| self.worker(worker))
            .collect();
        let tasks: Vec<NodeId> = tops.iter().map(|top| top.node).collect();
        let (narrow, _) = sample_columns(&query.filter, tops, true);
        let columns = &[Column::Task, Column::Worker, Column::Kind, Column::Node];
        let asked = ScanFilter {
            tasks: narrow.as_deref(),
            workers: numbers.as_deref(),
            columns,
            sums_only: false,
        };
        stored.scan_while(
            |_| table,
            asked,
            |batch, asked_rows| {
                // Rows of a task are neighbors.
                let mut last = (0, false);
                asked_rows.each(|index| {
                    let task = batch.task[index];
                    if last.0 != task {
                        last = (task, tasks.binary_search(&NodeId(task)).is_ok());
                    }
                    let start = asked_rows.start(index);
                    let number = batch.worker[index].checked_sub(1);
                    let worker = number.and_then(|number| workers.get(number as usize));
                    if let (true, true, Some(worker)) = (last.1, self.shows(start), worker) {
                        if !asked_rows.are_seconds() {
                            self.long_periods.insert(start, asked_rows.period_ns());
                        }
                        self.add_stored(table, *worker, start, batch, index);
                    }
                });
                if self.omitted {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
        if self.omitted {
            return Err(QueryError::Groups {
                limit: THREAD_PROFILE_ROWS_MAX,
            });
        }
        Ok(())
    }

    fn shows(&self, start: Timestamp) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.has(start))
    }

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
        self.add(
            table,
            Row {
                cell,
                node,
                state,
                nanoseconds: batch.values[index],
            },
        );
    }
}

/// Whether a node of the tree is that of a selected thread. Each is looked up once.
fn selection(excerpt: &Excerpt, threads: &ThreadFilter) -> impl FnMut(u32) -> bool {
    let mut known: KeyedMap<u32, bool> = KeyedMap::default();
    move |node| {
        *known.entry(node).or_insert_with(|| {
            let frame = excerpt
                .path(excerpt.node(NodeId(node)))
                .next()
                .map(|frame| excerpt.frame(frame));
            let thread = frame.filter(|frame| frame.kind == FrameKind::Thread);
            thread.is_some_and(|thread| threads.keeps(thread.function, thread.line))
        })
    }
}

/// The time of the selected threads and of the others, by section.
fn shares(
    rows: &Rows,
    excerpt: &Excerpt,
    threads: &ThreadFilter,
    context: impl Fn(&Row) -> NodeId,
) -> KeyedMap<Section, Shares> {
    let mut is_selected = selection(excerpt, threads);
    let mut shares: KeyedMap<Section, Shares> = KeyedMap::default();
    for row in &rows.threads {
        let selected = is_selected(row.node);
        let share = shares
            .entry((row.cell, context(row), row.state))
            .or_default();
        let sum = if selected {
            &mut share.selected_ns
        } else {
            &mut share.others_ns
        };
        *sum = sum.saturating_add(row.nanoseconds);
    }
    shares
}

/// The profile with its nodes' own time in leaves that say why there are no stacks.
fn with_leaves(profile: &Profile) -> Profile {
    let mut symbols = profile.symbols().clone();
    let leaf = Frame {
        function: NOT_TOLD_APART,
        ..Frame::no_stack(NoStack::NotSampled)
    };
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
    let all = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    Profile::collect(&symbols, &trie, [&delta], &all)
}
