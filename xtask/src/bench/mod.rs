//! `cargo xtask bench …`: measurements beside a peer. The machines that run them are shared and
//! noisy, so contestants take turns in one run and what counts is the ratio.

mod contest;
mod ingest;
mod sampler;
mod stacks;
mod store;
mod trie;

use anyhow::Result;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Counting and merging stacks: core's `CallTrie` and `Delta` beside a plain `HashMap`.
    Trie(trie::Options),
    /// What the sampler costs a program, beside no profiler, the pprof crate and perf.
    Sampler(sampler::Options),
    /// What a fleet costs the collector: pairs a second and core, ack latency of 10,000 agents, bytes
    /// on the wire beside gzip'ed pprof.
    Ingest(ingest::Options),
    /// What the store takes and how soon it answers: a synthetic hour, a month, a year, 100 workers,
    /// millions of tasks.
    Store(store::Options),
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
            Bench::Ingest(options) => ingest::run(&options),
            Bench::Store(options) => store::run(&options),
        }
    }
}
