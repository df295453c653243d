use std::collections::{BTreeMap, BTreeSet};

use api::testing::{NOON_NS, task};
use expect_test::expect;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn phase(name: &str, start_ns: i64, duration_ns: u64, count: u32) -> Phase {
    Phase {
        name: name.to_owned(),
        start_ns,
        duration_ns,
        count,
    }
}

fn about(tasks: u64) -> About {
    About {
        from: "2026-01-31T12:00:00Z".to_owned(),
        to: "2026-01-31T12:05:00Z".to_owned(),
        tasks,
        omitted: 0,
        aggregated: 0,
        transfers: 0,
        omitted_transfers: 0,
        corrupt_files: Vec::new(),
    }
}

fn trace_of(tasks: &[Task]) -> String {
    let mut bytes = Vec::new();
    let mut trace = Trace::new(&mut bytes).unwrap();
    trace.write(tasks.to_vec()).unwrap();
    trace.finish(&about(tasks.len() as u64)).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A parent with phases, of which one holds its child; a stranger that overlaps them on the thread; and
/// names that must stay texts.
#[test]
fn a_trace_has_tracks_tasks_phases_and_asynchronous_events() {
    let mut parent = task(7, 12, NOON_NS + 1, 100_000);
    parent.phases = vec![
        phase("queue", NOON_NS - 2_000, 2_001, 1),
        phase("transfer", NOON_NS + 1, 50_000, 1),
        phase("disk-read", NOON_NS + 60_001, 30_000, 4),
        phase("serialize", NOON_NS + 95_001, 5_000, 1),
    ];
    parent.labels = BTreeMap::from([("shard".to_owned(), "7".to_owned())]);
    parent.attempt = Some(2);
    parent.result_bytes = Some(1_024);
    let mut child = task(8, 12, NOON_NS + 1_001, 9_999);
    child.parent = Some(7);
    child.name = "\"},\u{1b}größe".to_owned();
    child.outcome = "failed".into();
    child.cause = "no\nroom".to_owned();
    let stranger = task(9, 12, NOON_NS + 2_000, 500);
    expect![[r#"
        {"displayTimeUnit":"ns","traceEvents":[
        {"ph":"M","name":"process_name","pid":1,"tid":1,"args":{"name":"w-1"}},
        {"ph":"M","name":"process_labels","pid":1,"tid":1,"args":{"labels":"epoch a1"}},
        {"ph":"M","name":"process_sort_index","pid":1,"tid":1,"args":{"sort_index":0}},
        {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"pool-3"}},
        {"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":0}},
        {"ph":"X","cat":"task","name":"load","pid":1,"tid":2,"ts":43200000000.001,"dur":100.000,"args":{"id":7,"key":"load-7","outcome":"ok","thread_id":12,"attempt":2,"result_bytes":1024,"labels":{"shard":"7"},"summed_phases":{"disk-read":{"count":4,"duration_ns":30000}}}},
        {"ph":"b","cat":"async","id":"0x1","name":"queue","pid":1,"tid":2,"ts":43199999998.000,"args":{"task":7,"key":"load-7"}},
        {"ph":"e","cat":"async","id":"0x1","name":"queue","pid":1,"tid":2,"ts":43200000000.001,"args":{}},
        {"ph":"X","cat":"phase","name":"transfer","pid":1,"tid":2,"ts":43200000000.001,"dur":50.000,"args":{}},
        {"ph":"X","cat":"task","name":"\"},\u001bgröße","pid":1,"tid":2,"ts":43200000001.001,"dur":9.999,"args":{"id":8,"key":"load-8","outcome":"failed","cause":"no\nroom","thread_id":12,"parent":7}},
        {"ph":"M","name":"thread_name","pid":1,"tid":5,"args":{"name":"pool-3 (2)"}},
        {"ph":"M","name":"thread_sort_index","pid":1,"tid":5,"args":{"sort_index":1}},
        {"ph":"X","cat":"task","name":"load","pid":1,"tid":5,"ts":43200000002.000,"dur":0.500,"args":{"id":9,"key":"load-9","outcome":"ok","thread_id":12}},
        {"ph":"X","cat":"phase","name":"serialize","pid":1,"tid":2,"ts":43200000095.001,"dur":5.000,"args":{}}
        ],"otherData":{"tool":"emberline 0.1.0","ts_from_unix_ns":1769817600000000000,"from":"2026-01-31T12:00:00Z","to":"2026-01-31T12:05:00Z","tasks":3,"omitted":0,"aggregated":0,"transfers":0,"omitted_transfers":0,"corrupt_files":[]}}
    "#]]
    .assert_eq(&trace_of(&[stranger, child, parent]));
}

/// A transfer of a process with a task, and a failed one of a process without any, which starts earlier.
#[test]
fn transfers_are_pairs_of_their_process() {
    let incoming = Transfer {
        worker: "w-1".to_owned(),
        epoch: "a1".to_owned(),
        id: 4,
        direction: "incoming".into(),
        peer: "w-2".to_owned(),
        keys: vec!["k-1".to_owned()],
        more_keys: 2,
        type_name: "array".to_owned(),
        bytes: 1_000,
        compressed_bytes: Some(250),
        start_ns: NOON_NS + 5_000,
        stop_ns: NOON_NS + 9_001,
        task_id: Some(7),
        thread_id: 12,
        outcome: "ok".into(),
        ..Transfer::default()
    };
    let outgoing = Transfer {
        worker: "w-2".to_owned(),
        direction: "outgoing".into(),
        peer: "\"},\u{1b}".to_owned(),
        start_ns: NOON_NS - 1,
        stop_ns: NOON_NS - 2,
        outcome: "failed".into(),
        cause: "reset".to_owned(),
        ..Transfer::default()
    };
    let mut bytes = Vec::new();
    let mut trace = Trace::new(&mut bytes).unwrap();
    trace
        .write(vec![task(7, 12, NOON_NS + 1, 100_000)])
        .unwrap();
    trace.write_transfers(&[incoming, outgoing]).unwrap();
    trace
        .finish(&About {
            transfers: 2,
            ..about(1)
        })
        .unwrap();
    expect![[r#"
        {"displayTimeUnit":"ns","traceEvents":[
        {"ph":"M","name":"process_name","pid":1,"tid":1,"args":{"name":"w-1"}},
        {"ph":"M","name":"process_labels","pid":1,"tid":1,"args":{"labels":"epoch a1"}},
        {"ph":"M","name":"process_sort_index","pid":1,"tid":1,"args":{"sort_index":0}},
        {"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"pool-3"}},
        {"ph":"M","name":"thread_sort_index","pid":1,"tid":2,"args":{"sort_index":0}},
        {"ph":"X","cat":"task","name":"load","pid":1,"tid":2,"ts":43200000000.001,"dur":100.000,"args":{"id":7,"key":"load-7","outcome":"ok","thread_id":12}},
        {"ph":"b","cat":"transfer","id":"0x1","name":"incoming from w-2","pid":1,"tid":1,"ts":43200000005.000,"args":{"transfer":4,"bytes":1000,"compressed_bytes":250,"type_name":"array","keys":["k-1"],"more_keys":2,"task":7,"thread_id":12,"outcome":"ok"}},
        {"ph":"e","cat":"transfer","id":"0x1","name":"incoming from w-2","pid":1,"tid":1,"ts":43200000009.001,"args":{}},
        {"ph":"M","name":"process_name","pid":3,"tid":3,"args":{"name":"w-2"}},
        {"ph":"M","name":"process_labels","pid":3,"tid":3,"args":{"labels":"epoch "}},
        {"ph":"M","name":"process_sort_index","pid":3,"tid":3,"args":{"sort_index":1}},
        {"ph":"b","cat":"transfer","id":"0x2","name":"outgoing to \"},\u001b","pid":3,"tid":3,"ts":43199999999.999,"args":{"transfer":0,"bytes":0,"thread_id":0,"outcome":"failed","cause":"reset"}},
        {"ph":"e","cat":"transfer","id":"0x2","name":"outgoing to \"},\u001b","pid":3,"tid":3,"ts":43199999999.999,"args":{}}
        ],"otherData":{"tool":"emberline 0.1.0","ts_from_unix_ns":1769817600000000000,"from":"2026-01-31T12:00:00Z","to":"2026-01-31T12:05:00Z","tasks":1,"omitted":0,"aggregated":0,"transfers":2,"omitted_transfers":0,"corrupt_files":[]}}
    "#]]
    .assert_eq(&String::from_utf8(bytes.clone()).unwrap());
    check(&String::from_utf8(bytes).unwrap());
}

#[test]
fn a_trace_of_nothing_is_a_trace() {
    let trace: Value = serde_json::from_str(&trace_of(&[])).unwrap();
    assert_eq!(trace["traceEvents"], serde_json::json!([]));
    assert_eq!(trace["otherData"]["tasks"], 0);
}

/// Nanoseconds of a number that was written as decimal microseconds; nothing is rounded away.
fn nanoseconds(number: &Value) -> i64 {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap();
    let digits = format!("{whole}{fraction:0<3}");
    digits.parse().unwrap()
}

type Track = (u64, u64);
type Shown = (u64, String, i64, i64);

/// Returns the tasks and phases of a trace. Checks the format's rules: complete events of a track come in
/// order and each inside the one before or after it; asynchronous ones are pairs with ids of their own;
/// each process and track has a name.
fn check(text: &str) -> (BTreeSet<Shown>, Vec<(String, i64, i64)>) {
    let trace: Value = serde_json::from_str(text).unwrap();
    let base_ns = trace["otherData"]["ts_from_unix_ns"].as_i64().unwrap();
    let mut tasks = BTreeSet::new();
    let mut phases = Vec::new();
    let mut open: BTreeMap<Track, Vec<(i64, i64)>> = BTreeMap::new();
    let mut pairs: BTreeMap<String, Vec<(Value, i64)>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    let mut ended = BTreeSet::new();
    let mut last_ns = i64::MIN;
    for event in trace["traceEvents"].as_array().unwrap() {
        let track = (
            event["pid"].as_u64().unwrap(),
            event["tid"].as_u64().unwrap(),
        );
        let mut show = |start_ns: i64, stop_ns: i64, event: &Value| {
            let name = event["name"].as_str().unwrap().to_owned();
            match event["args"]["id"].as_u64() {
                Some(id) => assert!(tasks.insert((id, name, start_ns, stop_ns)), "{event} twice"),
                None => phases.push((name, start_ns, stop_ns)),
            }
        };
        match event["ph"].as_str().unwrap() {
            "M" => {
                named.insert(track);
            }
            "X" => {
                let start_ns = base_ns + nanoseconds(&event["ts"]);
                let stop_ns = start_ns + nanoseconds(&event["dur"]);
                assert!(
                    last_ns <= start_ns && start_ns <= stop_ns,
                    "in order: {event}"
                );
                last_ns = start_ns;
                let above = open.entry(track).or_default();
                above.retain(|(_, above_ns)| *above_ns > start_ns);
                let inside = above.iter().all(|(_, above_ns)| stop_ns <= *above_ns);
                assert!(inside && named.contains(&track), "{event} in {above:?}");
                above.push((start_ns, stop_ns));
                show(start_ns, stop_ns, event);
            }
            "b" => {
                let id = event["id"].as_str().unwrap().to_owned();
                assert!(!ended.contains(&id) && named.contains(&track), "{event}");
                let start_ns = base_ns + nanoseconds(&event["ts"]);
                pairs.entry(id).or_default().push((event.clone(), start_ns));
            }
            "e" => {
                let id = event["id"].as_str().unwrap();
                let begun = pairs.get_mut(id).unwrap();
                let (begin, start_ns) = begun.pop().unwrap();
                assert_eq!(begin["name"], event["name"]);
                if begun.is_empty() {
                    pairs.remove(id);
                    ended.insert(id.to_owned());
                }
                show(start_ns, base_ns + nanoseconds(&event["ts"]), &begin);
            }
            other => panic!("{other}"),
        }
    }
    assert!(pairs.is_empty(), "{pairs:?} never end");
    phases.sort();
    (tasks, phases)
}

fn any_task() -> impl Strategy<Value = Task> {
    let phases = prop::collection::vec((-20i64..120, 0u64..60, 1u32..3), 0..4);
    let span = (0i64..100, 0u64..80);
    (0u32..2, span, prop::option::of(0u64..150), phases).prop_map(
        |(thread_id, (start_ns, duration_ns), parent, phases)| {
            let task = task(0, thread_id, NOON_NS + start_ns, duration_ns);
            let mut task = Task { parent, ..task };
            let made = phases.into_iter().map(|(after_ns, duration_ns, count)| {
                phase("transfer", task.start_ns + after_ns, duration_ns, count)
            });
            task.phases = made.collect();
            task
        },
    )
}

proptest! {
    /// Whatever overlaps whatever: the rules of the format hold, and each task and phase is there, to
    /// the nanosecond.
    #[test]
    fn tracks_nest_and_nothing_is_lost(mut tasks in prop::collection::vec(any_task(), 0..150)) {
        (0..).zip(&mut tasks).for_each(|(id, task)| task.id = id);
        let (shown, phases) = check(&trace_of(&tasks));
        let expected = tasks.iter().map(|t| (t.id, t.name.clone(), t.start_ns, end_ns(t)));
        prop_assert_eq!(shown, expected.collect::<BTreeSet<Shown>>());
        let mut single: Vec<_> = tasks.iter().flat_map(|task| &task.phases).filter(|phase| phase.count == 1)
            .map(|phase| {
                let interval = Interval::of_phase(phase);
                (phase.name.clone(), interval.start_ns, interval.stop_ns)
            })
            .collect();
        single.sort();
        prop_assert_eq!(phases, single);
    }
}

/// More tasks at once than a thread has tracks: the others are pairs of events, and all are shown.
#[test]
fn past_the_limit_of_tracks_tasks_are_asynchronous() {
    let count = LANES_MAX as u64 + 10;
    let mut tasks: Vec<Task> = (0..count)
        .map(|id| task(id, 1, NOON_NS + id as i64, 1_000))
        .collect();
    for task in &mut tasks {
        task.phases = vec![phase("transfer", task.start_ns + 5, 10, 1)];
    }
    let text = trace_of(&tasks);
    let (shown, phases) = check(&text);
    assert_eq!((shown.len() as u64, phases.len() as u64), (count, count));
    assert_eq!(
        text.matches("\"ph\":\"b\"").count(),
        20,
        "ten tasks, a phase each"
    );
    assert_eq!(text.matches("\"thread_name\"").count(), LANES_MAX);
}

/// A time far from the others, such as that of a hostile worker, is written without overflow.
#[test]
fn the_ends_of_time_can_be_written() {
    let tasks = [
        task(1, 1, i64::MIN, u64::MAX),
        task(2, 1, i64::MAX, u64::MAX),
    ];
    let trace: Value = serde_json::from_str(&trace_of(&tasks)).unwrap();
    assert_eq!(trace["otherData"]["tasks"], 2);
}
