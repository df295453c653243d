//! Log, tables and manifest together. One run's changes to all three are recorded in order; each
//! prefix is opened and compared with the fleet's record, and so is the final state with damage
//! anywhere.

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use flamegraph::View;
use profiler_core::{Filter, Outcome, ThreadKind, TimeRange};

use super::*;
use query::Queries;
use query::fleet;
use query::{By, Cancel, Format, ProfileAnswer, ProfileQuery, SummaryRow, TaskQuery, ThreadFilter};
use state::tree::PhaseFilter;
use store::Retention;
use store::testing::{Change, Recorder, replay};

/// Nothing is ever too old.
const FOR_EVER: Retention = Retention {
    seconds: Duration::from_secs(1 << 33),
    rollups: Duration::from_secs(1 << 33),
    tasks: Duration::from_secs(1 << 33),
    bytes_max: u64::MAX,
};

/// Recorded operations on the disk.
struct Run {
    fleet: Fleet,
    log: Vec<Operation>,
    /// Each with how many operations of the log came before it.
    tables: Vec<(Change, usize)>,
}

/// Flushes, sealings and merges in turns, so that each meets the others.
fn run(is_maintained: bool) -> Run {
    let disk = SimDisk::of(Files::new());
    let moments = Arc::new(Mutex::new(Vec::new()));
    let recorder = {
        let disk = disk.clone();
        let moments = moments.clone();
        Recorder::noting(move || moments.lock().unwrap().push(lock(&disk.0).operations.len()))
    };
    let changes = recorder.changes.clone();
    let mut fleet = Fleet::over(disk.clone(), Objects::over(Arc::new(recorder)), 2);
    for (turn, stack) in ["load;main", "x", "load;main;parse", "x"]
        .into_iter()
        .enumerate()
    {
        fleet.flush(&[0, 1], stack);
        fleet.flush(&[turn % 2], stack);
        if turn < 3 {
            assert!(fleet.collector.sealer.seal().unwrap());
        }
        if turn == 1 && is_maintained {
            // Much later: all that can be merged is, and what was merged is garbage.
            fleet
                .collector
                .sealer
                .maintain(at(3_000_000_000), &FOR_EVER)
                .unwrap();
        }
    }
    let changes = changes.lock().unwrap().clone();
    let tables = changes
        .into_iter()
        .zip(moments.lock().unwrap().clone())
        .collect();
    let log = lock(&disk.0).operations.clone();
    Run { fleet, log, tables }
}

pub(super) fn ask(collector: &Collector) -> ProfileAnswer {
    let filter = Filter {
        threads: ThreadKind::All,
        ..Filter::default()
    };
    let range = TimeRange::ALL;
    let by = By::Function;
    let format = Format::Collapsed;
    let phases = PhaseFilter::All;
    let phases_shown = false;
    let group = None;
    let view = View::default();
    let threads = ThreadFilter::default();
    let query = ProfileQuery {
        range,
        filter,
        phases,
        phases_shown,
        group,
        groups_max: 100,
        by,
        format,
        view,
        threads,
    };
    Queries(&collector.state)
        .profile(&query, &Cancel::default())
        .unwrap()
}

/// Nanoseconds by stack, of all that is held anywhere.
pub(super) fn stacks(answer: &ProfileAnswer) -> Content {
    let text = flamegraph::collapsed(&answer.profile);
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines
        .map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()))
        .collect()
}

/// Tasks that are held anywhere, and the files that were missing for that.
fn tasks(collector: &Collector) -> (u64, Vec<String>) {
    let pairs = [("from".to_owned(), "0".to_owned())];
    let query = TaskQuery::parse(&pairs, &collector.state, at(50)).unwrap();
    let answer = Queries(&collector.state)
        .tasks(&query, &Cancel::default())
        .unwrap();
    (answer.selection.total, answer.damaged)
}

fn sum_of<'a>(contents: impl IntoIterator<Item = &'a Content>) -> Content {
    let mut sum = Content::new();
    for (stack, nanoseconds) in contents.into_iter().flatten() {
        *sum.entry(stack.clone()).or_default() += nanoseconds;
    }
    sum
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

fn store_of(changes: &[Change]) -> Objects {
    Objects::over(Arc::new(block(replay(changes))))
}

impl Run {
    /// Every moment, as how much was done to the log and to the tables.
    fn moments(&self) -> Vec<(usize, usize)> {
        let mut moments = Vec::new();
        let mut tables = 0;
        for log in 0..=self.log.len() {
            moments.push((log, tables));
            while self
                .tables
                .get(tables)
                .is_some_and(|(_, before)| *before == log)
            {
                tables += 1;
                moments.push((log, tables));
            }
        }
        moments
    }

    fn changes(&self, count: usize) -> Vec<Change> {
        self.tables[..count]
            .iter()
            .map(|(change, _)| change.clone())
            .collect()
    }

    /// Each flush is there whole and once, or not at all; all that were acknowledged are there.
    fn check(&self, log: usize, files: Files, changes: &[Change], is_sealed_then: bool) {
        let collector = open_over(&SimDisk::of(files), store_of(changes));
        let found = &collector.ingest.log.as_ref().unwrap().found;
        assert_eq!(
            (found.damages, &collector.state.tables.manifest().lost[..]),
            (0, &[][..]),
            "{found:?}"
        );
        let held = stacks(&ask(&collector));
        let is_held = |second: i64| {
            let leaf = format!(";{second}");
            held.keys().any(|stack| stack.ends_with(&leaf))
        };
        let included: Vec<_> = self
            .fleet
            .sent
            .iter()
            .filter(|((_, second), _, _)| is_held(*second))
            .collect();
        assert!(
            included.iter().all(|(_, _, sent)| *sent <= log),
            "what was not sent yet is held"
        );
        for ((worker, second), acked) in &self.fleet.acked {
            assert!(
                *acked > log || is_held(*second),
                "{worker} at {second} was acked, and is lost"
            );
        }
        let check = |collector: &Collector| {
            let expected = sum_of(included.iter().map(|(_, content, _)| content));
            assert_eq!(stacks(&ask(collector)), expected);
            assert_eq!(tasks(collector), (included.len() as u64, vec![]));
            let epochs = fleet(collector, &Default::default(), at(0)).epochs;
            let stored = epochs.iter().map(|epoch| epoch.stored_ns);
            assert_eq!(stored.sum::<u64>(), expected.values().sum::<u64>());
        };
        check(&collector);
        if is_sealed_then {
            collector.sealer.seal().unwrap();
            check(&collector);
        }
    }
}

#[test]
fn every_crash_image_of_log_tables_and_manifest_has_acked_data_once() {
    let run = run(true);
    let deletes = run
        .tables
        .iter()
        .filter(|(change, _)| matches!(change, Change::Delete(_)));
    assert!(deletes.count() > 30 && run.log.iter().any(|op| matches!(op, Operation::Remove(_))));
    let mut random = random(7);
    let moments = run.moments();
    for (index, (log, tables)) in moments.iter().copied().enumerate() {
        let is_logs = index == 0 || moments[index - 1].1 == tables;
        let mut image = |crash| crash_image(&Files::new(), &run.log[..log], crash, &mut random);
        // Only operations of the log may be lost; the tables' files are synced one by one.
        let crashes = [Crash::Process, Crash::Forgets, Crash::Tears];
        let crashes = if is_logs { &crashes[..] } else { &crashes[2..] };
        let mut changes = run.changes(tables);
        for crash in crashes {
            run.check(log, image(*crash), &changes, index % 7 == 0);
        }
        match changes.last_mut().filter(|_| !is_logs && tables > 1) {
            // It may be torn: it was not said to be safe. (The very first is the store itself.)
            Some(Change::Put(_, content)) => {
                *content = content.slice(..content.len() * (index % 3) / 3);
                run.check(log, image(Crash::Tears), &changes, index % 7 == 0);
            }
            // Nothing waits for a deletion to be safe: each may be undone.
            Some(Change::Delete(_)) if index % 9 == 0 => {
                changes.retain(|change| !matches!(change, Change::Delete(_)));
                run.check(log, image(Crash::Tears), &changes, false);
            }
            _ => {}
        }
    }
}

/// How a file is damaged.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip(u8),
    Cut,
    Gone,
}

fn harmed(content: &[u8], harm: Harm, random: &mut dyn FnMut(usize) -> usize) -> Option<Vec<u8>> {
    let mut content = content.to_vec();
    let from = random(content.len().max(1));
    match harm {
        Harm::Flip(by) => {
            let until = (from + 1 + random(40)).min(content.len());
            content[from.min(until)..until]
                .iter_mut()
                .for_each(|byte| *byte ^= by);
        }
        Harm::Cut => content.truncate(from),
        Harm::Gone => return None,
    }
    Some(content)
}

/// A disk with everything on it, and what that is.
struct Whole {
    files: Files,
    changes: Vec<Change>,
    stacks: Content,
    tasks: u64,
}

fn whole() -> &'static Whole {
    static WHOLE: OnceLock<Whole> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let run = run(false);
        Whole {
            files: lock(&run.fleet.disk.0).files.clone(),
            changes: run.changes(run.tables.len()),
            stacks: sum_of(run.fleet.sent.iter().map(|(_, content, _)| content)),
            tasks: run.fleet.sent.len() as u64,
        }
    })
}

/// Where a file lies that is harmed; the lists of names have few files, and are as often harmed.
const PLACES: [&str; 10] = [
    "log",
    "log",
    "manifest/",
    "manifest/",
    "tables/",
    "tables/",
    "tables/frames",
    "tables/nodes",
    "tables/tasks",
    "tables/sessions",
];

fn harm_one(
    files: &mut Files,
    changes: &mut Vec<Change>,
    place: &str,
    by: u8,
    random: &mut dyn FnMut(usize) -> usize,
) {
    if place == "log" {
        let file = random(files.len());
        let content = files.values_mut().nth(file).unwrap();
        *content = harmed(content, Harm::Flip(by), random).unwrap();
        return;
    }
    let there: Vec<usize> = (0..changes.len())
        .filter(|at| is_in(&changes[*at], place))
        .collect();
    let Some(at) = there.get(random(there.len().max(1))).copied() else {
        return;
    };
    let how = [Harm::Flip(by), Harm::Cut, Harm::Gone][random(3)];
    if let Change::Put(_, content) = &mut changes[at] {
        match harmed(content, how, random) {
            Some(harmed) => *content = harmed.into(),
            None => drop(changes.remove(at)),
        }
    }
}

fn is_in(change: &Change, place: &str) -> bool {
    matches!(change, Change::Put(path, _) if path.as_ref().starts_with(place))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Files of any kind are damaged, cut or gone: the collector starts or says why not, never panics,
    /// and where an answer is not whole it said so, or the start did.
    #[test]
    fn damage_anywhere_is_named_by_every_incomplete_answer(
        seed in any::<u64>(),
        harms in prop::collection::vec((prop::sample::select(&PLACES[..]), 1..=255u8), 1..4),
    ) {
        let mut random = random(seed);
        let whole = whole();
        let mut files = whole.files.clone();
        let mut changes = whole.changes.clone();
        for (place, by) in harms {
            harm_one(&mut files, &mut changes, place, by, &mut random);
        }
        let settings = Settings { clock: Clock::from_fn(|| at(50)), ..Settings::default() };
        let disk = Box::new(SimDisk::of(files));
        let collector = match Collector::open(settings, store_of(&changes), disk, StoreGuard::default()) {
            Ok(collector) => collector,
            Err(DataError::Tables(StoreError::ManifestsLost { .. })) => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        // Twice: what the first query found damaged is known at the second.
        for _ in 0..2 {
            let found = &collector.ingest.log.as_ref().unwrap().found;
            let answer = ask(&collector);
            let (held_tasks, damaged) = tasks(&collector);
            // A missing end of the log looks like one that was never written.
            let is_told = found.torn_bytes > 0;
            let held = stacks(&answer);
            prop_assert!(held.values().sum::<u64>() <= whole.stacks.values().sum::<u64>());
            if held != whole.stacks {
                prop_assert!(is_told || !answer.facts.damaged.is_empty(), "{held:?} {found:?}");
            }
            prop_assert!(held_tasks <= whole.tasks);
            if held_tasks != whole.tasks {
                prop_assert!(is_told || !damaged.is_empty(), "{held_tasks} tasks, {found:?}");
            }
            collector.sealer.maintain(at(50), &FOR_EVER).unwrap();
        }
        // It goes on: what is in memory can be kept.
        prop_assert!(collector.sealer.seal().is_ok());
    }
}

/// Without the file that names tasks, none is called unknown, rows of tasks have their names all the
/// same, and every answer says what is missing.
#[test]
fn a_name_lost_by_damage_is_not_reported_as_unknown() {
    let whole = whole();
    for table in ["tables/frames", "tables/nodes"] {
        let mut changes = whole.changes.clone();
        harm_one(
            &mut whole.files.clone(),
            &mut changes,
            table,
            1,
            &mut |count| count - 1,
        );
        let collector = open_over(&SimDisk::of(whole.files.clone()), store_of(&changes));
        let lost = collector.state.tables.manifest().lost[0].file.path();
        assert!(lost.starts_with(table), "{lost}");
        let names = collector.state.task_names();
        assert!(!names.is_empty());
        for name in names {
            let pairs =
                [("from", "0"), ("task", &name)].map(|(key, value)| (key.into(), value.into()));
            let query = TaskQuery::parse(&pairs, &collector.state, at(50)).unwrap();
            let summary = Queries(&collector.state)
                .task_summary(&query, &Cancel::default())
                .unwrap();
            let tasks = Queries(&collector.state)
                .tasks(&query, &Cancel::default())
                .unwrap();
            let count: u64 = summary
                .rows
                .iter()
                .map(|row: &SummaryRow| {
                    Outcome::ALL
                        .iter()
                        .map(|of| row.outcomes.get(*of))
                        .sum::<u64>()
                })
                .sum();
            assert_eq!(count, tasks.selection.total, "{name} without {table}");
            for damaged in [summary.damaged, tasks.damaged] {
                assert!(damaged.contains(&lost), "{damaged:?}");
            }
        }
        let gone = [("task".to_owned(), "never heard of".to_owned())];
        assert!(TaskQuery::parse(&gone, &collector.state, at(50)).is_ok());
    }
}

/// The newest version is damaged, and the log that the one before needs was removed: what came between
/// them is lost, and that is said.
#[test]
fn data_lost_with_the_newest_version_is_reported() {
    let whole = whole();
    let mut changes = whole.changes.clone();
    let newest = changes.iter().rposition(|change: &Change| matches!(change, Change::Put(path, _) if path.as_ref().starts_with("manifest/"))).unwrap();
    if let Change::Put(_, content) = &mut changes[newest] {
        *content = content.slice(..content.len() - 1);
    }
    let store = store_of(&changes);
    let disk = SimDisk::of(whole.files.clone());
    let collector = open_over(&disk, store.clone());
    let lost = collector.state.tables.manifest().lost_log.clone();
    assert!(
        lost.len() == 1 && lost[0].reason.contains("the log is missing from here"),
        "{lost:?}"
    );
    let sent: u64 = whole.stacks.values().sum();
    assert!(ask(&collector).profile.total().total_ns() < sent);
    let names = vec![lost[0].path.clone()];
    assert_eq!(damage(&collector), (names.clone(), names.clone()));
    collector.sealer.seal().unwrap();
    drop(collector);
    let collector = open_over(&disk, store);
    assert_eq!(damage(&collector), (names.clone(), names));
}

/// Every answer reports it, also once the log is gone and the first report is forgotten.
fn damage(collector: &Collector) -> (Vec<String>, Vec<String>) {
    (ask(collector).facts.damaged, tasks(collector).1)
}
