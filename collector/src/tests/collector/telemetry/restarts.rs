//! Telemetry after a restart of the collector.

use super::*;

/// The result of what waits for the log, which is written meanwhile.
fn logged<T>(collector: &Collector, future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..9 {
        if let std::task::Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        collector.log().commit_waiting();
    }
    panic!("it waits for something else");
}

fn reopened(objects: &Objects, disk: &SimDisk) -> Collector {
    let settings = Settings {
        clock: Clock::from_fn(|| at(600)),
        ..Settings::default()
    };
    Collector::open(
        settings,
        objects.clone(),
        Box::new(disk.clone()),
        StoreGuard::default(),
    )
    .unwrap()
}

/// Content of a collector, as text.
fn known(collector: &Collector) -> Vec<String> {
    let mut known: Vec<String> = read(&collector.state.telemetry)
        .runs()
        .all()
        .map(|row: &Arc<store::rows::RunRow>| format!("{:?} {}", row.run, row.id()))
        .collect();
    known.extend(progress(collector, "task=load"));
    known.push(format!("{:?}", link_sums(collector, &span(0, 100))));
    known.push(format!("{:?}", transfer_ids(collector, &span(0, 100))));
    known.push(format!("{:?}", memory(collector, &span(0, 100), 1)));
    known
}

#[test]
fn telemetry_survives_a_restart_from_the_log_and_from_tables() {
    let objects = Objects::memory();
    let disk = SimDisk::of(Files::new());
    let collector = reopened(&objects, &disk);
    let mut worker = TestWorker::new("w", 1);
    worker.offset_ns = OFFSETS_NS[1];
    let attachment = logged(
        &collector,
        collector
            .ingest
            .attach(&state::testing::account(), worker.hello(), at(50)),
    )
    .unwrap();
    let run = |stop| RunMarker {
        id: RunId(3),
        name: "nightly".into(),
        start: at(20),
        stop,
    };
    let records = Telemetry {
        transfers: vec![transfer(1, EXAMPLE)],
        resources: vec![sample(Sample {
            worker: 0,
            time_ms: 30_000,
            cpu: 8,
        })],
        expected: vec![ExpectedTasks {
            name: "load".into(),
            total: 4,
            since: at(5),
        }],
        runs: vec![run(None)],
        ..Telemetry::default()
    };
    let mut flush = worker.flush(30, vec![]);
    worker.tell(&mut flush, records);
    let dictionary = worker.dictionary().unwrap();
    assert_eq!(
        collector
            .ingest
            .receive_dictionary(&attachment.attachment, &dictionary, at(50)),
        Ok(None)
    );
    let ack = logged(
        &collector,
        collector
            .ingest
            .receive_flush(&attachment.attachment, &flush, at(50)),
    );
    assert!(matches!(ack, Ok(Kind::Ack(_))), "{ack:?}");
    let marked = query::parse_run_start(br#"{"name": "by hand"}"#, &collector.state, at(60));
    logged(&collector, collector.ingest.mark_run(marked.unwrap())).unwrap();

    let before = known(&collector);
    assert_eq!(before.len(), 6, "{before:#?}");
    drop(collector);
    let collector = reopened(&objects, &disk);
    assert_eq!(known(&collector), before, "from the log");
    seal(&collector);
    let stop = query::parse_run_stop(br#"{"name": "by hand"}"#, &collector.state, at(70));
    logged(&collector, collector.ingest.mark_run(stop.unwrap())).unwrap();
    let stopped = known(&collector);
    assert_ne!(stopped, before);
    drop(collector);
    let collector = reopened(&objects, &disk);
    assert_eq!(known(&collector), stopped, "from tables and log");
    seal(&collector);
    drop(collector);
    let collector = reopened(&objects, &disk);
    assert_eq!(known(&collector), stopped, "from tables alone");
}

/// A worker goes and leaves a run open: where that ended is in the tables.
#[test]
fn a_lost_run_stays_lost_after_a_restart() {
    let objects = Objects::memory();
    let disk = SimDisk::of(Files::new());
    let collector = reopened(&objects, &disk);
    let mut worker = TestWorker::new("w", 1);
    let attached = logged(
        &collector,
        collector
            .ingest
            .attach(&state::testing::account(), worker.hello(), at(40)),
    )
    .unwrap();
    let run = RunMarker {
        id: RunId(3),
        name: "nightly".into(),
        start: at(20),
        stop: None,
    };
    let mut flush = worker.flush(30, vec![]);
    worker.tell(
        &mut flush,
        Telemetry {
            runs: vec![run],
            ..Telemetry::default()
        },
    );
    let ack = logged(
        &collector,
        collector
            .ingest
            .receive_flush(&attached.attachment, &flush, at(50)),
    );
    assert!(matches!(ack, Ok(Kind::Ack(_))), "{ack:?}");
    let stops = |collector: &Collector| {
        let records = read(&collector.state.telemetry);
        records
            .runs()
            .all()
            .map(|row: &Arc<store::rows::RunRow>| (row.run.stop, row.stop()))
            .collect::<Vec<_>>()
    };
    assert_eq!(stops(&collector), [(None, None)]);
    seal(&collector);
    collector
        .ingest
        .detach(&attached.attachment, DisconnectReason::Clean, at(60));
    assert_eq!(stops(&collector), [(None, Some(at(50)))]);
    seal(&collector);
    drop(collector);
    let collector = reopened(&objects, &SimDisk::of(Files::new()));
    assert_eq!(stops(&collector), [(None, Some(at(50)))]);
}

#[test]
fn a_run_selects_its_range_and_past_the_limit_the_oldest_is_dropped() {
    let mut fleet = Fleet::new();
    fleet.tell(
        0,
        Telemetry {
            transfers: vec![transfer(1, EXAMPLE)],
            ..Telemetry::default()
        },
    );
    let run = |id, name: &str, start_s, stop_s: Option<i64>| Telemetry {
        runs: vec![RunMarker {
            id: RunId(id),
            name: name.into(),
            start: at(start_s),
            stop: stop_s.map(at),
        }],
        ..Telemetry::default()
    };
    fleet.tell(1, run(1, "nightly", 15, Some(30)));
    fleet.tell(1, run(2, "nightly", 30, None));
    assert_eq!(link_count(&fleet.collector, "run=nightly"), 0);
    assert_eq!(
        link_count(&fleet.collector, "run=nightly@0000000000000009-1"),
        1
    );
    // An ended run does not go on; one that goes on ends now.
    fleet.tell(1, run(1, "nightly", 15, None));
    let ended = transfer_query(&fleet.collector, "run=nightly@0000000000000009-1").range;
    assert_eq!((ended.start(), ended.stop()), (at(15), at(30)));
    let query = transfer_query(&fleet.collector, "run=nightly");
    assert_eq!((query.range.start(), query.range.stop()), (at(30), at(600)));
    assert_eq!(
        refused(&fleet.collector, "run=nightl"),
        "no run is called \"nightl\"; the nearest are: \"nightly\""
    );
    let both = "run already sets the range; omit from and to";
    assert_eq!(refused(&fleet.collector, "run=nightly&from=-5m"), both);

    let mut runs = state::telemetry::Runs::new(2);
    for (id, stop) in [(1, None), (2, Some(9)), (3, Some(9))] {
        runs.put(row(id, stop), None);
    }
    assert_eq!(
        runs.all().map(|row| row.run.id.0).collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(runs.next_id(Timestamp::default()), RunId(4));
}

fn refused(collector: &Collector, text: &str) -> String {
    let query = TransferQuery::parse(&pairs(text), &collector.state, at(600));
    query.unwrap_err().to_string()
}

fn link_count(collector: &Collector, text: &str) -> usize {
    link_sums(collector, text).len()
}

fn row(id: u64, stop: Option<i64>) -> store::rows::RunRow {
    let start = at(id.cast_signed());
    let stop = stop.map(at);
    let run = RunMarker {
        id: RunId(id),
        name: "r".into(),
        start,
        stop,
    };
    store::rows::RunRow::marked(None, profiler_core::Epoch(0), run)
}
