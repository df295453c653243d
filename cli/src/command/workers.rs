//! `emberline workers`

use crate::args::{RowFormat, WorkersArgs};
use crate::client::{Client, Query};
use crate::output::{print, say};
use crate::view::workers::Workers;

pub(crate) fn run(args: &WorkersArgs) -> anyhow::Result<()> {
    let client = Client::new(&args.url.url)?;
    let mut body = client.get("workers", &Query::default())?.body;
    if args.format == RowFormat::Json {
        body.push(b'\n');
        return print(&body);
    }
    let workers: Workers = client.parse(&body)?;
    say(workers.note());
    print(workers.table().as_bytes())
}
