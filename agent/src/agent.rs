//! Starting and stopping: the threads of an agent and what they share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::builder::{AgentBuilder, StartError};
use crate::control::Control;
use crate::cycle::Tables;
use crate::fold::{Folder, Sink};
use crate::local::{Recorder, Recording};
use crate::sampler::{Costs, Overhead, RawCycle, Sampler, SamplerOptions};
use crate::sys::process::lower_priority;
use crate::threads::AgentThread;
use crate::{fork, wanted};

/// Cycles under way from the sampler to the folder: as many seconds as a folder of low priority may
/// take to name a program's first frames on a busy machine. When they are used up the sampler goes on
/// counting into the same cycle: nothing is lost, the cycle gets longer.
const CYCLES_QUEUED_MAX: usize = 8;

/// All threads of the agent are called so; the rest of a name says which one it is.
const AGENT_THREAD_PREFIX: &str = "emberline-";

/// The process whose agent runs; 0 if there is none. Signals and task guards serve one agent, and a
/// forked child has a copy of this but none of the threads.
static RUNNING_IN: AtomicU32 = AtomicU32::new(0);

/// A running agent. Dropping it stops the sampling and flushes what was counted, for at most the
/// builder's flush timeout.
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
    shipping: crate::shipping::Shipping,
}

#[cfg(feature = "ship")]
impl Agent {
    /// Settings, all of which have defaults.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    pub(crate) fn start(builder: AgentBuilder) -> Result<Agent, StartError> {
        let (worker, options) = builder.checked()?;
        let running = Running::claim()?;
        let tables = Arc::new(Mutex::new(Tables::new()));
        let control = Arc::new(Control::new(options.settings()));
        let shipping =
            crate::shipping::Shipping::start(builder, worker, control.clone(), tables.clone())?;
        let threads =
            Threads::start(running, control, (options, tables), Box::new(shipping.sink()))?;
        Ok(Agent { threads, shipping })
    }

    /// What became of what was sampled, so far. Sums of this agent's life, all of them exact.
    #[must_use]
    pub fn report(&self) -> crate::ShipReport {
        self.shipping.report()
    }

    /// What the agent has cost so far.
    #[must_use]
    pub fn cost(&self) -> Overhead {
        self.threads.costs.report()
    }

    /// How much of the sampler works in this process: `full`, or what is missing and why.
    #[must_use]
    pub fn mode(&self) -> Arc<str> {
        self.threads.control.mode()
    }

    /// Stops, flushes for at most the flush timeout, and says what became of everything.
    pub fn finish(mut self) -> crate::ShipReport {
        self.threads.stop();
        self.shipping.finish()
    }
}

#[cfg(feature = "ship")]
impl Drop for Agent {
    fn drop(&mut self) {
        self.threads.stop();
        self.shipping.finish();
    }
}

/// An agent that records into its own process's memory.
#[derive(Debug)]
#[must_use = "recording stops when this is dropped"]
pub struct LocalAgent {
    threads: Threads,
    recorder: Recorder,
}

impl LocalAgent {
    pub(crate) fn start(builder: &AgentBuilder) -> Result<LocalAgent, StartError> {
        let (_, options) = builder.checked()?;
        let running = Running::claim()?;
        let tables = Arc::new(Mutex::new(Tables::new()));
        let recorder = Recorder::new(tables.clone(), builder.phases);
        let control = Arc::new(Control::new(options.settings()));
        let threads =
            Threads::start(running, control, (options, tables), Box::new(recorder.clone()))?;
        Ok(LocalAgent { threads, recorder })
    }

    /// What was recorded up to the last whole second.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.recorder.recording()
    }

    /// What the agent has cost so far.
    #[must_use]
    pub fn cost(&self) -> Overhead {
        self.threads.costs.report()
    }

    /// How much of the sampler works in this process: `full`, or what is missing and why.
    #[must_use]
    pub fn mode(&self) -> Arc<str> {
        self.threads.control.mode()
    }

    /// Stops, and gives everything that was recorded.
    #[must_use]
    pub fn finish(mut self) -> Recording {
        self.threads.stop();
        self.recorder.recording()
    }
}

/// This process's claim to be the one that samples it.
#[derive(Debug)]
struct Running {
    process: u32,
}

impl Running {
    fn claim() -> Result<Running, StartError> {
        let process = std::process::id();
        if RUNNING_IN.swap(process, Ordering::AcqRel) == process {
            return Err(StartError::AlreadyRunning);
        }
        fork::watch();
        wanted::set_agent(true);
        Ok(Running { process })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A forked child may have an agent of its own by now.
        if self.process == std::process::id() {
            wanted::set_agent(false);
            RUNNING_IN.store(0, Ordering::Release);
        }
    }
}

/// The sampler's and the folder's thread.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    control: Arc<Control>,
    sampler: Option<JoinHandle<()>>,
    folder: Option<JoinHandle<()>>,
    running: Option<Running>,
    process: u32,
    costs: Arc<Costs>,
}

impl Threads {
    fn start(
        running: Running,
        control: Arc<Control>,
        (options, tables): (SamplerOptions, Arc<Mutex<Tables>>),
        sink: Box<dyn Sink>,
    ) -> Result<Threads, StartError> {
        let (sender, receiver) = sync_channel(CYCLES_QUEUED_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Threads {
            stop: stop.clone(),
            control: control.clone(),
            sampler: None,
            folder: None,
            running: Some(running),
            process: std::process::id(),
            costs: Arc::default(),
        };
        let costs = threads.costs.clone();
        let folder = Folder::new(options, tables, costs.clone(), control.clone());
        threads.folder = Some(spawn("fold", move || fold(folder, &receiver, sink))?);
        let (ready, is_ready) = sync_channel(1);
        let sample = move || {
            let sampler = Sampler::new(options, control, costs);
            // Nobody waits for this any more if the start was given up.
            let _ = ready.send(());
            sampler.run(&stop, &sender);
        };
        threads.sampler = Some(spawn("tick", sample)?);
        // Its mode is known then. If it panics, that is in the log, and it says nothing.
        let _ = is_ready.recv();
        Ok(threads)
    }

    /// Ends the sampler, which is woken for it, and then the folder, which gets the end of its
    /// channel.
    fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.control.wake();
        // The guards' last rows are in before the folder ends.
        drop(self.running.take());
        for thread in [self.sampler.take(), self.folder.take()].into_iter().flatten() {
            // In a forked child the thread does not exist and could be waited for in vain.
            if self.process == std::process::id() {
                // A panic was reported where it happened.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn fold(folder: Folder, cycles: &Receiver<RawCycle>, mut sink: Box<dyn Sink>) {
    lower_priority();
    folder.run(cycles, &mut *sink);
}

/// Starts a thread of the agent's. It takes none of the program's signals, and a panic in it ends
/// with a line in the log and not with the program.
pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let _blocked = BlockedSignals::new();
    let name = format!("{AGENT_THREAD_PREFIX}{name}");
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || {
            let _of_agent = AgentThread::enter();
            if catch_unwind(AssertUnwindSafe(body)).is_err() {
                tracing::error!("{name} panicked; this process is no longer profiled");
            }
        })
        .map_err(|source| StartError::Spawn { source })
}

/// Blocks signals on this thread, and so on those that it starts, until it is dropped: a signal to
/// the process must find a thread of the program. The sampler's own signals stay open, or it could
/// not see its neighbours.
pub(crate) struct BlockedSignals(Option<SigSet>);

impl BlockedSignals {
    pub(crate) fn new() -> Self {
        let mut signals = SigSet::all();
        for own in [Signal::SIGURG, Signal::SIGWINCH] {
            signals.remove(own);
        }
        BlockedSignals(signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok())
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // Setting back a mask that was valid before cannot fail.
            let _ = before.thread_set_mask();
        }
    }
}

/// How long an agent flushes when it ends, if it was not told otherwise.
pub(crate) const FLUSH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);
