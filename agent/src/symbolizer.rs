//! The symbolizer: a low-priority thread that turns the sampler's addresses into names, drains the
//! rings of the task guards, and hands whole cycles to a [`Sink`].

use std::borrow::Cow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_core::wire::ThreadDump;
use profiler_core::{
    Delta, Frame, FrameId, FrameKind, NodeId, ThreadSnapshot, Ticks, TimeRange, Timestamp,
};
use rustc_hash::FxHashSet;

use crate::batch::{Batch, Span};
use crate::clock;
use crate::control::{Control, ThreadDumpReply};
use crate::ledger::{Ledger, SealedTasks};
use crate::registry;
use crate::sampler::{
    AddressFrame, CodeModule, OTHER_THREADS, OverheadCounters, RawCycle, RawThread, RawThreadDump,
    SamplerOptions, TreeDelta,
};
use crate::symbols::Resolver;
use crate::sync::lock;
use crate::sys::process::{thread_cpu_ns, thread_name};
use crate::tables::Tables;
use crate::telemetry::collect::TelemetryCollector;
use crate::threads;

/// How often the threads' rings are drained while no cycle arrives.
const DRAIN_INTERVAL: Duration = Duration::from_millis(25);
/// Cycles without a new address after which the resolver's tables are freed.
const RELEASE_AFTER_CYCLES: u32 = 30;

/// The destination of cycles.
pub(crate) trait Sink: Send {
    /// Takes a cycle; must not block.
    fn push(&mut self, batch: Batch);

    /// Takes a thread dump, whose nodes were in earlier cycles; must not block. The default drops
    /// it: nobody can request one.
    fn thread_dump(&mut self, reply: ThreadDumpReply) {
        drop(reply);
    }
}

/// The symbolizer's state.
pub(crate) struct Symbolizer {
    cycle_ns: u64,
    tables: Arc<Mutex<Tables>>,
    control: Arc<Control>,
    /// By the sampler's frame: the frames that it stands for, outermost first.
    frames: Vec<Vec<FrameId>>,
    /// By the sampler's node: the node in `tables`.
    nodes: Vec<NodeId>,
    ledger: Ledger,
    telemetry: TelemetryCollector,
    cycles_without_code: u32,
    /// Modules that the resolver has loaded.
    modules: FxHashSet<Arc<CodeModule>>,
    resolver: Resolver,
    overhead: Arc<OverheadCounters>,
}

impl Symbolizer {
    pub(crate) fn new(
        options: SamplerOptions,
        tables: Arc<Mutex<Tables>>,
        overhead: Arc<OverheadCounters>,
        control: Arc<Control>,
    ) -> Self {
        Symbolizer {
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
            overhead,
        }
    }

    /// Runs until the sampler is gone, then sends the guards' last rows in one more batch.
    pub(crate) fn run(mut self, cycles: &Receiver<RawCycle>, sink: &mut dyn Sink) {
        let mut stop = clock::now();
        loop {
            self.telemetry.sample_resources();
            match cycles.recv_timeout(DRAIN_INTERVAL) {
                Ok(raw) => {
                    stop = clock::at(raw.stop_ns);
                    // Twice, because a drain delays the ends of tasks until the next one.
                    self.ledger.drain();
                    self.drain_rings();
                    sink.push(self.symbolize(&raw));
                    if let Some(dump) = raw.dump {
                        sink.thread_dump(self.thread_dump(dump));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.drain_rings();
                    // While sampling is off, tasks and telemetry still go out.
                    let due = clock::now().since_ns(stop) >= self.cycle_ns;
                    if due && !self.control.is_enabled() {
                        stop = self.push_without_samples(stop, sink);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Twice, so that delayed ends are finished; later rows have no further drain.
        self.ledger.drain();
        self.ledger.drain();
        self.ledger.finish_all();
        self.telemetry.drain();
        self.telemetry.sample_resources_last();
        self.push_without_samples(stop, sink);
    }

    /// Drains the threads' rings before they fill up.
    fn drain_rings(&mut self) {
        self.ledger.drain();
        self.telemetry.drain();
    }

    /// Sends the tasks and telemetry since `start`, if any. Returns the end of the covered time.
    fn push_without_samples(&mut self, start: Timestamp, sink: &mut dyn Sink) -> Timestamp {
        let now = clock::now();
        let anything = self.ledger.has_changes() || !self.telemetry.is_empty();
        if anything && let Some(range) = TimeRange::new(start, now) {
            // Without samples no ticks are expected.
            let span = Span { range, quantum_ns: 1, ticks: Ticks::default() };
            sink.push(self.with_rows(Batch::of_samples(span, Delta::default(), Delta::default())));
        }
        now
    }

    fn symbolize(&mut self, raw: &RawCycle) -> Batch {
        let range = TimeRange::new(clock::at(raw.start_ns), clock::at(raw.stop_ns))
            .expect("the sampler seals no empty cycle");
        let thread_id = threads::own_id();
        let cpu_ns = || thread_cpu_ns(thread_id).unwrap_or(0);
        let before = cpu_ns();
        self.name_frames(&raw.tree);
        self.overhead.add_naming(cpu_ns().saturating_sub(before));
        self.add_nodes(&raw.tree);
        let nodes = &self.nodes;
        // States that the user filters out do not count as lost: they were not sampled.
        let translate = |delta: &Delta| -> Delta {
            let entries = delta.entries().iter();
            let wanted = entries.filter(|(_, state, _)| raw.states.contains(*state));
            wanted.map(|(node, state, time)| (nodes[node.index()], *state, *time)).collect()
        };
        let delta = translate(&raw.tree.delta);
        let threads = translate(&raw.tree.threads);
        let span = Span { range, quantum_ns: raw.quantum_ns, ticks: raw.ticks };
        self.with_rows(Batch::of_samples(span, delta, threads))
    }

    /// Adds the tasks and telemetry since the last batch.
    fn with_rows(&mut self, samples: Batch) -> Batch {
        let (telemetry, lost_telemetry) = self.telemetry.take();
        let SealedTasks { tasks, totals, lost_tasks, aggregated_tasks } = self.ledger.seal();
        Batch { tasks, totals, telemetry, aggregated_tasks, lost_tasks, lost_telemetry, ..samples }
    }

    /// Translates a thread dump: current names of threads, and nodes of `tables`.
    fn thread_dump(&self, raw: RawThreadDump) -> ThreadDumpReply {
        let thread = |thread: RawThread| ThreadSnapshot {
            thread_id: thread.id,
            name: thread_name(thread.id).into(),
            node: thread
                .last
                .map_or(NodeId::ROOT, |last| self.nodes[last.attribution.node.index()]),
            state: thread.last.map(|last| last.state),
            age_ns: thread.age_ns,
            blocked_ns: thread.blocked_ns,
        };
        let threads = raw.threads.into_iter().map(thread).collect();
        let dump = ThreadDump { threads, omitted: raw.omitted };
        ThreadDumpReply { request: raw.request, dump }
    }

    /// Resolves new frames. The slow part runs without the tables' lock.
    fn name_frames(&mut self, tree: &TreeDelta) {
        self.cycles_without_code = self.cycles_without_code.saturating_add(1);
        if self.cycles_without_code == RELEASE_AFTER_CYCLES {
            self.resolver.release();
        }
        let mut new_module = false;
        for frame in &tree.frames {
            if let AddressFrame::Code { module, .. } = frame {
                self.cycles_without_code = 0;
                new_module |= module.iter().any(|module| self.modules.insert(module.clone()));
            }
        }
        if new_module {
            // The resolver keeps the list of modules that it loaded first. Reloading is slow, so it
            // happens once a cycle at most.
            self.resolver.release();
        }
        let mut drained = clock::now();
        for frame in &tree.frames {
            // Naming the frames of the first cycle takes seconds; meanwhile rings fill up and
            // resource samples are due.
            self.telemetry.sample_resources();
            let now = clock::now();
            if now.since_ns(drained) >= DRAIN_INTERVAL.as_nanos() as u64 {
                self.drain_rings();
                drained = now;
            }
            let named = self.names_of(frame);
            let mut tables = lock(&self.tables);
            let ids = named.iter().map(|frame| tables.symbols.intern(frame)).collect();
            self.frames.push(ids);
        }
    }

    /// The frames that one frame of the sampler stands for, outermost first; at least one.
    fn names_of(&mut self, frame: &AddressFrame) -> Vec<Frame<String>> {
        let one = |frame: Frame<&str>| vec![frame.map(str::to_owned)];
        match frame {
            AddressFrame::Task(name) => one(Frame::task(&registry::name(*name))),
            AddressFrame::Phase(name) => one(Frame::phase(&registry::name(*name))),
            AddressFrame::NoTask => one(Frame::no_task()),
            AddressFrame::Agent => one(Frame::agent()),
            AddressFrame::Thread { name, id } => {
                one(Frame::thread(&current_thread_name(name, *id), *id))
            }
            AddressFrame::Truncated => one(Frame::truncated()),
            AddressFrame::Overflow => one(Frame::overflow()),
            AddressFrame::Sampler => one(Frame::function("emberline sampler thread", "", 0)),
            AddressFrame::Code { address, module } => {
                self.resolver.resolve(*address, module.as_deref())
            }
        }
    }

    fn add_nodes(&mut self, tree: &TreeDelta) {
        let mut tables = lock(&self.tables);
        let Tables { symbols, trie } = &mut *tables;
        for (parent, frame) in &tree.nodes {
            let parent = self.nodes[parent.index()];
            let path = &self.frames[frame.0 as usize];
            let is_thread = |frame: FrameId| symbols.frame(frame).kind == FrameKind::Thread;
            let node = match path[..] {
                // A thread stays a thread when the tree is full: at most one more node per parent.
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

/// A thread's name at the end of the cycle in which it was first seen. Threads set their own names,
/// and until one first runs it has the name of its creator. Threads that are gone or counted
/// together keep the name that the sampler saw.
fn current_thread_name(name: &str, id: u32) -> Cow<'_, str> {
    let current = if id == 0 { String::new() } else { thread_name(id) };
    if current.is_empty() { name.into() } else { current.into() }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_has_the_name_that_it_set_by_the_end_of_the_cycle() {
        let named = thread::Builder::new().name("pool-7".into());
        let check = || {
            assert_eq!(current_thread_name("starter", threads::own_id()), "pool-7");
            assert_eq!(current_thread_name("pool-6", 0), "pool-6", "threads counted together");
        };
        named.spawn(check).unwrap().join().unwrap();
        // No thread has an id that large.
        assert_eq!(current_thread_name("gone", u32::MAX), "gone");
    }
}
