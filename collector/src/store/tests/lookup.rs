//! What a question for tasks reads of a file: all that it asks for, and little else.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use profiler_core::{Epoch, Outcome, TaskId, TaskRecord, Timestamp, WorkerId};

use super::super::lists::SealedTask;
use super::super::manifest::FileEntry;
use super::super::objects::Objects;
use super::super::segment::ListWriter;
use super::super::table::TableName;
use super::super::tables::{Tables, TaskScan};
use crate::ledger::TaskRow;

/// Three row groups.
const TASKS: u64 = 40_000;
const SECOND_NS: i64 = 1_000_000_000;

fn task(id: u64) -> SealedTask {
    let start = Timestamp::from_unix_ns((id * 37 % 50_000).cast_signed() * SECOND_NS);
    let record = TaskRecord {
        id: TaskId(id),
        name: format!("name {}", id / 2_000).into(),
        key: format!("key {}", id * 7_919 % 9_973).into(),
        thread_id: 1,
        thread_name: "pool".into(),
        parent: None,
        start,
        stop: Some(start.shifted((id % 50).cast_signed() * SECOND_NS)),
        outcome: Outcome::Ok,
        cause: "".into(),
        detail: None,
    };
    let row = TaskRow { worker: WorkerId("w".into()), epoch: Epoch(1), record };
    SealedTask { row: Arc::new(row), version: 1 }
}

fn is_asked(task: &SealedTask, scan: &TaskScan<'_>) -> bool {
    let record = &task.row.record;
    let in_span = |span: &Range<i64>| {
        record.start.unix_ns() < span.end
            && record.stop.is_none_or(|stop| stop.unix_ns() >= span.start)
    };
    scan.name.is_none_or(|name| *record.name == *name)
        && scan.key.is_none_or(|key| *record.key == *key)
        && scan.span_ns.as_ref().is_none_or(in_span)
}

/// `read_max`: how many tasks may be read.
fn check((tables, file): (&Tables, &FileEntry), scan: &TaskScan<'_>, read_max: usize) {
    let (mut read, mut found) = (0, Vec::new());
    let visit = &mut |tasks: Vec<SealedTask>| {
        read += tasks.len();
        let asked = tasks.into_iter().filter(|task| is_asked(task, scan));
        found.extend(asked.map(|task| task.row.record.clone()));
        ControlFlow::Continue(())
    };
    tables.tasks(file, scan, visit).unwrap();
    let expected = (0..TASKS).map(task).filter(|task| is_asked(task, scan));
    let expected: Vec<TaskRecord> = expected.map(|task| task.row.record.clone()).collect();
    assert_eq!(found, expected, "{scan:?}");
    assert!(read <= read_max, "{read} tasks were read for {scan:?}");
}

#[test]
fn a_question_reads_all_that_it_asks_for_and_little_else() {
    let (tables, _) = Tables::open(Objects::memory()).unwrap();
    let mut writer = ListWriter::new(TableName::Tasks);
    (0..TASKS).for_each(|id| writer.push(task(id)));
    let file = tables.put(TableName::Tasks, 0, writer.finish().unwrap()).unwrap();
    let seconds = |span: Range<i64>| Some(span.start * SECOND_NS..span.end * SECOND_NS);
    let cases = [
        (TaskScan::default(), 40_000),
        // Every key is there four or five times.
        (TaskScan { key: Some("key 77"), ..TaskScan::default() }, 5),
        (TaskScan { key: Some("key 9999"), ..TaskScan::default() }, 0),
        (TaskScan { name: Some("name 3"), ..TaskScan::default() }, 2_000),
        (TaskScan { name: Some("name 99"), ..TaskScan::default() }, 0),
        (TaskScan { key: Some("key 77"), name: Some("name 3"), span_ns: None }, 1),
        (TaskScan { span_ns: seconds(100..110), ..TaskScan::default() }, 100),
        (TaskScan { span_ns: seconds(70_000..80_000), ..TaskScan::default() }, 0),
        (TaskScan { name: Some("name 3"), span_ns: seconds(0..25_000), key: None }, 1_100),
    ];
    // Once more, with the file open and its filters read.
    for (scan, read_max) in cases.iter().chain(&cases) {
        check((&tables, &file), scan, *read_max);
    }
}
