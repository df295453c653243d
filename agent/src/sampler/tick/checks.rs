//! Checks that are made once per cycle.

use std::ops::Add;

use profiler_core::wire::SignalBlocked;
use profiler_core::{State, Weight};

use super::Sampler;
use crate::registry::Moment;
use crate::sampler::audit::{Shown, Times};
use crate::sampler::thread_probe::ThreadProbe;
use crate::{SamplerMode, log};
use system::process;

impl Sampler {
    /// Compares what was counted until this tick with what the kernel shows.
    pub(super) fn audit(&mut self, now: u64, cpu_before_ns: u64, last: bool) {
        if self.probe.mode().is_off() {
            return self.audit.restart();
        }
        if !last && !self.audit.is_due(self.threads.len()) {
            return;
        }
        let own = Moment {
            ns: now,
            cpu_ns: process::thread_cpu_ns(self.own_id).unwrap_or(0),
        };
        let mut counted = self.probe.counted() + self.own_time.uncounted(own);
        if !last {
            let uncounted = self.threads.iter_mut().map(|thread| thread.uncounted(now));
            counted = uncounted.fold(counted, Times::add);
        }
        let cpu_after_ns = process::process_cpu_ns().unwrap_or(0);
        let unknown_ns = self.thread_list.unknown_ns(now, self.threads.len());
        let shown = Shown {
            cpu_before_ns,
            cpu_after_ns,
            unknown_ns,
        };
        let unseen_ns = self.audit.check(counted, shown, last);
        if unseen_ns > 0 {
            let ThreadProbe {
                addresses,
                thread_frames,
                ..
            } = &mut self.probe;
            let attribution = thread_frames.unseen_attribution(addresses);
            addresses.add(attribution, Weight::of(State::Cpu, unseen_ns));
        }
    }

    /// Checks that are made once per cycle.
    pub(super) fn check(&mut self) {
        self.forget_gone_cells();
        self.report_signal_blocked();
        self.probe.meter.count_others(self.others_cpu_ns());
        if self.probe.update_mode() {
            let mode = SamplerMode::from(self.probe.mode());
            self.control.set_mode(mode.clone());
            log::emit(move || {
                if mode == SamplerMode::Full {
                    tracing::info!("this process is sampled in full again");
                } else {
                    tracing::warn!("this process is no longer sampled in full: {mode}");
                }
            });
        }
    }

    /// Reports the threads that block the signal.
    fn report_signal_blocked(&self) {
        // The agent's own threads block all signals.
        let of_program = self
            .threads
            .as_slice()
            .iter()
            .filter(|thread| !thread.of_agent);
        let blocking = of_program.filter(|thread| thread.blocks_signal());
        let since = blocking.map(|thread| thread.signal_blocked_since_ns);
        let blocked = since.clone().min().map(|first_ns| SignalBlocked {
            threads: u32::try_from(since.count()).unwrap_or(u32::MAX),
            since: crate::clock::at(first_ns),
        });
        self.control.set_signal_blocked(blocked);
    }

    /// CPU time of the agent's other threads.
    fn others_cpu_ns(&self) -> u64 {
        let others = self
            .threads
            .as_slice()
            .iter()
            .filter(|thread| thread.of_agent);
        others
            .filter_map(|thread| process::thread_cpu_ns(thread.id))
            .sum()
    }

    /// Forgets the cells of threads that have ended and are not known. While sampling is off, none is.
    pub(super) fn forget_gone_cells(&mut self) {
        let mut gone = std::mem::take(&mut self.changed);
        let unknown = |id: &u32| !self.threads.contains(*id);
        let of_gone = self.cells.values().filter(|cell| cell.is_gone());
        gone.extend(of_gone.map(|cell| cell.thread.id).filter(unknown));
        for id in gone.iter() {
            self.cells.remove(id);
        }
        gone.clear();
        self.changed = gone;
    }
}
