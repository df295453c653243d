//! Windows of several seconds, as other profilers push them, in answers by time: each is spread evenly over its length,
//! and no nanosecond is lost or counted twice.

use std::collections::BTreeMap;

use query::{GroupBy, LabelMatchers, LabelSeriesQuery};

use super::*;

/// Windows of a worker: their length, and the weight of each in turn.
type Pushes = (i64, Vec<u64>);

fn pushes() -> impl Strategy<Value = Vec<Pushes>> {
    let of_worker = (1..20i64, prop::collection::vec(0..1_000_000_007u64, 1..6));
    prop::collection::vec(of_worker, 1..4)
}

/// Ships the windows of each worker one after the other, from second 0.
fn shipped(workers: &[Pushes], sealed: bool) -> Collector {
    let collector = collector(1_000);
    for (number, (length_s, weights)) in workers.iter().enumerate() {
        let mut worker = TestWorker::new(&format!("w{number}"), 1);
        let attachment = attach(&collector, &worker, 0).attachment;
        for (start_s, weight) in (0..).step_by(*length_s as usize).zip(weights) {
            worker.count("load;main", State::Cpu, *weight);
            worker.count_thread("load;pool-1#1", State::Cpu, *weight);
            let mut flush = worker.flush(start_s, Vec::new());
            flush.cycle.as_mut().unwrap().stop_ns = at(start_s + length_s).unix_ns();
            let expected = format!("ack {}", flush.seq);
            let answer = send_at(1_000, &collector, &attachment, &mut worker, &flush);
            assert_eq!(answer, expected);
        }
    }
    if sealed {
        seal(&collector);
    }
    collector
}

/// The time of each second from the tests' start, computed window by window.
fn expected(windows: &[Pushes], seconds: i64) -> Vec<u64> {
    let mut sums = vec![0; seconds as usize];
    for (length_s, weights) in windows {
        for (start_s, weight) in (0..).step_by(*length_s as usize).zip(weights) {
            // Windows of an agent count at their start; the others end with the range.
            let shown_s = (*length_s).min(seconds - start_s);
            let mut reached = 0;
            for second in 0..shown_s {
                let before = weight * (second as u64 + 1) / shown_s as u64;
                if start_s < seconds {
                    sums[(start_s + second) as usize] += before - reached;
                }
                reached = before;
            }
        }
    }
    sums
}

/// The sums of a timeline by step.
fn timeline(collector: &Collector, range: TimeRange, step_ns: u64) -> Vec<u64> {
    let query = TimelineQuery::of(range, Filter::default(), step_ns);
    let answer = Queries(&collector.state)
        .timeline(&query, &Cancel::default())
        .unwrap();
    let [series] = &answer.series[..] else {
        return vec![0; answer.steps as usize];
    };
    series.weights.iter().map(Weight::total_ns).collect()
}

/// The sums of each worker by second.
fn by_worker(collector: &Collector, range: TimeRange) -> BTreeMap<String, Vec<u64>> {
    let matchers = LabelMatchers::parse("").unwrap();
    let query = LabelSeriesQuery::new(range, matchers, StateSet::ALL, 1.0)
        .unwrap()
        .by(vec!["worker".to_owned()], usize::MAX);
    let answer = Queries(&collector.state)
        .label_series(&query, &Cancel::default())
        .unwrap();
    let series = answer.series.into_iter();
    series
        .map(|series| (series.labels[0].1.clone(), series.sums))
        .collect()
}

/// The sums of a profile by second, without the seconds that have no time.
fn profile_by_second(collector: &Collector, range: TimeRange) -> Vec<u64> {
    let mut query = whole(range, Filter::default(), By::Function, Format::Json);
    query.group = Some(GroupBy::Second);
    let answer = Queries(&collector.state)
        .profile(&query, &Cancel::default())
        .unwrap();
    answer
        .profile
        .top_level()
        .map(|(_, weight)| weight.total_ns())
        .collect()
}

proptest! {
    #[test]
    fn a_long_window_is_spread_over_its_seconds(
        workers in pushes(), seconds in 1..120i64, sealed in any::<bool>(), step_s in 1..20usize,
    ) {
        let collector = shipped(&workers, sealed);
        let range = range(0, seconds);
        let sums = expected(&workers, seconds);
        prop_assert_eq!(&timeline(&collector, range, SECOND_NS as u64), &sums);

        let total_ns = ask(&collector, range, Filter::default()).profile.total().total_ns();
        prop_assert_eq!(sums.iter().sum::<u64>(), total_ns);
        let steps = timeline(&collector, range, step_s as u64 * SECOND_NS as u64);
        prop_assert_eq!(steps.iter().sum::<u64>(), total_ns);

        let series = by_worker(&collector, range);
        for (number, windows) in workers.iter().enumerate() {
            let of_worker = expected(std::slice::from_ref(windows), seconds);
            prop_assert_eq!(&series[&format!("w{number}")], &of_worker);
        }

        let with_time: Vec<u64> = sums.into_iter().filter(|sum| *sum > 0).collect();
        prop_assert_eq!(profile_by_second(&collector, range), with_time);
    }
}
