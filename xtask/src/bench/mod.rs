//! `cargo xtask bench …`: measurements beside a peer. The machines that run them are shared and
//! noisy, so contestants take turns in one run and what counts is the ratio.

mod contest;
pub(crate) mod ingest;
mod sampler;
mod stacks;
mod store;
mod tasks;
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
    /// What the page costs its reader's processor: load, zoom and search of up to a million nodes,
    /// lanes of many tasks; beside d3-flame-graph and speedscope.
    Page,
    /// What a task costs the thread that starts and stops it, beside a span of tracing; its bytes on the
    /// wire; and whether a million a minute keep their totals.
    Tasks(tasks::Options),
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
            Bench::Page => crate::test::page::bench(&crate::emberline()?),
            Bench::Tasks(options) => tasks::run(&options),
        }
    }
}
