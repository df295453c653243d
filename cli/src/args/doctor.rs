//! The command that looks for what stands in the way.

use clap::{Args, ValueEnum};

use super::query::UrlArgs;

/// `emberline doctor`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline doctor                                  this machine, the collector, its workers\n  \
    emberline doctor target/release/worker            will its functions have names and lines?\n  \
    emberline doctor 4711                             the program of a running process\n  \
    emberline doctor --format json | jq .             for programs\n\n\
    Each line is ok, warn or bad, with what to do. The exit code is 1 if something is bad. Run it\n\
    where the workers run: as their user, in their container.")]
pub(crate) struct DoctorArgs {
    /// A program's file, or a process's id: is everything in it that names, files, lines and inlined
    /// functions come from? Without it this machine is looked at.
    #[arg(value_name = "PROGRAM|PID")]
    pub(crate) program: Option<String>,

    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// What to write.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DoctorFormat::Text)]
    pub(crate) format: DoctorFormat,
}

/// What findings are written as.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DoctorFormat {
    /// A line each, and what to do below it.
    Text,
    /// The same, for programs.
    Json,
}
