//! Rows of telemetry: transfers, resource samples, expected tasks.

use std::sync::Arc;

use profiler_core::{Epoch, ExpectedTasks, ResourceSample, TransferEvent, WorkerId};

use super::RunRow;

/// A node of a map, the counters of an `Arc` and an allocator's rounding.
const ENTRY_BYTES: usize = 96;

/// A shorter transfer has no bandwidth: its time is that of a copy into a buffer, which says nothing
/// about the link.
const BANDWIDTH_DURATION_NS_MIN: u64 = 100_000;

/// One transfer, as reported by one of its ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferRow {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub record: TransferEvent,
}

impl TransferRow {
    pub fn duration_ns(&self) -> u64 {
        self.record.stop.since_ns(self.record.start)
    }

    /// Bytes per second; `None` for a transfer that is too short to have a bandwidth.
    pub fn bandwidth(&self) -> Option<u64> {
        let duration_ns = u128::from(self.duration_ns());
        if duration_ns < u128::from(BANDWIDTH_DURATION_NS_MIN) {
            return None;
        }
        let rate = (u128::from(self.record.bytes) * 1_000_000_000).checked_div(duration_ns)?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Memory of an unsealed row, in bytes.
    pub fn bytes(&self) -> usize {
        let TransferEvent { keys, cause, .. } = &self.record;
        let keys: usize = keys
            .iter()
            .map(|key| key.len() + size_of::<Arc<str>>())
            .sum();
        size_of::<TransferRow>() + ENTRY_BYTES + keys + cause.len()
    }
}

/// The resource usage of one worker at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceRow {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub sample: ResourceSample,
}

impl ResourceRow {
    /// Memory of an unsealed row, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<ResourceRow>() + ENTRY_BYTES + size_of_val(&*self.sample.values)
    }
}

/// The number of tasks of one name that one life of a worker expects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpectedRow {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub expected: ExpectedTasks,
}

/// The telemetry that a sealing writes: new rows of `transfers` and `resources`; all runs and all
/// expected tasks.
#[derive(Clone, Default, Debug)]
pub struct TelemetryBatch {
    pub transfers: Vec<Arc<TransferRow>>,
    pub samples: Vec<Arc<ResourceRow>>,
    pub runs: Vec<Arc<RunRow>>,
    pub expected: Vec<ExpectedRow>,
}

#[cfg(test)]
mod tests {
    use profiler_core::{Direction, Outcome, Timestamp, TransferId};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn a_transfer_too_short_to_have_a_bandwidth_has_none() {
        assert_eq!(bandwidth_after(0), None);
        assert_eq!(bandwidth_after(99_999), None);
        assert_eq!(bandwidth_after(100_000), Some(200_000));
    }

    fn bandwidth_after(duration_ns: i64) -> Option<u64> {
        let record = TransferEvent {
            id: TransferId(1),
            direction: Direction::Incoming,
            peer: "w-2".into(),
            keys: Vec::new(),
            more_keys: 0,
            type_name: "answer".into(),
            bytes: 20,
            compressed_bytes: None,
            start: at(10),
            stop: at(10).shifted(duration_ns),
            task: None,
            thread_id: 1,
            outcome: Outcome::Ok,
            cause: "".into(),
        };
        TransferRow {
            worker: WorkerId("w".into()),
            epoch: Epoch(1),
            record,
        }
        .bandwidth()
    }
}
