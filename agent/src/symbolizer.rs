//! The symbolizer: a low-priority thread that turns the sampler's addresses into names, drains the
//! rings of the task guards, and hands whole cycles to a [`Sink`].

mod ledger;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::Duration;
#[cfg(feature = "ship")]
use std::time::Instant;

use profiler_core::wire::ThreadDump;
use profiler_core::{
    Delta, Frame, FrameId, FrameKind, NodeId, ThreadSnapshot, Ticks, TimeRange, Timestamp,
};

use self::ledger::{Ledger, SealedTasks};
use rustc_hash::FxHashSet;

use crate::clock;
use crate::log;
use crate::registry::{self, NameId};
use crate::sampler::{
    AddressFrame, CycleReceiver, Difference, OverheadCounters, RawCycle, RawDelta, RawThread,
    RawThreadDump, SamplerOptions, TreeDelta,
};
use crate::symbol_pattern::SymbolPattern;
use crate::telemetry::collect::TelemetryCollector;
use crate::threads;
use ship::batch::{Batch, Span};
use ship::control::{Control, ThreadDumpReply};
#[cfg(feature = "ship")]
use ship::control::{SymbolPiece, SymbolReply};
use ship::tables::{StackNode, Tables};
use symbolize::{Address, Resolver};
use system::process::{thread_cpu_ns, thread_name};
use system::sync::lock;
use system::task_list::ThreadName;

/// How often the threads' rings are drained while rows arrive.
const DRAIN_INTERVAL: Duration = Duration::from_millis(25);
/// How often they are drained after a drain that found little. Each wake-up costs, and the
/// ring of a thread that starts to write as fast as the default limit on rows still has room.
const QUIET_DRAIN_INTERVAL: Duration = Duration::from_millis(75);
/// A drain that finds at most this many rows is quiet.
const QUIET_ROWS: usize = 256;

/// Time between two log lines about differences between the sampler's sums and the kernel's.
const LOGGED_EVERY_NS: u64 = 60_000_000_000;

/// Time between two pieces of symbols for the collector: at most 1 MiB a second.
#[cfg(feature = "ship")]
const PIECE_INTERVAL: Duration = Duration::from_millis(125);

/// The module of functions that an interpreter runs.
const FOREIGN_MODULE: &str = "python";

/// The destination of cycles.
pub(crate) trait Sink: Send {
    /// Takes a cycle; must not block.
    fn push(&mut self, batch: Batch);

    /// Takes a thread dump, whose nodes were in earlier cycles; must not block. The default drops
    /// it: nobody can request one.
    fn thread_dump(&mut self, reply: ThreadDumpReply) {
        drop(reply);
    }

    /// An answer to a request for symbols is in [`Control`]. The default does nothing: nobody can
    /// request one.
    #[cfg(feature = "ship")]
    fn symbols_answered(&mut self) {}
}

/// The symbolizer's state.
pub(crate) struct Symbolizer {
    cycle_ns: u64,
    tables: Arc<Mutex<Tables>>,
    control: Arc<Control>,
    /// By the sampler's frame: the frames that it stands for, outermost first.
    frames: Vec<Vec<FrameId>>,
    /// By the sampler's node: the node in `tables`.
    nodes: Vec<StackNode>,
    ledger: Ledger,
    telemetry: TelemetryCollector,
    resolver: Resolver,
    /// Whether the log has a warning about functions without names.
    warned_unnamed: bool,
    /// The end of the cycle whose difference was logged last.
    logged_ns: Option<u64>,
    /// The task of the program's threads that are in none.
    default_task: NameId,
    /// Functions that are tasks.
    names_task: Option<SymbolPattern>,
    /// Nodes of the sampler's tree at such a function or below it.
    in_named_task: FxHashSet<u32>,
    /// Whether the collector may ask for symbols.
    #[cfg(feature = "ship")]
    symbol_upload: bool,
    /// When the collector was last answered with a piece of symbols.
    #[cfg(feature = "ship")]
    last_piece_at: Option<Instant>,
    overhead: Arc<OverheadCounters>,
}

impl Symbolizer {
    pub(crate) fn new(
        options: SamplerOptions,
        tables: Arc<Mutex<Tables>>,
        overhead: Arc<OverheadCounters>,
        control: Arc<Control>,
    ) -> Self {
        let names_until = control.names_until.clone();
        Symbolizer {
            cycle_ns: options.cycle_ns,
            tables,
            control,
            frames: Vec::new(),
            nodes: vec![StackNode::ROOT],
            ledger: Ledger::new(options.task_rows_per_second),
            telemetry: TelemetryCollector::new(options.resource_interval),
            resolver: Resolver::of_this_process(options.symbols.left_to_collector())
                .until(names_until),
            warned_unnamed: false,
            logged_ns: None,
            default_task: options.default_task,
            names_task: None,
            in_named_task: FxHashSet::default(),
            #[cfg(feature = "ship")]
            symbol_upload: options.symbol_upload,
            #[cfg(feature = "ship")]
            last_piece_at: None,
            overhead,
        }
    }

    /// Names addresses by another resolver than that of this process.
    #[cfg(feature = "outside")]
    pub(crate) fn of_other(self, resolver: Resolver) -> Symbolizer {
        let names_until = self.control.names_until.clone();
        Symbolizer {
            resolver: resolver.until(names_until),
            ..self
        }
    }

    /// Makes the functions that `names_task` selects tasks.
    pub(crate) fn tasks_by_symbol(self, names_task: Option<SymbolPattern>) -> Symbolizer {
        Symbolizer { names_task, ..self }
    }

    /// Runs until the sampler is gone, then sends the guards' last rows in one more batch.
    pub(crate) fn run(mut self, mut cycles: CycleReceiver, sink: &mut dyn Sink) {
        let mut stop = clock::now();
        let mut interval = DRAIN_INTERVAL;
        loop {
            self.telemetry.sample_resources();
            #[cfg(feature = "ship")]
            self.answer_symbol_request(sink);
            match cycles.recv_timeout(interval) {
                Ok(raw) => {
                    stop = clock::at(raw.stop_ns);
                    // Twice, because a drain delays the ends of tasks until the next one.
                    self.ledger.drain();
                    self.drain_rings();
                    sink.push(self.symbolize(&raw));
                    self.control.set_queued(raw.flush_request);
                    if let Some(dump) = raw.dump {
                        sink.thread_dump(self.thread_dump(dump));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let flush_request = self.control.flush_requested();
                    let quiet = self.drain_rings() <= QUIET_ROWS;
                    interval = if quiet {
                        QUIET_DRAIN_INTERVAL
                    } else {
                        DRAIN_INTERVAL
                    };
                    // While sampling is off, tasks and telemetry still go out.
                    let due = clock::now().since_ns(stop) >= self.cycle_ns;
                    if due && !self.control.is_enabled() {
                        // Drains again, so that tasks that ended meanwhile are included.
                        self.ledger.drain();
                        stop = self.push_without_samples(stop, sink);
                        self.control.set_queued(flush_request);
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

    /// Reads a piece of symbols that the collector requests, at most one each [`PIECE_INTERVAL`]. Until
    /// then the request waits.
    #[cfg(feature = "ship")]
    fn answer_symbol_request(&mut self, sink: &mut dyn Sink) {
        if self
            .last_piece_at
            .is_some_and(|last| last.elapsed() < PIECE_INTERVAL)
        {
            return;
        }
        let Some(request) = self.control.take_symbol_request() else {
            return;
        };
        self.last_piece_at = Some(Instant::now());
        let before = own_cpu_ns();
        let piece = if self.symbol_upload {
            let read = self
                .resolver
                .symbol_piece(&request.build_id, request.offset);
            read.map(|piece| SymbolPiece {
                bytes: piece.bytes,
                content: piece.content,
            })
        } else {
            Err("the worker is set to send no symbols (EMBERLINE_SYMBOL_UPLOAD)")
        };
        self.overhead
            .add_naming(own_cpu_ns().saturating_sub(before));
        self.control.answer_symbols(SymbolReply { request, piece });
        sink.symbols_answered();
    }

    /// Drains the threads' rings before they fill up. Returns the number of rows.
    fn drain_rings(&mut self) -> usize {
        self.ledger.drain() + self.telemetry.drain()
    }

    /// Sends the tasks and telemetry since `start`, if any. Returns the end of the covered time.
    fn push_without_samples(&mut self, start: Timestamp, sink: &mut dyn Sink) -> Timestamp {
        let now = clock::now();
        let anything = self.ledger.has_changes() || !self.telemetry.is_empty();
        let range = TimeRange::new(start, now).filter(|_| anything);
        if let Some(range) = range {
            // Without samples no ticks are expected.
            let span = Span {
                range,
                quantum_ns: 1,
                ticks: Ticks::default(),
            };
            sink.push(self.with_rows(Batch::of_samples(span, Delta::default(), Delta::default())));
        }
        now
    }

    fn symbolize(&mut self, raw: &RawCycle) -> Batch {
        let range = TimeRange::new(clock::at(raw.start_ns), clock::at(raw.stop_ns))
            .expect("the sampler seals no empty cycle");
        let before = own_cpu_ns();
        self.name_frames(&raw.tree);
        self.overhead
            .add_naming(own_cpu_ns().saturating_sub(before));
        self.add_nodes(&raw.tree);
        let nodes = &self.nodes;
        // States that the user filters out do not count as lost: they were not sampled.
        let translate = |delta: &RawDelta| -> Delta {
            let entries = delta.entries().iter();
            let wanted = entries.filter(|(_, state, _)| raw.states.contains(*state));
            wanted
                .map(|(node, state, time)| (nodes[node.index()].id, *state, *time))
                .collect()
        };
        let delta = translate(&raw.tree.delta);
        let threads = translate(&raw.tree.threads);
        let span = Span {
            range,
            quantum_ns: raw.quantum_ns,
            ticks: raw.ticks,
        };
        let samples = Batch::of_samples(span, delta, threads);
        self.log_difference(raw);
        let lost_unseen_ns = raw.difference.missing_ns;
        let lost_queue_ns = raw.tree.lost_ns + lost_unseen_ns;
        self.with_rows(Batch {
            lost_queue_ns,
            lost_unseen_ns,
            ..samples
        })
    }

    /// Logs a difference between the sampler's sums and the kernel's, at most one in [`LOGGED_EVERY_NS`].
    fn log_difference(&mut self, raw: &RawCycle) {
        let Difference {
            missing_ns,
            excess_ns,
        } = raw.difference;
        if missing_ns + excess_ns == 0
            || self
                .logged_ns
                .is_some_and(|logged: u64| raw.stop_ns.saturating_sub(logged) < LOGGED_EVERY_NS)
        {
            return;
        }
        self.logged_ns = Some(raw.stop_ns);
        let [missing, excess] = [missing_ns, excess_ns].map(Duration::from_nanos);
        let Ticks { made, expected, .. } = raw.ticks;
        log::emit(move || {
            if !missing.is_zero() {
                tracing::warn!(
                    "{missing:.2?} of thread time was not sampled and counts as lost; the sampler made {made} of \
                     {expected} ticks in the last second"
                );
            }
            if !excess.is_zero() {
                tracing::warn!("{excess:.2?} more CPU time was counted than the process has used");
            }
        });
    }

    /// Adds the tasks and telemetry since the last batch.
    fn with_rows(&mut self, samples: Batch) -> Batch {
        let (telemetry, lost_telemetry) = self.telemetry.take();
        let SealedTasks {
            tasks,
            totals,
            lost_tasks,
            aggregated_tasks,
        } = self.ledger.seal();
        Batch {
            tasks,
            totals,
            telemetry,
            aggregated_tasks,
            lost_tasks,
            lost_telemetry,
            ..samples
        }
    }

    /// Translates a thread dump: current names of threads, and nodes of `tables`.
    fn thread_dump(&self, raw: RawThreadDump) -> ThreadDumpReply {
        let threads = raw
            .threads
            .into_iter()
            .map(|thread: RawThread| ThreadSnapshot {
                thread_id: thread.id,
                name: thread_name(thread.id).text().into(),
                node: thread.last.map_or(NodeId::ROOT, |last| {
                    self.nodes[last.attribution.node.index()].id
                }),
                state: thread.last.map(|last| last.state),
                age_ns: thread.age_ns,
                blocked_ns: thread.blocked_ns,
            })
            .collect();
        let dump = ThreadDump {
            threads,
            omitted: raw.omitted,
        };
        ThreadDumpReply {
            request: raw.request,
            dump,
        }
    }

    /// Resolves new frames. The slow part runs without the tables' lock.
    fn name_frames(&mut self, tree: &TreeDelta) {
        let mut addresses = Vec::new();
        let mut address_frames = Vec::new();
        for frame in &tree.frames {
            let mut ids = Vec::new();
            if let AddressFrame::Code { address, module } = frame {
                addresses.push(Address {
                    address: *address,
                    module: module.as_ref(),
                });
                address_frames.push(self.frames.len());
            } else {
                ids.push(self.intern_marker(frame));
            }
            self.frames.push(ids);
        }
        let mut drained = clock::now();
        self.resolver.resolve(&addresses, |index, named| {
            // Naming the frames of the first cycle takes a while; meanwhile rings fill up and
            // resource samples are due.
            self.telemetry.sample_resources();
            let now = clock::now();
            if now.since_ns(drained) >= DRAIN_INTERVAL.as_nanos() as u64 {
                self.ledger.drain();
                self.telemetry.drain();
                drained = now;
            }
            let mut tables = lock(&self.tables);
            let ids = named.iter().map(|frame| tables.frame_id(frame)).collect();
            self.frames[address_frames[index]] = ids;
        });
        let unnamed = self.resolver.take_unnamed();
        if unnamed > 0 && !self.warned_unnamed {
            self.warned_unnamed = true;
            log::emit(move || {
                tracing::warn!(
                    "no memory to name {unnamed} code addresses: they are shown by module and \
                     offset; is the address space limited (ulimit -v)?"
                );
            });
        }
    }

    /// The id of a frame that stands for no address.
    fn intern_marker(&mut self, frame: &AddressFrame) -> FrameId {
        let intern = |frame: &Frame<&str>| lock(&self.tables).frame_id(frame);
        match frame {
            AddressFrame::Task(name) => intern(&Frame::task(&registry::name(*name))),
            AddressFrame::Phase(name) => intern(&Frame::phase(&registry::name(*name))),
            AddressFrame::NoTask => match self.default_task {
                NameId::NONE => intern(&Frame::no_task()),
                name => intern(&Frame::task(&registry::name(name))),
            },
            AddressFrame::Agent => intern(&Frame::agent()),
            AddressFrame::Thread { name, id } => {
                intern(&Frame::thread(&current_thread_name(*name, *id).text(), *id))
            }
            AddressFrame::TaskOfThread { name, id } => {
                let name = current_thread_name(*name, *id);
                intern(&Frame::task(&name.text()))
            }
            AddressFrame::Truncated => intern(&Frame::truncated()),
            AddressFrame::NoStack(reason) => intern(&Frame::no_stack(*reason)),
            AddressFrame::Overflow => intern(&Frame::overflow()),
            AddressFrame::Sampler => intern(&Frame::function("emberline sampler thread", "", 0)),
            AddressFrame::Foreign(name) => intern(&Frame {
                // The page and exports show it as the origin of the function.
                module: FOREIGN_MODULE,
                ..Frame::function(&name.function, &name.file, name.line)
            }),
            AddressFrame::Code { .. } => intern(&Frame::function("", "", 0)),
        }
    }

    fn add_nodes(&mut self, tree: &TreeDelta) {
        let Symbolizer {
            tables,
            frames,
            nodes,
            names_task,
            in_named_task,
            ..
        } = self;
        let mut tables = lock(tables);
        for (parent, frame) in &tree.nodes {
            let above = nodes[parent.index()];
            let path = &frames[frame.0 as usize][..];
            if let Some(names_task) = names_task {
                let is_below = in_named_task.contains(&parent.0);
                let named = (!is_below).then(|| first_selected(names_task, &tables, path));
                if is_below || named.as_ref().is_some_and(Option::is_some) {
                    // Nodes of the sampler's tree are numbered in this order.
                    in_named_task.insert(nodes.len() as u32);
                }
                if let Some(task) = named.flatten() {
                    let task = tables.frame_id(&Frame::task(&task));
                    nodes.push(tables.node_of_task(task, above, path));
                    continue;
                }
            }
            let node = match *path {
                [thread] if tables.symbols.frame(thread).kind == FrameKind::Thread => {
                    tables.thread_node(above, thread)
                }
                ref path => tables.node(above, path),
            };
            nodes.push(node);
        }
    }
}

/// The first function of a path that `pattern` selects.
fn first_selected(pattern: &SymbolPattern, tables: &Tables, path: &[FrameId]) -> Option<String> {
    let mut frames = path.iter().map(|frame| tables.symbols.frame(*frame));
    let found =
        frames.find(|frame| frame.kind == FrameKind::Function && pattern.selects(frame.function));
    found.map(|frame| frame.function.to_owned())
}

/// CPU time of the calling thread.
fn own_cpu_ns() -> u64 {
    thread_cpu_ns(threads::own_id()).unwrap_or(0)
}

/// A thread's name at the end of the cycle in which it was first seen. Threads set their own names,
/// and until one first runs it has the name of its creator. Threads that are gone or counted
/// together keep the name that the sampler saw.
fn current_thread_name(name: ThreadName, id: u32) -> ThreadName {
    let current = if id == 0 {
        ThreadName::default()
    } else {
        thread_name(id)
    };
    if current.is_empty() { name } else { current }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_has_the_name_that_it_set_by_the_end_of_the_cycle() {
        let named = thread::Builder::new().name("pool-7".into());
        named
            .spawn(|| {
                assert_eq!(
                    current_thread_name("starter".into(), threads::own_id()),
                    "pool-7".into()
                );
                assert_eq!(
                    current_thread_name("pool-6".into(), 0),
                    "pool-6".into(),
                    "threads counted together"
                );
            })
            .unwrap()
            .join()
            .unwrap();
        // No thread has an id that large.
        assert_eq!(current_thread_name("gone".into(), u32::MAX), "gone".into());
    }
}
