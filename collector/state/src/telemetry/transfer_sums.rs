//! Sums of transfers by worker, peer, direction and type. They are exact, whatever rows are dropped.

use crate::ledger::{DurationHistogram, bucket_middle_ns};
use store::rows::TransferRow;
use store::{TransferMeasure, transfer_counts};

/// Transfers of one kind.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkSum {
    pub count: u64,
    /// Those that did not end as `ok`.
    pub failed: u64,
    pub bytes: u64,
    /// Bytes on the wire; `bytes` for transfers that did not report them.
    pub compressed_bytes: u64,
    pub durations: DurationHistogram,
    /// Bytes a second of each that took any time.
    pub bandwidths: DurationHistogram,
    pub duration_ns: u64,
}

impl LinkSum {
    /// Counts a transfer.
    pub fn count(&mut self, transfer: &TransferRow) {
        transfer_counts(transfer)
            .into_iter()
            .for_each(|(measure, value)| self.add(measure, value));
    }

    /// Adds what a table has counted.
    pub fn add(&mut self, measure: TransferMeasure, value: u64) {
        let sum = match measure {
            TransferMeasure::Count => &mut self.count,
            TransferMeasure::Failed => &mut self.failed,
            TransferMeasure::Bytes => &mut self.bytes,
            TransferMeasure::CompressedBytes => &mut self.compressed_bytes,
            TransferMeasure::DurationNs => {
                self.durations.add_to_total(value);
                &mut self.duration_ns
            }
            TransferMeasure::DurationBucket(bucket) if value > 0 => {
                return self.durations.add_to_bucket(bucket, value);
            }
            TransferMeasure::BandwidthBucket(bucket) if value > 0 => {
                // A single one is reported as its sum.
                self.bandwidths
                    .add_to_total(bucket_middle_ns(bucket).saturating_mul(value));
                return self.bandwidths.add_to_bucket(bucket, value);
            }
            TransferMeasure::DurationBucket(_) | TransferMeasure::BandwidthBucket(_) => return,
        };
        *sum = sum.saturating_add(value);
    }

    /// Bytes a second over all; `None` if they took no time.
    pub fn bandwidth_mean(&self) -> Option<u64> {
        let rate = (u128::from(self.bytes) * 1_000_000_000).checked_div(self.duration_ns.into())?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
