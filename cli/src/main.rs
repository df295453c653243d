//! `emberline`: arguments in, text out.
//!
//! ```text
//! args ─▶ command ─▶ client ─▶ HTTP API of a collector ─▶ view, grid ─▶ output
//!            ├─▶ import ─▶ the agents' stream of a collector
//!            └─▶ collector, fleet (serve, demo)
//! ```
//!
//! Data goes to stdout or a file, everything else to stderr. Exit codes: 0 success, 2 invalid input,
//! 1 any other error; of `serve` also 70 after a hang and 71 if a stop is cut off.

mod args;
mod attach;
mod client;
mod command;
mod config;
mod credentials;
mod demo_tokens;
mod doctor;
mod exit;
mod format;
mod grid;
mod import;
mod launch;
mod logging;
mod otlp;
mod output;
mod private_folder;
mod progress;
mod report;
mod service_manager;
mod signals;
mod trace;
mod view;
mod watchdog;
mod zone;

use std::process::ExitCode;

use tracing_subscriber::filter::LevelFilter;

use args::{Cli, Command, LogFormat};

/// A collector frees much of its memory on other threads than those that allocated it. With the C
/// library's allocator that takes a third of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    exit::code(start())
}

fn start() -> anyhow::Result<()> {
    let Some(cli) = config::parse()? else {
        return Ok(());
    };
    #[cfg(feature = "s3")]
    collector::store::use_s3_client();
    zone::select(cli.utc);
    grid::select_width(cli.wide);
    match &cli.command {
        Command::Serve(serve) => {
            logging::start(LevelFilter::INFO, serve.log_format)?;
            disable_huge_pages();
        }
        _ => logging::start(LevelFilter::WARN, LogFormat::Text)?,
    }
    run(cli)
}

/// Disables huge pages: the kernel clears two megabytes where the allocator needs a few small blocks,
/// releases them and needs them again. That took a fifth of a busy collector's time, and more memory.
fn disable_huge_pages() {
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "huge pages could not be disabled");
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Demo(args) => command::demo::run(args),
        Command::Serve(args) => command::server::serve::run(*args),
        Command::Profile(args) => command::profile::run(&args),
        Command::Tasks(args) => command::tasks::run(&args),
        Command::Report(args) => command::report::run(&args),
        Command::Record(args) => command::record::run(&args),
        Command::Compare(args) => command::compare::run(&args),
        Command::Time(args) => command::fleet::time::run(&args),
        Command::Transfers(args) => command::fleet::transfers::run(&args),
        Command::Resources(args) => command::fleet::resources::run(&args),
        Command::Watch(args) => command::fleet::watch::run(&args),
        Command::Import(args) => command::import::run(&args),
        Command::Runs(args) => command::fleet::runs::list(&args),
        Command::Run(args) => command::run::run(&args),
        Command::ThreadDump(args) => command::fleet::thread_dump::run(&args),
        Command::Workers(args) => command::fleet::workers::run(&args),
        Command::Doctor(args) => command::fleet::doctor::run(&args),
        Command::Store(args) => command::server::store::run(&args),
        Command::Sql(args) => command::sql::run(&args),
        Command::Symbols(args) => command::symbols::run(&args),
        Command::Tls(args) => command::access::tls::run(&args),
        Command::Token(args) => command::access::token::run(&args),
        Command::Completions(args) => command::reference::completions(&args),
        Command::Man(args) => command::reference::man(&args),
        Command::FleetWorker(args) => {
            examples::fleet::worker_main(args.index, args.workers, &args.collector)
        }
    }
}
