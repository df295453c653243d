//! Whose data waits in memory to be sealed.

use std::sync::Mutex;

use profiler_core::hash::KeyedMap;

use super::Account;
use crate::serve::Identity;
use crate::sync::lock;

/// The bytes that each identity sent since the last sealing began. When a sealing is behind, only the
/// identity that sent most of them waits for it.
#[derive(Debug, Default)]
pub(crate) struct UnsealedShares {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    by_identity: KeyedMap<Identity, usize>,
}

impl UnsealedShares {
    /// Counts what was accepted.
    pub(crate) fn note(&self, account: &Account, bytes: usize) {
        let mut state = lock(&self.state);
        state.bytes += bytes;
        if let Some(own) = state.by_identity.get_mut(&account.identity) {
            *own += bytes;
        } else {
            state.by_identity.insert(account.identity.clone(), bytes);
        }
    }

    /// Whether it sent at least half of the bytes.
    pub(crate) fn is_greedy(&self, account: &Account) -> bool {
        let state = lock(&self.state);
        let own = state.by_identity.get(&account.identity).copied().unwrap_or(0);
        own >= state.bytes - own
    }

    /// A sealing begins.
    pub(crate) fn clear(&self) {
        *lock(&self.state) = State::default();
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
        shares.clear();
        assert!(shares.is_greedy(&honest));
    }
}
