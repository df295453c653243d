//! The end of a run, and comparisons with the truth.

use collector::simulation::{DiskCondition, timestamp};
use profiler_core::TimeRange;

use super::{CrashMoment, Event, START_NS, World};
use crate::audit;
use crate::network::between;

impl World {
    pub(super) fn heal(&mut self) {
        self.has_healed = true;
        self.disk.set_condition(DiskCondition::Healthy);
        self.disk.cancel_crash();
        self.partitions.fill(0);
        self.scenario.break_share = 0.0;
        if self.collector.is_none() {
            self.schedule(0, Event::StartCollector);
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        let mut agents = self.lives.iter().filter_map(|life| life.agent.as_ref());
        agents.all(|agent| agent.is_drained())
    }

    pub(super) fn undrained(&self) -> String {
        let agents = self.lives.iter().filter_map(|life| life.agent.as_ref());
        let reports: Vec<_> = agents.map(|agent| agent.report()).collect();
        format!("not everything is acknowledged long after everything healed: {reports:?}")
    }

    pub(super) fn audit(&mut self) -> Result<(), String> {
        let Some(collector) = &self.collector else { return Ok(()) };
        self.summary.audits += 1;
        audit::check(&collector.held(), &self.lives)
    }

    pub(super) fn finish(&mut self) -> Result<(), String> {
        self.summary.simulated_s = u64::try_from(self.elapsed_s()).unwrap_or(0);
        self.check_all("at the end")?;
        let Some(collector) = &self.collector else { return Err("there is no collector".into()) };
        collector.seal()?;
        self.check_all("after the last sealing")?;
        self.crash(CrashMoment::BetweenChanges);
        self.start_collector()?;
        self.summary.faults.disk = self.disk.fault_counts();
        self.check_all("after the last restart")
    }

    pub(super) fn check_all(&mut self, when: &str) -> Result<(), String> {
        self.note(format!("audit {when}"));
        let Some(collector) = &self.collector else { return Err("there is no collector".into()) };
        self.summary.audits += 1;
        let held = collector.held();
        let checked = audit::check(&held, &self.lives);
        let checked = checked.and_then(|()| audit::check_accounts(&held, &self.lives));
        checked.map_err(|error| format!("{when}: {error}"))?;
        // Any split of time sums to the whole.
        let total_ns: u64 = held.leaves.values().sum();
        let elapsed_ns = self.now() - START_NS;
        let split_ns = START_NS + between(&mut self.random, 0, elapsed_ns);
        let early = TimeRange::new(timestamp(0), timestamp(split_ns));
        let late = TimeRange::new(timestamp(split_ns), timestamp(2 * START_NS));
        let parts = [early, late].into_iter().flatten();
        let sum_ns: u64 = parts.map(|range| collector.weight_ns(range)).sum();
        if sum_ns == total_ns {
            return Ok(());
        }
        Err(format!("{when}: split at {split_ns}: {sum_ns} ns of {total_ns} ns"))
    }
}
