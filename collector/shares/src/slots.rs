//! A pool of slots: queries, open pages, requests to agents.

use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use tokio::sync::oneshot;

use super::{Account, Quota};
use crate::identity::{Identity, Origin};
use base::sync::{Mutex, lock, rank};

/// A number of slots that peers take and return. One identity may take all of them; an eighth as many
/// more are left to identities that hold less than half. If many identities take these too, one that comes from
/// where less is taken gets a slot of those that hold the most.
#[derive(Debug)]
pub struct SlotPool {
    quota: Quota,
    slots_max: usize,
    taken: Mutex<Usage, rank::Slots>,
}

#[derive(Debug, Default)]
struct Usage {
    count: usize,
    /// The number of slots taken so far.
    numbers: u64,
    by_identity: KeyedMap<Identity, Vec<UsedSlot>>,
}

/// A taken slot, as the pool knows it.
#[derive(Debug)]
struct UsedSlot {
    number: u64,
    /// Used to take the slot back; `None` if it stays with its holder.
    revoke: Option<oneshot::Sender<()>>,
}

impl Usage {
    /// Takes the newest revocable slot of the identity with the most, from where most slots are taken, back. Returns
    /// whether there was one, and who takes it comes from where at least two less are taken.
    fn take_back(&mut self, taker: &Identity) -> bool {
        let mut by_origin: KeyedMap<Origin, usize> = KeyedMap::default();
        for (identity, taken) in &self.by_identity {
            *by_origin.entry(identity.origin()).or_default() += taken.len();
        }
        let own = by_origin.get(&taker.origin()).copied().unwrap_or(0);
        let candidates = self.by_identity.iter().filter_map(|(identity, taken)| {
            let newest = taken.iter().rev().find(|taken| taken.revoke.is_some())?;
            let all = by_origin[&identity.origin()];
            (all > own + 1).then(|| (all, taken.len(), newest.number, identity.clone()))
        });
        let most =
            candidates.max_by_key(|(all, of_identity, number, _)| (*all, *of_identity, *number));
        let Some((_, _, number, identity)) = most else {
            return false;
        };
        let revoke = self
            .remove(&identity, number)
            .and_then(|taken| taken.revoke);
        // Its holder may be done.
        let _ = revoke.map(|revoke| revoke.send(()));
        true
    }

    /// Removes a slot; `None` if it was taken back.
    fn remove(&mut self, identity: &Identity, number: u64) -> Option<UsedSlot> {
        let of_identity = self.by_identity.get_mut(identity)?;
        let at = of_identity
            .iter()
            .position(|taken| taken.number == number)?;
        let taken = of_identity.remove(at);
        if of_identity.is_empty() {
            self.by_identity.remove(identity);
        }
        self.count -= 1;
        Some(taken)
    }
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
    number: u64,
}

/// A slot that others may need more.
#[derive(Debug)]
pub struct RevocableSlot {
    pub slot: Slot,
    revoked: oneshot::Receiver<()>,
}

impl RevocableSlot {
    /// Resolves when the slot is taken back: what it was taken for ends then.
    pub async fn revoked(&mut self) {
        if (&mut self.revoked).await.is_err() {
            // Only the pool has the other end, until the slot is returned.
            std::future::pending().await
        }
    }
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
        self.take_with(account, None)
    }

    /// Like [`SlotPool::take`], of work that can end at any time without harm.
    pub fn take_revocable(
        self: &Arc<Self>,
        account: &Arc<Account>,
    ) -> Result<RevocableSlot, NoSlot> {
        let (revoke, revoked) = oneshot::channel();
        let slot = self.take_with(account, Some(revoke))?;
        Ok(RevocableSlot { slot, revoked })
    }

    fn take_with(
        self: &Arc<Self>,
        account: &Arc<Account>,
        revoke: Option<oneshot::Sender<()>>,
    ) -> Result<Slot, NoSlot> {
        let mut taken = lock(&self.taken);
        let own = taken.by_identity.get(&account.identity).map_or(0, Vec::len);
        let is_greedy = own >= self.slots_max / 2;
        let capacity = SlotPool::capacity(self.slots_max);
        let limit = if is_greedy { self.slots_max } else { capacity };
        let has_quota = own < account.quota(self.quota);
        let is_full = taken.count >= limit;
        let is_given = has_quota && (!is_full || !is_greedy && taken.take_back(&account.identity));
        if !is_given {
            account.note_refusal(self.quota);
            return Err(if is_greedy || !has_quota {
                NoSlot::OwnShare
            } else {
                NoSlot::AllUsed
            });
        }
        taken.count += 1;
        taken.numbers += 1;
        let number = taken.numbers;
        let of_identity = taken.by_identity.entry(account.identity.clone());
        of_identity.or_default().push(UsedSlot { number, revoke });
        Ok(Slot {
            slots: self.clone(),
            account: account.clone(),
            number,
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
        let removed = lock(&self.slots.taken).remove(&self.account.identity, self.number);
        if removed.is_none() {
            self.account.note_refusal(self.slots.quota);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::QuotaSettings;
    use super::*;
    use crate::identity::network_of;

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
    fn many_identities_leave_a_slot_to_one_that_has_fewer() {
        let slots = SlotPool::new(Quota::Queries, 8);
        let take = |number| slots.take_revocable(&Account::of_test(number));
        let mut taken: Vec<_> = [1, 1, 2, 2, 2, 3, 3, 4, 4]
            .map(|of| take(of).unwrap())
            .into();
        assert_eq!(slots.taken(), SlotPool::capacity(8));
        let newcomer = take(5).unwrap();
        assert_eq!(slots.taken(), 9, "none is added");
        let is_revoked = |slot: &mut RevocableSlot| slot.revoked.try_recv().is_ok();
        let revoked = taken.iter_mut().map(is_revoked);
        // The newest of those with the most.
        let expected = [0, 0, 0, 0, 1, 0, 0, 0, 0].map(|is_revoked| is_revoked == 1);
        assert_eq!(revoked.collect::<Vec<_>>(), expected);
        drop(taken.remove(4));
        assert_eq!(slots.taken(), 9, "it was returned before");
        // A second one would be as many as the others have.
        assert_eq!(take(5).unwrap_err(), NoSlot::AllUsed);
        drop((newcomer, taken));
        assert_eq!(slots.taken(), 0);
        assert!(lock(&slots.taken).by_identity.is_empty());

        let firm: Vec<_> = [1, 1, 2, 2, 2, 3, 3, 4, 4]
            .map(|of| slots.take(&Account::of_test(of)).unwrap())
            .into();
        assert_eq!(
            take(5).unwrap_err(),
            NoSlot::AllUsed,
            "none can be taken back"
        );
        drop(firm);
    }

    /// One host may have a network of 65,536 networks, each an identity.
    #[test]
    fn networks_of_one_site_share_what_they_leave_to_others() {
        let slots = SlotPool::new(Quota::Queries, 8);
        let of = |address: &str| {
            let identity = Identity::Address(network_of(address.parse().unwrap()));
            Account::of_identity(identity)
        };
        let site: Vec<_> = (0..9)
            .map(|network| {
                slots
                    .take_revocable(&of(&format!("2001:db8:1:{network}::1")))
                    .unwrap()
            })
            .collect();
        slots.take_revocable(&of("2001:db8:1:ff::1")).unwrap_err();
        let honest =
            ["2001:db8:2::1", "192.0.2.7"].map(|address| slots.take_revocable(&of(address)));
        assert!(honest.iter().all(Result::is_ok), "{honest:?}");
        assert_eq!((slots.taken(), site.len()), (9, 9));
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
