//! Says to open pages that there is something new, so that they ask then, and not while nothing
//! happens; and that nothing is taken in, which no answer about samples shows.
//!
//! A page that reads slowly is told the newest only: there is one place on the way to it, and what
//! goes there is looked up when the place is free.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Sse};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;

use super::error::ErrorAnswer;
use crate::collector::Collector;
use crate::limits::{KEEP_ALIVE_EVERY, PAGES_MAX, PULSE_EVERY};
use crate::sync::read;

/// What there is.
#[derive(Clone, Debug, Serialize)]
struct Beat {
    now_ns: i64,
    /// Where the samples end, in Unix nanoseconds by the collector's clock.
    data_to_ns: Option<i64>,
    /// How many flushes were applied since the start: it changes with whatever is new.
    flushes: u64,
    /// Why nothing is taken in, if so.
    ingest_stopped: Option<String>,
}

impl Beat {
    fn of(collector: &Collector) -> Beat {
        Beat {
            now_ns: collector.clock.now().unix_ns(),
            data_to_ns: read(&collector.hot).data().map(|data| data.stop().unix_ns()),
            flushes: collector.flushes.load(Ordering::Relaxed),
            ingest_stopped: collector.ingest_blocked_reason(),
        }
    }

    /// Whether there is nothing else by now.
    fn is_newest(&self, collector: &Collector) -> bool {
        self.flushes == collector.flushes.load(Ordering::Relaxed)
            && self.ingest_stopped == collector.ingest_blocked_reason()
    }

    fn event(&self) -> Event {
        let data = serde_json::to_string(self).expect("it is numbers and text");
        Event::default().event("update").data(data)
    }
}

/// What the handler needs.
#[derive(Clone)]
struct Pulse {
    beats: watch::Receiver<Beat>,
    /// One for each page that listens.
    places: Arc<Semaphore>,
}

/// The route; it beats until the server stops.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(
    collector: Arc<Collector>,
    stopping: watch::Receiver<bool>,
) -> Router<S> {
    let (sender, beats) = watch::channel(Beat::of(&collector));
    tokio::spawn(beat(collector, sender, stopping));
    let pulse = Pulse { beats, places: Arc::new(Semaphore::new(PAGES_MAX)) };
    Router::new().route("/api/v1/updates", get(listen)).with_state(pulse)
}

/// Looks once a [`PULSE_EVERY`], whatever came in between. At the stop the sender goes, and with it
/// every page's stream ends.
async fn beat(
    collector: Arc<Collector>,
    sender: watch::Sender<Beat>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut ticks = interval(PULSE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
        let is_newest = sender.borrow().is_newest(&collector);
        if !is_newest {
            sender.send_replace(Beat::of(&collector));
        }
    }
}

async fn listen(State(pulse): State<Pulse>) -> Result<impl IntoResponse, ErrorAnswer> {
    let place = pulse.places.try_acquire_owned().map_err(|_| ErrorAnswer::busy())?;
    let mut beats = pulse.beats;
    // The page asks when it opens; it wants to hear of what comes, and first that it is heard.
    beats.mark_changed();
    let (sender, receiver) = mpsc::channel::<Result<Event, Infallible>>(1);
    tokio::spawn(async move {
        // Given back when the page is gone, which a keep-alive finds out.
        let _place = place;
        while let Ok(permit) = sender.reserve().await {
            let changed = tokio::select! {
                changed = beats.changed() => changed,
                () = sender.closed() => return,
            };
            if changed.is_err() {
                return;
            }
            permit.send(Ok(beats.borrow_and_update().event()));
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_EVERY);
    // Some proxies collect an answer before they pass it on, unless they are asked not to.
    let at_once = [("x-accel-buffering", "no")];
    Ok((at_once, Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive)))
}
