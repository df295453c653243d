//! `emberline symbols`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::query::{AskArgs, UrlArgs};
use super::retention::age;

/// `emberline symbols`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline symbols upload target/release/worker  before the program is stripped\n  \
    emberline symbols upload worker.debug           by objcopy --only-keep-debug\n  \
    emberline symbols upload worker.dwp             next to its program\n  \
    emberline symbols list                          which builds have names\n\n\
    A collector names the functions of stripped programs from symbol files, also for the past. \
    They belong to a build id: `file PROGRAM` prints it. docs/SYMBOLS.md has all ways.")]
pub(crate) struct SymbolsArgs {
    #[command(subcommand)]
    pub(crate) command: SymbolsCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum SymbolsCommand {
    /// Send the names of functions, files and lines of these files to a collector.
    #[command(after_help = "Examples:\n  \
        emberline symbols upload target/release/worker\n  \
        emberline symbols upload --url https://profiles:4747 build/*.debug\n\n\
        Reads executables, libraries and debug files here, and sends only a table of names. \
        Split debug information is found in NAME.dwp next to NAME, and in the .dwo files of the \
        build. Needs a token of role operator, if the collector has tokens. An upload that broke \
        off continues where it was; files that the collector has are not sent.")]
    Upload(UploadSymbolsArgs),
    /// List the symbol files of a collector.
    #[command(after_help = "Examples:\n  \
        emberline symbols list\n  \
        emberline symbols list --format json")]
    List(AskArgs),
    /// Read and check all symbol files of a collector. Exit code 1: something is damaged.
    #[command(after_help = "Examples:\n  \
        emberline symbols verify\n  \
        emberline symbols verify --format json")]
    Verify(AskArgs),
    /// Remove the symbol files that no query used for a while.
    #[command(after_help = "Examples:\n  \
        emberline symbols gc\n  \
        emberline symbols gc --unused 30d")]
    Gc(CollectSymbolsArgs),
    /// Ask a connected worker for the symbols of a build that it runs. Exit code 1: it has none.
    #[command(after_help = "Examples:\n  \
        emberline symbols fetch 59fd0a2c77e31b8a\n  \
        emberline symbols list  how far it is\n\n\
        The worker sends the debug sections of its file, at most 1 MiB a second, and the \
        collector makes a table of names of them. The command waits for the end; the fetch goes \
        on without it. Needs a token of role operator, if the collector has tokens.")]
    Fetch(FetchSymbolsArgs),
    /// Make a symbol file, to upload it from elsewhere.
    #[command(after_help = "Examples:\n  \
        emberline symbols reduce worker --output worker.symbols\n  \
        emberline symbols upload worker.symbols")]
    Reduce(ReduceSymbolsArgs),
}

/// `emberline symbols upload`
#[derive(Args, Debug)]
pub(crate) struct UploadSymbolsArgs {
    /// Executables, libraries, debug files, packages of split debug information (.dwp), or symbol files.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Replace other symbols of the same build id. Symbols with lines replace those without anyway.
    #[arg(long)]
    pub(crate) replace: bool,
}

/// `emberline symbols gc`
#[derive(Args, Debug)]
pub(crate) struct CollectSymbolsArgs {
    #[command(flatten)]
    pub(crate) url: UrlArgs,

    /// Time without use, such as 30d.
    #[arg(long, value_name = "AGE", default_value = "90d", value_parser = age)]
    pub(crate) unused: Duration,
}

/// `emberline symbols fetch`
#[derive(Args, Debug)]
pub(crate) struct FetchSymbolsArgs {
    /// Build id, as `emberline doctor` shows it.
    #[arg(value_name = "BUILD-ID")]
    pub(crate) build_id: String,

    #[command(flatten)]
    pub(crate) url: UrlArgs,
}

/// `emberline symbols reduce`
#[derive(Args, Debug)]
pub(crate) struct ReduceSymbolsArgs {
    /// Executable, library or debug file, or its URL at a debuginfod server:
    /// http://HOST/buildid/BUILDID/debuginfo.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Where to write the symbol file.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Limit memory and CPU time, as a collector does for files that it finds.
    #[arg(long)]
    pub(crate) limited: bool,
}
