//! The load program with the pprof crate in it.

use std::process::ExitCode;

use anyhow::Result;
use load::{Peer, Running, Totals};
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

/// As its documentation recommends: no samples from within libraries that its handler might call.
const BLOCKLIST: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

fn main() -> ExitCode {
    load::main(&[Peer {
        name: "pprof",
        start,
    }])
}

fn start(hertz: u32) -> Result<Box<dyn Running>> {
    let hertz = i32::try_from(hertz)?;
    let guard = ProfilerGuardBuilder::default()
        .frequency(hertz)
        .blocklist(&BLOCKLIST)
        .build()?;
    Ok(Box::new(Pprof(guard)))
}

struct Pprof(ProfilerGuard<'static>);

impl Running for Pprof {
    fn finish(self: Box<Self>) -> Result<Totals> {
        let report = self.0.report().build()?;
        let mut found = Totals::default();
        for (frames, count) in &report.data {
            let count = u64::try_from(*count)?;
            found.total += count;
            // The names that the standard library gives the outermost Rust function of a thread.
            let is_root = |name: &str| name.contains("thread_start") || name.contains("lang_start");
            if frames
                .frames
                .iter()
                .flatten()
                .any(|symbol| is_root(&symbol.name()))
            {
                found.with_root += count;
            }
        }
        Ok(found)
    }
}
