//! Sums over several stores equal those of one: random data goes to one collector with all of it, and is split over
//! the collectors of a place.
//!
//! Each worker meets stacks, links and names in an order of its own, so equal things have different numbers in the
//! stores.

use profiler_core::wire::v1;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const TASKS: [&str; 5] = ["load", "store", "parse", "merge", "extra"];

const PEERS: [&str; 6] = ["w1", "w2", "w3", "w4", "disk", "web"];

const TYPES: [&str; 4] = ["Matrix", "Table", "Text", ""];

/// Data that a worker ships in a second in addition to [`Twice::ship`].
#[derive(Clone, Debug, Default)]
pub(super) struct Extra {
    /// Task, path of functions, state, nanoseconds.
    samples: Vec<(usize, Vec<u8>, usize, u64)>,
    /// Task, thread, nanoseconds.
    threads: Vec<(usize, u32, u64)>,
    /// Name, whether it has ended, nanoseconds in a phase.
    tasks: Vec<(usize, bool, u64)>,
    transfers: Vec<ExtraTransfer>,
    /// Name, outcome, number of tasks.
    totals: Vec<(usize, bool, u64)>,
}

#[derive(Clone, Debug)]
struct ExtraTransfer {
    peer: usize,
    type_name: usize,
    is_incoming: bool,
    is_ok: bool,
    bytes: u64,
}

impl Extra {
    pub(super) fn count(&self, worker: &mut TestWorker) {
        for (task, path, state, nanoseconds) in &self.samples {
            let functions: String = path.iter().map(|name| format!(";f{name}:{name}")).collect();
            let stack = format!("{}{functions}", TASKS[*task]);
            worker.count(&stack, State::ALL[*state], *nanoseconds);
        }
        for (task, thread, nanoseconds) in &self.threads {
            let path = format!("{};pool#{thread}", TASKS[*task]);
            worker.count_thread(&path, State::Cpu, *nanoseconds);
        }
    }

    pub(super) fn tasks(&self, worker: &mut TestWorker, second: i64) -> Vec<v1::Task> {
        let mut tasks = Vec::new();
        for ((name, has_ended, phase_ns), number) in self.tasks.iter().zip(1_000..) {
            let id = number + 100 * second.unsigned_abs();
            let phase = PhaseInterval {
                name: if phase_ns % 2 == 0 { "fetch" } else { "write" }.into(),
                start_ns: 0,
                duration_ns: *phase_ns,
                count: 1,
            };
            let detail = TaskDetail {
                phases: vec![phase],
                ..TaskDetail::default()
            };
            let span = (second, has_ended.then_some(second + 1));
            tasks.push(worker.task_with(id, TASKS[*name], span, Some(detail)));
        }
        tasks
    }

    pub(super) fn tell(&self, telemetry: &mut Telemetry, second: i64) {
        for (extra, number) in self.transfers.iter().zip(1_000..) {
            telemetry.transfers.push(TransferEvent {
                id: TransferId(number + 100 * second.unsigned_abs()),
                direction: if extra.is_incoming {
                    Direction::Incoming
                } else {
                    Direction::Outgoing
                },
                peer: PEERS[extra.peer].into(),
                keys: Vec::new(),
                more_keys: 0,
                type_name: TYPES[extra.type_name].into(),
                bytes: extra.bytes,
                compressed_bytes: extra.is_ok.then_some(extra.bytes / 2),
                start: at(second),
                stop: at(second + 1),
                task: None,
                thread_id: 1,
                outcome: if extra.is_ok {
                    Outcome::Ok
                } else {
                    Outcome::Failed
                },
                cause: "".into(),
            });
        }
        for (name, is_ok, count) in &self.totals {
            telemetry.totals.push(TaskTotals {
                name: TASKS[*name].into(),
                second: at(second),
                outcome: if *is_ok { Outcome::Ok } else { Outcome::Failed },
                duration_ns: 700 * count,
                buckets: vec![(700, *count)],
                phases: Vec::new(),
            });
        }
    }
}

fn extra() -> impl Strategy<Value = Extra> {
    let task = 0..TASKS.len();
    let path = prop::collection::vec(0..6u8, 0..4);
    let sample = (task.clone(), path, 0..State::ALL.len(), 1..1_000_000u64);
    let transfer = (
        0..PEERS.len(),
        0..TYPES.len(),
        any::<bool>(),
        any::<bool>(),
        0..1u64 << 40,
    )
        .prop_map(
            |(peer, type_name, is_incoming, is_ok, bytes)| ExtraTransfer {
                peer,
                type_name,
                is_incoming,
                is_ok,
                bytes,
            },
        );
    (
        prop::collection::vec(sample, 0..6),
        prop::collection::vec((task.clone(), 1..5u32, 1..1_000_000u64), 0..4),
        prop::collection::vec((task.clone(), any::<bool>(), 0..1_000_000u64), 0..4),
        prop::collection::vec(transfer, 0..6),
        prop::collection::vec((task, any::<bool>(), 1..9u64), 0..3),
    )
        .prop_map(|(samples, threads, tasks, transfers, totals)| Extra {
            samples,
            threads,
            tasks,
            transfers,
            totals,
        })
}

/// By second, by worker. The queries name workers 1 to 4.
fn fleet(workers: usize) -> impl Strategy<Value = Vec<Vec<Extra>>> {
    prop::collection::vec(prop::collection::vec(extra(), workers.max(4)), 2)
}

async fn check(stores: usize, seconds: Vec<Vec<Extra>>) {
    let place = TempDir::new().unwrap();
    let folder = TempDir::new().unwrap();
    let data = Some(folder.path().to_owned());
    let whole = serve_with(ServeOptions {
        data,
        ..ServeOptions::default()
    })
    .await;
    let mut parts = Vec::new();
    for number in 0..stores {
        parts.push(serve_at(place.path(), &format!("c{number}")).await);
    }
    let mut workers = Vec::new();
    for number in 0..seconds[0].len() {
        let part = &parts[number % stores];
        workers.push(Twice::attach(&format!("w{}", number + 1), &whole, part).await);
    }
    for (number, second) in seconds.iter().enumerate() {
        for (worker, extra) in workers.iter_mut().zip(second) {
            worker.ship_with(extra).await;
        }
        // In the end, half of the stores have data of the last second in their log only.
        for (place, part) in parts.iter().enumerate() {
            if number == 0 || place % 2 == 0 {
                seal(part).await;
            }
        }
    }
    seal(&whole).await;
    let expected = answers(&whole).await;
    let reader = follow(place.path()).await;
    assert_eq!(
        compare(&expected, &answers(&reader).await),
        None,
        "in tables and logs"
    );
    reader.end().await;
    for part in &parts {
        seal(part).await;
    }
    let reader = follow(place.path()).await;
    assert_eq!(
        compare(&expected, &answers(&reader).await),
        None,
        "in tables"
    );
}

/// Checks one random fleet of at least so many workers. A case is two servers and more, so a failing one is not
/// made smaller, and the environment does not choose their number.
fn check_one(stores: usize, workers: usize) {
    let config = ProptestConfig {
        cases: 1,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    };
    let checked = TestRunner::new(config).run(&fleet(workers), |seconds| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(stores, seconds));
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn two_stores_have_the_sums_of_one() {
    check_one(2, 4);
}

#[test]
fn three_stores_have_the_sums_of_one() {
    check_one(3, 5);
}

#[test]
fn ten_stores_have_the_sums_of_one() {
    check_one(10, 10);
}
