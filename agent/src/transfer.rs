//! Transfers: what came and went over the program's links, in which both ends may tell their side.

mod stream;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use profiler_core::limits::{
    CAUSE_BYTES_MAX, NAME_BYTES_MAX, TRANSFER_KEYS_MAX, bounded, bounded_name,
};
use profiler_core::{Direction, Outcome, Timestamp, TransferEvent, TransferId};

pub use self::stream::{TransferReader, TransferWriter};
use crate::records::{self, Told};
use crate::task::{self, TaskHandle};
use crate::{clock, fork, wanted};

/// Most bytes of all keys of one transfer. What is past it is counted as more keys.
const KEYS_BYTES_MAX: usize = NAME_BYTES_MAX;

static NEXT_TRANSFER: AtomicU64 = AtomicU64::new(1);

/// Names a transfer: which way, seen from this process, and who is at the other end; keys and `start`
/// follow.
///
/// `peer` is best the other worker's id, so that both ends can be compared; any name will do. Keep the
/// number of different peers and types small: past 4,096 of them new ones count as `[overflow]`.
/// While no agent runs, a transfer costs a load and does nothing.
///
/// ```
/// use emberline_agent::{Direction, transfer};
///
/// let mut fetch = transfer(Direction::Incoming, "worker-2").key("x-17").type_name("Matrix").start();
/// // … for each block that came …
/// fetch.add_bytes(65_536);
/// drop(fetch);
/// ```
///
/// A [`TransferReader`] or [`TransferWriter`] around a socket or file counts by itself.
pub fn transfer(direction: Direction, peer: impl AsRef<str>) -> TransferBuilder {
    let unset = Timestamp::from_unix_ns(0);
    let record = wanted::by_agent().then(|| {
        Box::new(TransferEvent {
            id: TransferId(NEXT_TRANSFER.fetch_add(1, Ordering::Relaxed)),
            direction,
            peer: bounded_name(peer.as_ref()).into(),
            keys: Vec::new(),
            more_keys: 0,
            type_name: "".into(),
            bytes: 0,
            compressed_bytes: None,
            start: unset,
            stop: unset,
            task: task::current_id(),
            thread_id: 0,
            outcome: Outcome::Ok,
            cause: "".into(),
        })
    });
    TransferBuilder { record, keys_bytes: 0 }
}

/// A transfer about to start.
#[derive(Debug)]
#[must_use = "a transfer starts with `start`, `reader` or `writer`"]
pub struct TransferBuilder {
    record: Option<Box<TransferEvent>>,
    keys_bytes: usize,
}

impl TransferBuilder {
    /// What is transferred, such as `x-17`; may be given several times. The first 64 keys of at most
    /// 4 KiB together are kept, the others counted.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        let Some(record) = &mut self.record else { return self };
        let key = key.as_ref();
        self.keys_bytes = self.keys_bytes.saturating_add(key.len());
        if record.keys.len() < TRANSFER_KEYS_MAX && self.keys_bytes <= KEYS_BYTES_MAX {
            record.keys.push(key.into());
        } else {
            record.more_keys = record.more_keys.saturating_add(1);
        }
        self
    }

    /// Type of what is transferred, such as `Matrix`, by which bandwidths are summed.
    pub fn type_name(mut self, type_name: impl AsRef<str>) -> Self {
        if let Some(record) = &mut self.record {
            record.type_name = bounded_name(type_name.as_ref()).into();
        }
        self
    }

    /// The task that it is for. Unless given it is the one that is current where the transfer is named.
    pub fn task(mut self, task: &TaskHandle) -> Self {
        if let Some(record) = &mut self.record {
            record.task = task.id();
        }
        self
    }

    /// Starts it. It goes on until the guard is dropped, on whichever thread.
    pub fn start(mut self) -> TransferGuard {
        if let Some(record) = &mut self.record {
            record.thread_id = records::thread_id();
            record.start = clock::now();
        }
        TransferGuard { record: self.record, generation: fork::generation() }
    }

    /// Starts it, counting what is read from `inner`, sync or async.
    pub fn reader<R>(self, inner: R) -> TransferReader<R> {
        TransferReader::new(inner, self.start())
    }

    /// Starts it, counting what is written to `inner`, sync or async.
    pub fn writer<W>(self, inner: W) -> TransferWriter<W> {
        TransferWriter::new(inner, self.start())
    }
}

/// A transfer under way. Dropping it ends the transfer as `ok`, or as `panicked` during a panic;
/// [`TransferGuard::fail`] and [`TransferGuard::cancel`] end it otherwise. It may move between threads
/// and be held across an `.await`.
#[derive(Debug)]
#[must_use = "the transfer ends when this guard is dropped"]
pub struct TransferGuard {
    record: Option<Box<TransferEvent>>,
    /// How many forks away the process was when it started; a child does not end its parent's.
    generation: usize,
}

impl TransferGuard {
    /// So many bytes more, as the program has them.
    pub fn add_bytes(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.bytes = record.bytes.saturating_add(bytes);
        }
    }

    /// So many bytes more as they went over the link, if that is not the same.
    pub fn add_compressed_bytes(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            let before = record.compressed_bytes.unwrap_or(0);
            record.compressed_bytes = Some(before.saturating_add(bytes));
        }
    }

    /// Sets how many bytes went over the link in all.
    pub fn set_compressed_bytes(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.compressed_bytes = Some(bytes);
        }
    }

    /// Ends the transfer as `failed`, and says why. Longer than 1 KiB is cut.
    pub fn fail(mut self, cause: impl Display) {
        self.end(Outcome::Failed, |record| {
            record.cause = bounded(&cause.to_string(), CAUSE_BYTES_MAX).into();
        });
    }

    /// Ends the transfer as `cancelled`.
    pub fn cancel(mut self) {
        self.end(Outcome::Cancelled, |_| {});
    }

    fn end(&mut self, outcome: Outcome, change: impl FnOnce(&mut TransferEvent)) {
        let Some(mut record) = self.record.take() else { return };
        if self.generation != fork::generation() || !wanted::by_agent() {
            return;
        }
        record.outcome = outcome;
        record.stop = clock::now();
        change(&mut record);
        records::tell(Told::Transfer(record));
    }
}

impl Drop for TransferGuard {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        self.end(if panicked { Outcome::Panicked } else { Outcome::Ok }, |_| {});
    }
}
