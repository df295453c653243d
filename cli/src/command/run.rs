//! `emberline run`: a named range, or a program that is profiled.

use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;

use super::fleet::runs;
use super::server::local_server;
use crate::args::RunArgs;
use crate::attach::{AttachOptions, Attached};
use crate::client::{Client, with_scheme};
use crate::exit::BadInput;
use crate::launch::{self, Inherited, LaunchOptions};
use crate::output::say;
use crate::signals::ProgramSignals;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(command) => runs::mark(command),
        None if args.processes.is_wanted() => attach(args),
        None => become_program(args),
    }
}

/// Profiles processes that already run.
fn attach(args: &RunArgs) -> anyhow::Result<()> {
    let urls = collector_urls(args)?;
    let mut labels = args.label.clone();
    if !labels.iter().any(|(key, _)| key == "run") {
        labels.push(launch::run_label(&["attached".into()]));
    }
    let runtime = local_server::runtime()?;
    let _inside = runtime.enter();
    let stop = ProgramSignals::listen(|_| false).context("could not listen for signals")?;
    let options = AttachOptions {
        url: urls.join(","),
        worker: args.worker.clone(),
        labels,
        task_by: args.task_by.clone(),
    };
    Attached::start(&args.processes, options)?.watch(&runtime, stop);
    Ok(())
}

/// Becomes the program, so that its process, its signals and its exit code are as without this command.
fn become_program(args: &RunArgs) -> anyhow::Result<()> {
    let inherited = Inherited::read().context("could not read the signals of this process")?;
    let urls = collector_urls(args)?;
    let mut labels = args.label.clone();
    if !labels.iter().any(|(key, _)| key == "run") {
        labels.push(launch::run_label(&args.program));
    }
    let options = LaunchOptions {
        url: &urls.join(","),
        worker: args.worker.as_deref(),
        labels: &labels,
        task_by: args.task_by.clone(),
        journal: None,
        inherited,
    };
    let mut launch = launch::prepare(&args.program, &options)?;
    let shown = args.program[0].display();
    if let Some(obstacle) = launch.obstacle {
        say(&format!("{shown} is not profiled: {obstacle}"));
    }
    let error = launch.command.exec();
    Err(error).with_context(|| format!("could not start {shown}"))
}

/// The checked URLs of the collector.
fn collector_urls(args: &RunArgs) -> anyhow::Result<Vec<String>> {
    let urls: Vec<_> = args
        .collector
        .split(',')
        .map(str::trim)
        .map(|url| with_scheme(url).into_owned())
        .collect();
    for url in &urls {
        // The agents would only try again.
        Client::with_token(url, None)?;
        if url.starts_with("https:") {
            let text = format!(
                "{url}: the library in programs has no TLS, which would be a third of its size; expected \
                 http://HOST:PORT or unix:/PATH"
            );
            return Err(BadInput(text).into());
        }
    }
    Ok(urls)
}
