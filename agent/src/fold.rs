//! The folder: a low-priority thread that gives the sampler's addresses their names, collects what
//! the task guards wrote, and hands whole cycles on.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_core::{Delta, Frame, FrameId, NodeId, TaskId, TaskRecord, TimeRange};
use rustc_hash::FxHashSet;

use crate::clock;
use crate::cycle::{SealedCycle, Tables};
use crate::registry::{self, TaskRow, ThreadCell};
use crate::sampler::addresses::{AddressFrame, CodeModule, Growth};
use crate::sampler::{RawCycle, SamplerOptions};
use crate::symbols::Resolver;
use crate::sync::lock;

/// How often the threads' rings are emptied while no cycle comes.
const DRAIN_EVERY: Duration = Duration::from_millis(25);
/// Cycles without a new address after which the resolver's tables are given back.
const RELEASE_AFTER_CYCLES: u32 = 30;
/// Most rows of tasks that are kept for one cycle; what comes after is counted as lost.
const CYCLE_TASKS_MAX: usize = 200_000;

/// Where cycles go.
pub(crate) trait Sink: Send {
    /// Takes a cycle; must not wait.
    fn push(&mut self, cycle: SealedCycle);
}

/// The folder's state.
pub(crate) struct Folder {
    options: SamplerOptions,
    tables: Arc<Mutex<Tables>>,
    /// By the sampler's frame: the frames it stands for, outermost first.
    frames: Vec<Vec<FrameId>>,
    /// By the sampler's node: ours.
    nodes: Vec<NodeId>,
    tasks: BTreeMap<TaskId, TaskRecord>,
    lost_tasks: u64,
    cycles_without_code: u32,
    /// Modules that the resolver has seen.
    modules: FxHashSet<Arc<CodeModule>>,
    resolver: Resolver,
}

impl Folder {
    pub(crate) fn new(options: SamplerOptions, tables: Arc<Mutex<Tables>>) -> Self {
        Folder {
            options,
            tables,
            frames: Vec::new(),
            nodes: vec![NodeId::ROOT],
            tasks: BTreeMap::new(),
            lost_tasks: 0,
            cycles_without_code: 0,
            modules: FxHashSet::default(),
            resolver: Resolver::default(),
        }
    }

    /// Folds until the sampler is gone; then what the guards wrote last goes out with one more
    /// cycle.
    pub(crate) fn run(mut self, cycles: &Receiver<RawCycle>, sink: &mut dyn Sink) {
        let mut stop = clock::now();
        loop {
            match cycles.recv_timeout(DRAIN_EVERY) {
                Ok(raw) => {
                    stop = clock::at(raw.stop_ns);
                    self.drain();
                    sink.push(self.fold(&raw));
                }
                Err(RecvTimeoutError::Timeout) => self.drain(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.drain();
        let anything = !self.tasks.is_empty() || self.lost_tasks > 0;
        if anything && let Some(range) = TimeRange::new(stop, clock::now()) {
            sink.push(self.sealed(range, Delta::default(), 0));
        }
    }

    fn fold(&mut self, raw: &RawCycle) -> SealedCycle {
        let range = TimeRange::new(clock::at(raw.start_ns), clock::at(raw.stop_ns))
            .expect("the sampler seals no empty cycle");
        self.name_frames(&raw.growth);
        self.add_nodes(&raw.growth);
        let nodes = &self.nodes;
        let pairs = raw.growth.delta.pairs();
        let delta = pairs.iter().map(|(node, weight)| (nodes[node.index()], *weight)).collect();
        self.sealed(range, delta, raw.ticks)
    }

    fn sealed(&mut self, range: TimeRange, delta: Delta, ticks: u64) -> SealedCycle {
        let interval = self.options.interval_ns;
        SealedCycle {
            range,
            delta,
            quantum_ns: self.options.quantum_ns(),
            ticks,
            // A cycle of tasks alone expects no ticks.
            ticks_expected: if ticks == 0 {
                0
            } else {
                (range.length_ns() + interval / 2) / interval
            },
            tasks: std::mem::take(&mut self.tasks).into_values().collect(),
            lost_tasks: std::mem::take(&mut self.lost_tasks),
            lost_queue_ns: 0,
        }
    }

    /// Resolves new frames. The slow part runs without the tables' lock.
    fn name_frames(&mut self, growth: &Growth) {
        self.cycles_without_code = self.cycles_without_code.saturating_add(1);
        if self.cycles_without_code == RELEASE_AFTER_CYCLES {
            self.resolver.release();
        }
        let mut new_module = false;
        for frame in &growth.frames {
            if let AddressFrame::Code { module, .. } = frame {
                self.cycles_without_code = 0;
                new_module |= module.iter().any(|module| self.modules.insert(module.clone()));
            }
        }
        if new_module {
            // The resolver keeps the list of modules that it found first. Once a cycle, for what it
            // lets go of takes long to read again.
            self.resolver.release();
        }
        for frame in &growth.frames {
            let named = self.names_of(frame);
            let mut tables = lock(&self.tables);
            let ids = named.iter().map(|frame| tables.symbols.intern(frame)).collect();
            self.frames.push(ids);
        }
    }

    /// The frames that one of the sampler's stands for, outermost first; never none.
    fn names_of(&mut self, frame: &AddressFrame) -> Vec<Frame<String>> {
        let one = |frame: Frame<&str>| vec![frame.map(str::to_owned)];
        match frame {
            AddressFrame::Task(name) => one(Frame::task(&registry::name(*name))),
            AddressFrame::NoTask => one(Frame::no_task()),
            AddressFrame::Agent => one(Frame::agent()),
            AddressFrame::Truncated => one(Frame::truncated()),
            AddressFrame::Overflow => one(Frame::overflow()),
            AddressFrame::Sampler => one(Frame::function("emberline sampler thread", "", 0)),
            AddressFrame::Code { address, module } => {
                self.resolver.resolve(*address, module.as_deref())
            }
        }
    }

    fn add_nodes(&mut self, growth: &Growth) {
        let mut tables = lock(&self.tables);
        let Tables { symbols, trie } = &mut *tables;
        for (parent, frame) in &growth.nodes {
            let parent = self.nodes[parent.index()];
            let path = &self.frames[frame.0 as usize];
            let node = path
                .iter()
                .fold(parent, |node, frame| trie.insert_or_overflow(node, *frame, symbols));
            self.nodes.push(node);
        }
    }

    /// Takes what the guards wrote. A task that started and stopped meanwhile becomes one record.
    fn drain(&mut self) {
        let Folder { tables, tasks, lost_tasks, .. } = self;
        let mut dropped = 0;
        let lost = registry::drain_rows(|cell, row| {
            if tasks.len() >= CYCLE_TASKS_MAX && !tasks.contains_key(&row.id) {
                dropped += 1;
                return;
            }
            let record = record_of(cell, row);
            lock(tables).symbols.intern_string(&record.name);
            tasks.insert(record.id, record);
        });
        *lost_tasks += lost + dropped;
    }
}

fn record_of(cell: &ThreadCell, row: TaskRow) -> TaskRecord {
    TaskRecord {
        id: row.id,
        name: registry::name(row.name),
        key: row.key,
        thread_id: cell.thread_id,
        thread_name: cell.thread_name.clone(),
        parent: row.parent,
        start: row.start,
        stop: row.stop,
        outcome: row.outcome,
        cause: row.cause,
    }
}
