//! One simulated agent without its socket: what it sends next and how it handles an answer. Like a
//! real agent it keeps unacknowledged flushes, and after a reconnect resumes from the marks of
//! Welcome.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use profiler_core::wire::{FlushDeltaCodec, Marks, PROTOCOL, encode_cycle, v1};
use profiler_core::{Epoch, NodeId, SessionKey, TimeRange};
use v1::agent_message::Kind;

use crate::dictionary::Dictionary;
use crate::pattern::{Pair, Pattern, QUANTUM_NS, Threads};
use crate::program::Program;
use crate::random::Random;
use crate::record::{Detail, Facts, Record, Violation};

const SECOND_NS: i64 = 1_000_000_000;

/// Time from a cycle's end until it is sent.
const FOLDING_NS: i64 = 3_000_000;

/// Most strings of one message, which gives it about the size of a real agent's.
const DICTIONARY_STRINGS_MAX: usize = 32;

/// Dictionaries that may be rejected on one stream: the first may stem from different views of what
/// the collector holds.
const DICTIONARY_REFUSALS_MAX: u32 = 3;

/// Sample times of an agent. They need not be the times at which it sends.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Start of the first second, by the collector's clock.
    pub first_ns: i64,
    /// Seconds between the starts of two bursts of cycles; cycles of one burst are a second apart. Each is a second long.
    pub step_s: i64,
    /// Cycles per burst, at least one.
    pub burst: i64,
    /// After this many cycles the first second is sampled again; its weight adds up.
    pub steps: i64,
    /// Collector's clock minus agent's clock.
    pub offset_ns: i64,
}

/// The labels of an agent of which nothing else is wanted.
#[must_use]
pub fn default_labels() -> BTreeMap<String, String> {
    [("fleet".to_owned(), "simulated".to_owned())].into()
}

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The worker's id.
    pub worker: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The simulated program.
    pub program: Arc<Program>,
    /// How the worker runs it.
    pub pattern: Arc<Pattern>,
    /// When it is sampled.
    pub time: Time,
    /// How much the record keeps.
    pub detail: Detail,
}

/// A flush without an ack.
#[derive(Debug)]
struct Open {
    flush: v1::Flush,
    needs: Marks,
    pairs: u64,
    due_at: Instant,
    sent_at: Option<Instant>,
}

/// Result of an ack.
#[derive(Clone, Copy, Debug)]
pub struct AckedFlush {
    /// Pairs of the flush.
    pub pairs: u64,
    /// When it was handed to its stream.
    pub since_sent: Duration,
    /// When it was due.
    pub since_due: Duration,
}

/// One agent.
#[derive(Debug)]
pub struct Agent {
    setup: Setup,
    random: Random,
    record: Arc<Mutex<Record>>,
    key: SessionKey,
    epoch: Epoch,
    threads: Threads,
    dictionary: Dictionary,
    /// Sizes of the tables that the collector holds or was sent.
    marks: Marks,
    /// Cycles of all lives: time goes on when an agent ends.
    cycles: i64,
    accepted_ns: u64,
    open: VecDeque<Open>,
    /// Number of open flushes that were sent on this stream.
    sent: usize,
    /// Delta encoding of this stream.
    codec: FlushDeltaCodec,
    dictionary_refusals: u32,
}

impl Agent {
    /// Creates an agent at the beginning of its first life.
    #[must_use]
    pub fn new(setup: Setup, random: Random) -> Agent {
        let record = Record::new(setup.worker.clone(), setup.program.clone(), setup.detail);
        let mut agent = Agent {
            dictionary: Dictionary::new(&setup.program),
            record: Arc::new(Mutex::new(record)),
            setup,
            random,
            key: SessionKey::new([0; SessionKey::BYTES]),
            epoch: Epoch(0),
            threads: Threads::new(),
            marks: Marks::default(),
            cycles: 0,
            accepted_ns: 0,
            open: VecDeque::new(),
            sent: 0,
            codec: FlushDeltaCodec::default(),
            dictionary_refusals: 0,
        };
        agent.begin_life();
        agent
    }

    /// Its record.
    #[must_use]
    pub fn record(&self) -> Arc<Mutex<Record>> {
        self.record.clone()
    }

    /// Restarts the worker: new epoch, new tables; unacknowledged flushes are lost with the old
    /// ones. Returns their number.
    pub(crate) fn begin_life(&mut self) -> usize {
        let lost = self.open.len();
        let mut secret = [0; SessionKey::BYTES];
        secret[..8].copy_from_slice(&self.random.next().to_le_bytes());
        secret[8..].copy_from_slice(&self.random.next().to_le_bytes());
        self.key = SessionKey::new(secret);
        self.epoch = self.key.epoch();
        self.dictionary = Dictionary::new(&self.setup.program);
        self.threads = Threads::new();
        self.marks = Marks::default();
        self.accepted_ns = 0;
        self.open.clear();
        self.sent = 0;
        lock(&self.record).begin_life(self.epoch);
        lost
    }

    pub(crate) fn hello(&self) -> v1::AgentMessage {
        message(Kind::Hello(v1::Hello {
            protocol: PROTOCOL,
            worker: self.setup.worker.clone(),
            epoch: self.epoch.0,
            labels: self.setup.labels.clone().into_iter().collect(),
            host: "simulated".into(),
            pid: 1,
            agent_version: env!("CARGO_PKG_VERSION").into(),
            sampler_mode: "simulated".into(),
            interval_ns: 10 * QUANTUM_NS,
            started_at_ns: self.setup.time.first_ns - self.setup.time.offset_ns,
            sent_at_ns: 0,
            session_key: self.key.as_bytes().to_vec(),
            answered_seq: self.answered_seq(),
        }))
    }

    fn answered_seq(&self) -> u64 {
        let next = self.open.front().map(|open| open.flush.seq);
        next.unwrap_or_else(|| lock(&self.record).life().made + 1) - 1
    }

    /// Starts a stream. Returns the number of flushes that the collector holds although no ack
    /// arrived.
    pub(crate) fn welcome(&mut self, welcome: &v1::Welcome) -> Result<usize, Violation> {
        let mut record = lock(&self.record);
        record.life().check(welcome.acked_seq, welcome.stored_ns)?;
        record.acknowledge(welcome.acked_seq);
        drop(record);
        self.dictionary_refusals = 0;
        self.set_marks([welcome.strings, welcome.frames, welcome.nodes])?;
        let before = self.open.len();
        while self
            .open
            .pop_front_if(|open| open.flush.seq <= welcome.acked_seq)
            .is_some()
        {}
        self.sent = 0;
        self.codec = FlushDeltaCodec::default();
        Ok(before - self.open.len())
    }

    fn set_marks(&mut self, [strings, frames, nodes]: [u32; 3]) -> Result<(), Violation> {
        // A collector that does not know this epoch holds only what every table has.
        let held = Marks {
            strings: strings.max(1),
            frames,
            nodes: nodes.max(1),
        };
        let own = self.dictionary.marks();
        if held.strings > own.strings || held.frames > own.frames || held.nodes > own.nodes {
            let held = format!("{held:?} of {own:?}");
            return Err(Violation::Dictionary {
                life: self.name(),
                held,
            });
        }
        self.marks = held;
        Ok(())
    }

    fn name(&self) -> String {
        format!("{} {}", self.setup.worker, self.epoch)
    }

    /// Creates the next flush.
    pub fn make(&mut self, due_at: Instant) {
        let Setup {
            program,
            pattern,
            time,
            ..
        } = &self.setup;
        let step = self.cycles % time.steps;
        let second = step / time.burst * time.step_s + step % time.burst;
        let start_ns = time.first_ns + second * SECOND_NS;
        let lags_ns = [self.cycles, self.cycles + 1].map(lag_ns);
        self.cycles += 1;
        let second = self
            .threads
            .second(program, pattern, start_ns, &mut self.random);
        let quanta: u64 = second.pairs.iter().map(|(_, _, quanta)| quanta).sum();
        let total_ns = quanta * QUANTUM_NS;
        self.accepted_ns += total_ns;

        let offset_ns = time.offset_ns;
        let mut cycle = encode(program, &mut self.dictionary, &second.pairs);
        let stop_ns = start_ns + SECOND_NS;
        cycle.start_ns = start_ns + lags_ns[0] - offset_ns;
        cycle.stop_ns = stop_ns + lags_ns[1] - offset_ns;
        let tasks = second
            .tasks
            .iter()
            .map(|task| v1::Task {
                name: self.dictionary.string(task.name),
                start_ns: task.start_ns - offset_ns,
                stop_ns: if task.stop_ns == 0 {
                    0
                } else {
                    task.stop_ns - offset_ns
                },
                ..task.clone()
            })
            .collect();
        let mut record = lock(&self.record);
        let seq = record.life().made + 1;
        let flush = v1::Flush {
            seq,
            sent_at_ns: cycle.stop_ns + FOLDING_NS + lags_ns[0],
            clock: Some(v1::Clock {
                offset_ns,
                error_ns: 50_000 + lags_ns[0].unsigned_abs(),
            }),
            cycle: Some(cycle),
            tasks,
            account: Some(v1::LossAccount {
                accepted_ns: self.accepted_ns,
                ..v1::LossAccount::default()
            }),
            ..Default::default()
        };
        let needs = self.dictionary.marks();
        let pairs = second.pairs.len() as u64;
        self.open.push_back(Open {
            flush,
            needs,
            pairs,
            due_at,
            sent_at: None,
        });
        let second_of_start = start_ns.div_euclid(SECOND_NS);
        let (pairs, tasks) = match self.setup.detail {
            Detail::Full => (second.pairs, second.tasks),
            Detail::Stacks => (second.pairs, Vec::new()),
            Detail::Totals => Default::default(),
        };
        record.made(Facts {
            seq,
            second: second_of_start,
            pairs,
            tasks,
            total_ns,
        });
    }

    /// Number of flushes in all its lives.
    pub(crate) fn made(&self) -> u64 {
        self.cycles.unsigned_abs()
    }

    /// Number of flushes that were sent and not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent
    }

    /// Number of unanswered flushes.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn has_next(&self) -> bool {
        self.sent < self.open.len()
    }

    /// Returns the next message: a piece of the dictionary, or the flush that needed it.
    pub fn next_message(&mut self, now: Instant) -> Option<v1::AgentMessage> {
        let open = self.open.get_mut(self.sent)?;
        let needs = open.needs;
        let held = self.marks;
        if needs.strings > held.strings || needs.frames > held.frames || needs.nodes > held.nodes {
            let program = &self.setup.program;
            let piece = self
                .dictionary
                .since(program, &mut self.marks, DICTIONARY_STRINGS_MAX);
            return Some(message(Kind::Dictionary(
                piece.expect("more is needed than is held"),
            )));
        }
        self.sent += 1;
        open.sent_at = Some(now);
        let mut flush = open.flush.clone();
        self.codec.encode(&mut flush);
        Some(message(Kind::Flush(flush)))
    }

    /// Handles an ack.
    ///
    /// # Errors
    /// If the ack is out of order.
    pub fn ack(&mut self, seq: u64, now: Instant) -> Result<AckedFlush, Violation> {
        let due = self.open.front().map_or(0, |open| open.flush.seq);
        if seq != due || self.sent == 0 {
            let got = format!("an ack of {seq}");
            let expected = format!("an ack of {due}");
            return Err(Violation::OutOfOrder {
                life: self.name(),
                got,
                expected,
            });
        }
        let open = self.open.pop_front().expect("it was looked at");
        self.sent -= 1;
        lock(&self.record).acknowledge(seq);
        let sent_at = open.sent_at.expect("it was sent");
        Ok(AckedFlush {
            pairs: open.pairs,
            since_sent: now - sent_at,
            since_due: now.saturating_duration_since(open.due_at),
        })
    }

    /// Handles a rejection. Every message of this agent is valid, except a dictionary that begins
    /// where the collector was before it lost unsynced data.
    pub(crate) fn refused(&mut self, refusal: v1::Refusal) -> Result<(), Violation> {
        let v1::Refusal {
            seq,
            reason,
            strings,
            frames,
            nodes,
            ..
        } = refusal;
        self.dictionary_refusals += 1;
        if seq > 0 || self.dictionary_refusals >= DICTIONARY_REFUSALS_MAX {
            return Err(Violation::Refused {
                life: self.name(),
                seq,
                reason,
            });
        }
        self.set_marks([strings, frames, nodes])
    }

    /// An answer that the protocol does not allow.
    pub(crate) fn unexpected(&self, got: &str, expected: &str) -> Violation {
        Violation::OutOfOrder {
            life: self.name(),
            got: got.into(),
            expected: expected.into(),
        }
    }

    /// Returns the program's node for a node of the agent.
    #[must_use]
    pub fn program_node(&self, own: NodeId) -> NodeId {
        self.dictionary.program_node(own.0)
    }
}

/// How much later than due a cycle ends and the next begins: a real sampler's ticks are never quite
/// on time.
fn lag_ns(cycle: i64) -> i64 {
    cycle.wrapping_mul(77_377).rem_euclid(200_000)
}

/// The weights of a cycle; its times stay 0.
fn encode(program: &Program, dictionary: &mut Dictionary, pairs: &[Pair]) -> v1::Cycle {
    let own = pairs.iter().map(|(node, state, quanta)| {
        let own = dictionary.node(program, *node);
        (NodeId(own), *state, *quanta * QUANTUM_NS)
    });
    v1::Cycle {
        start_ns: 0,
        stop_ns: 0,
        ticks: 100,
        ticks_expected: 100,
        ..encode_cycle(&own.collect(), TimeRange::ALL, QUANTUM_NS)
    }
}

pub(crate) fn message(kind: Kind) -> v1::AgentMessage {
    v1::AgentMessage { kind: Some(kind) }
}

/// Records are append-only, so one whose thread panicked is still valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::{Translation, decode_cycle};
    use profiler_core::{CallTrie, SymbolTable};

    use super::*;
    use crate::pattern::Busyness;
    use crate::program::Shape;

    fn agent(seed: u64) -> Agent {
        let shape = Shape {
            tasks: 4,
            stacks_per_task: 30,
            idle: 3,
            depths: 3..=12,
        };
        let mut random = Random(seed);
        let program = Arc::new(Program::generate(shape, &mut random));
        let pattern = Arc::new(Pattern::new(&program, Busyness::default(), &mut random));
        let time = Time {
            first_ns: 9 * SECOND_NS,
            step_s: 1,
            burst: 1,
            steps: 50,
            offset_ns: -7,
        };
        let labels = default_labels();
        let detail = Detail::Full;
        let setup = Setup {
            worker: "w".into(),
            labels,
            program,
            pattern,
            time,
            detail,
        };
        Agent::new(setup, random)
    }

    fn welcome(acked_seq: u64, stored_ns: u64, marks: [u32; 3]) -> v1::Welcome {
        let [strings, frames, nodes] = marks;
        v1::Welcome {
            acked_seq,
            stored_ns,
            strings,
            frames,
            nodes,
            receipt: None,
        }
    }

    /// The bytes on the wire, decoded as a collector decodes them, equal the record.
    #[test]
    fn the_record_equals_what_a_collector_decodes() {
        let mut agent = agent(1);
        agent.welcome(&welcome(0, 0, [0, 0, 0])).unwrap();
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(100_000);
        let mut translation = Translation::default();
        let now = Instant::now();
        let mut total_ns = 0;
        let mut codec = FlushDeltaCodec::default();
        for seq in 1..=120 {
            agent.make(now);
            while let Some(message) = agent.next_message(now) {
                match message.kind.unwrap() {
                    Kind::Dictionary(piece) => {
                        translation.apply(&piece, &mut symbols, &mut trie).unwrap();
                    }
                    Kind::Flush(mut flush) => {
                        codec.decode(&mut flush);
                        assert_eq!(flush.account.unwrap().accepted_ns, agent.accepted_ns);
                        let nodes = translation.marks().nodes;
                        let (range, delta) = decode_cycle(&flush.cycle.unwrap(), nodes).unwrap();
                        let second = 9 + i64::try_from(seq - 1).unwrap() % 50;
                        let start_ns = range.start().unix_ns() - 7;
                        assert_eq!(start_ns.div_euclid(SECOND_NS), second);
                        total_ns += delta.total().total_ns();
                    }
                    other => panic!("{other:?}"),
                }
            }
            agent.ack(seq, now).unwrap();
        }
        let mut record = lock(&agent.record);
        let life = record.life();
        assert_eq!(
            (life.acked, life.made, life.settled.total_ns),
            (120, 120, total_ns)
        );
        assert_eq!(life.settled.by_second.values().sum::<u64>(), total_ns);
        assert_eq!(life.settled.by_node.values().sum::<u64>(), total_ns);
        assert_eq!(
            life.settled
                .by_second
                .iter()
                .map(|((second, ..), _)| *second)
                .max(),
            Some(58)
        );
    }

    /// Four flushes, of which the first was acknowledged.
    fn with_one_of_four_acked() -> (Agent, Vec<u64>) {
        let mut agent = agent(2);
        agent.welcome(&welcome(0, 0, [0, 0, 0])).unwrap();
        let now = Instant::now();
        (0..4).for_each(|_| agent.make(now));
        while agent.next_message(now).is_some() {}
        agent.ack(1, now).unwrap();
        let mut sum_ns = lock(&agent.record).life().settled.total_ns;
        let mut sums = vec![0, sum_ns];
        for facts in &lock(&agent.record).life().open {
            sum_ns += facts.total_ns;
            sums.push(sum_ns);
        }
        (agent, sums)
    }

    #[test]
    fn a_reconnect_resends_what_the_collector_does_not_hold() {
        for held in 1..=4 {
            let (mut agent, sums) = with_one_of_four_acked();
            let more = agent
                .welcome(&welcome(held, sums[held as usize], [0, 0, 0]))
                .unwrap();
            assert_eq!(more as u64, held - 1);
            // Both ends know the empty string and the root.
            let mut sent = Vec::new();
            let mut entries = [1, 0, 1];
            let mut codec = FlushDeltaCodec::default();
            while let Some(message) = agent.next_message(Instant::now()) {
                match message.kind.unwrap() {
                    Kind::Flush(mut flush) => {
                        codec.decode(&mut flush);
                        sent.push(flush.seq);
                    }
                    // From the first entry on, without a gap, in pieces ahead of the flushes that
                    // need them.
                    Kind::Dictionary(piece) => {
                        let v1::Dictionary {
                            string_base,
                            frame_base,
                            node_base,
                            ..
                        } = piece;
                        assert_eq!([string_base, frame_base, node_base], entries);
                        entries[0] += piece.strings.len() as u32;
                        entries[1] += piece.frames.len() as u32;
                        entries[2] += piece.node_frames.len() as u32;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(sent, (held + 1..=4).collect::<Vec<_>>());
            assert_eq!(entries != [1, 0, 1], !sent.is_empty());
        }
    }

    #[test]
    fn broken_promises_are_detected() {
        check_broken(
            0,
            |_| 0,
            "flushes up to 1 were acked, but only those up to 0 are held",
        );
        check_broken(
            5,
            |sums| sums[4],
            "flushes up to 5 are held, but only those up to 4 were sent",
        );
        // One flush counted twice and one not at all, under a correct mark.
        check_broken(2, |sums| sums[2] + sums[1], "flushes up to 2 weigh");
        check_broken(2, |sums| sums[1], "flushes up to 2 weigh");

        let (mut agent, sums) = with_one_of_four_acked();
        let error = agent
            .welcome(&welcome(1, sums[1], [9_999, 0, 0]))
            .unwrap_err();
        assert!(matches!(error, Violation::Dictionary { .. }), "{error}");
        let (mut agent, _) = with_one_of_four_acked();
        let error = agent.ack(3, Instant::now()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("received an ack of 3, expected an ack of 2"),
            "{error}"
        );
    }

    fn check_broken(held: u64, stored: impl Fn(&[u64]) -> u64, expected: &str) {
        let (mut agent, sums) = with_one_of_four_acked();
        let error = agent
            .welcome(&welcome(held, stored(&sums), [0, 0, 0]))
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
