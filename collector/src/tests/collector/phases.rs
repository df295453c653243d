//! PhaseFilter: of samples, in every form of a profile; of tasks, as rows and as sums.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use profiler_core::{PhaseInterval, TaskDetail, TaskTotals};

use super::*;
use base::limits::{BEHIND_MAX, nanoseconds};
use query::Queries;
use query::{GroupBy, SummaryRow};
use state::ledger::bucket;

/// With phases and without, in a task and not.
const STACKS: [&str; 7] = [
    "load;main",
    "load;@transfer;main;read",
    "load;@transfer;main",
    "load;@my own;main;read",
    "store;@transfer",
    "[no task];main",
    "load;main;read",
];

/// One flush of one of three workers: at which second, and what.
type Second = (usize, i64, Vec<(usize, usize, u64)>);

fn seconds() -> impl Strategy<Value = Vec<Second>> {
    let count = (0..STACKS.len(), 0..State::ALL.len(), 1..1_000u64);
    prop::collection::vec(
        (0..3usize, 0..40i64, prop::collection::vec(count, 0..6)),
        0..12,
    )
}

/// The own time of each path, with the kinds of what is no function.
fn paths(profile: &Profile) -> BTreeMap<String, u64> {
    let mut paths = vec![String::new()];
    let mut times = BTreeMap::new();
    for node in profile.nodes() {
        let frame = profile.frame(node.frame);
        let mark = match frame.kind {
            profiler_core::FrameKind::Phase => "@",
            profiler_core::FrameKind::Group => "^",
            _ => "",
        };
        let path = format!("{};{mark}{}", paths[node.parent.index()], frame.function)
            .trim_start_matches(';')
            .to_owned();
        if !node.own.is_zero() {
            *times.entry(path.clone()).or_default() += node.own.total_ns();
        }
        paths.push(path);
    }
    times
}

/// The phase of a stack; `None` outside any task.
fn phase_of(stack: &str) -> Option<&str> {
    let (task, rest) = stack.split_once(';').unwrap_or((stack, ""));
    let phase = rest
        .strip_prefix('@')
        .map(|rest| rest.split(';').next().unwrap());
    (task != "[no task]").then_some(phase.unwrap_or("execute"))
}

fn without_phase(stack: &str) -> String {
    let frames = stack.split(';').filter(|name| !name.starts_with('@'));
    frames.collect::<Vec<_>>().join(";")
}

proptest! {
    /// Whatever is shown, kept or grouped by: the answer is what was counted, stack by stack, from
    /// memory and from tables.
    #[test]
    fn profiles_are_split_by_phase_and_group(
        seconds in seconds(), asked in prop::sample::select(vec!["", "transfer", "execute", "queue"]),
        phases_shown in any::<bool>(), group in 0..5usize,
        sealed_after in prop::collection::vec(0..12usize, 0..3),
        states in prop::sample::subsequence(&State::ALL[..], 1..=State::ALL.len()),
    ) {
        let collector = collector(50);
        let mut workers: Vec<(TestWorker, Attachment)> = (0..3).map(|index| {
            let mut worker = TestWorker::new(&format!("w{index}"), 7);
            worker.host = format!("host-{}", index % 2);
            worker.zone = format!("z{}", index / 2);
            let attachment = attach(&collector, &worker, 0).attachment;
            (worker, attachment)
        }).collect();
        let states: StateSet = states.into_iter().collect();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (index, (number, start_s, counts)) in seconds.iter().enumerate() {
            let (worker, attachment) = &mut workers[*number];
            for (stack, state, weight_ns) in counts {
                let stack = STACKS[*stack];
                let state = State::ALL[*state];
                worker.count(stack, state, *weight_ns);
                let phase = phase_of(stack);
                if !states.contains(state) || (!asked.is_empty() && phase != Some(asked)) {
                    continue;
                }
                let group = match group {
                    0 => String::new(),
                    1 => format!("^w{number};"),
                    2 => format!("^host-{};", number % 2),
                    3 => format!("^z{};", number / 2),
                    _ => format!("^{};", phase.unwrap_or("[no task]")),
                };
                let path = if phases_shown { stack.to_owned() } else { without_phase(stack) };
                *expected.entry(format!("{group}{path}")).or_default() += weight_ns;
            }
            let flush = worker.flush(*start_s, vec![]);
            prop_assert!(send(&collector, attachment, worker, &flush).starts_with("ack"));
            if sealed_after.contains(&index) {
                seal(&collector);
            }
        }
        let phases = match asked {
            "" => PhaseFilter::All,
            name => PhaseFilter::Named(vec![name.to_owned()]),
        };
        let group = match group {
            0 => None,
            1 => Some(GroupBy::Worker),
            2 => Some(GroupBy::Host),
            3 => Some(GroupBy::Label("zone".to_owned())),
            _ => Some(GroupBy::Phase),
        };
        let filter = Filter { states, ..Filter::default() };
        let by = By::Function;
        let format = Format::Json;
        let query = ProfileQuery {
            phases: phases.clone(), phases_shown, group: group.clone(), by, format,
            ..ProfileQuery::of(TimeRange::ALL, filter.clone())
        };
        let answer = Queries(&collector.state).profile(&query, &Cancel::default()).unwrap();
        let found = paths(&answer.profile);
        prop_assert_eq!(&found, &expected);

        let by_group = group.is_some();
        let query = TimelineQuery {
            phases,
            group: group.unwrap_or(GroupBy::Task),
            ..TimelineQuery::of(range(0, 50), filter, 60_000_000_000)
        };
        let timeline = Queries(&collector.state).timeline(&query, &Cancel::default()).unwrap();
        let total = |line: &query::Series| line.weights.iter().map(Weight::total_ns).sum::<u64>();
        prop_assert_eq!(timeline.series.iter().map(total).sum::<u64>(), expected.values().sum::<u64>());
        if by_group {
            let found: BTreeMap<String, u64> = timeline.series.iter().map(|line| (line.name.clone(), total(line))).collect();
            let mut groups: BTreeMap<String, u64> = BTreeMap::new();
            for (path, time_ns) in &expected {
                let group = path[1..].split(';').next().unwrap();
                *groups.entry(group.to_owned()).or_default() += time_ns;
            }
            prop_assert_eq!(found, groups);
        }
    }
}

fn phase(name: &str, start_ns: i64, duration_ns: u64, count: u32) -> PhaseInterval {
    PhaseInterval {
        name: name.into(),
        start_ns,
        duration_ns,
        count,
    }
}

/// Two seconds of a task: half a second in a transfer, twice.
fn detail() -> TaskDetail {
    TaskDetail {
        attempt: 2,
        result_bytes: Some(77),
        type_name: "Vec<u8>".into(),
        labels: vec![("k".into(), "v".into())],
        phases: vec![
            phase("queue", -3_000, 3_000, 1),
            phase("transfer", 0, 250_000_000, 1),
            phase("transfer", 500_000_000, 250_000_000, 1),
        ],
    }
}

fn summary(collector: &Collector, range: Option<TimeRange>) -> (Vec<SummaryRow>, u64) {
    let query = TaskQuery {
        given_range: range,
        range: range.unwrap_or(TimeRange::ALL),
        filter: TaskFilter::default(),
        limit: 100,
        order: TaskOrder::Start,
        summary: true,
        format: query::TaskFormat::Json,
    };
    let rows = Queries(&collector.state)
        .tasks(&query, &Cancel::default())
        .unwrap();
    let answer = Queries(&collector.state)
        .task_summary(&query, &Cancel::default())
        .unwrap();
    assert_eq!(rows.aggregated, answer.aggregated);
    (answer.rows, answer.aggregated)
}

fn words(row: &SummaryRow) -> String {
    let durations = row
        .spread
        .map_or((0, 0), |spread| (spread.count, spread.total_ns));
    let phases = row
        .phases
        .iter()
        .map(|(name, total)| format!(" {name} {}x{}", total.count, total.duration_ns));
    let ok = row.outcomes.get(Outcome::Ok);
    format!(
        "{} {ok} {durations:?}:{}",
        row.name,
        phases.collect::<String>()
    )
}

/// Sums count like the rows that they stand for: once, in memory, in tables and after merging, and so
/// when the flush comes again.
#[test]
fn tasks_without_rows_count_once_in_summaries() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    worker.offset_ns = -7 * SECOND_NS;
    let attachment = attach(&collector, &worker, 0).attachment;
    let second_ns = SECOND_NS.unsigned_abs();
    let tasks = vec![worker.task_with(1, "load", (10, Some(12)), Some(detail()))];
    let mut flush = worker.flush(12, tasks);
    flush.totals = worker.totals(&[
        TaskTotals {
            name: "load".into(),
            outcome: Outcome::Ok,
            second: at(12),
            duration_ns: 5 * second_ns,
            buckets: vec![(bucket(second_ns), 3), (bucket(2 * second_ns), 1)],
            phases: vec![
                phase("transfer", 0, second_ns, 8),
                phase("queue", 0, 9_000, 4),
            ],
        },
        // Of tasks that are counted elsewhere.
        TaskTotals {
            name: "load".into(),
            outcome: Outcome::Ok,
            second: at(12),
            duration_ns: 0,
            buckets: vec![],
            phases: vec![phase("serialize", 0, 4_000, 2)],
        },
        TaskTotals {
            name: "only sums".into(),
            outcome: Outcome::Failed,
            second: at(13),
            duration_ns: 7,
            buckets: vec![(7, 1)],
            phases: vec![],
        },
    ]);
    let expected = [
        "load 5 (5, 7000000000): execute 5x5499996000 transfer 10x1500000000 queue 5x12000 serialize \
         2x4000",
        "only sums 0 (1, 7): execute 1x7",
    ];
    for _ in 0..2 {
        assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
        check_summaries(&collector, expected);
    }
    seal(&collector);
    check_summaries(&collector, expected);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    seal(&collector);
    check_summaries(&collector, expected);
    // A name that no row and no sample has is known all the same.
    assert!(collector.state.knows_task("only sums"));
}

fn check_summaries(collector: &Collector, expected: [&str; 2]) {
    let (rows, aggregated) = summary(collector, None);
    assert_eq!(
        (rows.iter().map(words).collect::<Vec<_>>(), aggregated),
        (expected.map(str::to_owned).to_vec(), 5)
    );
    let (rows, aggregated) = summary(collector, Some(range(12, 13)));
    assert_eq!(
        (rows.iter().map(words).collect::<Vec<_>>(), aggregated),
        (vec![expected[0].to_owned()], 4)
    );
    let (rows, aggregated) = summary(collector, Some(range(13, 20)));
    assert_eq!(
        (rows.iter().map(words).collect::<Vec<_>>(), aggregated),
        (vec![expected[1].to_owned()], 1)
    );
}

/// All times of a row are by one clock: the start, the stop and its phases are moved alike.
#[test]
fn a_task_keeps_its_details_and_all_its_times_are_corrected_alike() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    worker.offset_ns = 6 * 3_600 * SECOND_NS + 123;
    let attachment = attach(&collector, &worker, 0).attachment;
    let tasks = vec![
        worker.task_with(1, "load", (10, Some(12)), Some(detail())),
        worker.task_with(
            2,
            "load",
            (11, None),
            Some(TaskDetail {
                attempt: 1,
                ..Default::default()
            }),
        ),
    ];
    let flush = worker.flush(12, tasks);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    check_details(&collector);
    seal(&collector);
    check_details(&collector);
}

fn check_details(collector: &Collector) {
    let answer = Queries(&collector.state)
        .tasks(&typed_tasks(&[]), &Cancel::default())
        .unwrap();
    let [running, ended] = &answer.selection.rows[..] else {
        panic!("{answer:?}")
    };
    let ended = &ended.record;
    let running = &running.record;
    assert_eq!((ended.start, ended.stop), (at(10), Some(at(12))));
    assert_eq!(ended.detail.as_deref(), Some(&detail()));
    let starts = detail()
        .phases
        .into_iter()
        .map(|phase| ended.start.shifted(phase.start_ns));
    let expected = [-3_000, 0, 500_000_000].map(|start_ns| at(10).shifted(start_ns));
    assert_eq!(starts.collect::<Vec<_>>(), expected);
    assert_eq!(running.detail.as_ref().unwrap().attempt, 1);
    for (types, count) in [
        (&["Vec<u8>"][..], 1),
        (&["Vec<u8>", ""][..], 2),
        (&["u8"][..], 0),
    ] {
        let answer = Queries(&collector.state)
            .tasks(&typed_tasks(types), &Cancel::default())
            .unwrap();
        assert_eq!(answer.selection.rows.len(), count, "{types:?}");
    }
}

fn typed_tasks(types: &[&str]) -> TaskQuery {
    TaskQuery {
        given_range: None,
        range: TimeRange::ALL,
        filter: TaskFilter {
            types: types.iter().map(|name| (*name).to_owned()).collect(),
            ..TaskFilter::default()
        },
        limit: 10,
        order: TaskOrder::Start,
        summary: false,
        format: query::TaskFormat::Json,
    }
}

/// An invalid time of a queued message gives a phase of centuries.
#[test]
fn phases_that_begin_centuries_before_their_task_are_cut_and_counted() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    let centuries_ns = 9 * 10_i64.pow(18);
    let day_ns = 86_400 * SECOND_NS;
    let long = TaskDetail {
        phases: vec![
            phase("queue", -centuries_ns, centuries_ns.unsigned_abs(), 1),
            phase("queue", -centuries_ns, 5, 1),
            phase("queue", -day_ns, 7, 1),
        ],
        ..TaskDetail::default()
    };
    let task = worker.task_with(1, "load", (10, Some(12)), Some(long));
    let mut flush = worker.flush(10, vec![task]);
    flush.totals = worker.totals(&[TaskTotals {
        name: "load".into(),
        outcome: Outcome::Ok,
        second: at(12),
        duration_ns: 7,
        buckets: vec![(7, 1)],
        phases: vec![phase("queue", 0, centuries_ns.unsigned_abs(), 1)],
    }]);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    let answer = Queries(&collector.state)
        .tasks(&typed_tasks(&[]), &Cancel::default())
        .unwrap();
    let [row] = &answer.selection.rows[..] else {
        panic!("{answer:?}")
    };
    let longest_ns = nanoseconds(BEHIND_MAX);
    let cut = [
        phase("queue", -longest_ns, longest_ns.unsigned_abs(), 1),
        phase("queue", -longest_ns, 0, 1),
        phase("queue", -day_ns, 7, 1),
    ];
    assert_eq!(row.record.detail.as_ref().unwrap().phases, cut);
    assert_eq!(collector.state.cut_phases.load(Ordering::Relaxed), 3);
}
