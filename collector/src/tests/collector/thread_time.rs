//! Budgets: each thread's time, split by what it did.

use query::Queries;
use std::collections::BTreeMap;

use super::*;
use query::{GroupBy, ThreadTimeAnswer, ThreadTimeQuery};

/// Activities of a thread: a stack, and the same time by thread.
const PATHS: [(&str, &str); 6] = [
    ("load;main", "load;pool#1"),
    ("load;@transfer;main", "load;@transfer;pool#1"),
    ("load;main;read", "load;pool#2"),
    ("[no task];idle", "[no task];pool#2"),
    ("[agent];sampler", "[agent];emberline-tick#9"),
    ("store;main", "store;short#0"),
];

/// One flush of one of two workers: at which second, and what.
type Second = (usize, i64, Vec<(usize, usize, u64)>);

fn seconds() -> impl Strategy<Value = Vec<Second>> {
    let count = (0..PATHS.len(), 0..State::ALL.len(), 1..1_000u64);
    prop::collection::vec(
        (0..2usize, 0..40i64, prop::collection::vec(count, 0..6)),
        0..12,
    )
}

fn budget(collector: &Collector, range: TimeRange, by_worker: bool) -> ThreadTimeAnswer {
    let filter = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    Queries(&collector.state)
        .thread_time(
            &ThreadTimeQuery {
                range,
                filter,
                by_worker,
            },
            &Cancel::default(),
        )
        .unwrap()
}

/// By `worker thread id task phase state`.
fn parts(answer: &ThreadTimeAnswer) -> BTreeMap<String, u64> {
    let mut parts = BTreeMap::new();
    for time in &answer.threads {
        let sum: u64 = time.parts.iter().map(|(_, nanoseconds)| nanoseconds).sum();
        assert_eq!(sum, time.total_ns);
        for (part, nanoseconds) in &time.parts {
            let worker = &time.thread.worker;
            let id = time.thread.id;
            let thread = time.thread.name.as_deref().unwrap_or("-");
            let [task, phase] =
                [&part.task, &part.phase].map(|name| name.as_deref().unwrap_or("-").to_owned());
            let key = format!(
                "{worker} {thread} {id} {task} {phase} {}",
                part.state.name()
            );
            let before = parts.insert(key, *nanoseconds);
            assert_eq!(before, None);
        }
    }
    parts
}

/// The time of each thread, by the name of its line in a timeline.
fn totals(answer: &ThreadTimeAnswer) -> BTreeMap<String, u64> {
    let threads = answer.threads.iter().map(|time| {
        let name = time.thread.name.as_deref().unwrap();
        let id = match time.thread.id {
            0 => String::new(),
            id => format!(" {id}"),
        };
        (format!("{} {name}{id}", time.thread.worker), time.total_ns)
    });
    threads.collect()
}

/// The sums of a timeline by thread.
fn by_thread(collector: &Collector, range: TimeRange) -> BTreeMap<String, u64> {
    let filter = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    let query = TimelineQuery {
        group: GroupBy::Thread,
        ..TimelineQuery::of(range, filter, 3_600 * SECOND_NS as u64)
    };
    let answer = Queries(&collector.state)
        .timeline(&query, &Cancel::default())
        .unwrap();
    let sums = answer.series.into_iter().map(|series| {
        let sum = series.weights.iter().map(Weight::total_ns).sum();
        (series.name, sum)
    });
    sums.collect()
}

fn add(sums: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (key, value) in more {
        *sums.entry(key.clone()).or_default() += value;
    }
}

proptest! {
    /// The threads' time is the samples' time, worker by worker; the parts of a range add up to the
    /// whole; in memory and in tables of every tier.
    #[test]
    fn thread_time_sums_to_the_samples_for_any_split_of_a_range(
        seconds in seconds(), from in 0..20i64, length in 2..30i64,
        cut in any::<prop::sample::Index>(),
        spread_s in prop::sample::select(vec![1i64, 59, 3_601, 20_000]),
        sealed_after in prop::collection::vec(0..12usize, 0..4),
    ) {
        let collector = collector(50);
        let second = |second: i64| (second - 40) * spread_s + 40;
        let mut workers: Vec<(TestWorker, Attachment)> = (0..2).map(|index| {
            let worker = TestWorker::new(&format!("w{index}"), 7);
            let attachment = attach(&collector, &worker, 0).attachment;
            (worker, attachment)
        }).collect();
        let whole = range(second(from), second(from + length));
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for (index, (number, start_s, counts)) in seconds.iter().enumerate() {
            let (worker, attachment) = &mut workers[*number];
            for (path, state, weight_ns) in counts {
                let (stack, thread) = PATHS[*path];
                let state = State::ALL[*state];
                worker.count(stack, state, *weight_ns);
                worker.count_thread(thread, state, *weight_ns);
                if whole.contains(at(second(*start_s))) {
                    let (above, thread) = thread.rsplit_once(';').unwrap();
                    let (name, id) = thread.split_once('#').unwrap();
                    let (task, phase) = match above.split_once(";@") {
                        Some((task, phase)) => (task, phase),
                        None if above.starts_with('[') => ("-", "-"),
                        None => (above, "execute"),
                    };
                    let key = format!("w{number} {name} {id} {task} {phase} {}", state.name());
                    *expected.entry(key).or_default() += weight_ns;
                }
            }
            let flush = worker.flush(second(*start_s), vec![]);
            prop_assert!(send(&collector, attachment, worker, &flush).starts_with("ack"));
            if sealed_after.contains(&index) {
                seal(&collector);
                let always = Duration::from_secs(u64::MAX);
                let retention = store::Retention {
                    seconds: always,
                    rollups: always,
                    tasks: always,
                    bytes_max: u64::MAX,
                };
                collector.sealer.maintain(at(50), &retention).unwrap();
            }
        }
        let answer = budget(&collector, whole, false);
        prop_assert_eq!(&parts(&answer), &expected);
        prop_assert!(answer.damaged.is_empty());
        prop_assert_eq!(by_thread(&collector, whole), totals(&answer));

        let cut = from + 1 + i64::try_from(cut.index(usize::try_from(length).unwrap() - 1)).unwrap();
        let mut halves = BTreeMap::new();
        add(&mut halves, &parts(&budget(&collector, range(second(from), second(cut)), false)));
        add(&mut halves, &parts(&budget(&collector, range(second(cut), second(from + length)), false)));
        prop_assert_eq!(&halves, &expected);

        for worker in ["w0", "w1"] {
            let filter = Filter {
                workers: vec![worker.to_owned()], threads: ThreadKind::All, ..Filter::default()
            };
            let samples = ask(&collector, whole, filter).profile;
            let by_worker = budget(&collector, whole, true);
            let mut of_worker = by_worker.threads.iter().filter(|it| &*it.thread.worker.0 == worker);
            let total = of_worker.next().map_or(0, |it| it.total_ns);
            prop_assert!(of_worker.next().is_none());
            prop_assert_eq!(total, samples.total().total_ns());
            // No thread stands in a profile.
            let is_thread = |id: profiler_core::FrameId| {
                samples.frame(id).kind == profiler_core::FrameKind::Thread
            };
            prop_assert!(!samples.nodes().iter().any(|node| is_thread(node.frame)));
        }
    }
}

/// An agent that counts a thread among its samples makes no profile of threads.
#[test]
fn a_thread_node_among_samples_is_hidden_and_its_time_is_kept() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    worker.count("load;@transfer;pool#1", State::Cpu, 5);
    worker.count("load;pool#1", State::Cpu, 2);
    let flush = worker.flush(10, vec![]);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    let profile = ask(&collector, TimeRange::ALL, Filter::default()).profile;
    assert_eq!(flamegraph::collapsed(&profile), "load 00007\n");
}

#[test]
fn elapsed_time_is_that_of_the_worker_that_was_sampled_longest() {
    let collector = collector(50);
    for (id, seconds) in [("a", 3), ("b", 1)] {
        let mut worker = TestWorker::new(id, 1);
        let attachment = attach(&collector, &worker, 0).attachment;
        for second in 0..seconds {
            worker.count_thread("load;pool#1", State::Cpu, 1_000_000_000);
            let flush = worker.flush(10 + second, vec![]);
            send(&collector, &attachment, &mut worker, &flush);
        }
    }
    check_elapsed(&collector, 0, 50, 3, &[3, 1]);
    seal(&collector);
    check_elapsed(&collector, 0, 50, 3, &[3, 1]);
    check_elapsed(&collector, 11, 12, 1, &[1]);
}

fn check_elapsed(collector: &Collector, from: i64, to: i64, elapsed_s: u64, totals_s: &[u64]) {
    let answer = budget(collector, range(from, to), false);
    assert_eq!(answer.elapsed_ns, elapsed_s * 1_000_000_000);
    let totals: Vec<u64> = answer
        .threads
        .iter()
        .map(|it| it.total_ns / 1_000_000_000)
        .collect();
    assert_eq!(totals, totals_s);
}
