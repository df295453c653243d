//! Where the data of a report is: at the collector of the agent that runs, or at one that is started for
//! the report, with an agent of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profiler_core::limits::bounded;

use super::error::ReportError;
use super::program::Program;
use crate::agent::shipping;
use crate::{Agent, RunGuard, StartError, mark_run};

/// The program, if it is not in a folder of `PATH`.
const PROGRAM_VARIABLE: &str = "EMBERLINE_PROGRAM";
const PROGRAM_DEFAULT: &str = "emberline";

/// Tells the program what the report is about. A variable, because an older program ignores it.
const ABOUT_VARIABLE: &str = "EMBERLINE_REPORT_PROGRAM";
/// Most bytes of this process's command line in a report.
const ABOUT_BYTES_MAX: usize = 4_096;

/// Most time for the first names of functions and the last flush, when the agent is the report's own.
const FLUSH_MAX: Duration = Duration::from_secs(10);

/// Seconds that the collector of a running agent has to learn of the end of the run.
const RUN_END_SECONDS_MAX: u64 = 20;

static NEXT_REPORT: AtomicU64 = AtomicU64::new(1);

#[derive(Debug)]
pub(super) enum Recording {
    /// The agent was running.
    Fleet {
        collector: String,
        name: String,
        run: RunGuard,
    },
    /// The agent and the collector are there for the report only.
    Own {
        agent: Box<Agent>,
        collector: Program,
    },
}

impl Recording {
    pub(super) fn start(file: &Path) -> Result<Recording, ReportError> {
        match shipping::collector_of_agent() {
            Some(collector) => {
                let name = run_name(file);
                let run = mark_run(&name);
                Ok(Recording::Fleet {
                    collector,
                    name,
                    run,
                })
            }
            None => own(file),
        }
    }

    pub(super) fn finish(self, file: &Path) -> Result<(), ReportError> {
        match self {
            Recording::Fleet {
                collector,
                name,
                run,
            } => {
                drop(run);
                // The agent may have moved.
                let collector = shipping::collector_of_agent().unwrap_or(collector);
                let mut command = emberline("report", file);
                let wait = RUN_END_SECONDS_MAX.to_string();
                command.args(["--url", &collector, "--run", &name, "--wait", &wait]);
                Program::start(command)?.finish()
            }
            Recording::Own { agent, collector } => {
                agent.finish();
                collector.finish()
            }
        }
    }
}

fn own(file: &Path) -> Result<Recording, ReportError> {
    let collector = Program::start(emberline("record", file))?;
    let url = collector.url()?;
    // On failure the collector ends with the last owner of its standard input.
    let agent = Agent::builder()
        .collector(url)
        .flush_timeout(FLUSH_MAX)
        .start()
        .map_err(|source| match source {
            StartError::AlreadyRunning => ReportError::RecordsLocally,
            source => ReportError::Start { source },
        })?;
    Ok(Recording::Own {
        agent: Box::new(agent),
        collector,
    })
}

/// `emberline COMMAND -o FILE`
fn emberline(name: &str, file: &Path) -> Command {
    let program = std::env::var_os(PROGRAM_VARIABLE)
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| OsString::from(PROGRAM_DEFAULT));
    let mut command = Command::new(PathBuf::from(program));
    command
        .arg(name)
        .arg("--output")
        .arg(file)
        .env(ABOUT_VARIABLE, command_line());
    command
}

/// The command line of this process, or the beginning of a long one.
fn command_line() -> String {
    let arguments: Vec<_> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    bounded(&arguments.join(" "), ABOUT_BYTES_MAX).into_owned()
}

/// A name that no other report of the fleet has.
fn run_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let number = NEXT_REPORT.fetch_add(1, Ordering::Relaxed);
    let start_ns = crate::clock::now().unix_ns();
    format!("{stem} {}-{start_ns}-{number}", std::process::id())
}
