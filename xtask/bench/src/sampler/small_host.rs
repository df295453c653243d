//! A minute of a small program with two busy threads: memory and the agent's steady CPU time; and the
//! names of a short program.

use std::time::Duration;

use super::child::Figures;
use super::programs::{Binary, Programs, Run};
use super::{Headline, Plan, Section, cell, plain};

const THREADS: usize = 2;
/// Short programs.
const ROUNDS: usize = 3;

/// Measures; the peers' memory is in the table of whole programs.
pub(super) fn measure(programs: &Programs, plan: Plan) -> Section {
    eprintln!(
        "==> a small program, for {:?}",
        plan.host_settle + plan.host_window
    );
    let run = |profiler, settle, window| {
        let load = "running";
        let run = Run {
            load,
            profiler,
            hertz: 100,
            threads: THREADS,
            units: 0,
            settle,
            window,
        };
        programs.try_run(Binary::Load, &run)
    };
    let without = run("none", Duration::ZERO, plan.host_settle);
    let with = run("emberline", plan.host_settle, plan.host_window);
    let short: Vec<Option<f64>> = (0..ROUNDS)
        .map(|_| {
            let figures = run("emberline", Duration::ZERO, plan.short_window)?;
            Some(figures.get("naming_cpu_ns")? / 1e9)
        })
        .collect();
    let added = |name| {
        let of = |figures: &Option<Figures>| figures.as_ref()?.get(name);
        shown(
            of(&with)
                .zip(of(&without))
                .map(|(with, without)| (with - without) / 1e6),
        )
    };
    let percent = |name| {
        let ratio = with
            .as_ref()
            .and_then(|figures| figures.ratio(name, "wall_ns"));
        shown(ratio.map(|ratio| ratio * 100.0))
    };
    let headline = |what, target, before, measured| Headline {
        what,
        target,
        before,
        measured,
        peers: "–".into(),
    };
    let headlines = vec![
        headline(
            "private memory added to a small program, after 60 s",
            "≤ 10 MB",
            "45–52 MB",
            added("memory_private_bytes") + " MB",
        ),
        headline(
            "resident memory (RSS) added, likewise",
            "≤ 25 MB",
            "63–78 MB",
            added("memory_bytes") + " MB",
        ),
        headline(
            "CPU time for names in a short program (3 s of work)",
            "≤ 0.05 s",
            "0.2–0.3 s",
            cell(&short, plain) + " s",
        ),
        headline(
            "sampler, 2 busy threads, 100 Hz, % of a processor",
            "≤ 0.2 %",
            "0.39 %",
            percent("sampler_cpu_ns") + " %",
        ),
        headline(
            "symbolizer, 2 busy threads, steady, % of a processor",
            "≤ 0.1 %",
            "0.58 %",
            percent("symbolizer_cpu_ns") + " %",
        ),
    ];
    Section {
        headlines,
        text: String::new(),
    }
}

fn shown(figure: Option<f64>) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.2}"))
}
