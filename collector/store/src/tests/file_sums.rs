//! Sums of whole files are kept, and are those of the rows.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{ControlFlow, Range};

use profiler_core::NodeId;
use proptest::prelude::*;
use proptest::sample::subsequence;

use super::super::manifest::FileEntry;
use super::super::objects::Objects;
use super::super::segment::{Batch, Compression, Scan, SegmentWriter};
use super::super::tables::Tables;
use crate::sums::row::{Fields, WorkerNumber};
use crate::sums::table::{Column, SumTable, TableName};
use crate::sums::tier::{Period, Tier};

const DAYS: Range<Period> = Period(10)..Period(14);
const WORKERS: u32 = 700;
const NODES: u32 = 8;

/// Each worker was in each node on each day.
fn put(tables: &Tables) -> FileEntry {
    let tier = Tier::Day;
    let mut writer = SegmentWriter::new(SumTable::Samples, tier, Compression::Merged);
    for day in DAYS.start.0..DAYS.end.0 {
        for worker in 1..=WORKERS {
            for node in 0..NODES {
                let fields = Fields {
                    ts: Period(day),
                    task: NodeId(1),
                    worker: WorkerNumber(worker),
                    kind: (node / 3) as u8,
                    node,
                };
                writer.push(fields, u64::from(day * worker + node));
            }
        }
    }
    let file = writer.finish().unwrap();
    tables
        .put(TableName::Sums(SumTable::Samples, tier), 1, file)
        .unwrap()
}

/// Sums by worker, kind and node; 0 for columns that were not requested.
type Sums = BTreeMap<[u32; 3], u64>;

/// The sums of the requested rows, and whether they came added up.
fn read(tables: &Tables, file: &FileEntry, scan: &Scan<'_>) -> (Sums, bool) {
    let mut sums = Sums::new();
    let mut is_summed = false;
    let has = |column: Column| scan.columns.contains(&column);
    let mut visit = |batch: &Batch| {
        is_summed |= batch.is_summed;
        for index in 0..batch.row_count() {
            let is_asked = batch.is_summed
                || scan.periods.contains(&Period(batch.ts[index]))
                    && scan
                        .workers
                        .is_none_or(|asked| asked.contains(&WorkerNumber(batch.worker[index])));
            if is_asked {
                let key = [
                    if has(Column::Worker) {
                        batch.worker[index]
                    } else {
                        0
                    },
                    if has(Column::Kind) {
                        batch.kind[index].into()
                    } else {
                        0
                    },
                    if has(Column::Node) {
                        batch.node[index]
                    } else {
                        0
                    },
                ];
                *sums.entry(key).or_default() += batch.values[index];
            }
        }
        ControlFlow::Continue(())
    };
    tables.scan(file, scan, &mut visit).unwrap();
    (sums, is_summed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn kept_sums_are_those_of_the_rows(
        workers in prop::option::of(subsequence((1..=WORKERS + 100).collect::<Vec<_>>(), 1..100)),
        columns in subsequence(vec![Column::Worker, Column::Kind, Column::Node], 0..=3),
        to in DAYS.end.0 - 1..DAYS.end.0 + 2,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (tables, _) = Tables::open(Objects::local(folder.path()).unwrap()).unwrap();
        let file = put(&tables);
        let workers: Option<Vec<WorkerNumber>> =
            workers.map(|workers| workers.into_iter().map(WorkerNumber).collect());
        let plain = Scan {
            periods: Period(0)..Period(to),
            spans: None,
            tasks: None,
            workers: workers.as_deref(),
            columns: &columns,
            sums_only: false,
        };
        let sums_only = Scan { sums_only: true, ..plain.clone() };
        let (expected, _) = read(&tables, &file, &plain);
        let (first, _) = read(&tables, &file, &sums_only);
        prop_assert_eq!(&first, &expected);
        let (second, is_summed) = read(&tables, &file, &sums_only);
        prop_assert_eq!(&second, &expected);
        let is_whole = DAYS.end.0 <= to;
        let has_rows = !expected.is_empty();
        prop_assert_eq!(is_summed, is_whole && has_rows);
        // The periods are still known to those who ask for them.
        prop_assert_eq!(read(&tables, &file, &plain), (expected, false));
    }
}

#[test]
fn a_file_is_not_read_again_for_its_sums_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (tables, _) = Tables::open(Objects::local(folder.path()).unwrap()).unwrap();
    let file = put(&tables);
    let asked = [WorkerNumber(3), WorkerNumber(7)];
    let scan = Scan {
        periods: DAYS,
        spans: None,
        tasks: None,
        workers: Some(&asked),
        columns: &[Column::Kind],
        sums_only: true,
    };
    let (expected, _) = read(&tables, &file, &scan);
    let newer = [WorkerNumber(3), WorkerNumber(7), WorkerNumber(WORKERS + 1)];
    let with_newer = Scan {
        workers: Some(&newer),
        ..scan.clone()
    };
    // Not even if a worker is asked for that began after the file.
    fs::remove_file(folder.path().join(file.path())).unwrap();
    assert_eq!(read(&tables, &file, &with_newer), (expected, true));
    tables.close_files([file.id]);
    let read_again = tables.scan(&file, &scan, &mut |_| ControlFlow::Continue(()));
    assert!(read_again.is_err(), "{read_again:?}");
}
