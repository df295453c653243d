//! Services with pprof's HTTP endpoint, which the collector scrapes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use import::{ImportFormat, ImportOptions, Labels};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::Sender;
use super::failure::{Failure, Kind};
use super::profile::{OF_MUTEXES, Profile, Span};
use super::series::{Series, Source};
use base::limits::PUSH_BODY_BYTES_MAX;

/// Fetches a profile over this time. The error is for people.
type Fetch = dyn Fn(Duration, usize) -> Result<Vec<u8>, String> + Send + Sync;

/// A service that the collector scrapes.
#[derive(Clone)]
pub struct ScrapeTarget {
    /// The name of its worker, after `scrape:`.
    pub name: String,
    /// Its address, for people; without a password.
    pub url: String,
    /// Length of each profile. They follow each other.
    pub every: Duration,
    /// Fetches a profile of that length and at most that many bytes, in pprof's format. It blocks.
    pub fetch: Arc<Fetch>,
}

impl ScrapeTarget {
    fn is_of_mutexes(&self) -> bool {
        let path = self.url.split('?').next().unwrap_or_default();
        path.ends_with("/mutex")
    }
}

impl fmt::Debug for ScrapeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScrapeTarget {
            name, url, every, ..
        } = self;
        f.debug_struct("ScrapeTarget")
            .field("name", name)
            .field("url", url)
            .field("every", every)
            .finish_non_exhaustive()
    }
}

/// Asks a service until the collector stops.
pub(super) async fn scrape(
    sender: Sender,
    target: ScrapeTarget,
    mut stopping: watch::Receiver<bool>,
) {
    let pushed = sender.inlet.collector.pushed.clone();
    pushed.scrapes.add(&target.name, &target.url, target.every);
    loop {
        // A service that answers too early is not asked more often.
        let next = Instant::now() + target.every;
        let result = tokio::select! {
            result = once(&sender, &target) => result,
            _ = stopping.changed() => return,
        };
        note(&sender, &target, result);
        tokio::select! {
            () = sleep_until(next) => {}
            _ = stopping.changed() => return,
        }
    }
}

/// Fetches and stores a profile.
async fn once(sender: &Sender, target: &ScrapeTarget) -> Result<(), Failure> {
    let fetch = target.fetch.clone();
    let every = target.every;
    let fetched = spawn_blocking(move || fetch(every, PUSH_BODY_BYTES_MAX)).await;
    let content = fetched
        .map_err(|_| {
            Failure::new(
                Kind::Internal,
                "fetching the profile panicked: a bug in Emberline",
            )
        })?
        .map_err(|error| Failure::new(Kind::Unavailable, error))?;
    let profile = Profile {
        series: Series::new(Source::Scrape, &target.name, Labels::new())?,
        span: Span::OfProfile,
        content: content.into(),
        earlier: None,
        options: ImportOptions {
            format: Some(ImportFormat::Pprof),
            keep_labels: true,
            has_own_names: true,
            ..ImportOptions::default()
        },
        client: format!("pprof of {}", target.url),
        mode: "pushed by a scrape".to_owned(),
        interval_ns: 0,
        without_time: target.is_of_mutexes().then_some(OF_MUTEXES),
        is_lines: false,
        is_expanded: false,
    };
    let outcome = sender.counted(Source::Scrape, sender.store_profiles(vec![profile]).await)?;
    match outcome.dropped.into_iter().chain(outcome.refused).next() {
        None => Ok(()),
        Some(reason) => Err(Failure::invalid(reason)),
    }
}

fn note(sender: &Sender, target: &ScrapeTarget, result: Result<(), Failure>) {
    let ScrapeTarget { name, url, .. } = target;
    let now = sender.inlet.collector.state.clock.now();
    let failure = result.err().map(|failure| failure.text);
    let noted = failure.clone().map_or(Ok(now), Err);
    if !sender.inlet.collector.pushed.scrapes.note(name, noted) {
        return;
    }
    match failure {
        Some(reason) => tracing::warn!(name, url, reason, "no profile of a scraped service"),
        None => tracing::info!(name, url, "a scraped service answers again"),
    }
}
