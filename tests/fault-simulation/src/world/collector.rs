//! The collector: its streams, crashes, and what else goes wrong with it.

use crate::collector::{Answer, DiskCondition, SimulatedCollector, StreamEnd};
use profiler_core::wire::v1::{self, CollectorMessage};

use super::host::Unread;
use super::{CrashMoment, Event, HostEvent, World};
use crate::faults::Fault;
use crate::network::between;
use crate::scenario::{SECOND, draw_delay};

impl World {
    /// Runs the collector's streams, and sends what they answer.
    pub(super) fn step_collector(&mut self, host: usize) {
        let Some(collector) = self.hosts[host].running() else {
            return;
        };
        let answers = collector.step();
        let is_waiting = collector.is_waiting();
        if self.hosts[host].disk.is_dead() {
            return;
        }
        for (connection, answer) in answers {
            match &answer {
                Answer::End(StreamEnd::TakenOver) => self.count(Fault::TakenOver),
                Answer::End(StreamEnd::NotLogged(_)) => self.count(Fault::LogRejected),
                _ => {}
            }
            if let Answer::Message(CollectorMessage { kind: Some(kind) }) = &answer
                && let Some(link) = self.connections.get(&connection)
            {
                self.summary.refusals += u64::from(matches!(
                    kind,
                    v1::collector_message::Kind::Refusal(refusal) if refusal.seq > 0
                ));
                if let Some(epoch) = link.epoch {
                    self.lives[link.life].note_created(epoch, kind);
                }
            }
            self.send_down(connection, answer);
        }
        if is_waiting && !self.hosts[host].is_commit_queued {
            self.hosts[host].is_commit_queued = true;
            let delay = between(&mut self.random, SECOND / 100, SECOND / 10);
            self.schedule_at_host(delay, host, HostEvent::Commit);
        }
    }

    pub(super) fn seal(&mut self, host: usize) {
        if let Some(collector) = &self.hosts[host].collector {
            match collector.seal() {
                Ok(sealed) => self.summary.sealings += u64::from(sealed),
                Err(error) => {
                    self.count(Fault::SealingFailed);
                    self.note(format!("sealing failed: {error}"));
                }
            }
        }
        self.schedule_at_host(self.scenario.seal_every_ns, host, HostEvent::Seal);
    }

    pub(super) fn trouble(&mut self, host: usize) -> Result<(), String> {
        if self.has_healed {
            return Ok(());
        }
        self.schedule_trouble(host);
        let disk = self.hosts[host].disk.clone();
        let length = draw_delay(&mut self.random, 60 * SECOND);
        match self.random.below(9) {
            7 => {
                let changes = self.random.below(4) as u64;
                let is_of_version = self.random.chance(0.5);
                let what = if is_of_version {
                    "a version"
                } else {
                    "the log"
                };
                self.note(format!(
                    "{host}: a sync of {what} will fail, {changes} changes before a crash"
                ));
                disk.fail_sync_and_crash_in(is_of_version, changes);
            }
            0 | 1 => {
                let changes = self.random.below(300) as u64;
                self.note(format!(
                    "collector {host} will crash {changes} changes later"
                ));
                disk.crash_in(changes);
            }
            2 => self.crash(host, CrashMoment::BetweenChanges),
            3 => {
                let one_of = [2, 10, 100][self.random.below(3)];
                self.note(format!("one operation in {one_of} of disk {host} fails"));
                disk.set_condition(DiskCondition::Failing { one_of });
                self.schedule_at_host(length, host, HostEvent::DiskIsWell);
            }
            4 => {
                let is_known = self.random.chance(0.5);
                self.note(format!("disk {host} is full, known: {is_known}"));
                disk.set_condition(DiskCondition::Full { is_known });
                self.schedule_at_host(length, host, HostEvent::DiskIsWell);
            }
            5 => {
                let off_ns = self.scenario.draw_clock(&mut self.random);
                self.note(format!("clock {host} is set: off by {} s", off_ns / SECOND));
                let before_ns = self.hosts[host].set_clock(off_ns);
                self.count(Fault::ClockSet);
                if before_ns - off_ns > 3_600 * SECOND {
                    self.count(Fault::ClockSetBack);
                }
            }
            6 => self.pause(host, length),
            _ => self.audit(host)?,
        }
        Ok(())
    }

    /// Pauses the collector's process.
    fn pause(&mut self, host: usize, length: i64) {
        if !self.hosts[host].is_running() {
            return;
        }
        self.note(format!(
            "collector {host} is paused for {} s",
            length / SECOND
        ));
        self.hosts[host].resumes_at = Some(self.now() + length);
        self.schedule_at_host(length, host, HostEvent::Resume);
    }

    /// Lets a paused process go on, which reads what has arrived meanwhile.
    pub(super) fn resume(&mut self, host: usize) {
        let now = self.now();
        let state = &mut self.hosts[host];
        // It may have been killed, and another one paused.
        if state
            .resumes_at
            .take_if(|resumes_at| *resumes_at <= now)
            .is_none()
        {
            return;
        }
        let unread = std::mem::take(&mut state.unread);
        let Some(collector) = &mut state.collector else {
            return;
        };
        if unread
            .iter()
            .any(|unread| matches!(unread, Unread::Message { .. }))
        {
            self.summary.faults.count(Fault::Resumed);
        }
        for unread in unread {
            match unread {
                Unread::Message {
                    connection,
                    message,
                } => collector.receive(connection, *message),
                Unread::HangUp { connection } => collector.hang_up(connection),
            }
        }
    }

    pub(super) fn schedule_trouble(&mut self, host: usize) {
        let delay = draw_delay(&mut self.random, self.scenario.fault_every_ns);
        self.schedule_at_host(delay, host, HostEvent::Fault);
    }

    pub(super) fn crash(&mut self, host: usize, moment: CrashMoment) {
        let is_bucket = self.scenario.is_bucket;
        let state = &mut self.hosts[host];
        let crashed = state.collector.take();
        if crashed.is_none() && !state.disk.is_dead() {
            return;
        }
        state.resumes_at = None;
        state.unread.clear();
        // Its connections are cut, and it may still write.
        let may_pause = is_bucket && state.fenced.is_none() && !state.disk.is_dead();
        if may_pause && self.random.chance(0.5) {
            state.fenced = crashed;
        }
        let is_machine = self.random.chance(0.6);
        self.note(format!(
            "collector {host} crashes {moment:?}, machine: {is_machine}"
        ));
        self.count(if is_machine {
            Fault::MachineCrashed
        } else {
            Fault::CollectorKilled
        });
        match moment {
            CrashMoment::Start if !self.hosts[host].has_started => {
                self.count(Fault::CrashAtFirstStart)
            }
            CrashMoment::Start => self.count(Fault::CrashAtStart),
            CrashMoment::Commit => self.count(Fault::CrashInCommit),
            CrashMoment::Sealing => self.count(Fault::CrashInSealing),
            CrashMoment::Maintenance => self.count(Fault::CrashInMaintenance),
            CrashMoment::Adoption => self.count(Fault::CrashInAdoption),
            CrashMoment::BetweenChanges => {}
        }
        self.summary.crashes += 1;
        self.hosts[host].disk.restart(is_machine);
        self.hosts[host].is_off = is_machine;
        let at_host = self
            .connections
            .iter()
            .filter(|(_, link)| link.host == host);
        let connections: Vec<u64> = at_host.map(|(connection, _)| *connection).collect();
        for connection in connections {
            let Some(link) = self.connections.get_mut(&connection) else {
                continue;
            };
            // Messages on their way to a dead process are lost.
            link.is_broken = true;
            link.is_cut = true;
            if self.random.chance(0.8) {
                self.schedule(SECOND / 50, Event::Reset { connection });
            }
        }
        let down_ns = self.draw_down_time();
        self.schedule_at_host(down_ns, host, HostEvent::Start);
    }

    pub(super) fn draw_down_time(&mut self) -> i64 {
        if self.has_healed {
            return SECOND;
        }
        // While others are there, agents need not wait.
        let is_long = self.hosts.len() > 1 && self.random.chance(0.3);
        draw_delay(
            &mut self.random,
            if is_long { 300 * SECOND } else { 20 * SECOND },
        )
    }

    /// Lets a paused collector do all its work, now that another one has its store. It must not acknowledge
    /// anything; the audit that follows shows whether it changed anything.
    pub(super) fn wake_fenced(&mut self, host: usize) -> Result<(), String> {
        let Some(mut paused) = self.hosts[host].fenced.take() else {
            return Ok(());
        };
        paused.step();
        paused.commit();
        let sealed = paused.seal();
        let maintained = paused.maintain();
        self.note(format!(
            "a paused collector wakes up: {sealed:?}, {maintained:?}"
        ));
        if paused.step().iter().any(|(_, answer): &(u64, Answer)| {
            let Answer::Message(CollectorMessage { kind: Some(kind) }) = answer else {
                return false;
            };
            matches!(kind, v1::collector_message::Kind::Ack(_))
        }) {
            return Err("a paused collector acknowledged what it does not own".to_owned());
        }
        self.count(Fault::Awoken);
        Ok(())
    }

    pub(super) fn start_collector(&mut self, host: usize) -> Result<(), String> {
        if self.hosts[host].collector.is_some() || self.adopt(host)? {
            return Ok(());
        }
        let state = &mut self.hosts[host];
        state.is_off = false;
        if !self.has_healed && self.random.chance(0.2) {
            let changes = self.random.below(20) as u64;
            state.disk.crash_in(changes);
        }
        let opened = SimulatedCollector::open(&state.disk, state.clock.clone());
        if state.disk.is_dead() {
            drop(opened);
            self.crash(host, CrashMoment::Start);
            return Ok(());
        }
        match opened {
            Ok(collector) => {
                collector.limit_log_files(self.scenario.log_file_bytes);
                state.collector = Some(collector);
                state.has_started = true;
                self.summary.starts += 1;
                // Or later, when its successors have sealed and removed what it logged.
                if self.has_healed || self.random.chance(0.5) {
                    self.wake_fenced(host)?;
                }
                // The crash that was due at the start may come only now.
                if self.hosts[host].disk.is_dead() {
                    Ok(())
                } else {
                    self.audit(host)
                }
            }
            Err(error) if self.has_healed => {
                Err(format!("collector {host} does not start: {error}"))
            }
            Err(error) => {
                self.count(Fault::StartFailed);
                self.note(format!("collector {host} does not start: {error}"));
                self.schedule_at_host(5 * SECOND, host, HostEvent::Start);
                Ok(())
            }
        }
    }
}
