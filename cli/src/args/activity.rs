//! Commands that query time by thread, transfers, resources, progress and runs.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

use super::ProcessArgs;
use super::query::{AskArgs, FileArgs, OutputArgs, RangeArgs, Threads, UrlArgs};
use crate::launch::{TaskBy, parse_label};

/// `emberline time`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline time                                 tasks and their phases\n  \
    emberline time --by thread --worker worker-3   each thread of one worker\n  \
    emberline time --run nightly --format json     for programs\n  \
    emberline time --from -1h -o timeline.parquet  each task, step by step\n\n\
    Each thread's time is split exactly: running, ready but waiting for a CPU, and blocked, by \
    kind of call. A thread that waits outside any task is idle.")]
pub(crate) struct TimeArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) file: FileArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Rows. Default: phase; of CSV and Parquet: step, the only one that they have.
    #[arg(long, value_enum, value_name = "ROW")]
    pub(crate) by: Option<TimeRow>,

    /// Threads to include.
    #[arg(long, value_enum, value_name = "THREADS", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,
}

/// Row of a table of time.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeRow {
    /// A phase of a task, over all threads.
    Phase,
    /// A worker.
    Worker,
    /// A thread.
    Thread,
    /// A step of the timeline, of a task.
    Step,
}

/// `emberline transfers`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline transfers                     totals by link and by type\n  \
    emberline transfers --rows --limit 100  the latest, one by one\n  \
    emberline transfers --from -1h --worker worker-3 --direction incoming\n  \
    emberline transfers --rows --from -1h -o transfers.parquet")]
pub(crate) struct TransfersArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) file: FileArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only transfers with this other end; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Vec<String>,

    /// Only transfers in this direction, as the worker sees it.
    #[arg(long, value_enum, value_name = "DIRECTION")]
    pub(crate) direction: Option<Direction>,

    /// Only transfers of this type; may be repeated. Default: all.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) type_name: Vec<String>,

    /// Single transfers instead of totals by link and type.
    #[arg(long)]
    pub(crate) rows: bool,

    /// Maximum number of transfers, 1 to 100000: those that ended last. Default: 50; in
    /// other formats than table: 10000.
    #[arg(long, value_name = "COUNT", requires = "rows",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,
}

/// Direction of a transfer.
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
    emberline resources                               all measures, last 5 minutes\n  \
    emberline resources --measure process_memory --worker worker-3\n  \
    emberline resources --run monday --and-run tuesday --align\n  \
    emberline resources --run monday --and-run tuesday --align -o memory.html\n  \
    emberline resources --from -1d -o series.parquet  each point of each series\n\n\
    TREND runs from the start of the range to its end; its top is the largest average.")]
pub(crate) struct ResourcesArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ResourcesFormat>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Another named run to compare with that of --run; may be repeated.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(crate) and_run: Vec<String>,

    /// Count times from the start of each run or range, so that several line up.
    #[arg(long)]
    pub(crate) align: bool,

    /// Only this measure, such as process_memory; may be repeated. Default: all but limits, which do not
    /// change, such as host_cpus. JSON has them.
    #[arg(long, value_name = "NAME")]
    pub(crate) measure: Vec<String>,

    /// Time between two points, such as 1s or 1m. Default: the smallest with at most 1,000 points.
    #[arg(long, value_name = "TIME")]
    pub(crate) step: Option<String>,
}

/// Output format of resources.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResourcesFormat {
    /// Aligned columns for terminals.
    Table,
    /// The collector's response, for programs.
    Json,
    /// The page's charts, in one file.
    Html,
    /// A row for each point, for spreadsheets.
    Csv,
    /// The same rows, for DuckDB, pandas and others.
    Parquet,
}

/// `emberline watch`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline watch         until all expected tasks are done\n  \
    emberline watch --task load --task solve\n  \
    emberline watch --once  a table of the current progress\n\n\
    Workers announce how many tasks they expect. When these have ended, it waits up to 10 s for \
    other running tasks. Without a terminal nothing is drawn until the end. Exit code 1: a task \
    failed or was lost.")]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only tasks of this name; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Print the current progress and exit.
    #[arg(long)]
    pub(crate) once: bool,
}

/// `emberline runs`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline runs  the newest first\n  \
    emberline runs --name nightly --format json")]
pub(crate) struct RunsArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    /// Only runs of this name; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Vec<String>,

    /// Maximum number of runs, the newest. JSON has all.
    #[arg(long, value_name = "COUNT", default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

/// `emberline run`
#[derive(Args, Debug)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        emberline run --collector http://127.0.0.1:4747 -- make -j4\n  \
        emberline run --label zone=a -- python3 job.py\n  \
        emberline run --pid 1234                 a process that already runs\n  \
        emberline run start nightly              from now on\n  \
        emberline run stop nightly               until now\n  \
        emberline tasks --summary --run nightly  what happened in it\n\n\
        The program and its children are profiled unchanged, as by `emberline record`, and this command becomes the \
        program. Each process is a worker COMMAND-PID-START with the labels command, parent and run. A token \
        for the collector is in EMBERLINE_TOKEN_FILE."
)]
pub(crate) struct RunArgs {
    #[command(subcommand)]
    pub(crate) command: Option<RunCommand>,

    /// The collector to which the processes report.
    #[arg(
        long,
        env = "EMBERLINE_URL",
        default_value = "http://127.0.0.1:4747",
        value_name = "URL"
    )]
    pub(crate) collector: String,

    /// Begins the names of workers in place of their commands: NAME-PID-START.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) worker: Option<String>,

    /// A label of all processes; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) label: Vec<(String, String)>,

    /// Name of the task to which a thread's time belongs: the command of its process, its own name,
    /// or the outermost function that matches (symbol:REGEX).
    #[arg(long, value_name = "process|thread|symbol:REGEX", default_value_t, value_parser = TaskBy::parse)]
    pub(crate) task_by: TaskBy,

    #[command(flatten)]
    pub(crate) processes: ProcessArgs,

    /// The program and its arguments.
    #[arg(
        last = true,
        required_unless_present_any = ["pid", "name"],
        value_name = "PROGRAM"
    )]
    pub(crate) program: Vec<OsString>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum RunCommand {
    /// Start a run of this name now.
    #[command(after_help = "Examples:\n  \
        emberline run start nightly\n  \
        emberline run start \"build 1234\" --url http://127.0.0.1:4747")]
    Start(RunNameArgs),
    /// Stop the open run of this name now.
    #[command(after_help = "Examples:\n  \
        emberline run stop nightly\n  \
        emberline run stop \"build 1234\" --url http://127.0.0.1:4747")]
    Stop(RunNameArgs),
}

/// A run.
#[derive(Args, Debug)]
pub(crate) struct RunNameArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Name of the run.
    #[arg(value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: String,
}
