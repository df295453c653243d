//! Turns: a few that are used at once, and a queue in which identities take turns.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::{Account, RoundRobin};
use crate::sync::lock;

/// Like a semaphore, but fair between identities instead of between those who wait: one that asks a
/// thousand times delays the others as much as one that asks once.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: RoundRobin<oneshot::Sender<()>>,
}

/// A turn; the next in the queue gets it when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
}

/// A place in the queue.
struct Waiting {
    turns: Arc<Turns>,
    granted: oneshot::Receiver<()>,
}

impl Turns {
    pub(crate) fn new(count: usize) -> Arc<Turns> {
        let state = State { free: count, waiting: RoundRobin::default() };
        Arc::new(Turns { state: Mutex::new(state) })
    }

    /// Waits for a turn. Cancel-safe.
    pub(crate) async fn take(self: &Arc<Self>, account: &Account) -> Turn {
        let mut waiting = {
            let mut state = lock(&self.state);
            if state.free > 0 {
                state.free -= 1;
                return Turn { turns: self.clone() };
            }
            let (sender, granted) = oneshot::channel();
            state.waiting.push(Some(&account.identity), sender);
            Waiting { turns: self.clone(), granted }
        };
        (&mut waiting.granted).await.expect("a queued sender is used before it is dropped");
        Turn { turns: self.clone() }
    }

    /// Passes a turn to the next who still waits.
    fn release(&self) {
        let mut state = lock(&self.state);
        while let Some(next) = state.waiting.pop() {
            if next.send(()).is_ok() {
                return;
            }
        }
        state.free += 1;
    }

    /// The number of free turns.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        lock(&self.state).free
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.release();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.granted.close();
        // Granted while it was given up. After a grant that was received, this finds nothing.
        if self.granted.try_recv().is_ok() {
            self.turns.release();
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

    #[test]
    fn a_newcomer_waits_for_one_turn_and_not_for_all_who_came_before() {
        let turns = Turns::new(2);
        let both =
            [1, 1].map(|identity| crate::testing::at_once(turns.take(&Account::of_test(identity))));
        let mut greedy: Vec<Take> = (0..64).map(|_| take(&turns, 1)).collect();
        let mut honest = take(&turns, 2);
        let [first, second] = both;
        drop(first);
        let first = poll(&mut greedy[0]).unwrap();
        drop(second);
        let second = poll(&mut honest).expect("the second turn is the newcomer's");
        assert!(greedy[1..].iter_mut().all(|take| poll(take).is_none()));
        drop((first, second));
        assert_eq!(greedy[1..].iter_mut().filter_map(poll).count(), 63);
    }

    #[test]
    fn a_turn_that_nobody_takes_is_not_lost() {
        let turns = Turns::new(1);
        let held = crate::testing::at_once(turns.take(&Account::of_test(1)));
        let gone = take(&turns, 1);
        let granted = take(&turns, 2);
        let mut last = take(&turns, 3);
        drop(gone);
        // Granted to the second, which does not notice before it is dropped.
        drop(held);
        drop(granted);
        drop(poll(&mut last).expect("the last one gets it"));
        assert_eq!(turns.free(), 1);
    }
}
