//! The ledger against a list of rows that is searched from end to end.

use profiler_core::{NodeId, PhaseInterval, TaskDetail};
use proptest::prelude::*;

use super::*;
use store::rows::Names;
use store::{DurationRows, Row, TaskNode, TaskNodes, Tier};

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
        detail: detail(who.2, span),
    };
    TaskRow {
        worker: worker(who.0),
        epoch: Epoch(who.1),
        record,
    }
}

/// Every other task waited in a queue, and in a transfer for half of its time.
fn detail(id: u64, span: (i64, Option<i64>)) -> Option<Box<TaskDetail>> {
    let duration_ns = (span.1.unwrap_or(span.0) - span.0).unsigned_abs() * 1_000_000_000;
    let phases = vec![
        phase("queue", -500, 500),
        phase("transfer", 0, duration_ns / 2),
    ];
    (id % 2 == 1).then(|| {
        Box::new(TaskDetail {
            phases,
            ..TaskDetail::default()
        })
    })
}

fn phase(name: &str, start_ns: i64, duration_ns: u64) -> PhaseInterval {
    PhaseInterval {
        name: name.into(),
        start_ns,
        duration_ns,
        count: 1,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Upsert(TaskRow),
    EndAsLost(u8, u64, i64),
    RunAgain(u8, u64),
    /// Begins a sealing, after so many seconds that lost tasks are final or not.
    Take(bool),
    Seal,
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
        1 => any::<bool>().prop_map(Step::Take),
        1 => Just(Step::Seal),
    ];
    prop::collection::vec(step, 0..60)
}

/// A list of rows, and what was written to tables, where nothing replaces it any more.
#[derive(Default)]
struct Model {
    rows: Vec<TaskRow>,
    final_rows: Vec<TaskRow>,
    aggregated: u64,
}

impl Model {
    fn apply(&mut self, step: &Step, running_max: usize) {
        match step {
            Step::Upsert(row) => {
                self.rows
                    .retain(|other| TaskKey::of(other) != TaskKey::of(row));
                let running = self
                    .rows
                    .iter()
                    .filter(|row| row.record.stop.is_none())
                    .count();
                if row.record.stop.is_none() && running >= running_max {
                    self.aggregated += 1;
                } else {
                    self.rows.push(row.clone());
                }
            }
            Step::EndAsLost(w, e, last_seen) => {
                for row in self.rows.iter_mut().filter(|row: &&mut TaskRow| {
                    is_of_life(row, *w, *e) && row.record.stop.is_none()
                }) {
                    row.record.stop = Some(time(*last_seen).max(row.record.start));
                    row.record.outcome = Outcome::Lost;
                }
            }
            Step::RunAgain(w, e) => {
                for row in self.rows.iter_mut().filter(|row: &&mut TaskRow| {
                    is_of_life(row, *w, *e) && row.record.outcome == Outcome::Lost
                }) {
                    row.record.stop = None;
                    row.record.outcome = Outcome::Running;
                }
            }
            Step::Take(lost_too) => {
                self.final_rows
                    .extend(self.rows.extract_if(
                        ..,
                        |row: &mut TaskRow| match row.record.outcome {
                            Outcome::Running => false,
                            Outcome::Lost => *lost_too,
                            _ => true,
                        },
                    ));
            }
            Step::Seal => {}
        }
    }

    fn all(&self) -> impl Iterator<Item = &TaskRow> {
        self.rows.iter().chain(&self.final_rows)
    }
}

fn is_of_life(row: &TaskRow, w: u8, e: u64) -> bool {
    row.worker == worker(w) && row.epoch == Epoch(e)
}

/// A ledger with the tables that its sealings write.
struct Sealed {
    ledger: Ledger,
    taken: Option<Vec<Arc<TaskRow>>>,
    tables: Vec<Arc<TaskRow>>,
}

impl Sealed {
    fn apply(&mut self, step: &Step) {
        let ledger = &mut self.ledger;
        match step.clone() {
            Step::Upsert(row) => ledger.upsert(row),
            Step::EndAsLost(w, e, at) => {
                ledger.end_as_lost(&worker(w), Epoch(e), time(at));
            }
            Step::RunAgain(w, e) => ledger.resume_lost(&worker(w), Epoch(e)),
            Step::Take(lost_too) => {
                let now = if lost_too {
                    100 + LOST_KEPT.as_secs()
                } else {
                    0
                };
                self.taken = Some(
                    ledger
                        .take_for_sealing(time(now.cast_signed()))
                        .into_batch()
                        .ended,
                );
            }
            Step::Seal => {
                if let Some(taken) = self.taken.take() {
                    self.tables.extend(taken);
                    drop(ledger.sealed(Arc::new(Manifest::default())));
                }
            }
        }
    }
}

fn sorted(mut rows: Vec<TaskRow>) -> Vec<TaskRow> {
    rows.sort_by(|a, b| {
        let order = |row: &TaskRow| {
            (
                std::cmp::Reverse(row.record.start),
                row.record.id,
                row.epoch,
            )
        };
        order(a)
            .cmp(&order(b))
            .then_with(|| a.worker.cmp(&b.worker))
    });
    rows
}

proptest! {
    // Tasks without length that start with others decide only few cases.
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn a_range_has_the_rows_of_a_full_scan(
        steps in steps(), running_max in prop_oneof![Just(1_000usize), 1..12usize],
        from in 0..40i64, length in 1..20i64, limit in 1..20usize,
        name in prop::option::of(0..3u8), w in prop::option::of(0..2u8),
        outcome in prop::option::of(0..6usize), is_filtered in any::<bool>(),
    ) {
        let ledger = Ledger::new(Arc::new(Manifest::default()), running_max);
        let mut sealed = Sealed { ledger, taken: None, tables: Vec::new() };
        let mut model = Model::default();
        for step in &steps {
            // A task ends once: no worker reports it again after its end.
            if matches!(step, Step::Upsert(row) if model.final_rows.iter().any(|s| TaskKey::of(s) == TaskKey::of(row))) {
                continue;
            }
            sealed.apply(step);
            model.apply(step, running_max);
        }
        let (name, w, outcome) = if is_filtered { (name, w, outcome) } else { (None, None, None) };
        let filter = TaskFilter {
            names: name.map(|name| format!("n{name}")).into_iter().collect(),
            keys: is_filtered.then(String::new).into_iter().collect(),
            workers: w.map(|w| format!("w{w}")).into_iter().collect(),
            outcomes: outcome.map(|outcome| Outcome::ALL[outcome]).into_iter().collect(),
            types: Names::default(),
        };
        let range = TimeRange::new(time(from), time(from + length)).unwrap();
        let expected = sorted(model.all().filter(|row| {
            let record = &row.record;
            record.start < range.stop()
                && record.stop.is_none_or(|stop| stop >= range.start())
                && name.is_none_or(|name| *record.name == *format!("n{name}"))
                && w.is_none_or(|w| row.worker == worker(w))
                && outcome.is_none_or(|outcome| record.outcome == Outcome::ALL[outcome])
        }).cloned().collect());
        let mut selecting = NewestTasks::new(limit);
        let snapshot = sealed.ledger.snapshot(range);
        snapshot.select_newest(range, &filter, &mut selecting);
        let rows = sealed.tables.iter();
        rows.filter(|row| overlaps(row, range) && filter.keeps(row))
            .for_each(|row| selecting.offer(row));
        let found = selecting.done();
        let rows: Vec<TaskRow> = found.rows.iter().map(|row| (**row).clone()).collect();
        prop_assert_eq!(found.total, expected.len() as u64);
        prop_assert_eq!(&rows[..], &expected[..expected.len().min(limit)]);
        let held = model.all().count() - sealed.tables.len();
        prop_assert_eq!(sealed.ledger.row_count(), held);
        prop_assert_eq!(sealed.ledger.aggregated(), model.aggregated);
    }

    /// Rows for tables, summed by name and outcome, are the totals of the tasks themselves, whether
    /// these came as rows or as sums.
    #[test]
    fn rows_of_durations_count_every_ended_task_once(steps in steps(), summed in any::<u64>()) {
        let mut model = Model::default();
        steps.iter().for_each(|step| model.apply(step, 1_000));
        let node_of = |name: &str| NodeId(name[1..].parse::<u32>().unwrap() * 10 + 10);
        let phase_node = |task: u32, name: &str| if name == "queue" { task + 1 } else { task + 2 };
        let is_sum = |row: &TaskRow| {
            summed >> (row.record.id.0 % 64) & 1 == 1
                && !matches!(row.record.outcome, Outcome::Running | Outcome::Lost)
        };
        let (sums, kept): (Vec<&TaskRow>, Vec<&TaskRow>) = model.all().partition(|row| is_sum(row));
        let totals: Vec<TaskTotals> = sums.iter().map(|row| totals_of(row)).collect();
        let nodes: TaskNodes = ["n0", "n1", "n2"].into_iter().map(|name| {
            let node = node_of(name);
            let phases = ["queue", "transfer"].map(|phase| (phase.into(), NodeId(phase_node(node.0, phase))));
            (name.into(), TaskNode { node, phases: phases.into_iter().collect() })
        }).collect();
        let rows = DurationRows::of(kept, &totals, &nodes);
        let mut found: BTreeMap<u32, NameTotal> = BTreeMap::new();
        let mut seconds = BTreeMap::<u32, u64>::new();
        let mut each = |rows: &[Row], add: &mut dyn FnMut(&mut NameTotal, Outcome, u32, u64)| {
            for row in rows {
                let fields = row.key.fields(Tier::Second);
                let outcome = Outcome::ALL[usize::from(fields.kind)];
                *seconds.entry(fields.ts.0).or_default() += 1;
                let total = found.entry(fields.task.0).or_default();
                add(total, outcome, fields.node % 10, row.value);
            }
        };
        let name = |node: u32| if node == 1 { "queue".into() } else { "transfer".into() };
        each(&rows.sums, &mut |total, outcome, _, value| total.add_to_total(outcome, value));
        each(&rows.phases, &mut |total, outcome, node, value| match (outcome, node) {
            (Outcome::Lost, _) => {}
            (_, 0) => total.aggregated += value,
            _ => total.phases.by_name.entry(name(node)).or_default().add(value, 0),
        });
        each(&rows.phase_sums, &mut |total, outcome, node, value| match (outcome, node) {
            (Outcome::Lost, _) => {}
            (_, 0) => total.phases.inside_ns += value,
            _ => total.phases.by_name.entry(name(node)).or_default().add(0, value),
        });
        for row in &rows.counts {
            let fields = row.key.fields(Tier::Second);
            let outcome = Outcome::ALL[usize::from(fields.kind)];
            let total = found.entry(fields.task.0).or_default();
            total.count_in_buckets(outcome, [(fields.node, row.value)].into_iter());
        }
        let mut expected: BTreeMap<u32, NameTotal> = BTreeMap::new();
        for row in model.all().filter(|row| row.record.stop.is_some()) {
            let total = expected.entry(node_of(&row.record.name).0).or_default();
            total.count(row);
            total.aggregated += u64::from(is_sum(row));
        }
        prop_assert_eq!(&found, &expected);
        let stops: BTreeSet<u32> = model.all().filter_map(|row| row.record.stop).map(|stop| u32::try_from(stop.second()).unwrap()).collect();
        prop_assert_eq!(seconds.into_keys().collect::<BTreeSet<u32>>(), stops);

        // In memory, before any table.
        let mut summed: BTreeMap<u32, NameTotal> = BTreeMap::new();
        for totals in &totals {
            summed.entry(node_of(&totals.name).0).or_default().count_sum(totals);
        }
        for row in model.all().filter(|row| !is_sum(row) && row.record.stop.is_some()) {
            summed.entry(node_of(&row.record.name).0).or_default().count(row);
        }
        prop_assert_eq!(summed, expected);
    }

    /// Counted bytes are those of the texts of present rows, whatever happens to the rows.
    #[test]
    fn bytes_are_counted_for_present_rows(steps in steps()) {
        let ledger = Ledger::new(Arc::new(Manifest::default()), 4);
        let mut sealed = Sealed { ledger, taken: None, tables: Vec::new() };
        for step in &steps {
            sealed.apply(step);
            let ledger = &sealed.ledger;
            let open = ledger.running.values().chain(ledger.lost.values());
            let chunks = ledger.sealing.iter().chain([&ledger.ended]).flat_map(BTreeMap::values);
            let ended = chunks.flat_map(|chunk| chunk.rows.values());
            prop_assert_eq!(ledger.open_bytes, open.map(|row| open_row_bytes(row)).sum::<usize>());
            let ended: usize = ended.map(|row| row.text_bytes()).sum();
            prop_assert_eq!(ledger.ended_bytes + ledger.sealing_bytes, ended);
        }
    }
}

/// One ended task as a sum.
fn totals_of(row: &TaskRow) -> TaskTotals {
    let phases = row
        .record
        .detail
        .as_ref()
        .map_or(&[][..], |detail| &detail.phases);
    let before = |phase: &PhaseInterval| phase.start_ns < 0;
    TaskTotals {
        name: row.record.name.clone(),
        outcome: row.record.outcome,
        second: row.record.stop.unwrap(),
        duration_ns: row.duration_ns().unwrap(),
        buckets: vec![(bucket(row.duration_ns().unwrap()), 1)],
        phases: phases
            .iter()
            .map(|phase| PhaseInterval {
                start_ns: if before(phase) { phase.start_ns } else { 0 },
                ..phase.clone()
            })
            .collect(),
    }
}

/// Keys and causes are as large as details, and there may be a million of them.
#[test]
fn texts_of_running_tasks_are_cut_and_then_their_rows_are_only_counted() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 1_000_000);
    ledger.running_bytes_of_max = 1 << 20;
    let key: Arc<str> = "k".repeat(4_096).into();
    let task = |id, stop: Option<i64>, outcome| {
        let mut row = row((0, 7, id), "load", (5, stop), outcome);
        row.record.key = key.clone();
        row
    };
    for id in 0..5_000 {
        ledger.upsert(task(id, None, Outcome::Running));
        assert!(ledger.open_bytes <= 1 << 20);
    }
    let running = ledger.running.len();
    assert_eq!(running as u64 + ledger.aggregated(), 5_000);
    let is_whole = |row: &&Arc<TaskRow>| row.record.key == key;
    let whole = ledger.running.values().filter(is_whole).count();
    let cut = format!("{}…", "k".repeat(64));
    assert!(
        ledger
            .running
            .values()
            .all(|row| *row.record.key == *cut || is_whole(&row))
    );
    assert!((100..150).contains(&whole), "{whole}");
    assert!((900..1_100).contains(&running), "{running}");
    // Another life has room of its own.
    ledger.upsert(row((1, 7, 1), "load", (5, None), Outcome::Running));
    assert_eq!(ledger.running.len(), running + 1);
    for id in 0..5_000 {
        ledger.upsert(task(id, Some(6), Outcome::Ok));
    }
    let taken = ledger.take_for_sealing(time(7)).into_batch();
    assert_eq!(taken.ended.len(), 5_000);
    assert!(taken.ended.iter().all(|row| row.record.key == key));
}

#[test]
fn details_of_open_tasks_are_bounded_and_their_ends_have_all_of_them() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 1_000_000);
    let labels = vec![("k".into(), "v".repeat(4_096).into()); 16];
    let detail = Some(Box::new(TaskDetail {
        labels,
        ..TaskDetail::default()
    }));
    let task = |id, stop: Option<i64>, outcome| {
        let mut row = row((0, 7, id), "load", (5, stop), outcome);
        row.record.detail = detail.clone();
        row
    };
    for id in 0..1_100 {
        ledger.upsert(task(id, None, Outcome::Running));
    }
    assert!(ledger.open_bytes <= WORKER_OPEN_TASKS_BYTES_MAX);
    assert!(
        ledger
            .running
            .values()
            .any(|row| row.record.detail.is_none())
    );
    for id in 0..1_100 {
        ledger.upsert(task(id, Some(6), Outcome::Ok));
    }
    let taken = ledger.take_for_sealing(time(7)).into_batch();
    assert!(taken.ended.iter().all(|row| row.record.detail == detail));
    assert_eq!((ledger.open_bytes, taken.ended.len()), (0, 1_100));
}

#[test]
fn a_lost_task_is_corrected_by_its_true_end() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    let who = (0, 7, 1);
    ledger.upsert(row(who, "load", (5, None), Outcome::Running));
    assert_eq!(ledger.end_as_lost(&worker(0), Epoch(7), time(3)), 1);
    // Its worker was last seen before it started, because its clock offset was estimated again
    // since.
    assert_eq!(outcome_and_stop(&ledger), (Outcome::Lost, Some(time(5))));
    ledger.resume_lost(&worker(0), Epoch(7));
    assert_eq!(outcome_and_stop(&ledger), (Outcome::Running, None));
    assert_eq!(ledger.end_as_lost(&worker(0), Epoch(7), time(9)), 1);
    ledger.upsert(row(who, "load", (5, Some(6)), Outcome::Failed));
    assert_eq!(outcome_and_stop(&ledger), (Outcome::Failed, Some(time(6))));
    assert_eq!(ledger.row_count(), 1);
}

fn outcome_and_stop(ledger: &Ledger) -> (Outcome, Option<Timestamp>) {
    let snapshot = ledger.snapshot(TimeRange::ALL);
    let row = snapshot.rows().next().unwrap();
    (row.record.outcome, row.record.stop)
}

#[test]
fn open_rows_survive_a_restart() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    ledger.upsert(row((0, 7, 1), "load", (5, None), Outcome::Running));
    ledger.end_as_lost(&worker(0), Epoch(7), time(6));
    ledger.upsert(row((1, 7, 2), "load", (5, None), Outcome::Running));
    ledger.upsert(row((1, 7, 3), "load", (5, Some(6)), Outcome::Ok));
    let taken = ledger.take_for_sealing(time(7)).into_batch();
    assert_eq!((taken.ended.len(), taken.open.len()), (1, 2));
    let mut restarted = Ledger::new(Arc::new(Manifest::default()), 10);
    restarted.restore(taken.open.iter().map(|row| (**row).clone()), [], time(8));
    let again = restarted.take_for_sealing(time(7)).into_batch();
    assert_eq!((again.ended, again.open), (Vec::new(), taken.open));
    restarted.resume_lost(&worker(0), Epoch(7));
    assert_eq!(restarted.running_count(&worker(0), Epoch(7)), 1);
}

#[test]
fn a_snapshot_does_not_change() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    ledger.upsert(row((0, 0, 1), "load", (1, Some(2)), Outcome::Ok));
    let before = ledger.snapshot(TimeRange::ALL);
    ledger.upsert(row((0, 0, 2), "load", (1, Some(2)), Outcome::Ok));
    let between = ledger.snapshot(TimeRange::ALL);
    ledger.upsert(row((0, 0, 1), "load", (1, Some(2)), Outcome::Failed));
    assert_eq!(outcomes(&before), [Outcome::Ok]);
    assert_eq!(outcomes(&between), [Outcome::Ok, Outcome::Ok]);
    assert_eq!(
        outcomes(&ledger.snapshot(TimeRange::ALL)),
        [Outcome::Failed, Outcome::Ok]
    );
}

fn outcomes(snapshot: &TaskSnapshot) -> Vec<Outcome> {
    let mut rows: Vec<_> = snapshot
        .rows()
        .map(|row| (row.record.id, row.record.outcome))
        .collect();
    rows.sort();
    rows.into_iter()
        .map(|(_, outcome)| outcome)
        .collect::<Vec<_>>()
}

#[test]
fn an_insert_copies_one_chunk_of_what_a_query_reads() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    (0..40).for_each(|id| upsert(&mut ledger, id));
    let snapshot = ledger.snapshot(TimeRange::ALL);
    assert!(
        snapshot.chunks.len() >= 10,
        "{} for 40 rows of a second",
        snapshot.chunks.len()
    );
    upsert(&mut ledger, 40);
    let chunks = ledger.snapshot(TimeRange::ALL).chunks;
    let copied = chunks.len()
        - chunks
            .iter()
            .filter(|chunk: &&Arc<Chunk>| {
                snapshot.chunks.iter().any(|read| Arc::ptr_eq(read, chunk))
            })
            .count();
    assert_eq!((copied, snapshot.rows().count()), (1, 40));
}

fn upsert(ledger: &mut Ledger, id: u64) {
    ledger.upsert(row((0, 0, id), "load", (1, Some(2)), Outcome::Ok));
}

/// Copying 100,000 rows takes tens of milliseconds, for which all others would wait.
#[test]
fn a_sealing_takes_chunks_and_copies_rows_without_the_ledger() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    (0..40).for_each(|id| ledger.upsert(row((0, 0, id), "load", (1, Some(2)), Outcome::Ok)));
    let chunks = ledger.snapshot(TimeRange::ALL).chunks;
    let taken = ledger.take_for_sealing(time(3));
    assert!(
        chunks
            .iter()
            .zip(&taken.chunks)
            .all(|(read, taken)| Arc::ptr_eq(read, taken))
    );
    assert_eq!((taken.chunks.len(), taken.places.len()), (chunks.len(), 40));
    drop(ledger.sealed(Arc::new(Manifest::default())));
    assert_eq!(taken.into_batch().ended.len(), 40);
}

#[test]
fn no_worker_uses_up_the_room_of_others() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    ledger.running_of_max = 2;
    let start = |ledger: &mut Ledger, who| {
        ledger.upsert(row(who, "load", (5, None), Outcome::Running));
        (
            ledger.running_count(&worker(who.0), Epoch(who.1)),
            ledger.aggregated(),
        )
    };
    assert_eq!(start(&mut ledger, (0, 7, 1)), (1, 0));
    assert_eq!(start(&mut ledger, (0, 7, 2)), (2, 0));
    assert_eq!(start(&mut ledger, (0, 7, 2)), (2, 0), "the same again");
    assert_eq!(start(&mut ledger, (0, 7, 3)), (2, 1));
    assert_eq!(start(&mut ledger, (1, 7, 3)), (1, 1));
    // A task without room is reported in full when it ends, and makes no room.
    ledger.upsert(row((0, 7, 3), "load", (5, Some(6)), Outcome::Ok));
    assert_eq!(start(&mut ledger, (0, 7, 4)), (2, 2));
    ledger.upsert(row((0, 7, 1), "load", (5, Some(6)), Outcome::Ok));
    assert_eq!(start(&mut ledger, (0, 7, 4)), (2, 2));
    assert_eq!(ledger.end_as_lost(&worker(0), Epoch(7), time(9)), 2);
    assert_eq!(start(&mut ledger, (0, 8, 1)), (1, 2));
    ledger.resume_lost(&worker(0), Epoch(7));
    assert_eq!(ledger.running_count(&worker(0), Epoch(7)), 2);
}

#[test]
fn a_task_sealed_as_lost_counts_once_whatever_is_reported_later() {
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10);
    let who = (0, 7, 1);
    let running = row(who, "load", (5, None), Outcome::Running);
    ledger.upsert(running.clone());
    ledger.end_as_lost(&worker(0), Epoch(7), time(6));
    let day = 24 * 3_600;
    assert_eq!(
        ledger.take_for_sealing(time(6 + day)).into_batch().ended,
        Vec::new()
    );
    let final_rows = ledger.take_for_sealing(time(7 + day)).into_batch().ended;
    assert_eq!(final_rows.len(), 1);
    // Its end may be reported before the sealing is done, after it, and again.
    let ended = row(who, "load", (5, Some(8)), Outcome::Ok);
    ledger.upsert(ended.clone());
    assert_eq!(
        ledger.take_for_sealing(time(8 + day)).into_batch().ended,
        final_rows
    );
    drop(ledger.sealed(Arc::new(Manifest::default())));
    ledger.resume_lost(&worker(0), Epoch(7));
    let again = ledger.take_for_sealing(time(8 + day)).into_batch();
    let mut restarted = Ledger::new(Arc::new(Manifest::default()), 10);
    restarted.restore([], again.lost_tasks.clone(), time(8 + day));
    for mut ledger in [ledger, restarted] {
        for told in [running.clone(), ended.clone()] {
            ledger.upsert(told);
            assert_eq!(ledger.take_for_sealing(time(9 + day)).into_batch(), again);
        }
        assert_eq!((ledger.row_count(), ledger.knows_name("load")), (0, false));
        // It is remembered for as long as its row is kept.
        assert_eq!(
            ledger.take_for_sealing(time(6 + 30 * day)).into_batch(),
            again
        );
        assert_eq!(
            ledger.take_for_sealing(time(7 + 30 * day)).into_batch(),
            LedgerBatch::default()
        );
    }
}

proptest! {
    /// Names are counted next to the rows: every row's name is known, and no name without a row is.
    #[test]
    fn every_held_row_is_known_by_its_name(steps in steps(), running_max in 1..12usize) {
        let ledger = Ledger::new(Arc::new(Manifest::default()), running_max);
        let mut sealed = Sealed { ledger, taken: None, tables: Vec::new() };
        for step in &steps {
            sealed.apply(step);
            let snapshot = sealed.ledger.snapshot(TimeRange::ALL);
            let names: BTreeSet<_> = snapshot.rows().map(|row| row.record.name.clone()).collect();
            prop_assert!(names.iter().all(|name| sealed.ledger.knows_name(name)));
            prop_assert!(sealed.ledger.names().is_superset(&names));
        }
        for step in [Step::EndAsLost(0, 0, 1), Step::EndAsLost(0, 1, 1), Step::EndAsLost(1, 0, 1),
            Step::EndAsLost(1, 1, 1), Step::Take(true), Step::Seal]
        {
            sealed.apply(&step);
        }
        prop_assert_eq!(sealed.ledger.names(), BTreeSet::new());
    }
}

#[test]
fn lost_tasks_of_the_far_future_end_within_the_hour() {
    let hours = 3_600;
    let last_seen = time(10);
    let future = |id: i64| {
        row(
            (0, 7, id.unsigned_abs()),
            "load",
            (id * hours, None),
            Outcome::Running,
        )
    };
    let mut ledger = Ledger::new(Arc::new(Manifest::default()), 10_000);
    (1..=3_000).for_each(|id| ledger.upsert(future(id)));
    assert_eq!(ledger.end_as_lost(&worker(0), Epoch(7), last_seen), 3_000);
    let latest = |ledger: &mut Ledger| {
        let open = ledger.take_for_sealing(last_seen).into_batch().open;
        let records = open.iter().map(|row| &row.record);
        assert!(
            records
                .clone()
                .all(|record| record.stop >= Some(record.start))
        );
        (open.len(), records.filter_map(|record| record.stop).max())
    };
    assert_eq!(latest(&mut ledger), (3_000, Some(time(10 + hours))));
    // As an earlier version stored them.
    let lost = (1..=3_000).map(|id| {
        row(
            (0, 7, id),
            "load",
            (id.cast_signed() * hours, Some(id.cast_signed() * hours)),
            Outcome::Lost,
        )
    });
    let mut restarted = Ledger::new(Arc::new(Manifest::default()), 10_000);
    restarted.restore(lost, [], last_seen);
    assert_eq!(latest(&mut restarted), (3_000, Some(time(10 + hours))));
}
