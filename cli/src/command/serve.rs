//! `emberline serve`

use std::time::Duration;

use anyhow::Context as _;
use collector::{Collector, Limits, ServeOptions};

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
    let store = args.data.as_deref().map(super::demo::store_line);
    let mut limits = Limits::default();
    if let Some(milliseconds) = args.seal_every {
        limits.seal_every = Duration::from_secs_f64(milliseconds.clamp(1.0, 3_600e3) / 1e3);
    }
    let server = Collector::bind(ServeOptions {
        listen: args.listen,
        insecure_listen: args.insecure_listen,
        retention: (&args.retention).into(),
        data: args.data,
        limits,
        ..ServeOptions::default()
    })
    .await?;
    let url = format!("http://{}", server.local_addr());
    say(&format!("collector on {url}; agents report there"));
    if let Some(store) = store {
        say(&store);
    }
    super::demo::report_damage(&server);
    say(&super::demo::hints(&url));
    say("Ctrl-C stops it.");
    server
        .serve(async {
            stop.first().await;
            say("stopping; a second Ctrl-C stops at once");
        })
        .await?;
    Ok(())
}
