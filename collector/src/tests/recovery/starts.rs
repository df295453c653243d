//! Starts that go wrong.
//!
//! The log's first file is created after the first version of the manifest is durable. So nothing was
//! acknowledged if a crash left that version torn and there is no log.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;

use super::images::{ask, stacks};
use super::*;
use store::Durability;

/// A store with one file: the first version, without its end.
fn torn_at(length: usize) -> Objects {
    let whole = Objects::memory();
    drop(open_over(&SimDisk::of(Files::new()), whole.clone()));
    let first = Manifest::path_of(1);
    let content = whole.get(&first).unwrap();
    assert!(length < content.len());
    let torn = Objects::memory();
    torn.put_new(&first, content.slice(..length)).unwrap();
    torn
}

fn start_on(objects: Objects, files: Files) -> Result<Collector, DataError> {
    start_on_disk(objects, SimDisk::of(files))
}

/// A start on a disk that others look at.
pub(super) fn start_on_disk(objects: Objects, disk: SimDisk) -> Result<Collector, DataError> {
    Collector::open(
        Settings::default(),
        objects,
        Box::new(disk),
        StoreGuard::default(),
    )
}

#[test]
fn a_first_start_that_a_crash_cut_short_is_a_first_start_again() {
    for length in [0, 1, 30, 100] {
        let collector = start_on(torn_at(length), Files::new()).unwrap();
        let manifest = collector.state.tables.manifest();
        assert_eq!((manifest.version, manifest.all_lost().count()), (1, 0));
    }
}

#[test]
fn a_torn_version_next_to_any_trace_of_data_is_an_error() {
    let objects = torn_at(30);
    let with_table = torn_at(30);
    with_table
        .put_new("tables/samples_1s/0000000000000001.parquet", "".into())
        .unwrap();
    let with_other_version = torn_at(30);
    with_other_version
        .put_new(&Manifest::path_of(2), "{".into())
        .unwrap();
    let later = Objects::memory();
    later.put_new(&Manifest::path_of(3), "{".into()).unwrap();
    for (objects, files) in [
        (
            objects.clone(),
            Files::from([("00000000000000000001.wal".to_owned(), Vec::new())]),
        ),
        (
            objects.clone(),
            Files::from([("acknowledged".to_owned(), Vec::new())]),
        ),
        (with_table, Files::new()),
        (with_other_version, Files::new()),
        (later, Files::new()),
    ] {
        let error = start_on(objects.clone(), files).unwrap_err();
        assert!(
            matches!(error, DataError::Tables(StoreError::ManifestsLost { .. })),
            "{error} of {objects:?}"
        );
        assert!(
            !objects.list("manifest").unwrap().is_empty(),
            "nothing is deleted"
        );
    }
}

/// The log is removed once its records are in tables, so a start without a file that could be read a
/// moment later would lose what was acknowledged.
#[test]
fn a_log_file_that_cannot_be_read_stops_the_start_and_stays() {
    let mut fleet = Fleet::new(1);
    fleet.flush(&[0], "load;main");
    let sent = held(&fleet.collector);
    let disk = SimDisk::of(lock(&fleet.disk.0).files.clone());
    lock(&disk.0).faults.push(Fault::Read);
    let objects = Objects::memory();
    let error = start_on_disk(objects.clone(), disk.clone()).unwrap_err();
    assert!(
        matches!(error, DataError::Wal(WalError::Io { .. })),
        "{error}"
    );
    let collector = start_on_disk(objects.clone(), disk.clone()).unwrap();
    assert_eq!((held(&collector), sent.len()), (sent, 1));
}

/// Tables on a disk that drops what a failed sync could not write, and reports the next sync of it as a
/// success.
#[derive(Debug, Default)]
struct ForgetfulDisk {
    store: Arc<InMemory>,
    /// The first sync of a version fails.
    is_failing: AtomicBool,
    /// Tags of files, which tell a file from a later one of the same name.
    dropped: Mutex<BTreeSet<String>>,
    durable: Mutex<BTreeSet<String>>,
}

impl Durability for ForgetfulDisk {
    fn sync(&self, paths: &[String]) -> Result<(), StoreError> {
        for path in paths {
            let file = at_once(self.store.head(&path.as_str().into())).unwrap();
            let tag = file.e_tag.unwrap();
            if self.dropped.lock().unwrap().contains(&tag) {
                continue;
            }
            if self.is_failing.load(Ordering::Relaxed) && path.starts_with("manifest/") {
                self.dropped.lock().unwrap().insert(tag);
                let source = io::Error::other("the disk does not answer");
                return Err(StoreError::Io {
                    doing: "syncing",
                    path: path.clone(),
                    source,
                });
            }
            self.durable.lock().unwrap().insert(path.clone());
        }
        Ok(())
    }
}

impl ForgetfulDisk {
    fn objects(self: &Arc<Self>) -> Objects {
        Objects::synced_by(self.clone(), self.store.clone())
    }

    /// Objects that a crash of the machine leaves.
    fn crashed(self: &Arc<Self>) -> Objects {
        let left = Objects::memory();
        for path in &*self.durable.lock().unwrap() {
            let content = self.objects().get_if_exists(path).unwrap();
            content
                .into_iter()
                .for_each(|content| left.put_new(path, content).unwrap());
        }
        left
    }
}

/// The collector ends after the sync of a version failed. The next one reads the version and removes the
/// part of the log that it replaces, so a later crash of the machine must not lose the version.
#[test]
fn a_version_whose_sync_failed_is_written_again_before_the_log_is_removed() {
    let tables = Arc::new(ForgetfulDisk::default());
    let objects = tables.objects();
    let mut fleet = Fleet::over(SimDisk::of(Files::new()), objects.clone(), 1);
    fleet.flush(&[0], "load;main");
    let sent = stacks(&ask(&fleet.collector));
    assert!(!sent.is_empty());
    tables.is_failing.store(true, Ordering::Relaxed);
    fleet.collector.sealer.seal().unwrap_err();
    let files = lock(&fleet.disk.0).files.clone();
    let disk = SimDisk::of(files.clone());

    let error = start_on_disk(objects.clone(), disk.clone()).unwrap_err();
    assert!(matches!(error, DataError::Unpublished { .. }), "{error}");
    assert_eq!(lock(&disk.0).files, files, "nothing is removed");

    tables.is_failing.store(false, Ordering::Relaxed);
    drop(start_on_disk(objects.clone(), disk.clone()).unwrap());
    let left = lock(&disk.0).files.clone();
    assert!(
        !files.keys().all(|name| left.contains_key(name)),
        "the log is removed"
    );
    let collector = start_on(tables.crashed(), left).unwrap();
    assert_eq!(stacks(&ask(&collector)), sent);
    assert_eq!(collector.state.tables.manifest().all_lost().count(), 0);
}

/// The same of the first version, whose sync fails before there is a log.
#[test]
fn a_first_version_whose_sync_failed_is_written_again() {
    let tables = Arc::new(ForgetfulDisk::default());
    let objects = tables.objects();
    tables.is_failing.store(true, Ordering::Relaxed);
    start_on(objects.clone(), Files::new()).unwrap_err();
    tables.is_failing.store(false, Ordering::Relaxed);
    start_on(objects.clone(), Files::new()).unwrap();
    let first = Manifest::path_of(1);
    assert_eq!(*tables.durable.lock().unwrap(), [first].into());
}

/// A process may have ended after a sync of its last records failed, and before it cut them off. The next
/// one acknowledges what it reads, so it writes what no mark shows to be synced once more.
#[test]
fn the_end_of_the_log_that_no_mark_covers_is_written_again() {
    let mut fleet = Fleet::new(1);
    fleet.flush(&[0], "load;main");
    let mut files = lock(&fleet.disk.0).files.clone();
    files.remove("acknowledged").unwrap();
    let (last, content) = files.last_key_value().unwrap();
    let rewritten = Operation::Rewrite(last.clone(), 0, content.clone());
    let synced = Operation::Sync(last.clone());
    let disk = SimDisk::of(files.clone());
    assert_eq!(held(&open(&disk)).len(), 1);
    assert_eq!(lock(&disk.0).operations[..2], [rewritten, synced]);
}

/// Of three starts, the second dies before the name of its log file is durable, and the machine dies
/// before that of the third one's file is.
#[test]
fn a_file_without_a_durable_name_is_not_missed() {
    let disk = SimDisk::of(Files::new());
    let operations = || lock(&disk.0).operations.clone();
    drop(open(&disk));
    drop(open(&disk));
    let died = before_names(operations());
    lock(&disk.0).operations = died;
    drop(open(&disk));
    let operations = before_names(operations());
    for seed in 0..64 {
        let mut random = random(seed);
        let image = crash_image(&Files::new(), &operations, Crash::Tears, &mut random);
        let collector = open(&SimDisk::of(image));
        let found = &collector.ingest.log.as_ref().unwrap().found;
        assert_eq!(found.damages, 0, "seed {seed}: {found:?}");
    }
}

fn before_names(operations: Vec<Operation>) -> Vec<Operation> {
    let at = operations
        .iter()
        .rposition(|operation| *operation == Operation::SyncDir);
    operations[..at.unwrap()].to_vec()
}
