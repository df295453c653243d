//! Files are read back: whole, in parts, and damaged ones never wrong.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use profiler_core::{NodeId, WorkerId};
use proptest::prelude::*;

use super::super::error::StoreError;
use super::super::manifest::FileEntry;
use super::super::objects::Objects;
use super::{
    ALL_COLUMNS, Batch, Compression, EncodedFile, ListSegment, ListWriter, SameRowTier, Scan,
    Segment, SegmentWriter,
};
use crate::lists::WorkerRow;
use crate::sums::row::{Fields, Key, Row, WorkerNumber, sort_and_sum};
use crate::sums::table::{Column, SumTable, TableName};
use crate::sums::tier::{Period, Tier};

const ALL_PERIODS: Range<Period> = Period(0)..Period(u32::MAX);

/// Rows of a table, with 0 where it has no column.
fn row(sum_table: SumTable, tier: Tier, fields: Fields, value: u64) -> Row {
    let has = |column| sum_table.columns().contains(&column);
    let fields = Fields {
        ts: fields.ts,
        task: NodeId(if has(Column::Task) { fields.task.0 } else { 0 }),
        worker: WorkerNumber(if has(Column::Worker) {
            fields.worker.0
        } else {
            0
        }),
        kind: if has(Column::Kind) { fields.kind } else { 0 },
        node: if has(Column::Node) { fields.node } else { 0 },
    };
    Row {
        key: Key::new(tier, fields),
        value,
    }
}

fn write(sum_table: SumTable, tier: Tier, rows: &[Row]) -> EncodedFile {
    write_for(Compression::Sealed, sum_table, tier, rows)
}

fn write_for(
    compression: Compression,
    sum_table: SumTable,
    tier: Tier,
    rows: &[Row],
) -> EncodedFile {
    let mut writer = SegmentWriter::new(sum_table, tier, compression);
    rows.iter()
        .for_each(|row| writer.push(row.key.fields(tier), row.value));
    writer.finish().unwrap()
}

fn place(objects: &Objects, sum_table: SumTable, tier: Tier, written: &EncodedFile) -> FileEntry {
    let EncodedFile {
        content,
        rows,
        from,
        to,
    } = written.clone();
    let entry = FileEntry {
        table: TableName::Sums(sum_table, tier),
        id: objects.list("tables").unwrap().len() as u64,
        bytes: content.len() as u64,
        rows,
        crc32: crc32fast::hash(&content),
        from,
        to,
        level: 0,
    };
    objects.put_new(&entry.path(), content).unwrap();
    entry
}

fn read(segment: &Arc<Segment>, scan: &Scan<'_>, tier: Tier) -> Result<Vec<Row>, StoreError> {
    let mut cursor = segment.cursor(scan);
    let mut batch = Batch::default();
    let mut rows = Vec::new();
    while cursor.next(&mut batch)? {
        rows.extend((0..batch.row_count()).map(|index| batch.row(tier, index)));
    }
    Ok(rows)
}

fn everything() -> Scan<'static> {
    Scan {
        spans: None,
        periods: ALL_PERIODS,
        tasks: None,
        workers: None,
        columns: &ALL_COLUMNS,
        sums_only: false,
    }
}

fn fields_and_value() -> impl Strategy<Value = (Fields, u64)> {
    let period = prop_oneof![5 => 1_000..1_200u32, 1 => 0..200_000u32];
    let value = prop_oneof![0..99u64, any::<u64>()];
    let worker = edges(WorkerNumber::MAX.0);
    (
        period,
        edges(u32::MAX),
        worker,
        0..=Fields::KIND_MAX,
        edges(u32::MAX),
        value,
    )
        .prop_map(|(ts, task, worker, kind, node, value)| {
            let fields = Fields {
                ts: Period(ts),
                task: NodeId(task),
                worker: WorkerNumber(worker),
                kind,
                node,
            };
            (fields, value)
        })
}

fn edges(last: u32) -> impl Strategy<Value = u32> {
    prop_oneof![0..9u32, Just(last)]
}

proptest! {
    #[test]
    fn any_rows_are_read_back(
        contents in prop::collection::vec(fields_and_value(), 1..300),
        sum_table in prop::sample::select(&SumTable::ALL[..]),
        tier in prop::sample::select(&Tier::ALL[..]),
        compression in prop::sample::select(&[Compression::Sealed, Compression::Merged][..]),
    ) {
        let mut rows: Vec<Row> =
            contents.into_iter().map(|(fields, value)| row(sum_table, tier, fields, value)).collect();
        sort_and_sum(&mut rows);
        let objects = Objects::memory();
        let written = write_for(compression, sum_table, tier, &rows);
        let periods = || rows.iter().map(|row| row.key.fields(tier).ts);
        let last = periods().max().unwrap();
        prop_assert_eq!((written.rows, written.from), (rows.len() as u64, periods().min().unwrap()));
        prop_assert_eq!(written.to, Period(last.0 + 1));
        let entry = place(&objects, sum_table, tier, &written);
        let segment = Arc::new(Segment::open(&objects, &entry, sum_table, tier).unwrap());
        prop_assert_eq!(read(&segment, &everything(), tier).unwrap(), rows);
    }

    /// A changed byte anywhere is detected when the file is opened. If a checksum missed it, decoding
    /// would still end with rows or an error.
    #[test]
    fn damage_is_detected_and_never_panics(
        at in any::<prop::sample::Index>(), bits in 1..=255u8, cut in any::<bool>(),
        written_as in prop::sample::select(&[
            (SumTable::Samples, Compression::Sealed),
            // Delta encoding, without a compression that would detect the damage.
            (SumTable::Durations, Compression::Merged),
        ][..]),
    ) {
        let (sum_table, compression) = written_as;
        let tier = Tier::Second;
        let rows = many_rows(sum_table, 2_000);
        let mut written = write_for(compression, sum_table, tier, &rows);
        let mut content = written.content.to_vec();
        let at = at.index(content.len());
        content[at] ^= bits;
        if cut {
            content.truncate(at);
        }
        let objects = Objects::memory();
        let mut entry = place(&objects, sum_table, tier, &written);
        objects.delete(&entry.path()).unwrap();
        objects.put_new(&entry.path(), content.clone().into()).unwrap();
        let opened = Segment::open(&objects, &entry, sum_table, tier);
        prop_assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{:?}", opened.err());

        written.content = Bytes::from(content);
        entry = place(&objects, sum_table, tier, &written);
        if let Ok(segment) = Segment::open(&objects, &entry, sum_table, tier) {
            match read(&Arc::new(segment), &everything(), tier) {
                Ok(_) | Err(StoreError::Damaged { .. }) => {}
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}

#[test]
fn files_of_coarser_tiers_with_the_same_rows_are_read_back() {
    let sum_table = SumTable::Samples;
    let rows = |tier, ts| {
        let mut rows: Vec<Row> = (0..20_000)
            .map(|n: u32| {
                let fields = Fields {
                    ts: Period(ts),
                    task: NodeId(n / 100),
                    worker: WorkerNumber(n % 7),
                    kind: 1,
                    node: n,
                };
                row(sum_table, tier, fields, u64::from(n))
            })
            .collect();
        sort_and_sum(&mut rows);
        rows
    };
    let same_row_tiers = [(Tier::Hour, Period(5)), (Tier::Day, Period(7))]
        .map(|(tier, period)| SameRowTier { tier, period });
    let minutes = Tier::Minute;
    let mut writer =
        SegmentWriter::with_tiers(sum_table, minutes, &same_row_tiers, Compression::Sealed);
    rows(Tier::Minute, 301)
        .iter()
        .for_each(|row| writer.push(row.key.fields(Tier::Minute), row.value));
    let all = writer.finish_all();
    let tiers: Vec<Tier> = all.iter().map(|(tier, _)| *tier).collect();
    assert_eq!(tiers, [Tier::Minute, Tier::Hour, Tier::Day]);
    for ((tier, written), ts) in all.iter().zip([301, 5, 7]) {
        assert_eq!(
            (written.from, written.to, written.rows),
            (Period(ts), Period(ts + 1), 20_000)
        );
        let objects = Objects::memory();
        let entry = place(&objects, sum_table, *tier, written);
        let segment = Arc::new(Segment::open(&objects, &entry, sum_table, *tier).unwrap());
        let expected = rows(*tier, ts);
        assert_eq!(read(&segment, &everything(), *tier).unwrap(), expected);
        // The bounds of pages came along.
        let of_one = Scan {
            tasks: Some(&[NodeId(150)]),
            ..everything()
        };
        let found = read(&segment, &of_one, *tier).unwrap();
        assert_eq!(
            found
                .iter()
                .filter(|row: &&Row| row.key.fields(*tier).task == NodeId(150))
                .count(),
            100
        );
        assert!(found.len() < expected.len() / 2, "{}", found.len());
    }
}

/// A file ended at its own size, so that sealing held three times as much.
#[test]
fn the_size_of_unfinished_files_counts_those_of_coarser_tiers() {
    let period = Period(0);
    let same_row_tiers = [Tier::Hour, Tier::Day].map(|tier| SameRowTier { tier, period });
    let sum_table = SumTable::Samples;
    let compression = Compression::Sealed;
    let mut writer =
        SegmentWriter::with_tiers(sum_table, Tier::Minute, &same_row_tiers, compression);
    let mut fields = Fields {
        ts: period,
        task: NodeId(1),
        worker: WorkerNumber(1),
        kind: 0,
        node: 0,
    };
    // One more than a row group has at most.
    for node in 0..=1 << 18 {
        fields.node = node;
        writer.push(fields, u64::from(node.wrapping_mul(2_654_435_761)));
    }
    let own = writer.bytes();
    assert!(own > 0);
    let all = writer.bytes_of_all();
    assert!(all.abs_diff(3 * own) < own / 10, "{all} of {own}");
}

#[test]
fn the_columns_of_a_row_group_grow_once() {
    let mut writer = SegmentWriter::new(SumTable::Samples, Tier::Minute, Compression::Sealed);
    let mut fields = Fields {
        ts: Period(0),
        task: NodeId(1),
        worker: WorkerNumber(1),
        kind: 0,
        node: 0,
    };
    let taken = allocation_counter::measure(|| {
        for node in 0..200_000 {
            fields.node = node;
            writer.push(fields, 1);
        }
    });
    const GROUP_BYTES: u64 = (1 << 18) * 28;
    let bytes = taken.bytes_total;
    assert!(bytes < GROUP_BYTES / 8 * 9, "{bytes} of {GROUP_BYTES}");
}

/// Rows of 200 tasks over 10 minutes, in order.
fn many_rows(sum_table: SumTable, count: u32) -> Vec<Row> {
    let mut rows: Vec<Row> = (0..count)
        .map(|n: u32| {
            let mixed = n.wrapping_mul(2_654_435_761);
            let fields = Fields {
                ts: Period(n * 600 / count),
                task: NodeId(mixed % 200),
                worker: WorkerNumber(mixed >> 8 & 15),
                kind: (mixed >> 13 & 3) as u8,
                node: n,
            };
            row(sum_table, Tier::Second, fields, n.into())
        })
        .collect();
    sort_and_sum(&mut rows);
    rows
}

/// In each task and second, rows are in the order of workers.
#[test]
fn a_scan_for_a_worker_skips_the_pages_of_others() {
    let sum_table = SumTable::Samples;
    let mut rows: Vec<Row> = (0..600_000)
        .map(|n: u32| {
            let fields = Fields {
                ts: Period(n % 4),
                task: NodeId(n / 4 % 4),
                worker: WorkerNumber(n / 16 % 2_000),
                kind: 0,
                node: n,
            };
            row(sum_table, Tier::Second, fields, 1)
        })
        .collect();
    sort_and_sum(&mut rows);
    let objects = Objects::memory();
    let file = write_for(Compression::Merged, sum_table, Tier::Second, &rows);
    let entry = place(&objects, sum_table, Tier::Second, &file);
    let segment = Arc::new(Segment::open(&objects, &entry, sum_table, Tier::Second).unwrap());
    // A page or two of each of 16 tasks and seconds.
    check_scan(&segment, &rows, &[7], 16 * 2 * 4_096);
    check_scan(&segment, &rows, &[7, 1_500], 2 * 16 * 2 * 4_096);
    check_scan(&segment, &rows, &[], 0);
    check_scan(&segment, &rows, &[2_000], 0);
    let all: Vec<u32> = (0..2_000).collect();
    check_scan(&segment, &rows, &all, 600_000);
}

fn check_scan(segment: &Arc<Segment>, rows: &[Row], workers: &[u32], read_max: usize) {
    let asked: Vec<WorkerNumber> = workers.iter().copied().map(WorkerNumber).collect();
    let is_wanted = |row: &Row| asked.contains(&row.key.fields(Tier::Second).worker);
    let scan = Scan {
        workers: Some(&asked),
        ..everything()
    };
    let found = read(segment, &scan, Tier::Second).unwrap();
    assert!(
        found.len() <= read_max,
        "{workers:?}: {} rows read",
        found.len()
    );
    assert_eq!(kept(&found, is_wanted), kept(rows, is_wanted));
}

fn kept(rows: &[Row], is_wanted: impl Fn(&Row) -> bool) -> Vec<Row> {
    rows.iter().copied().filter(is_wanted).collect()
}

#[test]
fn a_scan_returns_all_matches_and_few_other_rows() {
    let sum_table = SumTable::Samples;
    let tier = Tier::Second;
    let rows = many_rows(sum_table, 600_000);
    let objects = Objects::memory();
    let entry = place(&objects, sum_table, tier, &write(sum_table, tier, &rows));
    let segment = Arc::new(Segment::open(&objects, &entry, sum_table, tier).unwrap());
    let check = |periods: Range<u32>, tasks: Option<&[u32]>, read_max: usize| {
        let periods = Period(periods.start)..Period(periods.end);
        let tasks: Option<Vec<NodeId>> =
            tasks.map(|tasks| tasks.iter().copied().map(NodeId).collect());
        let is_wanted = |row: &Row| {
            let Fields { ts, task, .. } = row.key.fields(tier);
            periods.contains(&ts) && tasks.as_ref().is_none_or(|tasks| tasks.contains(&task))
        };
        let scan = Scan {
            spans: None,
            periods: periods.clone(),
            tasks: tasks.as_deref(),
            workers: None,
            columns: &ALL_COLUMNS,
            sums_only: false,
        };
        let found = read(&segment, &scan, tier).unwrap();
        assert!(
            found.len() <= read_max,
            "{periods:?} {tasks:?}: {} rows read",
            found.len()
        );
        assert_eq!(kept(&found, is_wanted), kept(&rows, is_wanted));
    };
    check(0..600, None, 600_000);
    check(0..0, None, 0);
    check(600..9_000, None, 0);
    // A row group has two minutes of these rows, a page two or three tasks of a group.
    check(60..120, None, 130_000);
    check(0..600, Some(&[7]), 90_000);
    check(60..120, Some(&[0, 199]), 20_000);
    check(119..121, Some(&[3, 100, 4_000_000_000]), 40_000);
    check(0..600, Some(&[]), 0);
    check(0..600, Some(&[200]), 0);
}

#[test]
fn unrequested_columns_are_empty() {
    let sum_table = SumTable::Samples;
    let tier = Tier::Second;
    let rows = many_rows(sum_table, 30_000);
    let objects = Objects::memory();
    let entry = place(&objects, sum_table, tier, &write(sum_table, tier, &rows));
    let segment = Arc::new(Segment::open(&objects, &entry, sum_table, tier).unwrap());
    let scan = Scan {
        spans: None,
        periods: ALL_PERIODS,
        tasks: None,
        workers: None,
        columns: &[Column::Node],
        sums_only: false,
    };
    let mut cursor = segment.cursor(&scan);
    let mut batch = Batch::default();
    let mut count = 0;
    while cursor.next(&mut batch).unwrap() {
        assert_eq!(
            (batch.ts.len(), batch.node.len()),
            (batch.row_count(), batch.row_count())
        );
        assert!(batch.task.is_empty() && batch.worker.is_empty() && batch.kind.is_empty());
        count += batch.row_count();
    }
    assert_eq!(count, rows.len());
}

#[test]
fn a_file_of_another_table_counts_as_damaged() {
    let objects = Objects::memory();
    let written = write(
        SumTable::Samples,
        Tier::Second,
        &many_rows(SumTable::Samples, 10),
    );
    let entry = place(&objects, SumTable::Samples, Tier::Second, &written);
    let opened = Segment::open(&objects, &entry, SumTable::Totals, Tier::Second);
    assert!(
        matches!(opened, Err(StoreError::Damaged { .. })),
        "{opened:?}"
    );
    let more = FileEntry {
        rows: entry.rows + 1,
        ..entry
    };
    let opened = Segment::open(&objects, &more, SumTable::Samples, Tier::Second);
    assert!(
        matches!(opened, Err(StoreError::Damaged { .. })),
        "{opened:?}"
    );
}

/// The file with one digit of its footer changed: the format that it names.
fn of_format_2(written: &EncodedFile) -> EncodedFile {
    let name = b"emberline.format";
    let mut content = written.content.to_vec();
    let at = content
        .windows(name.len())
        .rposition(|window| window == name)
        .unwrap()
        + name.len();
    let digit = content[at..].iter().position(|byte| *byte == b'1').unwrap();
    content[at + digit] = b'2';
    EncodedFile {
        content: content.into(),
        ..written.clone()
    }
}

#[test]
fn a_file_of_another_format_or_a_table_with_the_same_columns_counts_as_damaged() {
    let objects = Objects::memory();
    let tier = Tier::Second;
    let written = write(SumTable::Samples, tier, &many_rows(SumTable::Samples, 10));
    let open = |written: &EncodedFile, sum_table| {
        let entry = place(&objects, sum_table, tier, written);
        Segment::open(&objects, &entry, sum_table, tier).map(|_| String::new())
    };
    assert_eq!(open(&written, SumTable::Samples).unwrap(), "");
    let other = "it is a file of table samples_1s";
    assert_eq!(reason(open(&written, SumTable::Threads)), other);
    let format = "it has format 2; this version reads format 1";
    assert_eq!(
        reason(open(&of_format_2(&written), SumTable::Samples)),
        format
    );

    let mut writer = ListWriter::new(TableName::Workers);
    writer.push(WorkerRow {
        number: 1,
        worker: WorkerId("w".into()),
    });
    let written = writer.finish().unwrap();
    let open = |written: &EncodedFile| {
        let place = FileEntry {
            table: TableName::Workers,
            ..place(&objects, SumTable::Samples, tier, written)
        };
        objects
            .put_new(&place.path(), written.content.clone())
            .unwrap();
        ListSegment::open::<WorkerRow>(&objects, &place).map(|_| String::new())
    };
    assert_eq!(open(&written).unwrap(), "");
    assert_eq!(reason(open(&of_format_2(&written))), format);
}

fn reason(opened: Result<String, StoreError>) -> String {
    match opened {
        Err(StoreError::Damaged { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}
