//! Telemetry on the wire: everything besides samples and tasks.

use super::task::{TextAt, decode_outcome, decode_phase, encode_outcome, encode_phase, text_at};
use super::{WireError, check_size, v1};
use crate::bucket::BUCKETS;
use crate::limits::{
    CAUSE_BYTES_MAX, EXPECTED_MAX, NAME_BYTES_MAX, TASK_PHASES_MAX, TRANSFER_KEYS_MAX,
};
use crate::{
    Direction, ExpectedTasks, Outcome, Resource, ResourceSample, RunId, RunMarker, TaskId,
    TaskTotals, Telemetry, Timestamp, TransferEvent, TransferId,
};

/// Adds `telemetry` to a flush; `index` returns a string's index in the agent's table.
pub fn encode_telemetry(
    telemetry: &Telemetry,
    flush: &mut v1::Flush,
    index: &mut dyn FnMut(&str) -> u32,
) {
    let Telemetry {
        totals,
        transfers,
        resources,
        expected,
        runs,
    } = telemetry;
    flush.totals = totals
        .iter()
        .map(|totals| encode_totals(totals, index))
        .collect();
    flush.transfers = transfers
        .iter()
        .map(|transfer| encode_transfer(transfer, index))
        .collect();
    flush.resources = resources.iter().map(encode_sample).collect();
    flush.expected = expected
        .iter()
        .map(|expected| encode_expected(expected, index))
        .collect();
    flush.runs = runs.iter().map(encode_run).collect();
}

/// Decodes the telemetry of a flush; `text` looks up an index in the agent's string table. Times
/// are the agent's.
///
/// # Errors
/// If an id is 0, a text, list or index is over its limit, an outcome or number is invalid, or
/// something stopped before it started. Unknown `Resource`s of later versions are skipped.
pub fn decode_telemetry(flush: &v1::Flush, text: TextAt<'_>) -> Result<Telemetry, WireError> {
    check_size(
        "expected names of tasks",
        flush.expected.len(),
        EXPECTED_MAX,
    )?;
    let totals = flush
        .totals
        .iter()
        .map(|totals| decode_totals(totals, text));
    let transfers = flush
        .transfers
        .iter()
        .map(|transfer| decode_transfer(transfer, text));
    let expected = flush
        .expected
        .iter()
        .map(|expected| decode_expected(expected, text));
    Ok(Telemetry {
        totals: totals.collect::<Result<_, _>>()?,
        transfers: transfers.collect::<Result<_, _>>()?,
        resources: flush
            .resources
            .iter()
            .map(decode_sample)
            .collect::<Result<_, _>>()?,
        expected: expected.collect::<Result<_, _>>()?,
        runs: flush
            .runs
            .iter()
            .map(decode_run)
            .collect::<Result<_, _>>()?,
    })
}

fn encode_totals(totals: &TaskTotals, index: &mut dyn FnMut(&str) -> u32) -> v1::TaskTotals {
    let mut last = 0;
    v1::TaskTotals {
        name: index(&totals.name),
        outcome: encode_outcome(totals.outcome).into(),
        second_ns: totals.second.unix_ns(),
        duration_ns: totals.duration_ns,
        bucket_gaps: totals
            .buckets
            .iter()
            .map(&mut |(bucket, _): &(u32, u64)| bucket - std::mem::replace(&mut last, *bucket))
            .collect(),
        counts: totals.buckets.iter().map(|(_, count)| *count).collect(),
        phases: totals
            .phases
            .iter()
            .map(|phase| encode_phase(phase, index))
            .collect(),
    }
}

fn decode_totals(totals: &v1::TaskTotals, text: TextAt<'_>) -> Result<TaskTotals, WireError> {
    let left = totals.bucket_gaps.len();
    let right = totals.counts.len();
    if left != right {
        return Err(WireError::Uneven {
            what: "bucket_gaps and counts",
            left,
            right,
        });
    }
    check_size("phases of tasks", totals.phases.len(), TASK_PHASES_MAX)?;
    let mut last = 0u64;
    let mut buckets = Vec::with_capacity(left);
    for (index, (gap, count)) in totals.bucket_gaps.iter().zip(&totals.counts).enumerate() {
        last += u64::from(*gap);
        let bucket = u32::try_from(last)
            .ok()
            .filter(|bucket| *bucket < BUCKETS)
            .filter(|_| (index == 0 || *gap > 0) && *count > 0);
        let what = "a bucket of durations";
        let range = WireError::OutOfRange {
            what,
            index: last,
            count: BUCKETS.into(),
        };
        buckets.push((bucket.ok_or(range)?, *count));
    }
    let outcome = decode_ended("the outcome of tasks", totals.outcome)?;
    Ok(TaskTotals {
        name: text_at("the name of tasks", totals.name, text)?,
        outcome,
        second: Timestamp::from_unix_ns(totals.second_ns),
        duration_ns: totals.duration_ns,
        buckets,
        phases: totals
            .phases
            .iter()
            .map(|phase| decode_phase(phase, text))
            .collect::<Result<_, _>>()?,
    })
}

fn encode_transfer(
    transfer: &TransferEvent,
    index: &mut dyn FnMut(&str) -> u32,
) -> v1::TransferEvent {
    let direction = match transfer.direction {
        Direction::Incoming => v1::Direction::Incoming,
        Direction::Outgoing => v1::Direction::Outgoing,
    };
    v1::TransferEvent {
        id: transfer.id.0,
        direction: direction.into(),
        peer: index(&transfer.peer),
        keys: transfer.keys.iter().map(ToString::to_string).collect(),
        more_keys: transfer.more_keys,
        type_name: index(&transfer.type_name),
        bytes: transfer.bytes,
        compressed_bytes: transfer.compressed_bytes,
        start_ns: transfer.start.unix_ns(),
        stop_ns: transfer.stop.unix_ns(),
        task_id: transfer.task.map_or(0, |task| task.0),
        thread_id: transfer.thread_id,
        outcome: encode_outcome(transfer.outcome).into(),
        cause: transfer.cause.to_string(),
    }
}

fn decode_transfer(
    transfer: &v1::TransferEvent,
    text: TextAt<'_>,
) -> Result<TransferEvent, WireError> {
    check_id("a transfer's id", transfer.id)?;
    check_size(
        "a transfer's cause, in bytes,",
        transfer.cause.len(),
        CAUSE_BYTES_MAX,
    )?;
    check_size("keys of a transfer", transfer.keys.len(), TRANSFER_KEYS_MAX)?;
    for key in &transfer.keys {
        check_size("a transfer's key, in bytes,", key.len(), NAME_BYTES_MAX)?;
    }
    check_order(
        "a transfer's stop - start",
        transfer.start_ns,
        transfer.stop_ns,
    )?;
    let direction = match v1::Direction::try_from(transfer.direction) {
        Ok(v1::Direction::Incoming) => Direction::Incoming,
        Ok(v1::Direction::Outgoing) => Direction::Outgoing,
        Err(_) => {
            return Err(WireError::Invalid {
                what: "a transfer's direction",
                value: transfer.direction.into(),
                allowed: "0 or 1",
            });
        }
    };
    Ok(TransferEvent {
        id: TransferId(transfer.id),
        direction,
        peer: text_at("the peer of a transfer", transfer.peer, text)?,
        keys: transfer
            .keys
            .iter()
            .map(|key| key.as_str().into())
            .collect(),
        more_keys: transfer.more_keys,
        type_name: text_at("the type of a transfer", transfer.type_name, text)?,
        bytes: transfer.bytes,
        compressed_bytes: transfer.compressed_bytes,
        start: Timestamp::from_unix_ns(transfer.start_ns),
        stop: Timestamp::from_unix_ns(transfer.stop_ns),
        task: (transfer.task_id != 0).then_some(TaskId(transfer.task_id)),
        thread_id: transfer.thread_id,
        outcome: decode_ended("a transfer's outcome", transfer.outcome)?,
        cause: transfer.cause.as_str().into(),
    })
}

fn encode_sample(sample: &ResourceSample) -> v1::ResourceSample {
    v1::ResourceSample {
        at_ns: sample.at.unix_ns(),
        period_ns: sample.period_ns,
        measures: sample
            .values
            .iter()
            .map(|(resource, _)| resource.number())
            .collect(),
        values: sample.values.iter().map(|(_, value)| *value).collect(),
    }
}

fn decode_sample(sample: &v1::ResourceSample) -> Result<ResourceSample, WireError> {
    let left = sample.measures.len();
    let right = sample.values.len();
    if left != right {
        return Err(WireError::Uneven {
            what: "measures and values",
            left,
            right,
        });
    }
    if !sample.measures.is_sorted_by(|a, b| a < b) {
        return Err(WireError::Invalid {
            what: "the order of measures",
            value: 0,
            allowed: "rising",
        });
    }
    let pairs = sample.measures.iter().zip(&sample.values);
    let known = pairs.filter_map(|(number, value)| Some((Resource::of_number(*number)?, *value)));
    Ok(ResourceSample {
        at: Timestamp::from_unix_ns(sample.at_ns),
        period_ns: sample.period_ns,
        values: known.collect(),
    })
}

fn encode_expected(
    expected: &ExpectedTasks,
    index: &mut dyn FnMut(&str) -> u32,
) -> v1::ExpectedTasks {
    let ExpectedTasks { name, total, since } = expected;
    v1::ExpectedTasks {
        name: index(name),
        total: *total,
        since_ns: since.unix_ns(),
    }
}

fn decode_expected(
    expected: &v1::ExpectedTasks,
    text: TextAt<'_>,
) -> Result<ExpectedTasks, WireError> {
    Ok(ExpectedTasks {
        name: text_at("the name of expected tasks", expected.name, text)?,
        total: expected.total,
        since: Timestamp::from_unix_ns(expected.since_ns),
    })
}

fn encode_run(run: &RunMarker) -> v1::RunMarker {
    v1::RunMarker {
        id: run.id.0,
        name: run.name.to_string(),
        start_ns: run.start.unix_ns(),
        stop_ns: run.stop.map_or(0, Timestamp::unix_ns),
    }
}

fn decode_run(run: &v1::RunMarker) -> Result<RunMarker, WireError> {
    check_id("a run's id", run.id)?;
    check_size("a run's name, in bytes,", run.name.len(), NAME_BYTES_MAX)?;
    let stop_ns = (run.stop_ns != 0).then_some(run.stop_ns);
    check_order(
        "a run's stop - start",
        run.start_ns,
        stop_ns.unwrap_or(run.start_ns),
    )?;
    Ok(RunMarker {
        id: RunId(run.id),
        name: run.name.as_str().into(),
        start: Timestamp::from_unix_ns(run.start_ns),
        stop: stop_ns.map(Timestamp::from_unix_ns),
    })
}

fn check_id(what: &'static str, id: u64) -> Result<(), WireError> {
    if id == 0 {
        Err(WireError::Invalid {
            what,
            value: 0,
            allowed: "above 0",
        })
    } else {
        Ok(())
    }
}

fn check_order(what: &'static str, start_ns: i64, stop_ns: i64) -> Result<(), WireError> {
    let value = i128::from(stop_ns) - i128::from(start_ns);
    if value < 0 {
        Err(WireError::Invalid {
            what,
            value,
            allowed: "at least 0",
        })
    } else {
        Ok(())
    }
}

fn decode_ended(what: &'static str, outcome: i32) -> Result<Outcome, WireError> {
    match decode_outcome(what, outcome)? {
        Outcome::Running => {
            let allowed = "an outcome of something that ended";
            Err(WireError::Invalid {
                what,
                value: outcome.into(),
                allowed,
            })
        }
        outcome => Ok(outcome),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::PhaseInterval;

    fn telemetry() -> Telemetry {
        let at = Timestamp::from_unix_ns;
        Telemetry {
            totals: vec![TaskTotals {
                name: "load".into(),
                outcome: Outcome::Ok,
                second: at(3_000_000_000),
                duration_ns: 77,
                buckets: vec![(0, 1), (5, 2), (BUCKETS - 1, 3)],
                phases: vec![PhaseInterval {
                    name: "transfer".into(),
                    start_ns: 0,
                    duration_ns: 9,
                    count: 6,
                }],
            }],
            transfers: vec![TransferEvent {
                id: TransferId(4),
                direction: Direction::Outgoing,
                peer: "worker-2".into(),
                keys: vec!["x-1".into(), "x-2".into()],
                more_keys: 3,
                type_name: "Matrix".into(),
                bytes: 1 << 20,
                compressed_bytes: Some(1 << 19),
                start: at(10),
                stop: at(30),
                task: Some(TaskId(8)),
                thread_id: 12,
                outcome: Outcome::Failed,
                cause: "broken pipe".into(),
            }],
            resources: vec![ResourceSample {
                at: at(50),
                period_ns: 500_000_000,
                values: vec![(Resource::ProcessCpu, 7), (Resource::IoPressure, 0)],
            }],
            expected: vec![ExpectedTasks {
                name: "load".into(),
                total: 100,
                since: at(1),
            }],
            runs: vec![
                RunMarker {
                    id: RunId(1),
                    name: "nightly".into(),
                    start: at(-5),
                    stop: None,
                },
                RunMarker {
                    id: RunId(2),
                    name: "nightly".into(),
                    start: at(5),
                    stop: Some(at(9)),
                },
            ],
        }
    }

    const TEXTS: [&str; 5] = ["", "load", "transfer", "worker-2", "Matrix"];

    fn text(index: u32) -> Option<Arc<str>> {
        TEXTS.get(index as usize).map(|text| (*text).into())
    }

    fn encoded(telemetry: &Telemetry) -> v1::Flush {
        let mut flush = v1::Flush::default();
        encode_telemetry(telemetry, &mut flush, &mut |text: &str| {
            TEXTS.iter().position(|it| *it == text).unwrap() as u32
        });
        flush
    }

    #[test]
    fn decoding_gives_back_what_was_encoded() {
        for telemetry in [telemetry(), Telemetry::default()] {
            assert_eq!(decode_telemetry(&encoded(&telemetry), &text), Ok(telemetry));
        }
        assert_eq!(
            (telemetry().count(), Telemetry::default().is_empty()),
            (6, true)
        );
        assert_eq!(telemetry().totals[0].count(), 6);
    }

    #[test]
    fn unknown_resources_are_skipped() {
        let mut flush = encoded(&telemetry());
        flush.resources[0].measures[1] = 9_999;
        let sample = decode_telemetry(&flush, &text).unwrap().resources.remove(0);
        assert_eq!(sample.values, [(Resource::ProcessCpu, 7)]);
    }

    fn check_rejected(change: impl FnOnce(&mut v1::Flush), expected: &str) {
        let mut flush = encoded(&telemetry());
        change(&mut flush);
        assert_eq!(
            decode_telemetry(&flush, &text).unwrap_err().to_string(),
            expected
        );
    }

    #[test]
    fn invalid_telemetry_is_rejected() {
        check_rejected(
            |f| f.totals[0].name = 5,
            "the name of tasks is string 5, which is not in the string table",
        );
        check_rejected(
            |f| f.totals[0].outcome = 0,
            "the outcome of tasks is 0; it must be an outcome of something that ended",
        );
        check_rejected(
            |f| f.totals[0].bucket_gaps[2] += 1,
            "a bucket of durations 56320 is outside its table of 56320",
        );
        check_rejected(
            |f| f.totals[0].bucket_gaps[1] = 0,
            "a bucket of durations 0 is outside its table of 56320",
        );
        check_rejected(
            |f| f.totals[0].counts.truncate(2),
            "bucket_gaps and counts: 3 and 2 entries; the lengths must match",
        );
        check_rejected(
            |f| f.transfers[0].id = 0,
            "a transfer's id is 0; it must be above 0",
        );
        check_rejected(
            |f| f.transfers[0].direction = 2,
            "a transfer's direction is 2; it must be 0 or 1",
        );
        check_rejected(
            |f| f.transfers[0].stop_ns = 9,
            "a transfer's stop - start is -1; it must be at least 0",
        );
        check_rejected(
            |f| f.transfers[0].keys = vec![String::new(); 65],
            "keys of a transfer is 65; at most 64 is allowed",
        );
        check_rejected(
            |f| f.resources[0].measures[1] = 1,
            "the order of measures is 0; it must be rising",
        );
        check_rejected(
            |f| f.resources[0].values.clear(),
            "measures and values: 2 and 0 entries; the lengths must match",
        );
        check_rejected(
            |f| f.expected = vec![v1::ExpectedTasks::default(); 1_001],
            "expected names of tasks is 1001; at most 1000 is allowed",
        );
        check_rejected(
            |f| f.runs[1].stop_ns = 4,
            "a run's stop - start is -1; it must be at least 0",
        );
    }
}
