//! Rows of the sum table of transfers.

use profiler_core::bucket::{BUCKETS, bucket};
use profiler_core::{Direction, NodeId, Outcome};

use crate::rows::TransferRow;
use crate::sums::row::{Fields, Key, Row, WorkerNumber};
use crate::sums::tier::{Second, Tier};

/// The column `measure` of `transfer_sums`: a sum, or the number of transfers in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferMeasure {
    Count,
    Failed,
    Bytes,
    CompressedBytes,
    DurationNs,
    /// Transfers in a bucket of durations.
    DurationBucket(u32),
    /// Transfers in a bucket of bytes per second.
    BandwidthBucket(u32),
}

/// The numbers of the first buckets in the column.
const DURATIONS_AT: u32 = 1 << 16;
const BANDWIDTHS_AT: u32 = 2 << 16;

const _: () = assert!(BUCKETS <= DURATIONS_AT);

impl TransferMeasure {
    fn number(self) -> u32 {
        match self {
            TransferMeasure::Count => 0,
            TransferMeasure::Failed => 1,
            TransferMeasure::Bytes => 2,
            TransferMeasure::CompressedBytes => 3,
            TransferMeasure::DurationNs => 4,
            TransferMeasure::DurationBucket(bucket) => DURATIONS_AT + bucket,
            TransferMeasure::BandwidthBucket(bucket) => BANDWIDTHS_AT + bucket,
        }
    }
}

/// The measure of a number in the column; `None` for an unknown number.
pub fn transfer_measure(number: u32) -> Option<TransferMeasure> {
    Some(match number {
        0 => TransferMeasure::Count,
        1 => TransferMeasure::Failed,
        2 => TransferMeasure::Bytes,
        3 => TransferMeasure::CompressedBytes,
        4 => TransferMeasure::DurationNs,
        DURATIONS_AT..BANDWIDTHS_AT => TransferMeasure::DurationBucket(number - DURATIONS_AT),
        BANDWIDTHS_AT.. => TransferMeasure::BandwidthBucket(number - BANDWIDTHS_AT),
        _ => return None,
    })
}

/// The rows of a transfer, in the second in which it ended.
pub(crate) fn transfer_rows(
    transfer: &TransferRow,
    worker: WorkerNumber,
    link: u32,
) -> impl Iterator<Item = Row> {
    let ts = Tier::Second.period(Second::of(transfer.record.stop));
    let kind = match transfer.record.direction {
        Direction::Incoming => 0,
        Direction::Outgoing => 1,
    };
    transfer_counts(transfer)
        .into_iter()
        .filter(|(_, value)| *value > 0)
        .map(move |(measure, value)| {
            let fields = Fields {
                ts,
                task: NodeId(link),
                worker,
                kind,
                node: measure.number(),
            };
            Row {
                key: Key::new(Tier::Second, fields),
                value,
            }
        })
}

/// The values that a transfer adds to each measure.
pub fn transfer_counts(transfer: &TransferRow) -> [(TransferMeasure, u64); 7] {
    let record = &transfer.record;
    let bandwidth = transfer.bandwidth();
    [
        (TransferMeasure::Count, 1),
        (
            TransferMeasure::Failed,
            u64::from(record.outcome != Outcome::Ok),
        ),
        (TransferMeasure::Bytes, record.bytes),
        (
            TransferMeasure::CompressedBytes,
            record.compressed_bytes.unwrap_or(record.bytes),
        ),
        (TransferMeasure::DurationNs, transfer.duration_ns()),
        (
            TransferMeasure::DurationBucket(bucket(transfer.duration_ns())),
            1,
        ),
        (
            TransferMeasure::BandwidthBucket(bucket(bandwidth.unwrap_or(0))),
            bandwidth.is_some().into(),
        ),
    ]
}
