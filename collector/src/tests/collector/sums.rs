//! Whatever is asked, and whatever became tables meanwhile: parts sum to the whole, once.

use std::collections::BTreeSet;

use super::*;
use query::Queries;
use query::fleet;

fn seconds() -> impl Strategy<Value = Vec<Second>> {
    let count = (0..STACKS.len(), 0..State::ALL.len(), 1..1_000u64);
    prop::collection::vec(
        (0..3usize, 0..40i64, prop::collection::vec(count, 0..6)),
        0..25,
    )
}

fn filters() -> impl Strategy<Value = Filter> {
    let some = |names: &'static [&'static str]| {
        prop::sample::subsequence(names, 0..=1)
            .prop_map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    };
    let threads = prop::sample::select(vec![
        ThreadKind::Program,
        ThreadKind::Agent,
        ThreadKind::All,
    ]);
    let states = prop::sample::subsequence(&State::ALL[..], 1..=State::ALL.len())
        .prop_map(|states| states.into_iter().collect::<StateSet>());
    (
        some(&["load", "store"]),
        any::<bool>(),
        some(&["w0", "w1"]),
        states,
        threads,
    )
        .prop_map(|(tasks, outside_tasks, workers, states, threads)| Filter {
            tasks,
            outside_tasks,
            workers,
            states,
            threads,
        })
}

/// Merges and drops files, as the store does; seconds are kept for so long.
fn maintain(collector: &Collector, seconds_kept_s: u64) {
    const ALWAYS: Duration = Duration::from_secs(u64::MAX);
    let retention = store::Retention {
        seconds: Duration::from_secs(seconds_kept_s),
        rollups: ALWAYS,
        tasks: ALWAYS,
        bytes_max: u64::MAX,
    };
    collector
        .sealer
        .maintain(collector.state.clock.now(), &retention)
        .unwrap();
}

/// How the tests' seconds are spaced, so that their ranges need pieces of every tier.
#[derive(Clone, Copy, Debug)]
struct Spacing(i64);

impl Spacing {
    /// No second after the 40th moves into the future.
    fn second(self, second: i64) -> i64 {
        (second - 40) * self.0 + 40
    }

    fn range(self, from: i64, to: i64) -> TimeRange {
        range(self.second(from), self.second(to))
    }
}

fn spacings() -> impl Strategy<Value = Spacing> {
    prop::sample::select(vec![1, 7, 59, 600, 3_601, 20_000]).prop_map(Spacing)
}

/// Data that was shipped, and the collector that has it.
struct Shipped {
    collector: Collector,
    total_ns: u64,
    windows: Vec<profiler_core::Window>,
}

/// Ships every second through sessions, in the order given, and seals after some of them.
fn ship(
    seconds: &[Second],
    spacing: Spacing,
    sealed_after: &[usize],
    seconds_kept_s: Option<u64>,
) -> Shipped {
    let collector = collector(50);
    let mut workers: Vec<(TestWorker, Attachment)> = (0..3i64)
        .map(|index| {
            let mut worker = TestWorker::new(&format!("w{index}"), 7);
            worker.offset_ns = (index - 1) * 10 * SECOND_NS;
            let attachment = attach(&collector, &worker, 0).attachment;
            (worker, attachment)
        })
        .collect();
    let mut total_ns = 0;
    let mut windows = Vec::new();
    let mut keep = |collector: &Collector| {
        let view = read(&collector.state.windows)
            .view(store::Second(0)..store::Second(u32::MAX), Timestamp::MAX);
        windows.extend(view.windows.iter().map(|stored| stored.window()));
    };
    for (index, (worker, start_s, counts)) in seconds.iter().enumerate() {
        let (worker, attachment) = &mut workers[*worker];
        for (stack, state, weight_ns) in counts {
            worker.count(STACKS[*stack], State::ALL[*state], *weight_ns);
            total_ns += weight_ns;
        }
        let flush = worker.flush(spacing.second(*start_s), vec![]);
        let answer = send(&collector, attachment, worker, &flush);
        assert_eq!(answer, format!("ack {}", flush.seq));
        if sealed_after.contains(&index) {
            keep(&collector);
            seal(&collector);
            maintain(&collector, seconds_kept_s.unwrap_or(u64::MAX));
        }
    }
    keep(&collector);
    Shipped {
        collector,
        total_ns,
        windows,
    }
}

proptest! {
    #[test]
    fn every_split_of_a_range_sums_to_the_range(
        seconds in seconds(), filter in filters(), from in 0..20i64, length in 2..30i64,
        cut in any::<prop::sample::Index>(), spacing in spacings(),
        sealed_after in prop::collection::vec(0..25usize, 0..4),
        seconds_kept_s in prop_oneof![2 => Just(None), 1 => (0..900_000u64).prop_map(Some)],
    ) {
        let Shipped { collector, total_ns, windows } =
            ship(&seconds, spacing, &sealed_after, seconds_kept_s);
        let whole = spacing.range(from, from + length);
        let cut = from + 1 + i64::try_from(cut.index(usize::try_from(length).unwrap() - 1)).unwrap();
        let of = |range| ask(&collector, range, filter.clone());
        let answer = of(whole);
        let halves = [spacing.range(from, cut), spacing.range(cut, from + length)];
        let [left, right] = halves.map(of);
        let everything = Filter { threads: ThreadKind::All, ..Filter::default() };
        let stored = ask(&collector, TimeRange::ALL, everything).profile.total().total_ns();
        prop_assert_eq!(stored, total_ns);
        let facts = |answer: &ProfileAnswer| answer.facts.sampling;
        let parts = [facts(&left), facts(&right)];
        let sampled = facts(&answer);
        // Where seconds are gone, it is the answer for whole minutes, and says so.
        let answered = answer.facts.range;
        prop_assert_eq!(answered.hull(whole), answered);
        if [left.facts.range, right.facts.range] == halves {
            prop_assert_eq!(answered, whole);
            prop_assert_eq!(&left.profile.merge(&right.profile), &answer.profile);
            prop_assert_eq!(parts[0].ticks + parts[1].ticks, sampled.ticks);
            prop_assert_eq!(parts[0].windows + parts[1].windows, sampled.windows);
            prop_assert_eq!(parts[0].sampled_ns + parts[1].sampled_ns, sampled.sampled_ns);
        } else {
            prop_assert!(seconds_kept_s.is_some());
        }
        prop_assert!(answer.facts.damaged.is_empty());

        // By core itself, over the whole tree.
        let kept: Vec<_> = windows.iter().filter(|window| {
            answered.contains(window.range.start()) && filter.keeps_worker(&window.worker)
        }).collect();
        let workers: BTreeSet<_> = kept.iter().map(|window| window.worker.clone()).collect();
        prop_assert_eq!(sampled.windows, kept.len() as u64);
        prop_assert_eq!(answer.facts.workers, workers.into_iter().collect::<Vec<_>>());
        let tree = read(&collector.state.tree);
        let expected =
            Profile::of_windows(&tree.symbols, &tree.trie, kept.into_iter(), answered, &filter);
        drop(tree);
        prop_assert_eq!(&expected, &answer.profile);
    }

    #[test]
    fn a_timeline_sums_to_the_profile(
        seconds in seconds(), filter in filters(), from in 0..20i64, length in 1..30i64,
        step_s in prop::sample::select(vec![1u64, 3, 60, 3_600, 5_400]), spacing in spacings(),
        sealed_after in prop::collection::vec(0..25usize, 0..4),
    ) {
        let Shipped { collector, windows, .. } = ship(&seconds, spacing, &sealed_after, None);
        let range = spacing.range(from, from + length);
        let profile = ask(&collector, range, filter.clone()).profile;
        let step_ns = step_s * 1_000_000_000;
        prop_assume!(range.length_ns() / step_ns < 10_000);
        let query = TimelineQuery::of(range, filter.clone(), step_ns);
        let timeline = Queries(&collector.state).timeline(&query, &Cancel::default()).unwrap();
        let mut expected: Vec<(String, Weight)> =
            profile.top_level().map(|(frame, weight)| (frame.label(), weight)).collect();
        let mut sums: Vec<(String, Weight)> = timeline.series.iter().map(|line| (line.name.clone(), line.weights.iter().copied().sum())).collect();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        sums.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!(sums, expected);
        prop_assert_eq!(timeline.first.unix_ns().rem_euclid(step_ns as i64), 0);
        prop_assert!(timeline.series.iter().all(|line| line.weights.len() as u64 == timeline.steps));

        // Each step is the sum of what starts in it.
        let tree = read(&collector.state.tree);
        for step in 0..timeline.steps.min(50) {
            let start = timeline.first.shifted((step * step_ns) as i64);
            let [start, stop] = [start, start.shifted(step_ns as i64)];
            let Some(part) = TimeRange::new(start.max(range.start()), stop.min(range.stop())) else {
                continue;
            };
            let kept = windows.iter();
            let of_step = Profile::of_windows(&tree.symbols, &tree.trie, kept, part, &filter);
            let found: Weight = timeline.series.iter().map(|line| line.weights[step as usize]).sum();
            prop_assert_eq!(found, of_step.total());
        }
    }

    /// Tasks by name are the same whether read from tables of durations or counted row by row, and
    /// the parts of a range add up.
    #[test]
    fn a_summary_equals_the_sum_of_the_rows(
        tasks in prop::collection::vec((0..3usize, 0..40i64, prop::option::of(0..9i64)), 0..30),
        from in 0..30i64, length in 2..20i64, spacing in spacings(),
        sealed_after in prop::collection::vec(0..30usize, 0..4),
    ) {
        let collector = collector(50);
        let mut worker = TestWorker::new("w", 1);
        let attachment = attach(&collector, &worker, 0).attachment;
        let names = ["load", "store", "never sampled"];
        for (index, (name, start_s, length_s)) in tasks.iter().enumerate() {
            let stop_s = length_s.map(|length_s| start_s + length_s);
            let span = (spacing.second(*start_s), stop_s.map(|stop_s| spacing.second(stop_s)));
            let task = worker.task(index as u64 + 1, names[*name], span);
            let flush = worker.flush(0, vec![task]);
            // Later than any of the spaced times.
            let answer = send_at(1_000_000, &collector, &attachment, &mut worker, &flush);
            prop_assert!(answer.starts_with("ack"), "{}", answer);
            if sealed_after.contains(&index) {
                seal(&collector);
            }
        }
        let ask = |from, to, workers: &[&str], limit| {
            let query = TaskQuery {
                given_range: Some(spacing.range(from, to)),
                range: spacing.range(from, to),
                filter: TaskFilter {
                    workers: workers.iter().map(|id| (*id).to_owned()).collect(),
                    ..TaskFilter::default()
                },
                limit,
                order: TaskOrder::Start,
                summary: true,
                format: query::TaskFormat::Json,
            };
            let rows = Queries(&collector.state).tasks(&query, &Cancel::default()).unwrap();
            (Queries(&collector.state).task_summary(&query, &Cancel::default()).unwrap().rows, rows.selection)
        };
        let (counted, rows) = ask(from, from + length, &[], 3);
        prop_assert_eq!(&counted, &ask(from, from + length, &["w"], 3).0);
        let overlapping = tasks.iter().filter(|(_, start_s, length_s)| {
            *start_s < from + length && length_s.is_none_or(|length_s| start_s + length_s >= from)
        }).count();
        prop_assert_eq!((rows.total, rows.rows.len()), (overlapping as u64, overlapping.min(3)));
        for (index, name) in names.iter().enumerate() {
            let of_name = || tasks.iter().filter(move |task| task.0 == index);
            let ended = of_name().filter(|(_, start_s, length_s)| {
                length_s.is_some_and(|length_s| (from..from + length).contains(&(start_s + length_s)))
            });
            let running = of_name().filter(|task| task.2.is_none() && task.1 < from + length);
            let expected = (ended.count() as u64, running.count() as u64);
            let row = counted.iter().find(|row| *row.name == **name);
            let found = row.map(|row| (row.outcomes.get(Outcome::Ok), row.running));
            prop_assert_eq!(found.unwrap_or_default(), expected);
        }
    }

    /// Flushes come again and out of order. A flush counts the first time that its seq is above all
    /// earlier ones; the rest is acked and changes nothing.
    #[test]
    fn a_flush_is_applied_once(order in prop::collection::vec(0..8usize, 0..40)) {
        let collector = collector(50);
        let mut worker = TestWorker::new("w", 1);
        let mut attachment = attach(&collector, &worker, 0).attachment;
        let flushes: Vec<v1::Flush> = (0..8u32).map(|n| {
            worker.count("load;main", State::Cpu, 1 << n);
            let tasks = vec![worker.task(u64::from(n) + 1, "load", (10, None))];
            worker.flush(i64::from(n), tasks)
        }).collect();
        let mut mark = 0;
        let mut expected_ns = 0;
        let mut applied = 0;
        for (turn, index) in order.into_iter().enumerate() {
            if turn % 5 == 4 {
                // A new stream changes nothing of it.
                collector.ingest.detach(&attachment, DisconnectReason::Crashed, at(50));
                attachment = attach(&collector, &worker, 50).attachment;
            }
            let flush = &flushes[index];
            let next_seq = mark + 1;
            if flush.seq == next_seq {
                mark = flush.seq;
                expected_ns += 1 << index;
                applied += 1;
            }
            let answer = send(&collector, &attachment, &mut worker, flush);
            let seq = flush.seq;
            prop_assert_eq!(answer, if seq > next_seq {
                format!("flush {seq} is out of order; the next one is {next_seq}")
            } else {
                format!("ack {seq}")
            });
            prop_assert_eq!(total_ns(&collector), expected_ns);
        }
        let view = &fleet(&collector, &Default::default(), at(0)).epochs[0];
        prop_assert_eq!((view.acked_seq, view.stored_ns), (mark, expected_ns));
        prop_assert_eq!((view.running, view.ticks.made), (applied, 95 * applied as u64));
    }
}

#[test]
fn a_cycle_is_stored_by_the_collectors_clock_with_its_raw_time() {
    let collector = collector(50);
    let mut worker = TestWorker::new("w", 1);
    worker.offset_ns = -3 * SECOND_NS;
    let attachment = attach(&collector, &worker, 0).attachment;
    let tasks = vec![worker.task(1, "load", (10, Some(12)))];
    let flush = worker.flush(10, tasks);
    assert_eq!(flush.cycle.as_ref().unwrap().start_ns, at(13).unix_ns());
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    let view = read(&collector.state.windows)
        .view(store::Second(0)..store::Second(u32::MAX), Timestamp::MAX);
    let stored = &view.windows[0];
    assert_eq!((stored.range, stored.raw_start), (range(10, 11), at(13)));
    let ticks = Ticks {
        made: 95,
        expected: 100,
        throttled: 4,
    };
    assert_eq!((stored.clock_error_ns, stored.ticks), (5, ticks));
    assert_eq!(rows(&collector), ["w/1/1 ok 12"]);
    let snapshot = read(&collector.state.ledger).snapshot(TimeRange::ALL);
    let row = snapshot.rows().next().unwrap();
    assert_eq!(row.record.start, at(10));
}
