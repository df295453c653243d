//! Answers by group read the range once, however many groups there are, and leave none out.

use std::sync::atomic::{AtomicUsize, Ordering};

use query::{Allowance, LabelMatchers, LabelSeries, LabelSeriesQuery};

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

#[test]
fn series_of_many_groups_read_as_much_as_one_and_the_lightest_are_one_more() {
    let collector = collector(60);
    for number in 1..=WORKERS {
        let mut worker = TestWorker::new(&format!("w{number:02}"), 1);
        let attachment = attach(&collector, &worker, 0).attachment;
        for start_s in [10, 40] {
            worker.count("load;main", State::Cpu, number);
            let flush = worker.flush(start_s, Vec::new());
            let expected = format!("ack {}", flush.seq);
            assert_eq!(
                send_at(60, &collector, &attachment, &mut worker, &flush),
                expected
            );
        }
    }
    seal(&collector);
    let total = WORKERS * (WORKERS + 1);
    let (one, read_for_one) = series(&collector, &[], usize::MAX);
    assert_eq!((one.len(), sum(&one)), (1, total));
    let (all, read_for_all) = series(&collector, &["worker"], usize::MAX);
    assert_eq!((all.len() as u64, sum(&all)), (WORKERS, total));
    assert_eq!(read_for_all, read_for_one);
    let (few, read_for_few) = series(&collector, &["worker"], 2);
    assert_eq!((sum(&few), read_for_few), (total, read_for_one));
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
