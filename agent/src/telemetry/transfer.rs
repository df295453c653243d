//! Transfers over the program's links. Both ends of a link may report the same transfer.

mod stream;

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profiler_core::limits::{
    CAUSE_BYTES_MAX, NAME_BYTES_MAX, TRANSFER_KEYS_MAX, bounded, bounded_name,
};
use profiler_core::{Direction, Outcome, Timestamp, TransferEvent, TransferId};

pub use self::stream::{TransferReader, TransferWriter};
use crate::task::{self, Beginning, TaskHandle};
use crate::telemetry::{self, TelemetryEvent};
use crate::{clock, fork, wanted};

/// Most bytes of all keys of one transfer. Further keys are only counted.
const KEYS_BYTES_MAX: usize = NAME_BYTES_MAX;

static NEXT_TRANSFER: AtomicU64 = AtomicU64::new(1);

/// Describes a transfer by its direction, seen from this process, and the name of the other end.
/// [`TransferBuilder::start`] starts it.
///
/// `peer` should be the other worker's id, so that both ends can be compared, but any name works. Keep
/// the number of different peers and types small: past 4,096 of them new ones count as `[overflow]`.
/// While no agent runs, a transfer costs one load and does nothing.
///
/// ```
/// use emberline_agent::{Direction, transfer};
///
/// let mut fetch = transfer(Direction::Incoming, "worker-2").key("x-17").type_name("Matrix").start();
/// // … for each received block …
/// fetch.add_bytes(65_536);
/// drop(fetch);
/// ```
///
/// A [`TransferReader`] or [`TransferWriter`] around a socket or file counts the bytes by itself.
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
    TransferBuilder {
        record,
        keys_bytes: 0,
    }
}

/// A transfer about to start.
#[derive(Debug)]
#[must_use = "a transfer starts with `start`, `reader` or `writer`"]
pub struct TransferBuilder {
    record: Option<Box<TransferEvent>>,
    keys_bytes: usize,
}

impl TransferBuilder {
    /// Adds the key of something that is transferred, for example `x-17`. The first 64 keys, of at
    /// most 4 KiB together, are kept; further ones are only counted.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        let Some(record) = &mut self.record else {
            return self;
        };
        let key = key.as_ref();
        self.keys_bytes = self.keys_bytes.saturating_add(key.len());
        if record.keys.len() < TRANSFER_KEYS_MAX && self.keys_bytes <= KEYS_BYTES_MAX {
            record.keys.push(key.into());
        } else {
            record.more_keys = record.more_keys.saturating_add(1);
        }
        self
    }

    /// Sets the type of what is transferred, for example `Matrix`. Bandwidths are summed by type.
    pub fn type_name(mut self, type_name: impl AsRef<str>) -> Self {
        if let Some(record) = &mut self.record {
            record.type_name = bounded_name(type_name.as_ref()).into();
        }
        self
    }

    /// Sets the task that needs the transfer. The default is the current task of the thread that called
    /// [`transfer`].
    pub fn task(mut self, task: &TaskHandle) -> Self {
        if let Some(record) = &mut self.record {
            record.task = task.id();
        }
        self
    }

    /// Starts the transfer. It ends when the guard is dropped, on any thread.
    pub fn start(self) -> TransferGuard {
        self.start_after(Duration::ZERO)
    }

    /// Starts a transfer that has lasted for `length` already, such as one that another library has just
    /// finished and measured.
    ///
    /// ```
    /// use std::time::Duration;
    /// use emberline_agent::{Direction, transfer};
    ///
    /// let mut fetch = transfer(Direction::Incoming, "worker-2").start_after(Duration::from_millis(20));
    /// fetch.add_bytes(65_536);
    /// ```
    pub fn start_after(mut self, length: Duration) -> TransferGuard {
        if let Some(record) = &mut self.record {
            record.thread_id = telemetry::thread_id();
            let length_ns = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
            record.start = clock::now().shifted(length_ns.saturating_neg());
        }
        TransferGuard {
            record: self.record,
            generation: fork::generation(),
            beginning: Beginning::now(),
        }
    }

    /// Starts the transfer and counts the bytes read from `inner`, sync or async.
    pub fn reader<R>(self, inner: R) -> TransferReader<R> {
        TransferReader::new(inner, self.start())
    }

    /// Starts the transfer and counts the bytes written to `inner`, sync or async.
    pub fn writer<W>(self, inner: W) -> TransferWriter<W> {
        TransferWriter::new(inner, self.start())
    }
}

/// A running transfer. Dropping it ends the transfer as `ok`, or as `panicked` if a panic since its start drops it;
/// [`TransferGuard::fail`] and [`TransferGuard::cancel`] end it with another outcome. It may move
/// between threads and be held across an `.await`.
#[derive(Debug)]
#[must_use = "the transfer ends when this guard is dropped"]
pub struct TransferGuard {
    record: Option<Box<TransferEvent>>,
    /// The [`fork::generation`] in which it started: a child does not end its parent's transfer.
    generation: usize,
    beginning: Beginning,
}

impl TransferGuard {
    /// Adds bytes, as the program sees them.
    pub fn add_bytes(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.bytes = record.bytes.saturating_add(bytes);
        }
    }

    /// Adds bytes as they crossed the link, if compression makes that another number.
    pub fn add_compressed_bytes(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            let before = record.compressed_bytes.unwrap_or(0);
            record.compressed_bytes = Some(before.saturating_add(bytes));
        }
    }

    /// Sets the total number of bytes that crossed the link.
    pub fn set_compressed_bytes(&mut self, bytes: u64) {
        if let Some(record) = &mut self.record {
            record.compressed_bytes = Some(bytes);
        }
    }

    /// Ends the transfer as `failed`, with a cause, which is cut to 1 KiB.
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
        let Some(mut record) = self.record.take() else {
            return;
        };
        if self.generation != fork::generation() || !wanted::by_agent() {
            return;
        }
        record.outcome = outcome;
        record.stop = clock::now();
        change(&mut record);
        telemetry::record(TelemetryEvent::Transfer(record));
    }
}

impl Drop for TransferGuard {
    fn drop(&mut self) {
        self.end(self.beginning.outcome(), |_| {});
    }
}
