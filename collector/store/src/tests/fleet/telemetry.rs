//! Rows that the fleet stores next to its samples.

use super::*;

/// The transfer of a window: it stops where the window starts.
pub(super) fn transfer_of(stored: &Arc<StoredWindow>) -> Arc<TransferRow> {
    let count = stored.samples.entries().count();
    let stop = stored.range.start();
    let record = TransferEvent {
        id: TransferId(count as u64 + 1),
        direction: Direction::ALL[count % 2],
        peer: format!("peer-{}", count % 3).into(),
        keys: vec!["\"key\"\n".into(); count % 2],
        more_keys: 5,
        type_name: format!("type-{}", count % 4).into(),
        bytes: 1_000 * (count as u64 + 1),
        compressed_bytes: count.is_multiple_of(5).then_some(7),
        start: stop.shifted(-3_000_000_001),
        stop,
        task: (count % 2 == 1).then_some(TaskId(8)),
        thread_id: 12,
        outcome: if count == 3 {
            Outcome::Failed
        } else {
            Outcome::Ok
        },
        cause: "".into(),
    };
    let worker = stored.worker.clone();
    Arc::new(TransferRow {
        worker,
        epoch: stored.epoch,
        record,
    })
}

/// The resource sample of a window.
pub(super) fn sample_of(stored: &Arc<StoredWindow>) -> Arc<ResourceRow> {
    let count = stored.samples.entries().count() as u64;
    let sample = ResourceSample {
        at: stored.range.start(),
        period_ns: 500_000_000,
        values: vec![
            (Resource::ProcessCpu, count),
            (Resource::IoPressure, u64::MAX - count),
        ],
    };
    Arc::new(ResourceRow {
        worker: stored.worker.clone(),
        epoch: stored.epoch,
        sample,
    })
}

pub(super) fn phase(name: &str, start_ns: i64, duration_ns: u64, count: u32) -> PhaseInterval {
    PhaseInterval {
        name: name.into(),
        start_ns,
        duration_ns,
        count,
    }
}

pub(super) fn phases_of(task: &TaskRow) -> &[PhaseInterval] {
    task.record
        .detail
        .as_ref()
        .map_or(&[], |detail| &detail.phases)
}

/// Details of each third task.
pub(super) fn detail(id: u64, milliseconds: u32) -> Option<Box<TaskDetail>> {
    let quarter_ns = u64::from(milliseconds) * 250_000;
    let phases = vec![
        phase("queue", -5, 5, 1),
        phase("transfer", 0, quarter_ns, 1),
        phase("execute", quarter_ns.cast_signed(), quarter_ns, 1),
        phase("my own", (2 * quarter_ns).cast_signed(), quarter_ns, 3),
    ];
    id.is_multiple_of(3).then(|| {
        Box::new(TaskDetail {
            attempt: 2,
            result_bytes: id.is_multiple_of(2).then_some(u64::MAX),
            type_name: "Vec<u8>".into(),
            labels: vec![("k".into(), "\"v\"".into())],
            phases,
        })
    })
}
