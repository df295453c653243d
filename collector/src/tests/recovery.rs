//! Acknowledged data stays, whatever crashes or fails. A fleet ships to a simulated disk that
//! records every operation. Each prefix of these, with unsynced writes torn, dropped or reordered,
//! is opened and compared with the fleet's record of sent and acknowledged data.

mod acknowledged;
mod adoption;
mod images;
mod imports;
mod ingest_status;
mod inspected;
mod starts;
mod versions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use profiler_core::wire::v1::{self, collector_message::Kind};
use profiler_core::{State, Timestamp};
use proptest::prelude::*;

use query::fleet;
use std::sync::Arc;
use std::{fs, io};

use base::sync::{lock, read};
use state::recovery::*;
use state::session::SessionCell;
use state::{Collector, CollectorState, Settings};
use store::rows::DisconnectReason;
use store::wal::{self, WalError};
use store::{Manifest, Objects, StoreError, StoreGuard};

use base::clock::Clock;
use state::ingest::{AttachError, Attachment, ReceivedFlush, StreamError};
use state::testing::{TestWorker, at, at_once};
use store::wal::NotLogged;
use store::wal::sim::{Crash, Fault, Files, Operation, SimDisk, crash_image};
use store::{self, Second};

const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/store/src/wal/golden/00000000000000000001.wal"
);

/// Content of a flush: nanoseconds by stack.
type Content = BTreeMap<String, u64>;

/// By worker and start of the second, of which each flush has its own.
type Contents = BTreeMap<(String, i64), Content>;

fn open(disk: &SimDisk) -> Collector {
    open_over(disk, Objects::memory())
}

fn open_over(disk: &SimDisk, objects: Objects) -> Collector {
    let settings = Settings {
        clock: Clock::from_fn(|| at(50)),
        ..Settings::default()
    };
    let log = Box::new(disk.clone());
    let collector = Collector::open(settings, objects, log, StoreGuard::default()).unwrap();
    collector.log().limit_files(400);
    collector
}

/// Everything that the collector holds; each window once.
fn held(collector: &Collector) -> Contents {
    let windows = read(&collector.state.windows)
        .view(Second(0)..Second(u32::MAX), Timestamp::MAX)
        .windows;
    let tree = read(&collector.state.tree);
    let mut contents = Contents::new();
    for stored in windows {
        let mut content = Content::new();
        for (node, _, nanoseconds) in stored.samples.entries() {
            let frames: Vec<_> = tree.trie.path(node).collect();
            let labels = frames
                .iter()
                .rev()
                .map(|frame| tree.symbols.frame(*frame).label());
            *content
                .entry(labels.collect::<Vec<_>>().join(";"))
                .or_default() += nanoseconds;
        }
        let start_s = stored.range.start().second() - at(0).second();
        let before = contents.insert((stored.worker.to_string(), start_s), content);
        assert_eq!(before, None, "it is held twice");
    }
    contents
}

/// An agent: what it sent, and the answers that it received.
struct AgentSide {
    worker: TestWorker,
    attachment: Option<Attachment>,
    /// Sent and not acknowledged, with the second that each is about.
    unacked: Vec<(v1::Flush, i64)>,
}

impl AgentSide {
    fn new(index: usize) -> AgentSide {
        let worker = TestWorker::new(&format!("w{index}"), 7);
        AgentSide {
            worker,
            attachment: None,
            unacked: Vec::new(),
        }
    }

    fn id(&self) -> String {
        self.worker.id.to_string()
    }

    /// Attaches if it is not, and takes back what the collector says it holds.
    fn attach(&mut self, collector: &Collector) -> bool {
        if self.attachment.is_none() {
            let attached = match at_once(collector.ingest.attach(
                &state::testing::account(),
                self.worker.hello(),
                at(50),
            )) {
                Ok(attached) => attached,
                Err(AttachError::NotLogged(NotLogged::Full { .. })) => return false,
                Err(other) => panic!("{other}"),
            };
            let v1::Welcome {
                strings,
                frames,
                nodes,
                acked_seq,
                ..
            } = attached.welcome;
            self.worker.resume(strings, frames, nodes);
            self.unacked.retain(|(flush, _)| flush.seq > acked_seq);
            self.attachment = Some(attached.attachment);
        }
        while let Some(dictionary) = self.worker.dictionary() {
            let attachment = self.attachment.as_ref().unwrap();
            assert_eq!(
                collector
                    .ingest
                    .receive_dictionary(attachment, &dictionary, at(50)),
                Ok(None)
            );
        }
        true
    }
}

/// A fleet, its collector, and what must be so.
struct Fleet {
    disk: SimDisk,
    collector: Collector,
    agents: Vec<AgentSide>,
    /// All that was ever sent, with how many operations the disk had seen then.
    sent: Vec<((String, i64), Content, usize)>,
    acked: Vec<((String, i64), usize)>,
    next_s: i64,
}

impl Fleet {
    fn new(workers: usize) -> Fleet {
        Fleet::on(SimDisk::of(Files::new()), workers)
    }

    fn on(disk: SimDisk, workers: usize) -> Fleet {
        Fleet::over(disk, Objects::memory(), workers)
    }

    fn over(disk: SimDisk, objects: Objects, workers: usize) -> Fleet {
        let collector = open_over(&disk, objects);
        let agents = (0..workers).map(AgentSide::new).collect();
        Fleet {
            disk,
            collector,
            agents,
            sent: vec![],
            acked: vec![],
            next_s: 0,
        }
    }

    fn operations(&self) -> usize {
        lock(&self.disk.0).operations.len()
    }

    /// Each of these agents counts a stack and flushes; then all that is not acknowledged yet is
    /// sent, one flush of each agent in a group.
    fn flush(&mut self, agents: &[usize], stack: &str) {
        for index in agents {
            let agent = &mut self.agents[*index];
            let weight_ns = 1 << (self.next_s % 40);
            agent.worker.count(stack, State::Cpu, weight_ns);
            agent
                .worker
                .count(&format!("{stack};{}", self.next_s), State::Lock, 3);
            let task = agent
                .worker
                .task(self.next_s.unsigned_abs() + 1, "load", (5, None));
            let flush = agent.worker.flush(self.next_s, vec![task]);
            let content = [
                (stack.to_owned(), weight_ns),
                (format!("{stack};{}", self.next_s), 3),
            ];
            agent.unacked.push((flush, self.next_s));
            let key = (agent.id(), self.next_s);
            let operations = self.operations();
            self.sent.push((key, content.into(), operations));
            self.next_s += 1;
        }
        self.send();
    }

    fn send(&mut self) {
        self.collector.log().commit_waiting();
        let collector = &self.collector;
        let attached: Vec<bool> = self
            .agents
            .iter_mut()
            .map(|agent| agent.attach(collector))
            .collect();
        loop {
            let waiting: Vec<usize> = self
                .agents
                .iter()
                .zip(&attached)
                .enumerate()
                .filter(|(_, (agent, attached))| {
                    **attached && agent.attachment.is_some() && !agent.unacked.is_empty()
                })
                .map(|(index, _)| index)
                .collect();
            if waiting.is_empty() {
                return;
            }
            let answers = self.send_first(&waiting);
            let operations = self.operations();
            for (index, answer) in answers {
                let agent = &mut self.agents[index];
                match answer {
                    Ok(Kind::Ack(ack)) => {
                        let (flush, start_s) = agent.unacked.remove(0);
                        assert_eq!(ack.seq, flush.seq);
                        let key = (agent.id(), start_s);
                        self.acked.push((key, operations));
                    }
                    Err(StreamError::NotLogged(_)) => {
                        let ended = agent.attachment.take().unwrap();
                        self.collector
                            .ingest
                            .detach(&ended, DisconnectReason::Crashed, at(50));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Sends the first unacknowledged flush of each of these agents, and commits them as one group.
    fn send_first(&self, agents: &[usize]) -> Vec<(usize, Result<Kind, StreamError>)> {
        let mut context = Context::from_waker(Waker::noop());
        let mut answers = Vec::new();
        let mut pending = Vec::new();
        for index in agents {
            let agent = &self.agents[*index];
            let (flush, _) = &agent.unacked[0];
            let attachment = agent.attachment.as_ref().unwrap();
            let mut answer: Pin<Box<dyn Future<Output = _>>> = Box::pin(
                self.collector
                    .ingest
                    .receive_flush(attachment, flush, at(50)),
            );
            match answer.as_mut().poll(&mut context) {
                Poll::Ready(answer) => answers.push((*index, answer)),
                Poll::Pending => pending.push((*index, answer)),
            }
        }
        self.collector.log().commit_waiting();
        let done = pending
            .into_iter()
            .map(|(index, answer)| (index, at_once(answer)));
        answers.extend(done);
        answers
    }

    /// Opens what a crash after `count` operations may leave, and compares.
    fn check(&self, count: usize, crash: Crash, random: &mut dyn FnMut(usize) -> usize) {
        let operations = lock(&self.disk.0).operations[..count].to_vec();
        let image = crash_image(&Files::new(), &operations, crash, random);
        let disk = SimDisk::of(image.clone());
        let collector = open(&disk);
        let found = &collector.ingest.log.as_ref().unwrap().found;
        assert_eq!(found.damages, 0, "a crash alone is no damage: {found:?}");
        let held = self.check_held(&collector, count);
        // A second start finds the same, and so does one after another crash and more flushes.
        let mut again = Fleet::on(SimDisk::of(image.clone()), 0);
        again.agents.push(AgentSide::new(99));
        again.next_s = 48;
        again.flush(&[0], "late");
        let operations = lock(&again.disk.0).operations.clone();
        let last = open(&SimDisk::of(crash_image(
            &image,
            &operations,
            Crash::Forgets,
            random,
        )));
        let mut expected = held;
        let (key, content, _) = again.sent.remove(0);
        expected.insert(key, content);
        assert_eq!(self::held(&last), expected);
    }

    /// All that was acknowledged by then is held, and nothing that was not sent.
    fn check_held(&self, collector: &Collector, count: usize) -> Contents {
        let held = held(collector);
        let sent: Contents = self
            .sent
            .iter()
            .filter(|(_, _, operations)| *operations <= count)
            .map(|(key, content, _)| (key.clone(), content.clone()))
            .collect();
        for (key, content) in &held {
            assert_eq!(
                sent.get(key),
                Some(content),
                "{key:?} was not sent like this"
            );
        }
        for (key, operations) in &self.acked {
            assert!(
                *operations > count || held.contains_key(key),
                "{key:?} was acked, and is lost"
            );
        }
        for epoch in fleet(collector, &Default::default(), at(0)).epochs {
            let own: Vec<&Content> = held
                .iter()
                .filter(|((worker, _), _)| **worker == *epoch.worker.0)
                .map(|(_, content)| content)
                .collect();
            let stored_ns: u64 = own.iter().flat_map(|content| content.values()).sum();
            assert_eq!(epoch.stored_ns, stored_ns);
            assert_eq!(epoch.running, own.len(), "a task for each flush");
        }
        held
    }
}

/// Numbers below a limit, from a seed.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    }
}

/// A killed process may have written records that it did not sync. The next one replays them and tells
/// agents that they are stored, so a later crash of the machine must not lose them.
#[test]
fn a_start_syncs_the_records_that_it_replays() {
    let mut fleet = Fleet::new(1);
    fleet.flush(&[0], "load;main");
    let files = lock(&fleet.disk.0).files.clone();
    let last = files
        .keys()
        .rfind(|name| name.ends_with(".wal"))
        .unwrap()
        .clone();
    let disk = SimDisk::of(files);
    assert_eq!(held(&open(&disk)).len(), 1);
    assert_eq!(lock(&disk.0).operations[0], Operation::Sync(last));
}

#[derive(Clone, Debug)]
enum Step {
    Flush(Vec<usize>, &'static str),
    Fail(Fault),
    NewFile,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let agents = prop::sample::subsequence(vec![0, 1, 2], 1..=3);
    let stack = prop::sample::select(vec!["load;main", "load;main;parse", "[no task];idle", "x"]);
    let fault = prop::sample::select(vec![
        Fault::Full,
        Fault::Sync,
        Fault::Create,
        Fault::Truncate,
    ]);
    let step = prop_oneof![
        6 => (agents, stack).prop_map(|(agents, stack)| Step::Flush(agents, stack)),
        2 => fault.prop_map(Step::Fail),
        1 => Just(Step::NewFile),
    ];
    prop::collection::vec(step, 1..10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn acked_flushes_survive_any_crash_or_failure_exactly_once(steps in steps(), seed in any::<u64>()) {
        let mut fleet = Fleet::new(3);
        for step in steps {
            match step {
                Step::Flush(agents, stack) => fleet.flush(&agents, stack),
                Step::Fail(fault) => lock(&fleet.disk.0).faults.push(fault),
                // It may fail, because faults were injected.
                Step::NewFile => drop(fleet.collector.ingest.log.as_ref().unwrap().cut(|| ())),
            }
        }
        lock(&fleet.disk.0).faults.clear();
        // All is well again: everything arrives.
        (0..2).for_each(|_| fleet.send());
        prop_assert!(fleet.agents.iter().all(|agent| agent.unacked.is_empty()));
        prop_assert_eq!(held(&fleet.collector).len(), fleet.sent.len());
        let count = fleet.operations();
        fleet.check_held(&fleet.collector, count);

        let mut random = random(seed);
        for count in 0..=count {
            for crash in [Crash::Process, Crash::Forgets, Crash::Tears, Crash::Tears] {
                fleet.check(count, crash, &mut random);
            }
        }
    }

    /// Bytes of the files are overwritten, or a file is missing. The collector starts; everything
    /// it holds was sent, with its weight (perhaps under `[overflow]`), and every loss is reported.
    #[test]
    fn damage_is_reported_and_costs_only_what_it_touches(
        flushes in 1..8usize, seed in any::<u64>(), spots in 1..4usize, by in 1..=255u8,
    ) {
        let mut random = random(seed);
        let mut fleet = Fleet::new(2);
        (0..flushes).for_each(|index| fleet.flush(&[0, 1], ["load;main", "x"][index % 2]));
        let mut files = lock(&fleet.disk.0).files.clone();
        for _ in 0..spots {
            let file = random(files.len());
            let bytes = files.values_mut().nth(file).unwrap();
            let from = random(bytes.len());
            let until = (from + 1 + random(40)).min(bytes.len());
            bytes[from..until].iter_mut().for_each(|byte| *byte ^= by);
        }
        let disk = SimDisk::of(files);
        let collector = open(&disk);
        let found = collector.ingest.log.as_ref().unwrap().found.clone();
        let sum = |contents: &Contents| contents.values().flat_map(Content::values).sum::<u64>();
        let held = held(&collector);
        for (key, content) in &held {
            let (_, sent, _) = fleet.sent.iter().find(|(sent, _, _)| sent == key).unwrap();
            prop_assert_eq!(content.values().sum::<u64>(), sent.values().sum::<u64>());
            let known: BTreeSet<_> = content.keys().filter(|stack| !stack.contains("[overflow]")).collect();
            prop_assert!(known.iter().all(|stack| sent.get(*stack) == content.get(*stack)));
        }
        let sent: Contents = fleet.sent.iter().map(|(key, content, _)| (key.clone(), content.clone())).collect();
        if sum(&held) != sum(&sent) || held != sent {
            prop_assert!(found.damages > 0 || found.torn_bytes > 0, "{:?}", found);
        }
        let quarantined = lock(&disk.0).quarantined.clone();
        prop_assert_eq!(found.damages > 0, !quarantined.is_empty());
    }
}

/// A disk that is full: agents are turned away before they send, queries are answered, and when there is
/// room everything arrives.
#[test]
fn a_full_disk_blocks_ingest_until_there_is_space() {
    let mut fleet = Fleet::new(1);
    fleet.flush(&[0], "load;main");
    lock(&fleet.disk.0).free_bytes = (32 << 20) - 1;
    fleet.flush(&[0], "load;main");
    assert_eq!(
        (fleet.agents[0].unacked.len(), held(&fleet.collector).len()),
        (1, 1)
    );
    let refused = at_once(fleet.collector.ingest.attach(
        &state::testing::account(),
        TestWorker::new("x", 1).hello(),
        at(50),
    ));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the collector's disk is full (31 MiB free, 32 MiB needed): \
         ingest is blocked until there is space"
    );
    lock(&fleet.disk.0).free_bytes = 32 << 20;
    fleet.flush(&[0], "load;main");
    assert_eq!(
        (fleet.agents[0].unacked.len(), held(&fleet.collector).len()),
        (0, 3)
    );
}

/// The stream that waits for its ack is cut off: the flush is applied all the same, and the next stream
/// of the session waits until then.
#[test]
fn a_flush_of_a_closed_stream_is_applied_before_the_next_stream_attaches() {
    let fleet = &mut Fleet::new(1);
    let agent = &mut fleet.agents[0];
    assert!(agent.attach(&fleet.collector));
    agent.worker.count("load;main", State::Cpu, 5);
    let flush = agent.worker.flush(1, vec![]);
    assert!(agent.attach(&fleet.collector));
    let attachment = agent.attachment.clone().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut answer = Box::pin(
        fleet
            .collector
            .ingest
            .receive_flush(&attachment, &flush, at(50)),
    );
    assert!(answer.as_mut().poll(&mut context).is_pending());
    drop(answer);
    let account = state::testing::account();
    let mut next = Box::pin(
        fleet
            .collector
            .ingest
            .attach(&account, agent.worker.hello(), at(50)),
    );
    assert!(
        next.as_mut().poll(&mut context).is_pending(),
        "it waits for the flush"
    );
    fleet.collector.log().commit_waiting();
    assert_eq!(at_once(next).unwrap().welcome.acked_seq, 1);
    assert_eq!(held(&fleet.collector).len(), 1);
}

/// Flushes that were queued together are safe together, or none of them counts.
#[test]
fn flushes_queued_together_are_committed_or_fail_together() {
    for fails in [false, true] {
        let fleet = &mut Fleet::new(1);
        let agent = &mut fleet.agents[0];
        assert!(agent.attach(&fleet.collector));
        let mut waiting: VecDeque<ReceivedFlush> = (1..=3)
            .map(|weight_ns| {
                agent.worker.count("load;main", State::Cpu, weight_ns);
                ReceivedFlush {
                    flush: agent.worker.flush(1, vec![]),
                    at: at(50),
                    charge: None,
                    translation: None,
                }
            })
            .collect();
        assert!(agent.attach(&fleet.collector));
        let attachment = agent.attachment.clone().unwrap();
        fleet.collector.log().commit_waiting();
        if fails {
            lock(&fleet.disk.0).faults.push(Fault::Sync);
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut answers = Box::pin(
            fleet
                .collector
                .ingest
                .receive_flushes(&attachment, &mut waiting),
        );
        assert!(answers.as_mut().poll(&mut context).is_pending());
        fleet.collector.log().commit_waiting();
        let answers = at_once(answers).map(|answers| answers.len());
        let session = lock(&attachment.cell.state);
        let acked = session.acked_seq;
        let stored = session.stored_ns;
        if fails {
            assert_eq!((answers.is_err(), acked, stored), (true, 0, 0));
        } else {
            assert_eq!((answers, acked, stored), (Ok(3), 3, 1 + 2 + 3));
        }
    }
}

/// A cut of the log is exact: what was applied before is in older files, what comes after in newer.
#[test]
fn files_before_a_cut_can_be_removed() {
    let mut fleet = Fleet::new(1);
    fleet.collector.log().limit_files(u64::MAX);
    fleet.flush(&[0], "load;main");
    let log = fleet.collector.ingest.log.as_ref().unwrap();
    let (number, before) = log.cut(|| held(&fleet.collector)).unwrap();
    assert_eq!(before.len(), 1);
    fleet.flush(&[0], "x");
    fleet
        .collector
        .ingest
        .log
        .as_ref()
        .unwrap()
        .remove_before(number)
        .unwrap();
    let files = lock(&fleet.disk.0).files.clone();
    assert_eq!(
        files.keys().filter(|name| name.ends_with(".wal")).count(),
        1
    );
    let collector = open(&SimDisk::of(files));
    let starts: Vec<i64> = held(&collector)
        .keys()
        .map(|(_, start_s)| *start_s)
        .collect();
    assert_eq!(starts, [1]);
    // The tables that hold the rest are not here, so it is missed.
    let lost = collector.state.tables.manifest().lost_log.clone();
    assert!(
        lost.len() == 1 && lost[0].reason.contains("the log is missing from here"),
        "{lost:?}"
    );
}
