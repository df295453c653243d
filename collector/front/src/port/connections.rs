//! The open connections: who may open another one, and which are closed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::activity::{Activity, Closing, Overdue};
use super::limits::ConnectionLimits;
use base::limits::CROWD_CONNECTIONS_MIN;
use base::sync::{Mutex, lock, rank};
use shares::identity::network_of;

/// Of as many connections, one is evicted with each that is: looking for them is slow.
const EVICTED_SHARE: usize = 32;

/// Longest wait for a descriptor of a connection that makes room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long a connection may take to end gracefully.
const CLOSE_GRACE: Duration = Duration::from_secs(5);

/// How often connections are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// At most one line of the log in this time says that connections are refused.
const REFUSED_LOG_EVERY: Duration = Duration::from_secs(60);

/// Source of connections that share a limit: an address of another machine, see [`network_of`]. Agents and
/// tunnels of this machine have no limit of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// By the Unix socket.
    Socket,
    Loopback(IpAddr),
    Address(IpAddr),
}

impl Source {
    pub(super) fn of(address: IpAddr) -> Source {
        match network_of(address) {
            address if address.is_loopback() => Source::Loopback(address),
            address => Source::Address(address),
        }
    }

    fn is_limited(self) -> bool {
        matches!(self, Source::Address(_))
    }
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table, rank::Connections>,
    /// Notified when a connection has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Entry>,
    by_source: HashMap<Source, usize>,
    next: u64,
    refused: u64,
    refused_logged_at: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    activity: Arc<Activity>,
    source: Source,
}

/// An open connection's place in the table, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) activity: Arc<Activity>,
    /// Whether its source had [`CROWD_CONNECTIONS_MIN`] others already.
    pub(super) is_of_crowd: bool,
    connections: Arc<Connections>,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = lock(&self.connections.table);
        if let Some(entry) = table.open.remove(&self.number)
            && let Some(count) = table.by_source.get_mut(&entry.source)
        {
            *count -= 1;
            if *count == 0 {
                table.by_source.remove(&entry.source);
            }
        }
        drop(table);
        self.connections.ended.notify_waiters();
    }
}

/// Connections that make room for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shortage {
    /// All: there are as many as may be.
    Everybody,
    /// Those of the same source.
    Source,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            table: Mutex::default(),
            ended: Notify::new(),
        })
    }

    /// Registers a connection. If there is no room, connections without a request in flight are closed
    /// for it; `None` if all have one.
    pub(super) async fn admit(self: &Arc<Self>, source: Source) -> Option<Registration> {
        let until = Instant::now() + ROOM_WAIT_MAX;
        loop {
            // Before the attempt, so that no end is missed.
            let ended = self.ended.notified();
            let Some(shortage) = self.shortage(source) else {
                return Some(self.register(source));
            };
            if !self.evict(shortage, source) || timeout_at(until, ended).await.is_err() {
                self.note_refused(source, shortage);
                return None;
            }
        }
    }

    fn shortage(&self, source: Source) -> Option<Shortage> {
        let table = lock(&self.table);
        let of_source = table.by_source.get(&source).copied().unwrap_or_default();
        if source.is_limited() && of_source >= self.limits.address_max {
            return Some(Shortage::Source);
        }
        (table.open.len() >= self.limits.open_max).then_some(Shortage::Everybody)
    }

    fn register(self: &Arc<Self>, source: Source) -> Registration {
        let activity = Activity::new(Instant::now());
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        table.open.insert(
            number,
            Entry {
                activity: activity.clone(),
                source,
            },
        );
        let of_source = table.by_source.entry(source).or_default();
        let is_of_crowd = *of_source >= CROWD_CONNECTIONS_MIN && source != Source::Socket;
        *of_source += 1;
        Registration {
            activity,
            is_of_crowd,
            connections: self.clone(),
            number,
        }
    }

    /// Closes some connections without a request in flight. Returns whether any is closing.
    fn evict(&self, shortage: Shortage, source: Source) -> bool {
        let table = lock(&self.table);
        let competing: Vec<&Entry> = table
            .open
            .values()
            .filter(|entry: &&Entry| shortage == Shortage::Everybody || entry.source == source)
            .collect();
        if competing
            .iter()
            .any(|entry| entry.activity.is_closing_now())
        {
            return true;
        }
        let ranked = competing
            .iter()
            .map(|entry| (entry.activity.eviction_rank(), entry));
        let mut idle: Vec<_> = ranked
            .filter_map(|(rank, entry)| rank.map(|rank| (rank, entry)))
            .collect();
        idle.sort_unstable_by_key(|(rank, _)| *rank);
        let count = (competing.len() / EVICTED_SHARE).max(1);
        for (_, entry) in idle.iter().take(count) {
            entry.activity.close(Closing::Now);
        }
        !idle.is_empty()
    }

    fn note_refused(&self, source: Source, shortage: Shortage) {
        let mut table = lock(&self.table);
        table.refused += 1;
        let now = Instant::now();
        if table.refused_logged_at.is_none_or(|logged: Instant| {
            now.saturating_duration_since(logged) >= REFUSED_LOG_EVERY
        }) {
            table.refused_logged_at = Some(now);
            let limit = match shortage {
                Shortage::Everybody => self.limits.open_max,
                Shortage::Source => self.limits.address_max,
            };
            tracing::warn!(
                ?source,
                refused = table.refused,
                "connections are refused: {limit} are open, all with a request in flight"
            );
        }
    }

    /// Closes connections whose time is up, forever.
    pub(super) async fn sweep(&self) -> Infallible {
        let shortest = self.limits.head_timeout.min(self.limits.stall_timeout);
        let mut ticks = interval(SWEEP_EVERY.min(shortest / 4));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = ticks.tick().await;
            self.check_all(now);
        }
    }

    fn check_all(&self, now: Instant) {
        let table = lock(&self.table);
        table
            .open
            .values()
            .for_each(|entry| self.check(&entry.activity, now));
    }

    fn check(&self, activity: &Activity, now: Instant) {
        let is_late = |since: Instant| now.saturating_duration_since(since) >= CLOSE_GRACE;
        match activity.overdue(now, &self.limits) {
            Some(Overdue::Idle) if !activity.closing_since().is_some_and(is_late) => {
                activity.close(Closing::Gracefully);
            }
            Some(reason) => {
                tracing::debug!(?reason, "a connection is closed");
                activity.close(Closing::Now);
            }
            None => {}
        }
    }

    /// Closes all connections.
    pub(super) fn close_all(&self, how: Closing) {
        let table = lock(&self.table);
        table
            .open
            .values()
            .for_each(|entry| entry.activity.close(how));
    }

    /// Resolves when no connection is open.
    pub(super) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if lock(&self.table).open.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(open_max: usize, address_max: usize) -> Arc<Connections> {
        let limits = ConnectionLimits::for_descriptors(1_024);
        Connections::new(ConnectionLimits {
            open_max,
            address_max,
            ..limits
        })
    }

    fn remote(host: u8) -> Source {
        Source::of(IpAddr::from([10, 0, 0, host]))
    }

    /// Ends the connection when it is closed, as its task does.
    fn serve(registration: Registration) {
        tokio::spawn(async move {
            registration.activity.closing(None).await;
        });
    }

    #[tokio::test]
    async fn a_full_table_closes_the_longest_idle_connection() {
        let connections = connections(3, 3);
        let busy = connections.admit(Source::Socket).await.unwrap();
        let _request = busy.activity.begin_request(true);
        for _ in 0..20 {
            serve(connections.admit(Source::Socket).await.unwrap());
            assert!(lock(&connections.table).open.len() <= 3);
        }
        assert_eq!(busy.activity.closing_since(), None);
        connections.close_all(Closing::Gracefully);
        assert!(busy.activity.closing_since().is_some());
        drop(busy);
        connections.all_ended().await;
        assert!(lock(&connections.table).by_source.is_empty());
    }

    #[tokio::test]
    async fn requests_in_flight_are_never_ended_for_another_connection() {
        let connections = connections(2, 2);
        let first = connections.admit(Source::Socket).await.unwrap();
        let second = connections.admit(remote(1)).await.unwrap();
        let _requests = [&first, &second].map(|open| open.activity.begin_request(false));
        assert!(connections.admit(Source::Socket).await.is_none());
        assert_eq!(lock(&connections.table).refused, 1);
        drop(second);
        assert!(connections.admit(Source::Socket).await.is_some());
    }

    #[tokio::test]
    async fn an_address_makes_room_among_its_own_connections() {
        let connections = connections(10, 2);
        let other = connections.admit(remote(1)).await.unwrap();
        let local = connections.admit(Source::Socket).await.unwrap();
        for _ in 0..20 {
            serve(connections.admit(remote(2)).await.unwrap());
            assert!(lock(&connections.table).by_source[&remote(2)] <= 2);
        }
        assert_eq!(other.activity.closing_since(), None);
        assert_eq!(local.activity.closing_since(), None);
        // Connections of this machine are limited by the whole table alone.
        let loopback = Source::of(IpAddr::from([127, 0, 0, 1]));
        let of_this_machine = async || connections.admit(loopback).await.unwrap();
        let _held = [
            of_this_machine().await,
            of_this_machine().await,
            of_this_machine().await,
        ];
    }

    #[tokio::test]
    async fn an_address_with_many_connections_is_a_crowd_and_others_are_not() {
        let connections = connections(100, 50);
        let admit = async |source| connections.admit(source).await.unwrap();
        for source in [remote(1), Source::of(IpAddr::from([127, 0, 0, 2]))] {
            let mut held = Vec::new();
            for _ in 0..CROWD_CONNECTIONS_MIN {
                held.push(admit(source).await);
            }
            assert!(held.iter().all(|first| !first.is_of_crowd));
            assert!(admit(source).await.is_of_crowd);
            assert!(!admit(remote(2)).await.is_of_crowd);
            assert!(
                !admit(Source::of(IpAddr::from([127, 0, 0, 1])))
                    .await
                    .is_of_crowd
            );
            drop(held.pop());
            assert!(!admit(source).await.is_of_crowd);
        }
        let mut held = Vec::new();
        for _ in 0..2 * CROWD_CONNECTIONS_MIN {
            held.push(admit(Source::Socket).await);
        }
        assert!(
            held.iter().all(|one| !one.is_of_crowd),
            "their users are not told apart"
        );
    }

    #[test]
    fn a_host_of_ipv6_is_its_network() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:10.0.0.1"), remote(1));
        for local in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(!source(local).is_limited(), "{local}");
        }
    }

    fn source(text: &str) -> Source {
        Source::of(text.parse().unwrap())
    }
}
