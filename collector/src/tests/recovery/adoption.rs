//! The store of a dead collector is adopted: each acknowledged flush counts once, before, during and after.

use std::thread;
use std::time::{Duration, Instant};

use super::images::{ask, stacks};
use super::*;
use state::adoption::{Adoption, AdoptionOptions, StoreWatch, adopt_in_bucket};
use state::ingest_status::Cause;
use state::sealing::SealerThread;
use store::bucket::{LogState, Owner};
use store::wal::BucketDisk;
use store::{OpenStore, Retention, StorePlace, Tables};

/// Short, because nobody lives.
const WATCH: Duration = Duration::from_millis(90);

/// A life of the store's collector, without the thread that shows that it lives.
fn life(objects: &Objects) -> Collector {
    let objects = objects.of_another_process();
    let owner = Owner::claim(&objects, Duration::ZERO).unwrap();
    let log = Box::new(log_in_store(&objects, &owner).unwrap());
    let settings = Settings {
        clock: Clock::from_fn(|| at(50)),
        ..Settings::default()
    };
    Collector::open(settings, objects, log, StoreGuard::new(None, Some(owner))).unwrap()
}

fn fleet(objects: &Objects, workers: usize) -> Fleet {
    fleet_of(life(objects), workers)
}

fn fleet_of(collector: Collector, workers: usize) -> Fleet {
    let agents = (0..workers).map(AgentSide::new).collect();
    let disk = SimDisk::of(Files::new());
    Fleet {
        disk,
        collector,
        agents,
        sent: vec![],
        acked: vec![],
        next_s: 0,
    }
}

/// The process dies: it releases nothing.
fn crash(collector: Collector) {
    std::mem::forget(collector);
}

fn adopt(objects: &Objects, owner_watch: Duration) -> Result<Adoption, DataError> {
    let options = AdoptionOptions {
        owner_watch,
        ..AdoptionOptions::default()
    };
    adopt_in_bucket(objects.of_another_process(), &options)
}

/// All that was sent, as an answer has it.
fn sent(fleet: &Fleet) -> Content {
    let mut all = Content::new();
    for (stack, nanoseconds) in fleet.sent.iter().flat_map(|(_, content, _)| content) {
        *all.entry(stack.clone()).or_default() += nanoseconds;
    }
    all
}

/// Checks what the next life of the collector answers, and returns it.
fn check_next(objects: &Objects, expected: &Content, unsealed: usize) -> Collector {
    let next = life(objects);
    assert_eq!(stacks(&ask(&next)), *expected);
    assert_eq!(held(&next).len(), unsealed);
    assert_eq!(next.state.tables.manifest().all_lost().count(), 0);
    next
}

#[test]
fn what_a_lost_collector_left_is_sealed_once_and_its_next_life_goes_on() {
    let objects = Objects::bucket_in_memory();
    let mut fleet = fleet(&objects, 2);
    fleet.flush(&[0, 1], "load;main");
    fleet.collector.sealer.seal().unwrap();
    fleet.flush(&[0], "load;main");
    fleet.flush(&[1], "load;main;parse");
    let expected = sent(&fleet);
    crash(fleet.collector);
    let adoption = adopt(&objects, WATCH).unwrap();
    assert!(
        adoption.records > 0 && adoption.log_files > 0,
        "{adoption:?}"
    );
    assert!(adoption.files_after > adoption.files_before, "{adoption:?}");
    assert_eq!((adoption.sessions, adoption.lost.len()), (2, 0));
    // The version names a file of the log that nobody has created: nothing is missing.
    let from = Tables::log_from(&objects).unwrap();
    let log = wal::check(&mut BucketDisk::new(objects.clone()), from).unwrap();
    assert_eq!((log.files, log.damages), (0, 0));
    // The second one finds nothing to seal, and does not touch the log.
    let logs = || objects.list("wal").unwrap();
    let before = logs();
    let again = adopt(&objects, WATCH).unwrap();
    assert_eq!((again.records, again.sessions, logs()), (0, 2, before));
    // Each agent learns what the store has, and ships more.
    fleet.collector = check_next(&objects, &expected, 0);
    fleet
        .agents
        .iter_mut()
        .for_each(|agent| agent.attachment = None);
    fleet.flush(&[0, 1], "load;main");
    assert!(fleet.agents.iter().all(|agent| agent.unacked.is_empty()));
    let expected = sent(&fleet);
    crash(fleet.collector);
    crash(check_next(&objects, &expected, 2));
}

#[test]
fn of_two_adopters_at_once_one_seals_and_each_flush_counts_once() {
    for round in 0..8 {
        let objects = Objects::bucket_in_memory();
        let mut fleet = fleet(&objects, 2);
        (0..3).for_each(|_| fleet.flush(&[0, 1], "load;main"));
        let expected = sent(&fleet);
        crash(fleet.collector);
        let adopters: Vec<_> = (0..2)
            .map(|_| {
                let objects = objects.clone();
                thread::spawn(move || adopt(&objects, WATCH))
            })
            .collect();
        let done: Vec<_> = adopters
            .into_iter()
            .map(|adopter| adopter.join().unwrap())
            .collect();
        let sealed = done
            .iter()
            .filter(|done| done.as_ref().is_ok_and(|done| done.records > 0));
        assert_eq!(sealed.count(), 1, "round {round}: {done:?}");
        for failed in done.iter().filter_map(|done| done.as_ref().err()) {
            let is_refused = matches!(failed, DataError::Tables(StoreError::Owned { .. }));
            assert!(is_refused, "round {round}: {failed}");
        }
        crash(check_next(&objects, &expected, 0));
    }
}

#[test]
fn an_owner_that_lives_is_not_adopted() {
    let objects = Objects::bucket_in_memory();
    let owner = Owner::take(&objects, WATCH).unwrap();
    owner.use_log(LogState::IN_STORE).unwrap();
    objects.put_new(&Manifest::path_of(1), "{}".into()).unwrap();
    let refused = adopt(&objects, 10 * WATCH).unwrap_err();
    assert!(
        matches!(refused, DataError::Tables(StoreError::Owned { .. })),
        "{refused}"
    );
    objects.check_fence().unwrap();
}

/// The owner was paused for so long that its store was adopted. Its acknowledged flushes count, and it acknowledges
/// nothing more; the others go to its next life.
#[test]
fn an_owner_that_was_only_paused_is_fenced() {
    let objects = Objects::bucket_in_memory();
    let mut fleet = fleet(&objects, 2);
    fleet.flush(&[0, 1], "load;main");
    let acked = sent(&fleet);
    adopt(&objects, WATCH).unwrap();
    fleet.flush(&[0], "x");
    assert_eq!(
        fleet.agents[0].unacked.len(),
        1,
        "it must not be acknowledged"
    );
    fleet.collector.sealer.seal().unwrap_err();
    crash(check_next(&objects, &acked, 0));
    fleet.collector = life(&objects);
    fleet
        .agents
        .iter_mut()
        .for_each(|agent| agent.attachment = None);
    fleet.send();
    assert!(fleet.agents[0].unacked.is_empty());
    assert_eq!(stacks(&ask(&fleet.collector)), sent(&fleet));
}

/// It counts as blocked although no agent sends a flush, and its thread ends.
#[test]
fn a_collector_whose_store_was_taken_over_is_blocked_and_seals_no_more() {
    let objects = Objects::bucket_in_memory();
    let mut fleet = fleet(&objects, 1);
    fleet.flush(&[0], "load;main");
    assert_eq!(fleet.collector.ingest.blocked(), None);
    adopt(&objects, WATCH).unwrap();
    let sealer = &fleet.collector.sealer;
    let sealing = SealerThread::start(sealer).unwrap();
    let error = sealer.seal().unwrap_err().to_string();
    assert!(error.contains("was taken over"), "{error}");
    let blocked = fleet.collector.ingest.blocked().unwrap();
    assert_eq!((blocked.cause, blocked.reason), (Cause::LogFailed, error));
    let begin = Instant::now();
    while !sealing.has_ended() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// An adopter that is killed anywhere leaves a store that the next one adopts.
#[test]
fn an_adopter_that_is_killed_loses_nothing() {
    for step in 0..4 {
        let objects = Objects::bucket_in_memory();
        let mut fleet = fleet(&objects, 1);
        (0..3).for_each(|_| fleet.flush(&[0], "load;main"));
        let expected = sent(&fleet);
        crash(fleet.collector);
        // The last step of the adopter: its claim, the tombstone, the tables, or all but the release.
        if step == 0 {
            std::mem::forget(Owner::claim(&objects.of_another_process(), Duration::ZERO).unwrap());
        } else {
            let adopter = life(&objects);
            if step >= 2 {
                adopter.sealer.seal().unwrap();
            }
            if step == 3 {
                adopter
                    .sealer
                    .maintain(at(60), &Retention::default())
                    .unwrap();
            }
            crash(adopter);
        }
        let adoption = adopt(&objects, WATCH).unwrap();
        assert_eq!(adoption.lost, [], "step {step}");
        crash(check_next(&objects, &expected, 0));
    }
}

/// The collector acknowledged from its own disk, which is lost with all data that is in no table.
#[test]
fn an_empty_folder_for_a_log_records_the_loss_of_a_disk() {
    let [disk, empty] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let objects = Objects::bucket_in_memory();
    let owned = objects.of_another_process();
    let owner = Owner::claim(&owned, Duration::ZERO).unwrap();
    let log = Box::new(log_on_disk(disk.path(), &owned, &owner).unwrap());
    let settings = Settings {
        clock: Clock::from_fn(|| at(50)),
        ..Settings::default()
    };
    let guard = StoreGuard::new(None, Some(owner));
    let mut fleet = fleet_of(Collector::open(settings, owned, log, guard).unwrap(), 1);
    fleet.flush(&[0], "load;main");
    fleet.collector.sealer.seal().unwrap();
    let sealed = sent(&fleet);
    fleet.flush(&[0], "load;main;parse");
    crash(fleet.collector);
    let refused = adopt(&objects, WATCH).unwrap_err();
    assert!(matches!(refused, DataError::LogOnDisk { .. }), "{refused}");
    let log = Some(empty.path().to_owned());
    let options = AdoptionOptions {
        log,
        owner_watch: WATCH,
        ..AdoptionOptions::default()
    };
    let adoption = adopt_in_bucket(objects.of_another_process(), &options).unwrap();
    assert!(!adoption.lost.is_empty(), "{adoption:?}");
    let next = life(&objects);
    assert_eq!(stacks(&ask(&next)), sealed);
    assert!(next.state.tables.manifest().all_lost().count() > 0);
}

/// Other processes read nothing but the tables if the log is on a disk.
#[test]
fn the_tables_show_that_agents_moved_or_ended_without_a_further_flush() {
    let objects = Objects::bucket_in_memory();
    let mut fleet = fleet(&objects, 2);
    fleet.flush(&[0, 1], "load;main");
    let sealer = fleet.collector.sealer.clone();
    assert!(sealer.seal().unwrap());
    let read = || {
        let clock = Clock::from_fn(|| at(50));
        let limits = base::limits::Limits::default();
        let objects = objects.of_another_process();
        CollectorState::open_read_only(clock, limits, objects).unwrap()
    };
    let cells = lock(&fleet.collector.state.registry).all();
    let running = |state: &CollectorState| -> Vec<usize> {
        cells
            .iter()
            .map(|cell: &Arc<SessionCell>| {
                base::sync::read(&state.ledger).running_count(&cell.worker, cell.epoch)
            })
            .collect()
    };
    assert_eq!(running(&read()), [1, 1]);
    let state = &fleet.collector.state;
    state.forget_open(&cells[0].worker, cells[0].epoch);
    let end = cells[1].disconnect(at(60), DisconnectReason::Clean);
    state.end_life(&cells[1], &mut lock(&cells[1].state), end);
    assert!(sealer.seal().unwrap());
    assert_eq!(running(&read()), [0, 0]);
    assert!(!sealer.seal().unwrap(), "nothing has changed since");
    crash(fleet.collector);
}

/// A store in a bucket that `StoreWatch` looks at.
fn watch(objects: &Objects, after: Duration, now: Instant) -> StoreWatch {
    let place = StorePlace::Directory("/none".into());
    let mut watch = StoreWatch::new(place, "own".parse().unwrap(), after, Retention::default());
    let store = OpenStore {
        objects: objects.clone(),
        folder: None,
    };
    watch.add(&"c1".parse().unwrap(), store, now).unwrap();
    watch
}

#[test]
fn a_store_is_due_when_its_owner_is_silent_for_long_and_left_data() {
    const AFTER: Duration = Duration::from_secs(100);
    let objects = Objects::bucket_in_memory();
    let owner = Owner::claim(&objects, Duration::ZERO).unwrap();
    let start = Instant::now();
    let name = "c1".parse().unwrap();
    let mut watch = watch(&objects, AFTER, start);
    let mut look = |seconds: u64| {
        let looked = watch.look(&name, start + Duration::from_secs(seconds), at(60));
        if looked.is_err() {
            watch.note_failure(&name, start + Duration::from_secs(seconds));
        }
        looked.map_err(|error| error.to_string())
    };
    // It beats.
    owner.use_log(LogState::IN_STORE).unwrap();
    assert_eq!(look(90), Ok(false));
    owner.use_log(LogState::IN_STORE).unwrap();
    assert_eq!((look(180), look(279)), (Ok(false), Ok(false)));
    assert_eq!(look(280), Ok(true));
    // It lives after all.
    owner.use_log(LogState::IN_STORE).unwrap();
    assert_eq!(
        (look(290), look(389), look(390)),
        (Ok(false), Ok(false), Ok(true))
    );
    // Its log is on its disk.
    owner.use_log("d1").unwrap();
    assert_eq!((look(400), look(499)), (Ok(false), Ok(false)));
    let error = look(500).unwrap_err();
    assert!(error.contains("acknowledged from its own disk"), "{error}");
    assert_eq!(look(3_000), Ok(false), "it is tried again after an hour");
}
