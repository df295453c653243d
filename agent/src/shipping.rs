//! Connects the agent to its shipper.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profiler_core::{Epoch, Timestamp};

use crate::batch::Batch;
use crate::builder::{AgentBuilder, StartError, host_name};
use crate::clock;
use crate::control::{Control, ThreadDumpReply};
use crate::report::ShipReport;
use crate::ship::{self, AgentClock, Limits, ShipError, ShipOptions, Shipper};
use crate::symbolizer::Sink;
use crate::sync::lock;
use crate::sys::signals::BlockedSignals;
use crate::tables::Tables;

const URL_DEFAULT: &str = "http://127.0.0.1:4747";
const URL_VARIABLE: &str = "EMBERLINE_URL";

/// The shipper, or `None` once it has finished.
#[derive(Clone, Debug)]
pub(crate) struct ShipSink(Arc<Mutex<Option<Shipper>>>);

impl Sink for ShipSink {
    fn push(&mut self, batch: Batch) {
        if let Some(shipper) = &*lock(&self.0) {
            shipper.push(batch);
        }
    }

    fn thread_dump(&mut self, reply: ThreadDumpReply) {
        if let Some(shipper) = &*lock(&self.0) {
            shipper.thread_dump(reply);
        }
    }
}

/// An agent's connection to its collector.
#[derive(Debug)]
pub(crate) struct Shipping {
    sink: ShipSink,
    flush_timeout: Duration,
    last_report: ShipReport,
    process: u32,
}

impl Shipping {
    pub(crate) fn start(
        builder: AgentBuilder,
        worker: String,
        control: Arc<Control>,
        tables: Arc<Mutex<Tables>>,
    ) -> Result<Shipping, StartError> {
        let url = builder
            .collector
            .or_else(|| std::env::var(URL_VARIABLE).ok().filter(|url| !url.is_empty()))
            .unwrap_or_else(|| URL_DEFAULT.to_owned());
        let options = ShipOptions {
            url,
            worker,
            labels: builder.labels,
            epoch: random_epoch(),
            host: host_name(),
            pid: std::process::id(),
            control,
            started_at: clock::now(),
            limits: Limits::default(),
        };
        let _blocked = BlockedSignals::new();
        let shipper =
            Shipper::start(options, tables, Arc::new(ProcessClock)).map_err(start_error)?;
        let last_report = ShipReport::of(&shipper.report());
        let sink = ShipSink(Arc::new(Mutex::new(Some(shipper))));
        let process = std::process::id();
        Ok(Shipping { sink, flush_timeout: builder.flush_timeout, last_report, process })
    }

    pub(crate) fn sink(&self) -> ShipSink {
        self.sink.clone()
    }

    pub(crate) fn report(&self) -> ShipReport {
        let shipper = lock(&self.sink.0);
        shipper.as_ref().map_or(self.last_report, |shipper| ShipReport::of(&shipper.report()))
    }

    /// Flushes and returns the final report; a second call returns the same report.
    pub(crate) fn finish(&mut self) -> ShipReport {
        if self.process != std::process::id() {
            // A forked child has no such thread, and the lock may be held forever. Its parent flushes.
            return self.last_report;
        }
        let shipper = lock(&self.sink.0).take();
        if let Some(shipper) = shipper {
            self.last_report = ShipReport::of(&shipper.finish(self.flush_timeout));
        }
        self.last_report
    }
}

fn start_error(error: ShipError) -> StartError {
    match error {
        ShipError::Url { url, reason } => StartError::Collector { url, reason },
        ShipError::Labels { count } => StartError::Labels { count },
        ShipError::Thread(source) => StartError::Spawn { source },
    }
}

struct ProcessClock;

impl AgentClock for ProcessClock {
    fn now(&self) -> Timestamp {
        clock::now()
    }
}

/// Returns a number that no other life of an agent has. The standard library reads the system's random
/// source only once per thread to seed its hashers, so this also hashes the process and the time.
fn random_epoch() -> u64 {
    RandomState::new().hash_one((std::process::id(), clock::now().unix_ns()))
}

impl ShipReport {
    fn of(report: &ship::ShipReport) -> ShipReport {
        let account = &report.account;
        ShipReport {
            epoch: Epoch(report.epoch),
            accepted_ns: account.accepted_ns,
            stored_ns: account.acked_ns,
            unacked_ns: account.unacked_ns,
            lost_refused_ns: account.lost_refused_ns,
            lost_by_collector_ns: account.lost_by_collector_ns,
            lost_queue_ns: account.lost_queue_ns,
            lost_tasks: account.lost_tasks,
            lost_telemetry: account.lost_telemetry,
            aggregated_tasks: account.aggregated_tasks,
            connected: report.connected,
            connects: report.connects,
        }
    }
}
