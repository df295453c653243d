//! A file that is not as it was written is named by every reader of the store, or makes no difference to it.

use std::path::Path;

use bytes::Bytes;

use super::*;
use crate::{
    FileEntry, Problem, SnapshotStacks, StoreLocation, StoreSnapshot, Verification, info, verify,
};

/// Flips of each table's files, and of the manifest.
const FLIPS_EACH: usize = 4;

/// A store in a folder.
fn store() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::new();
    let (tables, _) = Tables::open(Objects::local(folder.path()).unwrap()).unwrap();
    fleet.seal(&tables, &some_batch(0));
    folder
}

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).unwrap()
    }
}

/// Rows that engines get which read a store's files themselves, and the files that are named to them.
#[derive(PartialEq, Debug)]
struct Snapshot {
    files: Vec<(String, Bytes)>,
    stacks: Vec<String>,
}

fn snapshot(location: &StoreLocation) -> (Snapshot, Vec<Problem>) {
    let snapshot = StoreSnapshot::read(location).unwrap();
    let doors = snapshot.files();
    let mut files = Vec::new();
    for file in snapshot.tables().into_iter().flat_map(|table| table.files) {
        if let Some(opened) = doors.open(&file).unwrap() {
            files.push((file.path.clone(), opened.read(0..file.bytes).unwrap()));
        }
    }
    let mut named = snapshot.lost();
    named.extend(doors.damaged());
    (
        Snapshot {
            files,
            stacks: stacks(&snapshot.into_stacks()),
        },
        named,
    )
}

fn stacks(stacks: &SnapshotStacks) -> Vec<String> {
    let numbers = (1..).take(stacks.len());
    numbers
        .map(|node| format!("{:?} {:?}", stacks.parent(node), stacks.functions(node)))
        .collect()
}

fn is_named(path: &str, problems: &[Problem]) -> bool {
    problems
        .iter()
        .any(|problem| problem.name == path || problem.reason.contains(path))
}

/// The answers of a sound store.
struct Sound {
    snapshot: Snapshot,
    verification: Verification,
}

/// Reads a store with a damaged file as engines do.
fn check_snapshot(location: &StoreLocation, sound: &Sound, path: &str, what: &str) {
    let (found, named) = snapshot(location);
    assert!(
        found == sound.snapshot || is_named(path, &named),
        "{what} {path}: {named:?}"
    );
}

/// The same as `emberline store verify` and `info` do.
fn check_verification(location: &StoreLocation, sound: &Sound, path: &str, what: &str) {
    let found = verify(location).unwrap();
    let is_equal = found == sound.verification;
    assert!(
        is_equal || is_named(path, &found.problems),
        "{what} {path}: {:?}",
        found.problems
    );
    let has_lists = [
        "manifest/",
        "tables/frames/",
        "tables/nodes/",
        "tables/workers/",
    ];
    if has_lists.iter().any(|start| path.starts_with(start)) {
        let reports = info(location).unwrap().reports;
        let is_reported = reports.iter().any(|report| report.contains(path));
        assert!(is_equal || is_reported, "{what} {path}: {reports:?}");
    }
}

/// The files to damage: of each table, and the newest version of the manifest.
fn files(folder: &Path) -> Vec<Vec<String>> {
    let (tables, _) = Tables::open_read_only(Objects::local(folder).unwrap()).unwrap();
    let manifest = tables.manifest();
    let by_table = TableName::all()
        .map(|table| {
            manifest
                .files_of(table)
                .map(FileEntry::path)
                .collect::<Vec<_>>()
        })
        .filter(|files| !files.is_empty());
    by_table
        .chain([vec![Manifest::path_of(manifest.version)]])
        .collect()
}

#[test]
fn a_wrong_bit_a_cut_and_a_missing_file_are_named_by_every_reader() {
    let folder = store();
    let location = StoreLocation::from(folder.path());
    let (intact, named) = snapshot(&location);
    assert!(intact.files.len() >= 50 && !intact.stacks.is_empty());
    assert_eq!(named, []);
    let sound = Sound {
        snapshot: intact,
        verification: verify(&location).unwrap(),
    };
    let mut random = Random(7);
    let mut flips = 0;
    for files in files(folder.path()) {
        for turn in 0..FLIPS_EACH {
            let path = &files[random.below(files.len())];
            let file = folder.path().join(path);
            let content = std::fs::read(&file).unwrap();
            let mut damaged = content.clone();
            damaged[random.below(content.len())] ^= 1 << random.below(8);
            std::fs::write(&file, damaged).unwrap();
            check_snapshot(&location, &sound, path, "a bit of");
            flips += 1;
            if turn == 0 {
                check_verification(&location, &sound, path, "a bit of");
                std::fs::write(&file, &content[..random.below(content.len())]).unwrap();
                check_snapshot(&location, &sound, path, "the end of");
                std::fs::remove_file(&file).unwrap();
                if !path.starts_with("manifest/") {
                    check_snapshot(&location, &sound, path, "all of");
                }
            }
            std::fs::write(&file, content).unwrap();
        }
    }
    assert!(flips >= 200, "{flips} flips");
    assert_eq!(snapshot(&location).0, sound.snapshot);
}
