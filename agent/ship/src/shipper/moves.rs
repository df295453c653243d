//! Moves between collectors: when an agent goes to another one, and how it settles what it left behind.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::clock::OffsetEstimator;
use super::network::Network;
use super::stays::UnsettledStay;
use super::stream::{LAST_TRIES, Link, StreamError};
use system::sync::lock;

/// Time without an answer after which an agent with several collectors goes on to the next one: longer than
/// a collector's restart takes.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// How often an agent that is not with its best collector, or left flushes at another one, tries those. The
/// interval doubles with each visit in vain.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBE_INTERVAL_MAX: Duration = Duration::from_secs(600);

impl Link {
    /// Goes on to the next collector if the present one has not answered for a while, or at once if nothing
    /// was shipped to it or the agent ends. `begin` is when the attempt began that has failed `now`.
    pub(super) fn move_if_gone(&mut self, begin: Instant, now: Instant) {
        let since = *self.gone_since.get_or_insert(begin);
        let is_patient = self.is_welcomed && self.shared.finish_by().is_none();
        let patience = if is_patient {
            GONE_AFTER
        } else {
            Duration::ZERO
        };
        if self.destinations.len() > 1 && now.saturating_duration_since(since) >= patience {
            self.end_stay((self.at + 1) % self.destinations.len(), false);
        }
    }

    /// Continues at another collector. `is_settled`: the present one has answered every flush, and knows that
    /// what is open continues elsewhere.
    pub(super) fn end_stay(&mut self, next: usize, is_settled: bool) {
        let at = std::mem::replace(&mut self.at, next);
        lock(&self.shared.present_url).clone_from(&self.destinations[next].url);
        self.gone_since = None;
        self.probe_at = None;
        // Another clock.
        self.offsets = OffsetEstimator::default();
        if !std::mem::take(&mut self.is_welcomed) {
            // Nothing was sent, so the stay has not begun. It may have been a visit in vain, to a collector that
            // accepts connections and answers nobody.
            self.probe_interval = (self.probe_interval * 2).min(PROBE_INTERVAL_MAX);
            return;
        }
        self.backoff.reset();
        let mut ended = lock(&self.shared.ended);
        let mut outbox = lock(&self.shared.outbox);
        let unsent = outbox.move_unsent();
        let left = std::mem::replace(&mut *outbox, unsent);
        let next_key = self.key.successor();
        let key = std::mem::replace(&mut self.key, next_key);
        if is_settled {
            ended.add_settled(left.current_account());
        } else {
            let stay = UnsettledStay {
                at,
                key,
                outbox: Mutex::new(left),
            };
            ended.add_unsettled(stay, self.unsettled_bytes_max);
        }
        drop(outbox);
        drop(ended);
        let from = self.destinations[at].url.clone();
        let to = self.destinations[next].url.clone();
        self.shared
            .log(move || tracing::info!(from, to, "shipping to another collector"));
    }

    /// The stays that ended at a collector and are not settled.
    fn unsettled_at(&self, at: usize) -> Vec<Arc<UnsettledStay>> {
        let ended = lock(&self.shared.ended);
        ended
            .unsettled()
            .iter()
            .filter(|stay| stay.at == at)
            .cloned()
            .collect()
    }

    /// The collectors that are better than the present one, or may have unsettled flushes.
    pub(super) fn elsewhere(&self) -> Vec<usize> {
        let ended = lock(&self.shared.ended);
        (0..self.destinations.len())
            .filter(|at: &usize| {
                *at != self.at
                    && (*at < self.at || ended.unsettled().iter().any(|stay| stay.at == *at))
            })
            .collect()
    }

    /// Tries to settle all stays, at the end of the agent. A collector on a busy machine may answer late.
    pub(super) async fn settle_all(&mut self, network: &impl Network) {
        self.backoff.reset();
        for tries in 0..LAST_TRIES {
            if tries > 0 {
                network
                    .wait_until(self.backoff.next_delay(), || false)
                    .await;
            }
            for at in 0..self.destinations.len() {
                self.at = at;
                // The report tells what stays unsettled.
                let _ = self.settle(network).await;
            }
            if lock(&self.shared.ended).unsettled().is_empty() {
                return;
            }
        }
    }

    /// Settles the stays that ended at the present collector.
    pub(super) async fn settle(&mut self, network: &impl Network) -> Result<(), StreamError> {
        for stay in self.unsettled_at(self.at) {
            self.connect(network, Some(&stay)).await?;
            lock(&self.shared.ended).settle(&stay);
        }
        Ok(())
    }
}
