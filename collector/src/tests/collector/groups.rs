//! Answers by group read the range once, however many groups there are, and leave none out.

use std::sync::atomic::{AtomicUsize, Ordering};

use profiler_core::{Epoch, RunId, RunMarker};
use query::{Allowance, GroupBy, LabelMatchers, LabelSeries, LabelSeriesQuery, TimelineAnswer};
use store::rows::RunRow;

use super::*;

const WORKERS: u64 = 60;

/// Counts how often a query asks whether it may go on: at each file and at each batch of rows.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Allowance for Asked {
    fn goes_on(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// The series of some labels, and the files and batches that were read.
fn series(collector: &Collector, group_by: &[&str], limit: usize) -> (Vec<LabelSeries>, usize) {
    let matchers = LabelMatchers::parse("").unwrap();
    let group_by = group_by.iter().map(ToString::to_string).collect();
    let query = LabelSeriesQuery::new(range(0, 60), matchers, StateSet::ALL, 15.0)
        .unwrap()
        .by(group_by, limit);
    let asked = Arc::new(Asked::default());
    let cancel = Cancel::new(Some(asked.clone()));
    let answer = Queries(&collector.state)
        .label_series(&query, &cancel)
        .unwrap();
    (answer.series, asked.0.load(Ordering::Relaxed))
}

fn sum(series: &[LabelSeries]) -> u64 {
    series.iter().flat_map(|series| &series.sums).sum()
}

/// Workers `w01`, `w02`, … with as many nanoseconds as their number at 10 s and again at 40 s, in tables.
fn fleet() -> Collector {
    let collector = collector(60);
    for number in 1..=WORKERS {
        let mut worker = TestWorker::new(&format!("w{number:02}"), 1);
        worker.host = format!("host-{number}");
        let attachment = attach(&collector, &worker, 0).attachment;
        for start_s in [10, 40] {
            worker.count("load;main", State::Cpu, number);
            worker.count_thread(&format!("load;pool#{number}"), State::Cpu, number);
            let flush = worker.flush(start_s, Vec::new());
            let expected = format!("ack {}", flush.seq);
            assert_eq!(
                send_at(60, &collector, &attachment, &mut worker, &flush),
                expected
            );
        }
    }
    seal(&collector);
    collector
}

/// The time of the whole fleet.
const TOTAL: u64 = WORKERS * (WORKERS + 1);

#[test]
fn series_of_many_groups_read_as_much_as_one_and_the_lightest_are_one_more() {
    let collector = fleet();
    let total = TOTAL;
    let (one, read_for_one) = series(&collector, &[], usize::MAX);
    assert_eq!((one.len(), sum(&one)), (1, total));
    let (all, read_for_all) = series(&collector, &["worker"], usize::MAX);
    assert_eq!((all.len() as u64, sum(&all)), (WORKERS, total));
    assert_eq!(read_for_all, read_for_one);
    let (few, read_for_few) = series(&collector, &["worker"], 2);
    assert_eq!(sum(&few), total);
    // Only if not all fit, their sums are read before, in periods that are as long as possible.
    assert!(
        read_for_one < read_for_few && read_for_few <= 2 * read_for_one,
        "{read_for_one} < {read_for_few}"
    );
    let totals: Vec<u64> = all
        .iter()
        .map(|one| sum(std::slice::from_ref(one)))
        .collect();
    assert!(totals.is_sorted_by(|a, b| a >= b), "{totals:?}");
    let labels: Vec<String> = few
        .iter()
        .map(|series| {
            let labels = series.labels.iter();
            let texts = labels.map(|(name, value)| format!("{name}={value}"));
            texts.collect::<Vec<_>>().join(",")
        })
        .collect();
    assert_eq!(
        labels,
        ["worker=w60", "worker=w59", "worker=[other],others=58"]
    );
}

/// A timeline by groups, and the files and batches that were read.
fn timeline(collector: &Collector, group: GroupBy, groups_max: usize) -> (TimelineAnswer, usize) {
    let query = TimelineQuery {
        group,
        groups_max,
        ..TimelineQuery::of(range(0, 60), Filter::default(), 15 * SECOND_NS as u64)
    };
    let asked = Arc::new(Asked::default());
    let cancel = Cancel::new(Some(asked.clone()));
    let answer = Queries(&collector.state).timeline(&query, &cancel).unwrap();
    (answer, asked.0.load(Ordering::Relaxed))
}

/// The series of a timeline, as `name: sums of the steps with time`.
fn lines(answer: &TimelineAnswer) -> Vec<String> {
    let series = answer.series.iter().map(|series| {
        let totals = series.weights.iter().map(Weight::total_ns);
        let sums = totals.filter(|sum| *sum > 0);
        format!("{}: {:?}", series.name, sums.collect::<Vec<_>>())
    });
    series.collect()
}

#[test]
fn timelines_by_any_group_read_as_much_as_that_of_tasks() {
    let collector = fleet();
    let (by_task, read_by_task) = timeline(&collector, GroupBy::Task, 100);
    let half = TOTAL / 2;
    assert_eq!(lines(&by_task), [format!("load: [{half}, {half}]")]);
    let kinds = [
        (GroupBy::Worker, "w60", "w59"),
        (GroupBy::Host, "host-60", "host-59"),
        (GroupBy::Thread, "w60 pool 60", "w59 pool 59"),
    ];
    for (group, first, second) in kinds {
        let (all, read_for_all) = timeline(&collector, group.clone(), 100);
        assert_eq!((all.series.len() as u64, all.others), (WORKERS, 0));
        assert_eq!(read_for_all, read_by_task, "{group:?}");
        let (few, read_for_few) = timeline(&collector, group, 2);
        let others = half - 119;
        assert_eq!(
            lines(&few),
            [
                format!("{first}: [60, 60]"),
                format!("{second}: [59, 59]"),
                format!("[other]: [{others}, {others}]"),
            ]
        );
        assert_eq!((few.others, read_for_few), (58, read_by_task));
    }
    for group in [GroupBy::Phase, GroupBy::Label("zone".to_owned())] {
        let (one, read_for_one) = timeline(&collector, group.clone(), 100);
        assert_eq!(one.series.len(), 1);
        assert_eq!(read_for_one, read_by_task, "{group:?}");
    }
}

/// The time of each group of a profile, the number of the others, and the files and batches that were read: a profile
/// also asks once for each group.
fn profile(
    collector: &Collector,
    group: Option<GroupBy>,
    groups_max: usize,
) -> (Vec<String>, usize, usize) {
    let query = ProfileQuery {
        group,
        groups_max,
        ..ProfileQuery::of(range(0, 60), Filter::default())
    };
    let asked = Arc::new(Asked::default());
    let cancel = Cancel::new(Some(asked.clone()));
    let answer = Queries(&collector.state).profile(&query, &cancel).unwrap();
    let groups: Vec<String> = answer
        .profile
        .top_level()
        .map(|(frame, weight)| format!("{} {}", frame.function, weight.total_ns()))
        .collect();
    let read = asked.0.load(Ordering::Relaxed) - groups.len();
    (groups, answer.others, read)
}

#[test]
fn profiles_of_more_groups_than_asked_have_the_heaviest_by_name_and_the_rest_as_one() {
    let collector = fleet();
    let (all, others, read_for_all) = profile(&collector, Some(GroupBy::Worker), 100);
    assert_eq!((all.len() as u64, others), (WORKERS, 0));
    let (mut few, others, read_for_few) = profile(&collector, Some(GroupBy::Worker), 2);
    let rest = TOTAL - 2 * 119;
    let expected = [
        format!("[other] {rest}"),
        "w59 118".to_owned(),
        "w60 120".to_owned(),
    ];
    few.sort_unstable();
    assert_eq!((few.as_slice(), others), (&expected[..], 58));
    // The heaviest are found in the totals of tasks, whose rows have no stacks.
    let (.., read_for_two) = profile(&collector, Some(GroupBy::Host), 3);
    assert_eq!(read_for_few, read_for_two);
    assert!(
        read_for_few <= 2 * read_for_all,
        "{read_for_few} > 2 * {read_for_all}"
    );
}

#[test]
fn time_is_in_the_newest_run_that_covers_it() {
    let collector = fleet();
    let runs = [(1, "outer", 5, Some(50)), (2, "inner", 30, None)];
    for (id, name, start_s, stop_s) in runs {
        let marker = RunMarker {
            id: RunId(id),
            name: name.into(),
            start: at(start_s),
            stop: stop_s.map(at),
        };
        at_once(
            collector
                .ingest
                .mark_run(RunRow::marked(None, Epoch(0), marker)),
        )
        .unwrap();
    }
    let (by_run, _) = timeline(&collector, GroupBy::Run, 100);
    let half = TOTAL / 2;
    assert_eq!(
        lines(&by_run),
        [format!("inner@2: [{half}]"), format!("outer@1: [{half}]"),]
    );
    let (mut groups, ..) = profile(&collector, Some(GroupBy::Run), 100);
    groups.sort_unstable();
    assert_eq!(
        groups,
        [format!("inner@2 {half}"), format!("outer@1 {half}")]
    );
}
