//! The loop of the thread, with a collector that is played here.

use std::cell::Cell;

use profiler_core::wire::v1::{Ack, Receipt, Welcome, agent_message, collector_message};

use super::*;

/// An agent, its time in milliseconds, and what its collectors know.
struct Played {
    agent: SimulatedAgent,
    now_ms: Rc<Cell<u64>>,
    connects: u64,
    /// How often the agent has sent its settings.
    reports: u64,
    /// The collector that refuses connections.
    absent: Option<usize>,
    /// Flushes that arrived.
    flushes: u64,
    /// Whether the collector answers flushes only once the agent says Goodbye.
    answers_late: bool,
    goodbyes: u64,
    attempts: Vec<Attempt>,
    /// The last one over which the agent said Hello.
    last: Option<Attempt>,
}

/// An attempt to connect.
#[derive(Clone, Copy)]
struct Attempt {
    collector: usize,
    socket: u64,
}

impl Played {
    fn start(collectors: usize) -> Played {
        let now_ms = Rc::new(Cell::new(0));
        let worker = SimulatedWorker {
            worker: "worker".to_owned(),
            labels: Vec::new(),
            hosts: (0..collectors).map(|index| format!("c{index}")).collect(),
            key: [7; SessionKey::BYTES],
            waiting_max: 100,
            outbox_bytes_max: 1 << 20,
            flush_bytes_max: 1 << 20,
        };
        let elapsed = now_ms.clone();
        let agent = SimulatedAgent::new(
            worker,
            || Timestamp::from_unix_ns(1),
            move || Duration::from_millis(elapsed.get()),
        );
        Played {
            agent,
            now_ms,
            connects: 0,
            reports: 0,
            absent: None,
            flushes: 0,
            answers_late: false,
            goodbyes: 0,
            attempts: Vec::new(),
            last: None,
        }
    }

    /// Runs the agent for a while, with collectors that answer at once.
    fn run(&mut self, length_ms: u64) {
        let end_ms = self.now_ms.get() + length_ms;
        loop {
            for action in self.agent.step() {
                self.answer(action);
            }
            let next = self
                .agent
                .next_step_after()
                .map_or(end_ms, |after| after.as_millis() as u64);
            if self.now_ms.get() >= end_ms {
                return;
            }
            // Each answer of the collector is there at the next step.
            self.now_ms
                .set((self.now_ms.get() + 1).max(next.min(self.now_ms.get() + 50)));
        }
    }

    /// The best collector is gone for a while, so that the agent moves. Returns it.
    fn leave_best(&mut self, absent_ms: u64) -> usize {
        self.run(1_000);
        let Attempt {
            collector: best,
            socket,
        } = self.last.unwrap();
        self.absent = Some(best);
        self.agent.end_call(socket, SocketEnd::Failed);
        self.run(absent_ms);
        assert_ne!(self.last.unwrap().collector, best);
        self.absent = None;
        best
    }

    fn answer(&mut self, action: Action) {
        match action {
            Action::Connect { socket, collector } => {
                self.connects += 1;
                self.attempts.push(Attempt { collector, socket });
                self.agent
                    .note_connected(socket, self.absent != Some(collector));
            }
            Action::Ping { socket } => self.agent.note_pong(socket),
            Action::Send { socket, outgoing } => match outgoing.message.kind {
                Some(agent_message::Kind::Hello(_)) => {
                    self.last = self
                        .attempts
                        .iter()
                        .find(|attempt| attempt.socket == socket)
                        .copied();
                    let receipt = Some(Receipt::default());
                    let welcome = Welcome {
                        receipt,
                        ..Welcome::default()
                    };
                    let kind = Some(collector_message::Kind::Welcome(welcome));
                    self.agent.deliver(socket, v1::CollectorMessage { kind });
                }
                Some(agent_message::Kind::Flush(_)) => self.flushes += 1,
                Some(agent_message::Kind::Goodbye(_)) => {
                    self.goodbyes += 1;
                    for seq in 1..=if self.answers_late { self.flushes } else { 0 } {
                        let kind = collector_message::Kind::Ack(Ack { seq, receipt: None });
                        self.agent
                            .deliver(socket, v1::CollectorMessage { kind: Some(kind) });
                    }
                    self.agent.end_call(socket, SocketEnd::Finished);
                }
                Some(agent_message::Kind::Applied(_)) => self.reports += 1,
                _ => {}
            },
            Action::Close { .. } => {}
        }
    }
}

/// The answer to a ping is no message. It was treated as silence, which ended the stream of an
/// agent without samples every 20 s; and pings delayed the repeated settings, without which a
/// collector ends the stream after 60 s.
#[test]
fn an_idle_stream_whose_pings_are_answered_stays_open_and_repeats_the_settings() {
    let mut played = Played::start(1);
    played.run(300_000);
    assert_eq!(played.connects, 1);
    assert!(played.reports >= 10, "{}", played.reports);
}

/// The time until the next look was counted from the start of each stream, so an agent whose streams are cut
/// more often never returned.
#[test]
fn an_agent_whose_streams_are_short_returns_to_a_better_collector() {
    let mut played = Played::start(2);
    let best = played.leave_best(20_000);
    for _ in 0..4 {
        played
            .agent
            .end_call(played.last.unwrap().socket, SocketEnd::Failed);
        played.run(10_000);
    }
    assert_eq!(played.last.unwrap().collector, best);
}

/// Once the time of the next look had passed, the thread did nothing but look at the clock until the answers came.
#[test]
fn an_agent_that_waits_for_answers_before_it_moves_sleeps() {
    let mut played = Played::start(2);
    let best = played.leave_best(10_000);
    let range = TimeRange::new(Timestamp::from_unix_ns(1), Timestamp::from_unix_ns(2)).unwrap();
    let stacks = [(vec![Frame::task("work")], 1)];
    // The collectors of this test answer no flush.
    played.agent.push(SimulatedCycle {
        range,
        stacks: &stacks,
        tasks: Vec::new(),
        telemetry: Telemetry::default(),
        is_by_thread: false,
    });
    played.run(60_000);
    assert_ne!(played.last.unwrap().collector, best);
}

/// The collector would take the end of the process for a crash.
#[test]
fn an_agent_whose_answers_are_late_says_goodbye_in_time_and_counts_those_that_still_come() {
    for answers_late in [false, true] {
        let mut played = Played::start(1);
        played.answers_late = answers_late;
        played.run(1_000);
        let range = TimeRange::new(Timestamp::from_unix_ns(1), Timestamp::from_unix_ns(2)).unwrap();
        played.agent.push(SimulatedCycle {
            range,
            stacks: &[(vec![Frame::task("work")], 5)],
            tasks: Vec::new(),
            telemetry: Telemetry::default(),
            is_by_thread: false,
        });
        played.agent.finish(Duration::from_secs(3));
        played.run(2_700);
        assert_eq!((played.flushes, played.goodbyes), (1, 0));
        played.run(300);
        assert_eq!((played.flushes, played.goodbyes), (1, 1));
        assert!(played.agent.has_ended());
        let report = played.agent.report();
        let unacked_ns = if answers_late { 0 } else { 5 };
        assert_eq!(
            (report.stored_ns, report.unacked_ns),
            (5 - unacked_ns, unacked_ns)
        );
    }
}
