use std::collections::{BTreeMap, VecDeque};

use profiler_core::{Delta, NodeId, State};
use proptest::prelude::*;

use super::super::Limits;
use super::*;
use crate::batch::Batch;

fn urls(list: &str, worker: &str) -> Vec<String> {
    let parsed = parse_list(list, worker).unwrap();
    parsed
        .into_iter()
        .map(|destination| destination.url)
        .collect()
}

#[test]
fn a_fleet_spreads_over_its_collectors_and_spreads_again_without_one() {
    let list = "http://a:4747,http://b:4747, http://c:4747";
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut second: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..3_000 {
        let order = urls(list, &format!("worker-{number}"));
        assert_eq!(order.len(), 3);
        *first.entry(order[0].clone()).or_default() += 1;
        if order[0].contains("//a:") {
            *second.entry(order[1].clone()).or_default() += 1;
        }
        // The order of the list does not matter.
        let other_list = "http://c:4747 http://a:4747 http://b:4747 http://a:4747";
        assert_eq!(urls(other_list, &format!("worker-{number}")), order);
    }
    assert_eq!((first.len(), second.len()), (3, 2));
    assert!(
        first.values().all(|workers| (800..1_200).contains(workers)),
        "{first:?}"
    );
    assert!(
        second.values().all(|workers| (400..600).contains(workers)),
        "{second:?}"
    );
}

#[test]
fn a_wrong_list_names_the_url_that_is_wrong() {
    let error = |list: &str| parse_list(list, "w").unwrap_err().to_string();
    assert!(error("http://a:4747,ftp://b").contains("\"ftp://b\""));
    assert!(error(" , ").contains("it is empty"));
    let many = (0..17)
        .map(|number| format!("http://h{number}:1"))
        .collect::<Vec<_>>()
        .join(",");
    assert!(error(&many).contains("it has 17 collectors; at most 16 are allowed"));
}

/// State of one stay at one collector.
#[derive(Clone, Copy, Default)]
struct StoredStay {
    acked_seq: u64,
    stored_ns: u64,
}

/// A flush on its way.
struct Sent {
    seq: u64,
    weight_ns: u64,
}

/// An agent, its collectors, and one stream between them.
struct World {
    outbox: Outbox,
    ended: EndedStays,
    at: usize,
    /// Number of the present stay.
    stay: u8,
    is_welcomed: bool,
    wire: VecDeque<Sent>,
    /// By collector and stay.
    stored: BTreeMap<(usize, u8), StoredStay>,
    pushed_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    Send,
    /// The collector stores what it received first, and its answer arrives.
    Store,
    /// It stores that, and the answer is lost with the stream.
    StoreUnheard,
    /// The stream breaks.
    Break,
    /// The collector is gone; the agent goes to the next one.
    Move,
    /// The agent reaches a collector again and settles what it left there.
    Settle(usize),
}

const COLLECTORS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..1_000u64).prop_map(Step::Push),
        4 => Just(Step::Send),
        3 => Just(Step::Store),
        1 => Just(Step::StoreUnheard),
        1 => Just(Step::Break),
        2 => Just(Step::Move),
        1 => (0..COLLECTORS).prop_map(Step::Settle),
    ];
    prop::collection::vec(step, 0..120)
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Push(weight_ns) => {
                let delta = Delta::from_iter([(NodeId(1), State::Cpu, weight_ns)]);
                self.pushed_ns += weight_ns;
                self.outbox.push(Batch {
                    delta,
                    ..Batch::default()
                });
            }
            Step::Send => {
                self.welcome();
                if let Some((seq, batch)) = self.outbox.next() {
                    self.wire.push_back(Sent {
                        seq,
                        weight_ns: batch.weight_ns(),
                    });
                }
            }
            Step::Store => {
                if let Some(seq) = self.store() {
                    self.outbox.ack(seq).unwrap();
                }
            }
            Step::StoreUnheard => {
                self.store();
                self.break_stream();
            }
            Step::Break => self.break_stream(),
            Step::Move => self.move_to_next(),
            Step::Settle(at) => self.settle(at),
        }
        let mut account = self.ended.account();
        account += self.outbox.current_account();
        assert_eq!(account.accepted_ns, self.pushed_ns);
        assert_eq!(account.acked_ns + account.unacked_ns, self.pushed_ns);
    }

    /// Starts a stream unless there is one.
    fn welcome(&mut self) {
        if !self.is_welcomed {
            let stored = *self.stored.entry((self.at, self.stay)).or_default();
            self.outbox
                .welcome(stored.acked_seq, stored.stored_ns)
                .unwrap();
            self.is_welcomed = true;
        }
    }

    fn store(&mut self) -> Option<u64> {
        let Sent { seq, weight_ns } = self.wire.pop_front()?;
        let stored = self.stored.entry((self.at, self.stay)).or_default();
        assert_eq!(seq, stored.acked_seq + 1, "the next flush of its stay");
        stored.acked_seq = seq;
        stored.stored_ns += weight_ns;
        Some(seq)
    }

    fn break_stream(&mut self) {
        self.wire.clear();
        self.is_welcomed = false;
    }

    fn move_to_next(&mut self) {
        self.break_stream();
        let unsent = self.outbox.move_unsent();
        let outbox = Mutex::new(std::mem::replace(&mut self.outbox, unsent));
        // The key has the number of the stay.
        let key = SessionKey::new([self.stay; SessionKey::BYTES]);
        self.ended.add_unsettled(
            UnsettledStay {
                at: self.at,
                key,
                outbox,
            },
            usize::MAX,
        );
        self.at = (self.at + 1) % COLLECTORS;
        self.stay += 1;
    }

    fn settle(&mut self, at: usize) {
        for stay in self
            .ended
            .unsettled()
            .to_vec()
            .iter()
            .filter(|stay| stay.at == at)
        {
            let number = stay.key.as_bytes()[0];
            let stored = self.stored.entry((at, number)).or_default();
            let mut outbox = lock(&stay.outbox);
            outbox.welcome(stored.acked_seq, stored.stored_ns).unwrap();
            while let Some((seq, batch)) = outbox.next() {
                assert_eq!(seq, stored.acked_seq + 1);
                stored.acked_seq = seq;
                stored.stored_ns += batch.weight_ns();
                outbox.ack(seq).unwrap();
            }
            drop(outbox);
            self.ended.settle(stay);
        }
    }
}

proptest! {
    #[test]
    fn whatever_moves_and_breaks_each_flush_is_stored_once(steps in steps()) {
        let mut world = World {
            outbox: Outbox::new(Limits::default()),
            ended: EndedStays::default(),
            at: 0,
            stay: 0,
            is_welcomed: false,
            wire: VecDeque::new(),
            stored: BTreeMap::new(),
            pushed_ns: 0,
        };
        // Up to the number of stays that are kept.
        let mut moves = 0;
        for step in steps {
            moves += usize::from(matches!(step, Step::Move));
            if moves > UNSETTLED_MAX {
                break;
            }
            world.take(step);
        }
        world.break_stream();
        (0..COLLECTORS).for_each(|at| world.settle(at));
        while { world.take(Step::Send); !world.wire.is_empty() } {
            world.take(Step::Store);
        }
        let stored_ns: u64 = world.stored.values().map(|stored| stored.stored_ns).sum();
        prop_assert_eq!(stored_ns, world.pushed_ns);
        let mut account = world.ended.account();
        account += world.outbox.current_account();
        prop_assert_eq!((account.acked_ns, account.unacked_ns), (stored_ns, 0));
    }
}

#[test]
fn the_oldest_stay_is_given_up_and_its_flushes_count_as_unacknowledged() {
    let mut ended = EndedStays::default();
    for number in 0..=UNSETTLED_MAX {
        let mut outbox = Outbox::new(Limits::default());
        let delta = Delta::from_iter([(NodeId(1), State::Cpu, 10)]);
        outbox.push(Batch {
            delta,
            ..Batch::default()
        });
        outbox.next().unwrap();
        let key = SessionKey::new([0; SessionKey::BYTES]);
        ended.add_unsettled(
            UnsettledStay {
                at: number,
                key,
                outbox: Mutex::new(outbox),
            },
            1 << 20,
        );
    }
    let kept: Vec<usize> = ended.unsettled().iter().map(|stay| stay.at).collect();
    assert_eq!(kept, (1..=UNSETTLED_MAX).collect::<Vec<_>>());
    let account = ended.account();
    assert_eq!((account.accepted_ns, account.unacked_ns), (90, 90));
    ended.settle(&ended.unsettled()[0].clone());
    assert_eq!(ended.unsettled().len(), UNSETTLED_MAX - 1);
    assert_eq!(ended.account().accepted_ns, 90);
}
