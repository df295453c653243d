//! A query for some workers opens the files with their rows, and no others.

use std::fs;
use std::ops::ControlFlow;

use profiler_core::NodeId;

use super::super::manifest::FileEntry;
use super::super::objects::Objects;
use super::super::segment::{Compression, Scan, SegmentWriter};
use super::super::tables::Tables;
use crate::error::StoreError;
use crate::sums::row::{Fields, WorkerNumber};
use crate::sums::table::{Column, SumTable, TableName};
use crate::sums::tier::{Period, Tier};

/// Each day has workers of its own, as a fleet whose processes come and go.
const DAYS: u32 = 30;
const WORKERS_A_DAY: u32 = 3_000;

/// A day of samples of some workers.
fn put(tables: &Tables, day: u32, level: u8, compression: Compression) -> FileEntry {
    let tier = Tier::Day;
    let mut writer = SegmentWriter::new(SumTable::Samples, tier, compression);
    for number in 0..WORKERS_A_DAY {
        let fields = Fields {
            ts: Period(day),
            task: NodeId(1),
            worker: WorkerNumber(1 + day * WORKERS_A_DAY + number),
            kind: 0,
            node: 1,
        };
        writer.push(fields, 1);
    }
    let file = writer.finish().unwrap();
    tables
        .put(TableName::Sums(SumTable::Samples, tier), level, file)
        .unwrap()
}

/// The sum of the rows of some workers, and the number of files that were opened. All files are damaged where a
/// footer is not, so that opening one fails.
fn opened(tables: &Tables, files: &[FileEntry], workers: &[WorkerNumber]) -> usize {
    let scan = Scan {
        periods: Period(0)..Period(DAYS),
        spans: None,
        tasks: None,
        workers: Some(workers),
        columns: &[Column::Worker],
        sums_only: false,
    };
    let opened = files.iter().filter(|file| {
        match tables.scan(file, &scan, &mut |_| ControlFlow::Continue(())) {
            Ok(()) => false,
            Err(StoreError::Damaged { .. }) => true,
            Err(error) => panic!("{error}"),
        }
    });
    opened.count()
}

#[test]
fn ten_workers_of_90_000_cost_the_files_that_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let (tables, _) = Tables::open(Objects::local(folder.path()).unwrap()).unwrap();
    let mut files: Vec<FileEntry> = (0..DAYS)
        .map(|day| put(&tables, day, 1, Compression::Merged))
        .collect();
    // Two files as older programs merged them, and one of a sealing: they do not tell their workers.
    files.push(put(&tables, 7, 1, Compression::Sealed));
    files.push(put(&tables, 7, 2, Compression::Sealed));
    files.push(put(&tables, 7, 0, Compression::Sealed));
    for file in &files {
        let path = folder.path().join(file.path());
        let mut content = fs::read(&path).unwrap();
        // The first byte after the magic number, in the pages.
        content[4] ^= 1;
        fs::write(path, content).unwrap();
    }
    let of_day = |day: u32| (0..5).map(move |n| WorkerNumber(1 + day * WORKERS_A_DAY + 500 * n));
    let asked: Vec<WorkerNumber> = of_day(3).chain(of_day(20)).collect();
    assert_eq!(asked.len(), 10);
    assert_eq!(opened(&tables, &files, &asked), 2 + 3);
    // The second time, no footer is read.
    for file in &files[..DAYS as usize] {
        fs::remove_file(folder.path().join(file.path())).unwrap();
    }
    let absent = [WorkerNumber(DAYS * WORKERS_A_DAY + 1)];
    assert_eq!(opened(&tables, &files, &absent), 3);
}
