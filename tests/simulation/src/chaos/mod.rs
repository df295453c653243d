//! Real collectors and workers under faults that are drawn from a seed: kills, pauses, networks that are cut,
//! buckets that fail, and collectors that are replaced on another machine. At the end, each worker's own account
//! must be what the collectors have stored, and what queries find.
//!
//! Rounds run in groups, several at a time. A group has its own S3 server, two or three collectors with stores
//! there, and workers that have all of them in their list. Rounds of different collectors overlap. A group ends with
//! the comparison (`account`), so that a difference is due to few rounds.

mod account;
mod group;
mod kind;
mod site;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::account::Sums;
use self::kind::Kind;
use crate::agent::lock;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `emberline` binary, with the client of S3 servers.
    pub program: PathBuf,
    /// The `test-worker` binary.
    pub worker: PathBuf,
    /// Number of rounds.
    pub rounds: u32,
    /// Most rounds of a group.
    pub rounds_per_group: u32,
    /// Groups that run at a time.
    pub groups: u32,
    /// Seed of everything that is drawn. A group has this seed plus its number.
    pub seed: u64,
    /// Longest fault, in seconds; at most 30.
    pub longest_s: f64,
    /// Called now and then with the progress.
    pub tell: fn(&str),
}

/// Interval of progress lines.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Result of a run; prints as a table.
#[derive(Default, Debug)]
pub struct Report {
    seed: u64,
    groups: u32,
    rounds: BTreeMap<Kind, u32>,
    sums: Sums,
    took: Duration,
}

impl Report {
    fn rounds(&self) -> u32 {
        self.rounds.values().sum()
    }

    /// Number of moves of workers to another collector.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.sums.moves
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} rounds in {} groups (seed {}), {:.0} s:",
            self.rounds(),
            self.groups,
            self.seed,
            self.took.as_secs_f64(),
        )?;
        for (kind, count) in &self.rounds {
            writeln!(f, "{count:>8} {}", kind.name())?;
        }
        let Sums {
            workers,
            moves,
            cycles,
            tasks,
            accepted_ns,
            stored_ns,
            found_ns,
        } = self.sums;
        writeln!(
            f,
            "{workers:>8} workers, {moves} moves, {cycles} cycles acked, {tasks} tasks"
        )?;
        for (what, ns) in [
            ("accepted", accepted_ns),
            ("stored", stored_ns),
            ("found", found_ns),
        ] {
            writeln!(f, "{:>12.3} s {what}", ns as f64 / 1e9)?;
        }
        write!(f, "0 acked cycles lost, 0 counted twice, every task once")
    }
}

/// State that the groups share.
struct Run<'a> {
    options: &'a Options,
    begin: Instant,
    next_group: AtomicU32,
    report: Mutex<Report>,
    told: Mutex<Instant>,
}

/// Runs it.
///
/// # Errors
/// At the first broken promise, with the seed of its group, and its rounds.
pub fn run(options: &Options) -> Result<Report> {
    let begin = Instant::now();
    let run = Run {
        options,
        begin,
        next_group: AtomicU32::new(0),
        report: Mutex::new(Report {
            seed: options.seed,
            ..Report::default()
        }),
        told: Mutex::new(begin),
    };
    let at_a_time = options.groups.clamp(1, run.groups());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_a_time)
            .map(|_| scope.spawn(|| run.run_groups()))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("it does not panic"));
        joined
            .collect::<Vec<_>>()
            .into_iter()
            .collect::<Result<()>>()
    })?;
    let mut report = run.report.into_inner().expect("no thread panicked");
    report.took = begin.elapsed();
    Ok(report)
}

impl Run<'_> {
    fn groups(&self) -> u32 {
        self.options
            .rounds
            .div_ceil(self.options.rounds_per_group)
            .max(1)
    }

    /// Runs groups until none is left.
    fn run_groups(&self) -> Result<()> {
        loop {
            let number = self.next_group.fetch_add(1, Ordering::Relaxed);
            if number >= self.groups() {
                return Ok(());
            }
            let before = number * self.options.rounds_per_group;
            let rounds = (self.options.rounds - before).min(self.options.rounds_per_group);
            let seed = self.options.seed + u64::from(number);
            let sums = group::run(self, seed, rounds)
                .inspect_err(|_| {
                    // The others end after their present group.
                    self.next_group.store(self.groups(), Ordering::Relaxed);
                })
                .with_context(|| {
                    format!(
                        "rounds {} to {}, group of seed {seed}",
                        before + 1,
                        before + rounds
                    )
                })?;
            let mut report = lock(&self.report);
            report.sums += sums;
            report.groups += 1;
        }
    }

    /// Counts a round, and prints the progress now and then.
    fn count(&self, kind: Kind) {
        let mut report = lock(&self.report);
        *report.rounds.entry(kind).or_default() += 1;
        let mut told = lock(&self.told);
        if told.elapsed() < TELL_EVERY {
            return;
        }
        *told = Instant::now();
        (self.options.tell)(&format!(
            "{} of {} rounds, {:.0} s; {} groups compared: {} cycles acked, 0 lost, 0 twice, {} moves",
            report.rounds(),
            self.options.rounds,
            self.begin.elapsed().as_secs_f64(),
            report.groups,
            report.sums.cycles,
            report.sums.moves,
        ));
    }
}
