//! Commands that ask what tasks, links and machines did, beside the ledger itself.

use clap::{Args, Subcommand, ValueEnum};

use super::query::{AskArgs, RangeArgs, Threads, UrlArgs};

/// `emberline time`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline time                                  tasks and phases, last 5 minutes\n  \
    emberline time --by thread --worker worker-3    each thread of one worker\n  \
    emberline time --run nightly --format json      for programs\n\n\
    Every thread's time is split exactly: computing, ready but without a processor, and blocked by\n\
    kind of call. What is in no task is idle where it waits.")]
pub(crate) struct TimeArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// What a row of the table is.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = TimeRow::Phase)]
    pub(crate) by: TimeRow,

    /// Whose threads.
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,
}

/// What a row of a budget is.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeRow {
    /// A phase of a task, over all threads.
    Phase,
    /// A worker.
    Worker,
    /// A thread.
    Thread,
}

/// `emberline transfers`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline transfers                               who sent how much to whom, how fast\n  \
    emberline transfers --rows --limit 100            the latest, one by one\n  \
    emberline transfers --from -1h --worker worker-3 --direction incoming")]
pub(crate) struct TransfersArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only with this other end; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Vec<String>,

    /// Only one way, as the worker sees it.
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) direction: Option<Direction>,

    /// Only of this type; may be repeated. Default: all.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) type_name: Vec<String>,

    /// Transfers one by one, instead of sums by link and type.
    #[arg(long)]
    pub(crate) rows: bool,

    /// Most transfers listed, 1 to 100000: those that ended last. Default: 50, as JSON 10000.
    #[arg(long, value_name = "COUNT", requires = "rows",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,
}

/// Which way a transfer went.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// To the worker.
    Incoming,
    /// From the worker.
    Outgoing,
}

/// `emberline resources`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline resources                               all measures of all workers, last 5 minutes\n  \
    emberline resources --measure process_memory --worker worker-3\n  \
    emberline resources --measure process_memory --run monday --and-run tuesday --align\n\n\
    A row's picture goes from the start of the range to its end; its top is the peak.")]
pub(crate) struct ResourcesArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Another named run, beside that of --run; may be repeated.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(crate) and_run: Vec<String>,

    /// Times from the start of each run or range, so that several lie over each other.
    #[arg(long)]
    pub(crate) align: bool,

    /// Only this measure, such as process_memory; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) measure: Vec<String>,

    /// Time between two points, such as 1s or 1m. Default: so that there are at most 1,000 points.
    #[arg(long, value_name = "TIME")]
    pub(crate) step: Option<String>,
}

/// `emberline watch`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline watch                                   until all expected tasks are done\n  \
    emberline watch --task load --task solve\n  \
    emberline watch --once                            a table, as it stands now\n\n\
    Workers say how many tasks they expect. When all have ended it waits for others that run, for\n\
    10 s at most. Without a terminal nothing is drawn until the end.\n\
    Exit code 1: a task has failed or was lost.")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only tasks of this name; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Write how it stands now, and end.
    #[arg(long)]
    pub(crate) once: bool,
}

/// `emberline runs`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline runs                                    all that are known, the newest first\n  \
    emberline runs --name nightly --format json")]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    /// Only runs of this name; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,
}

/// `emberline run`
#[derive(Args, Debug)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    emberline run start nightly                       from now on\n  \
    emberline run stop nightly                        until now\n  \
    emberline tasks --summary --run nightly           what happened in it"
)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    pub(crate) command: RunCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum RunCommand {
    /// Begin a period of this name, now.
    #[command(after_help = "Examples:\n  emberline run start nightly\n  \
        emberline run start \"build 1234\" --url http://127.0.0.1:4747")]
    Start(RunNameArgs),
    /// End the open period of this name, now.
    #[command(after_help = "Examples:\n  emberline run stop nightly\n  \
        emberline run stop \"build 1234\" --url http://127.0.0.1:4747")]
    Stop(RunNameArgs),
}

/// Which run.
#[derive(Args, Debug)]
pub(crate) struct RunNameArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Name of the run.
    #[arg(value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: String,
}
