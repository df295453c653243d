//! Settings and thread dumps of a running sampler.

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use profiler_core::{FrameKind, SettingsChange, StateSet, Weight};

use super::super::addresses::{AddressFrame, TreeDelta};
use super::super::cycles::{CycleReceiver, cycles};
use super::super::files::{Activity, ThreadFiles};
use super::super::raw::RawThread;
use super::super::thread::{LastObservation, Thread};
use super::super::wait::WaitSite;
use super::*;
use crate::registry::{NameId, TaskContext, ThreadCell};
use symbolize::{Address, CodeModule, LeftToCollector, Resolver};
use system::sync::lock;

const TIMEOUT: Duration = Duration::from_secs(60);

/// There is one sampler at a time, because it signals all threads of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}

fn options() -> SamplerOptions {
    SamplerOptions {
        walker: None,
        interval_ns: 10_000_000,
        cycle_ns: 50_000_000,
        cpu_limit: 1_000_000_000,
        cpu_limit_of_process: None,
        resource_interval: None,
        task_rows_per_second: 1,
        symbols: crate::Symbols::Agent,
        default_task: NameId::NONE,
        tasks_by_thread: false,
        #[cfg(feature = "ship")]
        symbol_upload: true,
    }
}

/// A sampler that ticks when a test says so, and ends no cycle by itself.
fn sampler_of_one_cycle() -> Sampler {
    let options = SamplerOptions {
        cycle_ns: u64::MAX,
        ..options()
    };
    let control = Arc::new(Control::new(options.settings()));
    Sampler::new(options, control, Arc::default())
}

/// The time below a task.
fn weight_in(tree: &TreeDelta, task: NameId) -> Weight {
    weight_below(tree, &AddressFrame::Task(task))
}

/// The time below a frame.
fn weight_below(tree: &TreeDelta, frame: &AddressFrame) -> Weight {
    let frame_of = |id: FrameId| &tree.frames[id.0 as usize];
    let mut is_below = vec![false];
    for (parent, id) in &tree.nodes {
        is_below.push(frame_of(*id) == frame || is_below[parent.index()]);
    }
    let mut weight = Weight::ZERO;
    for (node, state, nanoseconds) in tree.delta.entries() {
        if is_below[node.index()] {
            *weight.get_mut(*state) += nanoseconds;
        }
    }
    weight
}

/// A sampler of this process, on a thread of its own.
struct Running {
    control: Arc<Control>,
    stop: Arc<AtomicBool>,
    cycles: RefCell<CycleReceiver>,
    sampler: Option<thread::JoinHandle<()>>,
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    fn start() -> Running {
        let alone = alone();
        let options = options();
        let control = Arc::new(Control::new(options.settings()));
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, sealed) = cycles(2);
        let sampler = {
            let control = control.clone();
            let stop = stop.clone();
            move || Sampler::new(options, control, Arc::default()).run(&stop, sender)
        };
        let sampler = Some(thread::spawn(sampler));
        Running {
            control,
            stop,
            cycles: RefCell::new(sealed),
            sampler,
            _alone: alone,
        }
    }

    /// Receives cycles until one is `wanted`. All of them obey the laws of a cycle.
    fn until(&self, wanted: impl Fn(&RawCycle) -> bool) -> RawCycle {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            assert!(Instant::now() < deadline, "no cycle is as wanted");
            let cycle = self.cycles.borrow_mut().recv_timeout(TIMEOUT).unwrap();
            let TreeDelta { delta, threads, .. } = &cycle.tree;
            let mut entries = delta.entries().iter();
            assert!(entries.all(|(.., time)| time.is_multiple_of(cycle.quantum_ns)));
            assert_eq!(
                delta.total(),
                threads.total(),
                "each weight counts once by thread"
            );
            assert!(cycle.ticks.made <= cycle.ticks.expected);
            if wanted(&cycle) {
                return cycle;
            }
        }
    }

    /// Changes settings and waits until they are applied. Drops the cycles until then.
    fn apply(&self, revision: u64, change: SettingsChange) {
        self.control.change(revision, change);
        let deadline = Instant::now() + TIMEOUT;
        while !self.control.desired().1 {
            assert!(Instant::now() < deadline, "{change:?} is not applied");
            let _ = self.cycles.borrow_mut().recv_timeout(Duration::ZERO);
            thread::yield_now();
        }
        while self
            .cycles
            .borrow_mut()
            .recv_timeout(Duration::ZERO)
            .is_ok()
        {}
    }

    /// The state of the thread with that id, from a new dump.
    fn dump(&self, id: u32) -> RawThread {
        let request = self.control.request_dump();
        let is_reply = |cycle: &RawCycle| {
            cycle
                .dump
                .as_ref()
                .is_some_and(|dump| dump.request >= request)
        };
        let dump = self.until(is_reply).dump.unwrap();
        dump.threads
            .into_iter()
            .find(|thread| thread.id == id)
            .unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.control.wake();
        // The last cycle waits for room.
        let sampler = self.sampler.take().unwrap();
        while !sampler.is_finished() {
            let _ = self.cycles.borrow_mut().recv_timeout(Duration::ZERO);
            thread::yield_now();
        }
        assert!(
            sampler.join().is_ok() || thread::panicking(),
            "the sampler does not panic"
        );
    }
}

fn interval(interval_ns: u64) -> SettingsChange {
    SettingsChange {
        interval_ns: Some(interval_ns),
        ..Default::default()
    }
}

fn enabled(enabled: bool) -> SettingsChange {
    SettingsChange {
        enabled: Some(enabled),
        ..Default::default()
    }
}

#[test]
fn a_new_interval_leaves_no_gap_and_its_ticks_are_due_by_it() {
    let running = Running::start();
    let mut last = running.until(|cycle| cycle.ticks.made > 0);
    running.control.change(1, interval(30_000_000));
    while last.quantum_ns == 1_000_000 {
        let next = running.until(|_| true);
        assert_eq!(next.start_ns, last.stop_ns);
        last = next;
    }
    assert_eq!(last.quantum_ns, 3_000_000);
    assert!(running.control.desired().1);
    let steady = running.until(|cycle| cycle.ticks.made > 1);
    let due = (steady.stop_ns - steady.start_ns).div_ceil(30_000_000);
    assert!(
        steady.ticks.expected.abs_diff(due) <= 1,
        "{:?} of {due}",
        steady.ticks
    );
}

#[test]
fn a_waiting_thread_is_blocked_longer_in_each_dump() {
    let (started, start) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let waiting = thread::spawn(move || {
        started.send(threads::own_id()).unwrap();
        ended.recv()
    });
    let waiting_id = start.recv_timeout(TIMEOUT).unwrap();
    let running = Running::start();
    let deadline = Instant::now() + TIMEOUT;
    // It may be sampled while it runs, before it waits for good.
    let mut first = running.dump(waiting_id);
    while first.last.is_none_or(|last| last.state == State::Cpu) || first.blocked_ns == 0 {
        assert!(Instant::now() < deadline, "the thread is not seen blocked");
        first = running.dump(waiting_id);
    }
    assert!(running.dump(waiting_id).blocked_ns > first.blocked_ns);
    drop(end);
    waiting.join().unwrap().unwrap_err();
}

#[test]
fn time_while_sampling_is_off_is_not_counted() {
    let running = Running::start();
    let cpu: StateSet = [State::Cpu].into_iter().collect();
    let change = SettingsChange {
        states: Some(cpu),
        ..enabled(false)
    };
    running.apply(1, change);
    let off_ns = monotonic_ns();
    running.control.change(2, enabled(true));
    let again = running.until(|_| true);
    assert!(again.start_ns >= off_ns);
    assert_eq!(again.states, cpu);
}

#[test]
fn a_cycle_knows_the_request_to_flush_before_its_end() {
    let running = Running::start();
    for request in 1..=2 {
        assert_eq!(running.control.request_flush(), request);
        running.until(|cycle| cycle.flush_request == request);
    }
}

#[test]
fn a_sampler_that_is_off_stops_at_once() {
    let running = Running::start();
    running.apply(1, enabled(false));
    drop(running);
}

/// On a busy machine a thread waits for its processor before its first task, and the sampler learns of
/// that when it first sees the thread blocked. Then the thread seems to have been blocked for no time,
/// and it does not run again.
#[test]
fn a_thread_that_is_first_seen_when_it_blocks_is_counted_there() {
    let _alone = alone();
    let (mut sender, mut sealed) = cycles(1);
    let mut sampler = sampler_of_one_cycle();
    sampler.tick(monotonic_ns(), false, &mut sender);

    let task = registry::name_id("blocks at once");
    let (socket, peer) = UnixStream::pair().unwrap();
    let (started, start) = mpsc::channel();
    let blocked = thread::spawn(move || {
        let (cell, _rows) = ThreadCell::new();
        registry::register(&cell);
        cell.set_context(TaskContext {
            task,
            phase: NameId::NONE,
        });
        cell.begin_early();
        started.send(cell.clone()).unwrap();
        let read = (&socket).read(&mut [0]).unwrap();
        cell.finish();
        read
    });
    let cell = start.recv_timeout(TIMEOUT).unwrap();
    let id = cell.thread.id;
    let deadline = Instant::now() + TIMEOUT;
    let mut files = ThreadFiles::default();
    let reads_socket = |activity| match activity {
        Ok(Activity::Blocked(site)) => WaitSite::state(&site) == State::Network,
        _ => false,
    };
    while !reads_socket(sampler.probe.files.activity(id, &mut files)) {
        assert!(Instant::now() < deadline, "the thread does not block");
        thread::yield_now();
    }
    sampler.probe.files.close(&mut files);
    let began = cell.early.began();
    let ran_ns = process::thread_cpu_ns(id).unwrap() - began.cpu_ns;
    sampler.tick(began.ns + ran_ns, false, &mut sender);

    // Until it is no longer young.
    let blocked_ns = 600_000_000;
    let end_ns = monotonic_ns() + blocked_ns;
    while monotonic_ns() < end_ns {
        if let Some(now) = sampler.sleep() {
            sampler.tick(now, false, &mut sender);
        }
    }
    sampler.tick(monotonic_ns(), true, &mut sender);
    drop(peer);
    assert_eq!(blocked.join().unwrap(), 0);

    let weight = weight_in(&sealed.recv_timeout(TIMEOUT).unwrap().tree, task);
    assert!(weight.get(State::Network) >= blocked_ns, "{weight:?}");
    assert_eq!(weight.get(State::Other), 0, "{weight:?}");
}

/// A thread with a cell that has been seen blocked.
struct BlockedThread {
    id: u32,
    cell: Arc<ThreadCell>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl BlockedThread {
    fn start(sampler: &mut Sampler, context: TaskContext) -> BlockedThread {
        let (mut sender, _cycles) = cycles(1);
        let (started, start) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let (cell, _rows) = ThreadCell::new();
            registry::register(&cell);
            cell.set_context(context);
            started.send(cell.clone()).unwrap();
            ended.recv().unwrap_err();
            cell.finish();
        });
        let cell: Arc<ThreadCell> = start.recv_timeout(TIMEOUT).unwrap();
        let id = cell.thread.id;
        let deadline = Instant::now() + TIMEOUT;
        let mut is_blocked = |sampler: &mut Sampler| {
            sampler.tick(monotonic_ns(), false, &mut sender);
            let thread = sampler.threads.get_mut(id).unwrap();
            thread.cell.is_some() && matches!(thread.observation, LastObservation::Blocked(_))
        };
        while !is_blocked(sampler) {
            assert!(Instant::now() < deadline, "the thread does not block");
        }
        BlockedThread {
            id,
            cell,
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for BlockedThread {
    fn drop(&mut self) {
        drop(self.end.take());
        let end = self.thread.take().unwrap().join();
        assert!(end.is_ok() || thread::panicking());
    }
}

const RAN_NS: u64 = 10_000_000;

/// As if the thread had run for [`RAN_NS`] and then waited for a processor until some seconds later.
fn let_wait_after_running(thread: &mut Thread, seconds: u64) -> u64 {
    let begin_ns = monotonic_ns();
    let now = begin_ns + seconds * 1_000_000_000;
    thread.time.reset(begin_ns, 0);
    thread.time.advance(begin_ns + RAN_NS, RAN_NS);
    thread.time.advance_idle(now);
    now
}

/// Among a thousand threads that wait for a processor, a sample of each is rare.
#[test]
fn running_without_a_sample_waits_longer_for_one_if_the_thread_is_ready() {
    let _alone = alone();
    let mut sampler = sampler_of_one_cycle();
    let blocked = BlockedThread::start(&mut sampler, TaskContext::default());
    let Sampler { threads, probe, .. } = &mut sampler;
    let thread = threads.get_mut(blocked.id).unwrap();
    let seen_blocked = thread.observation;
    let mut is_counted_after = |observation: LastObservation, seconds: u64| {
        thread.observation = observation;
        let now = let_wait_after_running(thread, seconds);
        probe.attribute_overdue(thread, now);
        thread.time.unattributed_cpu_ns() == 0
    };
    assert!(!is_counted_after(seen_blocked, 9));
    assert!(is_counted_after(seen_blocked, 11));
    assert!(!is_counted_after(LastObservation::Ready, 29));
    assert!(is_counted_after(LastObservation::Ready, 31));
}

/// The next sample is of what the thread does after its task.
#[test]
fn running_without_a_sample_counts_in_the_task_that_the_thread_has_left() {
    let _alone = alone();
    let mut sampler = sampler_of_one_cycle();
    let context = |name| TaskContext {
        task: registry::name_id(name),
        phase: NameId::NONE,
    };
    let left = context("left");
    let next = context("next");
    let blocked = BlockedThread::start(&mut sampler, left);
    let Sampler { threads, probe, .. } = &mut sampler;
    let thread = threads.get_mut(blocked.id).unwrap();
    thread.observation = LastObservation::Ready;
    let_wait_after_running(thread, 2);
    probe.set_task(thread, thread.task_word());
    assert_eq!(
        thread.time.unattributed_cpu_ns(),
        RAN_NS,
        "it is in its task"
    );
    blocked.cell.set_context(next);
    probe.set_task(thread, thread.task_word());
    assert_eq!(thread.time.unattributed_cpu_ns(), 0);
    probe.addresses.seal(|tree| {
        assert!(weight_in(&tree, left.task).get(State::Cpu) >= RAN_NS);
        assert_eq!(weight_in(&tree, next.task).get(State::Cpu), 0);
        Ok(())
    });
}

/// Threads that were never sampled end after they have left their task, which half of them were seen to do.
#[test]
fn cpu_time_of_an_ended_thread_is_in_its_last_task_until_it_was_seen_to_leave() {
    const IN_TASK_NS: u64 = 2_600_000;
    const AFTERWARDS_NS: u64 = 1_100_000;
    const THREADS: u64 = 20;
    let _alone = alone();
    let mut sampler = sampler_of_one_cycle();
    let context = TaskContext {
        task: registry::name_id("last"),
        phase: NameId::NONE,
    };
    let quantum_ns = sampler.options.quantum_ns();
    let (cell, _rows) = ThreadCell::new();
    for number in 0..THREADS {
        cell.set_context(context);
        let word = cell.task_word().load(Ordering::Relaxed);
        let mut thread = Thread::new(u32::MAX, 0);
        thread.cell = Some(cell.clone());
        thread.seen_task_word = word;
        thread.time.advance(IN_TASK_NS, IN_TASK_NS);
        cell.set_context(TaskContext::default());
        thread.gone = true;
        assert_eq!(thread.charged_task_word(), word, "it was not seen to leave");
        let was_seen_to_leave = number % 2 == 0;
        if was_seen_to_leave {
            sampler.probe.set_task(&mut thread, 0);
            assert_eq!(
                thread.time.unattributed_cpu_ns(),
                IN_TASK_NS,
                "a sample may follow"
            );
            thread.time.advance_idle(1_000_000_000);
        }
        let end_ns = thread.time.accounted_to_ns() + AFTERWARDS_NS;
        thread.time.advance(end_ns, IN_TASK_NS + AFTERWARDS_NS);
        sampler.probe.remove(thread);
    }
    sampler.probe.addresses.seal(|tree| {
        let whole = |ns: u64| ns / quantum_ns * quantum_ns;
        let in_task = THREADS * IN_TASK_NS + THREADS / 2 * AFTERWARDS_NS;
        assert_eq!(
            weight_in(&tree, context.task).get(State::Cpu),
            whole(in_task)
        );
        let outside = THREADS / 2 * AFTERWARDS_NS;
        let no_task = weight_below(&tree, &AddressFrame::NoTask);
        assert_eq!(no_task.get(State::Cpu), whole(outside));
        Ok(())
    });
}

/// Work of several kinds, until `stop`: some threads run all the time, some wait.
fn busy_threads(stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
    fn strings(round: u64) -> usize {
        let mut words: Vec<String> = (0..200).map(|at| format!("{:x}", at * round)).collect();
        words.sort_by(|a, b| b.cmp(a));
        words.iter().map(String::len).sum()
    }
    fn trees(round: u64) -> usize {
        let mut tree = std::collections::BTreeMap::new();
        for at in 0..500_u64 {
            tree.entry(at.wrapping_mul(round) % 97)
                .or_insert_with(Vec::new)
                .push(at);
        }
        tree.values().filter(|list| list.len() % 2 == 1).count()
    }
    fn tables(round: u64) -> usize {
        let table: std::collections::HashMap<u64, f64> = (0..500)
            .map(|at| (at ^ round, (at as f64).sqrt()))
            .collect();
        table
            .values()
            .map(|value| value.to_string().len())
            .max()
            .unwrap_or(0)
    }
    fn waits(_: u64) -> usize {
        thread::park_timeout(Duration::from_millis(3));
        1
    }
    let works: [fn(u64) -> usize; 7] = [strings, trees, tables, waits, strings, trees, waits];
    works
        .into_iter()
        .map(|work: fn(u64) -> usize| {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut round = 1;
                while !stop.load(Ordering::Acquire) {
                    std::hint::black_box(work(round));
                    round += 1;
                }
            })
        })
        .collect()
}

/// All frames of ten thousand samples of this program, each named by the agent and by a symbol file as
/// the collector does.
#[test]
fn ten_thousand_samples_are_named_alike_by_agent_and_collector() {
    const SAMPLES: u64 = 10_000;
    let stop = Arc::new(AtomicBool::new(false));
    let threads = busy_threads(&stop);
    let running = Running::start();
    running.control.change(1, interval(1_000_000));
    let samples = Cell::new(0);
    let code = RefCell::new(Vec::new());
    running.until(|cycle| {
        let frames = cycle.tree.frames.iter();
        code.borrow_mut()
            .extend(frames.filter_map(|frame| match frame {
                AddressFrame::Code {
                    address,
                    module: Some(module),
                } => Some((*address, module.clone())),
                _ => None,
            }));
        let interval_ns = cycle.quantum_ns * 10;
        let weights = cycle.tree.delta.entries().iter().map(|(.., time)| *time);
        samples.set(samples.get() + weights.sum::<u64>() / interval_ns);
        samples.get() >= SAMPLES
    });
    stop.store(true, Ordering::Release);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());

    let program = std::env::current_exe().unwrap();
    let mut code = code.into_inner();
    code.retain(|(_, module)| *module.path == *program.to_string_lossy());
    let addresses: Vec<Address<'_>> = code
        .iter()
        .map(|(address, module)| Address {
            address: *address,
            module: Some(module),
        })
        .collect();
    let mut by_agent = vec![Vec::new(); addresses.len()];
    let mut resolver = Resolver::of_this_process(LeftToCollector::None);
    resolver.resolve(&addresses, |index, frames| {
        by_agent[index] = frames.to_vec()
    });

    let mut file = Vec::new();
    symbol_files::reduce(&std::fs::File::open(&program).unwrap(), &mut file).unwrap();
    let file = symbol_files::SymbolFile::open(file).unwrap();
    let offset = |(address, module): &(u64, Arc<CodeModule>)| address - module.base;
    let by_collector = file.lookup(code.iter().map(offset)).unwrap();
    let mut inlined = 0;
    for (frame, by_agent) in code.iter().zip(&by_agent) {
        let by_collector = by_collector[&offset(frame)]
            .iter()
            .map(|frame| (&*frame.function, &*frame.file, frame.line, frame.inlined))
            .collect::<Vec<_>>();
        // An address without a function is a frame without a name.
        let named = by_agent
            .iter()
            .filter(|frame| frame.kind == FrameKind::Function);
        let by_agent = named
            .map(|frame| (&*frame.function, &*frame.file, frame.line, frame.inlined))
            .collect::<Vec<_>>();
        assert_eq!(by_agent, by_collector, "{:#x}", offset(frame));
        inlined += by_agent.len().saturating_sub(1);
    }
    assert!(
        code.len() >= 50 && inlined >= 20,
        "{} frames, {inlined} inlined",
        code.len()
    );
}

/// Threads that register, run and end while a sampler ticks: neither a tick nor a registration uses the
/// allocator of the program, whose locks other threads may hold for a second on a busy machine.
#[test]
fn neither_ticks_nor_registrations_use_the_allocator() {
    const THREADS: u32 = 60;
    let _alone = alone();
    let options = SamplerOptions {
        cycle_ns: 30_000_000,
        ..options()
    };
    let control = Arc::new(Control::new(options.settings()));
    let mut sampler = Sampler::new(options, control, Arc::default());
    let (mut sender, mut sealed) = cycles(1);
    let stop = Arc::new(AtomicBool::new(false));
    let tasks = [0, 1, 2].map(|number| registry::name_id(&format!("allocates-{number}")));
    let start = |number: u32| {
        let stop = stop.clone();
        thread::spawn(move || {
            let (cell, _rows) = ThreadCell::new();
            let context = |task| TaskContext {
                task,
                phase: NameId::NONE,
            };
            let counted = allocation_counter::measure(|| {
                cell.begin_early();
                registry::register(&cell);
                cell.set_context(context(tasks[0]));
            });
            let mut sum = 1u64;
            for round in 1.. {
                cell.set_context(context(tasks[round % 3]));
                for _ in 0..20_000 {
                    sum = std::hint::black_box(sum.wrapping_mul(31));
                }
                if number.is_multiple_of(2) {
                    thread::park_timeout(Duration::from_millis(u64::from(number)));
                }
                if stop.load(Ordering::Relaxed) || round as u32 > number * 4 {
                    break;
                }
            }
            cell.finish();
            counted.count_total
        })
    };
    let mut counted = 0;
    let mut ticks = 0;
    let mut threads = Vec::new();
    let end_ns = monotonic_ns() + 1_500_000_000;
    while monotonic_ns() < end_ns {
        if threads.len() < THREADS as usize {
            threads.push(start(threads.len() as u32));
        }
        let measured = allocation_counter::measure(|| {
            if let Some(now) = sampler.sleep() {
                sampler.tick(now, false, &mut sender);
                ticks += 1;
            }
        });
        counted += measured.count_total;
        // Freed here as the symbolizer does.
        let _ = sealed.recv_timeout(Duration::ZERO);
    }
    stop.store(true, Ordering::Relaxed);
    let by_threads: u64 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert!(ticks > 20, "{ticks}");
    assert_eq!(
        (counted, by_threads),
        (0, 0),
        "in {ticks} ticks, and in registrations"
    );
}
