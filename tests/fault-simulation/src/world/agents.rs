//! Agents and their connections.

use collector::simulation::Answer;
use profiler_core::wire::v1::{self, AgentMessage, agent_message};

use super::{BURST_MAX, Event, KEEPALIVE_NS, SILENCE_NS, WELCOME_NS, World};
use crate::faults::Fault;
use crate::network::{Connection, Direction, between};
use crate::scenario::{SECOND, draw_delay};
use crate::worker::Life;

impl World {
    pub(super) fn start_life(&mut self, worker: usize) {
        let life = Life::new(worker, &self.scenario, &self.now_ns, &mut self.random);
        self.summary.lives += 1;
        if life.is_clock_off() {
            self.count(Fault::AgentClockOff);
        }
        self.lives.push(life);
        let life = self.lives.len() - 1;
        let first_ns = between(&mut self.random, 0, SECOND);
        self.schedule(first_ns, Event::Cycle { life });
        self.schedule(0, Event::Connect { life, attempt: 0 });
    }

    pub(super) fn cycle(&mut self, life: usize) {
        if self.lives[life].agent.is_none() || !self.is_sampling {
            return;
        }
        self.lives[life].sample(&mut self.random);
        self.summary.cycles += 1;
        let late_ns = between(&mut self.random, 0, SECOND / 100);
        self.schedule(SECOND + late_ns, Event::Cycle { life });
        self.pump(life);
    }

    pub(super) fn connect(&mut self, life: usize, attempt: u64) {
        let now = self.now();
        let partition_ends = self.partitions[self.lives[life].worker];
        let state = &mut self.lives[life];
        if state.attempts != attempt || state.agent.is_none() {
            return;
        }
        if self.collector.is_none() || partition_ends > now {
            self.count(Fault::Unreachable);
            let failed_after = if self.collector.is_none() { SECOND / 1_000 } else { WELCOME_NS };
            return self.reconnect(life, failed_after);
        }
        let Some(agent) = &mut state.agent else { return };
        let hello = agent.connect();
        self.numbers += 1;
        let connection = self.numbers;
        state.connection = Some(connection);
        self.summary.connects += 1;
        self.connections.insert(connection, Connection::new(life, now));
        self.send_up(connection, hello, None);
        self.schedule(WELCOME_NS, Event::NoWelcome { connection });
        self.schedule(KEEPALIVE_NS, Event::Keepalive { connection });
        self.schedule(SILENCE_NS, Event::Silence { connection });
    }

    pub(super) fn reconnect(&mut self, life: usize, after_ns: i64) {
        let state = &mut self.lives[life];
        let Some(agent) = &mut state.agent else { return };
        state.attempts += 1;
        let attempt = state.attempts;
        let delay = i64::try_from(agent.next_delay().as_nanos()).expect("it is short");
        self.schedule(after_ns + delay, Event::Connect { life, attempt });
    }

    /// Sends what the agent has to send.
    pub(super) fn pump(&mut self, life: usize) {
        let Some(connection) = self.lives[life].connection else { return };
        for _ in 0..BURST_MAX {
            let Some(outgoing) = self.lives[life].next_message() else { return };
            self.summary.flushes += u64::from(outgoing.flush.is_some());
            let seq = outgoing.flush.map(|flush| flush.seq);
            self.send_up(connection, outgoing.message, seq);
        }
    }

    /// Sends a message, which has the flush of that number if any.
    pub(super) fn send_up(&mut self, connection: u64, message: AgentMessage, seq: Option<u64>) {
        if let Some(at_ns) = self.arrival(connection, Direction::Up) {
            let message = Box::new(message);
            self.schedule_at(at_ns, Event::ToCollector { connection, message, seq });
        }
    }

    /// When a message that is sent now arrives. Tells the ends of a connection that breaks.
    pub(super) fn arrival(&mut self, connection: u64, direction: Direction) -> Option<i64> {
        let now = self.now();
        let link = self.connections.get_mut(&connection)?;
        let was_broken = link.is_broken;
        let partition_ends = self.partitions[self.lives[link.life].worker];
        let random = &mut self.random;
        let faults = &mut self.summary.faults;
        let at_ns = link.send(direction, now, partition_ends, &self.scenario, random, faults);
        if link.is_broken && !was_broken {
            let last_up = link.last_up();
            if self.random.chance(0.5) {
                self.schedule(SECOND / 50, Event::Reset { connection });
            }
            if self.random.chance(0.5) {
                self.schedule_at(last_up.max(now) + SECOND / 50, Event::HangUp { connection });
            }
        }
        at_ns
    }

    pub(super) fn deliver_up(
        &mut self,
        connection: u64,
        message: Box<AgentMessage>,
        seq: Option<u64>,
    ) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else { return };
        if link.hold_until > now {
            let at_ns = link.hold_until;
            return self.schedule_at(at_ns, Event::ToCollector { connection, message, seq });
        }
        if !link.delivers_up(now) {
            return;
        }
        link.collector_heard_at = now;
        if let Some(collector) = &mut self.collector {
            let faults = self.lives[link.life].note_heard(connection, seq);
            faults.into_iter().for_each(|fault| self.summary.faults.count(fault));
            collector.receive(connection, *message);
        }
    }

    pub(super) fn deliver_down(&mut self, connection: u64, answer: Answer) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else { return };
        if link.is_cut || !link.is_open {
            return;
        }
        link.agent_heard_at = now;
        let life = link.life;
        let Answer::Message(message) = answer else { return self.close(connection) };
        let state = &mut self.lives[life];
        let Some(agent) = &mut state.agent else { return };
        let kind = message.kind.clone();
        if let Err(error) = agent.receive(message) {
            self.note(format!("the agent ends {connection}: {error}"));
            return self.close(connection);
        }
        kind.iter().for_each(|kind| state.note_arrived(kind));
        self.pump(life);
    }

    /// The agent gives a connection up and makes another.
    pub(super) fn close(&mut self, connection: u64) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else { return };
        if !link.is_open {
            return;
        }
        let was_broken = link.is_broken;
        link.close(now, &self.scenario, &mut self.random);
        let life = link.life;
        let last_up = link.last_up();
        let partition_ends = self.partitions[self.lives[life].worker];
        let state = &mut self.lives[life];
        if state.connection == Some(connection) {
            state.connection = None;
            if let Some(agent) = &mut state.agent {
                agent.disconnect();
            }
        }
        if !was_broken && partition_ends <= now && self.random.chance(0.7) {
            self.schedule_at(last_up.max(now) + SECOND / 50, Event::HangUp { connection });
        }
        self.reconnect(life, 0);
    }

    pub(super) fn keep_alive(&mut self, connection: u64) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else { return };
        if !link.is_open {
            return;
        }
        let partition_ends = self.partitions[self.lives[link.life].worker];
        if !link.is_broken && partition_ends <= now && self.collector.is_some() {
            link.agent_heard_at = now;
        }
        if link.agent_heard_at + 2 * KEEPALIVE_NS <= now {
            self.count(Fault::SilentCollector);
            return self.close(connection);
        }
        self.schedule(KEEPALIVE_NS, Event::Keepalive { connection });
    }

    pub(super) fn check_silence(&mut self, connection: u64) {
        let Some(link) = self.connections.get(&connection) else { return };
        let silent_at = link.collector_heard_at + SILENCE_NS;
        if silent_at > self.now() {
            return self.schedule_at(silent_at, Event::Silence { connection });
        }
        if let Some(collector) = &mut self.collector
            && collector.time_out(connection)
        {
            self.summary.faults.count(Fault::SilentAgent);
        }
        // Nobody uses it any more.
        if !link.is_open {
            self.connections.remove(&connection);
        }
    }

    /// A partition, or the end of an agent.
    pub(super) fn unrest(&mut self) {
        if self.has_healed {
            return;
        }
        let worker = self.random.below(self.scenario.workers);
        if self.random.chance(0.7) {
            let length = between(&mut self.random, SECOND, self.scenario.partition_max_ns);
            self.count(Fault::Partition);
            if length >= 3_600 * SECOND {
                self.count(Fault::PartitionOfHours);
            }
            self.partitions[worker] = self.now() + length;
            self.note(format!("worker {worker} is cut off for {} s", length / SECOND));
        } else {
            self.restart_agent(worker);
        }
        self.schedule_unrest();
    }

    pub(super) fn restart_agent(&mut self, worker: usize) {
        let current = self.lives.iter().rposition(|life| life.worker == worker);
        let Some(life) = current else { return };
        let is_drained = self.lives[life].agent.as_ref().is_some_and(|agent| agent.is_drained());
        // An agent that ends by itself says so.
        if let Some(connection) = self.lives[life].connection
            && is_drained
        {
            let goodbye = agent_message::Kind::Goodbye(v1::Goodbye::default());
            self.send_up(connection, AgentMessage { kind: Some(goodbye) }, None);
            self.count(Fault::AgentEnded);
        }
        if !is_drained {
            self.count(Fault::AgentKilled);
        }
        self.note(format!("agent of worker {worker} ends, drained: {is_drained}"));
        let connection = self.lives[life].connection.take();
        self.lives[life].agent = None;
        if let Some(connection) = connection {
            self.close(connection);
        }
        self.start_life(worker);
    }

    pub(super) fn schedule_unrest(&mut self) {
        let delay = draw_delay(&mut self.random, self.scenario.unrest_every_ns);
        self.schedule(delay, Event::Unrest);
    }
}
