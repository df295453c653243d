//! Commands that ask a collector.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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

/// Which collector is asked for rows, and what they are written as.
#[derive(Args, Debug)]
pub(crate) struct AskArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,
}

/// Which time of which workers is asked about. The collector reads the times, for they are by its
/// clock.
#[derive(Args, Debug)]
pub(crate) struct RangeArgs {
    /// Start of the range: a time ago such as -90s, -5m, -1h30m, -2d; a time such as
    /// 2026-01-31T12:00:00Z or, in UTC, "2026-01-31 12:00:00"; or seconds since 1970. Default: -5m.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,

    /// End of the range, written like its start, or now. Default: now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,

    /// In place of --from and --to, the period of this named run: the newest of that name, or with
    /// @ID that very one (see `emberline runs`).
    #[arg(long, value_name = "NAME", conflicts_with_all = ["from", "to"])]
    pub(crate) run: Option<String>,

    /// Only this worker; may be repeated. Default: all.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only workers with this label, such as zone=a, or zone=* for any value; may be repeated, then
    /// all must hold.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
}

/// `emberline profile`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline profile                                 functions by time, last 5 minutes\n  \
    emberline profile -o profile.svg                  flame graph; open it in a browser\n  \
    emberline profile --task load --state cpu         what load computes, without its waiting\n  \
    emberline profile --from -1h --to -30m --worker worker-3 -o w3.svg\n  \
    emberline profile --run nightly --phases -o phases.svg\n  \
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

    /// Only time in this state; may be repeated. Default: all.
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Vec<State>,

    /// Only time in this phase of tasks, such as transfer; execute is what is in no other. May be
    /// repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Vec<String>,

    /// Split tasks by phase: a level of its own below each task.
    #[arg(long)]
    pub(crate) phases: bool,

    /// Put a level above the tasks: worker, host, phase, or label:KEY.
    #[arg(long, value_name = "WHAT")]
    pub(crate) group: Option<String>,

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
    emberline tasks --from -30d --key load-17         one task, whenever it ran\n  \
    emberline tasks --from -1h -o ledger.json         for programs\n  \
    emberline tasks --from -1h --format trace -o trace.json\n\n\
    A trace has all tasks of the range with their phases; open it at ui.perfetto.dev or\n\
    chrome://tracing. Without --format the ending of -o decides: .trace, .json, or .txt (a table).\n\
    Without both it is a table.")]
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

    /// Counts and percentiles of duration by name, instead of the tasks one by one: of those that
    /// ended in the range. Without --from and --to they are of all tasks that are held.
    #[arg(long)]
    pub(crate) summary: bool,

    /// Most tasks listed, 1 to 100000: those that started last. What is left out is said. Default:
    /// 50, as JSON 10000, as a trace all.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,

    /// What to write. Default: by the ending of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TasksFormat>,

    /// File to write, as a whole or not at all; - is stdout. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `emberline thread-dump`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline thread-dump                                  every thread of every worker\n  \
    emberline thread-dump --task load --worker worker-3    what load does there, now\n  \
    emberline thread-dump --no-group | less                a stack for each thread\n\n\
    Threads at the same place stand together; what runs comes first. A blocked thread's time is how\n\
    long it has been there as far as the agent saw it. Exit code 1: a worker did not answer.")]
pub(crate) struct ThreadDumpArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,

    /// Only threads in the task of this name; may be repeated. Default: all, and threads outside any
    /// task.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Only this worker; may be repeated. Default: all that are connected.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only threads of this name, which has at most 15 bytes; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) thread: Vec<String>,

    /// Whose threads.
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,

    /// A stack for each thread, even if many are at the same place.
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
    emberline workers set worker-3 --interval 1ms     look closer at one\n  \
    emberline workers set --all --enabled false       stop all sampling; tasks are still recorded\n  \
    emberline workers set --all --state cpu,runnable  leave out time that is blocked\n\n\
    Only what is given changes. The collector remembers it for workers that come back, and with\n\
    --all for those that come later. Exit code 1: a worker has not applied it within 2 s.")]
pub(crate) struct WorkersSetArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Ids of the workers that are changed.
    #[arg(value_name = "WORKER", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) workers: Vec<String>,

    /// Change all workers, those that come later too.
    #[arg(long)]
    pub(crate) all: bool,

    /// Time between two samples of a thread, 1ms to 1s.
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    pub(crate) interval: Option<f64>,

    /// Whether threads are sampled at all.
    #[arg(long, value_name = "BOOL")]
    pub(crate) enabled: Option<bool>,

    /// States whose time is kept, separated by commas; may be repeated.
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',')]
    pub(crate) state: Vec<State>,
}

/// A time such as `20ms` or `0.5s` in milliseconds. Whether it is allowed is the collector's to say.
pub(super) fn milliseconds(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 5] =
        [("ms", 1.0), ("us", 1e-3), ("s", 1e3), ("m", 60e3), ("h", 3_600e3)];
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits.len()..]);
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
    match (number, unit) {
        (Some(number), Some((_, factor))) => Ok(number * factor),
        _ => Err("a time is a number with its unit, such as 20ms or 0.5s".to_owned()),
    }
}

/// What a thread did.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Ran on a processor.
    Cpu,
    /// Could have run, but waited for a processor.
    Runnable,
    /// Was blocked, in whatever kind of call: the five below.
    Wait,
    /// Waited for another thread: futexes (mutexes, parking, joins), semaphores.
    Lock,
    /// Slept for a time.
    Sleep,
    /// Waited for a socket, or in poll, epoll or select.
    Network,
    /// Waited for a file: reads, writes, fsync, page faults.
    Disk,
    /// Waited for a pipe, a terminal, a child process, or in a call whose kind is not known.
    Other,
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

/// What tasks are written as.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TasksFormat {
    /// Aligned columns, for the terminal.
    Table,
    /// As the collector says it, for programs.
    Json,
    /// A trace for Perfetto or chrome://tracing.
    Trace,
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
