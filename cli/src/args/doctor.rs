//! The command that diagnoses problems.

use clap::{Args, ValueEnum};

use super::query::UrlArgs;

/// `emberline doctor`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline doctor                        machine, collector, workers\n  \
    emberline doctor target/release/worker  names and tables of a program\n  \
    emberline doctor 4711                   the program of a running process\n  \
    emberline doctor --format json | jq .   for programs\n\n\
    Each line is ok, warn or bad, with advice. Run it where the workers run: as their user, in \
    their container. Exit code 1: a check is bad.")]
pub(crate) struct DoctorArgs {
    /// Check a program instead of this machine: whether its file, or that of a process id, has names,
    /// source lines and unwind tables.
    #[arg(value_name = "PROGRAM|PID")]
    pub(crate) program: Option<String>,

    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DoctorFormat::Text)]
    pub(crate) format: DoctorFormat,
}

/// Output format of findings.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DoctorFormat {
    /// A line for each finding, with advice below.
    Text,
    /// The same, for programs.
    Json,
}
