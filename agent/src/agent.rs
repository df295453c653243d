//! Starts and stops the threads of an agent.

mod local;
#[cfg(feature = "ship")]
pub(crate) mod shipping;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::local::Recorder;
use crate::builder::{AgentBuilder, StartError};
use crate::sampler::{self, OverheadCounters, Sampler, SamplerOptions};
use crate::spawn::{self, spawn, spawn_needed};
use crate::symbol_pattern::SymbolPattern;
use crate::symbolizer::{Sink, Symbolizer};
use crate::{Overhead, Recording, SamplerMode, fork, log, wanted};
use ship::control::Control;
use ship::tables::Tables;
use system::address_space::{self, Shortage};
use system::clock::{self, FakedClock};
use system::descriptors;
use system::marker;
#[cfg(feature = "ship")]
use system::preloaded;
use system::probe;
use system::process::{
    leave_real_time, lower_priority, raise_priority, shorten_slice, thread_name,
};
use system::task_list::{ThreadName, thread_ids};

/// Most cycles queued from the sampler to the symbolizer: the seconds that a symbolizer of low
/// priority may need for a program's first frames on a busy machine. When the queue is full the
/// sampler continues in the same cycle: it gets longer, and nothing is lost.
const CYCLES_QUEUED_MAX: usize = 8;

/// Longest time to finish.
const FINISH_MAX: Duration = Duration::from_secs(3_600);

/// Part of the time to finish that is reserved for the ends of the threads.
const JOIN_RESERVE: Duration = Duration::from_millis(100);

/// The sampler's thread, by which other copies of this crate in the process know it.
const SAMPLER_THREAD: &str = "tick";

/// A thread of the library that `emberline record` loads into programs.
const PRELOADED_THREAD: &str = "keep";

/// Longest wait for the kernel to remove a thread that has ended, in steps.
const REMOVAL_STEPS_MAX: u32 = 20;
const REMOVAL_STEP: Duration = Duration::from_millis(1);

/// Time between two looks at whether a flush is answered.
#[cfg(feature = "ship")]
const FLUSH_STEP: Duration = Duration::from_millis(2);

/// The process whose agent runs, or 0. A forked child inherits this value but none of the threads,
/// so it compares it with its own id.
static RUNNING_IN: AtomicU32 = AtomicU32::new(0);

/// A running agent. Dropping it stops sampling and flushes for at most
/// [the flush timeout](AgentBuilder::flush_timeout).
///
/// ```no_run
/// fn main() -> Result<(), emberline_agent::StartError> {
///     let _agent = emberline_agent::Agent::builder().worker("worker-1").start()?;
///     // … the program …
///     Ok(())
/// }
/// ```
#[cfg(feature = "ship")]
#[derive(Debug)]
#[must_use = "sampling stops when the agent is dropped"]
pub struct Agent {
    threads: Threads,
    shipping: shipping::Shipping,
}

#[cfg(feature = "ship")]
impl Agent {
    /// Returns the default settings.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    pub(crate) fn start(builder: AgentBuilder) -> Result<Agent, StartError> {
        let builder = builder.with_environment()?;
        let worker = builder.check()?;
        if !builder.is_alone
            && shipping::is_of_environment(&builder)
            && has_thread(PRELOADED_THREAD)
        {
            // Its collector would count the same time twice.
            preloaded::hand_over();
        }
        let launch = Launch::new(&builder)?;
        let control = launch.control.clone();
        let tables = launch.tables.clone();
        let (shipping, threads) = shipping::Shipping::prepare(builder, worker, control, tables)?;
        let ship = threads.thread;
        let threads = launch.start(Box::new(threads.queue), Some(Box::new(|| ship.run())))?;
        shipping.started();
        Ok(Agent { threads, shipping })
    }

    /// Returns what has happened to the samples so far: exact sums over this agent's life.
    #[must_use]
    pub fn report(&self) -> crate::ShipReport {
        self.shipping.report()
    }

    /// Returns what the agent has cost so far.
    #[must_use]
    pub fn overhead(&self) -> Overhead {
        let shipper_wakeups = self.shipping.wakeups();
        Overhead {
            shipper_wakeups,
            ..self.threads.overhead.report()
        }
    }

    /// Returns how much of this process the sampler can see.
    #[must_use]
    pub fn mode(&self) -> SamplerMode {
        self.threads.control.mode()
    }

    /// Waits until the collector has answered everything that was recorded before this call, at most for `limit`.
    /// Returns whether it has. The answer may take a second if another flush was less than a second ago.
    pub fn flush(&self, limit: Duration) -> bool {
        if !self.threads.are_here() {
            return false;
        }
        let until = Instant::now() + limit.min(FINISH_MAX);
        let request = self.threads.control.request_flush();
        loop {
            // The queue is checked first: until then, the outbox is empty without an answer.
            if self.threads.control.is_queued(request) && self.shipping.is_idle() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::park_timeout(FLUSH_STEP);
        }
    }

    /// Stops sampling, flushes for at most the flush timeout, and returns the final report, whose
    /// `unacked_ns` is the time that the collector has not acknowledged by then.
    pub fn finish(self) -> crate::ShipReport {
        let limit = self.shipping.flush_timeout();
        self.finish_within(limit)
    }

    /// Like [`Agent::finish`], with another limit.
    #[doc(hidden)]
    pub fn finish_within(mut self, limit: Duration) -> crate::ShipReport {
        self.end(limit)
    }

    fn end(&mut self, limit: Duration) -> crate::ShipReport {
        let limit = limit.min(FINISH_MAX);
        let until = Instant::now() + limit;
        if self.threads.are_here() {
            // A second call changes nothing.
            let _ = self.threads.control.names_until.set(until - limit / 2);
            self.shipping
                .request_finish(until - JOIN_RESERVE.min(limit / 4), limit);
            self.threads.stop(Some(until));
        }
        self.shipping.finish()
    }
}

#[cfg(feature = "ship")]
impl Drop for Agent {
    fn drop(&mut self) {
        let limit = self.shipping.flush_timeout();
        self.end(limit);
    }
}

/// An agent that records into the memory of its own process.
#[derive(Debug)]
#[must_use = "recording stops when this is dropped"]
pub struct LocalAgent {
    threads: Threads,
    recorder: Recorder,
    flush_timeout: Duration,
}

impl LocalAgent {
    pub(crate) fn start(builder: &AgentBuilder) -> Result<LocalAgent, StartError> {
        builder.check()?;
        let launch = Launch::new(builder)?;
        let recorder = Recorder::new(launch.tables.clone(), builder.phases);
        let threads = launch.start(Box::new(recorder.clone()), None)?;
        Ok(LocalAgent {
            threads,
            recorder,
            flush_timeout: builder.flush_timeout,
        })
    }

    /// Returns everything recorded up to the last whole second.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.recorder.recording()
    }

    /// Returns what the agent has cost so far.
    #[must_use]
    pub fn overhead(&self) -> Overhead {
        self.threads.overhead.report()
    }

    /// Returns how much of this process the sampler can see.
    #[must_use]
    pub fn mode(&self) -> SamplerMode {
        self.threads.control.mode()
    }

    /// Stops sampling and returns everything that was recorded.
    #[must_use]
    pub fn finish(mut self) -> Recording {
        // Without a limit, because the recording is what the caller waits for.
        self.threads.stop(None);
        self.recorder.recording()
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        self.threads
            .stop(Some(Instant::now() + self.flush_timeout.min(FINISH_MAX)));
    }
}

/// A program may keep its agent in a static, and ask it from any thread.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    #[cfg(feature = "ship")]
    is_shared::<Agent>();
    is_shared::<LocalAgent>();
};

/// Proof that this is the only agent of the process. Its threads hold it too, because one that is
/// left behind still reads what guards have written.
#[derive(Debug)]
struct Running {
    process: u32,
}

impl Running {
    fn claim(is_alone: bool) -> Result<Running, StartError> {
        let process = std::process::id();
        if RUNNING_IN.swap(process, Ordering::AcqRel) == process {
            return Err(StartError::AlreadyRunning);
        }
        let running = Running { process };
        if other_copy_samples(is_alone) {
            return Err(StartError::AlreadyRunning);
        }
        Ok(running)
    }
}

/// Whether another copy of this crate samples this process: several libraries may have one each.
fn other_copy_samples(is_alone: bool) -> bool {
    let counts = || has_thread(SAMPLER_THREAD) && (is_alone || !has_thread(PRELOADED_THREAD));
    for _ in 0..REMOVAL_STEPS_MAX {
        if !counts() {
            return false;
        }
        // It may be the thread of an agent that has just ended.
        std::thread::park_timeout(REMOVAL_STEP);
    }
    counts()
}

/// Whether this process has a thread of an agent, of any copy, by the end of its name.
fn has_thread(name: &str) -> bool {
    let wanted = ThreadName::from(&*spawn::name_of(name));
    thread_ids().is_ok_and(|ids| ids.iter().any(|id| thread_name(*id) == wanted))
}

impl Drop for Running {
    fn drop(&mut self) {
        // A forked child may have started its own agent by now.
        if self.process == std::process::id() {
            wanted::set_agent(false);
            RUNNING_IN.store(0, Ordering::Release);
        }
    }
}

/// Held by each thread until its end. The fields are dropped in this order, because another agent
/// may start as soon as the ends of all threads are known.
#[derive(Clone, Debug)]
struct Alive {
    _running: Arc<Running>,
    /// Nothing is sent.
    _ended: Sender<()>,
}

type Body = Box<dyn FnOnce() + Send>;

/// Everything that the threads of one agent share, before they are started.
struct Launch {
    running: Arc<Running>,
    options: SamplerOptions,
    control: Arc<Control>,
    tables: Arc<Mutex<Tables>>,
    has_log: bool,
    names_task: Option<SymbolPattern>,
}

/// The work of the first thread, which starts the others.
struct FirstThread {
    alive: Alive,
    options: SamplerOptions,
    control: Arc<Control>,
    overhead: Arc<OverheadCounters>,
    stop: Arc<AtomicBool>,
    symbolizer: Symbolizer,
    sink: Box<dyn Sink>,
    ship: Option<Body>,
}

impl Launch {
    fn new(builder: &AgentBuilder) -> Result<Launch, StartError> {
        marker::keep();
        let options = builder.sampler_options();
        let running = Arc::new(Running::claim(builder.is_alone)?);
        address_space::check().map_err(
            |Shortage {
                 free_mib,
                 needed_mib,
             }| {
                StartError::AddressSpace {
                    free_mib,
                    needed_mib,
                }
            },
        )?;
        fork::watch();
        Ok(Launch {
            running,
            options,
            control: Arc::new(Control::new(options.settings())),
            tables: Arc::new(Mutex::new(Tables::default())),
            has_log: builder.has_log,
            names_task: builder.names_task.clone(),
        })
    }

    /// Starts the threads. If one of them cannot start, none is left.
    fn start(self, sink: Box<dyn Sink>, ship: Option<Body>) -> Result<Threads, StartError> {
        let Launch {
            running,
            options,
            control,
            tables,
            has_log,
            names_task,
        } = self;
        let overhead: Arc<OverheadCounters> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, ended) = channel();
        let mut threads = Threads {
            stop: stop.clone(),
            control: control.clone(),
            handles: Vec::new(),
            log: None,
            ended: Mutex::new(ended),
            running: Some(running.clone()),
            process: std::process::id(),
            overhead: overhead.clone(),
        };
        // Dropped before `threads`, which waits for it, if a thread cannot start.
        let alive = Alive {
            _running: running,
            _ended: sender,
        };
        if has_log {
            let lines = log::open();
            threads.log = Some(spawn("log", move || log::write(&lines))?);
        }
        let symbolizer = Symbolizer::new(options, tables, overhead.clone(), control.clone())
            .tasks_by_symbol(names_task);
        let first = FirstThread {
            alive,
            options,
            control,
            overhead,
            stop,
            symbolizer,
            sink,
            ship,
        };
        let (started, is_started) = sync_channel(1);
        threads.handles.push(spawn_needed(
            SAMPLER_THREAD,
            threads.control.clone(),
            move || first.run(&started),
        )?);
        // Fails if it has panicked, which is in the log.
        let others = is_started.recv().map_err(|_| StartError::Panicked)??;
        threads.handles.extend(others);
        wanted::set_agent(true);
        Ok(threads)
    }
}

impl FirstThread {
    /// Leaves the program's descriptor table, starts the threads that inherit the new one, and
    /// samples.
    fn run(self, started: &SyncSender<Result<Vec<JoinHandle<()>>, StartError>>) {
        let FirstThread {
            alive,
            options,
            control,
            overhead,
            stop,
            symbolizer,
            mut sink,
            ship,
        } = self;
        let _alive = alive.clone();
        if let Err(error) = descriptors::leave_table_of_program() {
            log::emit(move || {
                tracing::info!(
                    "the agent's descriptors are in the program's table: close_range and unshare \
                     are refused: {}",
                    error.desc()
                );
            });
        }
        // Also for the others, which inherit it.
        let _ = probe::allowed(leave_real_time);
        // Before the others, so that they know the mode, and so that the collector hears of this
        // agent only once it samples.
        let sampler = Sampler::new(options, control.clone(), overhead);
        let (cycles, sealed) = sampler::cycles(CYCLES_QUEUED_MAX);
        let symbolizer_alive = alive.clone();
        let symbolize = move || {
            let _alive = symbolizer_alive;
            lower_priority();
            symbolizer.run(sealed, &mut *sink);
        };
        let ship_body = |ship: Body| {
            move || {
                let _alive = alive;
                ship();
            }
        };
        let mut others = Vec::new();
        let start_others = || {
            // Not before: the program's thread may not be allowed to read a clock.
            clock::check().map_err(|FakedClock { clock }| StartError::Clock { clock })?;
            others.push(spawn_needed("syms", control.clone(), symbolize)?);
            if let Some(ship) = ship {
                others.push(spawn_needed("ship", control.clone(), ship_body(ship))?);
            }
            Ok(())
        };
        let result: Result<(), StartError> = start_others();
        let is_ok = result.is_ok();
        // Fails only if nobody waits any more, which changes nothing.
        let _ = started.send(result.map(|()| others));
        if is_ok {
            // Only now, because the others would inherit it.
            raise_priority();
            // Without it, ticks are rarer among many runnable threads.
            let _ = probe::allowed(shorten_slice);
            sampler.run(&stop, cycles);
        }
    }
}

/// The threads of an agent.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    control: Arc<Control>,
    handles: Vec<JoinHandle<()>>,
    log: Option<JoinHandle<()>>,
    /// Disconnected when all of `handles` have ended. In a lock only so that an agent can be shared.
    ended: Mutex<Receiver<()>>,
    running: Option<Arc<Running>>,
    process: u32,
    overhead: Arc<OverheadCounters>,
}

impl Threads {
    /// Whether the threads exist: in a forked child they do not.
    fn are_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Ends the sampler, which closes the channel of the symbolizer and so ends it too. Threads that
    /// have not ended at `until` are left behind, and end by themselves.
    fn stop(&mut self, until: Option<Instant>) {
        if !self.are_here() || self.running.is_none() {
            return;
        }
        self.stop.store(true, Ordering::Release);
        // First, so that the symbolizer still reads the last rows of the guards.
        wanted::set_agent(false);
        self.control.wake();
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let end = match until {
            Some(until) => ended.recv_timeout(left(until)),
            None => ended.recv().map_err(RecvTimeoutError::from),
        };
        log::close();
        let handles = std::mem::take(&mut self.handles);
        if end == Err(RecvTimeoutError::Disconnected) {
            for thread in handles {
                // A panic was logged where it happened.
                let _ = thread.join();
            }
        }
        self.end_log(until.map_or(JOIN_RESERVE, left));
        self.running = None;
    }

    /// Waits until the last lines are written, unless the program's subscriber hangs.
    fn end_log(&mut self, limit: Duration) {
        let Some(log) = self.log.take() else {
            return;
        };
        let until = Instant::now() + limit;
        while !log.is_finished() && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        if log.is_finished() {
            let _ = log.join();
        }
    }
}

impl Drop for Threads {
    /// Ends the threads of a start that failed.
    fn drop(&mut self) {
        self.stop(Some(Instant::now() + JOIN_RESERVE));
    }
}
