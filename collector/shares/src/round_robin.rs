//! A queue that serves identities in turn, each first come, first served.

use std::collections::VecDeque;

use profiler_core::hash::KeyedMap;

use crate::identity::Identity;

/// The items of each identity, and whose turn is next. `None` is the collector itself.
#[derive(Debug)]
pub struct RoundRobin<T> {
    queues: KeyedMap<Option<Identity>, VecDeque<T>>,
    /// Each identity with items, once.
    order: VecDeque<Option<Identity>>,
    count: usize,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        RoundRobin {
            queues: KeyedMap::default(),
            order: VecDeque::new(),
            count: 0,
        }
    }
}

impl<T> RoundRobin<T> {
    pub fn push(&mut self, identity: Option<&Identity>, item: T) {
        self.count += 1;
        let identity = identity.cloned();
        if let Some(queue) = self.queues.get_mut(&identity) {
            queue.push_back(item);
            return;
        }
        self.queues.insert(identity.clone(), VecDeque::from([item]));
        self.order.push_back(identity);
    }

    /// The first item of the next identity.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_of(|_| true).map(|(_, item)| item)
    }

    /// The first item of the next identity that is `eligible`.
    pub fn pop_of(
        &mut self,
        eligible: impl Fn(&Option<Identity>) -> bool,
    ) -> Option<(Option<Identity>, T)> {
        let position = self.order.iter().position(eligible)?;
        let identity = self.order.remove(position)?;
        let queue = self
            .queues
            .get_mut(&identity)
            .expect("an identity in the order has items");
        let item = queue
            .pop_front()
            .expect("an identity in the order has items");
        if queue.is_empty() {
            self.queues.remove(&identity);
        } else {
            self.order.push_back(identity.clone());
        }
        self.count -= 1;
        Some((identity, item))
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_with_many_items_delays_others_by_one() {
        let [greedy, honest] = [1, 2].map(|number| Identity::Address([10, 0, 0, number].into()));
        let mut queue = RoundRobin::default();
        (0..4).for_each(|item| queue.push(Some(&greedy), ("greedy", item)));
        queue.push(Some(&honest), ("honest", 0));
        queue.push(None, ("own", 0));
        queue.push(Some(&honest), ("honest", 1));
        assert_eq!(queue.len(), 7);
        let served: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let expected = [
            ("greedy", 0),
            ("honest", 0),
            ("own", 0),
            ("greedy", 1),
            ("honest", 1),
            ("greedy", 2),
            ("greedy", 3),
        ];
        assert_eq!(served, expected);
        assert!(queue.is_empty() && queue.queues.is_empty());
    }
}
