//! Faults: damaged or unreadable manifests, unreadable files, a clock that is years ahead. Intact data
//! must survive them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::*;
use crate::Versions;
use crate::objects::Durability;
use crate::testing::{Refusal, Refusals};

/// A store whose files can be made unreadable.
fn refusing() -> (Objects, Refusals) {
    let recorder = Recorder::default();
    let refusals = recorder.refusals.clone();
    (Objects::over(Arc::new(recorder)), refusals)
}

fn refuse(refusals: &Refusals, path: &str, refusal: Refusal) {
    refusals.lock().unwrap().insert(path.to_owned(), refusal);
}

fn names(objects: &Objects, prefix: &str) -> BTreeSet<String> {
    objects
        .list(prefix)
        .unwrap()
        .into_iter()
        .map(|file| file.path)
        .collect()
}

fn paths(manifest: &Manifest) -> BTreeSet<String> {
    manifest
        .files
        .iter()
        .map(super::super::manifest::FileEntry::path)
        .collect()
}

/// Flips a bit of a file. Returns the new content.
fn flip(objects: &Objects, path: &str) -> Vec<u8> {
    let mut content = objects.get(path).unwrap().to_vec();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    objects.delete(path).unwrap();
    objects.put_new(path, content.clone().into()).unwrap();
    content
}

/// A store after `minutes` sealings.
fn sealed(objects: &Objects, minutes: u32) -> (Fleet, Arc<Manifest>) {
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    (0..minutes).for_each(|minute| fleet.seal(&tables, &some_batch(minute)));
    (fleet, tables.manifest())
}

#[test]
fn files_of_a_damaged_version_are_kept_for_a_month_or_until_it_is_deleted() {
    let objects = Objects::memory();
    let (mut fleet, newest) = sealed(&objects, 3);
    let damaged = Manifest::path_of(newest.version);
    let content = flip(&objects, &damaged);
    let copy = format!("quarantine/{}", damaged.replace('/', "-"));
    let (tables, loaded) = Tables::open_read_only(objects.clone()).unwrap();
    assert!(loaded.reports[0].contains(&damaged), "{:?}", loaded.reports);
    assert!(
        objects.get(&copy).is_err(),
        "a read-only open changes nothing"
    );
    let all = names(&objects, "tables");
    let only: BTreeSet<_> = &paths(&newest) - &paths(&tables.manifest());
    assert!(only.len() > 50, "{only:?}");

    let (tables, loaded) = Tables::open(objects.clone()).unwrap();
    assert_eq!(
        (loaded.reports.len(), &objects.get(&copy).unwrap()[..]),
        (1, &content[..])
    );
    maintain(&tables, later(9));
    assert!(
        names(&objects, "tables").is_superset(&only),
        "an intact file was deleted"
    );
    // Newer versions do not delete the damaged one, nor do their files reuse names.
    (3..6).for_each(|minute| fleet.seal(&tables, &some_batch(minute)));
    let new = &paths(&tables.manifest()) - &all;
    let id = |path: &String| super::super::load::id_of(path);
    assert!(
        new.iter().filter_map(id).min() > all.iter().filter_map(id).max(),
        "{new:?}"
    );
    let done = maintain(&tables, later(9));
    assert!(
        done.merged > 60 && done.deleted > 60,
        "the rest is merged and deleted: {done:?}"
    );
    let (tables, loaded) = Tables::open(objects.clone()).unwrap();
    assert_eq!(loaded.reports, [""; 0]);
    maintain(&tables, later(9));
    assert!(
        names(&objects, "tables").is_superset(&only),
        "an intact file was deleted"
    );
    assert_eq!(objects.get(&damaged).unwrap(), content);

    let seen_to = copied(&objects);
    seen_to.delete(&damaged).unwrap();
    maintain(&Tables::open(seen_to.clone()).unwrap().0, later(9));
    assert!(names(&seen_to, "tables").is_disjoint(&only));
    // The clock alone does not make a month.
    maintain(&tables, day(300));
    for count in 0..40 {
        assert!(names(&objects, "tables").is_superset(&only), "day {count}");
        fleet.seal(&tables, &some_batch((9 * 365 + count) * 24 * 60));
        if count < 29 {
            maintain(&tables, day(count.into()));
        } else if count == 31 {
            maintain(&tables, day(count.into()));
            break;
        }
    }
    assert!(names(&objects, "tables").is_disjoint(&only));
    assert!(!names(&objects, "manifest").contains(&damaged));
    assert_eq!(objects.get(&copy).unwrap(), content);
}

fn day(count: i64) -> Timestamp {
    later(9).shifted(count * 86_400 * 1_000_000_000)
}

/// A copy of a store.
fn copied(objects: &Objects) -> Objects {
    let copy = Objects::memory();
    for prefix in ["manifest", "tables", "quarantine"] {
        for path in names(objects, prefix) {
            copy.put_new(&path, objects.get(&path).unwrap()).unwrap();
        }
    }
    copy
}

#[test]
fn an_unreadable_file_blocks_no_other_maintenance() {
    let (objects, refusals) = refusing();
    let (fleet, before) = sealed(&objects, 9);
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    let unreadable: BTreeSet<String> = before
        .files
        .iter()
        .filter(|file| {
            ["samples_1m", "samples_1s", "durations_1d", "tasks"].contains(&&*file.table.name())
        })
        .map(|file| file.path())
        .step_by(7)
        .collect();
    assert!(unreadable.len() > 3);
    unreadable
        .iter()
        .for_each(|path| refuse(&refusals, path, Refusal::Denied));
    for _ in 0..4 {
        let failed = tables
            .maintain(later(100), &KEEP_ALL, &mut |_| {})
            .unwrap_err();
        assert!(
            unreadable.iter().any(|path| failed.is_about(path)),
            "{failed}"
        );
    }
    let left = paths(&tables.manifest());
    assert!(
        left.is_superset(&unreadable),
        "what cannot be read now may be read later"
    );
    assert!(
        left.len() < before.files.len() / 4,
        "{} files are left",
        left.len()
    );
    let deleted = paths(&before)
        .difference(&names(&objects, "tables"))
        .count();
    assert!(
        deleted > 300,
        "{deleted} files that were merged are deleted"
    );
    assert_eq!(tables.manifest().lost, []);
    refusals.lock().unwrap().clear();
    maintain(&tables, later(100));
    assert!(paths(&tables.manifest()).is_disjoint(&unreadable));
    fleet.check(&tables);
}

#[test]
fn a_version_deleted_while_versions_are_read_is_not_damage() {
    let (objects, refusals) = refusing();
    let (_, newest) = sealed(&objects, 4);
    for gone in 1..=newest.version {
        refuse(&refusals, &Manifest::path_of(gone), Refusal::Gone);
        let versions = Versions::load(&objects).unwrap();
        assert_eq!(
            (&**versions.newest().unwrap(), versions.damaged.len()),
            (&*newest, 0),
            "{gone}"
        );
        assert!(refusals.lock().unwrap().is_empty());
    }
    // A reader reads the newest one only.
    refuse(&refusals, &Manifest::path_of(newest.version), Refusal::Gone);
    let (tables, loaded) = Tables::open_read_only(objects.clone()).unwrap();
    assert_eq!(
        (tables.manifest(), loaded.reports),
        (newest, Vec::<String>::new())
    );
    assert!(refusals.lock().unwrap().is_empty());
}

#[test]
fn an_unreadable_old_version_is_ignored_and_the_newest_is_an_error() {
    let (objects, refusals) = refusing();
    let (_, newest) = sealed(&objects, 4);
    refuse(&refusals, &Manifest::path_of(2), Refusal::Denied);
    let (tables, loaded) = Tables::open(objects.clone()).unwrap();
    assert_eq!(
        (tables.manifest(), loaded.reports),
        (newest.clone(), Vec::<String>::new())
    );
    maintain(&tables, later(100));
    // An older version would hide acknowledged data, and a person can restore the permission.
    let path = Manifest::path_of(tables.manifest().version);
    refuse(&refusals, &path, Refusal::Denied);
    let error = Tables::open(objects).unwrap_err().to_string();
    assert!(
        error.contains(&path) && error.contains("the test says so"),
        "{error}"
    );
}

#[test]
fn a_clock_that_is_years_ahead_drops_nothing() {
    let objects = Objects::memory();
    let (mut fleet, _) = sealed(&objects, 3);
    let (tables, _) = Tables::open(objects.clone()).unwrap();
    let retention = Retention::default();
    let maintain = |tables: &Tables, now: Timestamp| {
        tables
            .maintain(now, &retention, &mut |_| {})
            .unwrap()
            .expired
    };
    assert_eq!(maintain(&tables, later(5)), 0);
    // Neither if new data is years ahead too, nor when the clock is correct again.
    for hour in 0..20 {
        let minute = 5 * 365 * 24 * 60 + hour * 60;
        fleet.seal(&tables, &some_batch(minute));
        assert_eq!(maintain(&tables, hours(i64::from(hour) + 1)), 0);
    }
    let (tables, _) = Tables::open(objects).unwrap();
    assert_eq!(maintain(&tables, hours(20)), 0);
    assert_eq!(
        maintain(&tables, later(0).shifted(86_400 * 1_000_000_000)),
        0
    );
    fleet.check(&tables);
    assert_eq!(tables.manifest().cut, Default::default());
}

fn hours(count: i64) -> Timestamp {
    later(5).shifted(count * 3_600 * 1_000_000_000)
}

/// Records what is synced.
#[derive(Debug, Default)]
struct SyncedPaths(Mutex<Vec<String>>);

impl Durability for SyncedPaths {
    fn sync(&self, paths: &[String]) -> Result<(), StoreError> {
        self.0.lock().unwrap().extend_from_slice(paths);
        Ok(())
    }
}

/// A killed process may have written a version that it did not sync. The next one removes the part of
/// the log that the version replaces, so a later crash of the machine must not lose the version.
#[test]
fn a_start_syncs_the_version_that_it_reads() {
    let synced = Arc::new(SyncedPaths::default());
    let objects = Objects::synced_by(
        synced.clone(),
        Arc::new(object_store::memory::InMemory::new()),
    );
    drop(Tables::open(objects.clone()).unwrap());
    synced.0.lock().unwrap().clear();
    drop(Tables::open(objects).unwrap());
    assert_eq!(*synced.0.lock().unwrap(), [Manifest::path_of(1)]);
}
