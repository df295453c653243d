//! Effects of messages on sessions, windows and rows, without any network and with a test clock.

use proptest::prelude::*;

use std::collections::VecDeque;

use flamegraph::View;
use profiler_core::Timestamp;
use profiler_core::wire::v1::{self, collector_message::Kind};

use query::Queries;
use query::fleet;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::limits::Limits;
use state::{Collector, Settings};
use store::Objects;

use base::sync::{lock, read, write};
use profiler_core::{
    Filter, Outcome, Profile, State, StateSet, ThreadKind, Ticks, TimeRange, Weight,
};
use query::{By, Cancel, Format, ProfileAnswer, ProfileQuery, TimelineQuery};
use query::{QueryError, TaskQuery, ThreadFilter, WorkersQuery};
use state::events::{EventKind, Subject};
use state::ingest::{Attachment, OpenStream, ReceivedFlush, StaleStream, StreamError};
use state::ledger::{TaskFilter, TaskOrder};
use state::session::Presence;
use state::testing::{SECOND_NS, TestWorker, at, at_once, range};
use state::tree::PhaseFilter;
use state::tree::Tree;
use store::rows::{Disconnect, DisconnectReason};

/// A collector whose clock stands at `now_s` after the tests' start.
fn collector(now_s: i64) -> Collector {
    let clock = Clock::from_fn(move || at(now_s));
    Collector::new(Settings {
        clock,
        ..Settings::default()
    })
}

fn attach(collector: &Collector, worker: &TestWorker, now_s: i64) -> OpenStream {
    at_once(
        collector
            .ingest
            .attach(&state::testing::account(), worker.hello(), at(now_s)),
    )
    .unwrap()
}

/// Sends what the collector lacks of the dictionary, then the flush; gives the answer in words.
fn send(
    collector: &Collector,
    attachment: &Attachment,
    worker: &mut TestWorker,
    flush: &v1::Flush,
) -> String {
    send_at(50, collector, attachment, worker, flush)
}

/// The same, at another time after the tests' start.
fn send_at(
    now_s: i64,
    collector: &Collector,
    attachment: &Attachment,
    worker: &mut TestWorker,
    flush: &v1::Flush,
) -> String {
    while let Some(dictionary) = worker.dictionary() {
        assert_eq!(
            collector
                .ingest
                .receive_dictionary(attachment, &dictionary, at(0))
                .unwrap(),
            None
        );
    }
    let answer = at_once(collector.ingest.receive_flush(attachment, flush, at(now_s)));
    words(answer.map_err(|error| error.to_string()))
}

fn words(answer: Result<Kind, String>) -> String {
    match answer {
        Ok(Kind::Ack(ack)) => format!("ack {}", ack.seq),
        Ok(Kind::Refusal(refusal)) => format!("refused {}: {}", refusal.seq, refusal.reason),
        Ok(other) => format!("{other:?}"),
        Err(error) => error,
    }
}

fn ask(collector: &Collector, range: TimeRange, filter: Filter) -> ProfileAnswer {
    let by = By::Line;
    let format = Format::Json;
    Queries(&collector.state)
        .profile(&whole(range, filter, by, format), &Cancel::default())
        .unwrap()
}

/// A query for all phases, which are not shown.
fn whole(range: TimeRange, filter: Filter, by: By, format: Format) -> ProfileQuery {
    let phases = PhaseFilter::All;
    let phases_shown = false;
    let group = None;
    let groups_max = 100;
    let view = View::default();
    let threads = ThreadFilter::default();
    ProfileQuery {
        range,
        filter,
        phases,
        phases_shown,
        group,
        groups_max,
        by,
        format,
        view,
        threads,
    }
}

fn total_ns(collector: &Collector) -> u64 {
    ask(collector, TimeRange::ALL, Filter::default())
        .profile
        .total()
        .total_ns()
}

/// Every row, as `worker/epoch/id outcome stop`; the stop in seconds after the tests' start.
fn rows(collector: &Collector) -> Vec<String> {
    let snapshot = read(&collector.state.ledger).snapshot(TimeRange::ALL);
    let mut rows: Vec<String> = snapshot
        .rows()
        .map(|row| {
            let stopped_s = row
                .record
                .stop
                .map(|stop| (stop.unix_ns() - at(0).unix_ns()) / SECOND_NS);
            let stop = stopped_s.map_or(String::new(), |stop| format!(" {stop}"));
            let epoch = row.epoch.0;
            let id = row.record.id.0;
            format!(
                "{}/{epoch}/{id} {}{stop}",
                row.worker,
                row.record.outcome.name()
            )
        })
        .collect();
    rows.sort();
    rows
}

/// A collector with one attached worker that has reported two running tasks, at 50 s.
fn with_running_tasks() -> (Collector, TestWorker, Attachment) {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    let tasks = vec![
        worker.task(1, "load", (10, None)),
        worker.task(2, "load", (11, None)),
    ];
    let flush = worker.flush(12, tasks);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    (collector, worker, attachment)
}

const RUNNING: [&str; 2] = ["w/1/1 running", "w/1/2 running"];
const LOST: [&str; 2] = ["w/1/1 lost 50", "w/1/2 lost 50"];

#[test]
fn an_agent_away_past_the_grace_period_loses_its_running_tasks() {
    let (collector, worker, attachment) = with_running_tasks();
    collector
        .ingest
        .detach(&attachment, DisconnectReason::Crashed, at(60));
    collector.ingest.sweep(at(69));
    assert_eq!(rows(&collector), RUNNING);
    collector.ingest.sweep(at(70));
    assert_eq!(rows(&collector), LOST);
    // It was only cut off: it comes back, and its tasks run.
    let again = attach(&collector, &worker, 80);
    assert_eq!(rows(&collector), RUNNING);
    let welcome = again.welcome;
    assert_eq!((welcome.acked_seq, welcome.strings), (1, 2));
    collector.ingest.sweep(at(200));
    assert_eq!(rows(&collector), RUNNING);
}

#[test]
fn a_life_that_ends_says_how() {
    let ended = |reason, swept_s| {
        let (collector, _, attachment) = with_running_tasks();
        collector.ingest.detach(&attachment, reason, at(60));
        collector.ingest.sweep(at(swept_s));
        let presence = lock(&attachment.cell.state).presence;
        let events = collector.state.events.recent(1);
        let Subject::Worker(life) = &events[0].subject else {
            panic!("{events:?}")
        };
        (presence, events[0].kind, life.disconnect)
    };
    for reason in DisconnectReason::ALL {
        let disconnect = Disconnect { at: at(60), reason };
        let gone = (
            Presence::Gone(disconnect),
            EventKind::WorkerGone,
            Some(disconnect),
        );
        let away = (
            Presence::Away(disconnect),
            EventKind::WorkerAway,
            Some(disconnect),
        );
        assert_eq!(ended(reason, 70), gone);
        let is_clean = reason == DisconnectReason::Clean;
        assert_eq!(ended(reason, 69), if is_clean { gone } else { away });
        assert_eq!(reason.next_step(7, "h").is_none(), is_clean);
    }
}

#[test]
fn a_goodbye_ends_running_tasks_as_lost() {
    let (collector, _, attachment) = with_running_tasks();
    collector
        .ingest
        .detach(&attachment, DisconnectReason::Clean, at(60));
    assert_eq!(rows(&collector), LOST);
}

#[test]
fn a_new_epoch_ends_the_absent_one_of_the_worker() {
    let (collector, _, attachment) = with_running_tasks();
    // Two lives at once, as after a fork, are no reason.
    attach(&collector, &TestWorker::new("w", 2), 55);
    attach(&collector, &TestWorker::new("other", 2), 55);
    assert_eq!(rows(&collector), RUNNING);
    collector
        .ingest
        .detach(&attachment, DisconnectReason::Crashed, at(60));
    attach(&collector, &TestWorker::new("other", 3), 61);
    assert_eq!(rows(&collector), RUNNING);
    attach(&collector, &TestWorker::new("w", 3), 61);
    assert_eq!(rows(&collector), LOST);
}

#[test]
fn a_second_live_agent_of_a_worker_is_reported() {
    let (collector, worker, _) = with_running_tasks();
    attach(&collector, &TestWorker::new("other", 2), 55);
    let again = attach(&collector, &worker, 55).attachment;
    assert!(
        duplicated_epochs(&collector).is_empty(),
        "it only connected again"
    );
    attach(&collector, &TestWorker::new("w", 2), 56);
    assert_eq!(duplicated_epochs(&collector), [2]);
    // A life that has ended does not count.
    collector
        .ingest
        .detach(&again, DisconnectReason::Clean, at(60));
    let other = attach(&collector, &TestWorker::new("w", 2), 61).attachment;
    collector
        .ingest
        .detach(&other, DisconnectReason::Clean, at(62));
    attach(&collector, &TestWorker::new("w", 3), 63);
    assert_eq!(duplicated_epochs(&collector), [2]);
}

fn duplicated_epochs(collector: &Collector) -> Vec<u64> {
    let events = collector.state.events.recent(usize::MAX);
    let duplicated = events
        .iter()
        .filter(|event| event.kind == EventKind::WorkerDuplicated);
    duplicated.map(|event| epoch_of(&event.subject)).collect()
}

fn epoch_of(subject: &Subject) -> u64 {
    match subject {
        Subject::Worker(life) => life.epoch.0,
        other => panic!("{other:?}"),
    }
}

#[test]
fn workers_are_listed_in_pages() {
    let collector = collector(50);
    for id in ["a", "b", "c", "d"] {
        attach(&collector, &TestWorker::new(id, 1), 0);
    }
    attach(&collector, &TestWorker::new("b", 2), 1);
    assert_eq!(page(&collector, &[]), ("abbcd".to_owned(), 0));
    assert_eq!(page(&collector, &[("limit", "2")]), ("abb".to_owned(), 2));
    assert_eq!(
        page(&collector, &[("limit", "2"), ("after", "b")]),
        ("cd".to_owned(), 0)
    );
    assert_eq!(
        page(
            &collector,
            &[("worker", "b"), ("worker", "d"), ("limit", "1")]
        ),
        ("bb".to_owned(), 1)
    );
    for limit in ["0", "10001", "x"] {
        let pairs = [("limit".to_owned(), limit.to_owned())];
        let error = WorkersQuery::parse(&pairs, &collector.state)
            .unwrap_err()
            .to_string();
        assert!(error.contains("10000"), "{error}");
    }
}

fn page(collector: &Collector, pairs: &[(&str, &str)]) -> (String, u64) {
    let pairs: Vec<(String, String)> = pairs
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let query = WorkersQuery::parse(&pairs, &collector.state).unwrap();
    let fleet = fleet(collector, &query, at(0));
    let ids = fleet
        .epochs
        .iter()
        .map(|view| view.worker.to_string())
        .collect::<Vec<_>>();
    (ids.concat(), fleet.omitted)
}

#[test]
fn a_later_stream_takes_the_session_over() {
    let (collector, mut worker, first) = with_running_tasks();
    let mut second = attach(&collector, &worker, 60);
    assert!(second.taken_over.try_recv().is_err());
    worker.count("load;main", State::Cpu, 5);
    let flush = worker.flush(13, vec![]);
    assert!(worker.clone().dictionary().is_some());
    let late = at_once(collector.ingest.receive_flush(&first, &flush, at(61)));
    assert_eq!(late, Err(StreamError::Stale(StaleStream)));
    // The end of the older stream says nothing of the life.
    collector
        .ingest
        .detach(&first, DisconnectReason::Clean, at(62));
    assert_eq!(rows(&collector), RUNNING);
    assert_eq!(
        send(&collector, &second.attachment, &mut worker, &flush),
        "ack 2"
    );
    assert_eq!(total_ns(&collector), 5);
}

/// Flushes that wait together are answered as each would be by itself, in their order.
#[test]
fn queued_flushes_get_the_same_answers_as_single_ones() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    let flushes: Vec<v1::Flush> = (1..=5)
        .map(|weight_ns| {
            worker.count("load;main", State::Cpu, weight_ns);
            worker.flush(10, vec![])
        })
        .collect();
    let dictionary = worker.dictionary().unwrap();
    assert_eq!(
        collector
            .ingest
            .receive_dictionary(&attachment, &dictionary, at(0))
            .unwrap(),
        None
    );
    let no_clock = v1::Flush {
        clock: None,
        ..flushes[2].clone()
    };
    let mut waiting: VecDeque<ReceivedFlush> = [
        &flushes[0],
        &flushes[1],
        &flushes[1],
        &no_clock,
        &flushes[3],
    ]
    .iter()
    .map(|flush: &&v1::Flush| ReceivedFlush {
        flush: (*flush).clone(),
        at: at(50),
        charge: None,
        translation: None,
    })
    .collect();
    let mut answers = Vec::new();
    while !waiting.is_empty() {
        answers.push(at_once(collector.ingest.receive_flushes(&attachment, &mut waiting)).unwrap());
    }
    let answers: Vec<_> = answers
        .into_iter()
        .map(|answers: Vec<Kind>| {
            answers
                .into_iter()
                .map(|answer| words(Ok(answer)))
                .collect::<Vec<_>>()
        })
        .collect();
    let refused = "refused 3: the flush's clock is missing";
    let expected: [&[&str]; 4] = [&["ack 1", "ack 2"], &["ack 2"], &[refused], &["ack 4"]];
    assert_eq!(answers, expected);
    assert_eq!(total_ns(&collector), 1 + 2 + 4);
}

#[test]
fn the_session_gone_longest_is_evicted() {
    let limits = Limits {
        sessions_max: 2,
        ..Limits::default()
    };
    let collector = Collector::new(Settings {
        limits,
        ..Settings::default()
    });
    let a = attach(&collector, &worker("a"), 0).attachment;
    let b = attach(&collector, &worker("b"), 0).attachment;
    let refused = at_once(collector.ingest.attach(
        &state::testing::account(),
        worker("c").hello(),
        at(1),
    ))
    .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "2 agents are connected, which is this collector's limit"
    );
    collector.ingest.detach(&b, DisconnectReason::Clean, at(2));
    collector.ingest.detach(&a, DisconnectReason::Clean, at(3));
    attach(&collector, &worker("c"), 4);
    let workers: Vec<String> = collector
        .state
        .workers()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(workers, ["a", "c"]);
}

fn worker(id: &str) -> TestWorker {
    TestWorker::new(id, 1)
}

#[test]
fn a_session_long_gone_frees_its_dictionary_and_keeps_its_sequence_number() {
    let (collector, worker, attachment) = with_running_tasks();
    collector
        .ingest
        .detach(&attachment, DisconnectReason::Clean, at(60));
    collector.ingest.sweep(at(60 + 15 * 60));
    let again = attach(&collector, &worker, 1_000);
    let welcome = again.welcome;
    assert_eq!(
        (welcome.acked_seq, welcome.strings, welcome.nodes),
        (1, 1, 1)
    );
}

/// Stacks with shared prefixes, lines, an agent's thread and a thread outside any task.
const STACKS: [&str; 8] = [
    "load;main",
    "load;main;parse:3",
    "load;main;parse:4",
    "store",
    "store;write;flush",
    "[no task];main;idle",
    "[agent];sampler",
    "load;main;store;write",
];

/// One flush of one of three workers (whose clocks differ): at which second, and what.
type Second = (usize, i64, Vec<(usize, usize, u64)>);

/// Writes to tables what is in none yet.
fn seal(collector: &Collector) {
    collector.sealer.seal().unwrap();
}

mod comparison;
mod damage;
mod groups;
mod imports;
mod invalid;
mod long_windows;
mod lost;
mod many;
mod naming;
mod phases;
mod quotas;
mod rejections;
mod seconds;
mod sums;
mod telemetry;
mod thread_time;
mod times;
mod workers;
