//! Sums of transfers by worker, peer, direction and type: exact, however many rows are thrown away.

use profiler_core::{Direction, NodeId, Outcome};

use crate::ledger::{BUCKETS, Durations, bucket, bucket_middle_ns};
use crate::rows::TransferRow;
use crate::store::{Fields, Key, Row, Second, Tier, WorkerNumber};

/// What a row of `transfer_sums` counts stands in its column `measure`: a sum, or how many transfers
/// are in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Measure {
    Count,
    Failed,
    Bytes,
    CompressedBytes,
    DurationNs,
    /// Transfers of that bucket of durations.
    DurationBucket(u32),
    /// Transfers of that bucket of bytes a second.
    BandwidthBucket(u32),
}

/// Where the buckets begin in the column.
const DURATIONS_AT: u32 = 1 << 16;
const BANDWIDTHS_AT: u32 = 2 << 16;

const _: () = assert!(BUCKETS <= DURATIONS_AT);

impl Measure {
    fn number(self) -> u32 {
        match self {
            Measure::Count => 0,
            Measure::Failed => 1,
            Measure::Bytes => 2,
            Measure::CompressedBytes => 3,
            Measure::DurationNs => 4,
            Measure::DurationBucket(bucket) => DURATIONS_AT + bucket,
            Measure::BandwidthBucket(bucket) => BANDWIDTHS_AT + bucket,
        }
    }
}

/// What that number stands for in the column `measure`; `None` if for nothing.
pub(crate) fn measure_of(number: u32) -> Option<Measure> {
    Some(match number {
        0 => Measure::Count,
        1 => Measure::Failed,
        2 => Measure::Bytes,
        3 => Measure::CompressedBytes,
        4 => Measure::DurationNs,
        DURATIONS_AT..BANDWIDTHS_AT => Measure::DurationBucket(number - DURATIONS_AT),
        BANDWIDTHS_AT.. => Measure::BandwidthBucket(number - BANDWIDTHS_AT),
        _ => return None,
    })
}

/// Rows of `transfer_sums`, of the second in which a transfer ended.
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
    counts_of(transfer).into_iter().filter(|(_, value)| *value > 0).map(move |(measure, value)| {
        let fields = Fields { ts, task: NodeId(link), worker, kind, node: measure.number() };
        Row { key: Key::new(Tier::Second, fields), value }
    })
}

/// What one transfer adds to each measure.
fn counts_of(transfer: &TransferRow) -> [(Measure, u64); 7] {
    let record = &transfer.record;
    let bandwidth = transfer.bandwidth();
    [
        (Measure::Count, 1),
        (Measure::Failed, u64::from(record.outcome != Outcome::Ok)),
        (Measure::Bytes, record.bytes),
        (Measure::CompressedBytes, record.compressed_bytes.unwrap_or(record.bytes)),
        (Measure::DurationNs, transfer.duration_ns()),
        (Measure::DurationBucket(bucket(transfer.duration_ns())), 1),
        (Measure::BandwidthBucket(bucket(bandwidth.unwrap_or(0))), bandwidth.is_some().into()),
    ]
}

/// Transfers of one kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct LinkSum {
    pub(crate) count: u64,
    /// Those that did not end in good order.
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    /// As they went over the link: `bytes` of those of which nothing else was told.
    pub(crate) compressed_bytes: u64,
    pub(crate) durations: Durations,
    /// Bytes a second of each that took any time.
    pub(crate) bandwidths: Durations,
    pub(crate) duration_ns: u64,
}

impl LinkSum {
    /// Counts a transfer.
    pub(crate) fn count(&mut self, transfer: &TransferRow) {
        counts_of(transfer).into_iter().for_each(|(measure, value)| self.add(measure, value));
    }

    /// Adds what a table has counted.
    pub(crate) fn add(&mut self, measure: Measure, value: u64) {
        let sum = match measure {
            Measure::Count => &mut self.count,
            Measure::Failed => &mut self.failed,
            Measure::Bytes => &mut self.bytes,
            Measure::CompressedBytes => &mut self.compressed_bytes,
            Measure::DurationNs => {
                self.durations.add_to_total(value);
                &mut self.duration_ns
            }
            Measure::DurationBucket(bucket) if value > 0 => {
                return self.durations.add_to_bucket(bucket, value);
            }
            Measure::BandwidthBucket(bucket) if value > 0 => {
                // A single one is told as its sum.
                self.bandwidths.add_to_total(bucket_middle_ns(bucket).saturating_mul(value));
                return self.bandwidths.add_to_bucket(bucket, value);
            }
            Measure::DurationBucket(_) | Measure::BandwidthBucket(_) => return,
        };
        *sum = sum.saturating_add(value);
    }

    /// Bytes a second over all; `None` if they took no time.
    pub(crate) fn bandwidth_mean(&self) -> Option<u64> {
        let rate = (u128::from(self.bytes) * 1_000_000_000).checked_div(self.duration_ns.into())?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
