//! Messages that an agent and a client that pushes may send, with a stranger's texts in every field that has one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::byte_serialize;
use profiler_core::wire::v1::agent_message::Kind;
use profiler_core::wire::{
    Marks, PROTOCOL, dictionary_since, encode_cycle, encode_task, encode_telemetry, v1,
    with_threads,
};
use profiler_core::{
    CallTrie, Direction, ExpectedTasks, Filter, Frame, FrameKind, Outcome, PhaseInterval, Profile,
    Resource, ResourceSample, RunId, RunMarker, State, SymbolTable, TaskDetail, TaskId, TaskRecord,
    TaskTotals, Telemetry, TimeRange, Timestamp, TransferEvent, TransferId,
};
use prost::Message as _;
use serde_json::json;

const SECOND_NS: i64 = 1_000_000_000;

/// Texts of a stranger, and the time of what they are sent with.
pub(super) struct Stranger<'a> {
    pub(super) texts: &'a [String],
    pub(super) now: Timestamp,
}

/// A request with a body.
pub(super) struct Push {
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl Stranger<'_> {
    /// One of the texts.
    pub(super) fn text(&self, number: usize) -> &str {
        let text = self.texts.get(number % self.texts.len().max(1));
        text.map_or("x", String::as_str)
    }

    /// One of the texts, as a part of an address.
    pub(super) fn encoded(&self, number: usize) -> String {
        let bytes = self.text(number).bytes();
        let escaped = bytes.map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        escaped.collect()
    }

    fn at(&self, seconds: i64) -> Timestamp {
        self.now.shifted(seconds * SECOND_NS)
    }

    fn last_second(&self) -> TimeRange {
        TimeRange::new(self.at(-3), self.at(-2)).expect("it has a length")
    }

    /// The streams of two agents: one whose id is a text, and one that is certainly accepted.
    pub(super) fn streams(&self) -> [Vec<Vec<u8>>; 2] {
        ["worker-1", self.text(0)].map(|worker| {
            let mut messages = vec![Kind::Hello(self.hello(worker))];
            messages.extend(self.flushes());
            messages.push(Kind::Goodbye(v1::Goodbye::default()));
            messages
                .into_iter()
                .map(|kind| v1::AgentMessage { kind: Some(kind) }.encode_to_vec())
                .collect()
        })
    }

    fn hello(&self, worker: &str) -> v1::Hello {
        v1::Hello {
            protocol: PROTOCOL,
            worker: worker.to_owned(),
            epoch: 7,
            labels: [(self.text(1).to_owned(), self.text(2).to_owned())].into(),
            host: self.text(3).to_owned(),
            pid: 4_711,
            agent_version: self.text(4).to_owned(),
            sampler_mode: self.text(5).to_owned(),
            interval_ns: 10_000_000,
            started_at_ns: self.at(-60).unix_ns(),
            sent_at_ns: self.now.unix_ns(),
            ..v1::Hello::default()
        }
    }

    /// A tree with the texts in names, files, modules and build ids, a stack for each of them.
    fn tree(&self) -> (SymbolTable, CallTrie) {
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(1_000);
        for number in 0..self.texts.len().max(1) {
            let [name, file, module, build_id] = [0, 1, 2, 3].map(|more| self.text(number + more));
            let unresolved = Frame {
                kind: FrameKind::Unresolved,
                module,
                build_id,
                offset: number as u64,
                ..Frame::function("", "", 0)
            };
            let frames = [
                Frame::task(name),
                Frame::phase(file),
                Frame {
                    module,
                    build_id,
                    ..Frame::function(name, file, 3)
                },
                unresolved,
            ];
            let ids = frames.map(|frame| symbols.intern(&frame));
            if let Ok(leaf) = trie.insert_path(ids) {
                trie.add(leaf, State::Cpu, 10_000_000);
            }
        }
        (symbols, trie)
    }

    /// A dictionary, and a flush for each kind of row: what is wrong with one does not hide the others.
    fn flushes(&self) -> Vec<Kind> {
        let (mut symbols, mut trie) = self.tree();
        let thread = [Frame::task(self.text(0)), Frame::thread(self.text(1), 5)]
            .map(|frame| symbols.intern(&frame));
        let thread = trie.insert_path(thread).expect("there is room");
        let delta = trie.take_delta();
        let threads = [(thread, State::Cpu, 10_000_000)].into_iter().collect();
        let samples = encode_cycle(&delta, self.last_second(), 1);
        let cycle = v1::Cycle {
            ticks: 95,
            ticks_expected: 100,
            ..with_threads(samples, &threads)
        };
        let mut index = |text: &str| symbols.intern_string(text).0;
        let tasks = (1..=6)
            .map(|id| encode_task(&self.task(id), &mut index))
            .collect();
        let mut flushes = vec![
            v1::Flush {
                cycle: Some(cycle),
                ..Default::default()
            },
            v1::Flush {
                tasks,
                ..Default::default()
            },
        ];
        for telemetry in self.telemetry() {
            let mut flush = v1::Flush::default();
            encode_telemetry(&telemetry, &mut flush, &mut index);
            flushes.push(flush);
        }
        let account = v1::LossAccount {
            accepted_ns: delta.total().total_ns(),
            ..v1::LossAccount::default()
        };
        let dictionary = dictionary_since(&symbols, &trie, &mut Marks::default(), usize::MAX);
        let mut messages: Vec<Kind> = dictionary.map(Kind::Dictionary).into_iter().collect();
        for (seq, flush) in (1..).zip(flushes) {
            messages.push(Kind::Flush(v1::Flush {
                seq,
                sent_at_ns: self.now.unix_ns(),
                clock: Some(v1::Clock::default()),
                account: Some(account),
                ..flush
            }));
        }
        messages
    }

    fn task(&self, id: u64) -> TaskRecord {
        let [name, key, thread, cause, label, value] =
            [0, 1, 2, 3, 4, 5].map(|more| self.text(id as usize + more).into());
        let phase = PhaseInterval {
            name: self.text(6).into(),
            start_ns: 1,
            duration_ns: 5,
            count: 1,
        };
        let outcome = Outcome::ALL[(id as usize) % Outcome::ALL.len()];
        TaskRecord {
            id: TaskId(id),
            name,
            key,
            thread_id: 12,
            thread_name: thread,
            parent: None,
            start: self.at(-5),
            stop: (outcome != Outcome::Running).then(|| self.at(-3)),
            outcome,
            cause,
            detail: Some(Box::new(TaskDetail {
                attempt: 2,
                result_bytes: Some(9),
                type_name: self.text(7).into(),
                labels: vec![(label, value)],
                phases: vec![phase],
            })),
        }
    }

    fn telemetry(&self) -> [Telemetry; 5] {
        let totals = TaskTotals {
            name: self.text(0).into(),
            outcome: Outcome::Ok,
            second: self.at(-3),
            duration_ns: 1_000,
            buckets: vec![(3, 2)],
            phases: Vec::new(),
        };
        let transfer = TransferEvent {
            id: TransferId(9),
            direction: Direction::Incoming,
            peer: self.text(1).into(),
            keys: vec![self.text(2).into()],
            more_keys: 1,
            type_name: self.text(3).into(),
            bytes: 100,
            compressed_bytes: None,
            start: self.at(-4),
            stop: self.at(-3),
            task: Some(TaskId(1)),
            thread_id: 12,
            outcome: Outcome::Failed,
            cause: self.text(4).into(),
        };
        let sample = ResourceSample {
            at: self.at(-3),
            period_ns: 1_000_000_000,
            values: vec![(Resource::ALL[0], 5)],
        };
        let expected = ExpectedTasks {
            name: self.text(5).into(),
            total: 10,
            since: self.at(-30),
        };
        let run = |id: u64| RunMarker {
            id: RunId(id),
            name: self.text(id as usize).into(),
            start: self.at(-20),
            stop: id.is_multiple_of(2).then(|| self.at(-2)),
        };
        [
            Telemetry {
                totals: vec![totals],
                ..Telemetry::default()
            },
            Telemetry {
                transfers: vec![transfer],
                ..Telemetry::default()
            },
            Telemetry {
                resources: vec![sample],
                ..Telemetry::default()
            },
            Telemetry {
                expected: vec![expected],
                ..Telemetry::default()
            },
            Telemetry {
                runs: (1..=4).map(run).collect(),
                ..Telemetry::default()
            },
        ]
    }

    /// The texts as a profile of pprof.
    fn pprof(&self) -> Vec<u8> {
        let (symbols, mut trie) = self.tree();
        let delta = trie.take_delta();
        let profile = Profile::collect(&symbols, &trie, [&delta], &Filter::default());
        let options = flamegraph::ExportOptions {
            range: Some(self.last_second()),
            ..flamegraph::ExportOptions::default()
        };
        flamegraph::pprof(&profile, &options)
    }

    /// A profile for each way to push one.
    pub(super) fn pushes(&self) -> Vec<Push> {
        let name: String = byte_serialize(self.text(0).as_bytes()).collect();
        let label: String = byte_serialize(self.text(1).as_bytes()).collect();
        let [from, until] = [-3, -2].map(|seconds| self.at(seconds).unix_ns() / SECOND_NS);
        let series = format!("{name}.cpu%7Bzone%3D{label}%7D");
        let ingest = format!("/ingest?name={series}&from={from}&until={until}&sampleRate=100");
        let push = json!({"series": [{
            "labels": [
                {"name": "__name__", "value": "process_cpu"},
                {"name": "service_name", "value": self.text(2)},
                {"name": "zone", "value": self.text(3)}
            ],
            "samples": [{"rawProfile": STANDARD.encode(self.pprof()), "ID": "1"}]
        }]});
        let stacks = self
            .texts
            .iter()
            .map(|text| format!("{};{text} 5\n", text.replace(';', "")));
        vec![
            Push {
                path: format!("{ingest}&format=pprof"),
                content_type: "application/octet-stream",
                body: self.pprof(),
            },
            Push {
                path: format!("{ingest}&format=folded"),
                content_type: "application/octet-stream",
                body: stacks.collect::<String>().into_bytes(),
            },
            Push {
                path: bridge::push::PUSH_PATH.to_owned(),
                content_type: "application/json",
                body: push.to_string().into_bytes(),
            },
            Push {
                path: bridge::push::OTLP_HTTP_PATH.to_owned(),
                content_type: "application/json",
                body: self.otlp().to_string().into_bytes(),
            },
        ]
    }

    fn otlp(&self) -> serde_json::Value {
        let texts = [0, 1, 2, 3].map(|number| self.text(number));
        let mut strings = vec![
            "",
            "cpu",
            "nanoseconds",
            "process.executable.build_id.gnu",
            "task",
        ];
        strings.extend(texts);
        json!({
            "resourceProfiles": [{
                "resource": {"attributes": [
                    {"key": "service.name", "value": {"stringValue": self.text(4)}},
                    {"key": self.text(5), "value": {"stringValue": self.text(6)}}
                ]},
                "scopeProfiles": [{"scope": {"name": self.text(7)}, "profiles": [{
                    "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
                    "samples": [
                        {"stackIndex": 1, "attributeIndices": [2], "values": ["900000000"]}
                    ],
                    "timeUnixNano": self.at(-3).unix_ns().to_string(),
                    "durationNano": "1000000000",
                    "periodType": {"typeStrindex": 1, "unitStrindex": 2},
                    "period": "10000000"
                }]}]
            }],
            "dictionary": {
                "mappingTable": [{}, {"filenameStrindex": 5, "attributeIndices": [1]}],
                "locationTable": [{}, {"mappingIndex": 1, "address": "77"}],
                "functionTable": [{}, {"nameStrindex": 6}],
                "stringTable": strings,
                "attributeTable": [
                    {},
                    {"keyStrindex": 3, "value": {"stringValue": self.text(7)}},
                    {"keyStrindex": 4, "value": {"stringValue": self.text(8)}}
                ],
                "stackTable": [{}, {"locationIndices": [1]}]
            }
        })
    }
}
