//! The cost of a tick, and what each thread adds to it, by the number of threads and their activity.
//!
//! Measures the CPU time of the sampler's thread in a process with many threads of one kind, minus its
//! CPU time without such threads in the same round.

use std::fmt::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::child::Figures;
use super::programs::{Binary, Programs, Run};
use super::{Headline, Plan, Section, cell, plain};

const HERTZ: u32 = 100;
/// The numbers of threads in the targets.
const SOME_THREADS: usize = 100;
const MANY_THREADS: usize = 1_000;
/// Upper bound on starting a thread and reading it for the first time.
const SETTLE_EACH: Duration = Duration::from_micros(200);

/// By round; `None` if the run was lost or made no tick.
type Rounds = Vec<Option<f64>>;

/// Nanoseconds per tick without threads of the load.
#[derive(Default)]
struct Alone {
    bare: Rounds,
    sampler: Rounds,
    /// The excess of the sampler over the bare loop.
    more: Rounds,
}

/// Nanoseconds per thread and tick, at one number of threads.
#[derive(Default)]
struct Cost {
    threads: usize,
    idle: Rounds,
    waking: Rounds,
    running: Rounds,
    /// Ticks per second while all were running.
    running_ticks: Rounds,
    /// The same of a bare loop: what the system lets any thread do.
    bare_ticks: Rounds,
    /// Ticks per second among running threads of ordinary priority.
    crowd_ticks: Rounds,
    /// The same of a bare loop that takes as much CPU time at each tick.
    equal_crowd_ticks: Rounds,
}

/// Measures and prints.
pub(super) fn measure(programs: &Programs, plan: Plan) -> Result<Section> {
    let mut idle_machine = Alone::default();
    let mut awake_machine = Alone::default();
    let mut costs: Vec<Cost> = plan
        .thread_counts
        .iter()
        .map(|threads| Cost {
            threads: *threads,
            ..Cost::default()
        })
        .collect();
    for round in 1..=plan.thread_rounds {
        eprintln!("==> threads, round {round} of {}", plan.thread_rounds);
        idle_machine.measure(programs, plan);
        let _awake = BusyProcessors::start(programs)?;
        let alone_ns = awake_machine.measure(programs, plan);
        for cost in &mut costs {
            cost.measure(programs, plan, alone_ns);
        }
    }
    Ok(section(&idle_machine, &awake_machine, &costs, plan))
}

/// Keeps all processors from idling, so that a wake-up costs the same in all runs.
struct BusyProcessors(Vec<Child>);

impl BusyProcessors {
    fn start(programs: &Programs) -> Result<BusyProcessors> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut busy = BusyProcessors(Vec::new());
        for _ in 0..processors {
            let mut command = programs
                .command(Binary::Load, &run("awake", 0, Duration::ZERO))
                .context("the load program is built")?;
            busy.0.push(command.stdout(Stdio::null()).spawn()?);
        }
        Ok(busy)
    }
}

impl Drop for BusyProcessors {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // These never end by themselves.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(load: &'static str, threads: usize, window: Duration) -> Run {
    // The CPU limit would skip ticks.
    let profiler = "emberline-unlimited";
    Run {
        load,
        profiler,
        hertz: HERTZ,
        threads,
        units: 0,
        settle: Duration::ZERO,
        window,
    }
}

/// A run that starts to measure once all threads are known.
fn settled_run(plan: Plan, load: &'static str, threads: usize) -> Run {
    let extra = SETTLE_EACH * u32::try_from(threads).unwrap_or(u32::MAX);
    Run {
        settle: plan.thread_settle + extra,
        ..run(load, threads, plan.thread_window)
    }
}

fn figures(programs: &Programs, plan: Plan, load: &'static str, threads: usize) -> Figures {
    programs
        .try_run(Binary::Load, &settled_run(plan, load, threads))
        .unwrap_or_default()
}

fn tick_ns(figures: &Figures) -> Option<f64> {
    figures.ratio("sampler_cpu_ns", "sampler_ticks")
}

impl Alone {
    /// Measures one round; returns the sampler's nanoseconds per tick.
    fn measure(&mut self, programs: &Programs, plan: Plan) -> Option<f64> {
        let bare = tick_ns(&figures(programs, plan, "bare", 0));
        let sampler = tick_ns(&figures(programs, plan, "idle", 0));
        self.bare.push(bare);
        self.sampler.push(sampler);
        self.more
            .push(sampler.zip(bare).map(|(sampler, bare)| sampler - bare));
        sampler
    }
}

impl Cost {
    fn measure(&mut self, programs: &Programs, plan: Plan, alone_ns: Option<f64>) {
        let threads = self.threads as f64;
        let idle = figures(programs, plan, "idle", self.threads);
        let idle_ns = each(tick_ns(&idle), alone_ns, threads);
        self.idle.push(idle_ns);
        let waking = figures(programs, plan, "waking", self.threads);
        let woken = waking.ratio("wakes", "sampler_ticks");
        self.waking.push(each_woken(
            tick_ns(&waking),
            alone_ns,
            idle_ns,
            threads,
            woken,
        ));
        // A load that once did not end in time would not end the next time, and takes long to fail.
        if !self.running_ticks.contains(&None) {
            let running = figures(programs, plan, "running", self.threads);
            self.running
                .push(each(tick_ns(&running), alone_ns, threads));
            self.running_ticks.push(ticks_per_second(&running));
            let bare = figures(programs, plan, "bare", self.threads);
            self.bare_ticks.push(ticks_per_second(&bare));
        }
        if !self.crowd_ticks.contains(&None) {
            let crowd = figures(programs, plan, "crowd", self.threads);
            self.crowd_ticks.push(ticks_per_second(&crowd));
            let units = tick_ns(&crowd).unwrap_or_default() as u64;
            let equal = Run {
                units,
                ..settled_run(plan, "bare-crowd", self.threads)
            };
            let equal = programs.try_run(Binary::Load, &equal).unwrap_or_default();
            self.equal_crowd_ticks.push(ticks_per_second(&equal));
        }
    }
}

fn ticks_per_second(figures: &Figures) -> Option<f64> {
    figures
        .ratio("sampler_ticks", "wall_ns")
        .map(|ticks| ticks * 1e9)
}

/// Nanoseconds that each thread added to a tick.
fn each(tick_ns: Option<f64>, alone_ns: Option<f64>, threads: f64) -> Option<f64> {
    Some((tick_ns? - alone_ns?) / threads)
}

/// Nanoseconds that each thread that woke since the last tick added; the others count as idle.
fn each_woken(
    tick_ns: Option<f64>,
    alone_ns: Option<f64>,
    idle_ns: Option<f64>,
    threads: f64,
    woken: Option<f64>,
) -> Option<f64> {
    // A thread that woke twice was found newly blocked once.
    let woken = woken?.min(threads);
    let idle = (threads - woken) * idle_ns?;
    (woken > 0.0).then_some((tick_ns? - alone_ns? - idle) / woken)
}

fn section(idle_machine: &Alone, awake_machine: &Alone, costs: &[Cost], plan: Plan) -> Section {
    let mut text = format!(
        "### Observing a thread\n\nThe sampler at {HERTZ} Hz, CPU time of its thread per tick; {} rounds \
         of {:?} each.\n\n| | bare loop, µs a tick | sampler alone, µs a tick | difference, µs |\n\
         |---|--:|--:|--:|\n",
        plan.thread_rounds, plan.thread_window,
    );
    for (name, alone) in [
        ("machine otherwise idle", idle_machine),
        ("processors kept awake", awake_machine),
    ] {
        let [bare, sampler, more] = [&alone.bare, &alone.sampler, &alone.more]
            .map(|rounds: &Rounds| cell(&thousandth(rounds), plain));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {bare} | {sampler} | {more} |");
    }
    text += "\nWhat each thread adds, with the processors kept awake; the line above is taken off:\n\n\
             | threads | idle, ns | newly blocked, ns | running, ns | ticks a second, all running | \
             ticks a second of a bare loop, all running | all running at ordinary priority | a bare loop that \
             costs as much, likewise |\n\
             |--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for cost in costs {
        let row = [
            &cost.idle,
            &cost.waking,
            &cost.running,
            &cost.running_ticks,
            &cost.bare_ticks,
            &cost.crowd_ticks,
            &cost.equal_crowd_ticks,
        ]
        .map(|rounds| cell(rounds, plain))
        .join(" | ");
        let _ = writeln!(text, "| {} | {row} |", cost.threads);
    }
    Section {
        headlines: headlines(idle_machine, awake_machine, costs),
        text,
    }
}

fn headlines(idle_machine: &Alone, awake_machine: &Alone, costs: &[Cost]) -> Vec<Headline> {
    let of = |threads: usize, rounds: fn(&Cost) -> &Rounds| {
        let cost = costs.iter().find(|cost| cost.threads == threads);
        cost.map_or_else(|| "–".to_owned(), |cost| cell(rounds(cost), plain))
    };
    let micros = |alone: &Alone| cell(&thousandth(&alone.more), plain);
    let headline = |what, target, before, measured| Headline {
        what,
        target,
        before,
        measured,
        peers: "–".into(),
    };
    vec![
        headline(
            "tick beyond a bare 10 ms loop, quiet machine; busy one",
            "≤ 8 µs",
            "18 µs; 56 µs",
            format!("{} µs; {} µs", micros(idle_machine), micros(awake_machine)),
        ),
        headline(
            "idle thread, a tick, at 1,000 threads",
            "≤ 260 ns",
            "320 ns; 752 ns busy",
            of(MANY_THREADS, |cost| &cost.idle) + " ns",
        ),
        headline(
            "newly blocked thread, at 100 threads",
            "≤ 3 µs",
            "3.8 µs",
            of(SOME_THREADS, |cost| &cost.waking) + " ns",
        ),
        headline(
            "newly blocked thread, at 1,000 threads",
            "≤ 5 µs",
            "9.4 µs",
            of(MANY_THREADS, |cost| &cost.waking) + " ns",
        ),
        headline(
            "ticks a second with 1,000 runnable threads",
            "≥ 50",
            "0–2.6",
            format!(
                "{}; a bare loop: {}",
                of(MANY_THREADS, |cost| &cost.running_ticks),
                of(MANY_THREADS, |cost| &cost.bare_ticks)
            ),
        ),
        headline(
            "the same, threads of ordinary priority",
            "≥ a bare loop that costs as much",
            "7",
            format!(
                "{}; the bare loop: {}",
                of(MANY_THREADS, |cost| &cost.crowd_ticks),
                of(MANY_THREADS, |cost| &cost.equal_crowd_ticks)
            ),
        ),
    ]
}

fn thousandth(rounds: &Rounds) -> Rounds {
    rounds
        .iter()
        .map(|round| round.map(|nanoseconds| nanoseconds / 1e3))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_adds_an_equal_part_of_the_excess() {
        assert_eq!(each(Some(50_000.0), Some(20_000.0), 100.0), Some(300.0));
        assert_eq!(each(None, Some(1.0), 10.0), None);
    }

    #[test]
    fn threads_that_did_not_wake_count_as_idle() {
        let woken = |woken| each_woken(Some(320.0), Some(20.0), Some(0.5), 200.0, woken);
        // 100 of them woke: 300 ns less 100 idle threads at half a nanosecond.
        assert_eq!(woken(Some(100.0)), Some(2.5));
        assert_eq!(woken(Some(1_000.0)), Some(1.5), "no more than there are");
        assert_eq!(woken(Some(0.0)), None);
    }
}
