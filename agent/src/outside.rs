//! Recording of another process: what it does is found out by the caller, and named and shipped here. For the crate
//! `emberline-outside` only; it changes without notice.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use profiler_core::{Outcome, Settings, StateSet, TaskId, TaskRecord, Timestamp};

use crate::StartError;
use crate::agent::shipping::{random_key, start_error, token_source};
use crate::builder::host_name;
use crate::clock;
use crate::registry;
use crate::sampler::outside::ProcessSettings;
pub use crate::sampler::outside::{
    BlockedPlace, BlockedSite, BlockedThread, CycleEnd, ModuleFile, ProcessSamples, RunningStack,
    SampleAttribution, ThreadActivity, ThreadLabel, ThreadTime,
};
use crate::sampler::{self, OverheadCounters, SamplerOptions};
use crate::spawn::spawn_needed;
pub use crate::symbol_pattern::SymbolPattern;
use crate::symbolizer::{Sink, Symbolizer};
use crate::{SamplerMode, Symbols};
use ship::ShipReport;
use ship::batch::Batch;
use ship::control::{Control, ThreadDumpReply};
use ship::shipper::{self, AgentClock, BatchQueue, LogEvent, ShipOptions, Shipper};
use ship::tables::Tables;
use symbolize::{LeftToCollector, Resolver, Subject};
use system::process::lower_priority;

/// Most cycles that wait for names.
const CYCLES_QUEUED_MAX: usize = 8;
/// Weights are multiples of a tenth of the interval.
const QUANTA_PER_INTERVAL: u64 = 10;
/// Part of the time to finish after which functions are sent without names.
const NAMES_PART: u32 = 2;
/// The only task of a process.
const TASK: TaskId = TaskId(1);

/// A process to record, and the collector that gets it.
#[derive(Clone, Debug)]
pub struct OutsideOptions {
    /// Its id.
    pub process: u32,
    /// The collector's URL; its token is taken from the environment.
    pub url: String,
    /// Id of the worker.
    pub worker: String,
    /// Keys and values.
    pub labels: Vec<(String, String)>,
    /// The task of all its time.
    pub task: String,
    /// Whether names of threads are tasks instead.
    pub tasks_by_thread: bool,
    /// Functions whose calls are tasks instead of the process: each has the time of the function and of its callees.
    pub names_task: Option<SymbolPattern>,
    /// Time between two ticks.
    pub interval_ns: u64,
    /// How much can be seen.
    pub mode: SamplerMode,
}

impl OutsideOptions {
    /// Every weight is a multiple of it.
    #[must_use]
    pub fn quantum_ns(&self) -> u64 {
        (self.interval_ns / QUANTA_PER_INTERVAL).max(1)
    }
}

/// The threads that name and ship.
#[derive(Debug)]
pub struct Shipment {
    shipper: Shipper,
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts to record. The first cycle begins at `start_ns` of the monotonic clock.
///
/// # Errors
/// If the URL is invalid, there are too many labels, or threads cannot be started.
pub fn record(
    options: OutsideOptions,
    start_ns: u64,
) -> Result<(ProcessSamples, Shipment), StartError> {
    let quantum_ns = options.quantum_ns();
    let control = Arc::new(Control::new(Settings {
        interval_ns: options.interval_ns,
        enabled: true,
        states: StateSet::ALL,
    }));
    control.set_mode(options.mode);
    let tables: Arc<Mutex<Tables>> = Arc::default();
    let started_at = clock::at(start_ns);
    let task = TaskOfProcess {
        record: TaskRecord {
            id: TASK,
            name: options.task.as_str().into(),
            key: options.worker.as_str().into(),
            thread_id: options.process,
            thread_name: options.task.as_str().into(),
            parent: None,
            start: started_at,
            stop: None,
            outcome: Outcome::Running,
            cause: "".into(),
            detail: None,
        },
        is_sent: false,
    };
    let sampler_options = SamplerOptions {
        interval_ns: options.interval_ns,
        cycle_ns: 1_000_000_000,
        cpu_limit: 0,
        cpu_limit_of_process: None,
        // Resources would be those of this process.
        resource_interval: None,
        task_rows_per_second: 1,
        walker: None,
        symbols: Symbols::Agent,
        default_task: registry::name_id(&options.task),
        tasks_by_thread: options.tasks_by_thread,
        symbol_upload: false,
    };
    let ship_options = ShipOptions {
        url: options.url,
        token: token_source(None),
        worker: options.worker,
        labels: options.labels,
        key: random_key(),
        host: host_name(),
        pid: options.process,
        agent_version: env!("CARGO_PKG_VERSION"),
        control: control.clone(),
        started_at,
        limits: shipper::Limits::default(),
        log: log_at_once,
        notice: false,
    };
    let parts =
        shipper::prepare(ship_options, tables.clone(), Arc::new(Clock)).map_err(start_error)?;
    let subject = Subject::other(options.process);
    let overhead: Arc<OverheadCounters> = Arc::default();
    let resolver = Resolver::of(subject.clone(), LeftToCollector::None);
    let symbolizer = Symbolizer::new(sampler_options, tables, overhead, control.clone())
        .of_other(resolver)
        .tasks_by_symbol(options.names_task);
    let (cycles, sealed) = sampler::cycles(CYCLES_QUEUED_MAX);
    let mut sink = TaskSink {
        queue: parts.queue,
        task,
    };
    let thread = parts.thread;
    // The shipper ends when the queue is dropped and it is asked to finish.
    let symbolize = move || {
        lower_priority();
        symbolizer.run(sealed, &mut sink);
        sink.end();
    };
    let mut shipment = Shipment {
        shipper: parts.shipper,
        control: control.clone(),
        threads: vec![spawn_needed("syms", control.clone(), symbolize)?],
    };
    let ship = spawn_needed("ship", control, move || thread.run())?;
    shipment.threads.push(ship);
    let settings = ProcessSettings {
        subject,
        tasks_by_thread: options.tasks_by_thread,
        quantum_ns,
        start_ns,
    };
    Ok((ProcessSamples::new(settings, cycles), shipment))
}

impl Shipment {
    /// Ships what was sealed, within the limit, and returns the account of it. [`ProcessSamples`] must have been dropped.
    #[must_use]
    pub fn finish(self, limit: Duration) -> ShipReport {
        let until = Instant::now() + limit;
        // A second call changes nothing.
        let _ = self.control.names_until.set(until - limit / NAMES_PART);
        self.shipper.request_finish(until, limit);
        for thread in self.threads {
            // Both end by the deadline. A panic is in the log.
            let _ = thread.join();
        }
        self.shipper.report()
    }

    /// The account so far.
    #[must_use]
    pub fn report(&self) -> ShipReport {
        self.shipper.report()
    }
}

struct Clock;

impl AgentClock for Clock {
    fn now(&self) -> Timestamp {
        clock::now()
    }
}

/// This process's log is open to every thread.
fn log_at_once(event: LogEvent) {
    event();
}

/// The task that the process is as a whole.
struct TaskOfProcess {
    record: TaskRecord,
    is_sent: bool,
}

/// Adds the task to the first batch and to the last one.
struct TaskSink {
    queue: BatchQueue,
    task: TaskOfProcess,
}

impl TaskSink {
    fn end(mut self) {
        self.task.record.stop = Some(clock::now());
        self.task.record.outcome = Outcome::Ok;
        self.queue.push(Batch {
            tasks: vec![self.task.record],
            ..Batch::default()
        });
    }
}

impl Sink for TaskSink {
    fn push(&mut self, batch: Batch) {
        let mut batch = batch;
        if !self.task.is_sent {
            self.task.is_sent = true;
            batch.tasks.push(self.task.record.clone());
        }
        self.queue.push(batch);
    }

    fn thread_dump(&mut self, reply: ThreadDumpReply) {
        self.queue.thread_dump(reply);
    }

    fn symbols_answered(&mut self) {
        self.queue.symbols_answered();
    }
}
