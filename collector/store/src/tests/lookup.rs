//! Queries for tasks read all matching rows and few others; the newest tasks are those of a full scan.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use profiler_core::{
    Epoch, Outcome, TaskDetail, TaskId, TaskRecord, TimeRange, Timestamp, WorkerId,
};
use proptest::prelude::*;

use super::super::manifest::FileEntry;
use super::super::objects::Objects;
use super::super::segment::ListWriter;
use super::super::tables::{Tables, TaskScan};
use crate::lists::SealedTask;
use crate::lists::newest_tasks::NewestTaskScan;
use crate::rows::{NewestTasks, Selection, TaskFilter, TaskRow, overlaps};
use crate::sums::table::TableName;

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
    let row = TaskRow {
        worker: WorkerId("w".into()),
        epoch: Epoch(1),
        record,
    };
    SealedTask {
        row: Arc::new(row),
        version: 1,
    }
}

fn is_asked(task: &SealedTask, scan: &TaskScan<'_>) -> bool {
    let record = &task.row.record;
    scan.name.is_none_or(|name| *record.name == *name)
        && scan.key.is_none_or(|key| *record.key == *key)
        && scan.span_ns.as_ref().is_none_or(|span: &Range<i64>| {
            record.start.unix_ns() < span.end
                && record.stop.is_none_or(|stop| stop.unix_ns() >= span.start)
        })
}

/// `read_max` is the most tasks that may be read.
fn check(tables: &Tables, file: &FileEntry, scan: &TaskScan<'_>, read_max: usize) {
    let mut read = 0;
    let mut found = Vec::new();
    let visit = &mut |tasks: Vec<SealedTask>| {
        read += tasks.len();
        let asked = tasks.into_iter().filter(|task| is_asked(task, scan));
        found.extend(asked.map(|task| task.row.record.clone()));
        ControlFlow::Continue(())
    };
    tables.tasks(file, scan, visit).unwrap();
    let expected: Vec<TaskRecord> = (0..TASKS)
        .map(task)
        .filter(|task| is_asked(task, scan))
        .map(|task| task.row.record.clone())
        .collect();
    assert_eq!(found, expected, "{scan:?}");
    assert!(read <= read_max, "{read} tasks were read for {scan:?}");
}

#[test]
fn a_query_reads_all_matching_tasks_and_few_others() {
    let (tables, _) = Tables::open(Objects::memory()).unwrap();
    let mut writer = ListWriter::new(TableName::Tasks);
    (0..TASKS).for_each(|id| writer.push(task(id)));
    let file = tables
        .put(TableName::Tasks, 0, writer.finish().unwrap())
        .unwrap();
    let cases = [
        (TaskScan::default(), 40_000),
        // Each key has four or five tasks.
        (
            TaskScan {
                key: Some("key 77"),
                ..TaskScan::default()
            },
            5,
        ),
        (
            TaskScan {
                key: Some("key 9999"),
                ..TaskScan::default()
            },
            0,
        ),
        (
            TaskScan {
                name: Some("name 3"),
                ..TaskScan::default()
            },
            2_000,
        ),
        (
            TaskScan {
                name: Some("name 99"),
                ..TaskScan::default()
            },
            0,
        ),
        (
            TaskScan {
                key: Some("key 77"),
                name: Some("name 3"),
                span_ns: None,
            },
            1,
        ),
        (
            TaskScan {
                span_ns: seconds(100..110),
                ..TaskScan::default()
            },
            100,
        ),
        (
            TaskScan {
                span_ns: seconds(70_000..80_000),
                ..TaskScan::default()
            },
            0,
        ),
        (
            TaskScan {
                name: Some("name 3"),
                span_ns: seconds(0..25_000),
                key: None,
            },
            1_100,
        ),
    ];
    // The second time the file is open and its filters are read.
    for (scan, read_max) in cases.iter().chain(&cases) {
        check(&tables, &file, scan, *read_max);
    }
}

fn seconds(span: Range<i64>) -> Option<Range<i64>> {
    Some(span.start * SECOND_NS..span.end * SECOND_NS)
}

/// Tasks of several workers, many with the same start, with values for every filter.
fn varied(id: u64) -> SealedTask {
    let SealedTask { row, version } = task(id);
    let TaskRow {
        mut record, epoch, ..
    } = TaskRow::clone(&row);
    let length_ns = record.stop.unwrap().since_ns(record.start).cast_signed();
    record.start = Timestamp::from_unix_ns((id * 37 % 3_000).cast_signed() * SECOND_NS);
    record.stop = Some(record.start.shifted(length_ns));
    record.outcome = Outcome::ALL[1 + id as usize % 3];
    let type_name = ["", "list", "table"][id as usize % 7 % 3].into();
    let detail = TaskDetail {
        type_name,
        ..TaskDetail::default()
    };
    record.detail = (detail != TaskDetail::default()).then(|| Box::new(detail));
    let row = TaskRow {
        worker: WorkerId(format!("w{}", id / 1_000 * 3 % 5).into()),
        epoch,
        record,
    };
    SealedTask {
        row: Arc::new(row),
        version,
    }
}

/// Two files of varied tasks, and all of their rows.
struct Varied {
    tables: Tables,
    files: Vec<FileEntry>,
    rows: Vec<Arc<TaskRow>>,
}

impl Varied {
    fn new() -> Varied {
        let (tables, _) = Tables::open(Objects::memory()).unwrap();
        let rows: Vec<SealedTask> = (0..TASKS).map(varied).collect();
        let files = rows
            .chunks(36_000)
            .map(|rows: &[SealedTask]| {
                let mut writer = ListWriter::new(TableName::Tasks);
                rows.iter().for_each(|row| writer.push(row.clone()));
                tables
                    .put(TableName::Tasks, 0, writer.finish().unwrap())
                    .unwrap()
            })
            .collect();
        Varied {
            tables,
            files,
            rows: rows.into_iter().map(|task| task.row).collect(),
        }
    }

    fn newest(&self, range: TimeRange, filter: &TaskFilter, limit: usize) -> Selection {
        let mut selecting = NewestTasks::new(limit);
        let scan = NewestTaskScan::new(range, filter);
        for file in &self.files {
            self.tables
                .newest_tasks(file, &scan, &mut selecting, &mut || {
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        selecting.done()
    }

    fn model(&self, range: TimeRange, filter: &TaskFilter, limit: usize) -> Selection {
        let kept = self
            .rows
            .iter()
            .filter(|row| overlaps(row, range) && filter.keeps(row));
        let mut rows: Vec<&Arc<TaskRow>> = kept.collect();
        rows.sort_by_key(|row| {
            (
                std::cmp::Reverse(row.record.start),
                row.record.id,
                row.epoch,
                &row.worker,
            )
        });
        let total = rows.len() as u64;
        Selection {
            rows: rows.into_iter().take(limit).cloned().collect(),
            total,
        }
    }
}

fn filters() -> impl Strategy<Value = TaskFilter> {
    fn some(texts: &[&str]) -> impl Strategy<Value = Vec<String>> + use<> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let none = Just(Vec::new());
        prop_oneof![3 => none, 1 => prop::sample::subsequence(texts, 1..=2)]
    }
    let outcomes = prop::sample::subsequence(vec![Outcome::Ok, Outcome::Failed], 0..=2);
    let names = some(&["name 1", "name 19", "name 99"]);
    let keys = some(&["key 77", "key 9972", "key 9999"]);
    (
        names,
        keys,
        some(&["w1", "w4"]),
        outcomes,
        some(&["list", ""]),
    )
        .prop_map(|(names, keys, workers, outcomes, types)| TaskFilter {
            names: names.into(),
            keys: keys.into(),
            workers: workers.into(),
            outcomes,
            types: types.into(),
        })
}

#[test]
fn the_newest_tasks_are_those_of_a_full_scan() {
    let varied = Varied::new();
    let limits = prop::sample::select(vec![1, 2, 100, 13_333, 100_000]);
    let ends = (-10..3_100i64, 1..3_100i64, 0..2i64);
    let mut runner = proptest::test_runner::TestRunner::default();
    let cases = (ends, filters(), limits);
    let check =
        |((start, length, more_ns), filter, limit): ((i64, i64, i64), TaskFilter, usize)| {
            let [start, stop] = [start, start + length].map(|second| second * SECOND_NS + more_ns);
            let [start, stop] = [start, stop].map(Timestamp::from_unix_ns);
            let range = TimeRange::new(start, stop).unwrap();
            let newest = varied.newest(range, &filter, limit);
            prop_assert!(
                newest == varied.model(range, &filter, limit),
                "{} found",
                newest.total
            );
            Ok(())
        };
    runner.run(&cases, check).unwrap();
}

/// A flush of a pool may have thousands of tasks with one start.
#[test]
fn of_tasks_with_one_start_only_the_first_row_group_is_read() {
    let (tables, _) = Tables::open(Objects::memory()).unwrap();
    let mut writer = ListWriter::new(TableName::Tasks);
    for id in 0..TASKS {
        let SealedTask { row, version } = task(id);
        let mut row = TaskRow::clone(&row);
        row.record.start = Timestamp::from_unix_ns(SECOND_NS);
        row.record.stop = Some(row.record.start);
        writer.push(SealedTask {
            row: Arc::new(row),
            version,
        });
    }
    let mut encoded = writer.finish().unwrap();
    let mut content = Vec::from(encoded.content);
    // The row groups after the first, and not the footer.
    let damaged = content.len() / 2..content.len() * 9 / 10;
    content[damaged].fill(0);
    encoded.content = content.into();
    let file = tables.put(TableName::Tasks, 0, encoded).unwrap();
    let filter = TaskFilter::default();
    let scan = NewestTaskScan::new(TimeRange::ALL, &filter);
    let read = |selecting: &mut NewestTasks| {
        tables.newest_tasks(&file, &scan, selecting, &mut || ControlFlow::Continue(()))
    };
    let mut selecting = NewestTasks::new(50);
    read(&mut selecting).unwrap();
    let selection = selecting.done();
    assert_eq!(selection.total, TASKS);
    let ids: Vec<u64> = selection.rows.iter().map(|row| row.record.id.0).collect();
    assert_eq!(ids, (0..50).collect::<Vec<u64>>());
    assert!(
        read(&mut NewestTasks::new(30_000)).is_err(),
        "the damage is in the next row groups"
    );
}
