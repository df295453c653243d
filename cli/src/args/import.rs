//! `emberline import`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use import::{CollapsedUnit, ImportFormat};
use profiler_core::State;

use super::query::{UrlArgs, milliseconds};

/// `emberline import`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline import before.pb.gz after.pb.gz\n  \
    emberline compare --before-run before --after-run after\n  \
    emberline import cpu.pprof --run monday --task load --time 2026-01-31\n  \
    perf script | emberline import - --run perf\n  \
    java -XX:StartFlightRecording=filename=app.jfr -jar app.jar\n  \
    emberline import app.jfr\n  \
    py-spy record -f raw -o app.txt -- python app.py; emberline import app.txt\n  \
    emberline profile --run monday\n\n\
    Formats, recognized by content, compressed by gzip or not: pprof; collapsed stacks of \
    Emberline, async-profiler, py-spy, austin and bcc; the text of perf script; speedscope; the \
    Firefox Profiler (also of samply), processed or raw; CPU profiles of Chrome and Node.js, also in \
    traces; recordings (JFR) of Java's Flight Recorder and of async-profiler.\n\n\
    Each file becomes a run and a worker import:NAME, whose labels say source=import. A \
    collector with tokens needs one of role agent that covers it:\n  \
    emberline token new --role agent --worker 'import:*'\n\n\
    Importing the same file at the same time again changes nothing. A profile that is older than \
    the collector's --retention-rollups is rejected; beyond --retention-seconds it is shown by \
    minute.")]
pub(crate) struct ImportArgs {
    /// Files to import; - for stdin.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Name of the run, if there is one file. Default: the file's name without extensions.
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,

    /// Worker of the profile; import: is put before it. Default: the run's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,

    /// Task of all stacks. Default: the tasks of the file, or else `imported`.
    #[arg(long, value_name = "NAME")]
    pub(crate) task: Option<String>,

    /// Start of the profile, as --from of `emberline profile`. Default: that of the file; if it has none,
    /// the profile ends now.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,

    /// Format of the files. Default: by content.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,

    /// State of time whose state the file does not say. Default: cpu, or other for all time that passes.
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Option<ThreadState>,

    /// Unit of the weights of collapsed stacks. Default: nanoseconds if all are at least 10,000.
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) unit: Option<Unit>,

    /// Time of a sample, such as 10ms, where the file has only samples.
    #[arg(long, value_name = "TIME", value_parser = interval_ns)]
    pub(crate) interval: Option<u64>,
}

/// A format to import.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    Pprof,
    Collapsed,
    Perf,
    Speedscope,
    Firefox,
    Chrome,
    Jfr,
}

impl From<Format> for ImportFormat {
    fn from(format: Format) -> ImportFormat {
        match format {
            Format::Pprof => ImportFormat::Pprof,
            Format::Collapsed => ImportFormat::Collapsed,
            Format::Perf => ImportFormat::Perf,
            Format::Speedscope => ImportFormat::Speedscope,
            Format::Firefox => ImportFormat::Firefox,
            Format::Chrome => ImportFormat::Chrome,
            Format::Jfr => ImportFormat::Jfr,
        }
    }
}

/// A unit of collapsed stacks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Samples,
}

impl From<Unit> for CollapsedUnit {
    fn from(unit: Unit) -> CollapsedUnit {
        match unit {
            Unit::Nanoseconds => CollapsedUnit::Nanoseconds,
            Unit::Microseconds => CollapsedUnit::Microseconds,
            Unit::Milliseconds => CollapsedUnit::Milliseconds,
            Unit::Samples => CollapsedUnit::Samples,
        }
    }
}

/// A state of threads.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ThreadState {
    Cpu,
    Runnable,
    Lock,
    Sleep,
    Network,
    Disk,
    Other,
}

impl From<ThreadState> for State {
    fn from(state: ThreadState) -> State {
        match state {
            ThreadState::Cpu => State::Cpu,
            ThreadState::Runnable => State::Runnable,
            ThreadState::Lock => State::Lock,
            ThreadState::Sleep => State::Sleep,
            ThreadState::Network => State::Network,
            ThreadState::Disk => State::Disk,
            ThreadState::Other => State::Other,
        }
    }
}

/// A time such as `10ms`, in nanoseconds.
fn interval_ns(text: &str) -> Result<u64, String> {
    let nanoseconds = milliseconds(text)? * 1e6;
    if (1.0..=3.6e12).contains(&nanoseconds) {
        Ok(nanoseconds as u64)
    } else {
        Err("it must be more than 0 and at most 1h".to_owned())
    }
}
