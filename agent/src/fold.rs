//! The folder: a low-priority thread that gives the sampler's addresses their names, collects what
//! the task guards wrote, and hands whole cycles on.

use std::borrow::Cow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_core::wire::ThreadDump;
use profiler_core::{
    Delta, Frame, FrameId, FrameKind, NodeId, ThreadSnapshot, Ticks, TimeRange, Timestamp,
};
use rustc_hash::FxHashSet;

use crate::clock;
use crate::control::Control;
use crate::cycle::{SealedCycle, StacksNow, Tables};
use crate::ledger::{Ended, Ledger};
use crate::registry;
use crate::sampler::addresses::{AddressFrame, CodeModule, Growth};
use crate::sampler::{Costs, OTHER_THREADS, RawCycle, RawStacks, RawThread, SamplerOptions};
use crate::symbols::Resolver;
use crate::sync::lock;
use crate::sys::process::{thread_cpu_ns, thread_name};
use crate::telemetry::collect::TelemetryCollector;
use crate::threads;

/// How often the threads' rings are emptied while no cycle comes.
const DRAIN_EVERY: Duration = Duration::from_millis(25);
/// Cycles without a new address after which the resolver's tables are given back.
const RELEASE_AFTER_CYCLES: u32 = 30;

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
    ledger: Ledger,
    telemetry: TelemetryCollector,
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
            ledger: Ledger::new(options.task_rows_per_second),
            telemetry: TelemetryCollector::new(options.resource_interval),
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
            self.telemetry.sample_resources();
            match cycles.recv_timeout(DRAIN_EVERY) {
                Ok(raw) => {
                    stop = clock::at(raw.stop_ns);
                    // Twice, for the ends that the first time holds back.
                    self.ledger.drain();
                    self.empty_rings();
                    sink.push(self.fold(&raw));
                    if let Some(stacks) = raw.stacks {
                        sink.stacks(self.stacks(stacks));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.empty_rings();
                    // Without samples the ledger and what else is told go on.
                    let due = clock::now().since_ns(stop) >= self.cycle_ns;
                    if due && !self.control.is_enabled() {
                        stop = self.push_records(stop, sink);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // What comes after the second time has no third.
        self.ledger.drain();
        self.ledger.drain();
        self.ledger.settle_all();
        self.telemetry.drain();
        self.telemetry.sample_resources_last();
        self.push_records(stop, sink);
    }

    /// Takes what the threads told, before their rings are full.
    fn empty_rings(&mut self) {
        self.ledger.drain();
        self.telemetry.drain();
    }

    /// Sends what was told and measured since `start`, if anything, without samples. Gives until when.
    fn push_records(&mut self, start: Timestamp, sink: &mut dyn Sink) -> Timestamp {
        let now = clock::now();
        let anything = self.ledger.has_news() || !self.telemetry.is_empty();
        if anything && let Some(range) = TimeRange::new(start, now) {
            // A cycle without samples expects no ticks.
            sink.push(self.sealed(range, Default::default(), 1, Ticks::default()));
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
        let of_ours = |delta: &Delta| -> Delta {
            let wanted = delta.entries().iter().filter(|(_, state, _)| raw.states.contains(*state));
            wanted.map(|(node, state, time)| (nodes[node.index()], *state, *time)).collect()
        };
        let counted = (of_ours(&raw.growth.delta), of_ours(&raw.growth.threads));
        self.sealed(range, counted, raw.quantum_ns, raw.ticks)
    }

    fn sealed(
        &mut self,
        range: TimeRange,
        (delta, threads): (Delta, Delta),
        quantum_ns: u64,
        ticks: Ticks,
    ) -> SealedCycle {
        let (records, lost_telemetry) = self.telemetry.take();
        let Ended { tasks, totals, lost_tasks, aggregated_tasks } = self.ledger.seal();
        SealedCycle {
            range,
            delta,
            threads,
            quantum_ns,
            ticks,
            tasks,
            totals,
            records,
            lost_tasks,
            lost_telemetry,
            aggregated_tasks,
            lost_queue_ns: 0,
        }
    }

    /// Gives threads their names, as they are now, and their nodes ours.
    fn stacks(&self, raw: RawStacks) -> StacksNow {
        let thread = |thread: RawThread| ThreadSnapshot {
            thread_id: thread.id,
            name: thread_name(thread.id).into(),
            node: thread.last.map_or(NodeId::ROOT, |last| self.nodes[last.place.node.index()]),
            state: thread.last.map(|last| last.state),
            age_ns: thread.age_ns,
            blocked_ns: thread.blocked_ns,
        };
        let threads = raw.threads.into_iter().map(thread).collect();
        StacksNow { number: raw.number, stacks: ThreadDump { threads, omitted: raw.omitted } }
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
        let mut emptied = clock::now();
        for frame in &growth.frames {
            // The first cycle's names take seconds, in which the threads go on telling and samples of
            // resources are due.
            self.telemetry.sample_resources();
            let now = clock::now();
            if now.since_ns(emptied) >= DRAIN_EVERY.as_nanos() as u64 {
                self.empty_rings();
                emptied = now;
            }
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
            AddressFrame::Phase(name) => one(Frame::phase(&registry::name(*name))),
            AddressFrame::NoTask => one(Frame::no_task()),
            AddressFrame::Agent => one(Frame::agent()),
            AddressFrame::Thread { name, id } => one(Frame::thread(&name_by_now(name, *id), *id)),
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
            let is_thread = |frame: FrameId| symbols.frame(frame).kind == FrameKind::Thread;
            let node = match path[..] {
                // A thread stays one where the tree is full: at most one more node for each parent.
                [thread] if is_thread(thread) => trie.insert(parent, thread).unwrap_or_else(|_| {
                    let others = symbols.intern(&Frame::thread(OTHER_THREADS, 0));
                    trie.insert_past_limit(parent, others)
                }),
                _ => path
                    .iter()
                    .fold(parent, |node, frame| trie.insert_or_overflow(node, *frame, symbols)),
            };
            self.nodes.push(node);
        }
    }
}

/// A thread's name at the end of the cycle in which it was first seen: threads name themselves, and one that
/// waits for its first processor still has the name of who started it. That of threads that are gone, or
/// counted together, is what it was.
fn name_by_now(name: &str, id: u32) -> Cow<'_, str> {
    let now = if id == 0 { String::new() } else { thread_name(id) };
    if now.is_empty() { name.into() } else { now.into() }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_are_called_what_they_call_themselves_by_the_end_of_the_cycle() {
        let named = thread::Builder::new().name("pool-7".into());
        let check = || {
            assert_eq!(name_by_now("starter", threads::own_id()), "pool-7");
            assert_eq!(name_by_now("pool-6", 0), "pool-6", "threads that are counted together");
        };
        named.spawn(check).unwrap().join().unwrap();
        // Numbers of threads are smaller.
        assert_eq!(name_by_now("gone", u32::MAX), "gone");
    }
}
