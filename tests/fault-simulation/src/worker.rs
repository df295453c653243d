//! Lives of agents, and the truth about each: which cycles it sampled, sent, and has an answer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use agent::simulation::{FlushContent, Outgoing, SimulatedAgent, SimulatedCycle, SimulatedWorker};
use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::{Frame, NodeId, Outcome, TaskId, TaskRecord, TimeRange, Timestamp};
use simulation::random::Random;

use crate::faults::Fault;
use crate::scenario::{SECOND, Scenario};

/// A task starts in every cycle whose number is a multiple of this.
const TASK_EVERY: usize = 5;

/// It ends that many cycles later.
const TASK_CYCLES: usize = 3;

/// What must be true of a cycle or a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fate {
    /// It may be stored or not: it was never acknowledged.
    #[default]
    Open,
    /// It was acknowledged, so it is stored.
    Stored,
}

/// One life of an agent.
pub(crate) struct Life {
    pub(crate) worker: usize,
    pub(crate) epoch: u64,
    /// `None` after its end.
    pub(crate) agent: Option<SimulatedAgent>,
    /// The connection in use.
    pub(crate) connection: Option<u64>,
    /// Attempts to connect, to recognize outdated events.
    pub(crate) attempts: u64,
    /// Weight of each cycle, and what must be true of it.
    pub(crate) cycles: Vec<(u64, Fate)>,
    /// Of tasks that have ended, by number of the cycle in which they started.
    pub(crate) tasks: BTreeMap<usize, Fate>,
    /// Flushes that the collector rejected at some time.
    pub(crate) was_refused: bool,
    nodes: BTreeMap<NodeId, usize>,
    /// Sent flushes without an answer.
    sent: BTreeMap<u64, FlushContent>,
    refused: BTreeSet<u64>,
    /// The highest number of a flush that has arrived at the collector.
    arrived_seq: u64,
    /// The newest connection of which a message has arrived.
    newest_heard: u64,
    clock: Arc<AgentClock>,
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
        now_ns: &Arc<AtomicI64>,
        random: &mut Random,
    ) -> Life {
        let clock = Arc::new(AgentClock {
            now_ns: now_ns.clone(),
            started_ns: now_ns.load(Ordering::Relaxed),
            off_ns: scenario.draw_clock(random),
            drift_ppm: i64::try_from(random.below(101)).expect("it is small") - 50,
        });
        let mut key = [0; 16];
        key[..8].copy_from_slice(&random.next().to_le_bytes());
        key[8..].copy_from_slice(&random.next().to_le_bytes());
        let options = SimulatedWorker {
            worker: format!("worker-{worker}"),
            key,
            waiting_max: scenario.outbox.waiting_max,
            outbox_bytes_max: scenario.outbox.bytes_max,
            flush_bytes_max: scenario.outbox.flush_bytes_max,
        };
        let of_agent = clock.clone();
        let agent = SimulatedAgent::new(options, move || of_agent.now());
        Life {
            worker,
            epoch: agent.report().epoch.0,
            agent: Some(agent),
            connection: None,
            attempts: 0,
            cycles: Vec::new(),
            tasks: BTreeMap::new(),
            was_refused: false,
            nodes: BTreeMap::new(),
            sent: BTreeMap::new(),
            refused: BTreeSet::new(),
            arrived_seq: 0,
            newest_heard: 0,
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
        let frames = vec![Frame::task("work"), Frame::function(&leaf, "src/work.rs", 1)];
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
        let nodes = agent.push(SimulatedCycle { range, stacks: &stacks, tasks });
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
            outcome: if stop.is_some() { Outcome::Ok } else { Outcome::Running },
            cause: "".into(),
            detail: None,
        }
    }

    /// The next message, if there is one.
    pub(crate) fn next_message(&mut self) -> Option<Outgoing> {
        let outgoing = self.agent.as_mut()?.next_message()?;
        if let Some(flush) = &outgoing.flush {
            self.sent.insert(flush.seq, flush.clone());
        }
        Some(outgoing)
    }

    /// A message arrives at the collector. Returns what is wrong with that.
    pub(crate) fn note_heard(&mut self, connection: u64, seq: Option<u64>) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.connection != Some(connection) {
            faults.push(Fault::LateMessage);
        }
        if connection < self.newest_heard {
            faults.push(Fault::ReorderedMessage);
        }
        self.newest_heard = self.newest_heard.max(connection);
        if let Some(seq) = seq {
            if seq <= self.arrived_seq {
                faults.push(Fault::RepeatedFlush);
            }
            self.arrived_seq = self.arrived_seq.max(seq);
        }
        faults
    }

    /// Whether its clock is off by more than an hour.
    pub(crate) fn is_clock_off(&self) -> bool {
        self.clock.off_ns.abs() > 3_600 * SECOND
    }

    /// The collector has created an answer, whether or not it arrives.
    pub(crate) fn note_created(&mut self, kind: &Kind) {
        if let Kind::Refusal(refusal) = kind
            && refusal.seq > 0
        {
            self.was_refused = true;
            self.refused.insert(refusal.seq);
        }
    }

    /// An answer has arrived at the agent.
    pub(crate) fn note_arrived(&mut self, kind: &Kind) {
        match kind {
            Kind::Ack(ack) => {
                let content = self.sent.remove(&ack.seq);
                content.into_iter().for_each(|flush| self.must_be_stored(&flush));
            }
            Kind::Refusal(refusal) => {
                self.sent.remove(&refusal.seq);
            }
            Kind::Welcome(welcome) => {
                let later = self.sent.split_off(&(welcome.acked_seq + 1));
                for (seq, flush) in std::mem::replace(&mut self.sent, later) {
                    // Its number passed the flush without its content, if it was rejected.
                    if !self.refused.contains(&seq) {
                        self.must_be_stored(&flush);
                    }
                }
            }
            _ => {}
        }
    }

    fn must_be_stored(&mut self, flush: &FlushContent) {
        for node in &flush.nodes {
            let cycle = self.nodes[node];
            self.cycles[cycle].1 = Fate::Stored;
        }
        for (id, _) in flush.tasks.iter().filter(|(_, has_ended)| *has_ended) {
            let cycle = usize::try_from(*id).expect("it is small") - 1;
            self.tasks.insert(cycle, Fate::Stored);
        }
    }
}
