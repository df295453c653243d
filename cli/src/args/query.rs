//! Commands that query a collector: profiles, tasks, thread dumps, workers.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use jiff::SignedDuration;

/// The collector.
#[derive(Args, Debug)]
pub(crate) struct UrlArgs {
    /// Collector URL.
    #[arg(
        long,
        env = "EMBERLINE_URL",
        default_value = "http://127.0.0.1:4747",
        value_name = "URL"
    )]
    pub(crate) url: String,
}

/// The collector, and the output format of rows.
#[derive(Args, Debug)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// The range of time, and the workers. The collector parses the times, because they are by its clock.
#[derive(Args, Debug)]
pub(crate) struct RangeArgs {
    /// Start of the range: a time ago such as -90s, -5m, -1h30m or -2d; a time such as
    /// 2026-01-31T12:00:00Z or, in UTC, "2026-01-31 12:00:00"; or Unix seconds. Default: -5m.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,

    /// End of the range, in the same notation, or now. Default: now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,

    /// The range of a named run instead of --from and --to: NAME is the newest of that name, NAME@ID
    /// exactly that one (see `emberline runs`).
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "to"])]
    pub(crate) run: Option<String>,

    /// Only this worker; may be repeated. Default: all.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only workers with this label, such as zone=a, or zone=* for any value; may be repeated, then
    /// all must match.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
}

/// `emberline profile`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline profile                                 functions by time, last 5 minutes\n  \
    emberline profile -o profile.svg                  flame graph; open it in a browser\n  \
    emberline profile --task load --state cpu         what load computes, without waiting\n  \
    emberline profile --from -1h --to -30m --worker worker-3 -o w3.svg\n  \
    emberline profile --run nightly --phases -o phases.svg\n  \
    emberline profile --format collapsed | head       stacks with their nanoseconds\n\n\
    Without --format the extension of -o decides: .svg, .collapsed or .txt, .json. Without both the\n\
    output is a table.")]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only time in the task of this name; may be repeated. Default: all tasks, and threads outside
    /// any task.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only time in this state; may be repeated. Default: all.
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Vec<State>,

    /// Only time in this phase of tasks, such as transfer; execute is time in no other phase. May be
    /// repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Vec<String>,

    /// Split tasks by phase, as a level below each task.
    #[arg(long)]
    pub(crate) phases: bool,

    /// Group by worker, host, phase or label:KEY, as a level above the tasks.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) group: Option<String>,

    /// Which threads.
    #[arg(long, value_enum, value_name = "THREADS", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ProfileFormat>,

    /// Output file, written atomically; - is stdout. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `emberline tasks`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline tasks                                   the latest tasks of the last 5 minutes\n  \
    emberline tasks --summary                         counts and percentiles by name\n  \
    emberline tasks --task load --worker worker-3 --limit 100\n  \
    emberline tasks --from -30d --key load-17         one task of the last 30 days\n  \
    emberline tasks --from -1h -o ledger.json         for programs\n  \
    emberline tasks --from -1h --format trace -o trace.json\n\n\
    A trace has all tasks of the range with their phases; open it at ui.perfetto.dev or\n\
    chrome://tracing. Without --format the extension of -o decides: .trace, .json, or .txt (a table).\n\
    Without both the output is a table.")]
pub(crate) struct TasksArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only tasks of this name; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only the task with this key; may be repeated. Default: all.
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Vec<String>,

    /// Only tasks with a result of this type; may be repeated. Default: all.
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) type_name: Vec<String>,

    /// Totals by name instead of single tasks: outcomes and duration percentiles of the tasks that
    /// ended in the range. Without --from and --to, of all retained tasks.
    #[arg(long)]
    pub(crate) summary: bool,

    /// Maximum number of tasks, 1 to 100000: those that started last. Default: 50; JSON: 10000;
    /// trace: all.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TasksFormat>,

    /// Output file, written atomically; - is stdout. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `emberline thread-dump`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline thread-dump                                  every thread of every worker\n  \
    emberline thread-dump --task load --worker worker-3    what load is doing there\n  \
    emberline thread-dump --no-group | less                a stack for each thread\n\n\
    Threads with the same stack are grouped; running ones come first. The time of a blocked thread is\n\
    how long the agent has observed it there. Exit code 1: a worker did not respond.")]
pub(crate) struct ThreadDumpArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    /// Only threads in the task of this name; may be repeated. Default: all, and threads outside any
    /// task.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only this worker; may be repeated. Default: all connected ones.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only threads of this name, at most 15 bytes; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) thread: Vec<String>,

    /// Which threads.
    #[arg(long, value_enum, value_name = "THREADS", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,

    /// A stack for each thread, even if several have the same.
    #[arg(long)]
    pub(crate) no_group: bool,
}

/// `emberline workers`
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    emberline workers                                 a table\n  \
    emberline workers --format json | jq .            for programs\n  \
    emberline workers set --all --interval 20ms       sample half as often\n  \
    emberline workers --url http://10.0.0.7:4747      another collector"
)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorkersCommand>,

    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum WorkersCommand {
    /// Change how running agents sample.
    Set(WorkersSetArgs),
}

/// `emberline workers set`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline workers set worker-3 --interval 1ms     sample one in more detail\n  \
    emberline workers set --all --enabled false       stop all sampling; tasks are still recorded\n  \
    emberline workers set --all --state cpu,runnable  do not record blocked time\n\n\
    Only the given settings change. The collector also applies them to workers that reconnect, and\n\
    with --all to those that connect later. Exit code 1: a worker did not apply them within 2 s.")]
pub(crate) struct WorkersSetArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Ids of the workers to change.
    #[arg(value_name = "WORKER", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) workers: Vec<String>,

    /// Change all workers, including those that connect later.
    #[arg(long)]
    pub(crate) all: bool,

    /// Time between two samples of a thread, 1ms to 1s.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(crate) interval: Option<f64>,

    /// Whether threads are sampled; tasks are recorded in any case.
    #[arg(long, value_name = "BOOL")]
    pub(crate) enabled: Option<bool>,

    /// States whose time is recorded, separated by commas; may be repeated.
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',')]
    pub(crate) state: Vec<State>,
}

/// A time such as `20ms` or `0.5s`, in milliseconds. The collector checks the range.
pub(super) fn milliseconds(text: &str) -> Result<f64, String> {
    let duration: Result<SignedDuration, _> = text.parse();
    let hint = |_| "a time is a number with its unit, such as 20ms or 0.5s".to_owned();
    Ok(duration.map_err(hint)?.as_nanos() as f64 / 1e6)
}

/// State of a thread.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Running on a CPU.
    Cpu,
    /// Ready, waiting for a CPU.
    Runnable,
    /// Blocked in any kind of call: the five below.
    Wait,
    /// Waiting for another thread: futexes (mutexes, parking, joins), semaphores.
    Lock,
    /// Sleeping.
    Sleep,
    /// Waiting for a socket, or in poll, epoll or select.
    Network,
    /// Waiting for a file: reads, writes, fsync, page faults.
    Disk,
    /// Waiting for a pipe, a terminal, a child process, or in an unclassified call.
    Other,
}

/// Which threads a query covers.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// Those of the program.
    Program,
    /// Those of the profiler's agent, inside the workers.
    Agent,
    /// Both.
    All,
}

/// Output format of a profile.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProfileFormat {
    /// A flame graph with zoom and search, for a browser.
    Svg,
    /// One line per stack, with nanoseconds, for other tools.
    Collapsed,
    /// The nodes of the tree, for programs.
    Json,
    /// Functions by time, for the terminal.
    Table,
}

/// Output format of tasks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TasksFormat {
    /// Aligned columns, for the terminal.
    Table,
    /// The collector's response, for programs.
    Json,
    /// A trace for Perfetto or chrome://tracing.
    Trace,
}

/// Output format of rows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowFormat {
    /// Aligned columns, for the terminal.
    Table,
    /// The collector's response, for programs.
    Json,
}

/// The word for a value, in arguments and in requests.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
