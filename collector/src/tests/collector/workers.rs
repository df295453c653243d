//! Fleets that are larger than a list.

use std::thread;
use std::time::{Duration, Instant};

use api::{LabelCount, WorkerNamesAnswer};
use profiler_core::Epoch;

use super::*;
use base::limits::ROLLUPS_KEPT;
use query::Queries;
use query::fleet;
use query::{FleetView, WorkerNamesQuery};
use state::session::FlushChecker;

const PATIENCE: Duration = Duration::from_secs(20);

fn parsed(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

/// The listed workers, `now_s` after the tests' start.
fn listed(collector: &Collector, pairs: &[(&str, &str)], now_s: i64) -> FleetView {
    let query = WorkersQuery::parse(&parsed(pairs), &collector.state).unwrap();
    fleet(collector, &query, at(now_s))
}

fn ids(fleet: &FleetView) -> String {
    fleet
        .epochs
        .iter()
        .map(|view| view.worker.to_string())
        .collect()
}

#[test]
fn workers_that_need_attention_come_first() {
    let collector = collector(50);
    let attached = ["a", "b", "c", "d", "e", "f"].map(|id| {
        let worker = TestWorker::new(id, 1);
        let attachment = attach(&collector, &worker, 50).attachment;
        (worker, attachment)
    });
    let [_, (_, b), (mut lossy, c), (_, d), (_, e), _] = attached;
    // A rejected message; a crash; a stop; a crash before a restart.
    lossy.count("load;main", State::Cpu, 3);
    let mut flush = lossy.flush(50, vec![]);
    flush.clock = None;
    assert!(send(&collector, &c, &mut lossy, &flush).starts_with("refused"));
    for (attachment, reason) in [
        (&b, DisconnectReason::Clean),
        (&d, DisconnectReason::Crashed),
        (&e, DisconnectReason::Crashed),
    ] {
        collector.ingest.detach(attachment, reason, at(51));
    }
    attach(&collector, &TestWorker::new("e", 2), 52);

    let fleet = listed(&collector, &[("sort", "attention")], 53);
    assert_eq!(ids(&fleet), "dceeabf");
    let counts = fleet.counts;
    assert_eq!((counts.connected, counts.away + counts.gone), (4, 2));
    assert_eq!((counts.need_attention, fleet.omitted), (3, 0));
    let newest = fleet.epochs[3].epoch;
    assert_eq!(newest, Epoch(2), "the newest life is the last");

    let fleet = listed(&collector, &[("sort", "attention"), ("limit", "1")], 53);
    assert_eq!((ids(&fleet).as_str(), fleet.omitted), ("d", 5));
    assert_eq!(fleet.counts, counts, "they are of all workers");
    // Connected, but silent. An end says more than silence, and the order of ids decides.
    let fleet = listed(&collector, &[("sort", "attention"), ("limit", "4")], 60);
    assert_eq!(
        (ids(&fleet).as_str(), fleet.counts.need_attention),
        ("acdee", 5)
    );

    let pairs = parsed(&[("sort", "attention"), ("after", "b")]);
    let error = WorkersQuery::parse(&pairs, &collector.state)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "after needs the order of ids; omit sort=attention");
}

#[test]
fn menus_find_workers_and_labels_by_a_part_of_their_name() {
    let collector = collector(50);
    for (id, zone) in [
        ("Load-1", "north"),
        ("load-2", "south"),
        ("save-1", "south"),
    ] {
        let mut worker = TestWorker::new(id, 1);
        worker.zone = zone.to_owned();
        worker.host = format!("host-of-{id}");
        attach(&collector, &worker, 0);
    }
    let names = |pairs: &[(&str, &str)]| {
        let query = WorkerNamesQuery::parse(&parsed(pairs)).unwrap();
        Queries(&collector.state).worker_names(&query)
    };

    let all = names(&[]);
    assert_eq!(worker_ids(&all), ["Load-1", "load-2", "save-1"]);
    assert_eq!(all.workers[2].host, "host-of-save-1");
    assert_eq!(all.labels, [label("zone=south", 2), label("zone=north", 1)]);
    assert_eq!((all.omitted, all.labels_omitted), (0, 0));

    let first = names(&[("limit", "1")]);
    assert_eq!(
        (worker_ids(&first), first.omitted),
        (vec!["Load-1".to_owned()], 2)
    );
    assert_eq!(
        (first.labels, first.labels_omitted),
        (vec![label("zone=south", 2)], 1)
    );

    let found = names(&[("text", "lOAD")]);
    assert_eq!((worker_ids(&found).len(), found.labels.len()), (2, 0));
    // Labels count workers whose ids do not have the text.
    let found = names(&[("text", "south")]);
    assert_eq!(
        (worker_ids(&found).len(), found.labels),
        (0, vec![label("zone=south", 2)])
    );
    for limit in ["0", "1001", "x"] {
        let error = WorkerNamesQuery::parse(&parsed(&[("limit", limit)]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("1000"), "{error}");
    }
}

fn worker_ids(names: &WorkerNamesAnswer) -> Vec<String> {
    names
        .workers
        .iter()
        .map(|worker| worker.worker.clone())
        .collect::<Vec<_>>()
}

fn label(label: &str, workers: u64) -> LabelCount {
    LabelCount {
        label: label.to_owned(),
        workers,
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// A worker that has counted time and a task, its stream, and its flush. The collector has the dictionary.
fn ready(collector: &Collector) -> (Attachment, v1::Flush) {
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(collector, &worker, 50).attachment;
    worker.count("load;main", State::Cpu, 3);
    let task = worker.task(1, "load", (50, Some(51)));
    let flush = worker.flush(50, vec![task]);
    while let Some(dictionary) = worker.dictionary() {
        collector
            .ingest
            .receive_dictionary(&attachment, &dictionary, at(50))
            .unwrap();
    }
    (attachment, flush)
}

/// A list of workers locks each session, and the check of a large flush takes tens of milliseconds.
#[test]
fn a_session_is_unlocked_while_its_flush_is_checked() {
    let collector = collector(50);
    let (attachment, flush) = ready(&collector);
    // The check reads the tree.
    let tree = write(&collector.state.tree);
    thread::scope(|scope| {
        let receiving =
            scope.spawn(|| at_once(collector.ingest.receive_flush(&attachment, &flush, at(51))));
        wait_until("the session is unlocked during the check", || {
            let session = attachment.cell.state.try_lock();
            session.is_ok_and(|session| session.last_seen == at(51))
        });
        drop(tree);
        assert!(matches!(
            receiving.join().unwrap(),
            Ok(Kind::Ack(v1::Ack { seq: 1, .. }))
        ));
    });
}

#[test]
fn a_session_is_unlocked_while_its_flush_is_inserted() {
    let collector = collector(50);
    let state = &collector.state;
    let (attachment, flush) = ready(&collector);
    let cell = &*attachment.cell;
    let basis = lock(&cell.state).flush_basis();
    let checker = FlushChecker {
        worker: &cell.worker,
        epoch: cell.epoch,
        basis: &basis,
        translation: &basis.translation,
        tree: &state.tree,
        now: at(51),
        kept: state::session::Retained {
            option: "--retention-rollups",
            time: ROLLUPS_KEPT,
        },
        tasks_max: 1,
    };
    let checked = checker.check(&flush).unwrap();
    let ledger = write(&state.ledger);
    thread::scope(|scope| {
        let inserting = scope.spawn(|| state.apply(cell, vec![checked]));
        wait_until("the window is inserted before the tasks", || {
            state
                .windows
                .try_write()
                .is_ok_and(|windows| windows.count() == 1)
        });
        wait_until("the session is unlocked meanwhile", || {
            cell.state.try_lock().is_ok()
        });
        drop(ledger);
        inserting.join().unwrap();
    });
    assert_eq!(lock(&cell.state).acked_seq, 1);
}

/// Ten thousand processes of one program begin with the same names.
#[test]
fn names_and_stacks_that_the_tree_has_need_it_for_reading_only() {
    let collector = collector(50);
    let mut dictionaries = Vec::new();
    let mut attachments = Vec::new();
    for name in ["first", "second"] {
        let mut worker = TestWorker::with_room(name, 1, 1 << 20);
        attachments.push(attach(&collector, &worker, 0).attachment);
        (0..5_000).for_each(|n| worker.count(&format!("load;function-{n}"), State::Cpu, 1));
        dictionaries.push(worker.dictionary().unwrap());
    }
    let apply = |index: usize| {
        let dictionary = &dictionaries[index];
        let answer = collector
            .ingest
            .receive_dictionary(&attachments[index], dictionary, at(50));
        assert_eq!(answer, Ok(None));
    };
    apply(0);
    thread::scope(|scope| {
        let tree = read(&collector.state.tree);
        let nodes = tree.node_count();
        let applying = scope.spawn(|| apply(1));
        wait_until("the second is applied", || applying.is_finished());
        assert_eq!(tree.node_count(), nodes);
    });
    let [first, second] = [0, 1].map(|index: usize| {
        let session = lock(&attachments[index].cell.state);
        let bytes = session.translation.bytes();
        assert!(
            bytes < 1_024,
            "{bytes} bytes for 10,000 entries in the order of the tree"
        );
        let node = session.translation.node(profiler_core::NodeId(4_000));
        (session.translation.marks(), node)
    });
    assert_eq!(first, second);
}
