//! Local diagnostics: a progress bar while tasks run, then a page with when each ran and what the
//! process used. No agent, no collector.
//!
//! The first argument is the file to write; without one it is in the directory of temporary files.

use std::path::PathBuf;

use emberline_agent::task;
use emberline_diagnostics::{
    self as diagnostics, Profiler, ProgressBar, ResourceProfiler, visualize,
};

const BLOCKS: u64 = 40;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args_os().nth(1).map_or_else(
        || std::env::temp_dir().join("emberline-diagnostics.html"),
        PathBuf::from,
    );

    let profiler = Profiler::new();
    let resources = ResourceProfiler::new();
    {
        let _profiler = diagnostics::scope(profiler.clone());
        let _resources = diagnostics::scope(resources.clone());
        let _bar = diagnostics::scope(ProgressBar::new());
        diagnostics::run("sums").expect("sum", BLOCKS).during(work);
    }
    visualize(&[&profiler, &resources], &file)?;
    println!("{} tasks; see {}", profiler.results().len(), file.display());
    Ok(())
}

fn work() {
    std::thread::scope(|threads| {
        for first in 0..2 {
            threads.spawn(move || (first..BLOCKS).step_by(2).for_each(sum));
        }
    });
}

fn sum(block: u64) {
    let _task = task("sum").key(format!("sum-{block}")).start();
    let sum = (0..10_000_000).fold(block, |sum: u64, next| sum.rotate_left(1) ^ next);
    std::hint::black_box(sum);
}
