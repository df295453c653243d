//! Programs that `record` and `run` start with the library that profiles them.

mod check;
mod descendants;
mod environment;
mod inherited;
mod journal;
mod library;
mod sys;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::fs;
use std::path::Path;
use std::process::Command;

use regex_lite::Regex;

pub(crate) use self::check::Obstacle;
use self::check::Program;
pub(crate) use self::descendants::is_descendant;
pub(crate) use self::inherited::Inherited;
pub(crate) use self::journal::{Journal, JournalCounts};
use crate::exit::{BadInput, Reported};
use crate::output::say;

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
const URL_VARIABLE: &str = "EMBERLINE_URL";
const LABELS_VARIABLE: &str = "EMBERLINE_LABELS";
const WORKER_VARIABLE: &str = "EMBERLINE_WORKER";
/// Read by the library.
const FILTERS_VARIABLE: &str = "EMBERLINE_PRELOAD_FILTERS";
const TASK_BY_VARIABLE: &str = "EMBERLINE_PRELOAD_TASK_BY";
const JOURNAL_VARIABLE: &str = "EMBERLINE_PRELOAD_JOURNAL";

/// Most bytes of an expression: it passes through a variable, of which the library copies some kilobytes.
const SYMBOL_BYTES_MAX: usize = 4 << 10;

/// Exit codes of shells for a program that is missing, and for one that cannot be executed.
const MISSING_CODE: u8 = 127;
const NOT_EXECUTABLE_CODE: u8 = 126;

/// Name of the task to which the time of a thread belongs.
#[derive(Clone, Debug, Default)]
pub(crate) enum TaskBy {
    /// The command of its process.
    #[default]
    Process,
    /// Its own name.
    Thread,
    /// The outermost function that matches, if there is one, and else the command.
    Symbol(Regex),
}

impl TaskBy {
    /// Reads a word of the command line.
    ///
    /// # Errors
    /// What is expected.
    pub(crate) fn parse(text: &str) -> Result<TaskBy, String> {
        match (text, text.split_once(':')) {
            ("process", _) => Ok(TaskBy::Process),
            ("thread", _) => Ok(TaskBy::Thread),
            (_, Some(("symbol", expression))) if expression.len() > SYMBOL_BYTES_MAX => Err(
                format!("expected an expression of at most {SYMBOL_BYTES_MAX} bytes"),
            ),
            (_, Some(("symbol", expression))) if !expression.is_empty() => {
                let expression = Regex::new(expression).map_err(|error| error.to_string())?;
                Ok(TaskBy::Symbol(expression))
            }
            _ => Err("expected process, thread or symbol:REGEX".to_owned()),
        }
    }
}

impl Display for TaskBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskBy::Process => f.write_str("process"),
            TaskBy::Thread => f.write_str("thread"),
            TaskBy::Symbol(expression) => write!(f, "symbol:{expression}"),
        }
    }
}

/// How a program's agents report.
#[derive(Clone, Debug)]
pub(crate) struct LaunchOptions<'a> {
    /// The collector's URL.
    pub(crate) url: &'a str,
    /// Begins the names of workers, in place of their commands.
    pub(crate) worker: Option<&'a str>,
    pub(crate) labels: &'a [(String, String)],
    pub(crate) task_by: TaskBy,
    /// Where the library writes what it does.
    pub(crate) journal: Option<&'a Journal>,
    /// Signals and limits that the program would have without this command.
    pub(crate) inherited: Inherited,
}

/// A program that can be started.
pub(crate) struct Launch {
    pub(crate) command: Command,
    /// Why the library does not profile it; it may profile programs that it starts.
    pub(crate) obstacle: Option<Obstacle>,
}

/// The command of a program, with the library that profiles it.
///
/// # Errors
/// If there is no such program, or no library.
pub(crate) fn prepare(program: &[OsString], options: &LaunchOptions<'_>) -> anyhow::Result<Launch> {
    let Some((name, arguments)) = program.split_first() else {
        return Err(BadInput("expected a program after --".to_owned()).into());
    };
    let shown = Path::new(name).display();
    let file = check::find(name).map_err(|error| {
        say(&format!("error: could not start {shown}: {error}"));
        Reported(match error {
            check::FindError::Missing => MISSING_CODE,
            check::FindError::NotExecutable => NOT_EXECUTABLE_CODE,
        })
    })?;
    let library = library::find()?;
    let obstacle = match check::examine(&file) {
        Program::Suitable => None,
        Program::Refused(obstacle) => Some(obstacle),
    };
    // By the name that was typed, which the program sees.
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env(URL_VARIABLE, options.url)
        .env(
            LABELS_VARIABLE,
            labels(options.labels, env::var_os(LABELS_VARIABLE)),
        )
        .env(FILTERS_VARIABLE, own_filters().to_string());
    if obstacle.is_none_or(Obstacle::tolerates_library) {
        let others = env::var_os(PRELOAD_VARIABLE);
        command.env(PRELOAD_VARIABLE, with_library(others, &library));
    }
    options.inherited.pass_on(&mut command);
    if let Some(worker) = options.worker {
        command.env(WORKER_VARIABLE, worker);
    }
    match &options.task_by {
        TaskBy::Process => command.env_remove(TASK_BY_VARIABLE),
        other => command.env(TASK_BY_VARIABLE, other.to_string()),
    };
    if let Some(journal) = options.journal {
        command.env(JOURNAL_VARIABLE, journal.path());
    }
    if environment::keep(&mut command).is_err() {
        // Without `/proc` it is sorted, which few programs notice.
        tracing::debug!("the environment of this process cannot be read");
    }
    Ok(Launch { command, obstacle })
}

/// The libraries that a program has anyway come first: some must.
fn with_library(others: Option<OsString>, library: &Path) -> OsString {
    let mut list = others.unwrap_or_default();
    if !list.is_empty() {
        list.push(":");
    }
    list.push(library);
    list
}

/// The labels in the form of the agent's variable, with those that it has already.
fn labels(own: &[(String, String)], others: Option<OsString>) -> OsString {
    let own: Vec<String> = own
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut list = OsString::from(own.join(","));
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        if !list.is_empty() {
            list.push(",");
        }
        list.push(others);
    }
    list
}

/// The label of all processes of one command.
pub(crate) fn run_label(program: &[OsString]) -> (String, String) {
    let name = program
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or(OsStr::new("program"))
        .to_string_lossy();
    let value = format!("{}-{}", name.replace(',', "_"), std::process::id());
    ("run".to_owned(), value)
}

/// Reads a label of the command line.
///
/// # Errors
/// What is expected.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    let label = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty());
    match label {
        Some((key, value)) if !text.contains(',') => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected KEY=VALUE without a comma".to_owned()),
    }
}

/// Filters of system calls of this process, such as a container's.
fn own_filters() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_and_labels_are_kept() {
        let library = Path::new("/lib/ours.so");
        for (others, expected) in [
            (None, "/lib/ours.so"),
            (Some(""), "/lib/ours.so"),
            (
                Some("libjemalloc.so:b.so"),
                "libjemalloc.so:b.so:/lib/ours.so",
            ),
        ] {
            assert_eq!(with_library(others.map(OsString::from), library), expected);
        }
        let own = [("run".to_owned(), "sort-7".to_owned())];
        for (own, others, expected) in [
            (&own[..], None, "run=sort-7"),
            (&own, Some("zone=a,rack=2"), "run=sort-7,zone=a,rack=2"),
            (&[], Some("zone=a"), "zone=a"),
            (&[], None, ""),
        ] {
            assert_eq!(labels(own, others.map(OsString::from)), expected);
        }
    }

    #[test]
    fn a_task_is_named_by_process_thread_or_function() {
        for text in ["process", "thread", "symbol:^handle_"] {
            assert_eq!(TaskBy::parse(text).unwrap().to_string(), text);
        }
        for invalid in ["", "symbol", "symbol:", "symbol:(", "name:x"] {
            assert!(TaskBy::parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_label_has_a_key_and_no_comma() {
        let label = Ok(("zone".to_owned(), "a=b".to_owned()));
        assert_eq!(parse_label("zone=a=b"), label);
        for invalid in ["", "zone", "=a", "zone=a,b", " =a"] {
            assert!(parse_label(invalid).is_err(), "{invalid:?}");
        }
    }
}
