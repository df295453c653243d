//! `emberline symbols`

mod room;
mod source;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail};
use api::{
    SymbolUploadAnswer, SymbolsAnswer, SymbolsFetchAnswer, SymbolsFetchRequest, SymbolsGcAnswer,
    SymbolsGcRequest, SymbolsVerifyAnswer,
};
use collector::limits::{
    PROCESS_ADDRESS_SPACE_MAX, PROCESS_CPU_SECONDS_MAX, SYMBOL_PIECE_BYTES_MAX,
};
use sha2::{Digest as _, Sha256};
use symbol_files::{Detail, Facts, SymbolFile, SymbolFileError, shared_file_of};

use self::room::Bounded;
use self::source::Source;
use crate::args::{
    AskArgs, CollectSymbolsArgs, FetchSymbolsArgs, ReduceSymbolsArgs, RowFormat, SymbolsArgs,
    SymbolsCommand, UploadSymbolsArgs,
};
use crate::client::external::{download, without_secrets};
use crate::client::{Client, Query};
use crate::exit::NotFound;
use crate::output::{print, print_json, say};
use crate::view::symbols as view;

/// How often to ask how far a fetch is.
const FETCH_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// End of the URL of a file with debug information at a debuginfod server, after its build id.
const DEBUGINFO: &str = "/debuginfo";
/// Longest build id that is requested from servers.
const BUILD_ID_DIGITS_MAX: usize = 128;

pub(crate) fn run(args: &SymbolsArgs) -> anyhow::Result<()> {
    match &args.command {
        SymbolsCommand::Upload(args) => upload(args),
        SymbolsCommand::List(args) => list(args),
        SymbolsCommand::Verify(args) => verify(args),
        SymbolsCommand::Gc(args) => remove_unused(args),
        SymbolsCommand::Fetch(args) => fetch(args),
        SymbolsCommand::Reduce(args) => reduce_to_file(args),
    }
}

/// A symbol file in memory.
struct Made {
    facts: Facts,
    content: Vec<u8>,
}

impl Made {
    /// The symbol file at `path`, or one of the ELF file there.
    fn of(path: &Path) -> anyhow::Result<Made> {
        let source = Source::open(path)?;
        match SymbolFile::open(source.file().try_clone()?) {
            Ok(file) => {
                let content = std::fs::read(path)?;
                Ok(Made {
                    facts: file.facts().clone(),
                    content,
                })
            }
            Err(SymbolFileError::NotSymbols) => {
                let mut content = Vec::new();
                let facts = source.reduce(true, &mut content)?.facts;
                Ok(Made { facts, content })
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be used", path.display())),
        }
    }
}

fn upload(args: &UploadSymbolsArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.url.url)?;
    for path in &args.files {
        let made = Made::of(path)?;
        if made.facts.detail < Detail::CompiledLines {
            let detail = made.facts.detail.name();
            say(&format!(
                "{}: it has {detail} only, no files and lines; upload it as it was before it was \
                 stripped, or its debug file",
                path.display()
            ));
        }
        let answer = send(&client, &made, args.replace)
            .with_context(|| format!("{} was not uploaded", path.display()))?;
        print(view::uploaded(path, &made.facts, made.content.len(), answer.known).as_bytes())?;
    }
    Ok(())
}

/// Sends what the collector does not have yet.
fn send(client: &Client, made: &Made, replace: bool) -> anyhow::Result<SymbolUploadAnswer> {
    let hash = Sha256::digest(&made.content);
    let sha256: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = made.content.len();
    let post = |offset: u64, piece: &[u8]| -> anyhow::Result<SymbolUploadAnswer> {
        let query = Query::default()
            .with("build_id", &*made.facts.build_id)
            .with("sha256", &*sha256)
            .with("bytes", bytes.to_string())
            .with("offset", offset.to_string())
            .with("replace", replace.to_string());
        let answer = client.post_bytes("symbols", &query, piece)?;
        Ok(client.parse(&answer.body)?)
    };
    // An empty piece asks how much the collector has.
    let mut answer = post(0, &[])?;
    while !answer.stored {
        let start = usize::try_from(answer.received)?.min(bytes);
        let end = bytes.min(start + SYMBOL_PIECE_BYTES_MAX);
        let next = post(start as u64, &made.content[start..end])?;
        if !next.stored && next.received == answer.received {
            bail!("the collector does not take the piece at byte {start}");
        }
        answer = next;
    }
    Ok(answer)
}

fn list(args: &AskArgs) -> anyhow::Result<()> {
    let answer = Client::new(&args.url.url)?.get("symbols", &Query::default())?;
    match args.format {
        RowFormat::Json => print_json(answer.body),
        RowFormat::Table => {
            let client = Client::new(&args.url.url)?;
            let list: SymbolsAnswer = client.parse(&answer.body)?;
            print(view::list(&list).as_bytes())
        }
    }
}

fn verify(args: &AskArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.url.url)?;
    let answer = client.get("symbols/verify", &Query::default())?;
    let verified: SymbolsVerifyAnswer = client.parse(&answer.body)?;
    match args.format {
        RowFormat::Json => print_json(answer.body)?,
        RowFormat::Table => print(view::verified(&verified).as_bytes())?,
    }
    match verified.problems.len() {
        0 => Ok(()),
        1 => bail!("1 symbol file is damaged; upload it again with --replace"),
        count => bail!("{count} symbol files are damaged; upload them again with --replace"),
    }
}

fn remove_unused(args: &CollectSymbolsArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.url.url)?;
    let request = SymbolsGcRequest {
        unused_seconds: args.unused.as_secs(),
    };
    let answer = client.post("symbols/gc", &request)?;
    let removed: SymbolsGcAnswer = client.parse(&answer.body)?;
    print(view::removed(&removed).as_bytes())
}

/// Asks a worker, and waits for the end.
fn fetch(args: &FetchSymbolsArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.url.url)?;
    let build_id = &args.build_id;
    let request = SymbolsFetchRequest {
        build_id: build_id.clone(),
    };
    let answer = client.post("symbols/fetch", &request)?;
    let asked: SymbolsFetchAnswer = client.parse(&answer.body)?;
    say(&view::asked(asked.agents));
    let mut shown = String::new();
    loop {
        let answer = client.get("symbols", &Query::default())?;
        let list: SymbolsAnswer = client.parse(&answer.body)?;
        let Some(fetch) = list
            .fetches
            .iter()
            .find(|fetch| fetch.build_id == *build_id)
        else {
            let file = list
                .files
                .iter()
                .find(|file| file.build_id == *build_id)
                .context("the collector removed the symbols again")?;
            return print(view::fetched(file).as_bytes());
        };
        if !fetch.problem.is_empty() {
            bail!(
                "the symbols of build id {build_id} were not fetched: {}",
                fetch.problem
            );
        }
        let progress = view::progress(fetch);
        if progress != shown {
            say(&progress);
            shown = progress;
        }
        sleep(FETCH_POLL_INTERVAL);
    }
}

/// The file, or what was downloaded from its URL.
fn source(args: &ReduceSymbolsArgs) -> anyhow::Result<Source> {
    let url = args
        .file
        .to_str()
        .filter(|text| text.starts_with("http://") || text.starts_with("https://"));
    let Some(url) = url else {
        return Source::open(&args.file);
    };
    let shown = without_secrets(url);
    let file = temporary_file(&args.output, "download")?;
    let is_found = download(url, &mut Bounded::new(&file, &args.output));
    if !is_found.with_context(|| format!("{shown} was not downloaded"))? {
        return Err(NotFound(format!("{shown} does not exist")).into());
    }
    let shared = match shared_url(url, &file) {
        Some(url) => {
            let shared = temporary_file(&args.output, "shared")?;
            let mut bounded = Bounded::new(&shared, &args.output);
            // Without it, there are functions and lines.
            let is_found = download(&url, &mut bounded).unwrap_or(false);
            is_found.then_some(shared)
        }
        None => None,
    };
    // The name appears in errors.
    Ok(Source::alone(Path::new(&shown), file, shared))
}

/// A new file next to the output, which ends with this process, even if that is killed.
fn temporary_file(output: &Path, purpose: &str) -> anyhow::Result<File> {
    let name = format!(".emberline-{purpose}-{}", std::process::id());
    let path = output.with_file_name(name);
    let cannot = || format!("cannot write {}", path.display());
    // Never a file of somebody else.
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(cannot)?;
    std::fs::remove_file(&path).with_context(cannot)?;
    Ok(file)
}

/// Where the same server has the file that a downloaded one shares debug information with.
fn shared_url(url: &str, file: &File) -> Option<String> {
    let linked = shared_file_of(file).ok()??;
    let (server, _) = url.strip_suffix(DEBUGINFO)?.rsplit_once('/')?;
    let is_asked_for = linked.id.len() <= BUILD_ID_DIGITS_MAX;
    is_asked_for.then(|| format!("{server}/{}{DEBUGINFO}", linked.id))
}

fn reduce_to_file(args: &ReduceSymbolsArgs) -> anyhow::Result<()> {
    if args.limited {
        collector::limit_process(PROCESS_ADDRESS_SPACE_MAX, PROCESS_CPU_SECONDS_MAX)?;
        collector::end_first();
    }
    let source = source(args)?;
    let file = File::create(&args.output)
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    let mut output = BufWriter::new(Bounded::new(&file, &args.output));
    // A limited process reads a file of somebody else.
    let reduced = source.reduce(!args.limited, &mut output)?;
    output.flush()?;
    let bytes = file.metadata()?.len();
    let bytes = usize::try_from(bytes)?;
    print(view::uploaded(&args.output, &reduced.facts, bytes, false).as_bytes())
}
