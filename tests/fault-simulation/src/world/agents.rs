//! Agents and their connections.

use std::time::Duration;

use crate::collector::{Answer, StreamEnd};
use profiler_core::wire::v1::{AgentMessage, agent_message};
use ship::shipper::simulation::{Action, Outgoing, SocketEnd};

use super::host::Unread;
use super::{Event, SILENCE_NS, World};
use crate::faults::Fault;
use crate::network::{Connection, Direction, between, travel_ns};
use crate::scenario::{SECOND, draw_delay};
use crate::worker::Life;

/// After how long a connection request that was lost is sent again.
const RECONNECT_NS: i64 = SECOND;

/// After how long an agent gives up an attempt to connect.
const CONNECT_NS: i64 = 5 * SECOND;

/// Bits of a connection's number that are the agent's number of the socket.
const SOCKET_BITS: u32 = 32;

impl World {
    pub(super) fn start_life(&mut self, worker: usize) {
        let hosts = &self.host_names;
        let life = Life::new(
            worker,
            &self.scenario,
            hosts,
            &self.now_ns,
            &mut self.random,
        );
        self.summary.lives += 1;
        if life.is_clock_off() {
            self.count(Fault::AgentClockOff);
        }
        self.lives.push(life);
        let life = self.lives.len() - 1;
        let first_ns = between(&mut self.random, 0, SECOND);
        self.schedule(first_ns, Event::Cycle { life });
        self.schedule(0, Event::StepAgent { life });
        self.lives[life].next_step_ns = Some(self.now());
    }

    pub(super) fn cycle(&mut self, life: usize) {
        let state = &mut self.lives[life];
        if state.agent.is_none() || state.is_ending || !self.is_sampling {
            return;
        }
        state.sample(&mut self.random);
        self.summary.cycles += 1;
        let late_ns = between(&mut self.random, 0, SECOND / 100);
        self.schedule(SECOND + late_ns, Event::Cycle { life });
        self.step_agent(life);
    }

    pub(super) fn wake_agent(&mut self, life: usize) {
        // Otherwise it was stepped meanwhile, and waits for another time.
        if self.lives[life].next_step_ns == Some(self.now()) {
            self.lives[life].next_step_ns = None;
            self.step_agent(life);
        }
    }

    /// Runs an agent until it waits.
    pub(super) fn step_agent(&mut self, life: usize) {
        for action in self.lives[life].step() {
            self.act(life, action);
        }
        if self.lives[life]
            .agent
            .as_ref()
            .is_some_and(|agent| agent.has_ended())
        {
            return self.note_end(life);
        }
        let now = self.now();
        if let Some(at_ns) = self.lives[life].earlier_step(now) {
            self.schedule_at(at_ns, Event::StepAgent { life });
        }
    }

    fn act(&mut self, life: usize, action: Action) {
        let number = |socket: u64| (life as u64) << SOCKET_BITS | socket;
        match action {
            Action::Connect { socket, collector } => {
                let connection = Connection::new(life, socket, collector, self.now());
                self.connections.insert(number(socket), connection);
                self.connect(number(socket));
            }
            Action::Send { socket, outgoing } => self.send(number(socket), *outgoing),
            Action::Ping { socket } => self.ping(number(socket)),
            Action::Close { socket } => self.close(number(socket)),
        }
    }

    fn partition_ends(&self, link: &Connection) -> i64 {
        self.partitions[self.lives[link.life].worker][link.host]
    }

    fn connect(&mut self, connection: u64) {
        let now = self.now();
        let link = &self.connections[&connection];
        let host = &self.hosts[link.host];
        let from = self.partition_ends(link).max(now);
        let is_refused = host.collector.is_none();
        if is_refused || from > now {
            self.count(Fault::Unreachable);
        }
        if self.hosts[self.connections[&connection].host].is_off || from > now + CONNECT_NS {
            return;
        }
        let delay = if self.has_healed {
            // An agent looks for a better collector every ten minutes, and each look has only a second.
            SECOND / 100
        } else {
            let faults = &mut self.summary.faults;
            travel_ns(RECONNECT_NS, &self.scenario, &mut self.random, faults)
        };
        self.schedule_at(
            from + delay,
            Event::Connected {
                connection,
                is_refused,
            },
        );
    }

    pub(super) fn connected(&mut self, connection: u64, is_refused: bool) {
        let Some(link) = self
            .connections
            .get(&connection)
            .filter(|link| link.is_open)
        else {
            return;
        };
        let is_there = !is_refused && !link.is_broken && self.hosts[link.host].collector.is_some();
        let life = link.life;
        if let Some(agent) = &self.lives[life].agent {
            agent.note_connected(link.socket, is_there);
        }
        self.step_agent(life);
    }

    fn send(&mut self, connection: u64, outgoing: Outgoing) {
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        let Outgoing { message, flush } = outgoing;
        match &message.kind {
            Some(agent_message::Kind::Hello(hello)) => {
                link.epoch = Some(hello.epoch);
                self.summary.connects += 1;
                self.schedule(SILENCE_NS, Event::Silence { connection });
            }
            Some(agent_message::Kind::Goodbye(goodbye)) => link.has_moved = goodbye.moved,
            _ => {}
        }
        let seq = flush.as_ref().map(|flush| flush.seq);
        if let Some(flush) = flush
            && let Some(link) = self.connections.get(&connection)
            && let Some(epoch) = link.epoch
        {
            self.summary.flushes += 1;
            self.lives[link.life].note_sent(epoch, flush);
        }
        if let Some(at_ns) = self.arrival(connection, Direction::Up) {
            let message = Box::new(message);
            self.schedule_at(
                at_ns,
                Event::ToCollector {
                    connection,
                    message,
                    seq,
                },
            );
        }
    }

    /// When a message that is sent now arrives. Tells the ends of a connection that breaks.
    pub(super) fn arrival(&mut self, connection: u64, direction: Direction) -> Option<i64> {
        let now = self.now();
        let partition_ends = self.partition_ends(self.connections.get(&connection)?);
        let link = self.connections.get_mut(&connection)?;
        let was_broken = link.is_broken;
        let random = &mut self.random;
        let faults = &mut self.summary.faults;
        let at_ns = link.send(
            direction,
            now,
            partition_ends,
            &self.scenario,
            random,
            faults,
        );
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

    /// Sends an answer.
    pub(super) fn send_down(&mut self, connection: u64, answer: Answer) {
        if let Some(at_ns) = self.arrival(connection, Direction::Down) {
            let answer = Box::new(answer);
            self.schedule_at(at_ns, Event::ToAgent { connection, answer });
        }
    }

    pub(super) fn deliver_up(
        &mut self,
        connection: u64,
        message: Box<AgentMessage>,
        seq: Option<u64>,
    ) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        if link.hold_until > now {
            let at_ns = link.hold_until;
            return self.schedule_at(
                at_ns,
                Event::ToCollector {
                    connection,
                    message,
                    seq,
                },
            );
        }
        let host = &mut self.hosts[link.host];
        if !link.delivers_up(now) || host.collector.is_none() {
            return;
        }
        link.collector_heard_at = now;
        if !link.is_open {
            self.summary.faults.count(Fault::LateMessage);
        }
        if let Some(epoch) = link.epoch {
            let faults = self.lives[link.life].note_heard(epoch, connection, seq);
            faults
                .into_iter()
                .for_each(|fault| self.summary.faults.count(fault));
        }
        if let Some(collector) = host.running() {
            collector.receive(connection, *message);
        } else {
            host.unread.push(Unread::Message {
                connection,
                message,
            });
        }
    }

    pub(super) fn deliver_down(&mut self, connection: u64, answer: Answer) {
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        if link.is_cut || !link.is_open {
            return;
        }
        link.is_pinged = false;
        let host = link.host;
        let life = link.life;
        let state = &mut self.lives[life];
        let Some(epoch) = link.epoch else { return };
        let Some(agent) = &state.agent else { return };
        match answer {
            Answer::Message(message) => {
                let kind = message.kind.clone();
                agent.deliver(link.socket, message);
                let faults = kind
                    .iter()
                    .flat_map(|kind| state.note_arrived(epoch, host, kind));
                faults.for_each(|fault| self.summary.faults.count(fault));
            }
            Answer::End(StreamEnd::Goodbye) => {
                agent.end_call(link.socket, SocketEnd::Finished);
                if link.has_moved
                    && let Some(stay) = state.stays.get_mut(&epoch)
                {
                    stay.is_settled = true;
                }
            }
            Answer::End(_) => agent.end_call(link.socket, SocketEnd::Failed),
        }
        self.step_agent(life);
    }

    /// The agent learns that a connection is lost.
    pub(super) fn reset(&mut self, connection: u64) {
        let Some(link) = self
            .connections
            .get(&connection)
            .filter(|link| link.is_open)
        else {
            return;
        };
        let life = link.life;
        if let Some(agent) = &self.lives[life].agent {
            agent.end_call(link.socket, SocketEnd::Failed);
        }
        self.step_agent(life);
    }

    /// The collector learns that a connection is closed.
    pub(super) fn hang_up(&mut self, connection: u64) {
        let Some(link) = self.connections.get(&connection) else {
            return;
        };
        let host = &mut self.hosts[link.host];
        if let Some(collector) = host.running() {
            collector.hang_up(connection);
        } else if host.collector.is_some() {
            host.unread.push(Unread::HangUp { connection });
        }
    }

    /// The agent closes a connection.
    fn close(&mut self, connection: u64) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        if link.epoch.is_none() {
            // It was only a look whether somebody is there.
            self.connections.remove(&connection);
            return;
        }
        if link.is_pinged {
            self.summary.faults.count(Fault::SilentCollector);
        }
        let was_broken = link.is_broken;
        link.close(now, &self.scenario, &mut self.random);
        let last_up = link.last_up();
        let partition_ends = self.partition_ends(&self.connections[&connection]);
        if !was_broken && partition_ends <= now && self.random.chance(0.7) {
            self.schedule_at(last_up.max(now) + SECOND / 50, Event::HangUp { connection });
        }
    }

    fn ping(&mut self, connection: u64) {
        let now = self.now();
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        link.is_pinged = true;
        let link = &self.connections[&connection];
        let is_reachable = self.partition_ends(link) <= now && self.hosts[link.host].is_running();
        if is_reachable && !link.is_broken {
            let delay = 2 * between(&mut self.random, SECOND / 5_000, SECOND / 25);
            self.schedule(delay, Event::Pong { connection });
        }
    }

    pub(super) fn deliver_pong(&mut self, connection: u64) {
        let Some(link) = self.connections.get_mut(&connection) else {
            return;
        };
        if link.is_cut || !link.is_open {
            return;
        }
        link.is_pinged = false;
        let life = link.life;
        if let Some(agent) = &self.lives[life].agent {
            agent.note_pong(link.socket);
        }
        self.step_agent(life);
    }

    pub(super) fn check_silence(&mut self, connection: u64) {
        let now = self.now();
        let Some(link) = self.connections.get(&connection) else {
            return;
        };
        let host = &mut self.hosts[link.host];
        let silent_at = link.collector_heard_at + SILENCE_NS;
        if silent_at > now {
            return self.schedule_at(silent_at, Event::Silence { connection });
        }
        if let Some(resumes_at) = host.resumes_at {
            return self.schedule_at(resumes_at + SECOND, Event::Silence { connection });
        }
        if let Some(collector) = host.running()
            && collector.time_out(connection)
        {
            self.summary.faults.count(Fault::SilentAgent);
            let end = Answer::End(StreamEnd::Invalid("no message for a minute".to_owned()));
            self.send_down(connection, end);
        }
        let Some(link) = self.connections.get(&connection) else {
            return;
        };
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
            self.cut_off(worker);
        } else {
            self.restart_agent(worker);
        }
        self.schedule_unrest();
    }

    /// Cuts a worker off from one collector, or from all of them.
    fn cut_off(&mut self, worker: usize) {
        let length = between(&mut self.random, SECOND, self.scenario.partition_max_ns);
        self.count(Fault::Partition);
        if length >= 3_600 * SECOND {
            self.count(Fault::PartitionOfHours);
        }
        let ends = self.now() + length;
        if self.hosts.len() == 1 || self.random.chance(0.2) {
            self.partitions[worker].fill(ends);
            self.note(format!(
                "worker {worker} is cut off for {} s",
                length / SECOND
            ));
        } else {
            let host = self.random.below(self.hosts.len());
            self.partitions[worker][host] = ends;
            self.count(Fault::PartialPartition);
            let seconds = length / SECOND;
            self.note(format!(
                "worker {worker} is cut off from {host} for {seconds} s"
            ));
        }
    }

    fn restart_agent(&mut self, worker: usize) {
        let current = self.lives.iter().rposition(|life| life.worker == worker);
        let Some(life) = current else { return };
        if self.lives[life].is_ending || self.random.chance(0.5) {
            return self.kill_agent(life);
        }
        let limit_s = [1, 5, 30, 120][self.random.below(4)];
        self.end_agent(life, Duration::from_secs(limit_s));
    }

    fn kill_agent(&mut self, life: usize) {
        let Some(agent) = self.lives[life].agent.take() else {
            return;
        };
        let is_drained = agent.is_drained();
        if !is_drained {
            self.count(Fault::AgentKilled);
        }
        let worker = self.lives[life].worker;
        self.note(format!(
            "agent of worker {worker} is killed, drained: {is_drained}"
        ));
        drop(agent);
        let open: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, link)| link.life == life && link.is_open)
            .map(|(connection, _)| *connection)
            .collect();
        open.into_iter()
            .for_each(|connection| self.close(connection));
        self.start_life(worker);
    }

    /// Asks an agent to end.
    pub(super) fn end_agent(&mut self, life: usize, limit: Duration) {
        let state = &mut self.lives[life];
        let Some(agent) = &mut state.agent else {
            return;
        };
        state.is_ending = true;
        let unsettled = agent.unsettled_epochs().len();
        agent.finish(limit);
        let worker = state.worker;
        let seconds = limit.as_secs();
        self.note(format!(
            "agent of worker {worker} ends in {seconds} s, {unsettled} stays open"
        ));
        if unsettled > 0 {
            self.count(Fault::EndedWithStays);
        }
        self.step_agent(life);
    }

    fn note_end(&mut self, life: usize) {
        let state = &mut self.lives[life];
        let Some(agent) = state.agent.take() else {
            return;
        };
        let report = agent.report();
        state.report = Some(report);
        state.unsettled_at_end = agent.unsettled_epochs().len();
        let worker = state.worker;
        let unsettled = state.unsettled_at_end;
        let unacked_ns = report.unacked_ns;
        self.count(if unacked_ns == 0 {
            Fault::AgentEnded
        } else {
            Fault::EndedUnacknowledged
        });
        self.note(format!(
            "agent of worker {worker} has ended, {unacked_ns} ns unacknowledged, {unsettled} stays open"
        ));
        if !self.is_ending {
            self.start_life(worker);
        }
    }

    pub(super) fn schedule_unrest(&mut self) {
        let delay = draw_delay(&mut self.random, self.scenario.unrest_every_ns);
        self.schedule(delay, Event::Unrest);
    }
}
