//! `emberline serve`

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use collector::auth::{TokenFile, TokenSource};
use collector::limits::{ADOPT_AFTER_FACTOR_MIN, ADOPT_AFTER_MAX};
use collector::serve::{Reloader, SocketPeers, TlsOptions};
use collector::store::{Ack, Retention, StorePlace};
use collector::{
    AutoAdoption, FollowOptions, ForwardOptions, Limits, ScrapeTarget, ServeOptions, Server,
    StoreOptions, SymbolSource,
};
use tls::CertificateFiles;
use tokio::signal::unix::{SignalKind, signal};

use super::forward;
use super::programs::{
    cluster_arguments, cluster_program, data_arguments, size_argument, sql_program,
};
use crate::args::{AckArg, DebuginfodUrls, ScrapeArg, ServeArgs, quota_settings};
use crate::client::external::{fetch_profile, without_secrets};
use crate::command::demo;
use crate::exit::BadInput;
use crate::output::say;
use crate::service_manager;
use crate::signals::{StopRequests, survive_hangup};
use crate::watchdog;

/// Most services that are scraped. Each holds one of the threads that may block.
const SCRAPES_MAX: usize = 64;

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    // Before anything that may hang.
    watchdog::start((!args.watchdog.is_zero()).then_some(args.watchdog))
        .context("could not start the watchdog")?;
    collector::serve::raise_descriptor_limit();
    collector::serve::keep_files_private();
    collector::limit_panic_messages();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("could not start the collector's threads")?;
    let served = runtime.block_on(serve(args));
    // Queries of disconnected readers, and a sealing that takes too long.
    runtime.shutdown_background();
    served
}

/// Reloads files at each SIGHUP, which would end the process otherwise.
fn reload_on_hangup(reloader: Reloader) -> anyhow::Result<impl Future<Output = ()>> {
    let mut hangups = signal(SignalKind::hangup()).context("could not listen for SIGHUP")?;
    Ok(async move {
        while hangups.recv().await.is_some() {
            let reloader = reloader.clone();
            service_manager::reloading();
            if tokio::task::spawn_blocking(move || reloader.reload())
                .await
                .is_err()
            {
                tracing::error!("reloading panicked: a bug in Emberline");
            }
            service_manager::reloaded();
        }
    })
}

/// The token file that was named, or the one of the store.
fn token_source(file: Option<PathBuf>, data: Option<&Path>) -> TokenSource {
    match (file, data) {
        (Some(file), _) => TokenSource::File(TokenFile::new(file)),
        (None, Some(data)) => TokenSource::File(TokenFile::in_folder(data)),
        (None, None) => TokenSource::None,
    }
}

/// Where the collector looks for symbols, if anywhere.
fn symbol_source(
    folder: Option<PathBuf>,
    servers: Option<DebuginfodUrls>,
    agents: bool,
    has_data: bool,
) -> anyhow::Result<Option<SymbolSource>> {
    let DebuginfodUrls(mut debuginfod) = servers.unwrap_or_default();
    if !debuginfod.is_empty() && has_data {
        let servers: Vec<String> = debuginfod.iter().map(|url| without_secrets(url)).collect();
        say(&format!(
            "build ids without names are sent to {}",
            servers.join(", ")
        ));
    } else if !debuginfod.is_empty() {
        say("debuginfod servers are not asked: symbols need --data DIR");
        debuginfod.clear();
    }
    if agents && !has_data {
        say("workers are not asked for symbols: symbols need --data DIR");
    }
    if !has_data {
        return Ok(None);
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    Ok(Some(SymbolSource {
        folder,
        debuginfod,
        agents,
        program,
    }))
}

/// The store in a bucket, if one was named.
fn store_options(args: &ServeArgs) -> Option<StoreOptions> {
    let (place, name) = args.store.clone().zip(args.name.clone())?;
    let ack = match (args.ack, &args.data) {
        (Some(AckArg::Disk), _) | (None, Some(_)) => Ack::Disk,
        (Some(AckArg::Store), _) | (None, None) => Ack::Store,
    };
    Some(StoreOptions {
        place,
        name,
        ack,
        cache_bytes: args.cache_size,
    })
}

/// A time that tests shorten, of an hour at most.
pub(super) fn short_time(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds.clamp(1.0, 3_600e3) / 1e3)
}

/// Whether and how the stores of other collectors are adopted.
fn adopt_options(args: &ServeArgs, owner_watch: Duration) -> anyhow::Result<Option<AutoAdoption>> {
    let Some((milliseconds, name)) = args.adopt_after.zip(args.name.as_ref()) else {
        return Ok(None);
    };
    let least = owner_watch * ADOPT_AFTER_FACTOR_MIN;
    let after = Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default();
    if !(least..=ADOPT_AFTER_MAX).contains(&after) {
        let text = format!("--adopt-after must be from {least:?} to {ADOPT_AFTER_MAX:?}");
        return Err(BadInput(text).into());
    }
    let Retention {
        seconds,
        rollups,
        tasks,
        bytes_max,
    } = (&args.retention).into();
    let options_and_values = [
        ("--retention-seconds", hours(seconds)),
        ("--retention-rollups", hours(rollups)),
        ("--retention-tasks", hours(tasks)),
        ("--retention-size", size_argument(bytes_max)),
        ("--witness", name.to_string()),
        ("--owner-watch", format!("{}ms", owner_watch.as_millis())),
    ];
    let arguments = options_and_values
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .chain(["--limited".to_owned()])
        .map(OsString::from)
        .collect();
    let program = std::env::current_exe().context("cannot find this program's file")?;
    Ok(Some(AutoAdoption {
        after,
        program,
        arguments,
    }))
}

fn hours(age: Duration) -> String {
    format!("{}h", age.as_secs() / 3_600)
}

/// The stores to answer for, if the server is no collector itself.
fn follow_options(args: &ServeArgs) -> Option<FollowOptions> {
    let place = args.store.clone().filter(|_| args.read_only)?;
    Some(FollowOptions {
        place,
        data: args.data.clone(),
        cache_bytes: args.cache_size,
    })
}

/// Where the data is, for people.
fn store_lines(store: Option<&StoreOptions>, data: Option<&Path>) -> Vec<String> {
    let Some(StoreOptions {
        place, name, ack, ..
    }) = store
    else {
        return data.map(demo::store_line).into_iter().collect();
    };
    let acknowledged = match (ack, place, data) {
        (Ack::Disk, StorePlace::Bucket { .. }, Some(data)) => {
            format!("acknowledged means: on the disk, in {}", data.display())
        }
        _ => "acknowledged means: in the store".to_owned(),
    };
    vec![format!("data is stored in {place}/{name}"), acknowledged]
}

/// Where the collector's store is, as arguments of `emberline-sql`; `None` if it keeps nothing.
fn store_arguments(args: &ServeArgs) -> Option<Vec<OsString>> {
    let mut arguments = match &args.store {
        Some(place) => vec!["--store".into(), place.to_string().into()],
        None => data_arguments(args.data.as_deref()?),
    };
    if let Some(name) = &args.name {
        arguments.extend(["--name".into(), name.to_string().into()]);
    }
    arguments.extend(cluster_arguments(&args.cluster));
    Some(arguments)
}

/// The services to scrape; each name is a worker.
fn scrape_targets(scrapes: Vec<ScrapeArg>) -> Result<Vec<ScrapeTarget>, BadInput> {
    if scrapes.len() > SCRAPES_MAX {
        return Err(BadInput(format!(
            "at most {SCRAPES_MAX} services can be scraped"
        )));
    }
    let mut names = HashSet::new();
    if let Some(twice) = scrapes
        .iter()
        .find(|scrape| !names.insert(scrape.name.clone()))
    {
        let name = &twice.name;
        return Err(BadInput(format!(
            "two --scrape are named {name:?}; add name=NAME to one"
        )));
    }
    Ok(scrapes
        .into_iter()
        .map(|ScrapeArg { url, name, every }| ScrapeTarget {
            name,
            url: without_secrets(&url),
            every,
            fetch: Arc::new(move |length, bytes_max| {
                fetch_profile(&url, length, bytes_max).map_err(|error| format!("{error:#}"))
            }),
        })
        .collect())
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let stop = StopRequests::listen().context("could not listen for Ctrl-C and SIGTERM")?;
    survive_hangup().context("could not listen for SIGHUP")?;
    let store = store_options(&args);
    let sql = sql_program(store_arguments(&args));
    let cluster = cluster_program(store_arguments(&args), &args.cluster)?;
    let follow = follow_options(&args);
    let store_lines = match &follow {
        Some(FollowOptions { place, .. }) => {
            vec![format!(
                "answers for the collectors in {place}, and accepts nothing"
            )]
        }
        None => store_lines(store.as_ref(), args.data.as_deref()),
    };
    let is_collector = follow.is_none();
    let mut limits = Limits::default();
    if let Some(milliseconds) = args.owner_watch {
        limits.owner_watch = short_time(milliseconds);
    }
    if let Some(milliseconds) = args.seal_every {
        limits.seal_every = short_time(milliseconds);
    }
    let adopt = adopt_options(&args, limits.owner_watch)?;
    let certificate = args
        .tls_cert
        .zip(args.tls_key)
        .map(|(cert, key)| CertificateFiles { cert, key });
    let client_ca = args.client_ca;
    let symbols = symbol_source(
        args.symbols,
        args.debuginfod,
        args.symbols_from_agents,
        args.data.is_some(),
    )?;
    let mut forward = ForwardOptions {
        targets: forward::targets(&args.forwards, &args.trace_forwards, &args.forward_service)?,
        ..ForwardOptions::default()
    };
    if let Some(milliseconds) = args.forward_every {
        forward.every = Duration::from_secs_f64(milliseconds.clamp(1.0, 3_600e3) / 1e3);
    }
    let server = Server::bind(ServeOptions {
        listen: args.listen,
        tls: certificate.map(|certificate| TlsOptions {
            certificate,
            client_ca,
        }),
        socket_peers: SocketPeers {
            users: args.socket_users,
            allows_process: None,
        },
        insecure_listen: args.insecure_listen,
        public_names: args.public_names,
        retention: (&args.retention).into(),
        tokens: token_source(args.tokens, args.data.as_deref()),
        data: args.data,
        store,
        follow,
        adopt,
        symbols,
        sql,
        cluster,
        limits,
        quotas: quota_settings(&args.quotas)?,
        task_label: args.task_label,
        scrapes: scrape_targets(args.scrapes)?,
        forward,
        ..ServeOptions::default()
    })
    .await?;
    tokio::spawn(reload_on_hangup(server.reloader())?);
    let url = server.url();
    if url.starts_with("http") {
        say(&demo::open_line(&url));
    }
    if is_collector {
        say(&format!("collector on {url}; agents report there"));
    } else {
        say(&format!("reader on {url}; agents report to the collectors"));
    }
    if let Some(fingerprint) = server.fingerprint() {
        say(&format!(
            "clients without the certificate's authority add #{fingerprint} to the URL"
        ));
    }
    store_lines.iter().for_each(|line| say(line));
    demo::report_damage(&server);
    say(&demo::hints(&url));
    say("Ctrl-C stops it.");
    tokio::spawn(service_manager::keep_watchdog_quiet());
    service_manager::ready(&url);
    server
        .serve(async {
            stop.first().await;
            service_manager::stopping();
            say("stopping; a second Ctrl-C stops at once");
        })
        .await?;
    Ok(())
}
