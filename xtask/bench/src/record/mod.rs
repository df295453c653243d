//! `cargo xtask bench record`: unchanged programs under `emberline record` and under other profilers, in turns.
//!
//! A program's CPU time is that of all its processes and of the profiler's, as the kernel counts them for their parent.

mod cost;
mod hot;
mod profilers;
mod programs;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use self::cost::{Ran, median};
use self::hot::{Profile, distance};
use self::profilers::{Profiler, Tools};
use self::programs::Program;
use crate::sampler::machine::{describe, load_average};

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs of each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only programs with these names.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The program `emberline`, with its library next to it. Default: the release build.
    #[arg(long, value_name = "FILE")]
    emberline: Option<PathBuf>,
    /// The library of gperftools.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/usr/lib/x86_64-linux-gnu/libprofiler.so.0"
    )]
    gperftools: PathBuf,
    /// The program `py-spy`.
    #[arg(long, value_name = "FILE", default_value = "py-spy")]
    py_spy: PathBuf,
}

/// The rounds of one program under one profiler.
struct Rounds {
    profiler: Profiler,
    ran: Vec<Ran>,
    profile: Option<Profile>,
    file_bytes: Option<u64>,
    has_same_output: bool,
}

/// Measures and prints two tables.
///
/// # Errors
/// If a program fails without a profiler, or `emberline` does with it.
pub(crate) fn run(options: &Options) -> Result<()> {
    let load_before = load_average();
    let emberline = match &options.emberline {
        Some(file) => file.clone(),
        None => xtask::emberline()?,
    };
    let folder = tempfile::tempdir()?;
    let tools = Tools::start(
        emberline,
        options.gperftools.clone(),
        options.py_spy.clone(),
    )?;
    let mut next_to_peers = Vec::new();
    let mut all = Vec::new();
    for (index, program) in programs::ALL.iter().enumerate() {
        let is_wanted =
            options.only.is_empty() || options.only.iter().any(|name| name == program.name);
        if !is_wanted {
            continue;
        }
        eprintln!("==> {}", program.name);
        // Its name may have a space.
        let work = folder.path().join(format!("program-{index}"));
        if let Err(missing) = program.prepare(&work) {
            all.push(format!(
                "| {} | | not measured: {missing:#} | | | |",
                program.name
            ));
            continue;
        }
        let rounds = measure(program, &tools, &work, options.rounds)
            .with_context(|| format!("measuring {}", program.name))?;
        all.push(row_of_all(program, &rounds));
        if program.has_peers() {
            next_to_peers.extend(rows_next_to_peers(program, &rounds));
        }
    }
    println!("{}\n", describe(&load_before));
    println!(
        "| program | profiler | CPU added | wall added | roots | distance | size, KB | off-CPU |\n\
         |---|---|--:|--:|--:|--:|--:|---|"
    );
    next_to_peers.iter().for_each(|row| println!("{row}"));
    println!(
        "\n| program | CPU s alone | hottest function | CPU added | wall added | exit and output |\n\
         |---|--:|---|--:|--:|---|"
    );
    all.iter().for_each(|row| println!("{row}"));
    Ok(())
}

/// Runs a program without a profiler and with each, in turns.
fn measure(program: &Program, tools: &Tools, work: &Path, count: u32) -> Result<Vec<Rounds>> {
    let mut all: Vec<Rounds> = profilers::of(program, tools)
        .into_iter()
        .map(|profiler| Rounds {
            profiler,
            ran: Vec::new(),
            profile: None,
            file_bytes: None,
            has_same_output: true,
        })
        .collect();
    // The first turn fills caches.
    for round in 0..=count {
        let mut alone = None;
        for rounds in &mut all {
            let Some(ran) = tools.run(rounds.profiler, program, work)? else {
                continue;
            };
            let expected = alone.get_or_insert_with(|| (ran.code, ran.output.clone()));
            rounds.has_same_output &= *expected == (ran.code, ran.output.clone());
            if round == 0 {
                continue;
            }
            if let Some(profile) = tools.profile(rounds.profiler, work)? {
                rounds.profile.get_or_insert_default().add_all(profile);
            }
            rounds.file_bytes = tools.file_bytes(rounds.profiler, work);
            rounds.ran.push(ran);
        }
    }
    Ok(all)
}

/// A median with the least and the most, in percent more than alone.
fn added(rounds: &Rounds, alone: &Rounds, of: impl Fn(&Ran) -> f64) -> String {
    let pairs = rounds.ran.iter().zip(&alone.ran);
    let mut percents: Vec<f64> = pairs
        .map(|(with, without)| (of(with) / of(without) - 1.0) * 100.0)
        .collect();
    if percents.is_empty() {
        return "failed".to_owned();
    }
    let middle = median(&mut percents);
    format!(
        "{middle:.1} % ({:.1}–{:.1})",
        percents[0],
        percents[percents.len() - 1]
    )
}

fn rows_next_to_peers(program: &Program, all: &[Rounds]) -> Vec<String> {
    let Some((alone, others)) = all.split_first() else {
        return Vec::new();
    };
    let reference = all
        .iter()
        .find(|rounds| rounds.profiler == Profiler::PerfFine)
        .and_then(|rounds| rounds.profile.as_ref());
    let rows = others
        .iter()
        .filter(|rounds| rounds.profiler != Profiler::PerfFine)
        .map(|rounds| {
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            let profile = rounds.profile.as_ref();
            let roots = profile.map(|profile| format!("{:.1} %", profile.roots_percent()));
            let distance = profile
                .zip(reference)
                .filter(|_| program.has_shared_names())
                .map(|(profile, reference)| format!("{:.1}", distance(profile, reference)));
            let size = rounds
                .file_bytes
                .map(|bytes| format!("{:.0}", bytes as f64 / 1e3));
            format!(
                "| {} | {}{} | {} | {} | {} | {} | {} | {} |",
                program.name,
                rounds.profiler.name(),
                if rounds.has_same_output {
                    ""
                } else {
                    ", which changes its output"
                },
                added(rounds, alone, Ran::cpu_per_unit),
                added(rounds, alone, Ran::wall_per_unit),
                or_none(roots),
                or_none(distance),
                or_none(size),
                rounds.profiler.off_cpu()
            )
        });
    rows.collect()
}

fn row_of_all(program: &Program, all: &[Rounds]) -> String {
    let alone = &all[0];
    let Some(ours) = all.iter().find(|rounds| rounds.profiler == program.ours()) else {
        return format!("| {} | | not measured | | | |", program.name);
    };
    let hottest = ours
        .profile
        .as_ref()
        .and_then(Profile::hottest)
        .map_or_else(
            || "none".to_owned(),
            |(name, percent)| format!("`{name}` {percent:.0} %"),
        );
    let same = if ours.has_same_output && !ours.ran.is_empty() {
        "unchanged"
    } else {
        "**changed**"
    };
    format!(
        "| {} | {:.2} | {hottest} | {} | {} | {same} |",
        program.name,
        median(&mut alone.ran.iter().map(Ran::cpu_seconds).collect::<Vec<_>>()),
        added(ours, alone, Ran::cpu_per_unit),
        added(ours, alone, Ran::wall_per_unit)
    )
}
