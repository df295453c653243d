//! The tables as a whole: sealed data is in every tier, whatever happens to the files.

mod columns;
mod damage;
mod faults;
mod file_sums;
mod file_workers;
mod fleet;
mod lookup;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::{
    Epoch, Outcome, PhaseInterval, TaskDetail, TaskId, TaskRecord, Timestamp, WorkerId,
};
use proptest::prelude::*;

use self::fleet::{Batch, Fleet, START_S};
use self::tree::TestTree;
use super::error::StoreError;
use super::manifest::{FileEntry, Manifest};
use super::objects::Objects;
use super::segment::EncodedFile;
use super::tables::Tables;
use super::testing::{Change, Recorder, replay};
use super::wal::{LocalDisk, Wal};
use crate::rows::TaskRow;
use crate::seal::SealBatch;
use crate::sums::table::TableName;
use crate::sums::task_sums::{TaskTree, task_nodes};
use crate::sums::tier::Period;
use crate::upkeep::maintain::MaintenanceReport;
use crate::upkeep::retention::Retention;

/// Drops nothing.
const KEEP_ALL: Retention = Retention {
    seconds: Duration::from_secs(1 << 33),
    rollups: Duration::from_secs(1 << 33),
    tasks: Duration::from_secs(1 << 33),
    bytes_max: u64::MAX,
};

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    prop::collection::vec(fleet::batch(), 1..5)
}

/// Years after the batches.
fn later(years: i64) -> Timestamp {
    Timestamp::from_unix_ns((i64::from(START_S) + years * 365 * 86_400) * 1_000_000_000)
}

fn maintain(tables: &Tables, now: Timestamp) -> MaintenanceReport {
    tables.maintain(now, &KEEP_ALL, &mut |_| {}).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn every_tier_has_the_sealed_data_also_after_a_restart(batches in batches()) {
        let objects = Objects::memory();
        let mut fleet = Fleet::new();
        let (tables, loaded) = Tables::open(objects.clone()).unwrap();
        prop_assert!(loaded.nodes.is_empty() && loaded.reports.is_empty());
        for batch in &batches {
            fleet.seal(&tables, batch);
            fleet.check(&tables);
        }
        let (tables, loaded) = Tables::open(objects).unwrap();
        prop_assert_eq!(&loaded.reports, &Vec::<String>::new());
        fleet.check_loaded(&loaded);
        fleet.check(&tables);
        // The restarted store continues where it was.
        fleet.seal(&tables, &batches[0]);
        fleet.check(&tables);
    }

    #[test]
    fn merging_keeps_all_sums_and_leaves_one_file_a_partition(batches in batches()) {
        let objects = Objects::memory();
        let mut fleet = Fleet::new();
        let (tables, _) = Tables::open(objects.clone()).unwrap();
        for batch in batches.iter().cycle().take(9) {
            fleet.seal(&tables, batch);
            maintain(&tables, later(0));
        }
        fleet.check(&tables);
        maintain(&tables, later(2));
        fleet.check(&tables);
        tables.compact().unwrap();
        fleet.check(&tables);
        let manifest = tables.manifest();
        let partitions = manifest.files.iter().map(|file| (file.table, crate::upkeep::compact::partition(file)));
        prop_assert_eq!(partitions.collect::<BTreeSet<_>>().len(), manifest.files.len());
        let (tables, loaded) = Tables::open(objects).unwrap();
        fleet.check_loaded(&loaded);
        fleet.check(&tables);
    }
}

/// A minute of two workers' windows, and tasks, some of which end twice.
fn some_batch(minute: u32) -> Batch {
    let second = |n: u32| minute * 60 + n;
    let windows = (0..20).map(|n| (second(n), n % 2, entries(n))).collect();
    let tasks = (0..5)
        .map(|n| {
            (
                second(n),
                n % 2,
                u64::from(minute % 3 * 5 + n + 1),
                n % 3,
                n,
            )
        })
        .collect();
    Batch { windows, tasks }
}

fn entries(n: u32) -> Vec<(u32, u8, u64)> {
    (0..5)
        .map(|i| (n * i % 40, (i % 7) as u8, u64::from(n + i + 1)))
        .collect()
}

#[test]
#[ignore = "long"]
fn a_crash_at_any_point_leaves_a_whole_version() {
    let recorder = Recorder::default();
    let changes = recorder.changes.clone();
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(Objects::over(Arc::new(recorder))).unwrap();
    for minute in 0..9 {
        fleet.seal(&tables, &some_batch(minute));
        maintain(&tables, later(0));
    }
    // All partitions are over; all merged files are garbage.
    let merged = maintain(&tables, later(100));
    assert!(merged.merged > 0 && merged.deleted > 0, "{merged:?}");
    fleet.seal(&tables, &some_batch(9));
    let changes = changes.lock().unwrap().clone();
    let deletes = changes
        .iter()
        .filter(|change| matches!(change, Change::Delete(_)))
        .count();
    assert!(deletes > 100, "{deletes} files were deleted");
    let crashes: Vec<Crashes> = std::thread::scope(|scope| {
        let halves = [1, 2].map(|first| {
            let lengths = (first..=changes.len()).step_by(2);
            let changes = &changes;
            let fleet = &fleet;
            scope.spawn(move || crash_at_each(lengths, changes, fleet))
        });
        halves.map(|half| half.join().unwrap()).into()
    });
    let whole: BTreeSet<u64> = crashes.iter().flat_map(|half| half.whole.clone()).collect();
    let torn: BTreeSet<u64> = crashes.iter().flat_map(|half| half.torn.clone()).collect();
    assert!(whole.len() > 12, "{whole:?}");
    assert!(torn.is_subset(&whole), "{torn:?} of {whole:?}");
}

/// The versions that stores have after a crash.
#[derive(Default)]
struct Crashes {
    whole: BTreeSet<u64>,
    /// Where the last file was torn.
    torn: BTreeSet<u64>,
}

/// Opens the store as it is after each number of `changes`, and checks it.
fn crash_at_each(
    lengths: impl Iterator<Item = usize>,
    changes: &[Change],
    fleet: &Fleet,
) -> Crashes {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut crashes = Crashes::default();
    for length in lengths {
        let mut changes = changes[..length].to_vec();
        let whole = runtime.block_on(replay(&changes));
        let (tables, loaded) = Tables::open(Objects::over(Arc::new(whole))).unwrap();
        assert_eq!(loaded.reports, [""; 0]);
        crashes.whole.insert(tables.manifest().version);
        // Only versions change the store, so most states were checked already.
        if is_version(&changes[length - 1]) && length % 3 != 1 {
            fleet.check(&tables);
        }
        // The last file may be torn, if the store lists it before syncing it.
        if let Some(Change::Put(_, content)) = changes.last_mut().filter(|_| length > 1) {
            *content = content.slice(..content.len() / 2);
            let torn = runtime.block_on(replay(&changes));
            let (tables, _) = Tables::open(Objects::over(Arc::new(torn))).unwrap();
            crashes.torn.insert(tables.manifest().version);
        }
    }
    crashes
}

fn is_version(change: &Change) -> bool {
    match change {
        Change::Put(path, _) => path.as_ref().starts_with("manifest/"),
        change => matches!(change, Change::Delete(_)),
    }
}

#[test]
fn a_version_with_an_unsynced_file_is_not_published() {
    let directory = tempfile::tempdir().unwrap();
    let objects = Objects::local(directory.path()).unwrap();
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    let before = tables.manifest();
    let from = Period(1);
    let to = Period(2);
    let written = EncodedFile {
        content: "rows".into(),
        rows: 1,
        from,
        to,
    };
    let entry = tables.put(TableName::Nodes, 0, written).unwrap();
    let content = objects.get(&entry.path()).unwrap();
    let publish = || {
        tables.publish(
            |manifest: &mut Manifest| {
                manifest.files.push(entry.clone());
                true
            },
            &mut |_| {},
        )
    };
    objects.delete(&entry.path()).unwrap();
    assert!(publish().unwrap_err().to_string().contains(&entry.path()));
    assert_eq!(tables.manifest(), before);
    objects.put_unsynced(&entry.path(), content).unwrap();
    publish().unwrap();
    assert_eq!(tables.manifest().files, [entry]);
}

#[test]
fn old_data_is_dropped_while_the_store_is_used() {
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(Objects::memory()).unwrap();
    let mut swapped = None;
    let mut maintain = |now: Timestamp, retention: &Retention| {
        let on_publish = &mut |manifest: &Arc<Manifest>| swapped = Some(manifest.version);
        let done = tables.maintain(now, retention, on_publish).unwrap();
        assert_eq!(swapped.is_some(), done.expired + done.merged > 0);
        swapped = None;
        done.expired
    };
    let retention = Retention::default();
    for count in 0..=31 {
        fleet.seal(&tables, &some_batch(count * 24 * 60));
        let expired = maintain(day(count.into()), &retention);
        // Samples, totals, cycles, durations, phases, the sums of both and of transfers, threads by the
        // second; resources. Then tasks and transfers too.
        let expected = [0, 10, 12][usize::from(count >= 8) + usize::from(count >= 31)];
        assert_eq!(expired, expected, "day {count}");
    }
    let little = Retention {
        bytes_max: 1,
        ..retention
    };
    assert!(maintain(day(31), &little) > 20);
    let kept = [
        "expected",
        "frames",
        "links",
        "lost_tasks",
        "nodes",
        "running",
        "runs",
        "sessions",
        "workers",
    ];
    let manifest = tables.manifest();
    let named: BTreeSet<_> = manifest
        .files
        .iter()
        .map(|file| file.table.name())
        .collect();
    assert_eq!(Vec::from_iter(named), kept);
}

fn day(count: i64) -> Timestamp {
    later(0).shifted(count * 86_400 * 1_000_000_000)
}

/// Flips a bit in the first file of a table.
fn damage(objects: &Objects, tables: &Tables, table: &str) -> String {
    let manifest = tables.manifest();
    let file = manifest
        .files
        .iter()
        .find(|file| file.table.name() == table)
        .unwrap();
    let mut content = objects.get(&file.path()).unwrap().to_vec();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    objects.delete(&file.path()).unwrap();
    objects.put_new(&file.path(), content.into()).unwrap();
    file.path()
}

#[test]
fn a_damaged_file_is_reported_and_quarantined_and_the_rest_is_used() {
    let objects = Objects::memory();
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    fleet.seal(&tables, &some_batch(0));
    fleet.seal(&tables, &some_batch(1));
    let tables = Tables::open(objects.clone()).unwrap().0;
    let path = damage(&objects, &tables, "samples_1m");
    let file = find(&tables, &path).unwrap();
    let error = tables.segment(&file).unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged { path: named, .. } if *named == path),
        "{error}"
    );
    assert_eq!(maintain(&tables, later(0)).quarantined, 1);
    assert_eq!(find(&tables, &path), None);
    assert_eq!(tables.manifest().lost[0].file, file);
    let copy = format!("quarantine/{}", path.replace('/', "-"));
    assert_eq!(objects.get(&copy).unwrap().len() as u64, file.bytes);
    // A merge continues without a damaged input.
    let path = damage(&objects, &tables, "totals_1h");
    tables.compact().unwrap();
    assert_eq!(tables.manifest().lost[1].file.path(), path);
}

fn find(tables: &Tables, path: &str) -> Option<FileEntry> {
    let manifest = tables.manifest();
    manifest
        .files
        .iter()
        .find(|file| file.path() == path)
        .cloned()
}

#[test]
fn lost_names_keep_all_ids() {
    let objects = Objects::memory();
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    fleet.seal(&tables, &some_batch(0));
    fleet.tree.task_node("late");
    fleet.seal(&tables, &some_batch(1));
    let (_, whole) = Tables::open(objects.clone()).unwrap();
    for table in ["frames", "nodes", "workers"] {
        damage(&objects, &tables, table);
    }
    for attempt in 0..2 {
        let (tables, loaded) = Tables::open(objects.clone()).unwrap();
        assert_eq!(loaded.reports.len(), if attempt == 0 { 3 } else { 0 });
        assert_eq!(tables.manifest().lost.len(), 3);
        let lengths = [
            loaded.frames.len(),
            loaded.nodes.len(),
            loaded.workers.len(),
        ];
        assert_eq!(
            lengths,
            [whole.frames.len(), whole.nodes.len(), whole.workers.len()]
        );
        assert_eq!(loaded.frames.last(), whole.frames.last());
        assert_eq!(loaded.nodes.last(), whole.nodes.last());
        assert_eq!(loaded.frames[0].label(), "[damaged]+0x1");
        assert_eq!(&*loaded.workers[0].0, "[damaged worker 1]");
        let different: BTreeSet<_> = loaded.frames.iter().collect();
        assert_eq!(different.len(), loaded.frames.len());
    }
}

/// The log file that the manifest of a test's store names, and that does not exist.
const NO_LOG: &str = "wal/00000000000000000003.wal";

fn problems(verified: &super::Verification) -> Vec<&str> {
    verified
        .problems
        .iter()
        .map(|problem| problem.name.as_str())
        .collect()
}

/// The bytes of format 1, which every later version must read.
#[test]
fn format_1_is_read_back() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/store-1");
    // As for `expect!`. Only before the first release: a released format is never rewritten.
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::remove_dir_all(&golden).unwrap();
        let (tables, _) = Tables::open(Objects::local(&golden).unwrap()).unwrap();
        let mut fleet = Fleet::new();
        (0..3).for_each(|minute| fleet.seal(&tables, &some_batch(minute)));
        let disk = LocalDisk::new(golden.join("wal"), golden.join("quarantine")).unwrap();
        Wal::open(Box::new(disk), tables.manifest().wal_from, &mut |_| Ok(())).unwrap();
    }
    let verified = super::verify(&golden.as_path().into()).unwrap();
    assert_eq!(problems(&verified), [""; 0]);
    let lines = verified
        .tables
        .iter()
        .map(|table| format!("{} {} rows, sum {}\n", table.table, table.rows, table.sum));
    expect_test::expect![[r#"
        samples_1s 300 rows, sum 3750
        samples_1m 204 rows, sum 3750
        samples_10m 204 rows, sum 3750
        samples_1h 204 rows, sum 3750
        samples_1d 204 rows, sum 3750
        samples_1m_all 195 rows, sum 3750
        samples_10m_all 195 rows, sum 3750
        samples_1h_all 195 rows, sum 3750
        samples_1d_all 195 rows, sum 3750
        totals_1s 300 rows, sum 3750
        totals_1m 42 rows, sum 3750
        totals_10m 42 rows, sum 3750
        totals_1h 42 rows, sum 3750
        totals_1d 42 rows, sum 3750
        cycles_1s 300 rows, sum 90000012000
        cycles_1m 30 rows, sum 90000012000
        cycles_10m 30 rows, sum 90000012000
        cycles_1h 30 rows, sum 90000012000
        cycles_1d 30 rows, sum 90000012000
        durations_1s 23 rows, sum 27
        durations_1m 23 rows, sum 27
        durations_10m 23 rows, sum 27
        durations_1h 23 rows, sum 27
        durations_1d 23 rows, sum 27
        duration_sums_1s 18 rows, sum 57000000
        duration_sums_1m 18 rows, sum 57000000
        duration_sums_10m 18 rows, sum 57000000
        duration_sums_1h 18 rows, sum 57000000
        duration_sums_1d 18 rows, sum 57000000
        transfer_sums_1s 360 rows, sum 180000360660
        transfer_sums_1m 36 rows, sum 180000360660
        transfer_sums_10m 36 rows, sum 180000360660
        transfer_sums_1h 36 rows, sum 180000360660
        transfer_sums_1d 36 rows, sum 180000360660
        phases_1s 23 rows, sum 45
        phases_1m 23 rows, sum 45
        phases_10m 23 rows, sum 45
        phases_1h 23 rows, sum 45
        phases_1d 23 rows, sum 45
        phase_sums_1s 23 rows, sum 28000025
        phase_sums_1m 23 rows, sum 28000025
        phase_sums_10m 23 rows, sum 28000025
        phase_sums_1h 23 rows, sum 28000025
        phase_sums_1d 23 rows, sum 28000025
        threads_1s 300 rows, sum 3750
        threads_1m 216 rows, sum 3750
        threads_10m 216 rows, sum 3750
        threads_1h 216 rows, sum 3750
        threads_1d 216 rows, sum 3750
        frames 72 rows, sum 0
        nodes 109 rows, sum 0
        workers 2 rows, sum 0
        tasks 15 rows, sum 0
        running 1 rows, sum 0
        lost_tasks 1 rows, sum 0
        sessions 1 rows, sum 0
        links 1 rows, sum 0
        transfers 60 rows, sum 0
        resources 60 rows, sum 0
        runs 1 rows, sum 0
        expected 1 rows, sum 0
    "#]]
    .assert_eq(&lines.collect::<String>());
    let (tables, loaded) = Tables::open_read_only(Objects::local(&golden).unwrap()).unwrap();
    let mut fleet = Fleet::new();
    (0..3).for_each(|minute| fleet.pretend(&some_batch(minute)));
    fleet.check(&tables);
    fleet.check_loaded(&loaded);
}

#[test]
fn info_and_verify_report_content_and_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let missing = super::info(&path.as_path().into()).unwrap_err();
    assert!(
        matches!(missing, StoreError::NoStore { .. }) && !path.exists(),
        "{missing}"
    );
    let objects = Objects::local(&path).unwrap();
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    (0..3).for_each(|minute| fleet.seal(&tables, &some_batch(minute)));
    let info = super::info(&path.as_path().into()).unwrap();
    assert_eq!((info.format, info.version), (1, 4));
    let seconds = info
        .tables
        .iter()
        .find(|table| table.table == "samples_1s")
        .unwrap();
    assert_eq!(
        (seconds.files, seconds.span_s),
        (3, Some((START_S, START_S + 139)))
    );
    let verified = super::verify(&path.as_path().into()).unwrap();
    let files = tables.manifest().files.len() as u64;
    assert_eq!(
        (&problems(&verified)[..], verified.files),
        (&[NO_LOG][..], files)
    );

    let lock = super::lock::DirectoryLock::take(&path).unwrap();
    let locked = super::compact(&path.as_path().into()).unwrap_err();
    assert!(matches!(locked, StoreError::Locked { .. }), "{locked}");
    drop(lock);
    let compacted = super::compact(&path.as_path().into()).unwrap();
    assert!(
        compacted.files_after * 2 < compacted.files_before,
        "{compacted:?}"
    );
    let merged = super::verify(&path.as_path().into()).unwrap();
    let sums = |verified: &super::Verification| {
        let sums = verified
            .tables
            .iter()
            .map(|table| (table.table.clone(), table.sum));
        sums.collect::<Vec<_>>()
    };
    assert_eq!(
        (problems(&merged), sums(&merged)),
        (vec![NO_LOG], sums(&verified))
    );

    let (tables, _) = Tables::open(objects.clone()).unwrap();
    let damaged = [
        damage(&objects, &tables, "samples_10m"),
        damage(&objects, &tables, "nodes"),
    ];
    let verified = super::verify(&path.as_path().into()).unwrap();
    let names: BTreeSet<_> = problems(&verified).into_iter().collect();
    assert_eq!(
        names,
        damaged.iter().map(String::as_str).chain([NO_LOG]).collect()
    );
}

/// Tasks of six names, each with a key of its own and three phases, of spread durations.
fn many_tasks(count: u64) -> Vec<Arc<TaskRow>> {
    let mut seed = 1u64;
    let mut spread_ns = |scale_ns: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        scale_ns / 4 + (seed >> 33) % (scale_ns * 2)
    };
    let start_s = i64::from(START_S);
    let task = |id: u64| {
        let waits: Vec<u64> = [9, 2_000, 500, 3_000]
            .map(|scale| spread_ns(scale * 1_000))
            .into();
        let executed_ns = spread_ns(20_000_000);
        let phases = vec![
            phase("transfer", 0, waits[1]),
            phase("deserialize", waits[1], waits[2]),
            phase("serialize", waits[1] + waits[2] + executed_ns, waits[3]),
        ];
        let duration_ns = waits[1] + waits[2] + executed_ns + waits[3];
        let at_ns = start_s * 1_000_000_000 + (id * 60_000_000_000 / count).cast_signed();
        let start = Timestamp::from_unix_ns(at_ns).shifted(waits[0].cast_signed());
        let name = ["load", "map", "reduce", "join", "write", "check"][(id * 7 % 6) as usize];
        let record = TaskRecord {
            id: TaskId(id + 1),
            name: name.into(),
            key: format!("{name}-{id}").into(),
            thread_id: 4_000 + (id % 8) as u32,
            thread_name: "pool".into(),
            parent: None,
            start,
            stop: Some(start.shifted(duration_ns.cast_signed())),
            outcome: Outcome::Ok,
            cause: "".into(),
            detail: Some(Box::new(TaskDetail {
                attempt: 1,
                phases,
                ..TaskDetail::default()
            })),
        };
        let worker = WorkerId(format!("worker-{}", id % 4).into());
        Arc::new(TaskRow {
            worker,
            epoch: Epoch(7),
            record,
        })
    };
    (0..count).map(task).collect()
}

fn phase(name: &str, start_ns: u64, duration_ns: u64) -> PhaseInterval {
    PhaseInterval {
        name: name.into(),
        start_ns: start_ns.cast_signed(),
        duration_ns,
        count: 1,
    }
}

#[test]
fn a_task_with_three_phases_takes_at_most_60_bytes() {
    let (tables, _) = Tables::open(Objects::memory()).unwrap();
    let mut tree = TestTree::new();
    let tasks = many_tasks(100_000);
    let task_nodes = task_nodes(&mut tree, &tasks, &[]);
    let batch = SealBatch {
        windows: &[],
        tasks: &tasks,
        totals: &[],
        task_nodes: &task_nodes,
        running: &[],
        lost_tasks: &[],
        sessions: &[],
        telemetry: &crate::rows::TelemetryBatch::default(),
        tree: &tree.unsealed(tables.sealed_tree()),
        wal_from: 1,
    };
    let manifest = tables.seal(batch, &mut |_| {}).unwrap();
    // Rows and what they add to the tables of counts: 45 and 3 bytes.
    let files = manifest
        .files
        .iter()
        .filter(|file| file.table != TableName::Nodes);
    let bytes = files.map(|file| file.bytes as usize).sum::<usize>();
    assert!(bytes <= 60 * tasks.len(), "{bytes} bytes");
}
