//! Commands that ask a collector.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which collector is asked.
#[derive(Args, Debug)]
pub(crate) struct UrlArgs {
    /// Collector that is asked.
    #[arg(
        long,
        env = "EMBERLINE_URL",
        default_value = "http://127.0.0.1:4747",
        value_name = "URL"
    )]
    pub(crate) url: String,
}

/// Which time is asked about. The collector reads the times, for they are by its clock.
#[derive(Args, Debug)]
pub(crate) struct RangeArgs {
    /// Start of the range: a time ago such as -90s, -5m, -1h30m, -2d; a time such as
    /// 2026-01-31T12:00:00Z; or seconds since 1970. Default: -5m.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,

    /// End of the range, written like its start, or now. Default: now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
}

/// `emberline profile`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline profile                                 functions by time, last 5 minutes\n  \
    emberline profile -o profile.svg                  flame graph; open it in a browser\n  \
    emberline profile --task load --state cpu         what load computes, without its waiting\n  \
    emberline profile --from -1h --to -30m --worker worker-3 -o w3.svg\n  \
    emberline profile --format collapsed | head      stacks with their nanoseconds\n\n\
    Without --format the ending of -o decides: .svg, .collapsed or .txt, .json. Without both it\n\
    is a table.")]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only time in the task of this name; may be repeated. Default: all tasks, and threads outside
    /// any task.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only this worker; may be repeated. Default: all.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only time in this state; may be repeated. Default: all three.
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Vec<State>,

    /// Whose threads.
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,

    /// What to write. Default: by the ending of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ProfileFormat>,

    /// File to write, as a whole or not at all; - is stdout. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `emberline tasks`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline tasks                                   the latest tasks of the last 5 minutes\n  \
    emberline tasks --summary                         counts and percentiles by name\n  \
    emberline tasks --task load --worker worker-3 --limit 100\n  \
    emberline tasks --from -1h --format json > ledger.json")]
pub(crate) struct TasksArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only tasks of this name; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only tasks of this worker; may be repeated. Default: all.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Counts and percentiles of duration by name, instead of the tasks one by one. Without --from,
    /// --to and --worker they are of all tasks since the collector started.
    #[arg(long)]
    pub(crate) summary: bool,

    /// Most tasks listed, 1 to 100000: those that started last. What is left out is said. Default:
    /// 50, as JSON 10000.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,

    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// `emberline workers`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline workers                                 a table\n  \
    emberline workers --format json | jq .            for programs\n  \
    emberline workers --url http://10.0.0.7:4747      another collector")]
pub(crate) struct WorkersArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// What a thread did.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Ran on a processor.
    Cpu,
    /// Could have run, but waited for a processor.
    Runnable,
    /// Was blocked: a lock, a sleep, the network, a disk.
    Wait,
}

/// Whose threads are asked about.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// The program's.
    Program,
    /// The profiler's own, inside the workers.
    Agent,
    /// Both.
    All,
}

/// What a profile is written as.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProfileFormat {
    /// A flame graph that zooms and searches in a browser.
    Svg,
    /// One line a stack, with nanoseconds, for other tools.
    Collapsed,
    /// The tree's nodes, for programs.
    Json,
    /// Functions by time, for the terminal.
    Table,
}

/// What rows are written as.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowFormat {
    /// Aligned columns, for the terminal.
    Table,
    /// As the collector says it, for programs.
    Json,
}

/// The word for a value, as it is typed and as the collector takes it.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
