//! An agent never sends what a collector rejects, whatever its program does: stacks of any depth, names, keys
//! and labels of any length, many tasks, threads, transfers and sums. The agent's real encoder and session talk
//! to a real collector with a log; every program is drawn from a seed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use emberline_fault_simulation::collector::{Answer, SimulatedCollector, SimulatedDisk, timestamp};
use profiler_core::limits::{
    CAUSE_BYTES_MAX, EXPECTED_MAX, LABELS_MAX, MESSAGE_BYTES_TARGET, NAME_BYTES_MAX,
    TASK_LABELS_MAX, TASK_PHASES_MAX, TRANSFER_KEYS_MAX,
};
use profiler_core::wire::v1::collector_message::Kind;
use profiler_core::{
    Direction, ExpectedTasks, Frame, Outcome, PhaseInterval, Resource, ResourceSample, RunId,
    RunMarker, TaskDetail, TaskId, TaskRecord, TaskTotals, Telemetry, TimeRange, Timestamp,
    TransferEvent, TransferId,
};
use ship::shipper::simulation::{
    Action, SimulatedAgent, SimulatedCycle, SimulatedWorker, SocketEnd,
};
use simulation::random::Random;

const SEEDS: std::ops::Range<u64> = 0..24;
const SECOND: i64 = 1_000_000_000;
const START_NS: i64 = 1_700_000_000 * SECOND;

/// Names of one program, of one length: short ones, or as long as the agent's interface lets through.
struct Names {
    length: usize,
    count: usize,
}

impl Names {
    fn draw(random: &mut Random) -> Names {
        let length = [1, 20, 300, NAME_BYTES_MAX][random.below(4)];
        // Limited, because each is kept by two processes in one.
        Names {
            length,
            count: [3, 100, 5_000][random.below(3)].min((4 << 20) / length),
        }
    }

    fn one(&self, random: &mut Random) -> String {
        let number = random.below(self.count).to_string();
        let padding = self.length.saturating_sub(number.len());
        number + &"é".repeat(padding / 2)
    }
}

/// A number that is mostly small and sometimes as large as possible.
fn count(random: &mut Random, max: usize) -> usize {
    match random.below(4) {
        0 => 0,
        1 => max,
        _ => random.below(max.min(20) + 1),
    }
}

struct Program {
    random: Random,
    names: Names,
    texts: Names,
    depth_max: usize,
    threads: usize,
    tasks: usize,
    /// Records of each other kind in a cycle.
    records: usize,
    next_id: u64,
}

impl Program {
    fn draw(seed: u64) -> Program {
        let mut random = Random(seed);
        let names = Names::draw(&mut random);
        let texts = Names::draw(&mut random);
        let depth_max = [3, 400, 1_200, 6_000][random.below(4)];
        let text_bytes = names.length.max(texts.length);
        Program {
            threads: [1, 20, 300][random.below(3)].min(1 + (4 << 20) / (depth_max * text_bytes)),
            tasks: [0, 10, 1_000][random.below(3)].min((4 << 20) / text_bytes / 8),
            records: [0, 10, 300][random.below(3)].min((4 << 20) / text_bytes / 8),
            names,
            texts,
            depth_max,
            next_id: 0,
            random,
        }
    }

    fn name(&mut self) -> Arc<str> {
        self.names.one(&mut self.random).into()
    }

    fn text(&mut self, bytes_max: usize) -> Arc<str> {
        let text = self.texts.one(&mut self.random);
        text[..text.floor_char_boundary(bytes_max)].into()
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Names from the task to the leaf, with what is on the way: a phase or none.
    fn stack(&mut self) -> (Vec<String>, bool) {
        let depth = 1 + self.random.below(self.depth_max);
        let frames = (0..=depth)
            .map(|_| self.names.one(&mut self.random))
            .collect();
        (frames, self.random.chance(0.3))
    }

    fn phases(&mut self) -> Vec<PhaseInterval> {
        let phases = count(&mut self.random, TASK_PHASES_MAX);
        (0..phases)
            .map(|_| PhaseInterval {
                name: self.name(),
                start_ns: -SECOND,
                duration_ns: u64::MAX >> 2,
                count: u32::MAX,
            })
            .collect()
    }

    fn task(&mut self, now: Timestamp) -> TaskRecord {
        let labels = count(&mut self.random, TASK_LABELS_MAX);
        let labels = (0..labels)
            .map(|_| (self.name(), self.text(NAME_BYTES_MAX)))
            .collect();
        let has_ended = self.random.chance(0.5);
        TaskRecord {
            id: TaskId(self.id()),
            name: self.name(),
            key: self.text(NAME_BYTES_MAX),
            thread_id: u32::MAX,
            thread_name: self.text(NAME_BYTES_MAX),
            parent: Some(TaskId(u64::MAX)),
            start: now.shifted(-SECOND),
            stop: has_ended.then_some(now),
            outcome: if has_ended {
                Outcome::Failed
            } else {
                Outcome::Running
            },
            cause: self.text(CAUSE_BYTES_MAX),
            detail: Some(Box::new(TaskDetail {
                attempt: u32::MAX,
                result_bytes: Some(u64::MAX),
                type_name: self.name(),
                labels,
                phases: self.phases(),
            })),
        }
    }

    fn transfer(&mut self, now: Timestamp) -> TransferEvent {
        let keys = count(&mut self.random, TRANSFER_KEYS_MAX);
        TransferEvent {
            id: TransferId(self.id()),
            direction: Direction::Outgoing,
            peer: self.text(NAME_BYTES_MAX),
            keys: (0..keys)
                .map(|_| self.text(NAME_BYTES_MAX / TRANSFER_KEYS_MAX))
                .collect(),
            more_keys: u64::MAX,
            type_name: self.text(NAME_BYTES_MAX),
            bytes: u64::MAX,
            compressed_bytes: Some(u64::MAX),
            start: now.shifted(-SECOND),
            stop: now,
            task: Some(TaskId(u64::MAX)),
            thread_id: u32::MAX,
            outcome: Outcome::Panicked,
            cause: self.text(CAUSE_BYTES_MAX),
        }
    }

    fn totals(&mut self, now: Timestamp) -> TaskTotals {
        let buckets = count(&mut self.random, 1_000) as u32;
        TaskTotals {
            name: self.name(),
            outcome: Outcome::Ok,
            second: now,
            duration_ns: u64::MAX >> 20,
            buckets: (0..buckets)
                .map(|bucket| (bucket, u64::MAX >> 20))
                .collect(),
            phases: self.phases(),
        }
    }

    fn telemetry(&mut self, now: Timestamp) -> Telemetry {
        let records = self.records;
        let values = Resource::ALL.map(|resource| (resource, u64::MAX)).to_vec();
        let sample = |_| ResourceSample {
            at: now,
            period_ns: 1,
            values: values.clone(),
        };
        let mut expected_names = BTreeSet::new();
        for _ in 0..records.min(EXPECTED_MAX) {
            expected_names.insert(self.name());
        }
        Telemetry {
            totals: (0..records).map(|_| self.totals(now)).collect(),
            transfers: (0..records).map(|_| self.transfer(now)).collect(),
            resources: (0..records).map(sample).collect(),
            expected: expected_names
                .into_iter()
                .map(|name| ExpectedTasks {
                    name,
                    total: u64::MAX,
                    since: now,
                })
                .collect(),
            runs: (0..records.min(100))
                .map(|_| RunMarker {
                    id: RunId(self.id()),
                    name: self.text(NAME_BYTES_MAX),
                    start: now,
                    stop: None,
                })
                .collect(),
        }
    }

    /// Queues a second. Returns its weight.
    fn sample(&mut self, agent: &mut SimulatedAgent, now: Timestamp) -> u64 {
        let stacks: Vec<_> = (0..self.threads).map(|_| self.stack()).collect();
        let weighted: Vec<_> = stacks
            .iter()
            .zip(1..)
            .map(|(stack, weight)| (frames_of(stack), weight))
            .collect();
        agent.push(SimulatedCycle {
            range: TimeRange::new(now.shifted(-SECOND), now).expect("a second"),
            stacks: &weighted,
            tasks: (0..self.tasks).map(|_| self.task(now)).collect(),
            telemetry: self.telemetry(now),
            is_by_thread: true,
        });
        weighted.iter().map(|(_, weight)| weight).sum()
    }
}

/// A task, perhaps one of its phases, and functions by these names.
fn frames_of(stack: &(Vec<String>, bool)) -> Vec<Frame<&str>> {
    let (names, has_phase) = stack;
    let mut frames = vec![Frame::task(&names[0])];
    let functions = if *has_phase {
        frames.push(Frame::phase(&names[1]));
        &names[2..]
    } else {
        &names[1..]
    };
    frames.extend(functions.iter().map(|name| Frame::function(name, name, 1)));
    frames
}

/// An agent and its collector, connected without a network.
struct Pair {
    agent: SimulatedAgent,
    collector: SimulatedCollector,
    now_ns: Arc<AtomicI64>,
}

impl Pair {
    fn start(labels: Vec<(String, String)>) -> Pair {
        let now_ns = Arc::new(AtomicI64::new(START_NS));
        let now = {
            let now_ns = now_ns.clone();
            move || timestamp(now_ns.load(Ordering::Relaxed))
        };
        let worker = SimulatedWorker {
            worker: "hostile".to_owned(),
            labels,
            hosts: vec!["collector".to_owned()],
            key: [7; 16],
            waiting_max: 100,
            outbox_bytes_max: 512 << 20,
            flush_bytes_max: MESSAGE_BYTES_TARGET,
        };
        let elapsed = {
            let now_ns = now_ns.clone();
            move || {
                let elapsed_ns = now_ns.load(Ordering::Relaxed) - START_NS;
                Duration::from_nanos(elapsed_ns.unsigned_abs())
            }
        };
        let clock = Clock::from_fn(now.clone());
        let mut random = Random(1);
        let disk = SimulatedDisk::new(move || random.next(), clock.clone());
        Pair {
            agent: SimulatedAgent::new(worker, now, elapsed),
            collector: SimulatedCollector::open(&disk, clock).expect("an empty disk"),
            now_ns,
        }
    }

    fn now(&self) -> Timestamp {
        timestamp(self.now_ns.load(Ordering::Relaxed))
    }

    /// Lets both run for a millisecond. Returns why the collector rejected messages.
    fn step(&mut self) -> Vec<String> {
        self.now_ns.fetch_add(SECOND / 1_000, Ordering::Relaxed);
        for action in self.agent.step() {
            match action {
                Action::Connect { socket, .. } => self.agent.note_connected(socket, true),
                Action::Send { socket, outgoing } => {
                    self.collector.receive(socket, outgoing.message);
                }
                Action::Ping { socket } => self.agent.note_pong(socket),
                Action::Close { socket } => self.collector.hang_up(socket),
            }
        }
        if self.collector.is_waiting() {
            self.collector.commit();
        }
        let mut rejected = Vec::new();
        for (socket, answer) in self.collector.step() {
            match answer {
                Answer::Message(message) => {
                    if let Some(Kind::Refusal(refusal)) = &message.kind {
                        rejected.push(refusal.reason.clone());
                    }
                    self.agent.deliver(socket, message);
                }
                Answer::End(end) => {
                    rejected.push(format!("{end:?}"));
                    self.agent.end_call(socket, SocketEnd::Failed);
                }
            }
        }
        rejected
    }
}

fn check(seed: u64) {
    let mut program = Program::draw(seed);
    let labels = count(&mut program.random, LABELS_MAX);
    let mut pair = Pair::start(
        (0..labels)
            .map(|number: usize| (number.to_string(), program.text(NAME_BYTES_MAX).to_string()))
            .collect(),
    );
    let mut accepted_ns = 0;
    for _ in 0..3 {
        pair.now_ns.fetch_add(SECOND, Ordering::Relaxed);
        let now = pair.now();
        accepted_ns += program.sample(&mut pair.agent, now);
        let mut steps = 0;
        while !pair.agent.is_drained() {
            let rejected = pair.step();
            assert!(rejected.is_empty(), "seed {seed}: {rejected:?}");
            steps += 1;
            assert!(steps < 1_000_000, "seed {seed}: the agent does not drain");
        }
    }
    let report = pair.agent.report();
    assert_eq!(
        (report.accepted_ns, report.stored_ns),
        (accepted_ns, accepted_ns),
        "seed {seed}"
    );
    assert_eq!(
        (report.lost_tasks, report.lost_telemetry),
        (0, 0),
        "seed {seed}"
    );
    let content = pair.collector.held();
    let [life] = &content.lives[..] else {
        panic!("seed {seed}: {:?}", content.lives)
    };
    assert_eq!(
        (life.stored_ns, life.rejected),
        (accepted_ns, 0),
        "seed {seed}"
    );
    assert_eq!(life.unaccounted_ns, 0, "seed {seed}");
}

#[test]
fn no_message_of_any_program_is_rejected() {
    SEEDS.for_each(check);
}
