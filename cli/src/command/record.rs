//! `emberline record`: a collector for one program, and the report of it.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use collector::ServeOptions;
use nix::sys::signal::SigSet;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::report;
use super::server::local_server::{self, LocalServer};
use crate::args::RecordArgs;
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::output::{check_writable, print, say};
use crate::signals::StopRequests;

/// Advice if there is nothing to report.
const NO_AGENT: &str = "no agent reported, so no report was written; the program must start one, and leave its \
                        collector to EMBERLINE_URL";

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    // An agent starts this from a thread that blocks all signals.
    SigSet::empty()
        .thread_set_mask()
        .context("could not unblock signals")?;
    if args.output.as_os_str() == "-" {
        let text = "a report of `emberline record` is a file; expected a name such as report.html";
        return Err(BadInput(text.to_owned()).into());
    }
    let json = report::json_path(&args.output)?;
    // The program may take hours.
    for file in [&args.output, &json] {
        check_writable(file)?;
    }
    let runtime = local_server::runtime()?;
    let _inside = runtime.enter();
    let stop = StopRequests::listen().context("could not listen for Ctrl-C and SIGTERM")?;
    let server = LocalServer::start(&runtime, ServeOptions::default())?;
    let recorded = record(args, &json, &server.url, &runtime, stop);
    server.end(&runtime)?;
    recorded
}

/// Runs the program and writes its report.
fn record(
    args: &RecordArgs,
    json: &Path,
    url: &str,
    runtime: &Runtime,
    stop: StopRequests,
) -> anyhow::Result<()> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let status = until_it_ends(&args.program, url, runtime, stop)?;
    let failure = status.filter(|status| !status.success());
    let stopped = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // Whole seconds, as profiles are stored: everything that the collector has.
    let range = Query::default()
        .with("from", started.as_secs().to_string())
        .with("to", (stopped.as_secs() + 1).to_string());
    let client = Client::with_token(url, None)?;
    let program = args.about.clone().or_else(|| command_line(&args.program));
    let written = report::write_whole(&client, range, program.as_deref(), [&args.output, json]);
    // The range is right, so it has no data.
    if written.as_ref().is_err_and(|error| error.is::<BadInput>()) {
        let failed = failure.map(|status| format!("the program failed ({status}); "));
        return Err(BadInput(failed.unwrap_or_default() + NO_AGENT).into());
    }
    let bytes = written?.bytes;
    say(&format!(
        "wrote {} ({bytes} bytes) and {}",
        args.output.display(),
        json.display()
    ));
    match failure {
        Some(status) => bail!("the program failed: {status}"),
        None => Ok(()),
    }
}

/// The program with its arguments, if there is one.
fn command_line(program: &[OsString]) -> Option<String> {
    let parts: Vec<_> = program.iter().map(|part| part.to_string_lossy()).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Runs the program to its end; without one, waits until standard input ends or a stop is requested.
fn until_it_ends(
    program: &[OsString],
    url: &str,
    runtime: &Runtime,
    stop: StopRequests,
) -> anyhow::Result<Option<ExitStatus>> {
    let Some((name, arguments)) = program.split_first() else {
        print(format!("{url}\n").as_bytes())?;
        runtime.block_on(async {
            tokio::select! {
                () = end_of_input() => {}
                () = stop.first() => {}
            }
        });
        return Ok(None);
    };
    // Ctrl-C reaches the program too. The report is about what it did until then.
    let stop = runtime.spawn(stop.first());
    let status = Command::new(name)
        .args(arguments)
        .env("EMBERLINE_URL", url)
        .status();
    stop.abort();
    let status = status.with_context(|| format!("could not start {}", name.display()))?;
    Ok(Some(status))
}

/// Resolves when standard input ends. The thread that reads it ends with the process.
async fn end_of_input() {
    let (sender, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let mut piece = [0; 64];
        let mut stdin = io::stdin().lock();
        while matches!(stdin.read(&mut piece), Ok(1..)) {}
        drop(sender);
    });
    // Nothing is sent: it ends when the sender is dropped.
    let _ = ended.await;
}
