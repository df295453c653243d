//! `emberline serve`

use anyhow::Context as _;
use collector::{Collector, ServeOptions};

use crate::args::ServeArgs;
use crate::output::say;
use crate::signals::StopRequests;

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the collector's threads")?;
    runtime.block_on(serve(args))
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let stop = StopRequests::listen().context("could not listen for Ctrl-C and SIGTERM")?;
    let server = Collector::bind(ServeOptions {
        listen: args.listen,
        insecure_listen: args.insecure_listen,
        ..ServeOptions::default()
    })
    .await?;
    let url = format!("http://{}", server.local_addr());
    say(&format!("collector on {url}; agents report there"));
    say(&super::demo::places(&url));
    say("Ctrl-C ends it.");
    server
        .serve(async {
            stop.first().await;
            say("ending; a second Ctrl-C ends at once");
        })
        .await?;
    Ok(())
}
