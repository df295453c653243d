//! A conversation with a small collector that checks and decodes everything as a real one must.

mod rejections;

use profiler_core::limits::{MESSAGE_BYTES_MAX, MESSAGE_BYTES_TARGET, NAME_BYTES_MAX};
use profiler_core::wire::{
    ThreadDump, Translation, decode_cycle, decode_task, decode_telemetry, decode_thread_dump,
    decode_threads,
};
use profiler_core::{
    CallTrie, Delta, Direction, ExpectedTasks, Frame, NodeId, Outcome, PhaseInterval, Settings,
    State, StateSet, SymbolTable, TaskDetail, TaskId, TaskRecord, TaskTotals, Telemetry,
    ThreadSnapshot, Ticks, TimeRange, TransferEvent, TransferId, Weight,
};
use prost::Message;

use super::*;
use crate::batch::Span;
use crate::control::Control;
use crate::control::ThreadDumpReply;
use crate::shipper::outbox::Limits;

fn at(nanoseconds: i64) -> Timestamp {
    Timestamp::from_unix_ns(nanoseconds)
}

/// Data that a collector keeps of one epoch.
struct Collector {
    translation: Translation,
    symbols: SymbolTable,
    trie: CallTrie,
    mark: u64,
    stored_ns: u64,
    dictionaries: Vec<v1::Dictionary>,
    flushes: Vec<v1::Flush>,
    tasks: Vec<TaskRecord>,
    records: Telemetry,
}

impl Collector {
    fn new() -> Self {
        Collector {
            translation: Translation::default(),
            symbols: SymbolTable::new(),
            trie: CallTrie::new(10_000_000),
            mark: 0,
            stored_ns: 0,
            dictionaries: Vec::new(),
            flushes: Vec::new(),
            tasks: Vec::new(),
            records: Telemetry::default(),
        }
    }

    fn welcome(&self) -> v1::CollectorMessage {
        let Marks {
            strings,
            frames,
            nodes,
        } = self.translation.marks();
        answer(collector_message::Kind::Welcome(v1::Welcome {
            acked_seq: self.mark,
            stored_ns: self.stored_ns,
            strings,
            frames,
            nodes,
            receipt: None,
        }))
    }

    /// Handles a message; panics where a real collector would reject it.
    fn take(&mut self, message: v1::AgentMessage) {
        assert!(message.encoded_len() <= MESSAGE_BYTES_MAX);
        match message.kind.unwrap() {
            agent_message::Kind::Dictionary(dictionary) => {
                let symbols = &mut self.symbols;
                let trie = &mut self.trie;
                self.translation.apply(&dictionary, symbols, trie).unwrap();
                self.dictionaries.push(dictionary);
            }
            agent_message::Kind::Flush(flush) => self.store(flush),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn store(&mut self, flush: v1::Flush) {
        assert!(flush.encoded_len() <= MESSAGE_BYTES_TARGET);
        // One that knows nothing takes any.
        assert!(flush.seq == self.mark + 1 || self.mark == 0);
        self.mark = flush.seq;
        if let Some(cycle) = &flush.cycle {
            let (_, delta) = decode_cycle(cycle, self.translation.marks().nodes).unwrap();
            self.stored_ns += delta.total().total_ns();
        }
        let text = |index| Some(self.symbols.string(self.translation.string(index)?).clone());
        for task in &flush.tasks {
            self.tasks.push(decode_task(task, &text).unwrap());
        }
        self.records
            .append(decode_telemetry(&flush, &text).unwrap());
        self.flushes.push(flush);
    }
}

fn answer(kind: collector_message::Kind) -> v1::CollectorMessage {
    v1::CollectorMessage { kind: Some(kind) }
}

fn refusal(seq: u64, marks: [u32; 3]) -> v1::CollectorMessage {
    let [strings, frames, nodes] = marks;
    let reason = "no\nroom".to_owned();
    let receipt = None;
    answer(collector_message::Kind::Refusal(v1::Refusal {
        seq,
        reason,
        strings,
        frames,
        nodes,
        receipt,
    }))
}

/// An agent's side: what it sampled, and what waits.
struct Agent {
    outbox: Mutex<Outbox>,
    tables: Mutex<Tables>,
    offsets: OffsetEstimator,
    control: Control,
    dump_reply: Mutex<Option<ThreadDumpReply>>,
    seconds: i64,
}

impl Agent {
    fn new() -> Self {
        Agent {
            outbox: Mutex::new(Outbox::new(Limits::default())),
            tables: Mutex::new(Tables::default()),
            offsets: OffsetEstimator::default(),
            control: Control::new(Settings {
                interval_ns: 10_000_000,
                enabled: true,
                states: StateSet::ALL,
            }),
            dump_reply: Mutex::new(None),
            seconds: 0,
        }
    }

    fn open(&mut self, first: v1::CollectorMessage) -> Result<Session<'_>, SessionError> {
        let held = OutboxRefs {
            outbox: &self.outbox,
            tables: &self.tables,
            log: |event| event(),
        };
        let control = ControlStream::new(&self.control, &self.dump_reply);
        let mut session = Session::open(held, &mut self.offsets, control, first, at(0))?;
        // The first message reports the settings, which these tests are not about.
        assert!(matches!(
            session.control.next(),
            Some(agent_message::Kind::Applied(_))
        ));
        Ok(session)
    }

    /// Sends everything that is ready.
    fn talk(&mut self, collector: &mut Collector) {
        let mut session = self.open(collector.welcome()).unwrap();
        while session.has_next() {
            collector.take(session.next_message(at(0)).unwrap());
            let ack = v1::Ack {
                seq: collector.mark,
                receipt: None,
            };
            session
                .receive(answer(collector_message::Kind::Ack(ack)), at(0))
                .unwrap();
        }
        assert_eq!(session.next_message(at(0)), None);
    }

    /// Samples `functions` in task `name` for a second, one quantum each.
    fn sample(&mut self, name: &str, functions: &[&str]) {
        let tables = self.tables.get_mut().unwrap();
        let top = tables.symbols.intern(&Frame::task(name));
        let task = tables.trie.insert(NodeId::ROOT, top).unwrap();
        let mut leaf = |function: &&str| {
            let frame = tables
                .symbols
                .intern(&Frame::function(function, "main.rs", 1));
            (
                tables.trie.insert(task, frame).unwrap(),
                Weight::of(State::Cpu, 10),
            )
        };
        let delta = functions.iter().map(&mut leaf).collect();
        self.push(delta, vec![task_record(name)]);
    }

    fn push_records(&mut self, records: Telemetry) {
        let cycle = Batch {
            telemetry: records,
            ..self.sealed(Delta::default(), Vec::new())
        };
        self.outbox.get_mut().unwrap().push(cycle);
    }

    fn push(&mut self, delta: Delta, tasks: Vec<TaskRecord>) {
        let cycle = self.sealed(delta, tasks);
        self.outbox.get_mut().unwrap().push(cycle);
    }

    fn sealed(&mut self, delta: Delta, tasks: Vec<TaskRecord>) -> Batch {
        self.seconds += 1;
        let range = TimeRange::new(at(self.seconds - 1), at(self.seconds)).unwrap();
        let ticks = Ticks {
            made: 7,
            expected: 10,
            throttled: 2,
        };
        let span = Span {
            range,
            quantum_ns: 10,
            ticks,
        };
        Batch {
            tasks,
            ..Batch::of_samples(span, delta, Delta::default())
        }
    }
}

fn task_record(name: &str) -> TaskRecord {
    TaskRecord {
        id: TaskId(7),
        name: name.into(),
        key: "k".into(),
        thread_id: 3,
        thread_name: "t".into(),
        parent: None,
        start: at(1),
        stop: Some(at(2)),
        outcome: Outcome::Ok,
        cause: "".into(),
        detail: None,
    }
}

#[test]
fn dictionary_entries_are_sent_once_and_before_their_use() {
    let mut agent = Agent::new();
    let mut collector = Collector::new();
    agent.sample("load", &["read", "parse"]);
    agent.talk(&mut collector);
    // The second stream goes on where the first ended; the name of a task may be new by itself.
    agent.sample("load", &["parse", "write"]);
    agent.push(Delta::default(), vec![task_record("store")]);
    agent.talk(&mut collector);
    let strings = collector
        .dictionaries
        .iter()
        .map(|d| d.strings.clone())
        .collect::<Vec<_>>();
    let expected = [
        vec!["load", "read", "main.rs", "parse"],
        vec!["write"],
        vec!["store"],
    ];
    assert_eq!(strings, expected);
    assert_eq!(collector.stored_ns, 40);
    let names = collector
        .tasks
        .iter()
        .map(|task| &*task.name)
        .collect::<Vec<_>>();
    assert_eq!(names, ["load", "load", "store"]);
    let cycle = collector.flushes[0].cycle.as_ref().unwrap();
    assert_eq!(
        (cycle.ticks, cycle.ticks_expected, cycle.ticks_throttled),
        (7, 10, 2)
    );
    assert_eq!(collector.flushes[2].account.unwrap().accepted_ns, 40);
}

#[test]
fn a_collector_without_memory_gets_the_whole_dictionary() {
    let mut agent = Agent::new();
    agent.sample("load", &["read"]);
    agent.talk(&mut Collector::new());
    let mut collector = Collector {
        mark: 1,
        ..Collector::new()
    };
    agent.sample("load", &["read"]);
    // Its sequence numbers go on, but it holds nothing, and says so with zeros.
    let zeros = answer(collector_message::Kind::Welcome(v1::Welcome::default()));
    let mut session = agent.open(zeros).unwrap();
    while let Some(message) = session.next_message(at(0)) {
        collector.take(message);
    }
    assert_eq!(collector.stored_ns, 10);
    assert_eq!(
        collector.flushes[0].account.unwrap().lost_by_collector_ns,
        10
    );
    let first = &collector.dictionaries[0];
    assert_eq!(
        (first.string_base, first.frame_base, first.node_base),
        (1, 0, 1)
    );
}

#[test]
fn large_tables_cross_in_several_messages_and_large_cycles_in_several_flushes() {
    const FLUSH_BYTES_MAX: usize = 65_536;
    let limits = Limits {
        flush_bytes_max: FLUSH_BYTES_MAX,
        ..Limits::default()
    };
    let mut agent = Agent {
        outbox: Mutex::new(Outbox::new(limits)),
        ..Agent::new()
    };
    let mut collector = Collector::new();
    let names: Vec<_> = (0..600)
        .map(|i| format!("{i:0width$}", width = NAME_BYTES_MAX))
        .collect();
    agent.sample(
        "load",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    agent.talk(&mut collector);
    // One is closed by the entry with which it is full.
    let largest = collector
        .dictionaries
        .iter()
        .map(Message::encoded_len)
        .max();
    assert!(
        largest <= Some(DICTIONARY_BYTES_MAX + NAME_BYTES_MAX + 64),
        "{largest:?}"
    );

    let tables = agent.tables.get_mut().unwrap();
    let mut node = |line: u32| {
        // Wide, not deep: each hangs below one of the functions above.
        let parent = NodeId(2 + line % 600);
        let frame = tables
            .symbols
            .intern(&Frame::function("f", "main.rs", line));
        tables.trie.insert(parent, frame).unwrap()
    };
    let weight = |ns| Weight::of(State::Cpu, ns) + Weight::of(State::Runnable, 10);
    let delta: Delta = (1..20_000)
        .map(|line: u32| (node(line), weight([10, 1 << 20][line as usize % 2] * 10)))
        .collect();
    let expected_ns = collector.stored_ns + delta.total().total_ns();
    let mut row = task_record("load");
    row.key = "k".repeat(NAME_BYTES_MAX).into();
    let rows = (1..=50).map(|id| TaskRecord {
        id: TaskId(id),
        ..row.clone()
    });
    agent.push(delta, rows.collect());
    agent.talk(&mut collector);
    assert_eq!(collector.stored_ns, expected_ns);
    assert_eq!(collector.tasks.len(), 51);
    let sizes = collector
        .flushes
        .iter()
        .map(Message::encoded_len)
        .collect::<Vec<_>>();
    assert!(
        sizes.iter().all(|size| *size <= FLUSH_BYTES_MAX),
        "{sizes:?}"
    );
    // Full but for less than a row, or for what a list is shorter than it might have been; unless they
    // are the last of their kind.
    let full = sizes
        .iter()
        .filter(|size| **size > FLUSH_BYTES_MAX / 8 * 7)
        .count();
    assert_eq!((sizes.len(), full), (6, 4), "{sizes:?}");
}

/// A collector decodes what the symbolizer sealed: details, time by thread, and sums.
#[test]
fn details_threads_and_sums_of_tasks_reach_the_collector() {
    let mut agent = Agent::new();
    let mut collector = Collector::new();
    let phase = PhaseInterval {
        name: "decode".into(),
        start_ns: 5,
        duration_ns: 7,
        count: 1,
    };
    let row = TaskRecord {
        detail: Some(Box::new(TaskDetail {
            attempt: 2,
            result_bytes: Some(9),
            type_name: "Vec".into(),
            labels: vec![("table".into(), "orders".into())],
            phases: vec![phase.clone()],
        })),
        ..task_record("load")
    };
    let totals = TaskTotals {
        name: "sum".into(),
        outcome: Outcome::Cancelled,
        second: at(5_000_000_000),
        duration_ns: 60,
        buckets: vec![(10, 1), (25, 2)],
        phases: vec![PhaseInterval {
            start_ns: 0,
            ..phase
        }],
    };
    let tables = agent.tables.get_mut().unwrap();
    let mut node = NodeId::ROOT;
    for frame in [
        Frame::task("load"),
        Frame::phase("decode"),
        Frame::thread("pool", 77),
    ] {
        let frame = tables.symbols.intern(&frame);
        node = tables.trie.insert(node, frame).unwrap();
    }
    let threads: Delta = [(node, Weight::of(State::Lock, 30))].into_iter().collect();
    let cycle = Batch {
        threads: threads.clone(),
        totals: vec![totals.clone()],
        aggregated_tasks: 3,
        ..agent.sealed(Delta::default(), vec![row.clone()])
    };
    agent.outbox.get_mut().unwrap().push(cycle);
    agent.talk(&mut collector);
    assert_eq!(collector.tasks, [row]);
    let flush = &collector.flushes[0];
    let text = |index| {
        Some(
            collector
                .symbols
                .string(collector.translation.string(index)?)
                .clone(),
        )
    };
    assert_eq!(decode_telemetry(flush, &text).unwrap().totals, [totals]);
    assert_eq!(flush.account.unwrap().aggregated_tasks, 3);
    let cycle = flush.cycle.as_ref().unwrap();
    let count = collector.translation.marks().nodes;
    assert_eq!(decode_threads(cycle, count).unwrap(), threads);
}

#[test]
fn a_resent_flush_has_the_same_content() {
    let mut agent = Agent::new();
    agent.sample("load", &["read"]);
    let mut flushes = Vec::new();
    for _ in 0..2 {
        let welcome = Collector::new().welcome();
        let mut session = agent.open(welcome).unwrap();
        while let Some(v1::AgentMessage { kind: Some(kind) }) = session.next_message(at(0)) {
            if let agent_message::Kind::Flush(flush) = kind {
                flushes.push(flush);
            }
        }
        // A string in between must not change it.
        agent.tables.get_mut().unwrap().symbols.intern_string("new");
    }
    assert_eq!(flushes.len(), 2);
    assert_eq!(flushes[0], flushes[1]);
}

/// Names of peers and types are in the dictionary before the flush that needs them, also on a stream
/// to a collector that knows nothing yet.
#[test]
fn telemetry_is_sent_after_the_names_that_it_needs() {
    let mut agent = Agent::new();
    let mut collector = Collector::new();
    let transfer = TransferEvent {
        id: TransferId(4),
        direction: Direction::Outgoing,
        peer: "worker-2".into(),
        keys: vec!["x-1".into()],
        more_keys: 0,
        type_name: "Matrix".into(),
        bytes: 9,
        compressed_bytes: None,
        start: at(1),
        stop: at(2),
        task: None,
        thread_id: 1,
        outcome: Outcome::Ok,
        cause: "".into(),
    };
    let records = Telemetry {
        transfers: vec![transfer],
        expected: vec![ExpectedTasks {
            name: "load".into(),
            total: 5,
            since: at(0),
        }],
        ..Telemetry::default()
    };
    agent.push_records(records.clone());
    agent.talk(&mut collector);
    assert_eq!(collector.records, records);
    // Another collector knows none of it, and receives all state that still holds.
    let mut collector = Collector::new();
    agent.talk(&mut collector);
    assert_eq!(
        collector.records,
        Telemetry {
            transfers: Vec::new(),
            ..records
        }
    );
}

#[test]
fn receipts_set_the_clock_of_later_flushes() {
    let mut agent = Agent::new();
    agent.sample("load", &["read"]);
    agent.sample("load", &["read"]);
    let receipt = |received_at_ns| {
        Some(v1::Receipt {
            agent_sent_at_ns: -100,
            received_at_ns,
            sent_at_ns: received_at_ns,
        })
    };
    let acked_seq = 0;
    let stored_ns = 0;
    let strings = 0;
    let frames = 0;
    let nodes = 0;
    let welcome = v1::Welcome {
        acked_seq,
        stored_ns,
        strings,
        frames,
        nodes,
        receipt: receipt(960),
    };
    let mut session = agent
        .open(answer(collector_message::Kind::Welcome(welcome)))
        .unwrap();
    session.next_message(at(0)).unwrap();
    let next_clock = |session: &mut Session<'_>| match session.next_message(at(0)).unwrap().kind {
        Some(agent_message::Kind::Flush(flush)) => flush.clock.unwrap(),
        other => panic!("unexpected {other:?}"),
    };
    let expected = v1::Clock {
        offset_ns: 1_010,
        error_ns: 51,
    };
    assert_eq!(next_clock(&mut session), expected);
    // A quicker exchange is better. The correction by 10 ns is still due.
    let ack = v1::Ack {
        seq: 1,
        receipt: receipt(910),
    };
    session
        .receive(answer(collector_message::Kind::Ack(ack)), at(-80))
        .unwrap();
    assert_eq!(
        next_clock(&mut session),
        v1::Clock {
            offset_ns: 1_000,
            error_ns: 21
        }
    );
}

#[test]
fn messages_out_of_order_end_the_stream() {
    let mut agent = Agent::new();
    let ack = || answer(collector_message::Kind::Ack(v1::Ack::default()));
    let text = |error: SessionError| error.to_string();
    let expected = "unexpected message from the collector: Ack; expected Welcome";
    assert_eq!(
        agent.open(ack()).map(|_| ()).map_err(text),
        Err(expected.to_owned())
    );
    let welcome = Collector::new().welcome();
    let mut session = agent.open(welcome.clone()).unwrap();
    let expected =
        "unexpected message from the collector: Welcome; expected an answer or a request";
    assert_eq!(
        session.receive(welcome, at(0)).map_err(text),
        Err(expected.to_owned())
    );
    session.receive(ack(), at(0)).unwrap();
    let expected = "unexpected message from the collector: an unknown message; \
                    expected an answer or a request";
    let unknown = v1::CollectorMessage { kind: None };
    assert_eq!(
        session.receive(unknown, at(0)).map_err(text),
        Err(expected.to_owned())
    );
}

#[test]
fn a_thread_dump_is_sent_before_flushes_and_after_its_names() {
    let mut agent = Agent::new();
    let mut collector = Collector::new();
    agent.sample("load", &["read"]);
    let thread = ThreadSnapshot {
        thread_id: 3,
        name: "pool-1".into(),
        node: NodeId(2),
        state: Some(State::Cpu),
        age_ns: 1,
        blocked_ns: 0,
    };
    let dump_reply = ThreadDump {
        threads: vec![thread],
        omitted: 0,
    };
    *agent.dump_reply.get_mut().unwrap() = Some(ThreadDumpReply {
        request: 1,
        dump: dump_reply.clone(),
    });
    let mut session = agent.open(collector.welcome()).unwrap();
    let request = collector_message::Kind::ThreadDumpRequest(v1::ThreadDumpRequest { id: 40 });
    session.receive(answer(request), at(0)).unwrap();
    let mut kinds = Vec::new();
    while let Some(message) = session.next_message(at(0)) {
        match message.kind {
            Some(agent_message::Kind::ThreadDump(message)) => {
                kinds.push("dump_reply");
                assert_eq!(message.id, 40);
                let nodes = collector.translation.marks().nodes;
                assert_eq!(decode_thread_dump(&message, nodes), Ok(dump_reply.clone()));
            }
            Some(agent_message::Kind::Flush(flush)) => {
                kinds.push("flush");
                collector.store(flush);
            }
            kind => collector.take(v1::AgentMessage { kind }),
        }
    }
    assert_eq!(kinds, ["dump_reply", "flush"]);
    assert_eq!(collector.dictionaries.len(), 1);
}
