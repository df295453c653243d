//! The scheduler: one queue of events by time, and what each of them does.

mod adoption;
mod agents;
mod collector;
mod end;
mod host;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use profiler_core::wire::v1::{self, AgentMessage, CollectorMessage, agent_message};
use simulation::random::Random;

use crate::Failure;
use crate::collector::{Answer, DiskCondition, SimulatedCollector};
use crate::faults::{Fault, FaultCounts};
use crate::network::Connection;
use crate::scenario::{SECOND, Scenario};
use crate::worker::Life;

use self::host::Host;

/// When runs begin, by a correct clock.
const START_NS: i64 = 1_700_000_000 * SECOND;

/// How long a stream may be silent before the collector ends it.
const SILENCE_NS: i64 = 60 * SECOND;

/// How long after everything has healed agents go on sampling, so that each account is sent again.
const HEALED_NS: i64 = 30 * SECOND;

/// How long after that everything must be acknowledged: an agent may settle with one collector after the other,
/// and look for each only every ten minutes.
const DRAIN_NS: i64 = 60 * 60 * SECOND;

const MAINTAIN_NS: i64 = 60 * SECOND;

/// Most events that a failure shows.
const TRACE_MAX: usize = 60;

/// How long agents may take to end, after everything is acknowledged.
const END_NS: i64 = 60 * SECOND;

/// Statistics of a run.
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
    /// Counts of faults.
    pub faults: FaultCounts,
}

#[derive(Debug)]
enum Event {
    /// A second of an agent ends.
    Cycle {
        life: usize,
    },
    /// An agent has something to do at this time.
    StepAgent {
        life: usize,
    },
    /// An attempt to connect ends.
    Connected {
        connection: u64,
        is_refused: bool,
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
    /// The answer to a ping arrives.
    Pong {
        connection: u64,
    },
    Silence {
        connection: u64,
    },
    /// At a collector, by the index of its machine.
    Host {
        host: usize,
        event: HostEvent,
    },
    /// Something goes wrong at an agent or on its way to collectors.
    Unrest,
    Heal,
    EndOfSampling,
}

/// Event at a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostEvent {
    Commit,
    Seal,
    Maintain,
    Sweep,
    /// Something goes wrong.
    Fault,
    DiskIsWell,
    /// A paused process goes on.
    Resume,
    Start,
}

/// Work of the collector at the moment of a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CrashMoment {
    BetweenChanges,
    Start,
    Commit,
    Sealing,
    Maintenance,
    /// Another process does it.
    Adoption,
}

impl CrashMoment {
    /// The work that an event causes.
    fn of(event: HostEvent) -> CrashMoment {
        match event {
            HostEvent::Commit | HostEvent::Sweep => CrashMoment::Commit,
            HostEvent::Seal => CrashMoment::Sealing,
            HostEvent::Maintain => CrashMoment::Maintenance,
            _ => CrashMoment::BetweenChanges,
        }
    }
}

struct World {
    scenario: Scenario,
    random: Random,
    now_ns: Arc<AtomicI64>,
    queue: BTreeMap<(i64, u64), Event>,
    numbers: u64,
    hosts: Vec<Host>,
    /// Their names.
    host_names: Vec<String>,
    connections: BTreeMap<u64, Connection>,
    lives: Vec<Life>,
    /// When the partition ends, by worker and collector.
    partitions: Vec<Vec<i64>>,
    has_healed: bool,
    is_sampling: bool,
    /// All agents have been asked to end.
    is_ending: bool,
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
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("a panic: {}", text.unwrap_or_default())
        }
    };
    let reason = format!("after {} s: {reason}", world.elapsed_s());
    Err(Failure {
        reason,
        trace: world.trace.into(),
    })
}

impl World {
    fn new(scenario: Scenario, random: Random, is_traced: bool) -> World {
        let now_ns = Arc::new(AtomicI64::new(START_NS));
        let hosts: Vec<_> = (0..scenario.collectors)
            .map(|index| {
                let random = random.fork(if index == 0 { 1 } else { 10 + index });
                Host::new(&scenario, random, &now_ns)
            })
            .collect();
        // Each seed has its own, because the order in which a worker prefers collectors depends on them.
        let suffix = random.fork(3).below(1 << 20);
        let host_names = (0..hosts.len())
            .map(|index| format!("c{index}-{suffix:05x}"))
            .collect();
        let partitions = vec![vec![0; hosts.len()]; scenario.workers];
        World {
            scenario,
            random: random.fork(2),
            now_ns,
            queue: BTreeMap::new(),
            numbers: 0,
            hosts,
            host_names,
            connections: BTreeMap::new(),
            lives: Vec::new(),
            partitions,
            has_healed: false,
            is_sampling: true,
            is_ending: false,
            summary: Summary::default(),
            trace: VecDeque::new(),
            is_traced,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        let length_ns = self.scenario.length_ns;
        self.note(format!("{:?}", self.scenario));
        for host in 0..self.hosts.len() {
            let off_ns = self.scenario.draw_clock(&mut self.random);
            self.hosts[host].set_clock(off_ns);
            self.schedule_at_host(0, host, HostEvent::Start);
        }
        for worker in 0..self.scenario.workers {
            self.start_life(worker);
        }
        for host in 0..self.hosts.len() {
            self.schedule_at_host(self.scenario.seal_every_ns, host, HostEvent::Seal);
            self.schedule_at_host(MAINTAIN_NS, host, HostEvent::Maintain);
            self.schedule_at_host(SECOND, host, HostEvent::Sweep);
            self.schedule_trouble(host);
        }
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
            let at_host = match event {
                Event::Host { host, event } => Some((host, CrashMoment::of(event))),
                _ => None,
            };
            self.handle(event)?;
            for host in 0..self.hosts.len() {
                self.step_collector(host);
                if self.hosts[host].disk.is_dead() {
                    let here = at_host.filter(|(busy, _)| *busy == host);
                    self.crash(
                        host,
                        here.map_or(CrashMoment::BetweenChanges, |here| here.1),
                    );
                }
            }
            if self.is_over()? {
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

    fn schedule_at_host(&mut self, delay_ns: i64, host: usize, event: HostEvent) {
        self.schedule(delay_ns, Event::Host { host, event });
    }

    fn schedule_at(&mut self, at_ns: i64, event: Event) {
        self.numbers += 1;
        self.queue.insert((at_ns, self.numbers), event);
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::Host {
                event: HostEvent::Sweep | HostEvent::Commit,
                ..
            }
            | Event::StepAgent { .. }
            | Event::Pong { .. }
            | Event::Silence { .. } => {}
            Event::ToCollector {
                connection,
                message,
                ..
            } => {
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
            Event::StepAgent { life } => self.wake_agent(life),
            Event::Connected {
                connection,
                is_refused,
            } => self.connected(connection, is_refused),
            Event::ToCollector {
                connection,
                message,
                seq,
            } => {
                self.deliver_up(connection, message, seq);
            }
            Event::ToAgent { connection, answer } => self.deliver_down(connection, *answer),
            Event::HangUp { connection } => self.hang_up(connection),
            Event::Reset { connection } => self.reset(connection),
            Event::Pong { connection } => self.deliver_pong(connection),
            Event::Silence { connection } => self.check_silence(connection),
            Event::Host { host, event } => self.handle_at_host(host, event)?,
            Event::Unrest => self.unrest(),
            Event::Heal => self.heal(),
            Event::EndOfSampling => self.is_sampling = false,
        }
        Ok(())
    }

    fn handle_at_host(&mut self, host: usize, event: HostEvent) -> Result<(), String> {
        let Host {
            collector,
            disk,
            resumes_at,
            ..
        } = &self.hosts[host];
        if let Some(resumes_at) = *resumes_at
            && event.is_of_process()
        {
            self.schedule_at(resumes_at, Event::Host { host, event });
            return Ok(());
        }
        match event {
            HostEvent::Commit => {
                collector.iter().for_each(SimulatedCollector::commit);
                self.hosts[host].is_commit_queued = false;
            }
            HostEvent::Seal => self.seal(host),
            HostEvent::Maintain => {
                if let Some(collector) = collector
                    && let Err(error) = collector.maintain()
                {
                    self.count(Fault::MaintenanceFailed);
                    self.note(format!("maintenance failed: {error}"));
                }
                self.schedule_at_host(MAINTAIN_NS, host, HostEvent::Maintain);
            }
            HostEvent::Sweep => {
                if let Some(collector) = collector {
                    collector.sweep();
                    // The log's thread also checks the disk every second.
                    collector.commit();
                }
                self.schedule_at_host(SECOND, host, HostEvent::Sweep);
            }
            HostEvent::Fault => self.trouble(host)?,
            HostEvent::DiskIsWell => disk.set_condition(DiskCondition::Healthy),
            HostEvent::Resume => self.resume(host),
            HostEvent::Start => self.start_collector(host)?,
        }
        Ok(())
    }
}

impl HostEvent {
    /// Whether the collector's process does it, so not while it is paused.
    fn is_of_process(self) -> bool {
        matches!(
            self,
            HostEvent::Commit | HostEvent::Seal | HostEvent::Maintain | HostEvent::Sweep
        )
    }
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
        Answer::Message(CollectorMessage {
            kind: Some(Kind::Ack(ack)),
        }) => {
            format!("Ack {}", ack.seq)
        }
        Answer::Message(CollectorMessage {
            kind: Some(Kind::Welcome(welcome)),
        }) => {
            format!(
                "Welcome, acked {}, stored {} ns",
                welcome.acked_seq, welcome.stored_ns
            )
        }
        Answer::Message(CollectorMessage {
            kind: Some(Kind::Refusal(refusal)),
        }) => {
            format!("Refusal {}: {}", refusal.seq, refusal.reason)
        }
        other => format!("{other:?}"),
    }
}
