//! The telemetry of a batch: how much room it takes, how it is split, and what is shed first.

use std::sync::Arc;

use profiler_core::{ExpectedTasks, ResourceSample, RunMarker, Telemetry, TransferEvent};

/// The size of a record.
trait RecordSize {
    /// Bytes in memory, as if no text were shared.
    fn memory_bytes(&self) -> usize;

    /// Most bytes in a flush, with the texts that are in the dictionary.
    fn wire_bytes_max(&self) -> usize;
}

impl RecordSize for TransferEvent {
    fn memory_bytes(&self) -> usize {
        let texts = self.peer.len() + self.type_name.len() + self.cause.len();
        let keys: usize = self
            .keys
            .iter()
            .map(|key| size_of::<Arc<str>>() + key.len())
            .sum();
        size_of::<TransferEvent>() + texts + keys
    }

    fn wire_bytes_max(&self) -> usize {
        // Fourteen fields, of which seven are long numbers.
        let keys: usize = self.keys.iter().map(|key| 3 + key.len()).sum();
        120 + keys + self.cause.len() + self.peer.len() + self.type_name.len()
    }
}

impl RecordSize for ResourceSample {
    fn memory_bytes(&self) -> usize {
        size_of::<ResourceSample>() + size_of_val(&self.values[..])
    }

    fn wire_bytes_max(&self) -> usize {
        40 + 11 * self.values.len()
    }
}

impl RecordSize for ExpectedTasks {
    fn memory_bytes(&self) -> usize {
        size_of::<ExpectedTasks>() + self.name.len()
    }

    fn wire_bytes_max(&self) -> usize {
        34 + self.name.len()
    }
}

impl RecordSize for RunMarker {
    fn memory_bytes(&self) -> usize {
        size_of::<RunMarker>() + self.name.len()
    }

    fn wire_bytes_max(&self) -> usize {
        46 + self.name.len()
    }
}

/// Memory of all records in bytes, except sums of tasks, which a batch holds by itself.
pub(super) fn memory_bytes(records: &Telemetry) -> usize {
    fn sum<T: RecordSize>(records: &[T]) -> usize {
        records.iter().map(RecordSize::memory_bytes).sum()
    }
    let Telemetry {
        totals: _,
        transfers,
        resources,
        expected,
        runs,
    } = records;
    sum(transfers) + sum(resources) + sum(expected) + sum(runs)
}

/// Splits off what does not fit into `room` bytes of a flush. With `at_least_one`, the first record
/// stays even if it does not fit. Records that must not arrive late come first.
pub(super) fn split_off(records: &mut Telemetry, room: usize, at_least_one: bool) -> Telemetry {
    let mut space = Space {
        room,
        must_take: at_least_one,
        is_full: false,
    };
    Telemetry {
        expected: space.split_off(&mut records.expected),
        runs: space.split_off(&mut records.runs),
        totals: Vec::new(),
        resources: space.split_off(&mut records.resources),
        transfers: space.split_off(&mut records.transfers),
    }
}

/// The space left in a flush.
struct Space {
    room: usize,
    must_take: bool,
    is_full: bool,
}

impl Space {
    fn split_off<T: RecordSize>(&mut self, records: &mut Vec<T>) -> Vec<T> {
        let taken = records
            .iter()
            .take_while(|record: &&T| {
                let bytes = record.wire_bytes_max();
                let fits = !self.is_full && (bytes <= self.room || self.must_take);
                self.is_full |= !fits;
                self.must_take = false;
                self.room = self.room.saturating_sub(if fits { bytes } else { 0 });
                fits
            })
            .count();
        records.split_off(taken)
    }
}

/// Drops resource samples, then transfers, until `bytes` are freed or none is left, the oldest
/// first. Returns their number.
pub(super) fn shed(records: &mut Telemetry, bytes: usize) -> u64 {
    let mut freed = 0;
    shed_oldest(&mut records.resources, bytes, &mut freed)
        + shed_oldest(&mut records.transfers, bytes, &mut freed)
}

fn shed_oldest<T: RecordSize>(records: &mut Vec<T>, bytes: usize, freed: &mut usize) -> u64 {
    let count = records
        .iter()
        .take_while(|record: &&T| {
            let shed = *freed < bytes;
            *freed += if shed { record.memory_bytes() } else { 0 };
            shed
        })
        .count();
    records.drain(..count);
    count as u64
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::{encode_telemetry, v1};
    use profiler_core::{Direction, Outcome, Resource, RunId, Timestamp, TransferId};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    const LATEST: Timestamp = Timestamp::from_unix_ns(i64::MIN);

    fn transfer(id: u64, text: usize) -> TransferEvent {
        TransferEvent {
            id: TransferId(id),
            direction: Direction::Outgoing,
            peer: "worker-2".into(),
            keys: vec!["k".repeat(text).into(); text % 5],
            more_keys: u64::MAX,
            type_name: "Matrix".into(),
            bytes: u64::MAX,
            compressed_bytes: Some(u64::MAX),
            start: LATEST,
            stop: LATEST,
            task: Some(profiler_core::TaskId(u64::MAX)),
            thread_id: u32::MAX,
            outcome: Outcome::Panicked,
            cause: "c".repeat(text).into(),
        }
    }

    fn sample(at: i64) -> ResourceSample {
        let values = Resource::ALL.map(|resource| (resource, u64::MAX)).to_vec();
        ResourceSample {
            at: Timestamp::from_unix_ns(at),
            period_ns: u64::MAX,
            values,
        }
    }

    fn expected(name: &str, total: u64) -> ExpectedTasks {
        ExpectedTasks {
            name: name.into(),
            total,
            since: LATEST,
        }
    }

    fn run(id: u64, stop: Option<i64>) -> RunMarker {
        let stop = stop.map(Timestamp::from_unix_ns);
        RunMarker {
            id: RunId(id),
            name: "nightly".into(),
            start: LATEST,
            stop,
        }
    }

    fn all(many: usize, text: usize) -> Telemetry {
        let ids = 1..=many as u64;
        Telemetry {
            transfers: ids.clone().map(|id| transfer(id, text)).collect(),
            resources: ids.clone().map(|id| sample(id as i64)).collect(),
            expected: ids
                .clone()
                .map(|id| expected(&format!("task-{id}"), id))
                .collect(),
            runs: ids.map(|id| run(id, None)).collect(),
            ..Telemetry::default()
        }
    }

    fn encoded_bytes(records: &Telemetry) -> usize {
        let mut flush = v1::Flush::default();
        encode_telemetry(records, &mut flush, &mut |_| u32::MAX);
        flush.encoded_len()
    }

    #[test]
    fn the_oldest_are_shed() {
        let mut records = all(3, 4);
        let before = memory_bytes(&records);
        let of_samples = 3 * sample(1).memory_bytes();
        assert_eq!(shed(&mut records, of_samples + 1), 4);
        assert_eq!(
            memory_bytes(&records),
            before - of_samples - transfer(1, 4).memory_bytes()
        );
        assert_eq!(records.transfers, [transfer(2, 4), transfer(3, 4)]);
        assert_eq!(
            (
                records.resources.len(),
                records.expected.len(),
                records.runs.len()
            ),
            (0, 3, 3)
        );
    }

    proptest! {
        /// Nothing is lost or doubled, every part fits, and splitting ends.
        #[test]
        fn parts_fit_and_make_up_the_whole(many in 0..12usize, text in 0..60usize, room in 0..3_000usize) {
            let mut rest = all(many, text);
            let whole = rest.clone();
            let mut parts = Telemetry::default();
            while !rest.is_empty() {
                let later = split_off(&mut rest, room, true);
                prop_assert!(rest.count() == 1 || encoded_bytes(&rest) <= room, "{:?}", rest);
                parts.append(rest);
                rest = later;
            }
            prop_assert_eq!(parts, whole);
        }
    }
}
