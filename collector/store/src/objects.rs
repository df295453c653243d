//! The files of the store except the log: an object store behind blocking calls.
//!
//! No call needs a runtime. They work on any thread that may block, so also in `spawn_blocking`, but
//! not on a thread that drives futures.

#[cfg_attr(not(feature = "s3"), allow(dead_code))]
mod in_bucket;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path as FilePath, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use profiler_core::Timestamp;
use tokio_stream::StreamExt;

use super::bucket::{Bucket, Upload};
use super::error::StoreError;
use base::heartbeat;
use base::sync::lock;

/// The folder with copies of damaged files.
pub(crate) const QUARANTINE: &str = "quarantine";

/// The folders that are written to; the rest of the directory is not ours.
const FOLDERS: [&str; 3] = ["manifest", "tables", QUARANTINE];

/// Files that are synced concurrently.
const SYNCS_AT_ONCE: usize = 16;

/// An object store. A file is written once and whole, under a name that is never reused.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    /// The directory if the store is local: then files are read without a copy by the object store.
    root: Option<PathBuf>,
    /// `None` if acknowledged writes are durable.
    durability: Option<Arc<dyn Durability>>,
    /// Of a store in a bucket, which other processes may write to.
    bucket: Option<Arc<Bucket>>,
}

/// Makes files durable: a local object store makes them visible, but does not sync them.
pub trait Durability: fmt::Debug + Send + Sync {
    /// Syncs files, and the names of the files and of their folders.
    fn sync(&self, paths: &[String]) -> Result<(), StoreError>;
}

/// Syncs the files of a local directory.
#[derive(Debug)]
struct LocalFiles {
    root: PathBuf,
}

/// A file in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub path: String,
    pub bytes: u64,
    /// By the store's clock.
    pub modified: Timestamp,
}

/// A file open for reading. A local one stays readable after it is deleted.
#[derive(Debug)]
pub struct Object {
    path: String,
    bytes: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    File(File),
    Memory(Bytes),
    Store(Objects),
}

impl Objects {
    /// A store in memory.
    pub fn memory() -> Objects {
        Objects::over(Arc::new(InMemory::new()))
    }

    /// A local directory, which is created if it does not exist.
    pub fn local(root: &FilePath) -> Result<Objects, StoreError> {
        let path = || root.display().to_string();
        let failed = |source| StoreError::Io {
            doing: "creating",
            path: path(),
            source,
        };
        std::fs::create_dir_all(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        let store =
            LocalFileSystem::new_with_prefix(&root).map_err(|source| StoreError::Objects {
                doing: "opening",
                path: path(),
                source,
            })?;
        let files = LocalFiles { root: root.clone() };
        let objects = Objects::synced_by(Arc::new(files), Arc::new(store));
        Ok(Objects {
            root: Some(root),
            ..objects
        })
    }

    /// An object store whose acknowledged writes are not durable before they are synced.
    pub fn synced_by(durability: Arc<dyn Durability>, store: Arc<dyn ObjectStore>) -> Objects {
        Objects {
            store,
            root: None,
            durability: Some(durability),
            bucket: None,
        }
    }

    /// Any object store that makes acknowledged writes durable.
    pub fn over(store: Arc<dyn ObjectStore>) -> Objects {
        Objects {
            store,
            root: None,
            durability: None,
            bucket: None,
        }
    }

    /// The object store itself, for engines that read tables by themselves.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    /// The folders at the root.
    pub fn root_folders(&self) -> Result<Vec<String>, StoreError> {
        let listed = self
            .repeat(|| self.block_on(self.store.list_with_delimiter(None)))
            .map_err(|source| self.failed("listing", "", source))?;
        Ok(listed
            .common_prefixes
            .iter()
            .map(ToString::to_string)
            .collect())
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        heartbeat::before_io();
        let Some(bucket) = &self.bucket else {
            return block_on(future);
        };
        let _inside = bucket.runtime.as_ref().map(|runtime| runtime.enter());
        // Requests have a limit of time, and so do their repetitions.
        heartbeat::during_bounded_wait(|| block_on(future))
    }

    /// Repeats a request to a bucket.
    fn repeat<T>(
        &self,
        mut request: impl FnMut() -> object_store::Result<T>,
    ) -> object_store::Result<T> {
        match &self.bucket {
            Some(bucket) => heartbeat::during_bounded_wait(|| bucket.patience.repeat(request)),
            None => request(),
        }
    }

    fn failed(&self, doing: &'static str, path: &str, source: object_store::Error) -> StoreError {
        match &self.bucket {
            Some(bucket) => bucket.failed(doing, path, &source),
            None => StoreError::Objects {
                doing,
                path: path.to_owned(),
                source,
            },
        }
    }

    /// Writes a new file. When this returns, file and name survive a crash.
    pub fn put_new(&self, path: &str, content: Bytes) -> Result<(), StoreError> {
        self.put_unsynced(path, content)?;
        self.sync(&[path.to_owned()])
    }

    /// Writes a new file. File and name survive a crash after [`Objects::sync`].
    pub fn put_unsynced(&self, path: &str, content: Bytes) -> Result<(), StoreError> {
        if let Some(bucket) = &self.bucket {
            return self.put_in_bucket(bucket, path, content);
        }
        let location = Path::from(path);
        let put = self
            .store
            .put_opts(&location, content.into(), PutMode::Create.into());
        self.written(path, self.block_on(put).map(|_| ()))
    }

    fn written(&self, path: &str, put: object_store::Result<()>) -> Result<(), StoreError> {
        put.map_err(|error| match error {
            object_store::Error::AlreadyExists { .. } => StoreError::AlreadyExists {
                path: path.to_owned(),
            },
            source => self.failed("writing", path, source),
        })
    }

    /// Makes files and their names survive a crash.
    pub fn sync(&self, paths: &[String]) -> Result<(), StoreError> {
        if let Some(bucket) = &self.bucket
            && paths.iter().any(|path| is_table(path))
        {
            // Others are of a sealing that failed.
            let uploads = std::mem::take(&mut *lock(&bucket.uploads));
            for Upload { path, done } in uploads {
                if paths.contains(&path) {
                    let done = self.block_on(done).expect("an upload does not panic");
                    self.written(&path, done.map(drop))?;
                }
            }
        }
        heartbeat::before_io();
        self.durability
            .as_ref()
            .map_or(Ok(()), |durability| durability.sync(paths))
    }

    /// Reads a whole file.
    #[cfg(any(test, feature = "testing"))]
    pub fn get(&self, path: &str) -> Result<Bytes, StoreError> {
        let object = self.open(path)?;
        object.read(0, object.bytes)
    }

    /// Reads a whole file; `None` if it does not exist.
    pub fn get_if_exists(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        let Some(object) = self.open_if_exists(path)? else {
            return Ok(None);
        };
        object.read(0, object.bytes).map(Some)
    }

    /// Opens a file for reading in parts. A missing file is damage.
    pub fn open(&self, path: &str) -> Result<Object, StoreError> {
        let opened = self.open_if_exists(path)?;
        opened.ok_or_else(|| StoreError::damaged(path, "it is missing"))
    }

    fn open_if_exists(&self, path: &str) -> Result<Option<Object>, StoreError> {
        if let Some(bucket) = &self.bucket {
            return self.open_in_bucket(bucket, path);
        }
        let (bytes, source) = match &self.root {
            Some(root) => {
                heartbeat::before_io();
                let opened = File::open(root.join(path));
                match opened.and_then(|file| Ok((file.metadata()?.len(), file))) {
                    Ok((bytes, file)) => (bytes, Source::File(file)),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    Err(source) => {
                        let path = path.to_owned();
                        return Err(StoreError::Io {
                            doing: "opening",
                            path,
                            source,
                        });
                    }
                }
            }
            None => match self.block_on(self.store.head(&Path::from(path))) {
                Ok(meta) => (meta.size, Source::Store(self.clone())),
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(source) => return Err(self.failed("opening", path, source)),
            },
        };
        Ok(Some(Object {
            path: path.to_owned(),
            bytes,
            source,
        }))
    }

    /// The files below `prefix`, by path.
    pub fn list(&self, prefix: &str) -> Result<Vec<Listed>, StoreError> {
        let listed = self.repeat(|| {
            let mut stream = self.store.list(Some(&Path::from(prefix)));
            let mut metas = Vec::new();
            while let Some(meta) = self.block_on(stream.next()) {
                metas.push(meta?);
            }
            Ok(metas)
        });
        let mut files = Vec::new();
        for meta in listed.map_err(|source| self.failed("listing", prefix, source))? {
            let modified = meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
            files.push(Listed {
                path: meta.location.to_string(),
                bytes: meta.size,
                modified: Timestamp::from_unix_ns(modified),
            });
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Deletes a file if it exists.
    pub fn delete(&self, path: &str) -> Result<(), StoreError> {
        self.check_fence()?;
        self.bucket
            .iter()
            .for_each(|bucket| bucket.cache.remove(path));
        match self.block_on(self.store.delete(&Path::from(path))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.failed("deleting", path, source)),
        }
    }

    /// Deletes files, with few requests. Missing ones are no error.
    pub fn delete_all(&self, paths: &[String]) -> Result<(), StoreError> {
        self.check_fence()?;
        let locations: Vec<_> = paths
            .iter()
            .map(|path| Ok(Path::from(path.as_str())))
            .collect();
        let mut deleted = self
            .store
            .delete_stream(Box::pin(tokio_stream::iter(locations)));
        let mut done = Ok(());
        while let Some(result) = self.block_on(deleted.next()) {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(source) => done = done.and(Err(self.failed("deleting", "files", source))),
            }
        }
        done
    }

    /// Deletes partly written files that a crash left behind. They are named `name#1`, and the object
    /// store does not list them. Only while nobody writes. Returns their number.
    pub fn delete_unfinished(&self) -> Result<usize, StoreError> {
        let roots = self
            .root
            .iter()
            .flat_map(|root| FOLDERS.map(|folder| root.join(folder)));
        let mut folders: Vec<PathBuf> = roots.filter(|folder| folder.exists()).collect();
        let mut deleted = 0;
        while let Some(folder) = folders.pop() {
            let failed = |source| StoreError::Io {
                doing: "listing",
                path: folder.display().to_string(),
                source,
            };
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let kind = entry.file_type().map_err(failed)?;
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() && is_unfinished(&entry.file_name()) {
                    std::fs::remove_file(entry.path()).map_err(failed)?;
                    deleted += 1;
                }
            }
        }
        Ok(deleted)
    }

    /// Whether a file was copied to quarantine.
    pub fn is_in_quarantine(&self, path: &str) -> bool {
        self.open_if_exists(&copy_of(path))
            .is_ok_and(|copy| copy.is_some())
    }

    /// Copies a file to quarantine, where nothing is ever deleted. Returns the path of the copy.
    pub fn quarantine(&self, path: &str) -> Result<String, StoreError> {
        let copy = copy_of(path);
        match self.block_on(
            self.store
                .copy(&Path::from(path), &Path::from(copy.as_str())),
        ) {
            // There is nothing to copy of a missing file.
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(copy),
            Err(source) => Err(self.failed("copying to quarantine", path, source)),
        }
    }
}

impl Object {
    /// The length of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads `length` bytes from `at`. A read past the end is damage: the file was cut.
    pub fn read(&self, at: u64, length: u64) -> Result<Bytes, StoreError> {
        let end = at.checked_add(length).filter(|end| *end <= self.bytes);
        let Some(end) = end else {
            let reason = format!("{length} bytes at {at} exceed its {} bytes", self.bytes);
            return Err(StoreError::damaged(&self.path, reason));
        };
        if length == 0 {
            return Ok(Bytes::new());
        }
        match &self.source {
            Source::File(file) => {
                heartbeat::before_io();
                let length = usize::try_from(length).expect("a file's part fits the memory");
                let mut content = vec![0; length];
                file.read_exact_at(&mut content, at)
                    .map_err(|source| match source.kind() {
                        std::io::ErrorKind::UnexpectedEof => {
                            StoreError::damaged(&self.path, "it was cut while it was read")
                        }
                        _ => StoreError::Io {
                            doing: "reading",
                            path: self.path.clone(),
                            source,
                        },
                    })?;
                Ok(content.into())
            }
            Source::Memory(content) => {
                let place =
                    |at: u64| usize::try_from(at).expect("it is at most a length in memory");
                Ok(content.slice(place(at)..place(end)))
            }
            Source::Store(objects) => {
                let location = Path::from(self.path.as_str());
                let part = objects
                    .repeat(|| objects.block_on(objects.store.get_range(&location, at..end)));
                part.map_err(|source| objects.failed("reading", &self.path, source))
            }
        }
    }
}

impl Durability for LocalFiles {
    /// Concurrent, because a disk combines concurrent syncs: with their folders, each of 128 new files
    /// took 15 ms one by one, and 1.3 ms with 16 threads.
    fn sync(&self, paths: &[String]) -> Result<(), StoreError> {
        let root = &self.root;
        let files: Vec<PathBuf> = paths.iter().map(|path| root.join(path)).collect();
        sync_all(&files)?;
        // A new folder is an entry of the folder above it, up to the root.
        let folders: BTreeSet<PathBuf> = files
            .iter()
            .flat_map(|file| {
                file.ancestors()
                    .skip(1)
                    .take_while(|folder: &&FilePath| folder.starts_with(root))
            })
            .map(FilePath::to_owned)
            .collect();
        sync_all(&Vec::from_iter(folders))
    }
}

/// The path of a file's copy in quarantine.
fn copy_of(path: &str) -> String {
    format!("{QUARANTINE}/{}", path.replace('/', "-"))
}

/// Syncs files or folders, [`SYNCS_AT_ONCE`] at a time. Returns the first error.
fn sync_all(paths: &[PathBuf]) -> Result<(), StoreError> {
    let own = heartbeat::own();
    let sync = |path: &PathBuf| {
        own.beat();
        let synced = File::open(path).and_then(|file| file.sync_all());
        synced.map_err(|source| StoreError::Io {
            doing: "syncing",
            path: path.display().to_string(),
            source,
        })
    };
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            sync(path)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..paths.len().min(SYNCS_AT_ONCE))
            .map(|_| {
                // If a thread cannot be started, the others do its work.
                thread::Builder::new()
                    .name("emberline-sync".into())
                    .spawn_scoped(scope, work)
                    .ok()
            })
            .collect();
        let mut done = work();
        for helper in helpers.into_iter().flatten() {
            done = done.and(helper.join().expect("syncing does not panic"));
        }
        done
    })
}

/// Whether the object store was writing this file: a name, `#` and a number.
fn is_unfinished(name: &OsStr) -> bool {
    let parts = name.to_str().and_then(|name| name.rsplit_once('#'));
    parts.is_some_and(|(file, number)| {
        is_number(number) && (file.ends_with(".parquet") || file.ends_with(".json"))
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a file of a bucket is written in the background, and cached.
fn is_table(path: &str) -> bool {
    path.starts_with("tables/")
}

/// Wakes the blocked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks on a future. A runtime would have to be dropped where blocking is allowed, and would cost a
/// thread switch for each read.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The behavior of every kind of store.
    fn check(objects: &Objects) {
        let content = Bytes::from_static(b"0123456789");
        objects.put_new("a/b/1", content.clone()).unwrap();
        objects.put_new("a/c", Bytes::new()).unwrap();
        let again = objects.put_new("a/b/1", Bytes::new());
        assert!(
            matches!(again, Err(StoreError::AlreadyExists { .. })),
            "{again:?}"
        );
        assert_eq!(objects.get("a/b/1").unwrap(), content);
        assert_eq!(objects.get("a/c").unwrap(), "");
        let object = objects.open("a/b/1").unwrap();
        assert_eq!(
            (object.bytes(), object.read(3, 4).unwrap()),
            (10, "3456".into())
        );
        for (at, length) in [(7, 4), (11, 0), (1, u64::MAX)] {
            let read = object.read(at, length);
            assert!(
                matches!(read, Err(StoreError::Damaged { .. })),
                "{at} {length}"
            );
        }
        assert_eq!(
            names_and_sizes(objects, "a"),
            [("a/b/1".to_owned(), 10), ("a/c".to_owned(), 0)]
        );
        assert_eq!(objects.quarantine("a/b/1").unwrap(), "quarantine/a-b-1");
        objects.delete("a/b/1").unwrap();
        objects.delete("a/b/1").unwrap();
        assert!(matches!(
            objects.get("a/b/1"),
            Err(StoreError::Damaged { .. })
        ));
        assert_eq!(names_and_sizes(objects, "a"), [("a/c".to_owned(), 0)]);
        assert_eq!(objects.get("quarantine/a-b-1").unwrap(), content);
    }

    fn names_and_sizes(objects: &Objects, prefix: &str) -> Vec<(String, u64)> {
        let listed = objects.list(prefix).unwrap();
        listed
            .into_iter()
            .map(|file| (file.path, file.bytes))
            .collect()
    }

    #[test]
    fn files_are_never_overwritten_and_read_in_parts() {
        check(&Objects::memory());
        check(&Objects::bucket_in_memory());
        let directory = tempfile::tempdir().unwrap();
        check(&Objects::local(&directory.path().join("new/one")).unwrap());
    }

    #[test]
    fn only_unfinished_files_of_a_crash_are_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::local(directory.path()).unwrap();
        assert_eq!(objects.delete_unfinished().unwrap(), 0);
        let kept = [
            "tables/a/1.parquet",
            "manifest/1.json",
            "tables/a/1#1.txt",
            "mine.json#1",
            "tables/a.parquet#x",
        ];
        let unfinished = [
            "tables/a/1.parquet#1",
            "tables/a/2.parquet#12",
            "manifest/2.json#1",
        ];
        for path in kept.iter().chain(&unfinished) {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "half").unwrap();
        }
        assert_eq!(objects.delete_unfinished().unwrap(), unfinished.len());
        assert!(kept.iter().all(|path| directory.path().join(path).exists()));
        assert!(
            unfinished
                .iter()
                .all(|path| !directory.path().join(path).exists())
        );
        assert_eq!(Objects::memory().delete_unfinished().unwrap(), 0);
    }

    #[test]
    fn a_failed_sync_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::local(directory.path()).unwrap();
        let mut paths: Vec<String> = (0..40)
            .map(|file| format!("a/{}/{file}", file % 3))
            .collect();
        for path in &paths {
            objects
                .put_unsynced(path, Bytes::from_static(b"1"))
                .unwrap();
        }
        objects.sync(&paths).unwrap();
        for place in [0, 20, 40] {
            paths.insert(place, "a/1/gone".into());
            let error = objects.sync(&paths).unwrap_err().to_string();
            assert!(error.contains("a/1/gone"), "{error}");
            paths.remove(place);
        }
        objects.sync(&[]).unwrap();
    }

    #[test]
    fn calls_work_on_blocking_threads_of_a_runtime() {
        let directory = tempfile::tempdir().unwrap();
        let objects = Objects::local(directory.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime
            .block_on(runtime.spawn_blocking(move || check(&objects)))
            .unwrap();
    }
}
