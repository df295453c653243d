//! The cost of each profiler to whole programs: CPU time per unit, for a fixed number of units.
//!
//! Contestants take turns. Ratios refer to the same binary without a profiler in the same round,
//! because code layout alone makes two binaries differ by a percent or two.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use super::child::{self, Figures};
use super::programs::{Binary, PERF, Programs, Run};
use super::{Headline, Plan, Section, cell, percent_more, plain};
use crate::contest::Timings;

struct Contestant {
    name: &'static str,
    binary: Binary,
    profiler: &'static str,
    hertz: u32,
}

const fn contestant(
    name: &'static str,
    binary: Binary,
    profiler: &'static str,
    hertz: u32,
) -> Contestant {
    Contestant {
        name,
        binary,
        profiler,
        hertz,
    }
}

/// The first contestant of each binary has no profiler: the reference of the others.
const CONTESTANTS: &[Contestant] = &[
    contestant("no profiler", Binary::Load, "none", 100),
    // Its difference from the line above is noise.
    contestant("no profiler, again", Binary::Load, "none", 100),
    contestant("emberline, 100 Hz", Binary::Load, "emberline", 100),
    contestant("emberline, 1,000 Hz", Binary::Load, "emberline", 1_000),
    contestant("perf record -F 100 -g", Binary::Load, PERF, 100),
    contestant("no profiler, pprof's binary", Binary::Pprof, "none", 100),
    contestant("pprof (backtrace), 100 Hz", Binary::Pprof, "pprof", 100),
    contestant("pprof (backtrace), 1,000 Hz", Binary::Pprof, "pprof", 1_000),
    contestant(
        "no profiler, framehop's binary",
        Binary::Framehop,
        "none",
        100,
    ),
    contestant("pprof (framehop), 100 Hz", Binary::Framehop, "pprof", 100),
    contestant(
        "pprof (framehop), 1,000 Hz",
        Binary::Framehop,
        "pprof",
        1_000,
    ),
    contestant(
        "emberline without its limit, 100 Hz",
        Binary::Load,
        "emberline-unlimited",
        100,
    ),
];
const EMBERLINE: usize = 2;
const EMBERLINE_UNLIMITED: usize = 11;
/// At 100 Hz, as Emberline.
const PEERS: [usize; 3] = [4, 6, 9];

struct Load {
    name: &'static str,
    title: &'static str,
    threads: usize,
    /// Units of the trial run that calibrates the number of units per window.
    trial_units: u64,
}

const LOADS: [Load; 2] = [
    Load {
        name: "cpu",
        title: "2 threads that compute",
        threads: 2,
        trial_units: 2_000,
    },
    Load {
        name: "server",
        title: "200 threads as of a server: 100 clients in a closed loop",
        threads: 200,
        trial_units: 200,
    },
];

/// Figures by contestant and round.
struct Results(Vec<Vec<Option<Figures>>>);

/// CPU time of a loop that makes the sampler's system calls for `load`, in each round.
fn measure_calls(programs: &Programs, plan: Plan, load: &Load) -> Vec<Option<f64>> {
    let run = Run {
        load: "calls",
        profiler: "none",
        hertz: 100,
        threads: load.threads,
        units: 0,
        settle: plan.settle / 8,
        window: plan.window,
    };
    let rounds = (0..plan.rounds).map(|_| programs.try_run(Binary::Load, &run));
    let figures = rounds.map(|figures| percent(&figures?, "sampler_cpu_ns"));
    figures.collect()
}

/// Measures and prints.
pub(super) fn measure(programs: &Programs, plan: Plan) -> Result<Section> {
    let mut section = Section {
        headlines: Vec::new(),
        text: String::new(),
    };
    for load in &LOADS {
        let units = calibrate(programs, plan, load)?;
        let results = Results::measure(programs, plan, load, units);
        section.text += &format!(
            "### Whole programs: {}\n\n{units} units of work in {} rounds each; CPU time a unit, and \
             what the profiler adds to it.\n\n",
            load.title, plan.rounds,
        );
        section.text += &results.table();
        if load.name == "cpu" {
            section.headlines.extend(handler_row(&results));
            let calls = measure_calls(programs, plan, load);
            section.headlines.extend(results.headlines(&calls));
        } else {
            // A target of its own; the others come after it.
            section.headlines.insert(0, results.server_headline());
        }
    }
    Ok(section)
}

/// Returns how many units fill a window without a profiler.
fn calibrate(programs: &Programs, plan: Plan, load: &Load) -> Result<u64> {
    let trial = Run {
        load: load.name,
        profiler: "none",
        hertz: 100,
        threads: load.threads,
        units: load.trial_units,
        settle: Duration::from_millis(100),
        window: plan.window,
    };
    let mut command = programs
        .command(Binary::Load, &trial)
        .context("the load is built")?;
    let wall_ns = child::run(&mut command, plan.window)?
        .get("wall_ns")
        .context("it prints its wall time")?;
    Ok(units_in(plan.window, load.trial_units, wall_ns))
}

fn units_in(window: Duration, trial_units: u64, trial_ns: f64) -> u64 {
    let times = window.as_secs_f64() * 1e9 / trial_ns.max(1.0);
    // A whole number of the trial's units, and at least one trial.
    trial_units * (times.round() as u64).max(1)
}

/// The handler's own time as the agent measures it: `handler_p50_ns` and `handler_p99_ns`, printed by
/// the load's `report_costs`. `None` for an agent that does not measure its handler.
fn handler_row(results: &Results) -> Option<Headline> {
    let micros = |name: &str| {
        let rounds = results.rounds(EMBERLINE, |figures| Some(figures.get(name)? / 1e3));
        rounds
            .iter()
            .any(Option::is_some)
            .then(|| cell(&rounds, plain))
    };
    let (p50, p99) = micros("handler_p50_ns").zip(micros("handler_p99_ns"))?;
    Some(Headline {
        what: "handler, p50 and p99",
        target: "≤ 0.6 and 3 µs",
        before: "0.86 and 17.4 µs",
        measured: format!("{p50} and {p99} µs"),
        peers: "–".into(),
    })
}

impl Results {
    fn measure(programs: &Programs, plan: Plan, load: &Load, units: u64) -> Results {
        let mut results = Results(CONTESTANTS.iter().map(|_| Vec::new()).collect());
        for round in 1..=plan.rounds {
            eprintln!("==> {}, round {round} of {}", load.title, plan.rounds);
            for (contestant, rounds) in CONTESTANTS.iter().zip(&mut results.0) {
                // Only ours reads symbols for a second after its start.
                let slow = contestant.profiler.starts_with("emberline");
                let run = Run {
                    load: load.name,
                    profiler: contestant.profiler,
                    hertz: contestant.hertz,
                    threads: load.threads,
                    units,
                    settle: if slow { plan.settle } else { plan.settle / 8 },
                    window: plan.window,
                };
                let figures = programs.try_run(contestant.binary, &run);
                rounds.push(figures.map(|figures| figures.with("units", units as f64)));
            }
        }
        results
    }

    /// A figure of each round.
    fn rounds(&self, index: usize, of: impl Fn(&Figures) -> Option<f64>) -> Vec<Option<f64>> {
        self.0[index]
            .iter()
            .map(|figures| of(figures.as_ref()?))
            .collect()
    }

    /// A figure as a multiple of that of the same binary without a profiler, round by round.
    fn ratios(&self, index: usize, of: fn(&Figures) -> Option<f64>) -> Vec<Option<f64>> {
        let with = self.rounds(index, of);
        let without = self.rounds(base(index), of);
        with.iter()
            .zip(&without)
            .map(|(with, without)| Some((*with)? / (*without)?))
            .collect()
    }

    fn table(&self) -> String {
        let mut text =
            "| | CPU a unit, µs | added CPU | added, from start to end of the process | \
                        added time | profiler's threads, % of a processor | root reached, % | \
                        memory, MB, more than without | of it private |\n\
                        |---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
                .to_owned();
        for (index, contestant) in CONTESTANTS.iter().enumerate() {
            if self.0[index].iter().all(Option::is_none) {
                continue;
            }
            let is_base = base(index) == index;
            let added = |of| {
                if is_base {
                    return "–".to_owned();
                }
                cell(&self.ratios(index, of), percent_more)
            };
            let memory = |name| {
                if is_base {
                    return cell(
                        &self.rounds(index, |figures| megabytes(figures, name)),
                        median,
                    );
                }
                cell(&self.more_megabytes(index, name), median)
            };
            let cells = [
                cell(
                    &self.rounds(index, |figures| Some(unit_cpu(figures)? / 1e3)),
                    plain,
                ),
                added(unit_cpu),
                added(|figures| figures.ratio("whole_cpu_ns", "units_done")),
                added(|figures| figures.get("wall_ns")),
                self.own_threads(index),
                cell(&self.rounds(index, root_reached), median),
                memory("memory_bytes"),
                memory("memory_private_bytes"),
            ];
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} | {} |", contestant.name, cells.join(" | "));
        }
        text + "\n(Memory in lines without a profiler is that of the process.)\n\n"
    }

    /// CPU time of the agent's threads; peers have no threads of their own.
    fn own_threads(&self, index: usize) -> String {
        if !CONTESTANTS[index].profiler.starts_with("emberline") {
            return "–".to_owned();
        }
        let part = |name| {
            cell(
                &self.rounds(index, |figures| percent(figures, name)),
                median,
            )
        };
        format!(
            "{} sampler, {} symbolizer",
            part("sampler_cpu_ns"),
            part("symbolizer_cpu_ns")
        )
    }

    /// Memory of the process above the median of the same binary without a profiler.
    fn more_megabytes(&self, index: usize, name: &str) -> Vec<Option<f64>> {
        let without: Vec<f64> = self
            .rounds(base(index), |figures| megabytes(figures, name))
            .into_iter()
            .flatten()
            .collect();
        if without.is_empty() {
            return Vec::new();
        }
        let without = Timings::new(without).summary().median;
        self.rounds(index, |figures| Some(megabytes(figures, name)? - without))
    }

    /// `calls` is the CPU time of a loop with the sampler's system calls.
    fn headlines(&self, calls: &[Option<f64>]) -> [Headline; 3] {
        let added = |index| cell(&self.ratios(index, unit_cpu), percent_more);
        let each = |of: &dyn Fn(usize) -> String| {
            let peers = PEERS.map(|index| format!("{}: {}", CONTESTANTS[index].name, of(index)));
            peers.join("; ")
        };
        let root = |index| cell(&self.rounds(index, root_reached), median);
        let memory = |index| cell(&self.more_megabytes(index, "memory_private_bytes"), median);
        [
            Headline {
                what: "100 Hz, 2 busy threads, whole process",
                target: "≤ +0.3 % CPU",
                before: "-0.2 %",
                measured: format!(
                    "{}; by its threads' clocks {}, % of a processor; a loop of the sampler's system calls {}",
                    added(EMBERLINE),
                    self.own_threads(EMBERLINE),
                    cell(calls, median)
                ),
                peers: each(&added),
            },
            Headline {
                what: "root reached, 2 busy threads, % of the time or samples",
                target: "≥ 99.95",
                before: "100.00",
                measured: root(EMBERLINE),
                peers: each(&root),
            },
            Headline {
                what: "private memory added, 2 busy threads, after 2.5 s",
                target: "≤ 10 MB",
                before: "43.14 MB",
                measured: format!("{} MB", memory(EMBERLINE)),
                peers: each(&memory),
            },
        ]
    }

    fn server_headline(&self) -> Headline {
        let added = |index| cell(&self.ratios(index, unit_cpu), percent_more);
        let peers = PEERS.map(|index| format!("{}: {}", CONTESTANTS[index].name, added(index)));
        let part = |name| {
            cell(
                &self.rounds(EMBERLINE_UNLIMITED, |it| percent(it, name)),
                median,
            )
        };
        Headline {
            what: "200-thread server, 100 Hz: CPU added with the limit; sampler without it",
            target: "≤ +1 %; ≤ 3 %",
            before: "+2.9 %; 6.6–12 %",
            measured: format!(
                "{} (by its threads' clocks {}, % of a processor); {} %",
                added(EMBERLINE),
                self.own_threads(EMBERLINE),
                part("sampler_cpu_ns")
            ),
            peers: peers.join("; "),
        }
    }
}

/// The contestant with the same binary and without a profiler.
fn base(index: usize) -> usize {
    CONTESTANTS
        .iter()
        .position(|other: &Contestant| other.binary == CONTESTANTS[index].binary)
        .expect("it is one itself")
}

fn unit_cpu(figures: &Figures) -> Option<f64> {
    figures.ratio("cpu_ns", "units")
}

fn percent(figures: &Figures, name: &str) -> Option<f64> {
    Some(figures.ratio(name, "wall_ns")? * 100.0)
}

fn root_reached(figures: &Figures) -> Option<f64> {
    Some(figures.ratio("found_with_root", "found_total")? * 100.0)
}

fn megabytes(figures: &Figures, name: &str) -> Option<f64> {
    Some(figures.get(name)? / 1e6)
}

fn median(took: &Timings) -> String {
    format!("{:.2}", took.summary().median)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one contestant and of its reference.
    fn results(index: usize, without: &[&str], with: &[&str]) -> Results {
        let read = |rounds: &[&str]| -> Vec<Option<Figures>> {
            rounds
                .iter()
                .map(|text| Figures::parse(text).ok())
                .collect()
        };
        let mut results = Results(CONTESTANTS.iter().map(|_| Vec::new()).collect());
        results.0[base(index)] = read(without);
        results.0[index] = read(with);
        results
    }

    #[test]
    fn each_contestant_refers_to_its_own_binary_without_a_profiler() {
        for (index, contestant) in CONTESTANTS.iter().enumerate() {
            let base = &CONTESTANTS[base(index)];
            assert_eq!(base.profiler, "none", "{}", contestant.name);
            assert_eq!(base.binary, contestant.binary);
        }
        assert_eq!(CONTESTANTS[EMBERLINE].profiler, "emberline");
        assert_eq!(
            CONTESTANTS[EMBERLINE_UNLIMITED].profiler,
            "emberline-unlimited"
        );
        let peers = PEERS.map(|index| (CONTESTANTS[index].profiler, CONTESTANTS[index].hertz));
        assert_eq!(peers, [(PERF, 100), ("pprof", 100), ("pprof", 100)]);
    }

    #[test]
    fn ratios_are_per_round_and_omit_lost_rounds() {
        let results = results(
            EMBERLINE,
            &[
                "cpu_ns 100\nunits 10",
                "cpu_ns 200\nunits 10",
                "cpu_ns 100\nunits 10",
            ],
            &["cpu_ns 101\nunits 10", "cpu_ns 210\nunits 10", "lost"],
        );
        assert_eq!(
            results.ratios(EMBERLINE, unit_cpu),
            [Some(1.01), Some(1.05), None]
        );
    }

    #[test]
    fn memory_is_the_excess_over_the_median_without_a_profiler() {
        let without = [
            "memory_bytes 1000000",
            "memory_bytes 3000000",
            "memory_bytes 2000000",
        ];
        let results = results(EMBERLINE, &without, &["memory_bytes 5000000"]);
        assert_eq!(
            results.more_megabytes(EMBERLINE, "memory_bytes"),
            [Some(3.0)]
        );
    }

    #[test]
    fn the_handler_row_needs_an_agent_that_measures_its_handler() {
        let silent = results(EMBERLINE, &[], &["cpu_ns 1"]);
        assert!(handler_row(&silent).is_none());
        let measuring = results(EMBERLINE, &[], &["handler_p50_ns 550\nhandler_p99_ns 2900"]);
        let measured = handler_row(&measuring).unwrap().measured;
        assert_eq!(measured, "0.55 (0.55–0.55) and 2.90 (2.90–2.90) µs");
    }

    #[test]
    fn a_window_is_a_whole_number_of_trials() {
        let window = Duration::from_secs(2);
        assert_eq!(units_in(window, 1_000, 0.3e9), 7_000);
        assert_eq!(units_in(window, 1_000, 9e9), 1_000);
    }
}
