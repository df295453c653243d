//! `cargo xtask bench …`: measurements beside a peer. The machines that run them are shared and
//! noisy, so contestants take turns in one run and what counts is the ratio.

mod contest;
mod sampler;
mod stacks;
mod trie;

use anyhow::Result;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Counting and merging stacks: core's `CallTrie` and `Delta` beside a plain `HashMap`.
    Trie(trie::Options),
    /// What the sampler costs a program, beside no profiler, the pprof crate and perf.
    Sampler(sampler::Options),
}

impl Bench {
    /// Measures and prints.
    ///
    /// # Errors
    /// If a measurement cannot be made.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Bench::Trie(options) => trie::run(&options),
            Bench::Sampler(options) => sampler::run(&options),
        }
    }
}
