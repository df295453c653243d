//! Adopts the stores of dead collectors, one at a time, each by a process of its own: it needs as much memory as the
//! start of that collector, which goes back to the system, and costs ingest no lock and no thread.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use profiler_core::limits::bounded;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::sql::{kept_variables, read};
use crate::Retention;
use base::limits::{ADOPT_MESSAGE_BYTES_MAX, ADOPT_TIME_MAX};
use base::sync::{Mutex, lock, rank};
use state::Collector;
use state::adoption::StoreWatch;
use state::recovery::StoreOptions;
use store::StoreName;

/// When and how stores of dead collectors are adopted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AutoAdoption {
    /// How long an owner must not have shown that it lives.
    pub after: Duration,
    /// It is run as `PROGRAM store adopt --store PLACE --name NAME ARGUMENTS`.
    pub program: PathBuf,
    /// Retention, and what else the program needs.
    pub arguments: Vec<OsString>,
}

/// The options of the collector that adopts.
#[derive(Debug)]
pub(super) struct Adopting {
    pub(super) own: StoreOptions,
    pub(super) retention: Retention,
    pub(super) options: AutoAdoption,
}

/// Adopts stores until the server stops.
pub(super) async fn adopt_stores(
    collector: Arc<Collector>,
    adopting: Adopting,
    mut stopping: watch::Receiver<bool>,
) {
    let Adopting {
        own,
        retention,
        options,
    } = adopting;
    let stores = StoreWatch::new(own.place.clone(), own.name, options.after, retention);
    let mut ticks = interval(stores.every());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stores = Arc::new(Mutex::<_, rank::AdoptionWatch>::new(stores));
    let place = own.place.to_string();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.changed() => return,
        }
        let watched = stores.clone();
        let names = match spawn_blocking(move || lock(&watched).names()).await {
            Ok(Ok(names)) => names,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the stores of other collectors cannot be listed");
                continue;
            }
            Err(_) => return tracing::error!("watching stores panicked: a bug in Emberline"),
        };
        for name in names {
            let adopted = adopt_if_needed(&collector, &stores, &place, &name, &options).await;
            if let Err(reason) = adopted {
                collector.adoptions.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(name = %name, reason, "a store is not adopted; it is tried again in an hour");
                lock(&stores).note_failure(&name, Instant::now());
            }
        }
    }
}

async fn adopt_if_needed(
    collector: &Collector,
    stores: &Arc<Mutex<StoreWatch, rank::AdoptionWatch>>,
    place: &str,
    name: &StoreName,
    options: &AutoAdoption,
) -> Result<(), String> {
    let watched = stores.clone();
    let looked = name.clone();
    let time = collector.state.clock.now();
    let look = spawn_blocking(move || lock(&watched).look(&looked, Instant::now(), time)).await;
    let is_due = look.map_err(|_| "looking at it panicked: a bug in Emberline".to_owned())?;
    if !is_due.map_err(|error| error.to_string())? {
        return Ok(());
    }
    tracing::info!(name = %name, after = ?options.after, "the collector of a store is gone: adopting the store");
    let done = timeout(ADOPT_TIME_MAX, run(place, name, options))
        .await
        .map_err(|_| format!("it took longer than {ADOPT_TIME_MAX:?}"))??;
    collector.adoptions.done.fetch_add(1, Ordering::Relaxed);
    tracing::info!(name = %name, done, "a store was adopted");
    Ok(())
}

/// Runs the program. It is killed when this future is dropped. Returns its output, or why it failed.
async fn run(place: &str, name: &StoreName, options: &AutoAdoption) -> Result<String, String> {
    let mut child = Command::new(&options.program)
        .args([
            "store",
            "adopt",
            "--store",
            place,
            "--name",
            &name.to_string(),
        ])
        .args(&options.arguments)
        .env_clear()
        .envs(kept_variables())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("no process for it: {error}"))?;
    let output = child.stdout.take().expect("it is a pipe");
    let messages = child.stderr.take().expect("it is a pipe");
    let (output, messages) = tokio::join!(
        read(output, ADOPT_MESSAGE_BYTES_MAX),
        read(messages, ADOPT_MESSAGE_BYTES_MAX)
    );
    let status = child
        .wait()
        .await
        .map_err(|error| format!("its process is gone: {error}"))?;
    if status.success() {
        return Ok(one_line(&output));
    }
    let message = one_line(&messages);
    if message.is_empty() {
        Err(status.to_string())
    } else {
        Err(message)
    }
}

fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = bounded(text.trim(), ADOPT_MESSAGE_BYTES_MAX);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join("; ")
}
