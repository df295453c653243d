//! Streams of agents: seeds of the targets that read them.

use profiler_core::wire::v1::agent_message::Kind;
use profiler_core::wire::{FlushDeltaCodec, PROTOCOL, encode_cycle, v1, with_threads};
use profiler_core::{Delta, NodeId, State, TimeRange, Timestamp, Weight};
use prost::Message as _;

use crate::parts;

/// When the golden store and the seeds begin, in Unix seconds.
pub const BEGIN_S: i64 = 1_700_000_000;

const QUANTUM_NS: u64 = 1_000_000;

/// An encoded message.
#[must_use]
pub fn message(kind: Kind) -> Vec<u8> {
    v1::AgentMessage { kind: Some(kind) }.encode_to_vec()
}

/// A valid first message.
#[must_use]
pub fn hello() -> v1::Hello {
    v1::Hello {
        protocol: PROTOCOL,
        worker: "worker-1".into(),
        epoch: 7,
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        host: "host-1".into(),
        pid: 4_711,
        agent_version: "0.1.0".into(),
        sampler_mode: "signals".into(),
        interval_ns: 10_000_000,
        started_at_ns: BEGIN_S * 1_000_000_000,
        sent_at_ns: 77,
        ..v1::Hello::default()
    }
}

/// A flush with something in every field, and the dictionary that it needs.
fn full() -> [Vec<u8>; 2] {
    let second = |seconds: i64| (BEGIN_S + 100 + seconds) * 1_000_000_000;
    let at = |seconds| Timestamp::from_unix_ns(second(seconds));
    let range = TimeRange::new(at(0), at(1)).expect("it has a length");
    let delta = |weights: &[(u32, u64)]| -> Delta {
        let weight = |quanta| Weight::of(State::Cpu, quanta * QUANTUM_NS);
        weights
            .iter()
            .map(|(node, quanta)| (NodeId(*node), weight(quanta)))
            .collect()
    };
    let texts = ["load", "main", "src/main.rs", "worker-2", "Table", "read"];
    let frame = |kind: v1::FrameKind, function| v1::Frame {
        kind: kind.into(),
        function,
        ..v1::Frame::default()
    };
    let dictionary = v1::Dictionary {
        string_base: 1,
        strings: texts.map(str::to_owned).to_vec(),
        frame_base: 0,
        frames: vec![
            frame(v1::FrameKind::Task, 1),
            v1::Frame {
                file: 3,
                line: 9,
                ..frame(v1::FrameKind::Function, 2)
            },
            frame(v1::FrameKind::Phase, 6),
            v1::Frame {
                offset: 3,
                ..frame(v1::FrameKind::Thread, 2)
            },
        ],
        node_base: 1,
        node_parent_gaps: vec![1, 1, 2, 3],
        node_frames: vec![0, 1, 2, 3],
    };
    let task = |id, stop_ns| v1::Task {
        id,
        name: 1,
        key: format!("load-{id}"),
        thread_id: 5,
        thread_name: "pool-1".into(),
        parent_id: id - 1,
        start_ns: second(0),
        stop_ns,
        outcome: if stop_ns == 0 {
            0
        } else {
            v1::Outcome::Failed.into()
        },
        cause: "out of paper".into(),
        attempt: 2,
        result_bytes: Some(400),
        type_name: 5,
        labels: vec![v1::Label {
            key: 5,
            value: "blue".into(),
        }],
        phases: vec![v1::Phase {
            name: 6,
            start_ns: 10,
            duration_ns: 20,
            count: 1,
        }],
    };
    let mut flush = v1::Flush {
        seq: 1,
        sent_at_ns: second(2),
        clock: Some(v1::Clock {
            offset_ns: 1_000,
            error_ns: 50,
        }),
        cycle: Some(v1::Cycle {
            ticks: 95,
            ticks_expected: 100,
            ticks_throttled: 4,
            ..with_threads(
                encode_cycle(&delta(&[(2, 10), (3, 10)]), range, QUANTUM_NS),
                &delta(&[(4, 20)]),
            )
        }),
        tasks: vec![task(1, 0), task(2, second(1))],
        account: Some(v1::LossAccount {
            accepted_ns: 20_000_000,
            lost_queue_ns: 5,
            ..Default::default()
        }),
        totals: vec![v1::TaskTotals {
            name: 1,
            outcome: v1::Outcome::Ok.into(),
            second_ns: second(1),
            duration_ns: 1_000,
            bucket_gaps: vec![3, 1],
            counts: vec![1, 2],
            phases: vec![v1::Phase {
                name: 6,
                start_ns: 0,
                duration_ns: 20,
                count: 3,
            }],
        }],
        transfers: vec![v1::TransferEvent {
            id: 9,
            direction: v1::Direction::Incoming.into(),
            peer: 4,
            keys: vec!["a".into(), "b".into()],
            more_keys: 3,
            type_name: 5,
            bytes: 1_000,
            compressed_bytes: Some(500),
            start_ns: second(0),
            stop_ns: second(1),
            task_id: 2,
            thread_id: 5,
            outcome: v1::Outcome::Ok.into(),
            cause: String::new(),
        }],
        resources: vec![v1::ResourceSample {
            at_ns: second(1),
            period_ns: 1_000_000_000,
            measures: vec![1, 2, 3],
            values: vec![5, 6, 7],
        }],
        expected: vec![v1::ExpectedTasks {
            name: 1,
            total: 100,
            since_ns: second(0),
        }],
        runs: vec![v1::RunMarker {
            id: 3,
            name: "nightly".into(),
            start_ns: second(0),
            stop_ns: 0,
        }],
    };
    // As the first one of a stream.
    FlushDeltaCodec::default().encode(&mut flush);
    [
        message(Kind::Dictionary(dictionary)),
        message(Kind::Flush(flush)),
    ]
}

/// An input with these messages, which are parts. An empty one ends the stream.
#[must_use]
pub fn input(flags: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    [vec![flags], parts::join(messages)].concat()
}

/// One stream with something in every field of every message, and a second one of the same agent.
#[must_use]
pub fn streams() -> [Vec<Vec<u8>>; 2] {
    let first = message(Kind::Hello(hello()));
    let goodbye = message(Kind::Goodbye(v1::Goodbye::default()));
    let applied = message(Kind::Applied(v1::AppliedSettings {
        revision: 1,
        interval_ns: 10_000_000,
        enabled: true,
        states: 1,
        mode: "signals".into(),
        ..Default::default()
    }));
    let thread = v1::ThreadStack {
        thread_id: 5,
        name: "main".into(),
        node: 2,
        state: 1,
        ..Default::default()
    };
    let dump = message(Kind::ThreadDump(v1::ThreadDump {
        id: 1,
        threads: vec![thread],
        omitted: 3,
        unavailable: String::new(),
    }));
    let [dictionary, flush] = full();
    let one = vec![
        first.clone(),
        dictionary,
        flush.clone(),
        applied,
        dump,
        goodbye,
    ];
    let two = [&one[..3], &[Vec::new(), first, flush]].concat();
    [one, two]
}
