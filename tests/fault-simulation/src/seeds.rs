//! Many runs on all cores, and how to repeat one of them.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::{Failure, Summary, run};

/// Many runs.
#[derive(Debug, Default)]
pub struct Report {
    /// The sum of all runs.
    pub sum: Summary,
    /// Runs that broke a promise, by seed.
    pub failures: Vec<(u64, Failure)>,
    /// Time that the threads took together.
    pub core_time: Duration,
}

impl Report {
    /// Adds the runs of another report.
    pub fn add(&mut self, other: Report) {
        self.sum.add(&other.sum);
        self.failures.extend(other.failures);
        self.core_time += other.core_time;
    }

    /// Simulated seconds for each second of a core.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.sum.simulated_s as f64 / self.core_time.as_secs_f64()
    }

    /// Returns the counts of all runs, as one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let Summary {
            simulated_s,
            cycles,
            flushes,
            connects,
            lives,
            crashes,
            ..
        } = self.sum;
        let Summary {
            starts,
            refusals,
            sealings,
            audits,
            ..
        } = self.sum;
        format!(
            "{simulated_s} s simulated, {:.0} per second and core: {cycles} cycles in {flushes} flushes \
             sent over {connects} streams by {lives} agents, {refusals} rejected; {starts} starts, \
             {crashes} crashes, {sealings} sealings, {audits} audits",
            self.speed()
        )
    }

    /// How often each kind of fault happened, a line for each.
    #[must_use]
    pub fn fault_counts(&self) -> String {
        self.sum
            .faults
            .iter()
            .map(|(name, count)| format!("{count:>12} {name}\n"))
            .collect()
    }

    /// The failures, each with the command that repeats it.
    #[must_use]
    pub fn failures(&self) -> String {
        let mut text = String::new();
        for (seed, failure) in &self.failures {
            let Failure { reason, trace } = failure;
            let trace = trace.join("\n  ");
            text.push_str(&format!(
                "seed {seed} failed {reason}\n  {trace}\nrepeat it with: cargo xtask simulate --seed {seed}\n"
            ));
        }
        text
    }
}

/// Runs all seeds, on a thread for each core, until some have failed.
#[must_use]
pub fn run_all(seeds: Range<u64>, failures_max: usize) -> Report {
    let report = Mutex::new(Report::default());
    let next = AtomicU64::new(seeds.start);
    let add = |seed, result: Result<Summary, Failure>, taken: Duration| {
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.core_time += taken;
        match result {
            Ok(summary) => report.sum.add(&summary),
            Err(failure) => report.failures.push((seed, failure)),
        }
        report.failures.len() >= failures_max
    };
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let started = thread_time();
            let result = run(seed, false);
            if add(seed, result, thread_time() - started) {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    report.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// CPU time of this thread: other work on the machine does not count.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

impl Summary {
    /// Adds another run; the digest does not depend on the order.
    fn add(&mut self, other: &Summary) {
        self.simulated_s += other.simulated_s;
        self.digest ^= other.digest;
        self.events += other.events;
        self.cycles += other.cycles;
        self.flushes += other.flushes;
        self.connects += other.connects;
        self.lives += other.lives;
        self.crashes += other.crashes;
        self.starts += other.starts;
        self.refusals += other.refusals;
        self.sealings += other.sealings;
        self.audits += other.audits;
        self.faults.add(&other.faults);
    }
}
