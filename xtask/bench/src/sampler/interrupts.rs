//! System calls of the program that fail with `EINTR` because of a profiler.

use std::fmt::Write;
use std::time::Duration;

use super::programs::{Binary, PERF, Programs, Run};
use super::{Headline, Plan, Section};

const THREADS: usize = 37;
/// Windows per run: interrupts may be rare.
const WINDOWS: u32 = 2;

/// Name, binary, profiler and rate.
const CONTESTANTS: [(&str, Binary, &str, u32); 8] = [
    ("no profiler", Binary::Load, "none", 100),
    ("emberline, 100 Hz", Binary::Load, "emberline", 100),
    ("emberline, 1,000 Hz", Binary::Load, "emberline", 1_000),
    ("perf record -F 100 -g", Binary::Load, PERF, 100),
    ("pprof (backtrace), 100 Hz", Binary::Pprof, "pprof", 100),
    ("pprof (backtrace), 1,000 Hz", Binary::Pprof, "pprof", 1_000),
    ("pprof (framehop), 100 Hz", Binary::Framehop, "pprof", 100),
    (
        "pprof (framehop), 1,000 Hz",
        Binary::Framehop,
        "pprof",
        1_000,
    ),
];

/// Measures and prints.
pub(super) fn measure(programs: &Programs, plan: Plan) -> Section {
    eprintln!("==> interrupted system calls");
    let mut text = format!(
        "### Interrupted system calls\n\n{THREADS} threads in poll, nanosleep and timed futex waits, \
         next to 2 that compute, for {:?}.\n\n| | calls | ended by EINTR |\n|---|--:|--:|\n",
        plan.window * WINDOWS,
    );
    let mut ours = Vec::new();
    let mut peers = Vec::new();
    for (name, binary, profiler, hertz) in CONTESTANTS {
        let run = Run {
            load: "waits",
            profiler,
            hertz,
            threads: THREADS,
            units: 0,
            settle: Duration::ZERO,
            window: plan.window * WINDOWS,
        };
        let Some(figures) = programs.try_run(binary, &run) else {
            continue;
        };
        let [made, interrupted] =
            ["calls", "interrupted"].map(|name| figures.get(name).unwrap_or(f64::NAN));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {made} | {interrupted} |");
        match profiler {
            "none" => {}
            "emberline" => ours.push(format!("{name}: {interrupted} of {made}")),
            _ if hertz == 100 => peers.push(format!("{name}: {interrupted} of {made}")),
            _ => {}
        }
    }
    let headline = Headline {
        what: "EINTR in blocked threads of the program",
        target: "0",
        before: "0",
        measured: ours.join("; "),
        peers: peers.join("; "),
    };
    Section {
        headlines: vec![headline],
        text,
    }
}
