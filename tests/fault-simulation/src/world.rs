//! The scheduler: one queue of events by time, and what each of them does.

mod agents;
mod collector;
mod end;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ::collector::Clock;
use ::collector::simulation::{
    Answer, DiskCondition, SimulatedCollector, SimulatedDisk, timestamp,
};
use profiler_core::wire::v1::{self, AgentMessage, CollectorMessage, agent_message};
use simulation::random::Random;

use crate::Failure;
use crate::faults::{Fault, FaultCounts};
use crate::network::Connection;
use crate::scenario::{SECOND, Scenario};
use crate::worker::Life;

/// When runs begin, by a correct clock.
const START_NS: i64 = 1_700_000_000 * SECOND;

/// How long an agent waits for an answer before it pings, and for the ping's answer.
const KEEPALIVE_NS: i64 = 10 * SECOND;

/// How long a stream may be silent before the collector ends it.
const SILENCE_NS: i64 = 60 * SECOND;

/// How long an agent waits for a Welcome.
const WELCOME_NS: i64 = 10 * SECOND;

/// How long after everything has healed agents go on sampling, so that each account is sent again.
const HEALED_NS: i64 = 30 * SECOND;

/// How long after that everything must be acknowledged.
const DRAIN_NS: i64 = 30 * 60 * SECOND;

const MAINTAIN_NS: i64 = 60 * SECOND;

/// Most events that a failure shows.
const TRACE_MAX: usize = 60;

/// Most messages that an agent sends at once.
const BURST_MAX: usize = 256;

/// What happened in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Simulated time.
    pub simulated_s: u64,
    /// Of all events, in order: two runs that differ anywhere differ here.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Cycles that agents sampled.
    pub cycles: u64,
    /// Flushes sent, with those that were sent again.
    pub flushes: u64,
    /// Streams that agents opened.
    pub connects: u64,
    /// Lives of agents.
    pub lives: u64,
    /// Crashes of the collector.
    pub crashes: u64,
    /// Starts of the collector that succeeded.
    pub starts: u64,
    /// Rejected flushes.
    pub refusals: u64,
    /// Sealings that wrote tables.
    pub sealings: u64,
    /// Comparisons with the truth.
    pub audits: u64,
    /// What went wrong.
    pub faults: FaultCounts,
}

#[derive(Debug)]
enum Event {
    /// A second of an agent ends.
    Cycle {
        life: usize,
    },
    Connect {
        life: usize,
        attempt: u64,
    },
    ToCollector {
        connection: u64,
        message: Box<AgentMessage>,
        /// The number of its flush.
        seq: Option<u64>,
    },
    ToAgent {
        connection: u64,
        answer: Box<Answer>,
    },
    /// The collector learns that the connection is closed.
    HangUp {
        connection: u64,
    },
    /// The agent learns it.
    Reset {
        connection: u64,
    },
    NoWelcome {
        connection: u64,
    },
    Keepalive {
        connection: u64,
    },
    Silence {
        connection: u64,
    },
    Commit,
    Seal,
    Maintain,
    Sweep,
    /// Something goes wrong at the collector.
    CollectorFault,
    DiskIsWell,
    /// Something goes wrong at an agent or on its way to the collector.
    Unrest,
    StartCollector,
    Heal,
    EndOfSampling,
}

/// What the collector does when it crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CrashMoment {
    BetweenChanges,
    Start,
    Commit,
    Sealing,
    Maintenance,
}

impl CrashMoment {
    /// The work that an event causes.
    fn of(event: &Event) -> CrashMoment {
        match event {
            Event::Commit | Event::Sweep => CrashMoment::Commit,
            Event::Seal => CrashMoment::Sealing,
            Event::Maintain => CrashMoment::Maintenance,
            _ => CrashMoment::BetweenChanges,
        }
    }
}

struct World {
    scenario: Scenario,
    random: Random,
    now_ns: Arc<AtomicI64>,
    /// The collector's clock minus a correct one.
    clock_off_ns: Arc<AtomicI64>,
    queue: BTreeMap<(i64, u64), Event>,
    numbers: u64,
    disk: SimulatedDisk,
    collector: Option<SimulatedCollector>,
    /// A collector that was paused and seemed to have crashed.
    paused: Option<SimulatedCollector>,
    connections: BTreeMap<u64, Connection>,
    lives: Vec<Life>,
    /// When the partition of each worker ends.
    partitions: Vec<i64>,
    is_commit_queued: bool,
    has_healed: bool,
    is_sampling: bool,
    summary: Summary,
    trace: VecDeque<String>,
    /// Prints each event.
    is_traced: bool,
}

/// Runs a seed to its end.
///
/// # Errors
/// If a promise was broken.
pub fn run(seed: u64, is_traced: bool) -> Result<Summary, Failure> {
    let mut random = Random(seed);
    let scenario = Scenario::draw(&mut random);
    let mut world = World::new(scenario, random, is_traced);
    let done = catch_unwind(AssertUnwindSafe(|| world.run()));
    let reason = match done {
        Ok(Ok(())) => return Ok(world.summary),
        Ok(Err(reason)) => reason,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("a panic: {}", text.unwrap_or_default())
        }
    };
    let reason = format!("after {} s: {reason}", world.elapsed_s());
    Err(Failure { reason, trace: world.trace.into() })
}

impl World {
    fn new(scenario: Scenario, random: Random, is_traced: bool) -> World {
        let now_ns = Arc::new(AtomicI64::new(START_NS));
        let clock_off_ns = Arc::new(AtomicI64::new(0));
        let mut of_disk = random.fork(1);
        let disk =
            SimulatedDisk::new(move || of_disk.next(), collector_clock(&now_ns, &clock_off_ns));
        let disk = if scenario.is_bucket { disk.into_bucket() } else { disk };
        let workers = scenario.workers;
        World {
            scenario,
            random: random.fork(2),
            now_ns,
            clock_off_ns,
            queue: BTreeMap::new(),
            numbers: 0,
            disk,
            collector: None,
            paused: None,
            connections: BTreeMap::new(),
            lives: Vec::new(),
            partitions: vec![0; workers],
            is_commit_queued: false,
            has_healed: false,
            is_sampling: true,
            summary: Summary::default(),
            trace: VecDeque::new(),
            is_traced,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let length_ns = self.scenario.length_ns;
        self.note(format!("{:?}", self.scenario));
        self.clock_off_ns.store(self.scenario.draw_clock(&mut self.random), Ordering::Relaxed);
        self.schedule(0, Event::StartCollector);
        for worker in 0..self.scenario.workers {
            self.start_life(worker);
        }
        self.schedule(self.scenario.seal_every_ns, Event::Seal);
        self.schedule(MAINTAIN_NS, Event::Maintain);
        self.schedule(SECOND, Event::Sweep);
        self.schedule_trouble();
        self.schedule_unrest();
        self.schedule(length_ns, Event::Heal);
        self.schedule(length_ns + HEALED_NS, Event::EndOfSampling);
        let end_ns = START_NS + length_ns + HEALED_NS + DRAIN_NS;
        while let Some(((at_ns, _), event)) = self.queue.pop_first() {
            if at_ns > end_ns {
                return Err(self.undrained());
            }
            self.now_ns.store(at_ns, Ordering::Relaxed);
            self.summary.events += 1;
            self.note_event(&event);
            let moment = CrashMoment::of(&event);
            self.handle(event)?;
            self.step_collector();
            if self.disk.is_dead() {
                self.crash(moment);
            }
            if !self.is_sampling && self.is_drained() {
                break;
            }
        }
        self.finish()
    }

    fn now(&self) -> i64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn elapsed_s(&self) -> i64 {
        (self.now() - START_NS) / SECOND
    }

    fn schedule(&mut self, delay_ns: i64, event: Event) {
        self.schedule_at(self.now() + delay_ns, event);
    }

    fn schedule_at(&mut self, at_ns: i64, event: Event) {
        self.numbers += 1;
        self.queue.insert((at_ns, self.numbers), event);
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::Sweep | Event::Commit | Event::Keepalive { .. } | Event::Silence { .. } => {}
            Event::ToCollector { connection, message, .. } => {
                self.note(format!("{connection} up {}", shown_up(message)));
            }
            Event::ToAgent { connection, answer } => {
                self.note(format!("{connection} down {}", shown_down(answer)));
            }
            event => self.note(format!("{event:?}")),
        }
    }

    fn note(&mut self, text: String) {
        let elapsed_ns = self.now() - START_NS;
        let line = format!("{:>12.6} {text}", elapsed_ns as f64 / SECOND as f64);
        for byte in line.bytes() {
            let mixed = (self.summary.digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            self.summary.digest = mixed.rotate_left(5);
        }
        if self.is_traced {
            println!("{line}");
        }
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    fn count(&mut self, fault: Fault) {
        self.summary.faults.count(fault);
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Cycle { life } => self.cycle(life),
            Event::Connect { life, attempt } => self.connect(life, attempt),
            Event::ToCollector { connection, message, seq } => {
                self.deliver_up(connection, message, seq);
            }
            Event::ToAgent { connection, answer } => self.deliver_down(connection, *answer),
            Event::HangUp { connection } => {
                if let Some(collector) = &mut self.collector {
                    collector.hang_up(connection);
                }
            }
            Event::Reset { connection } => self.close(connection),
            Event::NoWelcome { connection } => {
                let heard_at = self.connections.get(&connection).map(|link| link.agent_heard_at);
                if heard_at.is_some_and(|heard_at| heard_at + WELCOME_NS <= self.now()) {
                    self.close(connection);
                }
            }
            Event::Keepalive { connection } => self.keep_alive(connection),
            Event::Silence { connection } => self.check_silence(connection),
            Event::Commit => {
                self.is_commit_queued = false;
                self.collector.iter().for_each(SimulatedCollector::commit);
            }
            Event::Seal => self.seal(),
            Event::Maintain => {
                if let Some(collector) = &self.collector
                    && let Err(error) = collector.maintain()
                {
                    self.count(Fault::MaintenanceFailed);
                    self.note(format!("maintenance failed: {error}"));
                }
                self.schedule(MAINTAIN_NS, Event::Maintain);
            }
            Event::Sweep => {
                if let Some(collector) = &self.collector {
                    collector.sweep();
                    // The log's thread also checks the disk every second.
                    collector.commit();
                }
                self.schedule(SECOND, Event::Sweep);
            }
            Event::CollectorFault => self.trouble()?,
            Event::DiskIsWell => self.disk.set_condition(DiskCondition::Healthy),
            Event::Unrest => self.unrest(),
            Event::StartCollector => self.start_collector()?,
            Event::Heal => self.heal(),
            Event::EndOfSampling => self.is_sampling = false,
        }
        Ok(())
    }
}

fn collector_clock(now_ns: &Arc<AtomicI64>, off_ns: &Arc<AtomicI64>) -> Clock {
    let now_ns = now_ns.clone();
    let off_ns = off_ns.clone();
    let now = move || now_ns.load(Ordering::Relaxed) + off_ns.load(Ordering::Relaxed);
    Clock::from_fn(move || timestamp(now()))
}

fn shown_up(message: &AgentMessage) -> String {
    match &message.kind {
        Some(agent_message::Kind::Hello(hello)) => format!("Hello {:016x}", hello.epoch),
        Some(agent_message::Kind::Flush(flush)) => format!("Flush, {} tasks", flush.tasks.len()),
        Some(agent_message::Kind::Dictionary(_)) => "Dictionary".to_owned(),
        other => format!("{other:?}"),
    }
}

fn shown_down(answer: &Answer) -> String {
    use v1::collector_message::Kind;
    match answer {
        Answer::Message(CollectorMessage { kind: Some(Kind::Ack(ack)) }) => {
            format!("Ack {}", ack.seq)
        }
        Answer::Message(CollectorMessage { kind: Some(Kind::Welcome(welcome)) }) => {
            format!("Welcome, acked {}, stored {} ns", welcome.acked_seq, welcome.stored_ns)
        }
        Answer::Message(CollectorMessage { kind: Some(Kind::Refusal(refusal)) }) => {
            format!("Refusal {}: {}", refusal.seq, refusal.reason)
        }
        other => format!("{other:?}"),
    }
}
