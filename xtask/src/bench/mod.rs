//! `cargo xtask bench …`: measurements beside a peer. The machines that run them are shared and
//! noisy, so contestants take turns in one process and what counts is the ratio.

mod contest;
mod stacks;
mod trie;

use anyhow::Result;

/// What to measure.
#[derive(clap::Subcommand)]
pub(crate) enum Bench {
    /// Counting and merging stacks: core's `CallTrie` and `Delta` beside a plain `HashMap`.
    Trie(trie::Options),
}

impl Bench {
    /// Measures and prints.
    ///
    /// # Errors
    /// If a measurement cannot be made.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Bench::Trie(options) => trie::run(&options),
        }
    }
}
