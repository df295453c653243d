//! Turns: a few that are used at once, and a queue in which identities take turns.

use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use super::{Account, RoundRobin};
use crate::identity::Identity;
use base::limits::SMALL_MESSAGE_BYTES;
use base::sync::{Mutex, lock, rank};

/// Like a semaphore, but fair between identities instead of between those who wait: one that asks a
/// thousand times delays the others as much as one that asks once. One turn more is left to identities
/// that have none, so that a first request need not wait for long ones of others.
#[derive(Debug)]
pub struct Turns {
    /// Turns that any identity may have.
    count: usize,
    state: Mutex<State, rank::Turns>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    by_identity: KeyedMap<Identity, usize>,
    waiting: RoundRobin<oneshot::Sender<()>>,
}

/// A turn; the next in the queue gets it when it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    identity: Identity,
}

/// A place in the queue.
struct Waiting {
    turns: Arc<Turns>,
    identity: Identity,
    granted: oneshot::Receiver<()>,
}

impl Turns {
    pub fn new(count: usize) -> Arc<Turns> {
        Arc::new(Turns {
            count,
            state: Mutex::default(),
        })
    }

    /// A turn that is free now.
    pub fn try_take(self: &Arc<Self>, account: &Account) -> Option<Turn> {
        self.grant_free(&mut lock(&self.state), &account.identity)
    }

    fn grant_free(self: &Arc<Self>, state: &mut State, identity: &Identity) -> Option<Turn> {
        if !state.may_have(self.count, identity) {
            return None;
        }
        state.grant(identity.clone());
        Some(Turn {
            turns: self.clone(),
            identity: identity.clone(),
        })
    }

    /// Waits for a turn. Cancel-safe.
    pub async fn take(self: &Arc<Self>, account: &Account) -> Turn {
        let identity = account.identity.clone();
        let mut waiting = {
            let mut state = lock(&self.state);
            if let Some(turn) = self.grant_free(&mut state, &identity) {
                return turn;
            }
            let (sender, granted) = oneshot::channel();
            state.waiting.push(Some(&identity), sender);
            Waiting {
                turns: self.clone(),
                identity,
                granted,
            }
        };
        (&mut waiting.granted)
            .await
            .expect("a queued sender is used before it is dropped");
        Turn {
            turns: self.clone(),
            identity: waiting.identity.clone(),
        }
    }

    /// Works on a message that takes `bytes` of memory. For a large one, waits for a turn and keeps no other
    /// stream waiting for the thread. Cancel-safe.
    pub async fn run<T>(
        self: &Arc<Self>,
        account: &Account,
        bytes: usize,
        work: impl FnOnce() -> T,
    ) -> T {
        if bytes <= SMALL_MESSAGE_BYTES {
            return work();
        }
        let _turn = self.take(account).await;
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        match flavor {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
            // Only tests have one thread, or no runtime.
            _ => work(),
        }
    }

    /// Takes a turn back, and passes on what is free to those who still wait.
    fn release(&self, identity: &Identity) {
        let mut state = lock(&self.state);
        state.take_back(identity);
        while let Some((identity, sender)) = state.next(self.count) {
            if sender.send(()).is_ok() {
                state.grant(identity);
            }
        }
    }

    /// The number of turns that are taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn taken(&self) -> usize {
        lock(&self.state).taken
    }
}

impl State {
    /// Whether an identity may have one more of `count` turns.
    fn may_have(&self, count: usize, identity: &Identity) -> bool {
        self.taken < count || self.taken == count && !self.by_identity.contains_key(identity)
    }

    /// The next waiting caller that may have a turn.
    fn next(&mut self, count: usize) -> Option<(Identity, oneshot::Sender<()>)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let next = waiting.pop_of(|identity| {
            identity
                .as_ref()
                .is_some_and(|identity| self.may_have(count, identity))
        });
        self.waiting = waiting;
        next.and_then(|(identity, sender)| Some((identity?, sender)))
    }

    fn grant(&mut self, identity: Identity) {
        self.taken += 1;
        *self.by_identity.entry(identity).or_default() += 1;
    }

    fn take_back(&mut self, identity: &Identity) {
        self.taken -= 1;
        let own = self
            .by_identity
            .get_mut(identity)
            .expect("a taken turn is counted");
        *own -= 1;
        if *own == 0 {
            self.by_identity.remove(identity);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.release(&self.identity);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.granted.close();
        // Granted while it was given up. After a grant that was received, this finds nothing.
        if self.granted.try_recv().is_ok() {
            self.turns.release(&self.identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Take = std::pin::Pin<Box<dyn Future<Output = Turn>>>;

    fn poll(take: &mut Take) -> Option<Turn> {
        match take.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn take(turns: &Arc<Turns>, identity: u8) -> Take {
        let turns = turns.clone();
        let mut take: Take = Box::pin(async move { turns.take(&Account::of_test(identity)).await });
        assert!(poll(&mut take).is_none(), "none is free");
        take
    }

    /// A turn that is free.
    fn taken(turns: &Arc<Turns>, identity: u8) -> Turn {
        base::testing::at_once(turns.take(&Account::of_test(identity)))
    }

    #[test]
    fn a_newcomer_waits_for_one_turn_and_not_for_all_who_came_before() {
        let turns = Turns::new(2);
        let [first, second] = [1, 1].map(|identity| taken(&turns, identity));
        let mut greedy: Vec<Take> = (0..64).map(|_| take(&turns, 1)).collect();
        let third = taken(&turns, 2);
        let mut honest = take(&turns, 3);
        drop(third);
        let third = poll(&mut honest).expect("the turn that the greedy one may not have");
        assert!(greedy.iter_mut().all(|take| poll(take).is_none()));
        let mut honest = take(&turns, 4);
        drop(first);
        let first = poll(&mut honest).expect("the others have two");
        drop((first, second));
        let ready: Vec<Turn> = greedy.iter_mut().filter_map(poll).collect();
        assert_eq!((ready.len(), turns.taken()), (1, 2));
        drop((third, ready));
        for waiter in &mut greedy[1..] {
            drop(poll(waiter).expect("each in its turn"));
        }
        assert_eq!(turns.taken(), 0);
    }

    #[test]
    fn a_turn_that_nobody_takes_is_not_lost() {
        let turns = Turns::new(1);
        let held = taken(&turns, 1);
        let _spare = taken(&turns, 9);
        let gone = take(&turns, 1);
        let granted = take(&turns, 2);
        let mut last = take(&turns, 3);
        drop(gone);
        // Granted to the second, which does not notice before it is dropped.
        drop(held);
        drop(granted);
        drop(poll(&mut last).expect("the last one gets it"));
        assert_eq!(turns.taken(), 1, "the spare one");
    }
}
