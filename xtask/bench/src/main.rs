//! Measurements against peers, the long crash and chaos tests, and the generators of the wire's code and
//! of the header for C: `cargo xtask bench`, `crash`, `chaos`, `proto` and `header` start this program.
//!
//! The machines that run measurements are shared and noisy, so contestants take turns in one run,
//! and the ratio is what counts.

mod chaos;
mod cluster;
mod contest;
mod crash;
mod growth;
mod header;
mod hostile;
mod ingest;
mod proto;
mod record;
mod sampler;
mod scale;
mod stacks;
mod store;
mod symbols;
mod tasks;
mod trie;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands that need Emberline's own crates.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures against a peer in one run and prints ratios. docs/BENCHMARKS.md keeps the results.
    #[command(subcommand)]
    Bench(Bench),
    /// Kills a real collector under load, again and again, and compares its answers with an
    /// independent record.
    Crash(crash::Options),
    /// Starts a bucket, two collectors, a fleet and a Ballista cluster on this machine, until Ctrl-C.
    Cluster(cluster::Options),
    /// Kills, pauses, cuts off and replaces collectors with stores in a bucket, while real workers move between
    /// them, and compares the workers' own accounts with all answers.
    Chaos(chaos::Options),
    /// Writes the Rust code of profiler-core/proto/emberline.proto (no protoc needed).
    Proto,
    /// Writes agent/c/include/emberline.h from the functions of agent/c.
    Header,
    /// The peer of the collector in `bench ingest`.
    #[command(hide = true)]
    Serve(ingest::bare::Options),
    /// Our part of `bench symbols`.
    #[command(hide = true)]
    SymbolLookup(symbols::LookupOptions),
}

/// Benchmark to run.
#[derive(Subcommand)]
enum Bench {
    /// Counting and merging stacks: profiler-core's `CallTrie` and `Delta` against a `HashMap`.
    Trie(trie::Options),
    /// Overhead of the sampler in a program, compared with no profiler, the pprof crate and perf.
    Sampler(sampler::Options),
    /// Cost of a fleet for the collector: pairs per second and core, ack latency of 10,000 agents,
    /// bytes on the wire against gzipped pprof.
    Ingest(ingest::Options),
    /// Memory, time and disk as a fleet grows: the same pushes by ever more senders, sessions of one program, and
    /// nine queries.
    Growth(growth::Options),
    /// Unchanged programs under `emberline record`, next to perf, gperftools, py-spy and `node --cpu-prof`.
    Record(record::Options),
    /// Size and query time of the store: a synthetic hour, a month, a year, 100 workers, millions
    /// of tasks.
    Store(store::Options),
    /// Sums over an hour by our merge, by DataFusion, by DuckDB and on a Ballista cluster, on the same files.
    Scale(scale::Options),
    /// An honest agent and an honest reader alone, and next to each attack of the security review.
    Hostile(hostile::Options),
    /// CPU time of the page in a browser: load, zoom and search of up to a million nodes, lanes of
    /// many tasks; against d3-flame-graph and speedscope.
    Page,
    /// Names for addresses: a symbol file against `addr2line` and `llvm-symbolizer`.
    Symbols(symbols::Options),
    /// Cost of a task for the thread that starts and stops it, compared with a span of tracing; its
    /// bytes on the wire; exact totals at a million tasks a minute.
    Tasks(tasks::Options),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(Bench::Trie(options)) => trie::run(&options),
        Command::Bench(Bench::Sampler(options)) => sampler::run(&options),
        Command::Bench(Bench::Ingest(options)) => ingest::run(&options),
        Command::Bench(Bench::Growth(options)) => growth::run(&options),
        Command::Bench(Bench::Record(options)) => record::run(&options),
        Command::Bench(Bench::Store(options)) => store::run(&options),
        Command::Bench(Bench::Scale(options)) => scale::run(&options),
        Command::Bench(Bench::Hostile(options)) => hostile::run(&options),
        Command::Bench(Bench::Page) => {
            xtask::emberline().and_then(|path| xtask::page::bench(&path))
        }
        Command::Bench(Bench::Symbols(options)) => symbols::run(&options),
        Command::Bench(Bench::Tasks(options)) => tasks::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Crash(options) => crash::run(&options),
        Command::Chaos(options) => chaos::run(&options),
        Command::Proto => proto::write(),
        Command::Header => header::write(),
        Command::Serve(options) => ingest::bare::serve(&options),
        Command::SymbolLookup(options) => symbols::lookup(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
