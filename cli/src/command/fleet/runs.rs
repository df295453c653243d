//! `emberline runs` and `emberline run start|stop`

use api::{Run, RunName, RunsAnswer};

use crate::args::{RunCommand, RunsArgs};
use crate::client::{Client, Query};
use crate::command::show_changed;
use crate::output::say;
use crate::view::runs;

pub(crate) fn list(args: &RunsArgs) -> anyhow::Result<()> {
    let query = Query::default().with_each("name", &args.name);
    show_changed(&args.ask, "runs", &query, |answer: &mut RunsAnswer| {
        let total = answer.runs.len();
        answer
            .runs
            .truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
        let shown = answer.runs.len();
        (shown < total).then(|| format!("the newest {shown} of {total} runs; --limit shows more"))
    })
}

pub(crate) fn mark(command: &RunCommand) -> anyhow::Result<()> {
    let (path, run) = match command {
        RunCommand::Start(run) => ("runs", run),
        RunCommand::Stop(run) => ("runs/stop", run),
    };
    let client = Client::new(&run.url.url)?;
    let body = client
        .post(
            path,
            &RunName {
                name: run.name.clone(),
            },
        )?
        .body;
    let run: Run = client.parse(&body)?;
    say(&runs::line(&run));
    Ok(())
}
