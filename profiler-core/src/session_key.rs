//! The secret by which an agent owns its epoch.
//!
//! Anyone who can read knows workers and epochs. So an agent does not draw its epoch but a key, and the
//! epoch is a hash of the key: only the agent can send a `Hello` whose key hashes to the epoch. The
//! collector stores nothing for this, so the proof also holds after its restart.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::Epoch;

/// Keeps the hash apart from other uses of the same bytes.
const DOMAIN: &[u8] = b"emberline epoch 1\0";

/// The same for [`SessionKey::successor`].
const SUCCESSOR_DOMAIN: &[u8] = b"emberline next session key 1\0";

/// The bit that marks epochs with a key.
const KEYED: u64 = 1 << 63;

/// A random secret of one life of an agent.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey([u8; SessionKey::BYTES]);

impl SessionKey {
    /// Length of a key.
    pub const BYTES: usize = 16;

    /// A key of random bytes.
    #[must_use]
    pub const fn new(random: [u8; SessionKey::BYTES]) -> SessionKey {
        SessionKey(random)
    }

    /// The key of the next session of the same life of an agent. It is a secret like this one.
    #[must_use]
    pub fn successor(&self) -> SessionKey {
        let hash = Sha256::new()
            .chain_update(SUCCESSOR_DOMAIN)
            .chain_update(self.0)
            .finalize();
        let mut next = [0; SessionKey::BYTES];
        next.copy_from_slice(&hash[..SessionKey::BYTES]);
        SessionKey(next)
    }

    /// The bytes to send in `Hello`.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The epoch of this key: [`Epoch::has_key`] is true for it.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        epoch_of(&self.0)
    }
}

fn epoch_of(key: &[u8]) -> Epoch {
    let hash = Sha256::new()
        .chain_update(DOMAIN)
        .chain_update(key)
        .finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    Epoch(u64::from_be_bytes(first) | KEYED)
}

impl Epoch {
    /// Whether the epoch is the hash of a key. Epochs below 2^63 have none: any client that knows such an
    /// epoch may speak for it.
    #[must_use]
    pub const fn has_key(self) -> bool {
        self.0 & KEYED != 0
    }

    /// Whether `key` proves that the sender owns this epoch.
    #[must_use]
    pub fn is_owned_by(self, key: &[u8]) -> bool {
        !self.has_key() || key.len() == SessionKey::BYTES && epoch_of(key) == self
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_of_an_epoch_owns_it() {
        let key = SessionKey::new([7; 16]);
        let epoch = key.epoch();
        assert!(epoch.has_key());
        assert!(epoch.is_owned_by(key.as_bytes()));
        assert!(!epoch.is_owned_by(&[]));
        assert!(!epoch.is_owned_by(&[8; 16]));
        assert!(!epoch.is_owned_by(&[7; 17]));
        assert_eq!(format!("{key:?}"), "SessionKey(…)");
    }

    #[test]
    fn the_next_key_of_a_life_is_another_one() {
        let key = SessionKey::new([7; 16]);
        let next = key.successor();
        assert_ne!(next.epoch(), key.epoch());
        assert_ne!(next.successor(), next);
        assert_eq!(SessionKey::new([7; 16]).successor(), next);
    }

    /// The value is part of the protocol.
    #[test]
    fn the_epoch_of_a_key_never_changes() {
        assert_eq!(
            SessionKey::new([0; 16]).epoch(),
            Epoch(0x87bd_8b5f_2bba_7107)
        );
    }

    #[test]
    fn small_epochs_have_no_key() {
        assert!(!Epoch(7).has_key());
        assert!(Epoch(7).is_owned_by(&[]));
    }
}
