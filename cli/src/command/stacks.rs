//! `emberline stacks`

use anyhow::bail;

use crate::args::{RowFormat, StacksArgs, word};
use crate::client::{Client, Query};
use crate::output::{print, say};
use crate::view::stacks::ThreadDump;

pub(crate) fn run(args: &StacksArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.ask.url.url)?;
    let query = Query::default()
        .with_each("task", &args.task)
        .with_each("worker", &args.worker)
        .with_each("thread", &args.thread)
        .with("threads", word(args.threads));
    let mut body = client.get("stacks", &query)?.body;
    let stacks: ThreadDump = client.parse(&body)?;
    if args.ask.format == RowFormat::Json {
        body.push(b'\n');
        print(&body)?;
    } else {
        print(stacks.text(!args.no_group).as_bytes())?;
    }
    stacks.notes().iter().for_each(|note| say(note));
    match stacks.unanswered() {
        0 => Ok(()),
        unanswered => bail!("{unanswered} of {} workers did not answer", stacks.count()),
    }
}
