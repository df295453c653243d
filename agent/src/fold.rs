//! The folder: a low-priority thread that gives the sampler's addresses their names, collects what
//! the task guards wrote, and hands whole cycles on.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_core::wire::Stacks;
use profiler_core::{
    Delta, Frame, FrameId, NodeId, TaskId, TaskRecord, ThreadNow, Ticks, TimeRange, Timestamp,
};
use rustc_hash::FxHashSet;

use crate::clock;
use crate::control::Control;
use crate::cycle::{SealedCycle, StacksNow, Tables};
use crate::registry::{self, TaskRow};
use crate::sampler::addresses::{AddressFrame, CodeModule, Growth};
use crate::sampler::{
    Costs, RawCycle, RawStacks, RawThread, SamplerOptions, thread_cpu_ns, thread_name,
};
use crate::symbols::Resolver;
use crate::sync::lock;
use crate::threads;

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

    /// Takes what every thread was doing, whose nodes went out before; must not wait.
    fn stacks(&mut self, stacks: StacksNow) {
        // Who has nobody to ask gets no answers.
        drop(stacks);
    }
}

/// The folder's state.
pub(crate) struct Folder {
    cycle_ns: u64,
    tables: Arc<Mutex<Tables>>,
    control: Arc<Control>,
    /// By the sampler's frame: the frames it stands for, outermost first.
    frames: Vec<Vec<FrameId>>,
    /// By the sampler's node: ours.
    nodes: Vec<NodeId>,
    tasks: BTreeMap<TaskId, TaskRecord>,
    /// Ends that were written by another thread than the start, held back for one drain.
    moved_ends: Vec<TaskRecord>,
    lost_tasks: u64,
    cycles_without_code: u32,
    /// Modules that the resolver has seen.
    modules: FxHashSet<Arc<CodeModule>>,
    resolver: Resolver,
    costs: Arc<Costs>,
}

impl Folder {
    pub(crate) fn new(
        options: SamplerOptions,
        tables: Arc<Mutex<Tables>>,
        costs: Arc<Costs>,
        control: Arc<Control>,
    ) -> Self {
        Folder {
            cycle_ns: options.cycle_ns,
            tables,
            control,
            frames: Vec::new(),
            nodes: vec![NodeId::ROOT],
            tasks: BTreeMap::new(),
            moved_ends: Vec::new(),
            lost_tasks: 0,
            cycles_without_code: 0,
            modules: FxHashSet::default(),
            resolver: Resolver::default(),
            costs,
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
                    if let Some(stacks) = raw.stacks {
                        sink.stacks(self.stacks(stacks));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.drain();
                    // Without samples the ledger goes on.
                    let due = clock::now().since_ns(stop) >= self.cycle_ns;
                    if due && !self.control.is_enabled() {
                        stop = self.push_tasks(stop, sink);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Twice, for the ends that the first time holds back; what comes later has no second time.
        self.drain();
        self.drain();
        for record in std::mem::take(&mut self.moved_ends) {
            self.keep(record);
        }
        self.push_tasks(stop, sink);
    }

    /// Sends what the guards wrote since `start`, if anything, without samples. Gives until when.
    fn push_tasks(&mut self, start: Timestamp, sink: &mut dyn Sink) -> Timestamp {
        let now = clock::now();
        let anything = !self.tasks.is_empty() || self.lost_tasks > 0;
        if anything && let Some(range) = TimeRange::new(start, now) {
            // A cycle of tasks alone expects no ticks.
            sink.push(self.sealed(range, Delta::default(), 1, Ticks::default()));
        }
        now
    }

    fn fold(&mut self, raw: &RawCycle) -> SealedCycle {
        let range = TimeRange::new(clock::at(raw.start_ns), clock::at(raw.stop_ns))
            .expect("the sampler seals no empty cycle");
        let id = threads::own_id();
        let cpu_ns = || thread_cpu_ns(id).unwrap_or(0);
        let before = cpu_ns();
        self.name_frames(&raw.growth);
        self.costs.add_naming(cpu_ns().saturating_sub(before));
        self.add_nodes(&raw.growth);
        let nodes = &self.nodes;
        // What the user filters away is not lost: it is as if it had not been sampled.
        let entries = raw.growth.delta.entries().iter();
        let wanted = entries.filter(|(_, state, _)| raw.states.contains(*state));
        let delta =
            wanted.map(|(node, state, time)| (nodes[node.index()], *state, *time)).collect();
        self.sealed(range, delta, raw.quantum_ns, raw.ticks)
    }

    fn sealed(
        &mut self,
        range: TimeRange,
        delta: Delta,
        quantum_ns: u64,
        ticks: Ticks,
    ) -> SealedCycle {
        SealedCycle {
            range,
            delta,
            quantum_ns,
            ticks,
            tasks: std::mem::take(&mut self.tasks).into_values().collect(),
            lost_tasks: std::mem::take(&mut self.lost_tasks),
            lost_queue_ns: 0,
        }
    }

    /// Gives threads their names, as they are now, and their nodes ours.
    fn stacks(&self, raw: RawStacks) -> StacksNow {
        let thread = |thread: RawThread| ThreadNow {
            thread_id: thread.id,
            name: thread_name(thread.id).into(),
            node: thread.last.map_or(NodeId::ROOT, |last| self.nodes[last.node.index()]),
            state: thread.last.map(|last| last.state),
            seen_ago_ns: thread.seen_ago_ns,
            there_ns: thread.there_ns,
        };
        let threads = raw.threads.into_iter().map(thread).collect();
        StacksNow { number: raw.number, stacks: Stacks { threads, left_out: raw.left_out } }
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
    ///
    /// A task that moved has its start in one thread's ring and its end in another's, and the end's
    /// ring may be emptied just before the start is written to its own. The start was written before
    /// the end, so when all rings have been emptied once more it has been seen: until then the end is
    /// held back, or the start would overwrite it and the task would seem to run for ever.
    fn drain(&mut self) {
        let due = std::mem::take(&mut self.moved_ends);
        let mut moved_ends = Vec::new();
        let lost = registry::drain_rows(|cell, row| {
            let moved = !Arc::ptr_eq(&row.thread, &cell.thread);
            let record = record_of(row);
            if moved && moved_ends.len() < CYCLE_TASKS_MAX {
                moved_ends.push(record);
            } else {
                self.keep(record);
            }
        });
        self.moved_ends = moved_ends;
        self.lost_tasks += lost;
        for record in due {
            self.keep(record);
        }
    }

    fn keep(&mut self, record: TaskRecord) {
        if self.tasks.len() >= CYCLE_TASKS_MAX && !self.tasks.contains_key(&record.id) {
            self.lost_tasks += 1;
            return;
        }
        lock(&self.tables).symbols.intern_string(&record.name);
        self.tasks.insert(record.id, record);
    }
}

fn record_of(row: TaskRow) -> TaskRecord {
    TaskRecord {
        id: row.id,
        name: registry::name(row.name),
        key: row.key,
        thread_id: row.thread.id,
        thread_name: row.thread.name.clone(),
        parent: row.parent,
        start: row.start,
        stop: row.stop,
        outcome: row.outcome,
        cause: row.cause,
    }
}
