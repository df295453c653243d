//! Commands that query a collector: profiles, tasks, thread dumps, workers.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use collector::store::StorePlace;
use jiff::SignedDuration;

use super::cluster::ClusterArgs;

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

/// The range of time, and the workers.
#[derive(Args, Debug)]
pub(crate) struct RangeArgs {
    /// Start of the range: a time ago such as -90s, -5m, -1h30m or -2d; a time of day such as 17:20 (the
    /// last one); "2026-01-31 17:20"; a date; 2026-01-31T12:00:00Z; or Unix seconds. Local time, unless
    /// it has a zone or --utc is given. Default: -5m.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,

    /// End of the range, in the same notation, or now. Default: now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,

    /// The range of a named run instead of --from and --to: NAME is the newest of that name, WORKER/NAME
    /// that of a worker, NAME@ID exactly that one (see `emberline runs`).
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

/// Where a response goes.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Output file, written atomically; - is stdout. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl OutputArgs {
    /// The file; `None` is stdout.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.output
            .as_deref()
            .filter(|file| *file != Path::new("-"))
    }
}

/// `emberline profile`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline profile                                 hottest functions\n  \
    emberline profile -o profile.svg                  flame graph, for a browser\n  \
    emberline profile -o profile.html                 the page's views, one file\n  \
    emberline profile --task load --state disk        where load waits for files\n  \
    emberline profile --waiting --runnable --outside  all time of all threads\n  \
    emberline profile --from -1h --to -30m --worker worker-3 -o w3.svg\n  \
    emberline profile --run nightly --phases -o phases.svg\n  \
    emberline profile --focus pool::run_jobs --sort total --top 10\n  \
    emberline profile --hide crate:tokio --hide 're:^core::'\n  \
    emberline profile --thread qr-0 --group second --from -1m -o chart.svg\n  \
    emberline profile --invert -o callers.svg         callers of hot functions\n  \
    emberline profile --from -1d --key load-17        one task, on its own thread\n  \
    emberline profile --format collapsed | head       stacks with nanoseconds\n  \
    emberline profile -o p.pb.gz && go tool pprof -top p.pb.gz\n  \
    emberline profile -o p.speedscope.json            for speedscope.app\n  \
    emberline profile -o p.firefox.json               for profiler.firefox.com\n  \
    emberline profile -o functions.csv                a row for each function\n  \
    emberline profile --store s3://profiles/prod --from -30d --label zone=a\n\n\
    The default is the page's: time of tasks, on CPU, with simplified stacks. The summary says \
    how much time is hidden. Without --format the extension of -o decides: .svg, .html, \
    .collapsed or .txt, .json, .pb.gz or .pprof, .speedscope.json, .firefox.json, .nested.json, \
    .csv, .parquet. Without both the output is a table.")]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Read the stores of all collectors in a place instead of asking a collector: s3://BUCKET/PREFIX or
    /// file:///FOLDER, as of `emberline serve --store`.
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<StorePlace>,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Only time in the task of this name; may be repeated. Default: all tasks.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// The newest task with this key in the range: only its worker, its thread and its seconds.
    #[arg(long, value_name = "KEY", conflicts_with = "thread")]
    pub(crate) key: Option<String>,

    /// Only threads of this name, at most 15 bytes; may be repeated. Seconds that a task shares with other
    /// threads have no stacks then.
    #[arg(long, value_name = "NAME")]
    pub(crate) thread: Vec<String>,

    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Only time in this phase of tasks, such as transfer; execute is time in no other phase. May be
    /// repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Vec<String>,

    /// Split tasks by phase, as a level below each task.
    #[arg(long)]
    pub(crate) phases: bool,

    /// Group by worker, host, phase, label:KEY or second, as a level above the tasks. By second, an SVG is a
    /// flame chart: its columns are in the order of time.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) group: Option<String>,

    /// Threads to include.
    #[arg(long, value_enum, value_name = "THREADS", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,

    /// Most functions in the table, from 1.
    #[arg(long, value_name = "COUNT", default_value_t = 30,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top: u32,

    /// Sort column of the table.
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = ProfileSort::SelfTime)]
    pub(crate) sort: ProfileSort,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ProfileFormat>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The part of a profile that is shown; the defaults are those of the page.
#[derive(Args, Debug)]
pub(crate) struct ViewArgs {
    /// Time in this state; may be repeated. Default: cpu.
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Vec<State>,

    /// Also time ready to run, waiting for a CPU.
    #[arg(long)]
    pub(crate) runnable: bool,

    /// Also time blocked in any kind of call.
    #[arg(long)]
    pub(crate) waiting: bool,

    /// Also time outside of tasks.
    #[arg(long)]
    pub(crate) outside: bool,

    /// Frames to fold into their callers.
    #[arg(long, value_enum, value_name = "FRAMES", default_value_t = Stacks::Simple)]
    pub(crate) stacks: Stacks,

    /// Only stacks through this function; may be repeated. FUNCTION is a full name, a label, a
    /// part of one (part:TEXT), crate:NAME for all functions of a crate, or a regular expression of names
    /// (re:PATTERN) or of files (file:PATTERN).
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) focus: Vec<String>,

    /// Without this function and what it calls; may be repeated.
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) hide: Vec<String>,

    /// Merge this function into its callers, which get its time; may be repeated.
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) merge: Vec<String>,

    /// Merge recursive calls into the outermost one.
    #[arg(long)]
    pub(crate) recursion: bool,

    /// Bottom-up tree: the functions that ran are the roots, and their callers the children. For formats
    /// with a tree.
    #[arg(long)]
    pub(crate) invert: bool,

    /// Only stacks through the node with this id, as in the address of the page.
    #[arg(long, value_name = "ID")]
    pub(crate) zoom: Option<String>,
}

/// Frames that are folded.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stacks {
    /// Frames of the language and of runtimes that say nothing about the program.
    Simple,
    /// All that are not the program's own.
    Own,
    /// All but functions of Python.
    Python,
    /// Functions of Python.
    Native,
    /// None.
    Full,
}

/// Sort column of a table of functions.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProfileSort {
    /// Time in the function itself.
    #[value(name = "self")]
    SelfTime,
    /// Time with callees.
    Total,
    /// The function's name.
    Name,
}

/// `emberline tasks`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline tasks                            the latest, last 5 minutes\n  \
    emberline tasks --summary                  counts and percentiles by name\n  \
    emberline tasks --task load --worker worker-3 --limit 100\n  \
    emberline tasks --sort duration --top 10   the longest tasks\n  \
    emberline tasks --failed --from -1d        failures and their causes\n  \
    emberline tasks --from -30d --key load-17  one task of the last 30 days\n  \
    emberline tasks --from -1h -o ledger.json  for programs\n  \
    emberline tasks --from -1h -o ledger.csv   for spreadsheets\n  \
    emberline tasks --from -1h -o tasks.html   the page's task stream, in one file\n  \
    emberline tasks --from -1h --format trace -o trace.json\n\n\
    A trace has all tasks of the range with their phases; open it at ui.perfetto.dev or \
    chrome://tracing. Without --format the extension of -o decides: .trace, .html, .json, or \
    .txt (a table). Without both the output is a table.")]
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

    /// Only tasks with this outcome; may be repeated. Default: all.
    #[arg(long, value_enum, value_name = "OUTCOME")]
    pub(crate) outcome: Vec<TaskOutcome>,

    /// Only tasks that failed, panicked or were lost: short for --outcome with each.
    #[arg(long, conflicts_with = "outcome")]
    pub(crate) failed: bool,

    /// Totals by name instead of single tasks: outcomes and duration percentiles of the tasks that
    /// ended in the range. Without --from and --to, of all retained tasks.
    #[arg(long)]
    pub(crate) summary: bool,

    /// Order of the tasks, and which are kept beyond the limit. Default: start.
    #[arg(long, value_enum, value_name = "ORDER", conflicts_with = "summary")]
    pub(crate) sort: Option<TaskSort>,

    /// Maximum number of tasks, 1 to 100000: the first ones in the order of --sort. Default: 50;
    /// JSON: 10000; firefox: 100000; trace and otlp: all.
    #[arg(long, visible_alias = "top", value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: Option<u32>,

    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<TasksFormat>,

    /// With --format otlp, send the spans to an OTLP receiver over HTTP, such as http://127.0.0.1:4318.
    /// OTEL_EXPORTER_OTLP_HEADERS adds headers.
    #[arg(long, value_name = "URL", conflicts_with = "output")]
    pub(crate) send_to: Option<String>,

    /// With --format otlp, the service under which backends list the spans.
    #[arg(long, value_name = "NAME", default_value = "emberline")]
    pub(crate) service: String,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Order of tasks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum TaskSort {
    /// Those that started last first.
    Start,
    /// The longest first; running tasks by their time so far.
    Duration,
}

/// How a task ended, or that it runs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum TaskOutcome {
    Running,
    Ok,
    Failed,
    Cancelled,
    Panicked,
    Lost,
}

impl TaskOutcome {
    /// Outcomes that `--failed` selects.
    pub(crate) const FAILED: [TaskOutcome; 3] = [
        TaskOutcome::Failed,
        TaskOutcome::Panicked,
        TaskOutcome::Lost,
    ];
}

/// `emberline thread-dump`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline thread-dump                                threads of all workers\n  \
    emberline thread-dump --task load --worker worker-3  what load is doing there\n  \
    emberline thread-dump --no-group | less              a stack for each thread\n\n\
    Threads with the same stack are grouped; running ones come first. The time of a blocked \
    thread is how long the agent has observed it there. Exit code 1: a worker did not respond.")]
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

    /// Threads to include.
    #[arg(long, value_enum, value_name = "THREADS", default_value_t = Threads::Program)]
    pub(crate) threads: Threads,

    /// A stack for each thread, even if several have the same.
    #[arg(long)]
    pub(crate) no_group: bool,

    /// Frames to omit from stacks.
    #[arg(long, value_enum, value_name = "FRAMES", default_value_t = Stacks::Simple)]
    pub(crate) stacks: Stacks,
}

/// `emberline workers`
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        emberline workers                             a table\n  \
        emberline workers --label zone=a              a part of the fleet\n  \
        emberline workers --format json | jq .        for programs\n  \
        emberline workers set --all --interval 20ms   sample half as often\n  \
        emberline workers --url http://10.0.0.7:4747  another collector"
)]
pub(crate) struct WorkersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<WorkersCommand>,

    /// Only this worker; may be repeated. Default: all.
    #[arg(long, value_name = "ID")]
    pub(crate) worker: Vec<String>,

    /// Only workers with this label, such as zone=a, or zone=* for any value; may be repeated, then
    /// all must match.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,

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
    emberline workers set --all --enabled false       tasks are still recorded\n  \
    emberline workers set --all --state cpu,runnable  do not record blocked time\n\n\
    Only the given settings change. The collector also applies them to workers that reconnect, \
    and with --all to those that connect later. Exit code 1: a worker did not apply them within \
    2 s.")]
pub(crate) struct WorkersSetArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Ids of the workers to change.
    #[arg(
        value_name = "WORKER",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
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
    Ok(duration
        .map_err(|_| "a time is a number with its unit, such as 20ms or 0.5s".to_owned())?
        .as_nanos() as f64
        / 1e6)
}

/// State of a thread.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Running on a CPU.
    Cpu,
    /// Ready, waiting for a CPU.
    Runnable,
    /// Blocked in any kind of call: the six below.
    Wait,
    /// Waiting for another thread: futexes (mutexes, parking, joins), semaphores.
    Lock,
    /// Waiting for the lock of an interpreter, such as CPython's GIL.
    Interpreter,
    /// Sleeping.
    Sleep,
    /// Waiting for a socket, or in poll, epoll or select.
    Network,
    /// Waiting for a file: reads, writes, fsync, page faults.
    Disk,
    /// Waiting for a pipe, a terminal, a child process, or in an unclassified call.
    Other,
}

/// Threads that a query covers.
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
    /// The page's flame graph, table and call tree with the timeline, in one file.
    Html,
    /// One line per stack, with nanoseconds, for other tools.
    Collapsed,
    /// The nodes of the tree, for programs.
    Json,
    /// For `go tool pprof` and other readers of pprof's format, compressed.
    Pprof,
    /// For speedscope.app.
    Speedscope,
    /// For profiler.firefox.com.
    Firefox,
    /// The tree as nested objects, as in Dask.
    Nested,
    /// A row for each function, for spreadsheets.
    Csv,
    /// The same rows, for DuckDB, pandas and others.
    Parquet,
    /// Functions by time, for the terminal.
    Table,
}

/// Output format of tasks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TasksFormat {
    /// Aligned columns for terminals.
    Table,
    /// The collector's response, for programs.
    Json,
    /// A trace for Perfetto or chrome://tracing, with transfers.
    Trace,
    /// Markers for profiler.firefox.com, with transfers, CPU usage and memory of each worker.
    Firefox,
    /// The page's task stream with totals by name, in one file.
    Html,
    /// A row for each task, or with --summary for each name; for spreadsheets.
    Csv,
    /// The same rows, for DuckDB, pandas and others.
    Parquet,
    /// A log of HdrHistogram: durations by name, step by step.
    Hlog,
    /// Spans of OpenTelemetry: lines of OTLP JSON, or with --send-to to a receiver. Phases are spans below
    /// their task.
    Otlp,
}

/// Output format of rows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RowFormat {
    /// Aligned columns for terminals.
    Table,
    /// The collector's response, for programs.
    Json,
}

/// Output format of rows that a file may hold.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileFormat {
    /// Aligned columns for terminals.
    Table,
    /// The collector's response, for programs.
    Json,
    /// For spreadsheets.
    Csv,
    /// The same rows, for DuckDB, pandas and others.
    Parquet,
}

/// Where rows go, and in which format.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Output format. Default: by the extension of -o, else table.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<FileFormat>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The word for a value, in arguments and in requests.
pub(crate) fn word(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}
