//! Entries that wait for the log.

use std::time::{Duration, Instant};

use super::Entry;
use base::limits::{
    BUCKET_GROUP_BYTES_MAX, BUCKET_GROUP_WAIT, DISK_CHECK_EVERY, WAL_GROUP_BYTES_MAX,
    WAL_GROUP_WAIT,
};
use base::sync::{Condvar, Mutex, lock, rank};
use shares::RoundRobin;
use shares::identity::Identity;
use store::wal::NotLogged;

/// How entries are grouped.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLimits {
    /// The least time from one group to the next.
    wait: Duration,
    bytes_max: usize,
}

impl GroupLimits {
    pub(super) const DISK: GroupLimits = GroupLimits {
        wait: WAL_GROUP_WAIT,
        bytes_max: WAL_GROUP_BYTES_MAX,
    };
    pub(super) const BUCKET: GroupLimits = GroupLimits {
        wait: BUCKET_GROUP_WAIT,
        bytes_max: BUCKET_GROUP_BYTES_MAX,
    };
}

/// Entries that wait to be written.
#[derive(Debug)]
pub(super) struct Queue {
    limits: GroupLimits,
    state: Mutex<QueueState, rank::LogQueue>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// In turn, so that nobody waits for all of one identity that sends most.
    entries: RoundRobin<Entry>,
    bytes: usize,
    closed: bool,
    /// When the last group was taken.
    taken_at: Option<Instant>,
}

impl Queue {
    pub(super) fn new(limits: GroupLimits) -> Queue {
        Queue {
            limits,
            state: Mutex::default(),
            arrived: Condvar::default(),
        }
    }

    pub(super) fn push(&self, identity: Option<&Identity>, entry: Entry) -> Result<(), NotLogged> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(NotLogged::Closed);
        }
        state.bytes += entry.bytes();
        state.entries.push(identity, entry);
        // The thread sleeps until the first entry, then until there is a full group.
        if state.entries.len() == 1 || state.bytes >= self.limits.bytes_max {
            self.arrived.notify_one();
        }
        Ok(())
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.arrived.notify_one();
    }

    /// All entries.
    pub(super) fn take(&self) -> Vec<Entry> {
        let mut state = lock(&self.state);
        state.bytes = 0;
        std::iter::from_fn(|| state.entries.pop()).collect()
    }

    /// The entries that arrive within [`WAL_GROUP_WAIT`] after the first, and within the limit's time after
    /// the last group, about the limit's bytes at most; none if none arrives for [`DISK_CHECK_EVERY`].
    /// `None` when the queue is closed and empty.
    pub(super) fn next_group(&self) -> Option<Vec<Entry>> {
        let state = lock(&self.state);
        let idle = |state: &mut QueueState| state.entries.is_empty() && !state.closed;
        let state = self
            .arrived
            .wait_timeout_while(state, DISK_CHECK_EVERY, idle);
        if state.entries.is_empty() {
            return (!state.closed).then(Vec::new);
        }
        let GroupLimits { wait, bytes_max } = self.limits;
        let since_last = state.taken_at.map_or(wait, |taken_at| taken_at.elapsed());
        let wait = wait.saturating_sub(since_last).max(WAL_GROUP_WAIT);
        let few = |state: &mut QueueState| state.bytes < bytes_max && !state.closed;
        let mut state = self.arrived.wait_timeout_while(state, wait, few);
        state.taken_at = Some(Instant::now());
        let mut group = Vec::new();
        let mut bytes = 0;
        while bytes < bytes_max
            && let Some(entry) = state.entries.pop()
        {
            bytes += entry.bytes();
            group.push(entry);
        }
        state.bytes -= bytes;
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    /// All of one identity's flushes were written before those of others.
    #[test]
    fn a_group_has_entries_of_everyone_who_waits() {
        let room = Arc::new(Semaphore::new(1_000));
        let queue = Queue::new(GroupLimits::DISK);
        let [greedy, honest] = [1, 2].map(|number| Identity::Address([10, 0, 0, number].into()));
        let push = |identity, bytes| {
            let room = room.clone().try_acquire_owned().unwrap();
            queue
                .push(
                    Some(identity),
                    Entry::Hello {
                        is_end: false,
                        record: vec![0; bytes],
                        _room: room,
                    },
                )
                .unwrap();
        };
        (0..16).for_each(|_| push(&greedy, 1 << 18));
        push(&honest, 100);
        let group: Vec<usize> = queue
            .next_group()
            .unwrap()
            .iter()
            .map(Entry::bytes)
            .collect();
        assert_eq!(group, [1 << 18, 100, 1 << 18, 1 << 18, 1 << 18]);
        assert_eq!(queue.take().len(), 12);
    }
}
