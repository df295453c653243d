//! `emberline workers` and `emberline workers set`

use anyhow::bail;
use serde_json::{Map, Value};

use crate::args::{RowFormat, WorkersArgs, WorkersCommand, WorkersSetArgs, word};
use crate::client::{Client, Query};
use crate::exit::BadInput;
use crate::output::{print, say};
use crate::view::settings::Settings;
use crate::view::workers::Workers;

pub(crate) fn run(args: &WorkersArgs) -> anyhow::Result<()> {
    if let Some(WorkersCommand::Set(args)) = &args.command {
        return set(args);
    }
    let client = Client::new(&args.ask.url.url)?;
    let mut body = client.get("workers", &Query::default())?.body;
    if args.ask.format == RowFormat::Json {
        body.push(b'\n');
        return print(&body);
    }
    let workers: Workers = client.parse(&body)?;
    workers.notes().iter().for_each(|note| say(note));
    print(workers.table().as_bytes())
}

fn set(args: &WorkersSetArgs) -> anyhow::Result<()> {
    let change = change(args);
    if change.is_empty() {
        let error = "there is nothing to set; give some of --interval, --enabled, --state";
        return Err(BadInput(error.to_owned()).into());
    }
    let client = Client::new(&args.url.url)?;
    let query = Query::default().with_each("worker", &args.workers);
    let body = client.put("workers/settings", &query, &change.into())?.body;
    let settings: Settings = client.parse(&body)?;
    if settings.is_empty() {
        say("no agent is connected; those that come will be told");
        return Ok(());
    }
    print(settings.table().as_bytes())?;
    match settings.missing() {
        0 => Ok(()),
        missing => bail!("{missing} of {} have not applied it", settings.count()),
    }
}

fn change(args: &WorkersSetArgs) -> Map<String, Value> {
    let mut change = Map::new();
    if let Some(interval_ms) = args.interval {
        change.insert("interval_ms".to_owned(), interval_ms.into());
    }
    if let Some(enabled) = args.enabled {
        change.insert("enabled".to_owned(), enabled.into());
    }
    if !args.state.is_empty() {
        let states: Vec<String> = args.state.iter().map(|state| word(*state)).collect();
        change.insert("states".to_owned(), states.into());
    }
    change
}
