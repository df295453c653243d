//! The way of cycles from the sampler to the symbolizer. The sampler takes no lock for it, because
//! the symbolizer, at a lower priority, may not run for a while with the lock.

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::raw::RawCycle;
use system::queue::{Reader, Writer, queue};

/// Time between two attempts to send the last cycle.
const RETRY: Duration = Duration::from_millis(1);

/// A way for at most `queued_max` cycles.
pub(crate) fn cycles(queued_max: usize) -> (CycleSender, CycleReceiver) {
    let (sender, receiver) = queue(queued_max);
    let thread = Arc::new(OnceLock::new());
    let sender = CycleSender {
        cycles: Some(sender),
        receiver: thread.clone(),
    };
    (
        sender,
        CycleReceiver {
            cycles: receiver,
            thread,
        },
    )
}

/// The sampler's end.
#[derive(Debug)]
pub(crate) struct CycleSender {
    /// `None` only while it is dropped.
    cycles: Option<Writer<RawCycle>>,
    receiver: Arc<OnceLock<Thread>>,
}

impl CycleSender {
    /// Whether nobody receives any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.cycles.as_ref().is_none_or(Writer::is_abandoned)
    }

    /// # Errors
    /// The cycle, if there is no room for it or nobody receives.
    #[expect(clippy::result_large_err, reason = "a box would need the allocator")]
    pub(crate) fn try_send(&mut self, cycle: RawCycle) -> Result<(), RawCycle> {
        let Some(cycles) = self.cycles.as_mut().filter(|cycles| !cycles.is_abandoned()) else {
            return Err(cycle);
        };
        let sent = cycles.try_push(cycle);
        self.wake();
        sent
    }

    /// Waits for room.
    ///
    /// # Errors
    /// The cycle, if nobody receives any more.
    #[expect(clippy::result_large_err, reason = "a box would need the allocator")]
    pub(crate) fn send(&mut self, cycle: RawCycle) -> Result<(), RawCycle> {
        let mut cycle = cycle;
        loop {
            match self.try_send(cycle) {
                Ok(()) => return Ok(()),
                Err(back) if self.is_abandoned() => return Err(back),
                Err(back) => cycle = back,
            }
            thread::sleep(RETRY);
        }
    }

    fn wake(&self) {
        if let Some(receiver) = self.receiver.get() {
            receiver.unpark();
        }
    }
}

impl Drop for CycleSender {
    fn drop(&mut self) {
        self.cycles = None;
        self.wake();
    }
}

/// The symbolizer's end.
#[derive(Debug)]
pub(crate) struct CycleReceiver {
    cycles: Reader<RawCycle>,
    /// The thread that receives.
    thread: Arc<OnceLock<Thread>>,
}

impl CycleReceiver {
    /// Waits for the next cycle, at most for `limit`. Only one thread may receive.
    ///
    /// # Errors
    /// If none came, or if none will come.
    pub(crate) fn recv_timeout(&mut self, limit: Duration) -> Result<RawCycle, RecvTimeoutError> {
        self.thread.get_or_init(thread::current);
        let until = Instant::now() + limit;
        loop {
            // Read first: what was sent before the sender was dropped is received.
            let is_abandoned = self.cycles.is_abandoned();
            if let Some(cycle) = self.cycles.pop() {
                return Ok(cycle);
            }
            if is_abandoned {
                return Err(RecvTimeoutError::Disconnected);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RecvTimeoutError::Timeout);
            }
            thread::park_timeout(left);
        }
    }
}
