//! Shares of the identities in the data that waits in memory to be sealed.

use profiler_core::hash::KeyedMap;

use super::Account;
use crate::identity::Identity;
use base::sync::{Mutex, lock, rank};

/// The bytes of each identity that are in no table. When a sealing is behind, only the identity that sent most
/// of them waits for it.
#[derive(Debug, Default)]
pub struct UnsealedShares {
    state: Mutex<State, rank::UnsealedShares>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the sealing that is under way.
    in_sealing: Shares,
    since: Shares,
}

#[derive(Debug, Default)]
struct Shares {
    bytes: usize,
    by_identity: KeyedMap<Identity, usize>,
}

impl Shares {
    fn add(&mut self, identity: &Identity, bytes: usize) {
        self.bytes += bytes;
        if let Some(own) = self.by_identity.get_mut(identity) {
            *own += bytes;
        } else {
            self.by_identity.insert(identity.clone(), bytes);
        }
    }

    fn of(&self, identity: &Identity) -> usize {
        self.by_identity.get(identity).copied().unwrap_or(0)
    }
}

impl UnsealedShares {
    /// Counts what was accepted.
    pub fn note(&self, account: &Account, bytes: usize) {
        lock(&self.state).since.add(&account.identity, bytes);
    }

    /// Whether it sent at least half of the bytes.
    pub fn is_greedy(&self, account: &Account) -> bool {
        let state = lock(&self.state);
        let parts = [&state.in_sealing, &state.since];
        let own: usize = parts
            .map(|shares| shares.of(&account.identity))
            .iter()
            .sum();
        let all: usize = parts.map(|shares| shares.bytes).iter().sum();
        own >= all - own
    }

    /// A sealing begins. After a failed one, it includes what that one had.
    pub fn take_for_sealing(&self) {
        let mut state = lock(&self.state);
        let Shares { by_identity, .. } = std::mem::take(&mut state.since);
        for (identity, bytes) in by_identity {
            state.in_sealing.add(&identity, bytes);
        }
    }

    /// The sealing has succeeded.
    pub fn sealed(&self) {
        lock(&self.state).in_sealing = Shares::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_that_sent_most_is_greedy() {
        let shares = UnsealedShares::default();
        let [greedy, honest] = [1, 2].map(Account::of_test);
        assert!(shares.is_greedy(&honest), "alone, everyone is");
        shares.note(&greedy, 100);
        shares.note(&honest, 99);
        assert!(shares.is_greedy(&greedy) && !shares.is_greedy(&honest));
    }

    /// It is the sealing of the other's data for which an agent would wait.
    #[test]
    fn nobody_becomes_greedy_because_a_sealing_begins() {
        let shares = UnsealedShares::default();
        let [greedy, honest] = [1, 2].map(Account::of_test);
        shares.note(&greedy, 100);
        // The first one fails.
        for _ in 0..2 {
            shares.take_for_sealing();
            shares.note(&honest, 10);
            assert!(shares.is_greedy(&greedy) && !shares.is_greedy(&honest));
        }
        shares.sealed();
        assert!(shares.is_greedy(&honest));
    }
}
