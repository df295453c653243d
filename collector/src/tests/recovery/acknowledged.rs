//! Meaning of the log's mark: acknowledged records that are missing at its end are damage, a torn write is
//! not, and lost records of late data are named in answers about their time.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use flamegraph::View;
use profiler_core::{Filter, ThreadKind, TimeRange};

use super::*;
use query::Queries;
use query::{By, Cancel, Format, ProfileQuery, ThreadFilter};
use state::sealing::SealerThread;
use state::tree::PhaseFilter;
use store::testing::Recorder;

/// The newest log file of a disk, and its name.
fn newest(files: &Files) -> (String, Vec<u8>) {
    let (name, bytes) = files
        .iter()
        .rfind(|(name, _)| name.ends_with(".wal"))
        .unwrap();
    (name.clone(), bytes.clone())
}

/// A disk with five acknowledged flushes in one file.
fn acknowledged() -> Files {
    let mut fleet = Fleet::new(1);
    fleet.collector.log().limit_files(u64::MAX);
    (0..5).for_each(|_| fleet.flush(&[0], "load;main"));
    assert_eq!(fleet.acked.len(), 5);
    lock(&fleet.disk.0).files.clone()
}

/// Opens a log whose newest file has this content. Returns the number of damaged parts, of torn bytes
/// and of the flushes that are left.
fn opened_with(files: &Files, content: Option<&[u8]>) -> (u64, u64, usize) {
    let mut files = files.clone();
    let (name, _) = newest(&files);
    files.remove(&name);
    files.extend(content.map(|content| (name, content.to_vec())));
    let collector = open(&SimDisk::of(files));
    let found = &collector.log().found;
    let lost = collector.state.tables.manifest().lost_log.len() as u64;
    assert_eq!(lost, found.damages, "each damaged part is named");
    (found.damages, found.torn_bytes, held(&collector).len())
}

#[test]
fn a_missing_end_of_the_acknowledged_log_is_damage() {
    let files = acknowledged();
    let (_, whole) = newest(&files);
    assert_eq!(opened_with(&files, Some(&whole)), (0, 0, 5));
    for cut in (0..whole.len()).step_by(7) {
        let (damages, _, left) = opened_with(&files, Some(&whole[..cut]));
        assert!(
            damages > 0,
            "{cut} of {} bytes: {left} flushes are left",
            whole.len()
        );
    }
    assert_eq!(opened_with(&files, None).0, 1, "the whole file is missing");
    // Without a mark, as before there was one, it looks like a torn write.
    let unmarked: Files = files
        .iter()
        .filter(|(name, _)| name.ends_with(".wal"))
        .map(|(n, b)| (n.clone(), b.clone()))
        .collect();
    let half = &whole[..whole.len() / 2];
    let (damages, torn_bytes, _) = opened_with(&unmarked, Some(half));
    assert!(damages == 0 && torn_bytes > 0);
}

#[test]
fn a_wrong_byte_in_the_last_acknowledged_record_is_damage() {
    let files = acknowledged();
    let (_, mut bytes) = newest(&files);
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(opened_with(&files, Some(&bytes)), (1, 0, 4));
}

#[test]
fn an_unfinished_write_after_the_acknowledged_end_is_no_damage() {
    let files = acknowledged();
    let (_, mut bytes) = newest(&files);
    let again = bytes[40..].to_vec();
    for length in [1, 5, 13, again.len() / 2] {
        let whole = bytes.len();
        bytes.extend(&again[..length]);
        assert_eq!(opened_with(&files, Some(&bytes)), (0, length as u64, 5));
        bytes.truncate(whole);
    }
}

/// Whether an answer about `range`, in seconds after the tests' start, names a lost part of the log.
fn names_damage(collector: &Collector, range: (i64, i64)) -> bool {
    let query = ProfileQuery {
        range: TimeRange::new(at(range.0), at(range.1)).unwrap(),
        filter: Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        },
        phases: PhaseFilter::All,
        phases_shown: false,
        group: None,
        groups_max: 100,
        by: By::Function,
        format: Format::Collapsed,
        view: View::default(),
        threads: ThreadFilter::default(),
    };
    let answer = Queries(&collector.state)
        .profile(&query, &Cancel::default())
        .unwrap();
    answer
        .facts
        .damaged
        .iter()
        .any(|name| name.starts_with("wal/"))
}

#[test]
fn lost_records_of_late_data_are_named_in_answers_about_their_time() {
    const HOUR_S: i64 = 3_600;
    let objects = Objects::memory();
    let mut fleet = Fleet::over(SimDisk::of(Files::new()), objects.clone(), 1);
    fleet.collector.log().limit_files(u64::MAX);
    fleet.next_s = -3 * HOUR_S;
    fleet.flush(&[0], "load;main");
    fleet.next_s = 10;
    fleet.flush(&[0], "load;main");
    let mut files = lock(&fleet.disk.0).files.clone();
    let (name, mut bytes) = newest(&files);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    files.insert(name, bytes);
    let disk = SimDisk::of(files);
    let collector = open_over(&disk, objects.clone());
    assert_eq!(collector.log().found.damages, 1);
    let late = (-4 * HOUR_S, -2 * HOUR_S);
    assert!(names_damage(&collector, late) && names_damage(&collector, (0, 20)));
    assert!(
        !names_damage(&collector, (-9 * HOUR_S, -8 * HOUR_S)),
        "no data was that late"
    );
    // Also when the rest is in tables, and after one more restart.
    collector.sealer.seal().unwrap();
    assert!(names_damage(&open_over(&disk, objects), late));
}

#[test]
fn without_its_mark_a_lost_log_may_have_had_data_of_any_time() {
    const DAY_S: i64 = 86_400;
    let objects = Objects::memory();
    let mut fleet = Fleet::over(SimDisk::of(Files::new()), objects.clone(), 1);
    fleet.flush(&[0], "load;main");
    fleet.collector.sealer.seal().unwrap();
    // An agent that was cut off.
    fleet.next_s = -3 * DAY_S;
    fleet.flush(&[0], "load;main");
    assert_eq!(fleet.acked.len(), 2);
    let files = lock(&fleet.disk.0).files.clone();
    let late = (-4 * DAY_S, -2 * DAY_S);
    assert!(!names_damage(
        &open_over(&SimDisk::of(files.clone()), copied(&objects)),
        late
    ));
    let is_lost =
        |files: Files| names_damage(&open_over(&SimDisk::of(files), copied(&objects)), late);
    assert!(is_lost(Files::new()), "the log's folder was deleted");
    let mut damaged = files.clone();
    damaged
        .values_mut()
        .filter(|bytes| bytes.len() > 100)
        .for_each(|bytes| bytes[60] ^= 1);
    assert!(
        is_lost(damaged.clone()),
        "the mark says how late the data is"
    );
    damaged.retain(|name, _| name.ends_with(".wal"));
    // The file after it, so that its damage is not a torn write.
    let (last, _) = newest(&damaged);
    let after = format!("{:020}.wal", last[..20].parse::<u64>().unwrap() + 1);
    damaged.insert(after, Vec::new());
    assert!(is_lost(damaged), "neither log nor mark");
}

/// The same store, apart from what happens to the first one.
fn copied(objects: &Objects) -> Objects {
    let copy = Objects::memory();
    for prefix in ["manifest", "tables"] {
        for file in objects.list(prefix).unwrap() {
            copy.put_new(&file.path, objects.get(&file.path).unwrap())
                .unwrap();
        }
    }
    copy
}

#[test]
fn a_log_file_in_the_place_of_another_one_is_damage() {
    let mut fleet = Fleet::new(2);
    (0..6).for_each(|_| fleet.flush(&[0, 1], "load;main"));
    let files = lock(&fleet.disk.0).files.clone();
    let whole = held(&open(&SimDisk::of(files.clone())));
    let logs: Vec<&String> = files.keys().filter(|name| name.ends_with(".wal")).collect();
    assert!(logs.len() > 4, "{logs:?}");
    for name in &logs {
        for other in logs.iter().filter(|other| *other != name) {
            let mut replaced = files.clone();
            replaced.insert((*name).clone(), files[*other].clone());
            let collector = open(&SimDisk::of(replaced));
            let lost = collector.state.tables.manifest().lost_log.clone();
            let is_named = lost.iter().any(|lost| lost.path == format!("wal/{name}"));
            let is_whole = held(&collector) == whole;
            assert!(is_named || is_whole, "{other} instead of {name}: {lost:?}");
        }
    }
}

#[test]
fn sealed_late_data_does_not_extend_later_losses() {
    let mut fleet = Fleet::new(1);
    fleet.collector.log().limit_files(u64::MAX);
    fleet.next_s = -10_000;
    fleet.flush(&[0], "load;main");
    let log = fleet.collector.log();
    let (number, ()) = log.cut(|| ()).unwrap();
    log.remove_before(number).unwrap();
    fleet.next_s = 10;
    fleet.flush(&[0], "load;main");
    let files = lock(&fleet.disk.0).files.clone();
    let found = open(&SimDisk::of(files)).log().found.data_from;
    assert_eq!(found, Some(Second::of(at(10))));
}

#[test]
fn nothing_is_acknowledged_once_the_data_folder_is_deleted() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("data");
    let settings = Settings {
        clock: Clock::from_fn(|| at(50)),
        ..Settings::default()
    };
    let collector = Collector::open_folder(settings, &folder).unwrap();
    let mut worker = TestWorker::new("w", 1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let attached = runtime
        .block_on(
            collector
                .ingest
                .attach(&state::testing::account(), worker.hello(), at(50)),
        )
        .unwrap();
    let mut flush = || v1::Flush {
        cycle: None,
        ..worker.flush(1, vec![])
    };
    let send = |flush: &v1::Flush| {
        runtime.block_on(
            collector
                .ingest
                .receive_flush(&attached.attachment, flush, at(50)),
        )
    };
    assert!(matches!(send(&flush()), Ok(Kind::Ack(_))));
    assert!(
        fs::metadata(folder.join("wal/acknowledged"))
            .unwrap()
            .size()
            > 0
    );
    fs::remove_dir_all(&folder).unwrap();
    let next = flush();
    for _ in 0..3 {
        let answer = send(&next);
        let Err(StreamError::NotLogged(NotLogged::Failed { reason })) = &answer else {
            panic!("{answer:?}");
        };
        assert!(reason.contains("was deleted"), "{reason}");
    }
    let blocked = collector.ingest.blocked().unwrap();
    assert!(blocked.reason.contains("was deleted"), "{}", blocked.reason);
    collector.log().close();
}

#[test]
fn a_small_flush_is_acknowledged_before_a_large_one_is_applied() {
    const TASKS: u64 = 20_000;
    let collector = open(&SimDisk::of(Files::new()));
    collector.log().start_applier();
    let attach = |worker: &TestWorker| {
        let account = state::testing::account();
        at_once(collector.ingest.attach(&account, worker.hello(), at(50)))
            .unwrap()
            .attachment
    };
    let mut large = TestWorker::new("large", 1);
    let tasks = (1..=TASKS)
        .map(|id| large.task(id, "load", (5, Some(6))))
        .collect();
    let large_flush = large.flush(1, tasks);
    let mut small = TestWorker::new("small", 1);
    small.count("load;main", State::Cpu, 5);
    let small_flush = small.flush(1, vec![]);
    let streams = [attach(&large), attach(&small)];
    collector.log().commit_waiting();
    for (stream, worker) in streams.iter().zip([&mut large, &mut small]) {
        let dictionary = worker.dictionary().unwrap();
        collector
            .ingest
            .receive_dictionary(stream, &dictionary, at(50))
            .unwrap();
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut answers = [&large_flush, &small_flush]
        .into_iter()
        .zip(&streams)
        .map(|(flush, stream)| Box::pin(collector.ingest.receive_flush(stream, flush, at(50))));
    let [mut large_answer, mut small_answer] = [(); 2].map(|()| answers.next().unwrap());
    assert!(large_answer.as_mut().poll(&mut context).is_pending());
    // It cannot be applied without its session.
    let session = streams[0].cell.state.try_lock().unwrap();
    collector.log().commit_waiting();
    assert!(small_answer.as_mut().poll(&mut context).is_pending());
    collector.log().commit_waiting();
    assert!(matches!(at_once(small_answer), Ok(Kind::Ack(_))));
    assert!(large_answer.as_mut().poll(&mut context).is_pending());
    drop(session);
    // A cut waits for what is logged and not applied.
    let (_, rows) = collector
        .log()
        .cut(|| read(&collector.state.ledger).row_count())
        .unwrap();
    assert_eq!(rows as u64, TASKS);
    assert!(matches!(at_once(large_answer), Ok(Kind::Ack(_))));
}

/// Blocks the store's writes while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
    has_timed_out: AtomicBool,
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let closed = self.is_closed.lock().unwrap();
        let deadline = Duration::from_secs(20);
        let waited = self
            .opened
            .wait_timeout_while(closed, deadline, |is_closed| *is_closed);
        self.has_timed_out
            .fetch_or(waited.unwrap().1.timed_out(), Ordering::Relaxed);
    }
}

#[test]
fn the_end_does_not_wait_for_a_slow_sealing_and_loses_nothing() {
    let gate = Arc::new(Gate::default());
    let passed = gate.clone();
    let objects = Objects::over(Arc::new(Recorder::noting(move || passed.pass())));
    let mut fleet = Fleet::over(SimDisk::of(Files::new()), objects, 1);
    fleet.flush(&[0], "load;main");
    let version = fleet.collector.state.tables.manifest().version;
    let before = held(&fleet.collector);
    gate.set_closed(true);
    let thread = SealerThread::start(&fleet.collector.sealer).unwrap();
    fleet.collector.sealer.end(thread, Duration::from_millis(1));
    assert!(
        !gate.has_timed_out.load(Ordering::Relaxed),
        "the end waits for the sealing"
    );
    assert_eq!(fleet.collector.state.tables.manifest().version, version);
    let files = lock(&fleet.disk.0).files.clone();
    assert_eq!(held(&open(&SimDisk::of(files))), before);
    gate.set_closed(false);
}
