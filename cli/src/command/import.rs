//! `emberline import`

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anyhow::Context as _;
use api::shell_quoted;
use flamegraph::text::{duration, printable};
use import::limits::{CONTENT_BYTES_MAX, TOTAL_NS_MAX};
use import::{ImportOptions, Imported, import};
use profiler_core::limits::{NAME_BYTES_MAX, WORKER_BYTES_MAX};
use profiler_core::{State, Timestamp, Token, WorkerId};

use crate::args::ImportArgs;
use crate::credentials;
use crate::exit::BadInput;
use crate::import::{ImportedWorker, Placement, Uploaded, upload};
use crate::output::{print, say, say_wrapped};
use crate::progress;
use crate::zone;

/// The file that stands for stdin.
const STDIN: &str = "-";

const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// The way on for a recording that is a folder.
const FOLDER: &str = "it is a folder: import the files in it, or what a tool writes of it: `perf script` for perf, \
                      `uftrace dump --flame-graph` for uftrace, the Firefox Profiler for Instruments (.trace)";

pub(crate) fn run(args: &ImportArgs) -> anyhow::Result<()> {
    let runs = run_names(args)?;
    let token = credentials::token(&args.url.url)?;
    for (file, run) in args.files.iter().zip(&runs) {
        let text = import_file(args, file, run, token.as_ref())
            .with_context(|| format!("could not import {}", printable(&file.to_string_lossy())))?;
        print(text.as_bytes())?;
    }
    if let [before, .., after] = &runs[..] {
        say(&format!(
            "compare them: emberline compare --before-run {} --after-run {}",
            shell_quoted(before),
            shell_quoted(after)
        ));
    }
    Ok(())
}

/// The name of each file's run.
fn run_names(args: &ImportArgs) -> Result<Vec<String>, BadInput> {
    if let Some(run) = &args.run {
        return match &args.files[..] {
            [_] => checked_run(run.clone()).map(|run| vec![run]),
            _ => Err(BadInput(
                "--run names the run of one file; import the files one by one".to_owned(),
            )),
        };
    }
    let mut names: Vec<String> = Vec::new();
    for file in &args.files {
        let name = checked_run(stem(file))?;
        if names.contains(&name) {
            let name = printable(&name).into_owned();
            let hint = "import them one by one, with --run";
            return Err(BadInput(format!(
                "several files would become the run {name}; {hint}"
            )));
        }
        names.push(name);
    }
    Ok(names)
}

fn checked_run(name: String) -> Result<String, BadInput> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok(name),
        bytes => Err(BadInput(format!(
            "a run's name has {bytes} bytes; it must have 1 to {NAME_BYTES_MAX}"
        ))),
    }
}

/// A file's name without its folder and extensions.
fn stem(file: &Path) -> String {
    if file.as_os_str() == STDIN {
        return "stdin".to_owned();
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    // A leading dot is part of the name.
    let dot = name.char_indices().skip(1).find(|(_, unit)| *unit == '.');
    let end = dot.map_or(name.len(), |(at, _)| at);
    name[..end].to_owned()
}

fn import_file(
    args: &ImportArgs,
    file: &Path,
    run: &str,
    token: Option<&Token>,
) -> anyhow::Result<String> {
    let content = read(file)?;
    let options = ImportOptions {
        format: args.format.map(Into::into),
        task: args.task.clone(),
        state: args.state.map(State::from),
        unit: args.unit.map(Into::into),
        interval_ns: args.interval,
        ..ImportOptions::default()
    };
    let imported = import(&content, &options).map_err(|error| BadInput(error.to_string()))?;
    let total_ns = imported.total_ns();
    if total_ns > TOTAL_NS_MAX {
        let [years, years_max] = [total_ns, TOTAL_NS_MAX].map(|time_ns| time_ns / YEAR_NS);
        return Err(BadInput(format!(
            "its thread time is {years} years; at most {years_max} are allowed: check --unit and --interval"
        ))
        .into());
    }
    let placement = place(args, file, run, &imported)?;
    let identity = format!("{options:?}");
    let worker = ImportedWorker::new(imported, placement, &[&content, identity.as_bytes()]);
    let bar = progress::bar("importing", worker.flushes());
    let uploaded = upload(&args.url.url, token, &worker, &|acked| {
        bar.set_position(acked)
    });
    bar.finish_and_clear();
    let uploaded = uploaded?;
    worker
        .imported()
        .notes
        .iter()
        .for_each(|note| say_wrapped(&format!("note: {note}")));
    Ok(summary(&worker, uploaded))
}

/// A file's content, up to the limit.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    // One byte more tells that there is more.
    let limit = CONTENT_BYTES_MAX as u64 + 1;
    if file.as_os_str() == STDIN {
        io::stdin().lock().take(limit).read_to_end(&mut content)?;
    } else {
        let opened = File::open(file)?;
        if opened.metadata()?.is_dir() {
            return Err(BadInput(FOLDER.to_owned()).into());
        }
        opened.take(limit).read_to_end(&mut content)?;
    }
    Ok(content)
}

fn place(
    args: &ImportArgs,
    file: &Path,
    run: &str,
    imported: &Imported,
) -> anyhow::Result<Placement> {
    let worker = args.worker.clone().unwrap_or_else(|| run.to_owned());
    let bytes_max = WORKER_BYTES_MAX - WorkerId::IMPORT_PREFIX.len();
    if worker.is_empty() || worker.len() > bytes_max {
        let bytes = worker.len();
        return Err(BadInput(format!(
            "a worker's name has {bytes} bytes; it must have 1 to {bytes_max}: set --worker"
        ))
        .into());
    }
    let now_ns = i64::try_from(jiff::Timestamp::now().as_nanosecond())?;
    let start = match &args.time {
        Some(text) => zone::parse(text)?,
        None => imported.started_at.unwrap_or_else(|| {
            let length_ns = i64::try_from(imported.duration_ns).unwrap_or(i64::MAX);
            Timestamp::from_unix_ns(now_ns).shifted(-length_ns)
        }),
    };
    let file = file
        .file_name()
        .unwrap_or(file.as_os_str())
        .to_string_lossy();
    let file = profiler_core::limits::bounded_name(&file).into_owned();
    Ok(Placement {
        run: run.to_owned(),
        worker,
        file,
        start,
    })
}

fn summary(worker: &ImportedWorker, uploaded: Uploaded) -> String {
    let imported = worker.imported();
    let run = &worker.placement.run;
    let range = worker.range();
    let known = match uploaded {
        Uploaded::Stored => "",
        Uploaded::Known => "; it was there already",
    };
    let name = printable(run);
    let total = duration(imported.total_ns());
    let format = imported.format;
    let [start, stop] = [range.start(), range.stop()].map(with_zone);
    let worker = printable(&worker.worker()).into_owned();
    let command = format!("emberline profile --run {}", shell_quoted(run));
    format!(
        "run {name}: {total} of thread time from {format}{known}\n  {start} to {stop}\n  \
         worker {worker}\n  {command}\n"
    )
}

fn with_zone(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(time.unix_ns()));
    time.map_or_else(|_| "?".to_owned(), zone::with_zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_called_like_its_file() {
        for (file, expected) in [
            ("a/before.pb.gz", "before"),
            ("after", "after"),
            (".hidden.txt", ".hidden"),
            ("-", "stdin"),
            ("./-", "-"),
            ("été.folded", "été"),
            ("東京/🔥.perf.txt", "🔥"),
            ("é", "é"),
            ("..", ""),
        ] {
            assert_eq!(stem(Path::new(file)), expected, "{file}");
        }
    }
}
