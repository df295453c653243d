//! Activity of a connection: its requests in flight, and what it waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::limits::ConnectionLimits;
use base::sync::{Mutex, lock, rank};

/// Why a connection is closed by the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overdue {
    /// No request since it was accepted, or a request's head came too slowly.
    Head,
    /// No request for a while.
    Idle,
    /// The peer takes nothing of what is sent to it.
    Stalled,
}

/// How a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Closing {
    /// Requests in flight end first.
    Gracefully,
    Now,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State, rank::Connection>,
    closing_changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Requests without a complete response.
    requests: usize,
    /// Requests among them whose body is incomplete, agents' streams aside.
    uploads: usize,
    /// Whether there was a request.
    is_used: bool,
    is_http2: bool,
    /// When the last request ended or, without one, the connection was accepted.
    idle_since: Instant,
    /// When the first byte came since then.
    head_since: Option<Instant>,
    /// Since when bytes have had no room in the socket.
    blocked_since: Option<Instant>,
    /// Responses whose head or last piece the protocol has taken, by number, and when. The protocol asks
    /// for another piece when the peer has made room.
    taken_at: BTreeMap<u64, Instant>,
    next_response: u64,
    closing: Option<Closing>,
    closing_since: Instant,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Arc<Activity> {
        Arc::new(Activity {
            state: Mutex::new(State {
                requests: 0,
                uploads: 0,
                is_used: false,
                is_http2: false,
                idle_since: now,
                head_since: None,
                blocked_since: None,
                taken_at: BTreeMap::new(),
                next_response: 0,
                closing: None,
                closing_since: now,
            }),
            closing_changed: Notify::new(),
        })
    }

    /// Closes the connection; a stronger way replaces a weaker one.
    pub(super) fn close(&self, how: Closing) {
        let mut state = lock(&self.state);
        if state.closing < Some(how) {
            if state.closing.is_none() {
                state.closing_since = Instant::now();
            }
            state.closing = Some(how);
            self.closing_changed.notify_one();
        }
    }

    /// Resolves when the connection is to be closed in a stronger way than `known`.
    pub(super) async fn closing(&self, known: Option<Closing>) -> Closing {
        loop {
            // `notify_one` stores a permit, so no change is missed.
            let closing = lock(&self.state).closing;
            match closing {
                Some(how) if closing > known => return how,
                _ => self.closing_changed.notified().await,
            }
        }
    }

    /// Whether its task ends as soon as it runs.
    pub(super) fn is_closing_now(&self) -> bool {
        lock(&self.state).closing == Some(Closing::Now)
    }

    /// Since when it has been closing, if it is.
    pub(super) fn closing_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        state.closing.map(|_| state.closing_since)
    }

    /// Why the connection must end by now.
    pub(super) fn overdue(&self, now: Instant, limits: &ConnectionLimits) -> Option<Overdue> {
        let state = lock(&self.state);
        let is_past = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        let oldest_wait = state.taken_at.values().chain(&state.blocked_since).min();
        if oldest_wait.is_some_and(|since| is_past(*since, limits.stall_timeout)) {
            return Some(Overdue::Stalled);
        }
        if state.requests > 0 {
            return None;
        }
        // Between requests, HTTP/2 has bytes of its own, such as answers to pings.
        let head_since = if state.is_used {
            state.head_since.filter(|_| !state.is_http2)
        } else {
            Some(state.idle_since)
        };
        if head_since.is_some_and(|since| is_past(since, limits.head_timeout)) {
            return Some(Overdue::Head);
        }
        is_past(state.idle_since, limits.idle_timeout).then_some(Overdue::Idle)
    }

    /// How readily it makes room for another connection, the lowest first; `None` while it has a request
    /// in flight, or is closed already.
    pub(super) fn eviction_rank(&self) -> Option<EvictionRank> {
        let state = lock(&self.state);
        let is_waiting = state.requests <= state.uploads;
        let rank = EvictionRank {
            is_used: state.is_used,
            is_uploading: state.uploads > 0,
            idle_since: state.idle_since,
        };
        (state.closing < Some(Closing::Now) && is_waiting).then_some(rank)
    }

    /// Bytes came from the peer.
    pub(super) fn received(&self) {
        let mut state = lock(&self.state);
        if state.requests == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
    }

    /// The socket took bytes, or had no room for them.
    pub(super) fn sent(&self, has_room: bool) {
        let mut state = lock(&self.state);
        if has_room {
            state.blocked_since = None;
        } else if state.blocked_since.is_none() {
            state.blocked_since = Some(Instant::now());
        }
    }

    /// A request begins; it ends when the result is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, is_http2: bool) -> InFlight {
        let mut state = lock(&self.state);
        state.requests += 1;
        state.is_used = true;
        state.is_http2 = is_http2;
        state.head_since = None;
        let response = state.next_response;
        state.next_response += 1;
        drop(state);
        InFlight {
            activity: self.clone(),
            response,
        }
    }

    /// A request's body is awaited until the result is dropped.
    pub(super) fn begin_upload(self: &Arc<Self>) -> Upload {
        lock(&self.state).uploads += 1;
        Upload {
            activity: self.clone(),
        }
    }
}

/// Unused connections go first, then unfinished uploads, the longest idle first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EvictionRank {
    is_used: bool,
    is_uploading: bool,
    idle_since: Instant,
}

/// A request in flight: from its head to the end of its response.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    response: u64,
}

impl InFlight {
    /// The protocol took the head or a piece of the response.
    pub(super) fn piece_taken(&self) {
        lock(&self.activity.state)
            .taken_at
            .insert(self.response, Instant::now());
    }

    /// The protocol asks for a piece.
    pub(super) fn piece_wanted(&self) {
        lock(&self.activity.state).taken_at.remove(&self.response);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = lock(&self.activity.state);
        state.taken_at.remove(&self.response);
        state.requests -= 1;
        state.idle_since = Instant::now();
    }
}

/// A request whose body is awaited.
#[derive(Debug)]
pub(super) struct Upload {
    activity: Arc<Activity>,
}

impl Drop for Upload {
    fn drop(&mut self) {
        lock(&self.activity.state).uploads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> ConnectionLimits {
        ConnectionLimits::for_descriptors(1_024)
    }

    #[test]
    fn each_wait_has_its_own_limit() {
        let begin = Instant::now();
        let activity = Activity::new(begin);
        // The clock of the test runs ahead of the activity's own by less than this.
        let margin = Duration::from_secs(5);
        let limits = limits();
        let overdue = |after: Duration| activity.overdue(begin + after, &limits);
        assert_eq!(
            overdue(limits.head_timeout - Duration::from_millis(1)),
            None
        );
        assert_eq!(
            overdue(limits.head_timeout),
            Some(Overdue::Head),
            "no request"
        );

        let request = activity.begin_request(false);
        assert_eq!(
            overdue(limits.idle_timeout * 10),
            None,
            "a request in flight"
        );
        request.piece_taken();
        assert_eq!(
            overdue(limits.stall_timeout + margin),
            Some(Overdue::Stalled),
            "a response"
        );
        request.piece_wanted();
        assert_eq!(overdue(limits.idle_timeout * 10), None, "nothing to send");
        activity.sent(false);
        assert_eq!(
            overdue(limits.stall_timeout + margin),
            Some(Overdue::Stalled),
            "a socket"
        );
        activity.sent(true);
        drop(request);

        assert_eq!(
            overdue(limits.head_timeout + margin),
            None,
            "between two requests"
        );
        assert_eq!(overdue(limits.idle_timeout + margin), Some(Overdue::Idle));
        activity.received();
        assert_eq!(
            overdue(limits.head_timeout + margin),
            Some(Overdue::Head),
            "a slow head"
        );
        drop(activity.begin_request(true));
        activity.received();
        assert_eq!(
            overdue(limits.head_timeout + margin),
            None,
            "bytes of HTTP/2 are no head"
        );
        assert_eq!(overdue(limits.idle_timeout + margin), Some(Overdue::Idle));
    }

    #[test]
    fn unused_connections_make_room_first_and_busy_ones_never() {
        let begin = Instant::now();
        let idle = Activity::new(begin);
        let newer = Activity::new(begin + Duration::from_secs(1));
        let used = Activity::new(begin);
        drop(used.begin_request(false));
        let busy = Activity::new(begin);
        let _request = busy.begin_request(true);
        let uploading = Activity::new(begin);
        let _request = uploading.begin_request(false);
        let upload = uploading.begin_upload();
        assert!(idle.eviction_rank() < newer.eviction_rank());
        assert!(newer.eviction_rank() < used.eviction_rank());
        assert!(used.eviction_rank() < uploading.eviction_rank());
        assert_eq!(busy.eviction_rank(), None);
        drop(upload);
        assert_eq!(uploading.eviction_rank(), None);
        idle.close(Closing::Now);
        assert_eq!(idle.eviction_rank(), None);
    }
}
