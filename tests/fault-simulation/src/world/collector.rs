//! The collector: its streams, crashes, and what else goes wrong with it.

use collector::simulation::{Answer, DiskCondition, SimulatedCollector, StreamEnd};
use profiler_core::wire::v1::{self, CollectorMessage};

use std::sync::atomic::Ordering;

use super::{CrashMoment, Event, World, collector_clock};
use crate::faults::Fault;
use crate::network::{Direction, between};
use crate::scenario::{SECOND, draw_delay};

impl World {
    /// Runs the collector's streams, and sends what they answer.
    pub(super) fn step_collector(&mut self) {
        let Some(collector) = &mut self.collector else { return };
        let answers = collector.step();
        let is_waiting = collector.is_waiting();
        if self.disk.is_dead() {
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
                self.lives[link.life].note_created(kind);
            }
            if let Some(at_ns) = self.arrival(connection, Direction::Down) {
                let answer = Box::new(answer);
                self.schedule_at(at_ns, Event::ToAgent { connection, answer });
            }
        }
        if is_waiting && !self.is_commit_queued {
            self.is_commit_queued = true;
            let delay = between(&mut self.random, SECOND / 100, SECOND / 10);
            self.schedule(delay, Event::Commit);
        }
    }

    pub(super) fn seal(&mut self) {
        if let Some(collector) = &self.collector {
            match collector.seal() {
                Ok(sealed) => self.summary.sealings += u64::from(sealed),
                Err(error) => {
                    self.count(Fault::SealingFailed);
                    self.note(format!("sealing failed: {error}"));
                }
            }
        }
        self.schedule(self.scenario.seal_every_ns, Event::Seal);
    }

    pub(super) fn trouble(&mut self) -> Result<(), String> {
        if self.has_healed {
            return Ok(());
        }
        self.schedule_trouble();
        let length = draw_delay(&mut self.random, 60 * SECOND);
        match self.random.below(8) {
            7 => {
                let changes = self.random.below(4) as u64;
                let is_of_version = self.random.chance(0.5);
                let what = if is_of_version { "a version" } else { "the log" };
                self.note(format!("a sync of {what} will fail, {changes} changes before a crash"));
                self.disk.fail_sync_and_crash_in(is_of_version, changes);
            }
            0 | 1 => {
                let changes = self.random.below(300) as u64;
                self.note(format!("the collector will crash {changes} changes later"));
                self.disk.crash_in(changes);
            }
            2 => self.crash(CrashMoment::BetweenChanges),
            3 => {
                let one_of = [2, 10, 100][self.random.below(3)];
                self.note(format!("one operation in {one_of} of the disk fails"));
                self.disk.set_condition(DiskCondition::Failing { one_of });
                self.schedule(length, Event::DiskIsWell);
            }
            4 => {
                let is_known = self.random.chance(0.5);
                self.note(format!("the disk is full, known: {is_known}"));
                self.disk.set_condition(DiskCondition::Full { is_known });
                self.schedule(length, Event::DiskIsWell);
            }
            5 => {
                let off_ns = self.scenario.draw_clock(&mut self.random);
                self.note(format!("the collector's clock is set: off by {} s", off_ns / SECOND));
                let before_ns = self.clock_off_ns.swap(off_ns, Ordering::Relaxed);
                self.count(Fault::ClockSet);
                if before_ns - off_ns > 3_600 * SECOND {
                    self.count(Fault::ClockSetBack);
                }
            }
            _ => self.audit()?,
        }
        Ok(())
    }

    pub(super) fn schedule_trouble(&mut self) {
        let delay = draw_delay(&mut self.random, self.scenario.fault_every_ns);
        self.schedule(delay, Event::CollectorFault);
    }

    pub(super) fn crash(&mut self, moment: CrashMoment) {
        let crashed = self.collector.take();
        if crashed.is_none() && !self.disk.is_dead() {
            return;
        }
        // Its connections are cut, and it may still write.
        let may_pause = self.scenario.is_bucket && self.paused.is_none() && !self.disk.is_dead();
        if may_pause && self.random.chance(0.5) {
            self.paused = crashed;
        }
        let is_machine = self.random.chance(0.6);
        self.note(format!("the collector crashes {moment:?}, machine: {is_machine}"));
        self.count(if is_machine { Fault::MachineCrashed } else { Fault::CollectorKilled });
        match moment {
            CrashMoment::Start if self.summary.starts == 0 => self.count(Fault::CrashAtFirstStart),
            CrashMoment::Start => self.count(Fault::CrashAtStart),
            CrashMoment::Commit => self.count(Fault::CrashInCommit),
            CrashMoment::Sealing => self.count(Fault::CrashInSealing),
            CrashMoment::Maintenance => self.count(Fault::CrashInMaintenance),
            CrashMoment::BetweenChanges => {}
        }
        self.summary.crashes += 1;
        self.disk.restart(is_machine);
        let connections: Vec<u64> = self.connections.keys().copied().collect();
        for connection in connections {
            let Some(link) = self.connections.get_mut(&connection) else { continue };
            // What is under way to a dead process is lost.
            link.is_broken = true;
            link.is_cut = true;
            if self.random.chance(0.8) {
                self.schedule(SECOND / 50, Event::Reset { connection });
            }
        }
        let down_ns =
            if self.has_healed { SECOND } else { draw_delay(&mut self.random, 20 * SECOND) };
        self.schedule(down_ns, Event::StartCollector);
    }

    /// Lets a paused collector do all its work, now that another one has its store. It must not acknowledge
    /// anything; the audit that follows shows whether it changed anything.
    fn wake_paused(&mut self) -> Result<(), String> {
        let Some(mut paused) = self.paused.take() else { return Ok(()) };
        paused.step();
        paused.commit();
        let sealed = paused.seal();
        let maintained = paused.maintain();
        self.note(format!("a paused collector wakes up: {sealed:?}, {maintained:?}"));
        let is_ack = |(_, answer): &(u64, Answer)| {
            let Answer::Message(CollectorMessage { kind: Some(kind) }) = answer else {
                return false;
            };
            matches!(kind, v1::collector_message::Kind::Ack(_))
        };
        if paused.step().iter().any(is_ack) {
            return Err("a paused collector acknowledged what it does not own".to_owned());
        }
        self.count(Fault::Awoken);
        Ok(())
    }

    pub(super) fn start_collector(&mut self) -> Result<(), String> {
        if self.collector.is_some() {
            return Ok(());
        }
        if !self.has_healed && self.random.chance(0.2) {
            let changes = self.random.below(20) as u64;
            self.disk.crash_in(changes);
        }
        let clock = collector_clock(&self.now_ns, &self.clock_off_ns);
        let opened = SimulatedCollector::open(&self.disk, clock);
        if self.disk.is_dead() {
            drop(opened);
            self.crash(CrashMoment::Start);
            return Ok(());
        }
        match opened {
            Ok(collector) => {
                collector.limit_log_files(self.scenario.log_file_bytes);
                self.collector = Some(collector);
                self.summary.starts += 1;
                // Or later, when its successors have sealed and removed what it logged.
                if self.has_healed || self.random.chance(0.5) {
                    self.wake_paused()?;
                }
                // The crash that was due at the start may come only now.
                if self.disk.is_dead() { Ok(()) } else { self.audit() }
            }
            Err(error) if self.has_healed => Err(format!("the collector does not start: {error}")),
            Err(error) => {
                self.count(Fault::StartFailed);
                self.note(format!("the collector does not start: {error}"));
                self.schedule(5 * SECOND, Event::StartCollector);
                Ok(())
            }
        }
    }
}
