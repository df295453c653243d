//! `emberline workers` and `emberline workers set`

use anyhow::bail;
use api::{SettingsAnswer, SettingsChange, WorkersAnswer};

use crate::args::{WorkersArgs, WorkersCommand, WorkersSetArgs, word};
use crate::client::{Client, Query};
use crate::command::show;
use crate::exit::BadInput;
use crate::output::{print, say_wrapped};
use crate::view::settings;

pub(crate) fn run(args: &WorkersArgs) -> anyhow::Result<()> {
    if let Some(WorkersCommand::Set(args)) = &args.command {
        return set(args);
    }
    let query = Query::default()
        .with("sort", "attention")
        .with_each("worker", &args.worker)
        .with_each("label", &args.label);
    show::<WorkersAnswer>(&args.ask, "workers", &query)
}

fn set(args: &WorkersSetArgs) -> anyhow::Result<()> {
    let change = change(args);
    if change == SettingsChange::default() {
        let error = "nothing to set; expected --interval, --enabled or --state";
        return Err(BadInput(error.to_owned()).into());
    }
    let client = Client::new(&args.url.url)?;
    let query = Query::default().with_each("worker", &args.workers);
    let body = client.put("workers/settings", &query, &change)?.body;
    let answer: SettingsAnswer = client.parse(&body)?;
    if answer.workers.is_empty() {
        say_wrapped("no agent is connected; the settings apply to those that connect");
        return Ok(());
    }
    print(settings::table(&answer).as_bytes())?;
    match answer
        .workers
        .iter()
        .filter(|worker| !worker.applied)
        .count()
    {
        0 => Ok(()),
        missing => bail!("{missing} of {} have not applied it", answer.workers.len()),
    }
}

fn change(args: &WorkersSetArgs) -> SettingsChange {
    let states: Vec<String> = args.state.iter().map(|state| word(*state)).collect();
    SettingsChange {
        interval_ms: args.interval,
        enabled: args.enabled,
        states: Some(states).filter(|states| !states.is_empty()),
    }
}
