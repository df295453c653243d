//! Rows of the tables of telemetry, and their columns.

use std::cmp::Ordering;
use std::sync::Arc;

use profiler_core::{
    Direction, Epoch, ExpectedTasks, Resource, ResourceSample, RunId, RunMarker, TaskId, Timestamp,
    TransferEvent, TransferId, WorkerId,
};

use crate::lists::{id_span, outcome_of, time_span};
use crate::rows::{ExpectedRow, LostTask, ResourceRow, RunRow, TransferRow};
use crate::segment::{
    ColumnKind as _, Columns, ListColumn, ListKind, ListRow, Values, kinds, list_table, next,
};

/// A row of `links`: the peer and type of a number in the column `link` of `transfer_sums`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkRow {
    /// From 1.
    pub number: u32,
    pub peer: Arc<str>,
    pub type_name: Arc<str>,
}

/// The order of rows in `transfers`: by worker, then by stop.
pub(crate) fn compare_transfers(a: &Arc<TransferRow>, b: &Arc<TransferRow>) -> Ordering {
    let order = |row: &TransferRow| (row.record.stop, row.epoch, row.record.id);
    a.worker
        .cmp(&b.worker)
        .then_with(|| order(a).cmp(&order(b)))
}

/// The order of rows in `resources`: by worker, then by time.
pub(crate) fn compare_samples(a: &Arc<ResourceRow>, b: &Arc<ResourceRow>) -> Ordering {
    let order = |row: &ResourceRow| (row.sample.at, row.epoch);
    a.worker
        .cmp(&b.worker)
        .then_with(|| order(a).cmp(&order(b)))
}

fn direction_of(name: &str) -> Result<Direction, String> {
    let found = Direction::ALL
        .into_iter()
        .find(|known| known.name() == name);
    found.ok_or_else(|| format!("{name:?} is no direction"))
}

fn keys_json(keys: &[Arc<str>]) -> Arc<str> {
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    serde_json::to_string(&keys)
        .expect("a list of texts is JSON")
        .into()
}

fn keys_of(json: &str) -> Result<Vec<Arc<str>>, String> {
    let keys: Vec<String> =
        serde_json::from_str(json).map_err(|error| format!("keys are not JSON: {error}"))?;
    Ok(keys.into_iter().map(Into::into).collect())
}

list_table! {
    LinkRow, |row| {
        number: Number32 = row.number,
        peer: Text = row.peer.clone(),
        type_name: Text = row.type_name.clone(),
    } => {
        LinkRow { number, peer, type_name }
    }
    span id_span(row.number)
}

list_table! {
    Arc<TransferRow>, |row| {
        worker: Text = row.worker.0.clone(),
        epoch: Number64 = row.epoch.0,
        id: Number64 = row.record.id.0,
        direction: Text = row.record.direction.name().into(),
        peer: Text = row.record.peer.clone(),
        keys: Text = keys_json(&row.record.keys),
        more_keys: Number64 = row.record.more_keys,
        type_name: Text = row.record.type_name.clone(),
        bytes: Number64 = row.record.bytes,
        compressed_bytes: OptionalNumber64 = row.record.compressed_bytes,
        start: Time = row.record.start,
        stop: Time = row.record.stop,
        task_id: OptionalNumber64 = row.record.task.map(|task| task.0),
        thread_id: Number32 = row.record.thread_id,
        outcome: Text = row.record.outcome.name().into(),
        cause: Text = row.record.cause.clone(),
    } => {
        let record = TransferEvent {
            id: TransferId(id),
            direction: direction_of(&direction)?,
            peer,
            keys: keys_of(&keys)?,
            more_keys,
            type_name,
            bytes,
            compressed_bytes,
            start,
            stop,
            task: task_id.map(TaskId),
            thread_id,
            outcome: outcome_of(&outcome)?,
            cause,
        };
        Arc::new(TransferRow { worker: WorkerId(worker), epoch: Epoch(epoch), record })
    }
    span time_span(row.record.start, row.record.stop)
}

/// The columns of `resources` before those of the measures.
struct SampleHead {
    worker: WorkerId,
    epoch: Epoch,
    at: Timestamp,
    period_ns: u64,
}

list_table! {
    SampleHead, |head| {
        worker: Text = head.worker.0.clone(),
        epoch: Number64 = head.epoch.0,
        sampled_at: Time = head.at,
        period_ns: Number64 = head.period_ns,
    } => {
        SampleHead { worker: WorkerId(worker), epoch: Epoch(epoch), at: sampled_at, period_ns }
    }
    span time_span(head.at, head.at)
}

/// All columns of `resources`: after the head one for each measure, in the order of their numbers.
const SAMPLE_COLUMNS: [ListColumn; SampleHead::COLUMNS.len() + Resource::ALL.len()] = {
    let measure = ListColumn {
        name: "",
        kind: ListKind::OptionalNumber64,
    };
    let mut columns = [measure; SampleHead::COLUMNS.len() + Resource::ALL.len()];
    let mut index = 0;
    while index < columns.len() {
        match index.checked_sub(SampleHead::COLUMNS.len()) {
            None => columns[index] = SampleHead::COLUMNS[index],
            Some(measure) => columns[index].name = Resource::ALL[measure].name(),
        }
        index += 1;
    }
    columns
};

impl ListRow for Arc<ResourceRow> {
    const COLUMNS: &'static [ListColumn] = &SAMPLE_COLUMNS;

    fn encode(rows: &[Arc<ResourceRow>]) -> Vec<Values> {
        let heads: Vec<SampleHead> = rows
            .iter()
            .map(|row: &Arc<ResourceRow>| SampleHead {
                worker: row.worker.clone(),
                epoch: row.epoch,
                at: row.sample.at,
                period_ns: row.sample.period_ns,
            })
            .collect();
        let mut columns = SampleHead::encode(&heads);
        columns.extend(Resource::ALL.map(|resource| {
            kinds::OptionalNumber64::encode(rows.iter().map(|row| row.sample.get(resource)))
        }));
        columns
    }

    fn decode(columns: &mut Columns) -> Result<Vec<Arc<ResourceRow>>, String> {
        let heads = SampleHead::decode(columns)?;
        let mut measures = Resource::ALL.map(|_| columns.take::<kinds::OptionalNumber64>());
        let row = |SampleHead {
                       worker,
                       epoch,
                       at,
                       period_ns,
                   }| {
            let mut values = Vec::new();
            for (resource, column) in Resource::ALL.into_iter().zip(&mut measures) {
                values.extend(next(column)?.map(|value| (resource, value)));
            }
            values.shrink_to_fit();
            let sample = ResourceSample {
                at,
                period_ns,
                values,
            };
            Ok(Arc::new(ResourceRow {
                worker,
                epoch,
                sample,
            }))
        };
        heads.into_iter().map(row).collect()
    }

    fn span(&self) -> std::ops::Range<u32> {
        time_span(self.sample.at, self.sample.at)
    }
}

list_table! {
    RunRow, |row| {
        // Empty for a run that was marked through the API: no worker's id is.
        worker: Text = row.worker.as_ref().map_or_else(Arc::default, |worker| worker.0.clone()),
        epoch: Number64 = row.epoch.0,
        id: Number64 = row.run.id.0,
        name: Text = row.run.name.clone(),
        start: Time = row.run.start,
        stop: OptionalTime = row.run.stop,
        lost_at: OptionalTime = row.lost_at,
    } => {
        let worker = (!worker.is_empty()).then_some(WorkerId(worker));
        let run = RunMarker { id: RunId(id), name, start, stop };
        RunRow { worker, epoch: Epoch(epoch), run, lost_at }
    }
    span time_span(row.run.start, row.stop().unwrap_or(row.run.start))
}

list_table! {
    LostTask, |task| {
        worker: Text = task.worker.0.clone(),
        epoch: Number64 = task.epoch.0,
        id: Number64 = task.id.0,
        stop: Time = task.stop,
    } => {
        LostTask { worker: WorkerId(worker), epoch: Epoch(epoch), id: TaskId(id), stop }
    }
    span time_span(task.stop, task.stop)
}

list_table! {
    ExpectedRow, |row| {
        worker: Text = row.worker.0.clone(),
        epoch: Number64 = row.epoch.0,
        name: Text = row.expected.name.clone(),
        total: Number64 = row.expected.total,
        since: Time = row.expected.since,
    } => {
        let expected = ExpectedTasks { name, total, since };
        ExpectedRow { worker: WorkerId(worker), epoch: Epoch(epoch), expected }
    }
    span time_span(row.expected.since, row.expected.since)
}
