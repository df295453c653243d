//! Other processes that seal and maintain the store of a dead collector.

use crate::collector::adopt;

use super::{CrashMoment, HostEvent, World};
use crate::faults::Fault;
use crate::scenario::SECOND;

/// Probability of an adoption before a later start of a collector.
const ADOPTED_SHARE: f64 = 0.3;
/// Probability that the adopter dies at one of its first changes of the disk.
const CRASH_SHARE: f64 = 0.3;
const CRASH_CHANGES_MAX: usize = 40;

impl World {
    /// Adopts the store of a collector that should start now, or not. Returns whether it did; then the collector
    /// starts later.
    pub(super) fn adopt(&mut self, host: usize) -> Result<bool, String> {
        if self.has_healed || !self.hosts[host].has_started || !self.random.chance(ADOPTED_SHARE) {
            return Ok(false);
        }
        if self.random.chance(CRASH_SHARE) {
            let changes = self.random.below(CRASH_CHANGES_MAX) as u64;
            self.hosts[host].disk.crash_in(changes);
        }
        let state = &self.hosts[host];
        let adopted = adopt(&state.disk, state.clock.clone());
        self.note(format!(
            "the store of collector {host} is adopted: {adopted:?}"
        ));
        if self.hosts[host].disk.is_dead() {
            self.crash(host, CrashMoment::Adoption);
            return Ok(true);
        }
        // The adopter's process has ended.
        self.hosts[host].disk.restart(false);
        match adopted {
            Ok(0) => {}
            Ok(_) => {
                self.count(Fault::Adopted);
                if self.hosts[host].fenced.is_some() && self.random.chance(0.75) {
                    self.count(Fault::AdoptedFromPaused);
                    self.wake_fenced(host)?;
                }
            }
            Err(_) => self.count(Fault::AdoptionFailed),
        }
        let down_ns = self.draw_down_time();
        self.schedule_at_host(down_ns.max(SECOND), host, HostEvent::Start);
        Ok(true)
    }
}
