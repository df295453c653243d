//! The memory of decoded messages.
//!
//! A decoded message takes up to thirty times its encoded size, and stays in memory while it waits for
//! its session, for a sealing and for the log. So its memory is measured and charged before it is
//! decoded, and released when it is applied. Streams wait for room; what they sent meanwhile stays in
//! their sockets.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Account, Quota};
use base::limits::{
    DECODED_BYTES_MAX, DECODED_SMALL_BYTES, QUOTA_DECODED_BYTES_MIN, SMALL_MESSAGE_BYTES,
};

const SMALL_LANE_BYTES: usize = DECODED_SMALL_BYTES;
const LARGE_LANE_BYTES: usize = DECODED_BYTES_MAX - DECODED_SMALL_BYTES;

/// The small lane of an identity, of its quota: as of all memory.
const SMALL_LANE_DIVISOR: usize = DECODED_BYTES_MAX / DECODED_SMALL_BYTES;

// A small message finds room in the least quota of an identity. A larger one counts as no more than
// its lane has.
const _: () = assert!(SMALL_MESSAGE_BYTES * SMALL_LANE_DIVISOR <= QUOTA_DECODED_BYTES_MIN as usize);
const _: () = assert!(LARGE_LANE_BYTES <= u32::MAX as usize);

/// Room for messages, in two lanes: the small messages of ordinary agents never wait for large ones.
/// Both are first come, first served.
#[derive(Debug)]
pub struct DecodeBudget {
    lanes: Lanes,
}

/// The part of each lane that one identity may take.
#[derive(Debug)]
pub(super) struct Share {
    lanes: Lanes,
    /// Of the lane for large messages.
    large_bytes: usize,
}

#[derive(Debug)]
struct Lanes {
    small: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl Lanes {
    fn new(small_bytes: usize, large_bytes: usize) -> Lanes {
        Lanes {
            small: Arc::new(Semaphore::new(small_bytes)),
            large: Arc::new(Semaphore::new(large_bytes)),
        }
    }

    fn lane(&self, bytes: usize) -> Arc<Semaphore> {
        if bytes <= SMALL_MESSAGE_BYTES {
            self.small.clone()
        } else {
            self.large.clone()
        }
    }
}

impl Share {
    /// A share of at most `bytes` in both lanes.
    pub(super) fn new(bytes: usize) -> Share {
        let small_bytes = (bytes / SMALL_LANE_DIVISOR).min(SMALL_LANE_BYTES);
        let large_bytes = bytes.saturating_sub(small_bytes).min(LARGE_LANE_BYTES);
        Share {
            lanes: Lanes::new(small_bytes, large_bytes),
            large_bytes,
        }
    }
}

/// The memory of one message, released when it is dropped.
#[derive(Debug)]
pub struct Charge {
    _own: OwnedSemaphorePermit,
    shared: OwnedSemaphorePermit,
}

impl Charge {
    pub fn bytes(&self) -> usize {
        self.shared.num_permits()
    }
}

impl Default for DecodeBudget {
    fn default() -> DecodeBudget {
        DecodeBudget {
            lanes: Lanes::new(SMALL_LANE_BYTES, LARGE_LANE_BYTES),
        }
    }
}

impl DecodeBudget {
    /// Waits for room for a message that takes `bytes` once decoded.
    pub async fn charge(&self, account: &Account, bytes: usize) -> Charge {
        const OPEN: &str = "the lanes are never closed";
        let share = &account.decoding;
        let bytes = bytes.min(share.large_bytes);
        let permits = u32::try_from(bytes).expect("a lane is below 2^32");
        let lane = share.lanes.lane(bytes);
        if lane.available_permits() < bytes {
            account.note_delay(Quota::DecodedBytes);
        }
        let own = lane.acquire_many_owned(permits).await;
        let shared = self.lanes.lane(bytes).acquire_many_owned(permits).await;
        Charge {
            _own: own.expect(OPEN),
            shared: shared.expect(OPEN),
        }
    }

    /// Bytes of the messages that are charged now.
    #[cfg(any(test, feature = "testing"))]
    pub fn charged(&self) -> usize {
        let free = self.lanes.small.available_permits() + self.lanes.large.available_permits();
        DECODED_BYTES_MAX - free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::testing::at_once;

    #[test]
    fn large_messages_leave_room_for_small_ones_and_for_others() {
        let budget = DecodeBudget::default();
        let [greedy, other] = [1, 2].map(Account::of_test);
        let all = at_once(budget.charge(&greedy, usize::MAX));
        assert_eq!(budget.charged(), LARGE_LANE_BYTES / 2);
        assert!(
            waits(&budget, &greedy, SMALL_MESSAGE_BYTES + 1),
            "its half is taken"
        );
        drop(at_once(budget.charge(&greedy, SMALL_MESSAGE_BYTES)));
        let others = at_once(budget.charge(&other, usize::MAX));
        assert!(
            waits(&budget, &Account::of_test(3), SMALL_MESSAGE_BYTES + 1),
            "all is taken"
        );
        drop(at_once(budget.charge(&other, SMALL_MESSAGE_BYTES)));
        drop((all, others));
        assert_eq!(budget.charged(), 0);
    }

    fn waits(budget: &DecodeBudget, account: &Account, bytes: usize) -> bool {
        use std::task::{Context, Poll, Waker};
        let mut context = Context::from_waker(Waker::noop());
        let charge = std::pin::pin!(budget.charge(account, bytes));
        matches!(charge.poll(&mut context), Poll::Pending)
    }
}
