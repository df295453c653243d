//! A pool of slots: queries, open pages, requests to agents.

use std::sync::Arc;

use profiler_core::hash::KeyedMap;

use super::{Account, Quota};
use crate::identity::Identity;
use base::sync::{Mutex, lock, rank};

/// A number of slots that peers take and return. One identity may take all of them; an eighth as many
/// more are left to identities that hold less than half.
#[derive(Debug)]
pub struct SlotPool {
    quota: Quota,
    slots_max: usize,
    taken: Mutex<Usage, rank::Slots>,
}

#[derive(Debug, Default)]
struct Usage {
    count: usize,
    by_identity: KeyedMap<Identity, usize>,
}

/// Why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoSlot {
    /// The identity has its share.
    OwnShare,
    /// Others use all.
    AllUsed,
}

/// A taken slot; returned when it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<SlotPool>,
    account: Arc<Account>,
}

impl SlotPool {
    pub fn new(quota: Quota, slots_max: usize) -> Arc<SlotPool> {
        Arc::new(SlotPool {
            quota,
            slots_max,
            taken: Mutex::default(),
        })
    }

    /// The number of all slots, if one identity may take `slots_max`.
    pub const fn capacity(slots_max: usize) -> usize {
        slots_max + slots_max.div_ceil(8)
    }

    /// Takes a slot for an identity. A refusal is counted.
    pub fn take(self: &Arc<Self>, account: &Arc<Account>) -> Result<Slot, NoSlot> {
        let mut taken = lock(&self.taken);
        let own = taken
            .by_identity
            .get(&account.identity)
            .copied()
            .unwrap_or(0);
        let is_greedy = own >= self.slots_max / 2;
        let capacity = SlotPool::capacity(self.slots_max);
        let limit = if is_greedy { self.slots_max } else { capacity };
        let has_quota = own < account.quota(self.quota);
        if taken.count >= limit || !has_quota {
            account.note_refusal(self.quota);
            return Err(if is_greedy || !has_quota {
                NoSlot::OwnShare
            } else {
                NoSlot::AllUsed
            });
        }
        taken.count += 1;
        *taken
            .by_identity
            .entry(account.identity.clone())
            .or_default() += 1;
        Ok(Slot {
            slots: self.clone(),
            account: account.clone(),
        })
    }

    /// The number of taken slots.
    #[cfg(any(test, feature = "testing"))]
    pub fn taken(&self) -> usize {
        lock(&self.taken).count
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = lock(&self.slots.taken);
        taken.count -= 1;
        let identity = &self.account.identity;
        let own = taken
            .by_identity
            .get_mut(identity)
            .expect("a taken slot is counted");
        *own -= 1;
        if *own == 0 {
            taken.by_identity.remove(identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::QuotaSettings;
    use super::*;

    #[test]
    fn a_newcomer_finds_a_slot_although_one_identity_wants_all() {
        let slots = SlotPool::new(Quota::Queries, 66);
        let greedy = Account::of_test(1);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(&greedy).ok()).collect();
        assert_eq!(taken.len(), 66);
        let others: Vec<_> = (2..=10)
            .map(|number| slots.take(&Account::of_test(number)))
            .collect();
        assert!(others.iter().all(Result::is_ok));
        let late = Account::of_test(11);
        assert_eq!(slots.take(&late).unwrap_err(), NoSlot::AllUsed);
        assert_eq!(slots.take(&greedy).unwrap_err(), NoSlot::OwnShare);
        assert_eq!(greedy.refusals().collect::<Vec<_>>(), [(Quota::Queries, 2)]);
        drop(taken);
        drop(others);
        assert_eq!(slots.taken(), 0);
        assert!(lock(&slots.taken).by_identity.is_empty());
    }

    #[test]
    fn a_slot_is_left_to_others_in_a_small_pool() {
        let slots = SlotPool::new(Quota::ControlRequests, 8);
        let greedy = Account::of_test(1);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(&greedy).ok()).collect();
        assert_eq!(taken.len(), 8);
        let other = slots.take(&Account::of_test(2));
        assert!(other.is_ok());
        assert!(slots.take(&Account::of_test(3)).is_err());
    }

    #[test]
    fn a_quota_may_be_smaller_than_the_share() {
        let mut settings = QuotaSettings::default();
        settings.set(Quota::Queries, 3).unwrap();
        let account = Account::of_test_with(1, &settings);
        let slots = SlotPool::new(Quota::Queries, 66);
        let taken: Vec<_> = (0..3).map(|_| slots.take(&account).unwrap()).collect();
        assert_eq!(slots.take(&account).unwrap_err(), NoSlot::OwnShare);
        drop(taken);
        assert!(slots.take(&account).is_ok());
    }
}
