//! A worker for tests: counts stacks as an agent does and makes the messages that it would send.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::sync::Arc;

pub use base::testing::at_once;

use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::{
    Marks, PROTOCOL, Translation, dictionary_since, encode_cycle, encode_task, encode_telemetry,
    v1, with_threads,
};
use profiler_core::{
    CallTrie, Epoch, Frame, FrameId, FrameKind, NodeId, Outcome, State, SymbolTable, TaskDetail,
    TaskId, TaskRecord, TaskTotals, Telemetry, TimeRange, Timestamp, WorkerId,
};

use crate::tree::Tree;
use shares::Account;

/// The account of streams without a connection.
pub fn account() -> Arc<Account> {
    Account::of_test(1)
}

/// When tests begin, by the collector's clock: Unix second 1,000,000.
pub const START_S: i64 = 1_000_000;

pub const SECOND_NS: i64 = 1_000_000_000;

/// `seconds` after the tests' start.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ns((START_S + seconds) * SECOND_NS)
}

/// From `from` to `to` seconds after the tests' start.
pub fn range(from: i64, to: i64) -> TimeRange {
    TimeRange::new(at(from), at(to)).unwrap()
}

/// A tree of these stacks, `task;function;function`.
pub fn tree_of(stacks: &[String]) -> Tree {
    let mut tree = Tree::new(10_000, 1 << 20);
    let mut worker = TestWorker::new("w", 1);
    stacks
        .iter()
        .for_each(|stack| worker.count(stack, State::Cpu, 1));
    if let Some(dictionary) = worker.dictionary() {
        tree.apply(&dictionary, &mut Translation::default())
            .unwrap();
    }
    tree
}

/// One worker whose clock is `offset_ns` behind the collector's.
#[derive(Clone)]
pub struct TestWorker {
    pub id: WorkerId,
    pub epoch: Epoch,
    pub offset_ns: i64,
    symbols: SymbolTable,
    trie: CallTrie,
    threads: Vec<(NodeId, State, u64)>,
    pub host: String,
    pub zone: String,
    held: Marks,
    pub seq: u64,
    /// Told in Hello.
    pub answered_seq: u64,
    account: v1::LossAccount,
}

impl TestWorker {
    pub fn new(id: &str, epoch: u64) -> TestWorker {
        TestWorker::with_room(id, epoch, 10_000)
    }

    /// One with so many nodes at most.
    pub fn with_room(id: &str, epoch: u64, nodes_max: usize) -> TestWorker {
        TestWorker {
            id: WorkerId(id.into()),
            epoch: Epoch(epoch),
            offset_ns: 0,
            symbols: SymbolTable::new(),
            trie: CallTrie::new(nodes_max),
            threads: Vec::new(),
            host: "host-1".into(),
            zone: "a".into(),
            held: Marks::default(),
            seq: 0,
            answered_seq: 0,
            account: v1::LossAccount::default(),
        }
    }

    pub fn hello(&self) -> v1::Hello {
        v1::Hello {
            protocol: PROTOCOL,
            worker: self.id.to_string(),
            epoch: self.epoch.0,
            labels: [("zone".to_owned(), self.zone.clone())].into(),
            host: self.host.clone(),
            pid: 4711,
            agent_version: "0.1.0".into(),
            sampler_mode: "signals".into(),
            interval_ns: 10_000_000,
            started_at_ns: at(0).unix_ns() - self.offset_ns,
            sent_at_ns: 77,
            answered_seq: self.answered_seq,
            ..v1::Hello::default()
        }
    }

    /// Counts a stack, `task;function;function` or `task;@phase;function`, in the second that the next
    /// flush is about.
    pub fn count(&mut self, stack: &str, state: State, nanoseconds: u64) {
        let node = self.node(stack);
        self.trie.add(node, state, nanoseconds);
    }

    /// Counts time of a thread: `task;name#id` or `task;@phase;name#id`.
    pub fn count_thread(&mut self, path: &str, state: State, nanoseconds: u64) {
        let node = self.node(path);
        self.threads.push((node, state, nanoseconds));
    }

    /// Counts a function without a name, in a task.
    pub fn count_offset(&mut self, task: &str, build_id: &str, offset: u64) {
        let function = Frame {
            kind: FrameKind::Unresolved,
            module: "/bin/worker",
            build_id,
            offset,
            ..Frame::function("", "", 0)
        };
        let path = [Frame::task(task), function].map(|frame| self.symbols.intern(&frame));
        let node = self.trie.insert_path(path.to_vec()).unwrap();
        self.trie.add(node, State::Cpu, 10_000_000);
    }

    fn node(&mut self, stack: &str) -> NodeId {
        let frames: Vec<FrameId> = stack
            .split(';')
            .enumerate()
            .map(|(depth, name)| {
                let frame = match (depth, name) {
                    (0, "[no task]") => Frame::no_task(),
                    (0, "[agent]") => Frame::agent(),
                    (0, name) => Frame::task(name),
                    (1, name) if name.starts_with('@') => Frame::phase(&name[1..]),
                    (_, name) if name.contains('#') => {
                        let (name, id) = name.split_once('#').unwrap();
                        Frame::thread(name, id.parse().unwrap())
                    }
                    // A line in the name makes two lines of one function.
                    (_, name) => {
                        match name
                            .rsplit_once(':')
                            .map(|(name, line)| (name, line.parse()))
                        {
                            Some((name, Ok(line))) => Frame::function(name, "src/x.rs", line),
                            _ => Frame::function(name, "src/x.rs", 1),
                        }
                    }
                };
                self.symbols.intern(&frame)
            })
            .collect();
        self.trie.insert_path(frames).unwrap()
    }

    /// Entries that the collector does not hold yet.
    pub fn dictionary(&mut self) -> Option<v1::Dictionary> {
        dictionary_since(
            &self.symbols,
            &self.trie,
            &mut self.held,
            MESSAGE_BYTES_TARGET,
        )
    }

    /// The next flush: the second that begins `start_s` after the tests' start, and `tasks`.
    pub fn flush(&mut self, start_s: i64, tasks: Vec<v1::Task>) -> v1::Flush {
        let delta = self.trie.take_delta();
        let threads = self.threads.drain(..).collect();
        self.seq += 1;
        self.account.accepted_ns += delta.total().total_ns();
        let range = range(start_s, start_s + 1)
            .shifted(-self.offset_ns)
            .unwrap();
        let cycle = with_threads(encode_cycle(&delta, range, 1), &threads);
        v1::Flush {
            seq: self.seq,
            sent_at_ns: 78,
            clock: Some(v1::Clock {
                offset_ns: self.offset_ns,
                error_ns: 5,
            }),
            cycle: Some(v1::Cycle {
                ticks: 95,
                ticks_expected: 100,
                ticks_throttled: 4,
                ..cycle
            }),
            tasks,
            account: Some(self.account),
            ..v1::Flush::default()
        }
    }

    /// A task of this worker; `stop_s` and its outcome if it has ended.
    pub fn task(&mut self, id: u64, name: &str, span_s: (i64, Option<i64>)) -> v1::Task {
        self.task_with(id, name, span_s, None)
    }

    /// The same, of which something is said.
    pub fn task_with(
        &mut self,
        id: u64,
        name: &str,
        span_s: (i64, Option<i64>),
        detail: Option<TaskDetail>,
    ) -> v1::Task {
        let raw = |seconds| at(seconds).shifted(-self.offset_ns);
        let outcome = if span_s.1.is_some() {
            Outcome::Ok
        } else {
            Outcome::Running
        };
        let record = TaskRecord {
            id: TaskId(id),
            name: name.into(),
            key: format!("{name}-{id}").into(),
            thread_id: 12,
            thread_name: "pool-1".into(),
            parent: None,
            start: raw(span_s.0),
            stop: span_s.1.map(raw),
            outcome,
            cause: "".into(),
            detail: detail.map(Box::new),
        };
        encode_task(&record, &mut |text| self.symbols.intern_string(text).0)
    }

    /// Sums of tasks; their seconds are by the collector's clock.
    pub fn totals(&mut self, totals: &[TaskTotals]) -> Vec<v1::TaskTotals> {
        let mut totals = totals.to_vec();
        totals
            .iter_mut()
            .for_each(|sum| sum.second = sum.second.shifted(-self.offset_ns));
        let mut flush = v1::Flush::default();
        let records = Telemetry {
            totals,
            ..Telemetry::default()
        };
        encode_telemetry(&records, &mut flush, &mut |text| {
            self.symbols.intern_string(text).0
        });
        flush.totals
    }

    /// Puts records, told in the collector's time, into a flush as this worker's clock has them.
    pub fn tell(&mut self, flush: &mut v1::Flush, mut records: Telemetry) {
        let raw = |time: &mut Timestamp| *time = time.shifted(-self.offset_ns);
        for transfer in &mut records.transfers {
            raw(&mut transfer.start);
            raw(&mut transfer.stop);
        }
        records
            .resources
            .iter_mut()
            .for_each(|sample| raw(&mut sample.at));
        records
            .expected
            .iter_mut()
            .for_each(|expected| raw(&mut expected.since));
        for run in &mut records.runs {
            raw(&mut run.start);
            run.stop.iter_mut().for_each(raw);
        }
        encode_telemetry(&records, flush, &mut |text| {
            self.symbols.intern_string(text).0
        });
    }

    /// Tells the account what the collector refused.
    pub fn note_refused(&mut self, nanoseconds: u64) {
        self.account.lost_rejected_ns += nanoseconds;
    }

    /// The collector said how much it holds.
    pub fn resume(&mut self, strings: u32, frames: u32, nodes: u32) {
        self.held = Marks {
            strings,
            frames,
            nodes,
        };
    }
}
