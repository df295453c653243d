//! Lives of agents, and the truth about each: which cycles it sampled, sent, and has an answer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::{Frame, NodeId, Outcome, TaskId, TaskRecord, Telemetry, TimeRange, Timestamp};
use ship::ShipReport;
use ship::shipper::simulation::{
    Action, FlushContent, SimulatedAgent, SimulatedCycle, SimulatedWorker,
};
use simulation::random::Random;

use crate::faults::Fault;
use crate::scenario::{SECOND, Scenario};

/// A task starts in every cycle whose number is a multiple of this.
const TASK_EVERY: usize = 5;

/// It ends that many cycles later.
const TASK_CYCLES: usize = 3;

/// Required state of a cycle or a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fate {
    /// It may be stored or not: it was never acknowledged.
    #[default]
    Open,
    /// This collector acknowledged it, so it is stored there.
    Stored { host: usize },
}

/// One life of an agent.
pub(crate) struct Life {
    pub(crate) worker: usize,
    /// Of the first stay.
    pub(crate) epoch: u64,
    /// `None` after its end.
    pub(crate) agent: Option<SimulatedAgent>,
    /// Its report at its end. `None` if it was killed.
    pub(crate) report: Option<ShipReport>,
    /// It was asked to end.
    pub(crate) is_ending: bool,
    /// Weight of each cycle, and what must be true of it.
    pub(crate) cycles: Vec<(u64, Fate)>,
    /// Of tasks that have ended, by number of the cycle in which they started.
    pub(crate) tasks: BTreeMap<usize, Fate>,
    /// By epoch.
    pub(crate) stays: BTreeMap<u64, Stay>,
    /// Whether its outbox may be too small for what is in flight at collectors that it has left.
    pub(crate) has_small_outbox: bool,
    /// Most stays at once of which the agent awaited answers after it had left.
    pub(crate) unsettled_max: usize,
    /// How many there were at its end.
    pub(crate) unsettled_at_end: usize,
    /// When the agent is stepped next.
    pub(crate) next_step_ns: Option<i64>,
    started_ns: i64,
    nodes: BTreeMap<NodeId, usize>,
    clock: Arc<AgentClock>,
}

/// The part of a life that ships to one collector.
#[derive(Default)]
pub(crate) struct Stay {
    /// Where it began, and as which one of its life. `None` before the first Welcome.
    pub(crate) begin: Option<StayBegin>,
    /// Its collector knows that it has ended, and has answered everything.
    pub(crate) is_settled: bool,
    /// Flushes that the collector rejected at some time.
    pub(crate) was_refused: bool,
    /// Sent flushes without an answer.
    sent: BTreeMap<u64, FlushContent>,
    refused: BTreeSet<u64>,
    /// The highest number of a flush that has arrived at the collector.
    arrived_seq: u64,
    /// The newest connection of which a message has arrived.
    newest_heard: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StayBegin {
    pub(crate) number: usize,
    pub(crate) host: usize,
}

/// A clock that is off and drifts.
struct AgentClock {
    now_ns: Arc<AtomicI64>,
    started_ns: i64,
    off_ns: i64,
    drift_ppm: i64,
}

impl AgentClock {
    fn now(&self) -> Timestamp {
        let now_ns = self.now_ns.load(Ordering::Relaxed);
        let drift_ns = (now_ns - self.started_ns) / 1_000_000 * self.drift_ppm;
        Timestamp::from_unix_ns(now_ns + self.off_ns + drift_ns)
    }
}

impl Life {
    pub(crate) fn new(
        worker: usize,
        scenario: &Scenario,
        hosts: &[String],
        now_ns: &Arc<AtomicI64>,
        random: &mut Random,
    ) -> Life {
        let started_ns = now_ns.load(Ordering::Relaxed);
        let clock = Arc::new(AgentClock {
            now_ns: now_ns.clone(),
            started_ns,
            off_ns: scenario.draw_clock(random),
            drift_ppm: i64::try_from(random.below(101)).expect("it is small") - 50,
        });
        let mut key = [0; 16];
        key[..8].copy_from_slice(&random.next().to_le_bytes());
        key[8..].copy_from_slice(&random.next().to_le_bytes());
        let options = SimulatedWorker {
            worker: format!("worker-{worker}"),
            labels: Vec::new(),
            hosts: hosts.to_vec(),
            key,
            waiting_max: scenario.outbox.waiting_max,
            outbox_bytes_max: scenario.outbox.bytes_max,
            flush_bytes_max: scenario.outbox.flush_bytes_max,
        };
        let of_agent = clock.clone();
        let now_ns = now_ns.clone();
        let agent = SimulatedAgent::new(
            options,
            move || of_agent.now(),
            move || {
                let elapsed_ns = now_ns.load(Ordering::Relaxed) - started_ns;
                Duration::from_nanos(u64::try_from(elapsed_ns).expect("time does not go back"))
            },
        );
        Life {
            worker,
            epoch: agent.report().epoch.0,
            agent: Some(agent),
            report: None,
            is_ending: false,
            cycles: Vec::new(),
            tasks: BTreeMap::new(),
            stays: BTreeMap::new(),
            has_small_outbox: scenario.outbox.bytes_max < 1 << 20,
            unsettled_max: 0,
            unsettled_at_end: 0,
            next_step_ns: None,
            started_ns,
            nodes: BTreeMap::new(),
            clock,
        }
    }

    /// The name of the function that only this cycle has on its stack.
    pub(crate) fn leaf(&self, cycle: usize) -> String {
        format!("leaf_{:016x}_{cycle}", self.epoch)
    }

    /// The key of the task that started in this cycle.
    pub(crate) fn task_key(&self, cycle: usize) -> String {
        format!("{:016x}-{cycle}", self.epoch)
    }

    /// Accepted weight.
    pub(crate) fn accepted_ns(&self) -> u64 {
        self.cycles.iter().map(|(weight_ns, _)| weight_ns).sum()
    }

    /// Samples the last second.
    pub(crate) fn sample(&mut self, random: &mut Random) {
        let cycle = self.cycles.len();
        let stop = self.clock.now();
        let start = stop.shifted(-SECOND);
        let weight_ns = 1 + random.below(900_000_000) as u64;
        let leaf = self.leaf(cycle);
        let frames = vec![
            Frame::task("work"),
            Frame::function(&leaf, "src/work.rs", 1),
        ];
        let mut tasks = Vec::new();
        if cycle.is_multiple_of(TASK_EVERY) {
            tasks.push(self.task(cycle, start, None));
        }
        if let Some(started) = cycle.checked_sub(TASK_CYCLES)
            && started.is_multiple_of(TASK_EVERY)
        {
            let before = i64::try_from(TASK_CYCLES).expect("it is small") * SECOND;
            tasks.push(self.task(started, start.shifted(-before), Some(stop)));
            self.tasks.insert(started, Fate::Open);
        }
        self.cycles.push((weight_ns, Fate::Open));
        let Some(agent) = &mut self.agent else { return };
        let range = TimeRange::new(start, stop).expect("a second is not empty");
        let stacks = [(frames, weight_ns)];
        let telemetry = Telemetry::default();
        let nodes = agent.push(SimulatedCycle {
            range,
            stacks: &stacks,
            tasks,
            telemetry,
            is_by_thread: false,
        });
        self.nodes.insert(nodes[0], cycle);
    }

    fn task(&self, cycle: usize, start: Timestamp, stop: Option<Timestamp>) -> TaskRecord {
        TaskRecord {
            id: TaskId(cycle as u64 + 1),
            name: "work".into(),
            key: self.task_key(cycle).into(),
            thread_id: 1,
            thread_name: "main".into(),
            parent: None,
            start,
            stop,
            outcome: if stop.is_some() {
                Outcome::Ok
            } else {
                Outcome::Running
            },
            cause: "".into(),
            detail: None,
        }
    }

    /// Runs the agent until it waits. Returns what it does meanwhile.
    pub(crate) fn step(&mut self) -> Vec<Action> {
        let Some(agent) = &mut self.agent else {
            return Vec::new();
        };
        let actions = agent.step();
        self.unsettled_max = self.unsettled_max.max(agent.unsettled_epochs().len());
        actions
    }

    /// When to step the agent again, if that is earlier than known before.
    pub(crate) fn earlier_step(&mut self, now_ns: i64) -> Option<i64> {
        let after = self.agent.as_ref()?.next_step_after()?;
        let after_ns = i64::try_from(after.as_nanos()).expect("a run is short");
        let at_ns = (self.started_ns + after_ns).max(now_ns + 1);
        if self
            .next_step_ns
            .is_some_and(|next_ns| next_ns > now_ns && next_ns <= at_ns)
        {
            return None;
        }
        self.next_step_ns = Some(at_ns);
        self.next_step_ns
    }

    /// The agent has sent a flush.
    pub(crate) fn note_sent(&mut self, epoch: u64, flush: FlushContent) {
        self.stays
            .entry(epoch)
            .or_default()
            .sent
            .insert(flush.seq, flush);
    }

    /// A message arrives at the collector. Returns what is wrong with that.
    pub(crate) fn note_heard(
        &mut self,
        epoch: u64,
        connection: u64,
        seq: Option<u64>,
    ) -> Vec<Fault> {
        let stay = self.stays.entry(epoch).or_default();
        let mut faults = Vec::new();
        if connection < stay.newest_heard {
            faults.push(Fault::ReorderedMessage);
        }
        stay.newest_heard = stay.newest_heard.max(connection);
        if let Some(seq) = seq {
            if seq <= stay.arrived_seq {
                faults.push(Fault::RepeatedFlush);
            }
            stay.arrived_seq = stay.arrived_seq.max(seq);
        }
        faults
    }

    /// Whether its clock is off by more than an hour.
    pub(crate) fn is_clock_off(&self) -> bool {
        self.clock.off_ns.abs() > 3_600 * SECOND
    }

    /// The stay that began last.
    pub(crate) fn newest_stay(&self) -> Option<u64> {
        let newest = self.stays.iter().max_by_key(|(_, stay)| stay.begin)?;
        newest.1.begin.map(|_| *newest.0)
    }

    /// The collector has created an answer, whether or not it arrives.
    pub(crate) fn note_created(&mut self, epoch: u64, kind: &Kind) {
        if let Kind::Refusal(refusal) = kind
            && refusal.seq > 0
        {
            let stay = self.stays.entry(epoch).or_default();
            stay.was_refused = true;
            stay.refused.insert(refusal.seq);
        }
    }

    /// An answer of a collector has arrived at the agent. Returns what that shows.
    pub(crate) fn note_arrived(&mut self, epoch: u64, host: usize, kind: &Kind) -> Vec<Fault> {
        let mut faults = Vec::new();
        if matches!(kind, Kind::Welcome(_)) {
            faults = self.note_welcome(epoch, host);
        }
        let stay = self.stays.entry(epoch).or_default();
        let mut stored = Vec::new();
        match kind {
            Kind::Ack(ack) => stored.extend(stay.sent.remove(&ack.seq)),
            Kind::Refusal(refusal) => {
                stay.sent.remove(&refusal.seq);
            }
            Kind::Welcome(welcome) => {
                let later = stay.sent.split_off(&(welcome.acked_seq + 1));
                for (seq, flush) in std::mem::replace(&mut stay.sent, later) {
                    // Its number passed the flush without its content, if it was rejected.
                    if !stay.refused.contains(&seq) {
                        stored.push(flush);
                    }
                }
            }
            _ => {}
        }
        stored
            .iter()
            .for_each(|flush| self.must_be_stored(flush, host));
        faults
    }

    /// A stay begins with its first Welcome: until then nothing is sent.
    fn note_welcome(&mut self, epoch: u64, host: usize) -> Vec<Fault> {
        let newest = self.newest_stay();
        let begun = self.stays.values().filter_map(|stay| stay.begin);
        let has_been_there = begun.clone().any(|begin| begin.host == host);
        let number = begun.count();
        let has_in_flight =
            newest.is_some_and(|newest| newest != epoch && !self.stays[&newest].sent.is_empty());
        let stay = self.stays.entry(epoch).or_default();
        if stay.begin.is_some() {
            let is_settled = newest != Some(epoch);
            return if is_settled {
                vec![Fault::Settled]
            } else {
                Vec::new()
            };
        }
        stay.begin = Some(StayBegin { number, host });
        let mut faults = Vec::new();
        if number > 0 {
            faults.push(Fault::Moved);
            faults.extend(has_been_there.then_some(Fault::Returned));
            faults.extend(has_in_flight.then_some(Fault::MovedInFlight));
        }
        faults
    }

    fn must_be_stored(&mut self, flush: &FlushContent, host: usize) {
        for node in &flush.nodes {
            let cycle = self.nodes[node];
            self.cycles[cycle].1 = Fate::Stored { host };
        }
        for (id, _) in flush.tasks.iter().filter(|(_, has_ended)| *has_ended) {
            let cycle = usize::try_from(*id).expect("it is small") - 1;
            self.tasks.insert(cycle, Fate::Stored { host });
        }
    }
}
