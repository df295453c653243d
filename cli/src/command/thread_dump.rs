//! `emberline thread-dump`

use anyhow::bail;

use crate::args::{RowFormat, ThreadDumpArgs, word};
use crate::client::{Client, Query};
use crate::output::{print, say};
use crate::view::thread_dump::ThreadDump;

pub(crate) fn run(args: &ThreadDumpArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.ask.url.url)?;
    let query = Query::default()
        .with_each("task", &args.task)
        .with_each("worker", &args.worker)
        .with_each("thread", &args.thread)
        .with("threads", word(args.threads));
    let mut body = client.get("thread-dump", &query)?.body;
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
