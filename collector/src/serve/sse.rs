//! Server-sent events: notices of new data for open pages, and what happens in the fleet.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::Update;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::sse::{Event as Message, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use axum::routing::get;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;

use super::answer;
use super::reader::{Pairs, Reader, pairs_of};
use base::clock::Clock;
use base::limits::{EVENTS_KEEP_ALIVE, KEEP_ALIVE_EVERY, PAGES_MAX, PULSE_EVERY};
use base::sync::read;
use front::error::ErrorAnswer;
use query::{EventFilter, no_parameters};
use shares::SlotPool;
use state::Collector;
use state::events::{Event, Subscription};

/// Events that wait for a subscriber's connection; later ones wait in its queue.
const MESSAGES_WAITING_MAX: usize = 16;

type Sent = Result<Message, Infallible>;

/// State of the handler of `/api/v1/updates`.
#[derive(Clone)]
struct Updates {
    newest: watch::Receiver<Update>,
    clock: Clock,
    /// One permit for each page that listens.
    pages: Arc<Semaphore>,
}

/// The route of `/api/v1/updates`, which works until the server stops.
pub(super) fn update_route<S: Clone + Send + Sync + 'static>(
    collector: Arc<Collector>,
    stopping: watch::Receiver<bool>,
) -> Router<S> {
    let (sender, newest) = watch::channel(update(&collector));
    let clock = collector.state.clock.clone();
    tokio::spawn(publish_updates(collector, sender, stopping));
    let pages = Arc::new(Semaphore::new(SlotPool::capacity(PAGES_MAX)));
    let updates = Updates {
        newest,
        clock,
        pages,
    };
    Router::new()
        .route("/api/v1/updates", get(send_updates))
        .with_state(updates)
}

fn update(collector: &Collector) -> Update {
    // A guard that no `let` ends would live to the end of the struct, over the lock of the reason.
    let now = collector.state.clock.now();
    let data = read(&collector.state.windows).data(now);
    let ingest_stopped = collector.ingest.blocked_reason();
    Update {
        now_ns: now.unix_ns(),
        data_to_ns: data.map(|data| data.stop().unix_ns()),
        flushes: collector.state.flushes.load(Ordering::Relaxed),
        ingest_stopped,
    }
}

/// Publishes at most one update per [`PULSE_EVERY`]. At the stop the sender is dropped, which ends
/// every page's stream.
async fn publish_updates(
    collector: Arc<Collector>,
    sender: watch::Sender<Update>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut ticks = interval(PULSE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stop| *stop) => return,
        }
        let is_newest = {
            let newest = sender.borrow();
            newest.flushes == collector.state.flushes.load(Ordering::Relaxed)
                && newest.ingest_stopped == collector.ingest.blocked_reason()
        };
        if !is_newest {
            sender.send_replace(update(&collector));
        }
    }
}

/// Sends one update at once and then each newest one. A slow page skips those in between: the newest
/// is looked up only when the channel to the page has room for it.
async fn send_updates(
    State(updates): State<Updates>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<impl IntoResponse, ErrorAnswer> {
    no_parameters(&pairs)?;
    let Updates {
        mut newest,
        clock,
        pages,
    } = updates;
    let permit = pages.try_acquire_owned().map_err(|_| ErrorAnswer::busy())?;
    newest.mark_changed();
    let (sender, receiver) = mpsc::channel::<Sent>(1);
    tokio::spawn(async move {
        // Released when the page is gone, which a keep-alive finds out.
        let _permit = permit;
        while let Ok(slot) = sender.reserve().await {
            let changed = tokio::select! {
                changed = newest.changed() => changed,
                () = sender.closed() => return,
            };
            if changed.is_err() {
                return;
            }
            let mut update = newest.borrow_and_update().clone();
            // The newest update may be as old as the last flush.
            update.now_ns = clock.now().unix_ns();
            let data = serde_json::to_string(&update).expect("numbers and text can be written");
            slot.send(Ok(Message::default().event("update").data(data)));
        }
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_EVERY);
    // Some proxies buffer a whole response unless told not to.
    let unbuffered = [("x-accel-buffering", "no")];
    Ok((
        unbuffered,
        Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive),
    ))
}

/// `/api/v1/events`: sends events until the reader goes away or the server stops.
pub(super) async fn events(
    State(reader): State<Reader>,
    pairs: Pairs,
) -> Result<Response, ErrorAnswer> {
    let account = pairs.account.clone();
    let pairs = pairs_of(pairs)?;
    let collector = reader.collector.clone();
    let filter = reader
        .compute(&account, move || {
            Ok(EventFilter::parse(&pairs, &collector.state)?)
        })
        .await?;
    let subscription = reader
        .collector
        .state
        .events
        .subscribe()
        .ok_or_else(ErrorAnswer::busy)?;
    let (sender, receiver) = mpsc::channel(MESSAGES_WAITING_MAX);
    tokio::spawn(send_events(subscription, filter, reader.collector, sender));
    let keep_alive = KeepAlive::new()
        .interval(EVENTS_KEEP_ALIVE)
        .text("keep-alive");
    Ok(Sse::new(ReceiverStream::new(receiver))
        .keep_alive(keep_alive)
        .into_response())
}

async fn send_events(
    mut subscription: Subscription,
    filter: EventFilter,
    collector: Arc<Collector>,
    sender: mpsc::Sender<Sent>,
) {
    loop {
        let event = tokio::select! {
            event = subscription.receiver.recv() => event,
            () = sender.closed() => return,
        };
        let message = match event {
            Ok(event) if !filter.keeps(&event, &collector.state) => continue,
            Ok(event) => event_message(&event),
            Err(RecvError::Lagged(count)) => Message::default()
                .event("missed")
                .data(format!("{{\"count\":{count}}}")),
            Err(RecvError::Closed) => return,
        };
        if sender.send(Ok(message)).await.is_err() {
            return;
        }
    }
}

fn event_message(event: &Arc<Event>) -> Message {
    let data =
        serde_json::to_string(&answer::subject(event)).expect("numbers and text can be written");
    Message::default()
        .event(event.kind.name())
        .data(data)
        .id(event.id.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    use super::*;
    use base::sync::{lock, write};
    use state::Settings;

    /// Runs `work` on a thread until it waits for a lock that the caller holds. Then calls `meanwhile`, releases
    /// `held`, and waits for the end of the work.
    fn while_it_waits<G>(held: G, work: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
        let (started, thread) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                started.send(nix::unistd::gettid()).unwrap();
                work();
            });
            let stat = format!("/proc/self/task/{}/stat", thread.recv().unwrap());
            let deadline = Instant::now() + Duration::from_secs(60);
            while !fs::read_to_string(&stat).unwrap().contains(") S ") {
                assert!(Instant::now() < deadline, "it never waits");
                thread::yield_now();
            }
            meanwhile();
            drop(held);
        });
    }

    #[test]
    fn windows_and_the_status_are_never_locked_together() {
        let collector = Collector::new(Settings::default());
        let windows = &collector.state.windows;
        let status = &collector.ingest.status;
        while_it_waits(
            lock(status),
            || drop(update(&collector)),
            || {
                assert!(
                    windows.try_write().is_ok(),
                    "an update waits for the status"
                );
            },
        );
        while_it_waits(
            write(windows),
            || drop(collector.ingest.blocked()),
            || {
                assert!(status.try_lock().is_ok(), "a sweep waits for the windows");
            },
        );
    }
}
