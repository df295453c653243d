//! Starts and stops the threads of an agent.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::builder::{AgentBuilder, StartError};
use crate::control::Control;
use crate::local::Recorder;
use crate::sampler::{OverheadCounters, Sampler, SamplerOptions};
use crate::spawn::spawn;
use crate::symbolizer::{Sink, Symbolizer};
use crate::sys::process::lower_priority;
use crate::tables::Tables;
use crate::{Overhead, Recording, SamplerMode, fork, wanted};

/// Most cycles queued from the sampler to the symbolizer: the seconds that a symbolizer of low
/// priority may need for a program's first frames on a busy machine. When the queue is full the
/// sampler continues in the same cycle: it gets longer, and nothing is lost.
const CYCLES_QUEUED_MAX: usize = 8;

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
    shipping: crate::shipping::Shipping,
}

#[cfg(feature = "ship")]
impl Agent {
    /// Returns the default settings.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::default()
    }

    pub(crate) fn start(builder: AgentBuilder) -> Result<Agent, StartError> {
        let worker = builder.check()?;
        let options = builder.sampler_options();
        let running = Running::claim()?;
        let tables = Arc::new(Mutex::new(Tables::new()));
        let control = Arc::new(Control::new(options.settings()));
        let shipping =
            crate::shipping::Shipping::start(builder, worker, control.clone(), tables.clone())?;
        let sink = Box::new(shipping.sink());
        let threads = Threads::start(running, control, options, tables, sink)?;
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
        self.threads.overhead.report()
    }

    /// Returns how much of this process the sampler can see.
    #[must_use]
    pub fn mode(&self) -> SamplerMode {
        self.threads.control.mode()
    }

    /// Stops sampling, flushes for at most the flush timeout, and returns the final report.
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

/// An agent that records into the memory of its own process.
#[derive(Debug)]
#[must_use = "recording stops when this is dropped"]
pub struct LocalAgent {
    threads: Threads,
    recorder: Recorder,
}

impl LocalAgent {
    pub(crate) fn start(builder: &AgentBuilder) -> Result<LocalAgent, StartError> {
        builder.check()?;
        let options = builder.sampler_options();
        let running = Running::claim()?;
        let tables = Arc::new(Mutex::new(Tables::new()));
        let recorder = Recorder::new(tables.clone(), builder.phases);
        let control = Arc::new(Control::new(options.settings()));
        let sink = Box::new(recorder.clone());
        let threads = Threads::start(running, control, options, tables, sink)?;
        Ok(LocalAgent { threads, recorder })
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
        self.threads.stop();
        self.recorder.recording()
    }
}

/// Proof that this is the only agent of the process, until it is dropped.
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
        // A forked child may have started its own agent by now.
        if self.process == std::process::id() {
            wanted::set_agent(false);
            RUNNING_IN.store(0, Ordering::Release);
        }
    }
}

/// The threads of the sampler and the symbolizer.
#[derive(Debug)]
struct Threads {
    stop: Arc<AtomicBool>,
    control: Arc<Control>,
    sampler: Option<JoinHandle<()>>,
    symbolizer: Option<JoinHandle<()>>,
    running: Option<Running>,
    process: u32,
    overhead: Arc<OverheadCounters>,
}

impl Threads {
    fn start(
        running: Running,
        control: Arc<Control>,
        options: SamplerOptions,
        tables: Arc<Mutex<Tables>>,
        mut sink: Box<dyn Sink>,
    ) -> Result<Threads, StartError> {
        let (sender, receiver) = sync_channel(CYCLES_QUEUED_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        // Made first, so that dropping it stops the first thread if the second cannot start.
        let mut threads = Threads {
            stop: stop.clone(),
            control: control.clone(),
            sampler: None,
            symbolizer: None,
            running: Some(running),
            process: std::process::id(),
            overhead: Arc::default(),
        };
        let overhead = threads.overhead.clone();
        let symbolizer = Symbolizer::new(options, tables, overhead.clone(), control.clone());
        let symbolize = move || {
            lower_priority();
            symbolizer.run(&receiver, &mut *sink);
        };
        threads.symbolizer = Some(spawn("syms", symbolize)?);
        let (started, is_started) = sync_channel(1);
        let sample = move || {
            let sampler = Sampler::new(options, control, overhead);
            // Fails only if nobody waits any more, which changes nothing.
            let _ = started.send(());
            sampler.run(&stop, &sender);
        };
        threads.sampler = Some(spawn("tick", sample)?);
        // The sampler knows its mode now. If it has panicked instead, that is in the log.
        let _ = is_started.recv();
        Ok(threads)
    }

    /// Ends the sampler, which closes the channel of the symbolizer and so ends it too.
    fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.control.wake();
        // First, so that the symbolizer still reads the last rows of the guards.
        drop(self.running.take());
        for thread in [self.sampler.take(), self.symbolizer.take()].into_iter().flatten() {
            // In a forked child the thread does not exist, and joining it could wait forever.
            if self.process == std::process::id() {
                // A panic was logged where it happened.
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
