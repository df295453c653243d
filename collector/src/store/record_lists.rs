//! Rows of the tables of what agents tell beside samples and tasks, and how they stand in columns.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{
    Direction, Epoch, ExpectedTasks, Outcome, Resource, ResourceSample, RunId, RunMarker, TaskId,
    Timestamp, TransferEvent, TransferId, WorkerId,
};

use super::lists::{column, next, numbers32, numbers64, optionals64, texts, times};
use super::segment::{Columns, ListColumn, ListKind, ListRow, Values};
use super::tier::Second;
use crate::ledger::SettledTask;
use crate::records::{ExpectedRow, RunRow, SampleRow, TransferRow};

/// A row of `links`: what the column `link` of `transfer_sums` stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkRow {
    /// From 1.
    pub(crate) number: u32,
    pub(crate) peer: Arc<str>,
    pub(crate) type_name: Arc<str>,
}

/// The order of rows in `transfers`: by worker, then by stop.
pub(super) fn compare_transfers(a: &Arc<TransferRow>, b: &Arc<TransferRow>) -> Ordering {
    let order = |row: &TransferRow| (row.record.stop, row.epoch, row.record.id);
    a.worker.cmp(&b.worker).then_with(|| order(a).cmp(&order(b)))
}

/// The order of rows in `resources`: by worker, then by time.
pub(super) fn compare_samples(a: &Arc<SampleRow>, b: &Arc<SampleRow>) -> Ordering {
    let order = |row: &SampleRow| (row.sample.at, row.epoch);
    a.worker.cmp(&b.worker).then_with(|| order(a).cmp(&order(b)))
}

fn seconds(start: Timestamp, stop: Timestamp) -> Range<u32> {
    let [start, stop] = [start, stop].map(|time| Second::of(time).0);
    start.min(stop)..start.max(stop).saturating_add(1)
}

fn outcome_of(name: &str) -> Result<Outcome, String> {
    let known = Outcome::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| format!("{name:?} is no outcome"))
}

impl ListRow for LinkRow {
    const COLUMNS: &'static [ListColumn] = &[
        column("number", ListKind::Number32),
        column("peer", ListKind::Text),
        column("type_name", ListKind::Text),
    ];

    fn encode(rows: &[LinkRow]) -> Vec<Values> {
        vec![
            numbers32(rows, |row| row.number),
            texts(rows, |row| row.peer.clone()),
            texts(rows, |row| row.type_name.clone()),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<LinkRow>, String> {
        let (numbers, mut peers, mut types) =
            (columns.numbers32(), columns.texts(), columns.texts());
        let row =
            |number| Ok(LinkRow { number, peer: next(&mut peers)?, type_name: next(&mut types)? });
        numbers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        self.number..self.number.saturating_add(1)
    }
}

impl ListRow for Arc<TransferRow> {
    const COLUMNS: &'static [ListColumn] = &[
        column("worker", ListKind::Text),
        column("epoch", ListKind::Number64),
        column("id", ListKind::Number64),
        column("direction", ListKind::Text),
        column("peer", ListKind::Text),
        column("keys", ListKind::Text),
        column("more_keys", ListKind::Number64),
        column("type_name", ListKind::Text),
        column("bytes", ListKind::Number64),
        column("compressed_bytes", ListKind::OptionalNumber64),
        column("start", ListKind::Time),
        column("stop", ListKind::Time),
        column("task_id", ListKind::OptionalNumber64),
        column("thread_id", ListKind::Number32),
        column("outcome", ListKind::Text),
        column("cause", ListKind::Text),
    ];

    fn encode(rows: &[Arc<TransferRow>]) -> Vec<Values> {
        let keys = |row: &Arc<TransferRow>| {
            let keys: Vec<&str> = row.record.keys.iter().map(|key| &**key).collect();
            serde_json::to_string(&keys).expect("a list of texts is JSON").into()
        };
        vec![
            texts(rows, |row| row.worker.0.clone()),
            numbers64(rows, |row| row.epoch.0),
            numbers64(rows, |row| row.record.id.0),
            texts(rows, |row| row.record.direction.name().into()),
            texts(rows, |row| row.record.peer.clone()),
            texts(rows, keys),
            numbers64(rows, |row| row.record.more_keys),
            texts(rows, |row| row.record.type_name.clone()),
            numbers64(rows, |row| row.record.bytes),
            optionals64(rows, |row| row.record.compressed_bytes.map(u64::cast_signed)),
            times(rows, |row| row.record.start),
            times(rows, |row| row.record.stop),
            optionals64(rows, |row| row.record.task.map(|task| task.0.cast_signed())),
            numbers32(rows, |row| row.record.thread_id),
            texts(rows, |row| row.record.outcome.name().into()),
            texts(rows, |row| row.record.cause.clone()),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<Arc<TransferRow>>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut ids, mut directions) = (columns.numbers64(), columns.texts());
        let (mut peers, mut keys) = (columns.texts(), columns.texts());
        let (mut more_keys, mut types) = (columns.numbers64(), columns.texts());
        let (mut bytes, mut compressed) = (columns.numbers64(), columns.optionals64());
        let (mut starts, mut stops) = (columns.numbers64(), columns.numbers64());
        let (mut tasks, mut thread_ids) = (columns.optionals64(), columns.numbers32());
        let (mut outcomes, mut causes) = (columns.texts(), columns.texts());
        let row = |worker| {
            let direction = next(&mut directions)?;
            let known = Direction::ALL.into_iter().find(|known| known.name() == &*direction);
            let keys: Vec<String> = serde_json::from_str(&next(&mut keys)?)
                .map_err(|error| format!("keys are not JSON: {error}"))?;
            let record = TransferEvent {
                id: TransferId(next(&mut ids)?.cast_unsigned()),
                direction: known.ok_or_else(|| format!("{direction:?} is no direction"))?,
                peer: next(&mut peers)?,
                keys: keys.into_iter().map(Into::into).collect(),
                more_keys: next(&mut more_keys)?.cast_unsigned(),
                type_name: next(&mut types)?,
                bytes: next(&mut bytes)?.cast_unsigned(),
                compressed_bytes: next(&mut compressed)?.map(i64::cast_unsigned),
                start: Timestamp::from_unix_ns(next(&mut starts)?),
                stop: Timestamp::from_unix_ns(next(&mut stops)?),
                task: next(&mut tasks)?.map(|id| TaskId(id.cast_unsigned())),
                thread_id: next(&mut thread_ids)?,
                outcome: outcome_of(&next(&mut outcomes)?)?,
                cause: next(&mut causes)?,
            };
            let epoch = Epoch(next(&mut epochs)?.cast_unsigned());
            Ok(Arc::new(TransferRow { worker: WorkerId(worker), epoch, record }))
        };
        workers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        seconds(self.record.start, self.record.stop)
    }
}

/// Columns of `resources` before those of the measures.
const SAMPLE_FACTS: [ListColumn; 4] = [
    column("worker", ListKind::Text),
    column("epoch", ListKind::Number64),
    column("sampled_at", ListKind::Time),
    column("period_ns", ListKind::Number64),
];

/// All columns of `resources`: one for each measure, in the order of their numbers.
const SAMPLE_COLUMNS: [ListColumn; SAMPLE_FACTS.len() + Resource::ALL.len()] = {
    let mut columns = [SAMPLE_FACTS[0]; SAMPLE_FACTS.len() + Resource::ALL.len()];
    let mut index = 1;
    while index < columns.len() {
        columns[index] = match index.checked_sub(SAMPLE_FACTS.len()) {
            None => SAMPLE_FACTS[index],
            Some(measure) => column(Resource::ALL[measure].name(), ListKind::OptionalNumber64),
        };
        index += 1;
    }
    columns
};

impl ListRow for Arc<SampleRow> {
    const COLUMNS: &'static [ListColumn] = &SAMPLE_COLUMNS;

    fn encode(rows: &[Arc<SampleRow>]) -> Vec<Values> {
        let mut columns = vec![
            texts(rows, |row| row.worker.0.clone()),
            numbers64(rows, |row| row.epoch.0),
            times(rows, |row| row.sample.at),
            numbers64(rows, |row| row.sample.period_ns),
        ];
        columns.extend(Resource::ALL.map(|resource| {
            optionals64(rows, |row| row.sample.get(resource).map(u64::cast_signed))
        }));
        columns
    }

    fn decode(mut columns: Columns) -> Result<Vec<Arc<SampleRow>>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut times, mut periods) = (columns.numbers64(), columns.numbers64());
        let mut measures = Resource::ALL.map(|_| columns.optionals64());
        let row = |worker| {
            let mut values = Vec::new();
            for (resource, column) in Resource::ALL.into_iter().zip(&mut measures) {
                let value = next(column)?;
                values.extend(value.map(|value| (resource, value.cast_unsigned())));
            }
            values.shrink_to_fit();
            let sample = ResourceSample {
                at: Timestamp::from_unix_ns(next(&mut times)?),
                period_ns: next(&mut periods)?.cast_unsigned(),
                values,
            };
            let epoch = Epoch(next(&mut epochs)?.cast_unsigned());
            Ok(Arc::new(SampleRow { worker: WorkerId(worker), epoch, sample }))
        };
        workers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        seconds(self.sample.at, self.sample.at)
    }
}

impl ListRow for RunRow {
    const COLUMNS: &'static [ListColumn] = &[
        column("worker", ListKind::Text),
        column("epoch", ListKind::Number64),
        column("id", ListKind::Number64),
        column("name", ListKind::Text),
        column("start", ListKind::Time),
        column("stop", ListKind::OptionalTime),
        column("lost_at", ListKind::OptionalTime),
    ];

    fn encode(rows: &[RunRow]) -> Vec<Values> {
        // No worker's id is empty.
        let worker =
            |row: &RunRow| row.worker.as_ref().map_or_else(Arc::default, |id| id.0.clone());
        vec![
            texts(rows, worker),
            numbers64(rows, |row| row.epoch.0),
            numbers64(rows, |row| row.run.id.0),
            texts(rows, |row| row.run.name.clone()),
            times(rows, |row| row.run.start),
            optionals64(rows, |row| row.run.stop.map(Timestamp::unix_ns)),
            optionals64(rows, |row| row.lost_at.map(Timestamp::unix_ns)),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<RunRow>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut ids, mut names) = (columns.numbers64(), columns.texts());
        let (mut starts, mut stops) = (columns.numbers64(), columns.optionals64());
        let mut lost = columns.optionals64();
        let row = |worker: Arc<str>| {
            let run = RunMarker {
                id: RunId(next(&mut ids)?.cast_unsigned()),
                name: next(&mut names)?,
                start: Timestamp::from_unix_ns(next(&mut starts)?),
                stop: next(&mut stops)?.map(Timestamp::from_unix_ns),
            };
            let epoch = Epoch(next(&mut epochs)?.cast_unsigned());
            let worker = (!worker.is_empty()).then_some(WorkerId(worker));
            let lost_at = next(&mut lost)?.map(Timestamp::from_unix_ns);
            Ok(RunRow { worker, epoch, run, lost_at })
        };
        workers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        seconds(self.run.start, self.stop().unwrap_or(self.run.start))
    }
}

impl ListRow for SettledTask {
    const COLUMNS: &'static [ListColumn] = &[
        column("worker", ListKind::Text),
        column("epoch", ListKind::Number64),
        column("id", ListKind::Number64),
        column("stop", ListKind::Time),
    ];

    fn encode(rows: &[SettledTask]) -> Vec<Values> {
        vec![
            texts(rows, |row| row.worker.0.clone()),
            numbers64(rows, |row| row.epoch.0),
            numbers64(rows, |row| row.id.0),
            times(rows, |row| row.stop),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<SettledTask>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut ids, mut stops) = (columns.numbers64(), columns.numbers64());
        let row = |worker| {
            Ok(SettledTask {
                worker: WorkerId(worker),
                epoch: Epoch(next(&mut epochs)?.cast_unsigned()),
                id: TaskId(next(&mut ids)?.cast_unsigned()),
                stop: Timestamp::from_unix_ns(next(&mut stops)?),
            })
        };
        workers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        seconds(self.stop, self.stop)
    }
}

impl ListRow for ExpectedRow {
    const COLUMNS: &'static [ListColumn] = &[
        column("worker", ListKind::Text),
        column("epoch", ListKind::Number64),
        column("name", ListKind::Text),
        column("total", ListKind::Number64),
        column("since", ListKind::Time),
    ];

    fn encode(rows: &[ExpectedRow]) -> Vec<Values> {
        vec![
            texts(rows, |row| row.worker.0.clone()),
            numbers64(rows, |row| row.epoch.0),
            texts(rows, |row| row.expected.name.clone()),
            numbers64(rows, |row| row.expected.total),
            times(rows, |row| row.expected.since),
        ]
    }

    fn decode(mut columns: Columns) -> Result<Vec<ExpectedRow>, String> {
        let (workers, mut epochs) = (columns.texts(), columns.numbers64());
        let (mut names, mut totals) = (columns.texts(), columns.numbers64());
        let mut sinces = columns.numbers64();
        let row = |worker| {
            let expected = ExpectedTasks {
                name: next(&mut names)?,
                total: next(&mut totals)?.cast_unsigned(),
                since: Timestamp::from_unix_ns(next(&mut sinces)?),
            };
            let epoch = Epoch(next(&mut epochs)?.cast_unsigned());
            Ok(ExpectedRow { worker: WorkerId(worker), epoch, expected })
        };
        workers.map(row).collect()
    }

    fn place(&self) -> Range<u32> {
        seconds(self.expected.since, self.expected.since)
    }
}
