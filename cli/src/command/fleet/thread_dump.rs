//! `emberline thread-dump`

use anyhow::bail;
use api::ThreadDumpAnswer;

use crate::args::{RowFormat, ThreadDumpArgs, word};
use crate::client::{Client, Query};
use crate::output::{print, print_json, say_wrapped};
use crate::view::thread_dump;

pub(crate) fn run(args: &ThreadDumpArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.ask.url.url)?;
    let query = Query::default()
        .with_each("task", &args.task)
        .with_each("worker", &args.worker)
        .with_each("thread", &args.thread)
        .with("threads", word(args.threads));
    let body = client.get("thread-dump", &query)?.body;
    let dump: ThreadDumpAnswer = client.parse(&body)?;
    if args.ask.format == RowFormat::Json {
        print_json(body)?;
    } else {
        print(thread_dump::text(&dump, !args.no_group, args.stacks).as_bytes())?;
    }
    thread_dump::notes(&dump)
        .iter()
        .for_each(|note| say_wrapped(note));
    match thread_dump::silent_workers(&dump) {
        0 => Ok(()),
        silent => bail!("{silent} of {} workers did not respond", dump.workers.len()),
    }
}
