//! Connects the agent to its shipper.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use profiler_core::token::TokenError;
use profiler_core::{SessionKey, Timestamp, Token};

use crate::builder::{AgentBuilder, StartError, host_name};
use crate::clock;
use crate::fork::PerProcess;
use crate::log;
use crate::symbolizer::Sink;
use ship::ShipReport;
use ship::batch::Batch;
use ship::control::{Control, ThreadDumpReply};
use ship::shipper::{
    self, AgentClock, BatchQueue, Limits, ShipError, ShipOptions, ShipThread, Shipper, TokenSource,
};
use ship::tables::Tables;
use system::environment;
use system::sync::lock;

const URL_DEFAULT: &str = "http://127.0.0.1:4747";
const URL_VARIABLE: &str = "EMBERLINE_URL";
const TOKEN_VARIABLE: &str = "EMBERLINE_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "EMBERLINE_TOKEN_FILE";

/// Where the agent of this process ships to, while it runs.
static COLLECTOR: PerProcess<Mutex<Option<Arc<Mutex<String>>>>> = PerProcess::new();

/// Whether an agent ships to the collector that the environment names.
pub(super) fn is_of_environment(builder: &AgentBuilder) -> bool {
    let url = builder.collector.as_ref();
    url.is_none_or(|url| url_of_environment().as_ref() == Some(url))
}

fn url_of_environment() -> Option<String> {
    let url = environment::variable(URL_VARIABLE)?.into_string().ok()?;
    (!url.is_empty()).then_some(url)
}

/// The URL of the present collector of the agent that runs in this process.
pub(crate) fn collector_of_agent() -> Option<String> {
    let present_url = lock(COLLECTOR.get()).clone()?;
    let url = lock(&present_url).clone();
    Some(url)
}

impl Sink for BatchQueue {
    fn push(&mut self, batch: Batch) {
        BatchQueue::push(self, batch);
    }

    fn thread_dump(&mut self, reply: ThreadDumpReply) {
        BatchQueue::thread_dump(self, reply);
    }

    fn symbols_answered(&mut self) {
        BatchQueue::symbols_answered(self);
    }
}

/// An agent's connection to its collector.
#[derive(Debug)]
pub(crate) struct Shipping {
    shipper: Shipper,
    flush_timeout: Duration,
    process: u32,
    /// Set when the agent has finished.
    final_report: Option<ShipReport>,
    first_report: ShipReport,
}

/// Parts of shipping that the agent's other threads need.
pub(crate) struct ShippingThreads {
    pub(crate) queue: BatchQueue,
    pub(crate) thread: ShipThread,
}

impl Shipping {
    pub(crate) fn prepare(
        builder: AgentBuilder,
        worker: String,
        control: Arc<Control>,
        tables: Arc<Mutex<Tables>>,
    ) -> Result<(Shipping, ShippingThreads), StartError> {
        let url = builder
            .collector
            .or_else(url_of_environment)
            .unwrap_or_else(|| URL_DEFAULT.to_owned());
        let options = ShipOptions {
            url,
            token: token_source(builder.token_file),
            worker,
            labels: builder.labels,
            key: random_key(),
            host: host_name(),
            pid: std::process::id(),
            agent_version: env!("CARGO_PKG_VERSION"),
            control,
            started_at: clock::now(),
            limits: Limits::default(),
            log: log::emit,
            notice: !builder.is_silent && !log::is_silenced(),
        };
        let parts =
            shipper::prepare(options, tables, Arc::new(ProcessClock)).map_err(start_error)?;
        let shipper::Parts {
            shipper,
            queue,
            thread,
        } = parts;
        let shipping = Shipping {
            first_report: shipper.report(),
            shipper,
            flush_timeout: builder.flush_timeout,
            process: std::process::id(),
            final_report: None,
        };
        Ok((shipping, ShippingThreads { queue, thread }))
    }

    /// The agent runs from now on.
    pub(crate) fn started(&self) {
        *lock(COLLECTOR.get()) = Some(self.shipper.present_url());
    }

    pub(crate) fn flush_timeout(&self) -> Duration {
        self.flush_timeout
    }

    pub(crate) fn report(&self) -> ShipReport {
        if self.process != std::process::id() {
            // In a forked child the lock may be held forever.
            return self.first_report;
        }
        self.final_report.unwrap_or_else(|| self.shipper.report())
    }

    /// Whether the collector has answered everything that is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.shipper.is_idle()
    }

    /// How often the ship thread looked for something to do.
    pub(crate) fn wakeups(&self) -> u64 {
        self.shipper.wakeups()
    }

    /// Asks the ship thread to flush and end until then, `limit` from now.
    pub(crate) fn request_finish(&self, until: Instant, limit: Duration) {
        self.shipper.request_finish(until, limit);
    }

    /// Returns the final report; a second call returns the same one.
    pub(crate) fn finish(&mut self) -> ShipReport {
        if self.final_report.is_none() && self.process == std::process::id() {
            *lock(COLLECTOR.get()) = None;
        }
        let report = self.report();
        *self.final_report.get_or_insert(report)
    }
}

/// The token file of the program, of the environment, or the token in the environment.
pub(crate) fn token_source(file: Option<PathBuf>) -> TokenSource {
    let variable = |name| environment::variable(name).filter(|value| !value.is_empty());
    if let Some(file) = file.or_else(|| variable(TOKEN_FILE_VARIABLE).map(PathBuf::from)) {
        return TokenSource::File(file);
    }
    variable(TOKEN_VARIABLE).map_or(TokenSource::None, |text| {
        TokenSource::Environment(text.to_str().map_or(Err(TokenError), Token::parse))
    })
}

pub(crate) fn start_error(error: ShipError) -> StartError {
    match error {
        ShipError::Url { url, reason } => StartError::Collector { url, reason },
        ShipError::Labels { count } => StartError::Labels { count },
    }
}

struct ProcessClock;

impl AgentClock for ProcessClock {
    fn now(&self) -> Timestamp {
        clock::now()
    }
}

/// Returns a secret that no other life of an agent has. The standard library reads the system's random
/// source only once per thread to seed its hashers, so this also hashes the process and the time.
/// SipHash with a random key is a pseudorandom function: nobody can guess its values.
pub(crate) fn random_key() -> SessionKey {
    let secret = RandomState::new();
    let now_ns = clock::now().unix_ns();
    let half = |index: u8| {
        secret
            .hash_one((index, std::process::id(), now_ns))
            .to_ne_bytes()
    };
    let mut bytes = [0; SessionKey::BYTES];
    bytes[..8].copy_from_slice(&half(0));
    bytes[8..].copy_from_slice(&half(1));
    SessionKey::new(bytes)
}
