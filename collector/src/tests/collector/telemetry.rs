//! Transfers, samples, expectations and runs: whatever order and clock they came in, before and
//! after they are sealed and merged, each is found in its time, once, at its own worker.

mod progress;
mod restarts;

use std::collections::{BTreeMap, BTreeSet};

use profiler_core::{
    Direction, ExpectedTasks, Resource, ResourceSample, RunId, RunMarker, TaskId, Telemetry,
    TransferEvent, TransferId,
};

use super::*;
use query::Queries;
use query::{ProgressQuery, ResourceQuery, TransferQuery, WorkersQuery};
use store::StoreGuard;
use store::wal::sim::{Files, SimDisk};

/// Of three workers: how far the collector's clock is ahead of theirs.
const OFFSETS_NS: [i64; 3] = [0, 6 * 3_600 * SECOND_NS, -10 * SECOND_NS - 7];

const PEERS: [&str; 3] = ["w0", "w1", "disk"];
const TYPES: [&str; 2] = ["Matrix", ""];

/// A reported transfer.
#[derive(Clone, Copy, Debug)]
struct SentTransfer {
    worker: usize,
    start_ms: i64,
    length_ms: i64,
    /// Indices in [`PEERS`] and [`TYPES`].
    peer: usize,
    type_name: usize,
    /// Choose the rest.
    bits: u64,
}

impl SentTransfer {
    fn stop_ms(self) -> i64 {
        self.start_ms + self.length_ms
    }
}

fn sent_transfer() -> impl Strategy<Value = SentTransfer> {
    (
        0..3usize,
        0..90_000i64,
        0..5_000i64,
        0..3usize,
        0..2usize,
        0..100_000u64,
    )
        .prop_map(
            |(worker, start_ms, length_ms, peer, type_name, bits)| SentTransfer {
                worker,
                start_ms,
                length_ms,
                peer,
                type_name,
                bits,
            },
        )
}

const EXAMPLE: SentTransfer = SentTransfer {
    worker: 0,
    start_ms: 20_000,
    length_ms: 1_500,
    peer: 1,
    type_name: 0,
    bits: 77,
};

/// A resource sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    worker: usize,
    time_ms: i64,
    cpu: u64,
}

impl Sample {
    fn memory(self) -> u64 {
        self.cpu + 5
    }
}

fn any_sample() -> impl Strategy<Value = Sample> {
    (0..3usize, 0..90_000i64, 0..1_000_000u64).prop_map(|(worker, time_ms, cpu)| Sample {
        worker,
        time_ms,
        cpu,
    })
}

fn ms(milliseconds: i64) -> Timestamp {
    at(0).shifted(milliseconds * 1_000_000)
}

fn transfer(id: u64, sent: SentTransfer) -> TransferEvent {
    let bits = sent.bits;
    TransferEvent {
        id: TransferId(id),
        direction: Direction::ALL[(bits % 2) as usize],
        peer: PEERS[sent.peer].into(),
        keys: vec![format!("x-{id}").into()],
        more_keys: 0,
        type_name: TYPES[sent.type_name].into(),
        bytes: bits,
        compressed_bytes: bits.is_multiple_of(3).then_some(bits / 2),
        start: ms(sent.start_ms),
        stop: ms(sent.stop_ms()),
        task: bits.is_multiple_of(5).then_some(TaskId(7)),
        thread_id: 12,
        outcome: if bits.is_multiple_of(7) {
            Outcome::Failed
        } else {
            Outcome::Ok
        },
        cause: "".into(),
    }
}

fn sample(sent: Sample) -> ResourceSample {
    let values = vec![
        (Resource::ProcessCpu, sent.cpu),
        (Resource::ProcessMemory, sent.memory()),
    ];
    ResourceSample {
        at: ms(sent.time_ms),
        period_ns: 500_000_000,
        values,
    }
}

/// Expected sums of a summary: count, failed, bytes, compressed bytes, duration.
type LinkModel = BTreeMap<(String, String, &'static str), [u64; 5]>;

fn link_model(sent: &[SentTransfer], from_s: i64, to_s: i64) -> LinkModel {
    let mut model = LinkModel::new();
    for (index, sent) in sent.iter().enumerate() {
        let record = transfer(index as u64 + 1, *sent);
        let second = sent.stop_ms().div_euclid(1_000);
        if (from_s..to_s).contains(&second) {
            let key = (
                format!("w{}", sent.worker),
                record.peer.to_string(),
                record.direction.name(),
            );
            let sum = model.entry(key).or_default();
            let failed = u64::from(record.outcome != Outcome::Ok);
            let compressed = record.compressed_bytes.unwrap_or(record.bytes);
            let duration = (sent.length_ms * 1_000_000).unsigned_abs();
            let added = [1, failed, record.bytes, compressed, duration];
            sum.iter_mut().zip(added).for_each(|(sum, add)| *sum += add);
        }
    }
    model
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn span(from_s: i64, to_s: i64) -> String {
    format!("from={}&to={}", at(from_s).second(), at(to_s).second())
}

fn transfer_query(collector: &Collector, text: &str) -> TransferQuery {
    TransferQuery::parse(&pairs(text), &collector.state, collector.state.clock.now()).unwrap()
}

fn link_sums(collector: &Collector, text: &str) -> LinkModel {
    let query = transfer_query(collector, text);
    let summary = Queries(&collector.state)
        .transfer_summary(&query, &Cancel::default())
        .unwrap();
    assert_eq!(summary.damaged, [""; 0]);
    let sums = summary
        .links
        .into_iter()
        .map(|((worker, peer, direction), sum)| {
            let spread = sum.durations.percentiles().unwrap();
            assert_eq!(
                (spread.count, spread.total_ns),
                (sum.count, sum.duration_ns)
            );
            let numbers = [
                sum.count,
                sum.failed,
                sum.bytes,
                sum.compressed_bytes,
                sum.duration_ns,
            ];
            (
                (worker.to_string(), peer.to_string(), direction.name()),
                numbers,
            )
        });
    sums.collect()
}

fn transfer_ids(collector: &Collector, text: &str) -> BTreeSet<(String, u64)> {
    let query = transfer_query(collector, text);
    let answer = Queries(&collector.state)
        .transfers(&query, &Cancel::default())
        .unwrap();
    assert_eq!(answer.total, answer.rows.len() as u64);
    let ids: BTreeSet<_> = answer
        .rows
        .iter()
        .map(|row| (row.worker.to_string(), row.record.id.0))
        .collect();
    assert_eq!(ids.len(), answer.rows.len(), "each row once");
    ids
}

/// Mean, most and least by worker and second, of memory; with a step, by its first second.
fn memory(collector: &Collector, text: &str, step_s: i64) -> BTreeMap<(String, i64), [f64; 3]> {
    let text = format!("{text}&measure=process_memory&step={step_s}s");
    let query =
        ResourceQuery::parse(&pairs(&text), &collector.state, collector.state.clock.now()).unwrap();
    let answer = Queries(&collector.state)
        .resources(&query, &Cancel::default())
        .unwrap();
    let points = answer.series.iter().flat_map(|series| {
        assert_eq!(series.host, "host-1");
        series.points.iter().map(|(time, mean, most, least)| {
            let second = time / SECOND_NS;
            ((series.worker.to_string(), second), [*mean, *most, *least])
        })
    });
    points.collect()
}

/// Several workers that tell one collector.
struct Fleet {
    collector: Collector,
    workers: Vec<(TestWorker, Attachment)>,
}

impl Fleet {
    fn new() -> Fleet {
        let collector = collector(600);
        let workers = OFFSETS_NS.iter().enumerate().map(|(index, offset_ns)| {
            let mut worker = TestWorker::new(&format!("w{index}"), 9);
            worker.offset_ns = *offset_ns;
            let attachment = attach(&collector, &worker, 0).attachment;
            (worker, attachment)
        });
        Fleet {
            workers: workers.collect(),
            collector,
        }
    }

    fn tell(&mut self, worker: usize, records: Telemetry) {
        let (worker, attachment) = &mut self.workers[worker];
        let mut flush = worker.flush(10, vec![]);
        worker.tell(&mut flush, records);
        let answer = send(&self.collector, attachment, worker, &flush);
        assert_eq!(answer, format!("ack {}", flush.seq));
        // Sent again, as after an answer that was lost: it counts once.
        assert_eq!(send(&self.collector, attachment, worker, &flush), answer);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Guards against a search by time over a buffer that is not sorted, midpoints without the
    /// clock's correction, and results zipped with the wrong workers.
    #[test]
    fn transfers_and_samples_are_found_in_their_time_at_their_worker(
        sent in prop::collection::vec(sent_transfer(), 1..40),
        samples in prop::collection::vec(any_sample(), 1..40),
        seals in prop::collection::vec(any::<bool>(), 40), merged in any::<bool>(),
        from_s in 0..90i64, length_s in 1..95i64, cut in 0..95i64, step_s in 2..60i64,
    ) {
        let mut fleet = Fleet::new();
        for (index, event) in sent.iter().enumerate() {
            let transfers = vec![transfer(index as u64 + 1, *event)];
            fleet.tell(event.worker, Telemetry { transfers, ..Telemetry::default() });
            if let Some(sent) = samples.get(index) {
                let resources = vec![sample(*sent)];
                fleet.tell(sent.worker, Telemetry { resources, ..Telemetry::default() });
            }
            if seals[index] {
                seal(&fleet.collector);
            }
        }
        let collector = &fleet.collector;
        if merged {
            seal(collector);
            collector.sealer.maintain(at(3 * 86_400), &collector.sealer.retention()).unwrap();
        }
        let to_s = from_s + length_s;
        let asked = span(from_s, to_s);
        prop_assert_eq!(link_sums(collector, &asked), link_model(&sent, from_s, to_s));

        // Parts of a range add up.
        let middle_s = (from_s + cut).clamp(from_s + 1, to_s);
        let mut parts = link_sums(collector, &span(from_s, middle_s));
        if middle_s < to_s {
            for (link, sums) in link_sums(collector, &span(middle_s, to_s)) {
                let part = parts.entry(link).or_default();
                part.iter_mut().zip(sums).for_each(|(sum, add)| *sum += add);
            }
        }
        prop_assert_eq!(parts, link_model(&sent, from_s, to_s));

        let overlapping = |event: &SentTransfer| {
            event.start_ms < to_s * 1_000 && event.stop_ms() >= from_s * 1_000
        };
        let ids: BTreeSet<_> = sent.iter().enumerate().filter(|(_, event)| overlapping(event)).map(|(index, event)| (format!("w{}", event.worker), index as u64 + 1)).collect();
        prop_assert_eq!(transfer_ids(collector, &asked), ids.clone());
        let of_one = transfer_ids(collector, &format!("{asked}&worker=w1"));
        let expected: BTreeSet<_> = ids.into_iter().filter(|(worker, _)| worker == "w1").collect();
        prop_assert_eq!(of_one, expected);

        for step_s in [1, step_s] {
            let mut points: BTreeMap<(String, i64), Vec<u64>> = BTreeMap::new();
            for sample in samples.iter().take(sent.len()).filter(|sample: &&Sample| (from_s * 1_000..to_s * 1_000).contains(&sample.time_ms)) {
                let second = at(sample.time_ms / 1_000).second() / step_s * step_s;
                let key = (format!("w{}", sample.worker), second);
                points.entry(key).or_default().push(sample.memory());
            }
            let expected: BTreeMap<_, _> = points.into_iter().map(|(key, values)| {
                let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
                let [most, least] = [values.iter().max(), values.iter().min()];
                (key, [mean, *most.unwrap() as f64, *least.unwrap() as f64])
            }).collect();
            prop_assert_eq!(memory(collector, &asked, step_s), expected);
        }
    }
}

fn names_of(progress: &ProgressQuery, collector: &Collector) -> Vec<String> {
    let answer = Queries(&collector.state)
        .progress(progress, &Cancel::default())
        .unwrap();
    answer
        .rows
        .iter()
        .map(|row: &query::ProgressRow| {
            let ended = row.ended();
            let running = row.running;
            format!(
                "{} {ended}+{running} of {:?} {}",
                row.name,
                row.expected,
                row.state()
            )
        })
        .collect()
}

fn progress(collector: &Collector, text: &str) -> Vec<String> {
    let query =
        ProgressQuery::parse(&pairs(text), &collector.state, collector.state.clock.now()).unwrap();
    names_of(&query, collector)
}

fn expected(name: &str, total: u64, since: Timestamp) -> Telemetry {
    let expected = vec![ExpectedTasks {
        name: name.into(),
        total,
        since,
    }];
    Telemetry {
        expected,
        ..Telemetry::default()
    }
}

#[test]
fn progress_counts_to_the_nanosecond_since_expected_sealed_or_not() {
    for sealed in [false, true] {
        let mut fleet = Fleet::new();
        fleet.tell(0, expected("load", 10, ms(20_500)));
        fleet.tell(1, expected("load", 5, ms(20_300)));
        fleet.tell(1, expected("store", 1, ms(21_000)));
        fleet.tell(1, expected("store", 2, ms(21_000)));
        // One ended before it was expected, one in the same second after it, one later; one runs.
        let (worker, attachment) = &mut fleet.workers[0];
        let mut early = worker.task(1, "load", (20, Some(20)));
        let mut late = worker.task(2, "load", (20, Some(20)));
        early.stop_ns += 299_999_999;
        late.stop_ns += 300_000_000;
        let tasks = vec![
            early,
            late,
            worker.task(3, "load", (20, Some(50))),
            worker.task(4, "load", (20, None)),
            worker.task(5, "other", (400, Some(500))),
        ];
        let flush = worker.flush(60, tasks);
        send(&fleet.collector, attachment, worker, &flush);
        if sealed {
            seal(&fleet.collector);
        }
        let collector = &fleet.collector;
        let load = "load 2+1 of Some(15) running";
        let store = "store 0+0 of Some(2) running";
        assert_eq!(
            progress(collector, ""),
            [load, "other 1+0 of None done", store]
        );
        assert_eq!(
            progress(collector, "task=load&worker=w1"),
            ["load 0+0 of Some(5) running"]
        );
        let range = span(0, 100);
        assert_eq!(
            progress(collector, &range)[0],
            "load 3+1 of Some(15) running"
        );
    }
}

/// One task ends every three seconds: at each moment, sealed or not, the remaining time is the time
/// it then takes, and the expected end stays the same.
#[test]
fn the_remaining_time_follows_from_the_rate() {
    let mut fleet = Fleet::new();
    fleet.tell(0, expected("load", 20, at(10)));
    assert_eq!(
        remaining(&fleet.collector, at(11)),
        None,
        "no rate is known yet"
    );
    for number in 1..=20i64 {
        let end = 10 + 3 * number;
        let (worker, attachment) = &mut fleet.workers[0];
        let id = number.unsigned_abs();
        let flush = worker.task(id, "load", (end - 2, Some(end)));
        let flush = worker.flush(end, vec![flush]);
        send(&fleet.collector, attachment, worker, &flush);
        if number % 7 == 0 {
            seal(&fleet.collector);
        }
        let left_s = |now: Timestamp| remaining(&fleet.collector, now).map(|ns| ns as f64 / 1e9);
        let left = (20 - number) as f64 * 3.0;
        assert!(
            (left_s(at(end)).unwrap() - left).abs() < 1e-6,
            "after {number}"
        );
        // Until the next end the end moves, as if the last task took longer.
        let later = left_s(at(end + 1)).unwrap();
        assert!(later >= left && later <= left * (1.0 + 1.0 / (3.0 * number as f64)) + 1e-6);
    }
    assert_eq!(
        remaining(&fleet.collector, at(99)),
        Some(0),
        "all have ended"
    );
}

fn remaining(collector: &Collector, now: Timestamp) -> Option<u64> {
    let pairs = [("task".to_owned(), "load".to_owned())];
    let query = ProgressQuery::parse(&pairs, &collector.state, now).unwrap();
    let rows = Queries(&collector.state)
        .progress(&query, &Cancel::default())
        .unwrap()
        .rows;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    row.remaining_ns()
}

#[test]
fn the_newest_life_of_a_worker_is_its_last() {
    let fleet = Fleet::new();
    for (epoch, from_s) in [(9, 30), (2, 40), (5, 50)] {
        attach(&fleet.collector, &TestWorker::new("again", epoch), from_s);
    }
    let view = query::fleet(&fleet.collector, &WorkersQuery::of(&["again"]), at(0));
    let epochs: Vec<u64> = view.epochs.iter().map(|view| view.epoch.0).collect();
    assert_eq!(epochs, [9, 2, 5]);
}

#[test]
fn expectations_of_many_start_times_do_not_deny_others_their_progress() {
    let mut fleet = Fleet::new();
    for start_s in 0..70 {
        fleet.tell(0, expected(&format!("junk-{start_s}"), 7, at(start_s)));
    }
    fleet.tell(1, expected("load", 5, at(30)));
    let query = |text: &str| {
        let now = fleet.collector.state.clock.now();
        let query = ProgressQuery::parse(&pairs(text), &fleet.collector.state, now).unwrap();
        Queries(&fleet.collector.state)
            .progress(&query, &Cancel::default())
            .unwrap()
    };
    let all = query("");
    assert_eq!(
        (all.rows.len(), all.omitted),
        (65, 6),
        "load starts with another one"
    );
    assert!(all.rows.iter().any(|row| &*row.name == "load"));
    assert!(!all.rows.iter().any(|row| &*row.name == "junk-5"));
    // A requested name is counted.
    let asked = query("task=junk-5");
    assert_eq!((asked.rows.len(), asked.omitted), (1, 0));
}
