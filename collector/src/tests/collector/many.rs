//! A fleet with more names and stacks than anybody looks at: past a limit detail is lost, totals are not.

use super::*;
use base::limits::{DICTIONARY_SLICE_ENTRIES, Limits, RESERVED_NAMES_MAX};
use query::Queries;
use query::fleet;
use query::{SummaryRow, TaskComparisonQuery};
use shares::Account;
use state::ingest::{PendingDictionary, SliceOutcome};

const WORKERS: usize = 100;
/// As many as one agent may have.
const NAMES: usize = profiler_core::limits::AGENT_TASK_NAMES_MAX;
const ENDED: usize = 1_000;

fn collector_with(limits: Limits) -> Collector {
    let clock = Clock::from_fn(|| at(50));
    Collector::new(Settings {
        clock,
        limits,
        ..Settings::default()
    })
}

/// Each of `workers` counts a stack of two in each of its own tasks, and ends tasks without
/// samples. Returns the total weight.
fn feed(collector: &Collector, workers: usize, names: usize, ended: usize) -> u64 {
    let mut total_ns = 0;
    for index in 0..workers {
        let mut worker = TestWorker::with_room(&format!("w{index}"), 1, 1 << 20);
        let attachment = attach(collector, &worker, 0).attachment;
        for name in 0..names {
            let weight_ns = (index * names + name) as u64 % 1_000 + 1;
            worker.count(&format!("task-{index}-{name};main"), State::Cpu, weight_ns);
            total_ns += weight_ns;
        }
        let tasks = (0..ended)
            .map(|id| {
                let name = format!("ended-{index}-{id}");
                worker.task(id as u64 + 1, &name, (10, Some(11)))
            })
            .collect();
        let flush = worker.flush(10, tasks);
        assert_eq!(send(collector, &attachment, &mut worker, &flush), "ack 1");
    }
    total_ns
}

/// A dictionary takes the tree and the session for one slice at a time, so neither the flushes of
/// others nor queries wait for all of it.
#[test]
fn others_are_served_between_the_slices_of_a_large_dictionary() {
    let collector = collector_with(Limits::default());
    let mut large = TestWorker::with_room("large", 1, 1 << 20);
    let attachment = attach(&collector, &large, 0).attachment;
    let mut honest = TestWorker::new("honest", 1);
    let served = attach(&collector, &honest, 0).attachment;
    (0..9_000).for_each(|n| large.count(&format!("load;function-{n}"), State::Cpu, 1));
    let flush = large.flush(10, vec![]);
    let dictionary = large.dictionary().unwrap();
    let entries = dictionary.strings.len() + dictionary.frames.len() + dictionary.node_frames.len();
    let mut pending = PendingDictionary::new(&dictionary);
    let mut slices = 1;
    while collector
        .ingest
        .apply_slice(&attachment, &mut pending, at(50))
        .unwrap()
        == SliceOutcome::More
    {
        honest.count(&format!("load;between-{slices}"), State::Cpu, 7);
        let flush = honest.flush(10, vec![]);
        let answer = send(&collector, &served, &mut honest, &flush);
        assert_eq!(answer, format!("ack {slices}"));
        assert_eq!(total_ns(&collector), 7 * slices);
        assert_eq!(
            fleet(&collector, &Default::default(), at(0)).epochs.len(),
            2
        );
        slices += 1;
    }
    assert_eq!(slices, entries.div_ceil(DICTIONARY_SLICE_ENTRIES) as u64);
    assert!(slices > 5, "{slices} slices");
    assert_eq!(send(&collector, &attachment, &mut large, &flush), "ack 1");
    assert_eq!(total_ns(&collector), 7 * (slices - 1) + 9_000);
}

/// Another stream may apply more of the same tables between two slices.
#[test]
fn slices_of_a_stream_that_was_taken_over_change_nothing() {
    let collector = collector_with(Limits::default());
    let mut worker = TestWorker::with_room("w", 1, 1 << 20);
    let first = attach(&collector, &worker, 0).attachment;
    (0..9_000).for_each(|n| worker.count(&format!("load;function-{n}"), State::Cpu, 1));
    let flush = worker.flush(10, vec![]);
    let dictionary = worker.dictionary().unwrap();
    let mut pending = PendingDictionary::new(&dictionary);
    let applied = collector.ingest.apply_slice(&first, &mut pending, at(50));
    assert_eq!(applied, Ok(SliceOutcome::More));
    let OpenStream {
        attachment,
        welcome,
        ..
    } = attach(&collector, &worker, 1);
    assert_eq!(welcome.strings, DICTIONARY_SLICE_ENTRIES as u32 + 1);
    let stale = collector.ingest.apply_slice(&first, &mut pending, at(50));
    assert_eq!(stale, Err(StaleStream));
    worker.resume(welcome.strings, welcome.frames, welcome.nodes);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    assert_eq!(total_ns(&collector), 9_000);
}

fn summary(collector: &Collector, pairs: &[(&str, &str)]) -> Vec<SummaryRow> {
    let pairs: Vec<_> = pairs
        .iter()
        .chain(&[("summary", "true")])
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let query = TaskQuery::parse(&pairs, &collector.state, at(50)).unwrap();
    Queries(&collector.state)
        .task_summary(&query, &Cancel::default())
        .unwrap()
        .rows
}

fn ended(rows: &[SummaryRow]) -> u64 {
    rows.iter().map(|row| row.outcomes.get(Outcome::Ok)).sum()
}

/// Checks that every answer sums to `total`, whatever the query.
fn check(collector: &Collector, total: u64) {
    assert_eq!(total_ns(collector), total);
    let query = TimelineQuery::of(range(0, 20), Filter::default(), 5 * SECOND_NS as u64);
    let timeline = Queries(&collector.state)
        .timeline(&query, &Cancel::default())
        .unwrap();
    let weights = timeline.series.iter().flat_map(|series| &series.weights);
    assert_eq!(weights.map(Weight::total_ns).sum::<u64>(), total);
}

/// A million unsealed; a sealing writes each into every tier, so fewer of them (a million took 15 s).
#[test]
#[ignore = "long"]
fn a_million_names_and_stacks_sum_exactly() {
    for (workers, is_sealed) in [(WORKERS, false), (WORKERS / 10, true)] {
        let collector = collector_with(Limits::default());
        let total = feed(&collector, workers, NAMES, ENDED);
        // Each worker is another identity, which may add some although the first one has used up all.
        let per_worker = NAMES + RESERVED_NAMES_MAX;
        assert_eq!(
            read(&collector.state.tree).task_names().len(),
            workers * per_worker
        );
        if is_sealed {
            seal(&collector);
        }
        check(&collector, total);
        let rows = summary(&collector, &[]);
        assert_eq!(ended(&rows), (workers * ENDED) as u64);
        assert!(
            rows.len() <= collector.state.limits.ledger_names_max + 1,
            "{} names",
            rows.len()
        );
        assert_eq!(
            rows.iter().any(|row| &*row.name == "[overflow]"),
            is_sealed || workers > 10
        );
        // A name that is one of too many is still found by those who know it.
        for name in ["ended-0-0".to_owned(), format!("ended-{}-999", workers - 1)] {
            assert_eq!(
                ended(&summary(&collector, &[("task", &name)])),
                1,
                "{name} {is_sealed}"
            );
        }
        if is_sealed {
            assert_eq!(
                summary(&collector, &[("task", "ended-7-x")]),
                [],
                "it may be among them"
            );
        }
    }
}

/// The stranger's names come first and are more than have totals of their own.
#[test]
fn a_name_with_time_is_shown_however_many_names_a_stranger_sends() {
    const SENT: u64 = 10_500;
    for is_sealed in [false, true] {
        let collector = collector_with(Limits::default());
        let mut stranger = TestWorker::new("stranger", 1);
        let attachment = attach(&collector, &stranger, 0).attachment;
        for half in [0..SENT / 2, SENT / 2..SENT] {
            let tasks = half
                .map(|id| stranger.task(id + 1, &format!("z-{id}"), (10, Some(11))))
                .collect();
            let flush = stranger.flush(11, tasks);
            assert!(send(&collector, &attachment, &mut stranger, &flush).starts_with("ack"));
        }
        if is_sealed {
            seal(&collector);
        }
        let mut honest = TestWorker::new("honest", 2);
        let hello = honest.hello();
        let attached = at_once(collector.ingest.attach(&Account::of_test(2), hello, at(0)));
        let tasks = vec![honest.task(1, "honest-task", (10, Some(15)))];
        let flush = honest.flush(15, tasks);
        let attachment = attached.unwrap().attachment;
        assert_eq!(send(&collector, &attachment, &mut honest, &flush), "ack 1");
        if is_sealed {
            seal(&collector);
        }

        let rows = summary(&collector, &[]);
        let own = rows.iter().find(|row| &*row.name == "honest-task");
        assert!(
            own.is_some_and(|row| row.outcomes.get(Outcome::Ok) == 1),
            "sealed: {is_sealed}"
        );
        assert_eq!(ended(&rows), SENT + 1);
        assert!(rows.len() <= collector.state.limits.ledger_names_max + 1);
        let pairs = [("from", "1000000"), ("to", "1000050"), ("limit", "10000")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let query = TaskComparisonQuery::parse(&pairs, &collector.state, at(50)).unwrap();
        let compared = Queries(&collector.state)
            .task_comparison(&query, &Cancel::default())
            .unwrap();
        let ended = compared
            .names
            .iter()
            .map(|row| row.after.ended)
            .sum::<u64>();
        // An omitted name has one task.
        assert_eq!(
            ended + compared.omitted as u64,
            SENT + 1,
            "sealed: {is_sealed}"
        );
        assert!(
            compared.names.iter().any(|row| row.name == "honest-task"),
            "sealed: {is_sealed}"
        );
        let metrics = collector.state.task_counters.by_name();
        assert!(metrics.contains_key("honest-task"));
    }
}

#[test]
fn past_every_limit_totals_stay_exact() {
    for limits in [
        Limits {
            tree_nodes_max: 5_000,
            ..Limits::default()
        },
        Limits {
            tree_nodes_max: 1,
            ..Limits::default()
        },
        Limits {
            symbol_bytes_max: 1 << 20,
            ..Limits::default()
        },
        Limits {
            ledger_names_max: 10,
            ledger_rows_max: 1,
            ..Limits::default()
        },
    ] {
        let collector = collector_with(limits.clone());
        let total = feed(&collector, 10, 1_000, 100);
        for is_sealed in [false, true] {
            if is_sealed {
                seal(&collector);
            }
            check(&collector, total);
            assert_eq!(
                ended(&summary(&collector, &[])),
                1_000,
                "{limits:?} {is_sealed}"
            );
        }
        let nodes = read(&collector.state.tree).node_count() as usize;
        assert!(
            nodes <= limits.tree_nodes_max.max(20_000) + 2_000,
            "{nodes} {limits:?}"
        );
    }
}

/// An agent cuts its stacks; what does not adds no more nodes than the limit on depth.
#[test]
fn a_stack_of_an_endless_recursion_is_cut() {
    let collector = collector(50);
    let attachment = attach(&collector, &TestWorker::new("endless", 1), 0).attachment;
    let frame = v1::Frame {
        function: 1,
        ..Default::default()
    };
    let chain = v1::Dictionary {
        string_base: 1,
        strings: vec!["recursive".to_owned()],
        frames: vec![frame],
        node_base: 1,
        node_parent_gaps: vec![1; 100_000],
        node_frames: vec![0; 100_000],
        ..Default::default()
    };
    let refused = collector
        .ingest
        .receive_dictionary(&attachment, &chain, at(0))
        .unwrap();
    assert_eq!(refused, None);
    let marks = lock(&attachment.cell.state).translation.marks();
    assert_eq!((marks.strings, marks.frames, marks.nodes), (2, 1, 100_001));
    // The root, 1,000 levels, and `[truncated]` in place of the last one.
    assert_eq!(read(&collector.state.tree).node_count(), 1_002);
    let view = &fleet(&collector, &Default::default(), at(0)).epochs[0];
    let reason = "99000 entries of a dictionary, stored as [truncated] or [overflow]: the depth of a stack is \
                  1001; at most 1000 is allowed";
    assert_eq!(
        (view.rejected, view.last_rejection.as_deref()),
        (1, Some(reason))
    );
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    let deep = format!("load{}", ";f".repeat(998));
    worker.count(&deep, State::Cpu, 7);
    let flush = worker.flush(1, vec![]);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    assert_eq!(total_ns(&collector), 7);
}

#[test]
fn labels_are_bounded_for_each_worker_and_for_all() {
    let limits = Limits {
        label_bytes_max: 3_000,
        sessions_max: 3,
        ..Limits::default()
    };
    let collector = collector_with(limits);
    let labels = |bytes: usize| [("key".to_owned(), "x".repeat(bytes))].into();
    let greet = |id: &str, epoch, bytes| {
        let worker = TestWorker::new(id, epoch);
        let hello = v1::Hello {
            labels: labels(bytes),
            ..worker.hello()
        };
        let attached = at_once(
            collector
                .ingest
                .attach(&state::testing::account(), hello, at(0)),
        )
        .unwrap();
        let epochs = fleet(&collector, &Default::default(), at(0)).epochs;
        let own = epochs
            .iter()
            .find(|view| *view.worker.0 == *id && view.epoch.0 == epoch)
            .unwrap();
        (
            own.agent
                .labels
                .iter()
                .map(|(key, value)| format!("{key} {}", value.len()))
                .collect::<Vec<_>>(),
            attached.attachment,
        )
    };
    assert_eq!(greet("a", 1, 1_000).0, ["key 1000"]);
    let (held, second) = greet("b", 1, 1_500);
    assert_eq!(held, ["key 1500"]);
    assert_eq!(greet("c", 1, 500).0, ["[overflow] 1"]);
    // A worker that reports less makes room, and so does one that is evicted.
    assert_eq!(greet("a", 1, 10).0, ["key 10"]);
    assert_eq!(greet("c", 1, 900).0, ["key 900"]);
    collector
        .ingest
        .detach(&second, DisconnectReason::Clean, at(1));
    assert_eq!(greet("d", 1, 1_500).0, ["key 1500"]);
    let many = (0..65)
        .map(|index| (index.to_string(), String::new()))
        .collect();
    let hello = v1::Hello {
        labels: many,
        ..TestWorker::new("a", 1).hello()
    };
    let refused = at_once(
        collector
            .ingest
            .attach(&state::testing::account(), hello, at(0)),
    )
    .unwrap_err()
    .to_string();
    assert_eq!(refused, "the worker has 65 labels; at most 64 are allowed");
}
