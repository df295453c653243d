//! `emberline runs` and `emberline run start|stop`

use api::{Run, RunName, RunsAnswer};

use super::show;
use crate::args::{RunArgs, RunCommand, RunsArgs};
use crate::client::{Client, Query};
use crate::output::say;
use crate::view::runs;

pub(crate) fn list(args: &RunsArgs) -> anyhow::Result<()> {
    let query = Query::default().with_each("name", &args.name);
    show::<RunsAnswer>(&args.ask, "runs", &query)
}

pub(crate) fn mark(args: &RunArgs) -> anyhow::Result<()> {
    let (path, run) = match &args.command {
        RunCommand::Start(run) => ("runs", run),
        RunCommand::Stop(run) => ("runs/stop", run),
    };
    let client = Client::new(&run.url.url)?;
    let body = client.post(path, &RunName { name: run.name.clone() })?.body;
    let run: Run = client.parse(&body)?;
    say(&runs::line(&run));
    Ok(())
}
