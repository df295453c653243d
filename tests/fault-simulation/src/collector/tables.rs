//! The tables' files on the simulated disk.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tokio_stream::{Stream, StreamExt as _};

use super::disk::{LatePut, Outcome, SimulatedDisk, dead, finish};
use super::faults::{DiskFault, Operation, Synced};
use base::sync::lock;
use store::{Durability, StoreError};

/// Where a bucket has the files of the log.
const LOG_FOLDER: &str = "wal/";

#[derive(Clone)]
pub(super) struct TableFile {
    pub(super) content: Bytes,
    pub(super) written: Synced,
    /// Its name.
    pub(super) named: Synced,
    pub(super) modified_ns: i64,
}

impl TableFile {
    pub(super) fn is_durable(&self) -> bool {
        self.written == Synced::Yes && self.named == Synced::Yes
    }
}

type Streamed<T> = std::pin::Pin<Box<dyn Stream<Item = object_store::Result<T>> + Send>>;

impl Durability for SimulatedDisk {
    fn sync(&self, paths: &[String]) -> Result<(), StoreError> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        for path in paths {
            let is_version = folder(path) == "manifest";
            let operation = if is_version {
                Operation::SyncVersion
            } else {
                Operation::Sync
            };
            let outcome = state
                .begin(operation)
                .map_err(|error| failed(path, error))?;
            let is_done = state.is_done(outcome);
            if let Some(file) = state.tables.get_mut(path) {
                let is_hollow = sync(&mut file.written, is_done, outcome);
                state.count_if(is_hollow, DiskFault::HollowSync);
            }
            finish(outcome).map_err(|error| failed(path, error))?;
        }
        // The folders; only with these the files survive.
        let outcome = state
            .begin(Operation::Sync)
            .map_err(|error| failed("folders", error))?;
        let is_done = state.is_done(outcome);
        let folders: BTreeSet<&str> = paths.iter().map(|path| folder(path)).collect();
        let files = state
            .tables
            .iter_mut()
            .filter(|(path, _)| folders.contains(folder(path)));
        files.for_each(|(_, file)| {
            sync(&mut file.named, is_done, outcome);
        });
        if is_done {
            state
                .removed_tables
                .retain(|removed, _| !folders.contains(folder(removed)));
        }
        finish(outcome).map_err(|error| failed("folders", error))
    }
}

fn failed(path: &str, source: std::io::Error) -> StoreError {
    StoreError::Io {
        doing: "syncing",
        path: path.to_owned(),
        source,
    }
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Applies the effect of a sync. Returns whether it is hollow.
fn sync(synced: &mut Synced, is_done: bool, outcome: Outcome) -> bool {
    if outcome == Outcome::Error {
        *synced = synced.after_failure();
    } else if is_done {
        *synced = synced.after_sync();
        return *synced == Synced::Failed;
    }
    false
}

fn object_error(source: io::Error) -> Error {
    Error::Generic {
        store: "simulated",
        source: Box::new(source),
    }
}

/// The result of a future of the memory's, which never waits.
pub(super) fn block<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => unreachable!("memory does not wait"),
    }
}

impl SimulatedDisk {
    /// A request to a bucket. One that fails may have no effect, its whole effect, or its effect later.
    async fn put_in_bucket(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.deliver_late().await;
        let outcome = lock(&self.state)
            .begin(Operation::Write)
            .map_err(object_error)?;
        if outcome == Outcome::Done {
            return self.insert(location, payload, options).await;
        }
        let effect = lock(&self.state).below(3);
        if effect == 1 {
            lock(&self.state).count(DiskFault::LostAnswer);
            // A conflict is not seen either.
            let _ = self.insert(location, payload, options).await;
        } else if effect == 2 {
            let location = location.clone();
            lock(&self.state).late.push(LatePut {
                location,
                payload,
                options,
            });
        }
        finish(outcome).map_err(object_error)?;
        unreachable!("it was not done")
    }

    async fn deliver_late(&self) {
        let late = mem::take(&mut lock(&self.state).late);
        for put in late {
            if lock(&self.state).coin() {
                lock(&self.state).late.push(put);
                continue;
            }
            let LatePut {
                location,
                payload,
                options,
            } = put;
            if self.insert(&location, payload, options).await.is_ok() {
                lock(&self.state).count(DiskFault::LatePut);
            }
        }
    }

    async fn insert(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let put = self
            .memory()
            .put_opts(location, payload.clone(), options)
            .await?;
        let mut state = lock(&self.state);
        let modified_ns = state.clock.now().unix_ns();
        let content = payload.into();
        let file = TableFile {
            content,
            written: Synced::Yes,
            named: Synced::Yes,
            modified_ns,
        };
        state.tables.insert(location.to_string(), file);
        Ok(put)
    }
}

#[async_trait::async_trait]
impl ObjectStore for SimulatedDisk {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        // In a bucket the log writes its files here as well, while its writer is locked.
        if !location.as_ref().starts_with(LOG_FOLDER) {
            self.call_hook();
        }
        if self.is_bucket {
            return self.put_in_bucket(location, payload, options).await;
        }
        let outcome = lock(&self.state)
            .begin(Operation::Write)
            .map_err(object_error)?;
        // A file is visible whole or not at all: it is written under another name and linked.
        if !lock(&self.state).is_done(outcome) {
            finish(outcome).map_err(object_error)?;
        }
        let memory = self.memory();
        let put = memory.put_opts(location, payload.clone(), options).await?;
        let mut state = lock(&self.state);
        let modified_ns = state.clock.now().unix_ns();
        let content = payload.into();
        let file = TableFile {
            content,
            written: Synced::No,
            named: Synced::No,
            modified_ns,
        };
        state.tables.insert(location.to_string(), file);
        drop(state);
        if self.is_dead() {
            Err(object_error(dead()))
        } else {
            Ok(put)
        }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        unimplemented!("the store writes whole files")
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        lock(&self.state).read().map_err(object_error)?;
        self.memory().get_opts(location, options).await
    }

    fn delete_stream(&self, locations: Streamed<Path>) -> Streamed<Path> {
        let disk = self.clone();
        let deleted = locations.map(move |location| {
            let location = location?;
            let mut state = lock(&disk.state);
            let outcome = state.begin(Operation::Other).map_err(object_error)?;
            if state.is_done(outcome)
                && let Some(file) = state.tables.remove(location.as_ref())
            {
                state.removed_tables.insert(location.to_string(), file);
                block(disk.memory().delete(&location))?;
            }
            finish(outcome).map_err(object_error)?;
            Ok(location)
        });
        Box::pin(deleted)
    }

    fn list(&self, prefix: Option<&Path>) -> Streamed<ObjectMeta> {
        let readable = lock(&self.state).read();
        if let Err(error) = readable {
            return Box::pin(tokio_stream::once(Err(object_error(error))));
        }
        let state = self.state.clone();
        // By the simulated clock.
        let stamped = self.memory().list(prefix).map(move |meta| {
            let mut meta = meta?;
            let file = lock(&state)
                .tables
                .get(meta.location.as_ref())
                .map(|file| file.modified_ns);
            let nanoseconds = u64::try_from(file.unwrap_or(0)).unwrap_or(0);
            meta.last_modified = (UNIX_EPOCH + Duration::from_nanos(nanoseconds)).into();
            Ok(meta)
        });
        Box::pin(stamped)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.memory().list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        let outcome = lock(&self.state)
            .begin(Operation::Write)
            .map_err(object_error)?;
        finish(outcome).map_err(object_error)?;
        self.memory().copy_opts(from, to, options).await
    }
}
