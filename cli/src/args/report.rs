//! `emberline report`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::query::{OutputArgs, RangeArgs, RowFormat, UrlArgs};

/// `emberline report`
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        emberline report -o report.html                 the last 5 minutes\n  \
        emberline report --run nightly -o nightly.html  a named run\n  \
        emberline report --parquet -o report.html       and its rows, for DuckDB\n  \
        emberline report --from -1h --worker worker-3 -o w3.html\n  \
        emberline report --run nightly -o - | gzip > nightly.html.gz\n  \
        emberline report diff monday.json tuesday.json  what changed between two\n\n\
        The document needs no collector and no network: open it from disk, or print it. The same \
        data is written next to it as JSON, such as nightly.json. A range without data is an \
        error and writes nothing."
)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ReportCommand>,

    #[command(flatten)]
    pub(crate) url: UrlArgs,

    #[command(flatten)]
    pub(crate) range: RangeArgs,

    /// Wait at most this long until the run of --run has ended and its worker's data of it has arrived. The
    /// report is then about whole seconds, as data is stored, so that the shortest run has some.
    #[arg(long, value_name = "SECONDS", requires = "run",
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) wait: Option<u64>,

    /// Command line of the program in the report: its summary shows it. Guards of
    /// `emberline_agent::report` set it.
    #[arg(long, value_name = "TEXT", env = "EMBERLINE_REPORT_PROGRAM")]
    pub(crate) about: Option<String>,

    /// Also write the rows as Parquet next to the report: FILE.tasks.parquet, and functions, resources,
    /// transfers and timeline likewise, without the extension of FILE.
    #[arg(long)]
    pub(crate) parquet: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ReportCommand {
    /// Compare two reports: the changes, and whether they exceed noise.
    Diff(ReportDiffArgs),
}

/// `emberline report diff`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline report diff monday.json tuesday.json\n  \
    emberline report diff main.json branch.json --fail-on-regression\n  \
    emberline report diff a.json b.json --task load --format json | jq .tasks\n\n\
    Needs no collector. A change \"exceeds noise\" as for `emberline compare`: if it is larger \
    than chance explains, given the number of tasks and how much each side fluctuates. For the \
    names that changed most, the functions whose self time per task changed most follow.")]
pub(crate) struct ReportDiffArgs {
    /// The JSON of the report before.
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// The JSON of the report after.
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    /// Only this task, with all its figures; may be repeated. Default: all.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// Maximum number of names: those that got slower first. JSON has all.
    #[arg(long, value_name = "COUNT", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = RowFormat::Table)]
    pub(crate) format: RowFormat,

    /// Exit code 1 if a task got slower or fails more often, by more than noise.
    #[arg(long)]
    pub(crate) fail_on_regression: bool,
}
