//! Memory that peers hold by not going on: messages of which only a part came, answers that are not
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler_core::hash::KeyedMap;
use tokio::time::sleep;

use super::{Account, Quota, SlotPool};
use crate::identity::Identity;
use base::limits::{ROOM_RETRY_EVERY, WAITING_FOR_ROOM_MAX};
use base::sync::{Mutex, lock, rank};

/// Time without progress after which memory is taken back, if others need it.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A pool of bytes. When it is full, the peer that holds most loses what it holds without progress.
#[derive(Debug)]
pub struct MemoryPool {
    quota: Quota,
    bytes_max: usize,
    state: Mutex<State, rank::MemoryPool>,
    /// Peers that wait for room: what they sent meanwhile is in the buffers of their connections, which
    /// the pool does not count.
    waiting: Arc<SlotPool>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    next_id: u64,
    holdings: BTreeMap<u64, Holding>,
    /// Holdings of at least one byte.
    by_progress: ByProgress,
    /// The same by identity. Both orders are kept, so that neither many holdings nor many identities make
    /// a peer that finds no room costly: ten thousand may look for it again and again.
    by_identity: KeyedMap<Identity, Share>,
}

/// Holdings by their last progress, the longest without it first.
type ByProgress = BTreeSet<(Instant, u64)>;

/// Holdings of one identity.
#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    by_progress: ByProgress,
}

/// Frees the memory of a holding.
type Revoke = Box<dyn FnOnce() + Send>;

struct Holding {
    account: Arc<Account>,
    bytes: usize,
    progress_at: Instant,
    revoke: Revoke,
}

impl fmt::Debug for Holding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes of {:?}", self.bytes, self.account)
    }
}

/// A part of the pool; returned when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<MemoryPool>,
    account: Arc<Account>,
    id: u64,
}

/// The pool is full, and everyone goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl MemoryPool {
    pub fn new(quota: Quota, bytes_max: usize) -> Arc<MemoryPool> {
        let waiting = SlotPool::new(quota, WAITING_FOR_ROOM_MAX);
        Arc::new(MemoryPool {
            quota,
            bytes_max,
            state: Mutex::default(),
            waiting,
        })
    }

    /// Takes `bytes` for an identity. `revoke` is called if they are taken back.
    pub fn hold(
        self: &Arc<Self>,
        account: &Arc<Account>,
        bytes: usize,
        revoke: impl FnOnce() + Send + 'static,
    ) -> Result<Reservation, Full> {
        self.hold_at(Instant::now(), account, bytes, Box::new(revoke))
    }

    /// Takes nothing yet; see [`Reservation::grow`].
    pub fn hold_none(
        self: &Arc<Self>,
        account: &Arc<Account>,
        revoke: impl FnOnce() + Send + 'static,
    ) -> Reservation {
        let account = account.clone();
        let revoke = Box::new(revoke);
        let holding = Holding {
            account,
            bytes: 0,
            progress_at: Instant::now(),
            revoke,
        };
        self.insert(&mut lock(&self.state), holding)
    }

    fn hold_at(
        self: &Arc<Self>,
        now: Instant,
        account: &Arc<Account>,
        bytes: usize,
        revoke: Revoke,
    ) -> Result<Reservation, Full> {
        let mut state = lock(&self.state);
        let revoked = self.make_room(&mut state, None, bytes, now)?;
        let holding = Holding {
            account: account.clone(),
            bytes,
            progress_at: now,
            revoke,
        };
        let held = self.insert(&mut state, holding);
        drop(state);
        self.revoke(revoked);
        Ok(held)
    }

    fn insert(self: &Arc<Self>, state: &mut State, holding: Holding) -> Reservation {
        let id = state.next_id;
        state.next_id += 1;
        let account = holding.account.clone();
        state.insert(id, holding);
        Reservation {
            pool: self.clone(),
            account,
            id,
        }
    }

    /// Removes holdings without progress until `taker` has room for `bytes` more.
    fn make_room(
        &self,
        state: &mut State,
        taker: Option<u64>,
        bytes: usize,
        now: Instant,
    ) -> Result<Vec<Holding>, Full> {
        let mut revoked = Vec::new();
        while bytes > 0 && state.bytes + bytes > self.bytes_max {
            let Some(id) = state.stalled(taker, now) else {
                break;
            };
            revoked.extend(state.remove(id));
        }
        // Holdings that were removed in vain stay removed: they made no progress.
        if bytes > 0 && state.bytes > 0 && state.bytes + bytes > self.bytes_max {
            self.revoke(revoked);
            return Err(Full);
        }
        Ok(revoked)
    }

    fn revoke(&self, revoked: Vec<Holding>) {
        for Holding {
            account, revoke, ..
        } in revoked
        {
            account.note_refusal(self.quota);
            revoke();
        }
    }

    /// The bytes that are held.
    #[cfg(any(test, feature = "testing"))]
    pub fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }
}

impl State {
    fn insert(&mut self, id: u64, holding: Holding) {
        self.bytes += holding.bytes;
        if holding.bytes > 0 {
            let position = (holding.progress_at, id);
            self.by_progress.insert(position);
            let share = self
                .by_identity
                .entry(holding.account.identity.clone())
                .or_default();
            share.bytes += holding.bytes;
            share.by_progress.insert(position);
        }
        self.holdings.insert(id, holding);
    }

    fn remove(&mut self, id: u64) -> Option<Holding> {
        let holding = self.holdings.remove(&id)?;
        self.bytes -= holding.bytes;
        let position = (holding.progress_at, id);
        self.by_progress.remove(&position);
        if let Some(share) = self.by_identity.get_mut(&holding.account.identity)
            && share.by_progress.remove(&position)
        {
            share.bytes -= holding.bytes;
            if share.by_progress.is_empty() {
                self.by_identity.remove(&holding.account.identity);
            }
        }
        Some(holding)
    }

    /// Of the identity that holds most, among those that hold something without progress, what was
    /// longest without it. Waiting for room is no progress: those that wait would otherwise keep each
    /// other waiting.
    fn stalled(&self, taker: Option<u64>, now: Instant) -> Option<u64> {
        let stalled_in = |order: &ByProgress| {
            let (progress_at, id) = order.iter().find(|(_, id)| Some(*id) != taker)?;
            (now.duration_since(*progress_at) >= STALLED_AFTER).then_some(*id)
        };
        // Identities are compared only if that ends with one holding less.
        stalled_in(&self.by_progress)?;
        let stalled = self
            .by_identity
            .values()
            .filter_map(|share| Some((share.bytes, stalled_in(&share.by_progress)?)));
        stalled.max().map(|(_, id)| id)
    }
}

impl Reservation {
    /// Notes progress, and takes `more` bytes. Waits for room for up to `wait_max`, unless as many peers
    /// wait as may.
    pub async fn grow(&self, more: usize, wait_max: Duration) -> Result<(), Full> {
        if self.grow_at(Instant::now(), more).is_ok() {
            return Ok(());
        }
        let deadline = Instant::now() + wait_max;
        let _waiting = self.pool.waiting.take(&self.account).map_err(|_| Full)?;
        self.account.note_delay(self.pool.quota);
        loop {
            sleep(ROOM_RETRY_EVERY).await;
            let now = Instant::now();
            if self.grow_at(now, more).is_ok() {
                return Ok(());
            }
            if now >= deadline {
                self.account.note_refusal(self.pool.quota);
                return Err(Full);
            }
        }
    }

    fn grow_at(&self, now: Instant, more: usize) -> Result<(), Full> {
        let mut state = lock(&self.pool.state);
        if !state.holdings.contains_key(&self.id) {
            // Revoked; the owner is about to notice.
            return Ok(());
        }
        let revoked = self.pool.make_room(&mut state, Some(self.id), more, now)?;
        let mut holding = state.remove(self.id).expect("a taker keeps what it holds");
        holding.progress_at = now;
        holding.bytes += more;
        state.insert(self.id, holding);
        drop(state);
        self.pool.revoke(revoked);
        Ok(())
    }

    /// Notes progress.
    pub fn note_progress(&self) {
        // Never fails: it takes nothing.
        let _ = self.grow_at(Instant::now(), 0);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Not there if it was revoked.
        lock(&self.pool.state).remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn memory_without_progress_is_taken_back_for_others() {
        let pool = MemoryPool::new(Quota::BegunBytes, 100);
        let [greedy, other] = [1, 2].map(Account::of_test);
        let revoked = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let hold = |now, account, bytes| {
            let revoked = revoked.clone();
            pool.hold_at(
                now,
                account,
                bytes,
                Box::new(move || {
                    revoked.fetch_add(1, Ordering::SeqCst);
                }),
            )
        };
        let kept = hold(begin, &other, 10).unwrap();
        let held: Vec<_> = (0..9).map(|_| hold(begin, &greedy, 10).unwrap()).collect();
        assert_eq!(
            hold(begin, &other, 10).unwrap_err(),
            Full,
            "all make progress"
        );

        let later = begin + STALLED_AFTER;
        held[0].grow_at(later, 0).unwrap();
        let newcomer = hold(later, &other, 15).unwrap();
        assert_eq!((revoked.load(Ordering::SeqCst), pool.bytes()), (2, 95));
        assert_eq!(
            greedy.refusals().collect::<Vec<_>>(),
            [(Quota::BegunBytes, 2)]
        );
        newcomer.grow_at(later, 5).unwrap();
        newcomer.grow_at(later, 5).unwrap();
        assert_eq!((revoked.load(Ordering::SeqCst), pool.bytes()), (3, 95));
        drop((kept, held, newcomer));
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn those_that_wait_for_room_do_not_keep_each_other_waiting() {
        let pool = MemoryPool::new(Quota::BegunBytes, 100);
        let account = Account::of_test(1);
        let begin = Instant::now();
        let held = [50, 50].map(|bytes| {
            pool.hold_at(begin, &account, bytes, Box::new(|| {}))
                .unwrap()
        });
        let mut now = begin;
        while now < begin + STALLED_AFTER {
            assert!(held.iter().all(|held| held.grow_at(now, 10) == Err(Full)));
            now += STALLED_AFTER / 4;
        }
        held[0].grow_at(now, 10).unwrap();
        assert_eq!(pool.bytes(), 60, "the other one gave way");
    }

    #[tokio::test]
    async fn only_some_wait_for_room_and_a_newcomer_is_among_them() {
        let pool = MemoryPool::new(Quota::BegunBytes, 100);
        let [greedy, newcomer] = [1, 2].map(Account::of_test);
        let _all = pool.hold(&greedy, 100, || {}).unwrap();
        let begun = |account| pool.hold_none(account, || {});
        let many: Vec<_> = (0..2 * WAITING_FOR_ROOM_MAX)
            .map(|_| begun(&greedy))
            .collect();
        let mut growing: Vec<_> = many
            .iter()
            .map(|held| Box::pin(held.grow(1, Duration::from_secs(10))))
            .collect();
        let mut context = Context::from_waker(Waker::noop());
        let refused = growing
            .iter_mut()
            .map(|grow| grow.as_mut().poll(&mut context))
            .filter(|grown| *grown == Poll::Ready(Err(Full)))
            .count();
        assert_eq!(refused, WAITING_FOR_ROOM_MAX);
        let late = begun(&newcomer);
        let mut late = std::pin::pin!(late.grow(1, Duration::from_secs(10)));
        assert_eq!(
            late.as_mut().poll(&mut context),
            Poll::Pending,
            "it has a place"
        );
    }

    /// Each attempt costs as much with ten thousand holdings as with one: a few comparisons. Looking at
    /// all of them took seconds of both threads that serve agents.
    #[test]
    fn what_finds_no_room_does_not_look_at_all_that_is_held() {
        const HOLDINGS: usize = 10_000;
        let pool = MemoryPool::new(Quota::BegunBytes, HOLDINGS);
        let accounts: Vec<_> = (0..100).map(Account::of_test).collect();
        let now = Instant::now();
        let held: Vec<_> = (0..HOLDINGS)
            .map(|number| {
                pool.hold_at(now, &accounts[number % 100], 1, Box::new(|| {}))
                    .unwrap()
            })
            .collect();
        for reservation in &held {
            assert_eq!(reservation.grow_at(now, 1), Err(Full));
        }
        // The longest without progress, of each identity in turn as its share shrinks.
        let later = now + STALLED_AFTER;
        for reservation in &held[HOLDINGS / 2..] {
            reservation.grow_at(later, 1).unwrap();
        }
        assert_eq!(lock(&pool.state).holdings.len(), HOLDINGS / 2);
        drop(held);
        let state = lock(&pool.state);
        assert_eq!(
            (
                state.bytes,
                state.by_progress.len(),
                state.by_identity.len()
            ),
            (0, 0, 0)
        );
    }
}
