//! Laws of the accounts, whatever is lost on the way.

use super::*;

/// Data that a collector keeps of one epoch.
#[derive(Clone, Default)]
struct Memory {
    mark: u64,
    stored_ns: u64,
    nodes: BTreeMap<NodeId, u64>,
    ticks: Ticks,
    tasks: BTreeMap<TaskId, TaskRecord>,
}

/// On the way to the collector.
struct Sent {
    seq: u64,
    batch: Arc<Batch>,
    account: v1::LossAccount,
    /// Rejections on this stream that the agent knows.
    refused_known_ns: u64,
}

enum Answer {
    Ack(u64),
    Refusal(u64, u64),
}

/// An agent's outbox, a collector, and what is on the way between them.
struct World {
    outbox: Outbox,
    memory: Memory,
    backup: Memory,
    wire: VecDeque<Sent>,
    answers: VecDeque<Answer>,
    /// Rejections of the collector on this stream, and the part of them that the agent knows.
    refused_ns: u64,
    refused_known_ns: u64,
    contents: BTreeMap<u64, Arc<Batch>>,
    pushed_ns: u64,
    pushed: Memory,
    seconds: i64,
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        pairs: Vec<(u32, u64)>,
        tasks: Vec<(u64, bool)>,
        lost_queue_ns: u64,
    },
    Send,
    Apply,
    Refuse,
    Answer,
    /// The stream breaks; messages in transit, both ways, are lost.
    Reconnect,
    /// The collector restarts without memory.
    Forget,
    /// The collector restarts with the state of the last `Backup`.
    Restore,
    Backup,
}

fn steps(with_losses: bool) -> impl Strategy<Value = Vec<Step>> {
    let push = (
        prop::collection::vec((1..40u32, 1..100_000u64), 0..12),
        prop::collection::vec((1..30u64, any::<bool>()), 0..4),
        prop_oneof![4 => Just(0), 1 => 1..1_000u64],
    )
        .prop_map(|(pairs, tasks, lost)| Step::Push {
            pairs,
            tasks,
            lost_queue_ns: lost,
        });
    let losses = u32::from(with_losses);
    let step = prop_oneof![
        6 => push,
        8 => Just(Step::Send),
        8 => Just(Step::Apply),
        losses * 2 => Just(Step::Refuse),
        8 => Just(Step::Answer),
        2 => Just(Step::Reconnect),
        losses => Just(Step::Forget),
        losses => Just(Step::Restore),
        losses => Just(Step::Backup),
    ];
    prop::collection::vec(step, 0..120)
}

impl World {
    fn new(limits: Limits) -> Self {
        World {
            outbox: Outbox::new(limits),
            memory: Memory::default(),
            backup: Memory::default(),
            wire: VecDeque::new(),
            answers: VecDeque::new(),
            refused_ns: 0,
            refused_known_ns: 0,
            contents: BTreeMap::new(),
            pushed_ns: 0,
            pushed: Memory::default(),
            seconds: 0,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Push {
                pairs,
                tasks,
                lost_queue_ns,
            } => self.push(&pairs, &tasks, lost_queue_ns),
            Step::Send => self.send(),
            Step::Apply => self.apply(),
            Step::Refuse => self.refuse(),
            Step::Answer => match self.answers.pop_front() {
                Some(Answer::Ack(seq)) => self.outbox.ack(seq).unwrap(),
                Some(Answer::Refusal(seq, weight_ns)) => {
                    self.outbox.refuse(seq).unwrap();
                    self.refused_known_ns += weight_ns;
                }
                None => {}
            },
            Step::Reconnect => self.reconnect(),
            Step::Forget => {
                self.memory = Memory::default();
                self.reconnect();
            }
            Step::Restore => {
                self.memory = self.backup.clone();
                self.reconnect();
            }
            Step::Backup => self.backup = self.memory.clone(),
        }
        self.check_limits();
    }

    fn push(&mut self, pairs: &[(u32, u64)], tasks: &[(u64, bool)], lost_queue_ns: u64) {
        let tasks: BTreeMap<_, _> = tasks.iter().copied().collect();
        // A task that ended does not run again.
        let over = |id: &u64| {
            self.pushed
                .tasks
                .get(&TaskId(*id))
                .is_some_and(|t| t.stop.is_some())
        };
        let live = tasks.into_iter().filter(|(id, _)| !over(id));
        let tasks: Vec<_> = live
            .map(|(id, ends)| task(id, ends.then_some(self.seconds)))
            .collect();
        let cycle = Batch {
            lost_queue_ns,
            ..cycle(self.seconds, pairs, tasks)
        };
        self.seconds += 1;
        self.pushed_ns += cycle.delta.total().total_ns() + lost_queue_ns;
        self.pushed.add(&cycle);
        self.outbox.push(cycle);
    }

    fn send(&mut self) {
        let could = self.outbox.has_next();
        let next = self.outbox.next();
        assert_eq!(could, next.is_some());
        let Some((seq, batch)) = next else { return };
        let content = self.contents.entry(seq).or_insert_with(|| batch.clone());
        assert_eq!(*content, batch, "flush {seq} changed after it was sent");
        let account = self.outbox.account(seq).unwrap();
        let through = self.contents.range(..=seq).map(|(_, batch)| batch);
        let queue_ns: u64 = through.clone().map(|batch| batch.lost_queue_ns).sum();
        let weight_ns: u64 = through.map(|batch| batch.weight_ns()).sum();
        assert_eq!(account.lost_queue_ns, queue_ns);
        assert_eq!(
            account.accepted_ns,
            weight_ns + queue_ns,
            "flush {seq}, each time it is sent"
        );
        let refused_known_ns = self.refused_known_ns;
        self.wire.push_back(Sent {
            seq,
            batch,
            account,
            refused_known_ns,
        });
    }

    fn apply(&mut self) {
        let Some(Sent {
            seq,
            batch,
            account,
            refused_known_ns,
        }) = self.wire.pop_front()
        else {
            return;
        };
        self.answers.push_back(Answer::Ack(seq));
        if seq <= self.memory.mark {
            return;
        }
        self.memory.mark = seq;
        self.memory.add(&batch);
        let lost = account.lost_rejected_ns + account.lost_by_collector_ns + account.lost_queue_ns;
        // Time that this collector refused on this stream before the agent could know.
        let unknown_ns = self.refused_ns - refused_known_ns;
        assert_eq!(
            account.accepted_ns,
            self.memory.stored_ns + lost + unknown_ns,
            "flush {seq}"
        );
    }

    fn refuse(&mut self) {
        if self
            .wire
            .front()
            .is_none_or(|sent| sent.seq <= self.memory.mark)
        {
            return;
        }
        let Some(Sent { seq, batch, .. }) = self.wire.pop_front() else {
            return;
        };
        self.refused_ns += batch.weight_ns();
        self.answers
            .push_back(Answer::Refusal(seq, batch.weight_ns()));
    }

    fn reconnect(&mut self) {
        self.wire.clear();
        self.answers.clear();
        (self.refused_ns, self.refused_known_ns) = (0, 0);
        self.outbox
            .welcome(self.memory.mark, self.memory.stored_ns)
            .unwrap();
    }

    fn check_limits(&self) {
        let Outbox {
            limits,
            waiting,
            in_flight,
            ..
        } = &self.outbox;
        assert!(in_flight.len() <= limits.in_flight_max && waiting.len() <= limits.waiting_max);
        let bytes = |batches: &mut dyn Iterator<Item = &Batch>| batches.map(Batch::bytes).sum();
        assert_eq!(self.outbox.waiting_bytes, bytes(&mut waiting.iter()));
        let in_flight_bytes: usize = bytes(&mut in_flight.iter().map(|flush| &*flush.batch));
        assert_eq!(self.outbox.in_flight_bytes, in_flight_bytes);
        let merged = waiting.len() <= 1 && waiting.iter().all(|batch| batch.tasks.is_empty());
        assert!(self.outbox.bytes() <= limits.outbox_bytes_max || merged);
        let current_account = self.outbox.current_account();
        let parts = [
            current_account.acked_ns,
            current_account.unacked_ns,
            current_account.lost_rejected_ns,
            current_account.lost_by_collector_ns,
            current_account.lost_queue_ns,
        ];
        assert_eq!(current_account.accepted_ns, parts.iter().sum::<u64>());
        assert_eq!(current_account.accepted_ns, self.pushed_ns);
    }

    /// Delivers and answers all messages.
    fn remove_answered(&mut self) {
        while !(self.outbox.is_empty() && self.wire.is_empty()) {
            [Step::Send, Step::Apply, Step::Answer]
                .into_iter()
                .for_each(|step| self.take(step));
        }
    }
}

impl Memory {
    fn add(&mut self, batch: &Batch) {
        for (node, _, nanoseconds) in batch.delta.entries() {
            *self.nodes.entry(*node).or_default() += nanoseconds;
            self.stored_ns += nanoseconds;
        }
        self.ticks += batch.span.map_or(Ticks::default(), |span| span.ticks);
        self.tasks
            .extend(batch.tasks.iter().map(|task| (task.id, task.clone())));
    }
}

/// Small enough that merging, splitting and a full window all happen.
fn small_limits() -> impl Strategy<Value = Limits> {
    (
        1_000..6_000usize,
        1..6usize,
        1..5usize,
        1_000..100_000usize,
        0..700usize,
    )
        .prop_map(
            |(outbox_bytes_max, waiting_max, in_flight_max, running_bytes_max, flush_bytes_max)| {
                Limits {
                    outbox_bytes_max,
                    waiting_max,
                    in_flight_max,
                    running_bytes_max,
                    flush_bytes_max,
                }
            },
        )
}

proptest! {
    #[test]
    fn accounts_add_up_whatever_happens(steps in steps(true), limits in small_limits()) {
        // `take` and `remove_answered` check after every step.
        let mut world = World::new(limits);
        steps.into_iter().for_each(|step| world.take(step));
        world.remove_answered();
        let current_account = world.outbox.current_account();
        prop_assert_eq!(current_account.unacked_ns, 0);
        prop_assert_eq!(current_account.acked_ns, world.memory.stored_ns);
    }

    #[test]
    fn a_collector_that_loses_nothing_ends_with_all(steps in steps(false), limits in small_limits()) {
        let mut world = World::new(limits);
        steps.into_iter().for_each(|step| world.take(step));
        world.remove_answered();
        prop_assert_eq!(&world.memory.nodes, &world.pushed.nodes);
        prop_assert_eq!(world.memory.ticks, world.pushed.ticks);
        let lost = world.outbox.current_account().lost_tasks;
        if lost == 0 {
            prop_assert_eq!(&world.memory.tasks, &world.pushed.tasks);
        }
    }

    // Rows of running tasks come back after a loss of all memory, and no row is ever out of date.
    // (An older memory may hold a task as running whose end was acked; nobody can know.)
    #[test]
    fn what_still_runs_is_known_after_a_loss_of_memory(steps in steps(true)) {
        let mut world = World::new(Limits::default());
        let kept = steps.into_iter().filter(|step| !matches!(step, Step::Refuse | Step::Restore));
        kept.for_each(|step| world.take(step));
        world.remove_answered();
        for (id, task) in &world.pushed.tasks {
            let held = world.memory.tasks.get(id);
            prop_assert!(held == Some(task) || (held.is_none() && task.stop.is_some()), "{:?}", held);
        }
    }
}
