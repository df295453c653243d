//! Memory that peers hold by not going on: messages of which only a part came, answers that are not
//! read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use profiler_core::hash::KeyedMap;

use super::{Account, Quota};
use crate::serve::Identity;
use crate::sync::lock;

/// Time without progress after which memory is taken back, if others need it.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A pool of bytes. When it is full, the peer that holds most without progress loses what it holds.
#[derive(Debug)]
pub(crate) struct MemoryPool {
    quota: Quota,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    next_id: u64,
    holdings: BTreeMap<u64, Holding>,
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
pub(crate) struct Reservation {
    pool: Arc<MemoryPool>,
    account: Arc<Account>,
    id: u64,
}

/// The pool is full, and everyone goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

impl MemoryPool {
    pub(crate) fn new(quota: Quota, bytes_max: usize) -> Arc<MemoryPool> {
        Arc::new(MemoryPool { quota, bytes_max, state: Mutex::default() })
    }

    /// Takes `bytes` for an identity. `revoke` is called if they are taken back.
    pub(crate) fn hold(
        self: &Arc<Self>,
        account: &Arc<Account>,
        bytes: usize,
        revoke: impl FnOnce() + Send + 'static,
    ) -> Result<Reservation, Full> {
        self.hold_at(Instant::now(), account, bytes, Box::new(revoke))
    }

    /// Takes nothing yet; see [`Reservation::grow`].
    pub(crate) fn hold_none(
        self: &Arc<Self>,
        account: &Arc<Account>,
        revoke: impl FnOnce() + Send + 'static,
    ) -> Reservation {
        let account = account.clone();
        let revoke = Box::new(revoke);
        let holding = Holding { account, bytes: 0, progress_at: Instant::now(), revoke };
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
        let holding = Holding { account: account.clone(), bytes, progress_at: now, revoke };
        let held = self.insert(&mut state, holding);
        drop(state);
        self.revoke(revoked);
        Ok(held)
    }

    fn insert(self: &Arc<Self>, state: &mut State, holding: Holding) -> Reservation {
        let id = state.next_id;
        state.next_id += 1;
        let account = holding.account.clone();
        state.holdings.insert(id, holding);
        Reservation { pool: self.clone(), account, id }
    }

    /// Removes holdings without progress until `taker` has room for `bytes` more, and takes these.
    fn make_room(
        &self,
        state: &mut State,
        taker: Option<u64>,
        bytes: usize,
        now: Instant,
    ) -> Result<Vec<Holding>, Full> {
        let mut revoked = Vec::new();
        while bytes > 0 && state.bytes + bytes > self.bytes_max {
            let Some(id) = state.stalled(taker, now) else { break };
            let holding = state.holdings.remove(&id).expect("it was found there");
            state.bytes -= holding.bytes;
            revoked.push(holding);
        }
        // Holdings that were removed in vain stay removed: they made no progress.
        if bytes > 0 && state.bytes > 0 && state.bytes + bytes > self.bytes_max {
            self.revoke(revoked);
            return Err(Full);
        }
        state.bytes += bytes;
        Ok(revoked)
    }

    fn revoke(&self, revoked: Vec<Holding>) {
        for Holding { account, revoke, .. } in revoked {
            account.note_refusal(self.quota);
            revoke();
        }
    }

    /// The bytes that are held.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }
}

impl State {
    /// Of the identity that holds most without progress, what was longest without it. Waiting for room
    /// is no progress: those that wait would otherwise keep each other waiting.
    fn stalled(&self, taker: Option<u64>, now: Instant) -> Option<u64> {
        let stalled = self.holdings.iter().filter(|(id, holding)| {
            Some(**id) != taker && now - holding.progress_at >= STALLED_AFTER
        });
        let mut bytes_of: KeyedMap<&Identity, usize> = KeyedMap::default();
        for (_, holding) in stalled.clone() {
            *bytes_of.entry(&holding.account.identity).or_default() += holding.bytes;
        }
        let heaviest = bytes_of.into_iter().max_by_key(|(_, bytes)| *bytes)?.0;
        let of_heaviest = stalled.filter(|(_, holding)| holding.account.identity == *heaviest);
        of_heaviest.min_by_key(|(_, holding)| holding.progress_at).map(|(id, _)| *id)
    }
}

impl Reservation {
    /// Notes progress, and takes `more` bytes.
    pub(crate) fn grow(&self, more: usize) -> Result<(), Full> {
        self.grow_at(Instant::now(), more)
    }

    fn grow_at(&self, now: Instant, more: usize) -> Result<(), Full> {
        let mut state = lock(&self.pool.state);
        if !state.holdings.contains_key(&self.id) {
            // Revoked; the owner is about to notice.
            return Ok(());
        }
        let revoked = match self.pool.make_room(&mut state, Some(self.id), more, now) {
            Ok(revoked) => revoked,
            Err(full) => {
                self.account.note_refusal(self.pool.quota);
                return Err(full);
            }
        };
        let holding = state.holdings.get_mut(&self.id).expect("a taker keeps what it holds");
        holding.progress_at = now;
        holding.bytes += more;
        drop(state);
        self.pool.revoke(revoked);
        Ok(())
    }
}

impl Reservation {
    /// Notes progress.
    pub(crate) fn note_progress(&self) {
        // Never fails: it takes nothing.
        let _ = self.grow(0);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.state);
        // Not there if it was revoked.
        if let Some(holding) = state.holdings.remove(&self.id) {
            state.bytes -= holding.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn memory_without_progress_is_taken_back_for_others() {
        let pool = MemoryPool::new(Quota::BegunBytes, 100);
        let [greedy, other] = [1, 2].map(Account::of_test);
        let revoked = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
        let hold = |now, account, bytes| {
            let revoked = revoked.clone();
            let count = move || {
                revoked.fetch_add(1, Ordering::SeqCst);
            };
            pool.hold_at(now, account, bytes, Box::new(count))
        };
        let kept = hold(begin, &other, 10).unwrap();
        let held: Vec<_> = (0..9).map(|_| hold(begin, &greedy, 10).unwrap()).collect();
        assert_eq!(hold(begin, &other, 10).unwrap_err(), Full, "all make progress");

        let later = begin + STALLED_AFTER;
        held[0].grow_at(later, 0).unwrap();
        let newcomer = hold(later, &other, 15).unwrap();
        assert_eq!((revoked.load(Ordering::SeqCst), pool.bytes()), (2, 95));
        assert_eq!(greedy.refusals().collect::<Vec<_>>(), [(Quota::BegunBytes, 2)]);
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
        let held =
            [50, 50].map(|bytes| pool.hold_at(begin, &account, bytes, Box::new(|| {})).unwrap());
        let mut now = begin;
        while now < begin + STALLED_AFTER {
            assert!(held.iter().all(|held| held.grow_at(now, 10) == Err(Full)));
            now += STALLED_AFTER / 4;
        }
        held[0].grow_at(now, 10).unwrap();
        assert_eq!(pool.bytes(), 60, "the other one gave way");
    }
}
