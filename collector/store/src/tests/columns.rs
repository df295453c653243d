//! Each column of each list has the value of its name, checked with rows of distinct values.

use std::fmt::Debug;
use std::sync::Arc;

use expect_test::{Expect, expect};
use profiler_core::wire::v1;
use profiler_core::{
    Direction, Epoch, ExpectedTasks, Frame, FrameId, FrameKind, NodeId, Outcome, PhaseInterval,
    Resource, ResourceSample, RunId, RunMarker, TaskDetail, TaskId, TaskRecord, Ticks, Timestamp,
    TransferEvent, TransferId, WorkerId,
};

use super::super::segment::{Columns, ListRow, Values};
use crate::lists::telemetry_lists::LinkRow;
use crate::lists::{FrameRow, NodeRow, SealedTask, WorkerRow};
use crate::rows::{
    AgentInfo, Disconnect, DisconnectReason, ExpectedRow, LostTask, ResourceRow, RunRow,
    SessionRecord, TaskRow, TransferRow,
};

fn check<R: ListRow + Clone + PartialEq + Debug>(row: R, expected: &Expect) {
    let rows = [row.clone(), row];
    let encoded = R::encode(&rows);
    let mut described = String::new();
    for (column, values) in R::COLUMNS.iter().zip(&encoded) {
        let value = match values {
            Values::Texts(texts) => texts[1].to_string(),
            Values::Flags(flags) => flags[1].to_string(),
            Values::Numbers32(numbers) => numbers[1].to_string(),
            Values::Numbers64(numbers) => numbers[1].to_string(),
            Values::Optionals64(numbers) => format!("{:?}", numbers[1]),
            Values::Fractions(numbers) => numbers[1].to_string(),
        };
        described.push_str(&format!("{} {:?} {value}\n", column.name, column.kind));
    }
    expected.assert_eq(&described);
    assert_eq!(R::COLUMNS.len(), encoded.len());
    let decoded = R::decode(&mut Columns::new(encoded, rows.len())).unwrap();
    assert_eq!(decoded, rows);
    let mut short = R::encode(&rows[..1]);
    let last = short.pop().unwrap();
    let mut encoded = R::encode(&rows);
    *encoded.last_mut().unwrap() = last;
    R::decode(&mut Columns::new(encoded, rows.len())).unwrap_err();
}

fn at(unix_ns: i64) -> Timestamp {
    Timestamp::from_unix_ns(unix_ns)
}

fn worker() -> WorkerId {
    WorkerId("worker".into())
}

#[test]
fn frames_nodes_workers_and_links() {
    let frame = Frame {
        kind: FrameKind::Unresolved,
        function: "function".into(),
        file: "file".into(),
        line: 1,
        module: "module".into(),
        build_id: "build".into(),
        offset: 2,
        inlined: true,
    };
    check(
        FrameRow {
            id: FrameId(3),
            frame,
        },
        &expect![[r#"
        id Number32 3
        kind Text unresolved
        function Text function
        file Text file
        line Number32 1
        module Text module
        build_id Text build
        offset Number64 2
        inlined Flag true
    "#]],
    );
    check(
        NodeRow {
            id: NodeId(3),
            parent: NodeId(1),
            frame: FrameId(2),
        },
        &expect![[r#"
        id Number32 3
        parent Number32 1
        frame Number32 2
    "#]],
    );
    check(
        WorkerRow {
            number: 1,
            worker: worker(),
        },
        &expect![[r#"
        number Number32 1
        id Text worker
    "#]],
    );
    check(
        LinkRow {
            number: 1,
            peer: "peer".into(),
            type_name: "type".into(),
        },
        &expect![[r#"
        number Number32 1
        peer Text peer
        type_name Text type
    "#]],
    );
}

#[test]
fn tasks() {
    let phase = PhaseInterval {
        name: "queue".into(),
        start_ns: -5,
        duration_ns: 5,
        count: 1,
    };
    let detail = TaskDetail {
        attempt: 1,
        result_bytes: Some(2),
        type_name: "type".into(),
        labels: vec![("label".into(), "value".into())],
        phases: vec![phase],
    };
    let record = TaskRecord {
        id: TaskId(3),
        name: "name".into(),
        key: "key".into(),
        thread_id: 4,
        thread_name: "thread".into(),
        parent: Some(TaskId(5)),
        start: at(6),
        stop: Some(at(7)),
        outcome: Outcome::Failed,
        cause: "cause".into(),
        detail: Some(Box::new(detail)),
    };
    let row = Arc::new(TaskRow {
        worker: worker(),
        epoch: Epoch(8),
        record,
    });
    check(
        SealedTask { row, version: 9 },
        &expect![[r#"
        worker Text worker
        epoch Number64 8
        id Number64 3
        name Text name
        key KeyText key
        thread_id Number32 4
        thread_name Text thread
        parent OptionalNumber64 Some(5)
        start Time 6
        stop OptionalTime Some(7)
        outcome Text failed
        cause Text cause
        attempt Number32 1
        result_bytes OptionalNumber64 Some(2)
        type_name Text type
        labels Text {"label":"value"}
        phases Text [["queue",-5,5]]
        version Number64 9
    "#]],
    );
    let lost = LostTask {
        worker: worker(),
        epoch: Epoch(1),
        id: TaskId(2),
        stop: at(3),
    };
    check(
        lost,
        &expect![[r#"
        worker Text worker
        epoch Number64 1
        id Number64 2
        stop Time 3
    "#]],
    );
}

#[test]
fn sessions() {
    let session = SessionRecord {
        worker: worker(),
        epoch: Epoch(1),
        agent: Arc::new(AgentInfo {
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            host: "host".into(),
            pid: 2,
            agent_version: "version".into(),
            sampler_mode: "mode".into(),
            interval_ns: 3,
            started_at: at(4),
        }),
        acked_seq: 5,
        stored_ns: 6,
        ticks: Ticks {
            made: 7,
            expected: 8,
            throttled: 9,
        },
        account: Some(v1::LossAccount {
            accepted_ns: 10,
            lost_rejected_ns: 11,
            lost_by_collector_ns: 12,
            lost_queue_ns: 13,
            lost_tasks: 14,
            lost_telemetry: 15,
            aggregated_tasks: 16,
            lost_unseen_ns: 0,
        }),
        clock: Some(v1::Clock {
            offset_ns: -17,
            error_ns: 18,
        }),
        first_seen: at(19),
        last_seen: at(20),
        disconnect: Some(Disconnect {
            at: at(21),
            reason: DisconnectReason::Crashed,
        }),
    };
    check(
        session,
        &expect![[r#"
        worker Text worker
        epoch Number64 1
        host Text host
        pid Number32 2
        agent_version Text version
        sampler_mode Text mode
        interval_ns Number64 3
        started_at Time 4
        labels Text {"zone":"a"}
        acked_seq Number64 5
        stored_ns Number64 6
        ticks_made Number64 7
        ticks_expected Number64 8
        ticks_throttled Number64 9
        accepted_ns OptionalNumber64 Some(10)
        lost_refused_ns Number64 11
        lost_by_collector_ns Number64 12
        lost_queue_ns Number64 13
        lost_tasks Number64 14
        lost_telemetry Number64 15
        aggregated_tasks Number64 16
        clock_offset_ns OptionalSigned64 Some(-17)
        clock_error_ns Number64 18
        first_seen Time 19
        last_seen Time 20
        disconnect Text crashed
        disconnected_at OptionalTime Some(21)
    "#]],
    );
}

#[test]
fn telemetry() {
    let record = TransferEvent {
        id: TransferId(1),
        direction: Direction::Outgoing,
        peer: "peer".into(),
        keys: vec!["key".into()],
        more_keys: 2,
        type_name: "type".into(),
        bytes: 3,
        compressed_bytes: Some(4),
        start: at(5),
        stop: at(6),
        task: Some(TaskId(7)),
        thread_id: 8,
        outcome: Outcome::Failed,
        cause: "cause".into(),
    };
    let transfer = TransferRow {
        worker: worker(),
        epoch: Epoch(9),
        record,
    };
    check(
        Arc::new(transfer),
        &expect![[r#"
        worker Text worker
        epoch Number64 9
        id Number64 1
        direction Text outgoing
        peer Text peer
        keys Text ["key"]
        more_keys Number64 2
        type_name Text type
        bytes Number64 3
        compressed_bytes OptionalNumber64 Some(4)
        start Time 5
        stop Time 6
        task_id OptionalNumber64 Some(7)
        thread_id Number32 8
        outcome Text failed
        cause Text cause
    "#]],
    );
    let values = Resource::ALL
        .into_iter()
        .zip(3..)
        .filter(|(_, value)| value % 4 > 0)
        .collect();
    let sample = ResourceSample {
        at: at(1),
        period_ns: 2,
        values,
    };
    let sample = ResourceRow {
        worker: worker(),
        epoch: Epoch(0),
        sample,
    };
    check(
        Arc::new(sample),
        &expect![[r#"
        worker Text worker
        epoch Number64 0
        sampled_at Time 1
        period_ns Number64 2
        process_cpu OptionalNumber64 Some(3)
        process_memory OptionalNumber64 None
        managed_memory OptionalNumber64 Some(5)
        spilled_memory OptionalNumber64 Some(6)
        threads OptionalNumber64 Some(7)
        descriptors OptionalNumber64 None
        descriptors_max OptionalNumber64 Some(9)
        process_disk_read OptionalNumber64 Some(10)
        process_disk_written OptionalNumber64 Some(11)
        host_cpu OptionalNumber64 None
        host_cpus OptionalNumber64 Some(13)
        host_memory OptionalNumber64 Some(14)
        host_memory_max OptionalNumber64 Some(15)
        host_disk_read OptionalNumber64 None
        host_disk_written OptionalNumber64 Some(17)
        network_received OptionalNumber64 Some(18)
        network_sent OptionalNumber64 Some(19)
        cgroup_memory OptionalNumber64 None
        cgroup_memory_max OptionalNumber64 Some(21)
        cgroup_cpu_max OptionalNumber64 Some(22)
        cgroup_throttled OptionalNumber64 Some(23)
        cpu_pressure OptionalNumber64 None
        memory_pressure OptionalNumber64 Some(25)
        io_pressure OptionalNumber64 Some(26)
    "#]],
    );
    let run = RunMarker {
        id: RunId(1),
        name: "name".into(),
        start: at(2),
        stop: Some(at(3)),
    };
    let run = RunRow {
        worker: Some(worker()),
        epoch: Epoch(4),
        run,
        lost_at: Some(at(5)),
    };
    check(
        run.clone(),
        &expect![[r#"
        worker Text worker
        epoch Number64 4
        id Number64 1
        name Text name
        start Time 2
        stop OptionalTime Some(3)
        lost_at OptionalTime Some(5)
    "#]],
    );
    check(
        RunRow {
            worker: None,
            ..run
        },
        &expect![[r#"
        worker Text 
        epoch Number64 4
        id Number64 1
        name Text name
        start Time 2
        stop OptionalTime Some(3)
        lost_at OptionalTime Some(5)
    "#]],
    );
    let expected = ExpectedTasks {
        name: "name".into(),
        total: 1,
        since: at(2),
    };
    let expected = ExpectedRow {
        worker: worker(),
        epoch: Epoch(3),
        expected,
    };
    check(
        expected,
        &expect![[r#"
        worker Text worker
        epoch Number64 3
        name Text name
        total Number64 1
        since Time 2
    "#]],
    );
}
