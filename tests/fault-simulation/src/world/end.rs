//! The end of a run, and comparisons with the truth.

use std::time::Duration;

use crate::collector::{DiskCondition, timestamp};
use profiler_core::TimeRange;

use super::{CrashMoment, END_NS, HostEvent, START_NS, World};
use crate::audit::{self, HostContent};
use crate::network::between;

impl World {
    pub(super) fn heal(&mut self) {
        let now = self.now();
        self.has_healed = true;
        self.partitions.iter_mut().for_each(|ends| ends.fill(0));
        self.scenario.break_share = 0.0;
        for host in 0..self.hosts.len() {
            let state = &mut self.hosts[host];
            state.disk.set_condition(DiskCondition::Healthy);
            state.disk.cancel_crash();
            if state.resumes_at.is_some() {
                state.resumes_at = Some(now);
                self.schedule_at_host(0, host, HostEvent::Resume);
            }
            if self.hosts[host].collector.is_none() {
                self.schedule_at_host(0, host, HostEvent::Start);
            }
        }
    }

    /// Whether all agents have ended. They are asked to when everything is acknowledged.
    pub(super) fn is_over(&mut self) -> Result<bool, String> {
        if self.is_sampling {
            return Ok(false);
        }
        if self.is_ending {
            return Ok(self.lives.iter().all(|life| life.agent.is_none()));
        }
        let mut agents = self.lives.iter().filter_map(|life| life.agent.as_ref());
        if !agents.all(|agent| agent.is_drained()) {
            return Ok(false);
        }
        audit::check_left_stays(&self.held(), &self.lives)?;
        self.is_ending = true;
        for life in 0..self.lives.len() {
            let limit_ns = u64::try_from(END_NS).expect("it is positive");
            self.end_agent(life, Duration::from_nanos(limit_ns));
        }
        Ok(false)
    }

    pub(super) fn undrained(&self) -> String {
        let agents = self.lives.iter().filter_map(|life| life.agent.as_ref());
        let reports: Vec<_> = agents.map(|agent| agent.report()).collect();
        format!("not everything is acknowledged long after everything healed: {reports:?}")
    }

    /// Returns the content of every running collector.
    fn held(&self) -> Vec<HostContent> {
        let hosts = self.hosts.iter().enumerate();
        let held = hosts.filter_map(|(host, state)| {
            Some(HostContent {
                host,
                content: state.collector.as_ref()?.held(),
            })
        });
        held.collect()
    }

    /// Compares a collector's answers with the truth.
    pub(super) fn audit(&mut self, host: usize) -> Result<(), String> {
        let Some(collector) = &self.hosts[host].collector else {
            return Ok(());
        };
        self.summary.audits += 1;
        audit::check(
            &[HostContent {
                host,
                content: collector.held(),
            }],
            &self.lives,
        )
    }

    pub(super) fn finish(&mut self) -> Result<(), String> {
        self.summary.simulated_s = u64::try_from(self.elapsed_s()).unwrap_or(0);
        self.check_all("at the end")?;
        for host in &self.hosts {
            host.collector
                .as_ref()
                .ok_or("there is no collector")?
                .seal()?;
        }
        self.check_all("after the last sealing")?;
        for host in 0..self.hosts.len() {
            self.crash(host, CrashMoment::BetweenChanges);
            self.start_collector(host)?;
            self.summary
                .faults
                .add_disk(&self.hosts[host].disk.fault_counts());
        }
        self.check_all("after the last restart")
    }

    fn check_all(&mut self, when: &str) -> Result<(), String> {
        self.note(format!("audit {when}"));
        self.summary.audits += 1;
        let held = self.held();
        if held.len() < self.hosts.len() {
            return Err("there is no collector".into());
        }
        let checked =
            audit::check(&held, &self.lives).and_then(|()| audit::check_end(&held, &self.lives));
        checked.map_err(|error| format!("{when}: {error}"))?;
        let elapsed_ns = self.now() - START_NS;
        let split_ns = START_NS + between(&mut self.random, 0, elapsed_ns);
        held.iter().try_for_each(|held| {
            self.check_split(held, split_ns)
                .map_err(|error| format!("{when}: {error}"))
        })
    }

    /// Any split of time sums to the whole.
    fn check_split(&self, held: &HostContent, split_ns: i64) -> Result<(), String> {
        let total_ns: u64 = held.content.leaves.values().sum();
        let early = TimeRange::new(timestamp(0), timestamp(split_ns));
        let late = TimeRange::new(timestamp(split_ns), timestamp(2 * START_NS));
        let parts = [early, late].into_iter().flatten();
        let collector = self.hosts[held.host]
            .collector
            .as_ref()
            .ok_or("there is no collector")?;
        let sum_ns: u64 = parts.map(|range| collector.weight_ns(range)).sum();
        if sum_ns == total_ns {
            return Ok(());
        }
        Err(format!("split at {split_ns}: {sum_ns} ns of {total_ns} ns"))
    }
}
