//! The ledger against a list of rows that is searched from end to end.

use proptest::prelude::*;

use super::*;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ns(seconds * 1_000_000_000)
}

fn worker(id: u8) -> WorkerId {
    WorkerId(format!("w{id}").into())
}

fn row(who: (u8, u64, u64), name: &str, span: (i64, Option<i64>), outcome: Outcome) -> TaskRow {
    let record = TaskRecord {
        id: TaskId(who.2),
        name: name.into(),
        key: "".into(),
        thread_id: 1,
        thread_name: "t".into(),
        parent: None,
        start: time(span.0),
        stop: span.1.map(time),
        outcome,
        cause: "".into(),
    };
    TaskRow { worker: worker(who.0), epoch: Epoch(who.1), record }
}

#[derive(Clone, Debug)]
enum Step {
    Upsert(TaskRow),
    EndAsLost(u8, u64, i64),
    RunAgain(u8, u64),
}

/// Few workers, epochs, ids, names and seconds, so that all of them meet.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = (0..2u8, 0..2u64, 1..6u64);
    let upsert = (who, 0..3u8, 0..30i64, 0..10i64, 0..4usize).prop_map(
        |(who, name, start, length, outcome)| {
            let outcome = Outcome::ALL[outcome];
            let stop = (outcome != Outcome::Running).then_some(start + length);
            Step::Upsert(row(who, &format!("n{name}"), (start, stop), outcome))
        },
    );
    let step = prop_oneof![
        8 => upsert,
        1 => (0..2u8, 0..2u64, 0..40i64).prop_map(|(w, e, at)| Step::EndAsLost(w, e, at)),
        1 => (0..2u8, 0..2u64).prop_map(|(w, e)| Step::RunAgain(w, e)),
    ];
    prop::collection::vec(step, 0..60)
}

/// A list of rows, in the order in which they ended or began.
#[derive(Default)]
struct Model {
    rows: Vec<TaskRow>,
    /// What is known of each task, also of those whose rows were thinned.
    latest: BTreeMap<TaskKey, TaskRow>,
    thinned: u64,
}

impl Model {
    fn apply(&mut self, step: &Step, rows_max: usize) {
        let of = |row: &TaskRow, w: u8, e: u64| row.worker == worker(w) && row.epoch == Epoch(e);
        match step {
            Step::Upsert(row) => self.put(row.clone()),
            Step::EndAsLost(w, e, last_seen) => {
                let (mut running, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.rows)
                    .into_iter()
                    .partition(|row| of(row, *w, *e) && row.record.stop.is_none());
                self.rows = rest;
                running.sort_by_key(TaskRow::key);
                for mut row in running {
                    row.record.stop = Some(time(*last_seen).max(row.record.start));
                    row.record.outcome = Outcome::Lost;
                    self.put(row);
                }
            }
            Step::RunAgain(w, e) => {
                let lost = |row: &TaskRow| row.record.outcome == Outcome::Lost;
                let mut again = self.rows.clone();
                again.retain(|row| of(row, *w, *e) && lost(row));
                for mut row in again {
                    row.record.stop = None;
                    row.record.outcome = Outcome::Running;
                    self.put(row);
                }
            }
        }
        while self.rows.len() > rows_max {
            self.thinned += 1;
            let finished =
                self.rows.iter().enumerate().filter(|(_, row)| row.record.stop.is_some());
            // The first of equal ones: it ended first.
            match finished.min_by_key(|(index, row)| (row.record.stop, *index)) {
                Some((oldest, _)) => self.rows.remove(oldest),
                None => self.rows.pop().unwrap(),
            };
        }
    }

    fn put(&mut self, row: TaskRow) {
        self.rows.retain(|other| other.key() != row.key());
        self.latest.insert(row.key(), row.clone());
        self.rows.push(row);
    }
}

fn apply(ledger: &mut Ledger, step: &Step) {
    match step.clone() {
        Step::Upsert(row) => ledger.upsert(row),
        Step::EndAsLost(w, e, at) => {
            ledger.end_as_lost(&worker(w), Epoch(e), time(at));
        }
        Step::RunAgain(w, e) => ledger.run_again(&worker(w), Epoch(e)),
    }
}

fn sorted(mut rows: Vec<TaskRow>) -> Vec<TaskRow> {
    rows.sort_by_key(|row| (std::cmp::Reverse(row.record.start), row.key()));
    rows
}

proptest! {
    #[test]
    fn a_range_has_the_rows_of_a_search_from_end_to_end(
        steps in steps(), rows_max in prop_oneof![Just(1_000usize), 1..12usize],
        from in 0..40i64, length in 1..20i64, limit in 1..20usize,
        name in prop::option::of(0..3u8), w in prop::option::of(0..2u8),
        outcome in prop::option::of(0..6usize),
    ) {
        let (mut ledger, mut model) = (Ledger::new(rows_max, 100), Model::default());
        for step in &steps {
            apply(&mut ledger, step);
            model.apply(step, rows_max);
        }
        let filter = TaskFilter {
            names: name.map(|name| format!("n{name}")).into_iter().collect(),
            workers: w.map(|w| format!("w{w}")).into_iter().collect(),
            outcomes: outcome.map(|outcome| Outcome::ALL[outcome]).into_iter().collect(),
        };
        let range = TimeRange::new(time(from), time(from + length)).unwrap();
        let expected = sorted(model.rows.iter().filter(|row| {
            let record = &row.record;
            record.start < range.stop()
                && record.stop.is_none_or(|stop| stop >= range.start())
                && name.is_none_or(|name| *record.name == *format!("n{name}"))
                && w.is_none_or(|w| row.worker == worker(w))
                && outcome.is_none_or(|outcome| record.outcome == Outcome::ALL[outcome])
        }).cloned().collect());
        let found = ledger.snapshot(range).select(&filter, limit);
        let rows: Vec<TaskRow> = found.rows.iter().map(|row| (**row).clone()).collect();
        prop_assert_eq!(found.total, expected.len() as u64);
        prop_assert_eq!(&rows[..], &expected[..expected.len().min(limit)]);
        prop_assert_eq!(ledger.row_count(), model.rows.len());
        prop_assert_eq!(ledger.thinned(), model.thinned);

        let summary = ledger.snapshot(range).summarize(&filter);
        let counted: u64 =
            summary.values().flat_map(|t| Outcome::ALL.map(|o| t.outcomes.get(o))).sum();
        prop_assert_eq!(counted, expected.len() as u64);
    }

    /// Tasks end once, as workers tell it; only lost ones may still change. Then the totals are
    /// those of all tasks, however few rows are kept.
    #[test]
    fn totals_by_name_are_exact_however_few_rows_are_kept(
        steps in steps(), rows_max in 1..12usize, names_max in 1..4usize,
    ) {
        let (mut ledger, mut model) = (Ledger::new(rows_max, names_max), Model::default());
        for step in &steps {
            if let Step::Upsert(row) = step
                && let Some(known) = model.latest.get(&row.key())
                && (!matches!(known.record.outcome, Outcome::Running | Outcome::Lost)
                    || known.record.name != row.record.name
                    || row.record.stop.is_none())
            {
                continue;
            }
            apply(&mut ledger, step);
            model.apply(step, rows_max);
        }
        // A row thinned while it was lost is lost until its end is told, also if its worker is back.
        let mut expected = BTreeMap::<Outcome, (u64, u128)>::new();
        for row in model.latest.values().filter(|row| row.record.stop.is_some()) {
            let (count, sum) = expected.entry(row.record.outcome).or_default();
            *count += 1;
            *sum += u128::from(row.duration_ns().unwrap());
        }
        for outcome in Outcome::ALL {
            let count: u64 = ledger.totals().iter().map(|(_, t)| t.outcomes.get(outcome)).sum();
            prop_assert_eq!(count, expected.get(&outcome).map_or(0, |e| e.0), "{:?}", outcome);
        }
        expected.remove(&Outcome::Lost);
        let spreads = ledger.totals().iter().filter_map(|(_, total)| total.durations.spread());
        let sum: u64 = spreads.map(|spread| spread.total_ns).sum();
        prop_assert_eq!(u128::from(sum), expected.values().map(|e| e.1).sum::<u128>());
        prop_assert!(ledger.totals().names().count() <= names_max + 1);
    }
}

#[test]
fn a_lost_task_is_corrected_by_its_true_end() {
    let mut ledger = Ledger::new(10, 10);
    let who = (0, 7, 1);
    ledger.upsert(row(who, "load", (5, None), Outcome::Running));
    assert_eq!(ledger.end_as_lost(&worker(0), Epoch(7), time(3)), 1);
    let lost = |ledger: &Ledger| {
        let rows = ledger.snapshot(TimeRange::ALL).select(&TaskFilter::default(), 10).rows;
        (rows[0].record.outcome, rows[0].record.stop)
    };
    // Its worker was last seen before it started, by a clock that was estimated anew since.
    assert_eq!(lost(&ledger), (Outcome::Lost, Some(time(5))));
    ledger.run_again(&worker(0), Epoch(7));
    assert_eq!(lost(&ledger), (Outcome::Running, None));
    assert_eq!(ledger.end_as_lost(&worker(0), Epoch(7), time(9)), 1);
    ledger.upsert(row(who, "load", (5, Some(6)), Outcome::Erred));
    assert_eq!(lost(&ledger), (Outcome::Erred, Some(time(6))));
    let total = ledger.totals().iter().next().unwrap().1.clone();
    assert_eq!((total.outcomes.get(Outcome::Lost), total.outcomes.get(Outcome::Erred)), (0, 1));
}

#[test]
fn a_reader_keeps_what_it_took() {
    let mut ledger = Ledger::new(10, 10);
    ledger.upsert(row((0, 0, 1), "load", (1, Some(2)), Outcome::Ok));
    let before = ledger.snapshot(TimeRange::ALL);
    ledger.upsert(row((0, 0, 2), "load", (1, Some(2)), Outcome::Ok));
    let between = ledger.snapshot(TimeRange::ALL);
    ledger.upsert(row((0, 0, 1), "load", (1, Some(2)), Outcome::Erred));
    let outcomes = |snapshot: &Snapshot| {
        let rows = snapshot.select(&TaskFilter::default(), 10).rows;
        rows.iter().map(|row| row.record.outcome).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(&before), [Outcome::Ok]);
    assert_eq!(outcomes(&between), [Outcome::Ok, Outcome::Ok]);
    assert_eq!(outcomes(&ledger.snapshot(TimeRange::ALL)), [Outcome::Erred, Outcome::Ok]);
}
