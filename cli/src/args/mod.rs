//! Definition of the command line; [`crate::command`] has what each command does.

mod activity;
mod cluster;
mod compare;
mod debuginfod;
mod doctor;
mod import;
mod processes;
mod query;
mod quota;
mod record;
mod reference;
mod report;
mod retention;
mod scrape;
mod service;
mod sql;
mod store;
mod symbols;
mod tls;
mod token;

use clap::{Parser, Subcommand};

pub(crate) use activity::{
    ResourcesArgs, ResourcesFormat, RunArgs, RunCommand, RunsArgs, TimeArgs, TimeRow,
    TransfersArgs, WatchArgs,
};
pub(crate) use cluster::ClusterArgs;
pub(crate) use compare::{CompareArgs, CompareFormat, TimeSpan};
pub(crate) use debuginfod::DebuginfodUrls;
pub(crate) use doctor::{DoctorArgs, DoctorFormat};
pub(crate) use import::ImportArgs;
pub(crate) use processes::ProcessArgs;
pub(crate) use query::{
    AskArgs, FileFormat, ProfileArgs, ProfileFormat, ProfileSort, RangeArgs, RowFormat, Stacks,
    State, TaskOutcome, TasksArgs, TasksFormat, ThreadDumpArgs, Threads, ViewArgs, WorkersArgs,
    WorkersCommand, WorkersSetArgs, word,
};
pub(crate) use quota::settings as quota_settings;
pub(crate) use record::RecordArgs;
pub(crate) use reference::{CompletionsArgs, ManArgs};
pub(crate) use report::{ReportArgs, ReportCommand, ReportDiffArgs};
pub(crate) use scrape::{ScrapeArg, is_scraped_url};
pub(crate) use service::{AckArg, DemoArgs, FleetWorkerArgs, LogFormat, ServeArgs};
pub(crate) use sql::SqlArgs;
pub(crate) use store::{AdoptArgs, StoreArgs, StoreCommand, StorePlaceArgs};
pub(crate) use symbols::{
    CollectSymbolsArgs, FetchSymbolsArgs, ReduceSymbolsArgs, SymbolsArgs, SymbolsCommand,
    UploadSymbolsArgs,
};
pub(crate) use tls::{SelfSignedArgs, TlsArgs, TlsCommand};
pub(crate) use token::{
    ListTokensArgs, NewTokenArgs, RevokeTokenArgs, TokenArgs, TokenCommand, TokenPlaceArgs,
};

/// Default address of a collector.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:4747";

/// Find out where the time of a fleet of worker processes goes.
///
/// Agents inside the workers sample every thread's stack 100 times a second and record every task's
/// start and stop. A collector merges and stores their data. The other commands query it.
#[derive(Parser, Debug)]
#[command(
    name = "emberline",
    version,
    propagate_version = true,
    max_term_width = 80,
    after_help = "Start here:\n  \
        emberline demo --seconds 20   run a fleet for 20 s; then see out/profile.svg\n\n\
        Environment:\n  \
        EMBERLINE_URL         collector URL, like --url\n  \
        EMBERLINE_TOKEN_FILE  file with the token for the collector, if it needs one\n  \
        EMBERLINE_TOKEN       the token itself; a file is safer\n  \
        EMBERLINE_CA_FILE     certificate authorities for https URLs\n  \
        EMBERLINE_CERT_FILE   this client's own certificate\n  \
        EMBERLINE_KEY_FILE    its key\n  \
        EMBERLINE_LOG         error, warn, info, debug, trace, or a filter such as\n                        \
        emberline_collector=debug\n  \
        NO_COLOR              no colors on stderr, if set and not empty"
)]
pub(crate) struct Cli {
    /// Read and print times in UTC instead of the system's time zone.
    #[arg(long, global = true)]
    pub(crate) utc: bool,

    /// Print tables with all columns and longer cells. Without it they fit 80 columns, also in pipes, and
    /// a header that ends in … stands for more columns.
    #[arg(long, global = true)]
    pub(crate) wide: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a collector and a fleet of real workers as a demonstration.
    Demo(DemoArgs),
    /// Run the collector: agents and clients share one port.
    Serve(Box<ServeArgs>),
    /// Where the time went: a flame graph, stacks or a table of functions.
    Profile(ProfileArgs),
    /// Task log: start, end and outcome of each task.
    Tasks(TasksArgs),
    /// One file about a range: tasks, profiles, resources, transfers, events.
    Report(ReportArgs),
    /// Run one program with a collector of its own, and write its report.
    Record(RecordArgs),
    /// Did it get slower: durations and failures of task names on two sides.
    Compare(CompareArgs),
    /// Time per thread by task, phase and wait type.
    Time(TimeArgs),
    /// Transfers between workers: volume and speed.
    Transfers(TransfersArgs),
    /// CPU, memory, network and disk use of workers and their machines.
    Resources(ResourcesArgs),
    /// Task progress, as bars.
    Watch(WatchArgs),
    /// Import profiles of other profilers, to compare them with new ones.
    Import(ImportArgs),
    /// Named time ranges (use with --run).
    Runs(RunsArgs),
    /// Profile a program and its children, unchanged; or mark a named time range.
    Run(RunArgs),
    /// Current stack of every thread.
    ThreadDump(ThreadDumpArgs),
    /// Workers, and their sampling quality.
    Workers(WorkersArgs),
    /// Diagnose profiling problems: in a program, on this machine, in the fleet.
    Doctor(DoctorArgs),
    /// Inspect, verify, compact and adopt a store on disk or in a bucket.
    Store(StoreArgs),
    /// Ask in SQL: samples, tasks, resources and more, with names.
    Sql(SqlArgs),
    /// Names of functions for stripped programs: upload, list, verify, remove.
    Symbols(SymbolsArgs),
    /// Make certificates for TLS.
    Tls(TlsArgs),
    /// Create, list and revoke tokens: who may send, read and change.
    Token(TokenArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands.
    Man(ManArgs),
    /// Run a worker of the demo's fleet.
    #[command(hide = true)]
    FleetWorker(FleetWorkerArgs),
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};
    use profiler_core::{Outcome, StateSet};

    use super::query::State;
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command has examples, and every flag has a description.
    #[test]
    fn help_teaches() {
        let mut cli = Cli::command();
        cli.build();
        let below = cli
            .get_subcommands()
            .filter(|command: &&clap::Command| command.get_name() != "help")
            .flat_map(clap::Command::get_subcommands);
        for command in cli
            .get_subcommands()
            .chain(below)
            .filter(|c| !c.is_hide_set())
        {
            if command.get_name() == "help" {
                continue;
            }
            let examples = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(examples.matches("  emberline ").count() >= 2, "{command}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{command}: {argument}");
            }
        }
    }

    #[test]
    fn help_fits_80_columns() {
        let mut cli = Cli::command().term_width(80);
        cli.build();
        let mut commands = vec![cli];
        while let Some(mut command) = commands.pop() {
            for line in command.render_long_help().to_string().lines() {
                let columns = line.chars().count();
                assert!(
                    columns <= 80,
                    "{}: {columns} columns: {line}",
                    command.get_name()
                );
            }
            // Otherwise the end of an example is on a line of its own, at the margin.
            let examples = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            for line in examples.lines().filter(|line| line.starts_with("  ")) {
                assert!(
                    line.chars().count() <= 80,
                    "{}: broken: {line}",
                    command.get_name()
                );
            }
            let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
            commands.extend(shown.map(|one| one.clone().term_width(80)));
        }
    }

    /// The collector reads the words, so they must be those that it knows.
    #[test]
    fn states_are_called_as_in_the_model() {
        let typed: Vec<String> = State::value_variants()
            .iter()
            .map(|state| word(*state))
            .collect();
        assert_eq!(typed, StateSet::NAMES);
    }

    #[test]
    fn outcomes_are_called_as_in_the_model() {
        let typed: Vec<String> = TaskOutcome::value_variants()
            .iter()
            .map(|outcome| word(*outcome))
            .collect();
        let mut known: Vec<String> = Outcome::ALL
            .iter()
            .map(|outcome| outcome.name().to_owned())
            .collect();
        known.sort_unstable_by_key(|name| typed.iter().position(|one| one == name));
        assert_eq!(typed, known);
    }

    #[test]
    fn times_before_now_need_no_quoting() {
        let cli = Cli::try_parse_from(["emberline", "profile", "--from", "-90s", "--to", "-1m"]);
        let Command::Profile(args) = cli.unwrap().command else {
            panic!("profile was typed");
        };
        assert_eq!(args.range.from.as_deref(), Some("-90s"));
        assert_eq!(args.range.to.as_deref(), Some("-1m"));
    }

    #[test]
    fn wrong_words_are_refused_with_the_right_ones() {
        for (typed, hint) in [
            (
                "profile --state idle",
                "[possible values: cpu, runnable, wait, lock, interpreter, sleep, network, disk, other]",
            ),
            (
                "profile --format png",
                "[possible values: svg, html, collapsed, json, pprof, speedscope",
            ),
            (
                "tasks --format svg",
                "[possible values: table, json, trace, firefox, html, csv, parquet, hlog, otlp]",
            ),
            ("demo --workers 3", "4..=64"),
            ("demo --seconds 0", "0"),
            (
                "serve --listen 4747",
                "expected an address with a port, such as 127.0.0.1:4747",
            ),
            ("workers set --interval 5ms", "<WORKER>"),
            ("workers set w --all --enabled true", "cannot be used with"),
            ("workers set w --interval 5", "such as 20ms or 0.5s"),
            ("workers set w --interval ms", "such as 20ms or 0.5s"),
            (
                "workers set w --enabled maybe",
                "[possible values: true, false]",
            ),
            (
                "workers set w --state cpu,asleep",
                "[possible values: cpu, runnable",
            ),
            (
                "thread-dump --threads mine",
                "[possible values: program, agent, all]",
            ),
            ("serve --seal-every 5", "such as 20ms or 0.5s"),
            ("store info", "--data <DIR>"),
            (
                "completions csh",
                "[possible values: bash, elvish, fish, powershell, zsh]",
            ),
            ("compare --before -10m", "such as -20m..-10m"),
        ] {
            let words = ["emberline"].into_iter().chain(typed.split(' '));
            let error = Cli::try_parse_from(words).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{typed}");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }
}
