//! Queries over tables of which a part cannot be read.

use super::*;
use query::Queries;

/// A collector over `objects`, with a second of 7 ns in its tables.
fn sealed_over(objects: &store::Objects) -> Collector {
    let settings = Settings {
        clock: Clock::from_fn(|| at(50)),
        ..Settings::default()
    };
    let collector = Collector::over(settings, objects.clone()).unwrap();
    let mut worker = TestWorker::new("w", 1);
    let attachment = attach(&collector, &worker, 0).attachment;
    worker.count("load;main", State::Cpu, 7);
    let flush = worker.flush(10, vec![worker.clone().task(1, "load", (10, Some(11)))]);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 1");
    seal(&collector);
    worker.count("load;main", State::Cpu, 100);
    let flush = worker.flush(12, vec![]);
    assert_eq!(send(&collector, &attachment, &mut worker, &flush), "ack 2");
    collector
}

#[test]
fn a_damaged_file_is_named_and_the_rest_answers() {
    let objects = store::Objects::memory();
    let collector = sealed_over(&objects);
    let second = || ask(&collector, range(10, 13), Filter::default());
    assert_eq!(second().profile.total().total_ns(), 107);
    assert_eq!(second().facts.damaged, Vec::<String>::new());
    assert_eq!(tasks_with_key(&collector), (1, vec![]));
    let manifest = read(&collector.state.windows)
        .view(store::Second(0)..store::Second(1), Timestamp::MAX)
        .manifest;
    let name = |table: store::SumTable| {
        let table = store::TableName::Sums(table, store::Tier::Second);
        manifest.files_of(table).next().unwrap().path()
    };
    let samples = name(store::SumTable::Samples);
    let ledger = manifest
        .files_of(store::TableName::Tasks)
        .next()
        .unwrap()
        .path();
    objects.delete(&samples).unwrap();
    objects.delete(&ledger).unwrap();
    let answer = second();
    assert_eq!(answer.profile.total().total_ns(), 100);
    assert_eq!(
        (answer.facts.sampling.windows, answer.facts.damaged),
        (2, vec![samples])
    );
    assert_eq!(tasks_with_key(&collector), (0, vec![ledger]));
}

/// A sealing moves rows from memory to tables, and must not change from which tables the others come.
#[test]
fn an_answer_about_a_damaged_file_is_the_same_after_a_sealing() {
    let mut checked = 0;
    for tier in store::Tier::ALL {
        for table in [store::SumTable::Samples, store::SumTable::SamplesAll] {
            if !table.has(tier) {
                continue;
            }
            let objects = store::Objects::memory();
            let settings = Settings {
                clock: Clock::from_fn(|| at(2_000)),
                ..Settings::default()
            };
            let collector = Collector::over(settings, objects.clone()).unwrap();
            let mut worker = TestWorker::new("w", 1);
            let attachment = attach(&collector, &worker, 0).attachment;
            let mut flush_at = |second: i64, nanoseconds: u64| {
                worker.count("load;main", State::Cpu, nanoseconds);
                let flush = worker.flush(second, vec![]);
                let answer = send_at(second + 1, &collector, &attachment, &mut worker, &flush);
                assert!(answer.starts_with("ack"), "{answer}");
            };
            flush_at(205, 7);
            seal(&collector);
            let name = store::TableName::Sums(table, tier);
            let manifest = collector.state.tables.manifest();
            let damaged = manifest.files_of(name).next().unwrap().path();
            objects.delete(&damaged).unwrap();
            flush_at(1_340, 100);
            let total = || {
                let answer = ask(&collector, range(35, 10_000), Filter::default());
                (answer.profile.total().total_ns(), answer.facts.damaged)
            };
            let before = total();
            seal(&collector);
            assert_eq!(total(), before, "{damaged}");
            checked += usize::from(before.0 == 100);
        }
    }
    assert_eq!(checked, 1, "one table answers for the damaged second");
}

fn tasks_with_key(collector: &Collector) -> (u64, Vec<String>) {
    let pairs: Vec<_> = ["from", "key"]
        .map(str::to_owned)
        .into_iter()
        .zip(["-1h", "load-1"])
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    let query = TaskQuery::parse(&pairs, &collector.state, at(50)).unwrap();
    let answer = Queries(&collector.state)
        .tasks(&query, &Cancel::default())
        .unwrap();
    (answer.selection.total, answer.damaged)
}

#[test]
fn rows_of_unknown_stacks_are_an_error() {
    let collector = sealed_over(&store::Objects::memory());
    let mut empty = Tree::new(10, 1_000);
    empty.task_node("other");
    *write(&collector.state.tree) = empty;
    let range = range(0, 11);
    let filter = Filter::default();
    let query = whole(range, filter, By::Line, Format::Json);
    let error = Queries(&collector.state)
        .profile(&query, &Cancel::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("1 rows of the store refer to unknown stacks"),
        "{error}"
    );
}

#[test]
fn a_query_ends_when_its_reader_disconnects() {
    let collector = sealed_over(&store::Objects::memory());
    let cancel = Cancel::default();
    cancel.set();
    let range = range(0, 20);
    let filter = Filter::default();
    let query = TimelineQuery::of(range, filter.clone(), 1_000_000_000);
    assert!(matches!(
        Queries(&collector.state).timeline(&query, &cancel),
        Err(QueryError::Cancelled)
    ));
    let query = whole(range, filter, By::Line, Format::Json);
    assert!(matches!(
        Queries(&collector.state).profile(&query, &cancel),
        Err(QueryError::Cancelled)
    ));
    let query = TaskQuery::parse(&[], &collector.state, at(50)).unwrap();
    assert!(matches!(
        Queries(&collector.state).tasks(&query, &cancel),
        Err(QueryError::Cancelled)
    ));
    assert!(matches!(
        Queries(&collector.state).task_summary(&query, &cancel),
        Err(QueryError::Cancelled)
    ));
}
