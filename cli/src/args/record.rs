//! `emberline record`

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::ProcessArgs;
use crate::launch::TaskBy;

/// `emberline record`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline record -o report.html -- sort big.txt\n  \
    emberline record -o report.html -- make -j4\n  \
    emberline record -o cpu.collapsed -- make    CPU time only, for other tools\n  \
    emberline record -o report.html --pid 1234 -d 30\n  \
    emberline record -o report.html  programs that you start yourself\n\n\
    The program after -- is not changed: a library that is loaded into it and its children (LD_PRELOAD) \
    starts an agent 50 ms after each has begun. Its streams, arguments and exit code are as without this command, \
    which ends with the same code or signal, or with 1 if only the report failed. A static program, one in Go or \
    with a sanitizer is profiled from outside, without its children. Set-uid programs, sandboxes, and children of \
    these kinds are not profiled, which is said.\n\n\
    A process that already runs (--pid, --name) is profiled from outside, whatever it is: it is neither stopped nor \
    changed, and Ctrl-C ends the recording only.\n\n\
    Agents report to a socket of this user alone, in a new folder below TMPDIR; its address is in \
    EMBERLINE_URL. Root's is also for processes of the program that have become another user. Without a program the \
    address is the first line of stdout, and the report is written when stdin ends. Data is in memory only.\n\n\
    The extension of -o decides: .html is a report, with its JSON next to it as by `emberline report`, and .json \
    that JSON alone; others are those of `emberline profile`, with CPU time only: .svg, .collapsed or .txt, .pb.gz \
    or .pprof, .speedscope.json, .firefox.json, .nested.json, .csv, .parquet.")]
pub(crate) struct RecordArgs {
    /// File of the report or profile, replaced atomically.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Command line of the programs in the report: its summary shows it. That of a program after --
    /// is known. Guards of `emberline_agent::report` set it.
    #[arg(long, value_name = "TEXT", env = "EMBERLINE_REPORT_PROGRAM")]
    pub(crate) about: Option<String>,

    /// Name of the task to which a thread's time belongs: the command of its process, its own name,
    /// or the outermost function that matches (symbol:REGEX).
    #[arg(long, value_name = "process|thread|symbol:REGEX", default_value_t, value_parser = TaskBy::parse)]
    pub(crate) task_by: TaskBy,

    #[command(flatten)]
    pub(crate) processes: ProcessArgs,

    /// The program and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
