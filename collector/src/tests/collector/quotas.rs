//! Past an identity's quotas detail is lost, and totals are not.

use super::*;
use shares::{Account, Quota, QuotaSettings};

fn account(number: u8, quotas: &[(Quota, u64)]) -> std::sync::Arc<Account> {
    let mut settings = QuotaSettings::default();
    quotas
        .iter()
        .for_each(|(quota, value)| settings.set(*quota, *value).unwrap());
    Account::of_test_with(number, &settings)
}

/// Sends stacks of as many functions, and returns those that the collector shows, without the
/// tasks' own nodes, and the total.
fn functions_of(
    collector: &Collector,
    name: &str,
    account: &std::sync::Arc<Account>,
) -> Vec<String> {
    let mut worker = TestWorker::new(name, 1);
    let attached = at_once(collector.ingest.attach(account, worker.hello(), at(40))).unwrap();
    for index in 0..10 {
        worker.count(&format!("{name};{name}-{index}"), State::Cpu, 1);
    }
    let flush = worker.flush(30, vec![]);
    assert_eq!(
        send(collector, &attached.attachment, &mut worker, &flush),
        "ack 1"
    );
    let filter = Filter {
        tasks: vec![name.into()],
        ..Filter::default()
    };
    let profile = ask(collector, range(0, 100), filter).profile;
    assert_eq!(profile.total().total_ns(), 10);
    let text = flamegraph::collapsed(&profile);
    text.lines()
        .map(|line| line.rsplit(';').next().unwrap().to_owned())
        .collect()
}

#[test]
fn nodes_past_a_quota_become_overflow_for_that_identity_only() {
    let collector = collector(50);
    let greedy = account(1, &[(Quota::Nodes, 4)]);
    let shown = functions_of(&collector, "greedy", &greedy);
    // The task's own node is one of the four.
    assert_eq!(shown.len(), 4, "{shown:?}");
    assert!(
        shown.iter().any(|line| line == "[overflow] 00007"),
        "{shown:?}"
    );
    assert_eq!(greedy.refusals().collect::<Vec<_>>(), [(Quota::Nodes, 1)]);
    let honest = account(2, &[]);
    assert_eq!(functions_of(&collector, "honest", &honest).len(), 10);
    assert_eq!(honest.refusals().count(), 0);
}

/// Quotas count from the start of the collector, but the tree stays.
#[test]
fn a_tree_that_earlier_lives_filled_has_room_for_another_identity() {
    let objects = store::Objects::memory();
    let open = || {
        let limits = Limits {
            tree_nodes_max: 1_000,
            ..Limits::default()
        };
        let settings = Settings {
            clock: Clock::from_fn(|| at(50)),
            limits,
            ..Settings::default()
        };
        Collector::over(settings, objects.clone()).unwrap()
    };
    // Each task has 11 nodes.
    for (life, tasks) in [(1, 80), (2, 17)] {
        let collector = open();
        let greedy = account(1, &[]);
        for task in 0..tasks {
            functions_of(&collector, &format!("greedy-{life}-{task}"), &greedy);
        }
        assert!(
            greedy.refusals().count() > 0,
            "life {life} is within its share"
        );
        seal(&collector);
    }
    let honest = account(2, &[]);
    assert_eq!(functions_of(&open(), "honest", &honest).len(), 10);
    assert_eq!(honest.refusals().count(), 0);
}

#[test]
fn names_past_a_quota_become_overflow_for_that_identity_only() {
    let collector = collector(50);
    let greedy = account(1, &[(Quota::SymbolBytes, 1)]);
    assert_eq!(
        functions_of(&collector, "first", &greedy).len(),
        10,
        "one message may exceed it"
    );
    let mut worker = TestWorker::new("second", 1);
    let attached = at_once(collector.ingest.attach(&greedy, worker.hello(), at(40))).unwrap();
    worker.count("first;first-1;new", State::Cpu, 5);
    let flush = worker.flush(31, vec![]);
    assert_eq!(
        send(&collector, &attached.attachment, &mut worker, &flush),
        "ack 1"
    );
    assert_eq!(
        greedy.refusals().collect::<Vec<_>>(),
        [(Quota::SymbolBytes, 1)]
    );
    let profile = ask(&collector, range(0, 100), Filter::default()).profile;
    assert_eq!(profile.total().total_ns(), 15);
    let text = flamegraph::collapsed(&profile);
    assert!(
        text.contains("[overflow]") && !text.contains(";new"),
        "{text}"
    );
    assert_eq!(
        functions_of(&collector, "honest", &account(2, &[])).len(),
        10
    );
}

#[test]
fn running_tasks_past_a_quota_are_counted_for_that_identity_only() {
    let collector = collector(50);
    let quota = 64 << 10;
    let greedy = account(1, &[(Quota::RunningBytes, quota)]);
    let honest = account(2, &[]);
    let mut running = Vec::new();
    for (name, account) in [("greedy", &greedy), ("honest", &honest)] {
        let mut worker = TestWorker::new(name, 1);
        let attached = at_once(collector.ingest.attach(account, worker.hello(), at(40))).unwrap();
        let tasks = (1..=200)
            .map(|id| worker.task(id, "load", (20, None)))
            .collect();
        let flush = worker.flush(30, tasks);
        assert_eq!(
            send(&collector, &attached.attachment, &mut worker, &flush),
            "ack 1"
        );
        running.push(read(&collector.state.ledger).running_count(&worker.id, worker.epoch));
        if name == "greedy" {
            assert_eq!(
                greedy.refusals().collect::<Vec<_>>(),
                [(Quota::RunningBytes, 200 - running[0] as u64)]
            );
            collector
                .ingest
                .detach(&attached.attachment, DisconnectReason::Clean, at(45));
        }
    }
    // A row takes at least 512 bytes.
    assert!((64..128).contains(&running[0]), "{running:?}");
    assert_eq!(running[1], 200);
    assert_eq!(
        read(&collector.state.ledger).aggregated(),
        200 - running[0] as u64
    );
    assert!(
        greedy.has_room_for_task(quota as usize),
        "its tasks have ended"
    );
}
