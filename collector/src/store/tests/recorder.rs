//! An object store that remembers what was done to it, so that a crash can be put after any of it.

use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio_stream::{Stream, StreamExt};

type Streamed<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// What changes a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Put(Path, Bytes),
    Copy(Path, Path),
    Delete(Path),
}

/// Where the changes are noted.
pub(super) type Changes = Arc<Mutex<Vec<Change>>>;

#[derive(Debug, Default)]
pub(super) struct Recorder {
    store: InMemory,
    pub(super) changes: Changes,
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// A store to which these changes were made.
pub(super) async fn replay(changes: &[Change]) -> InMemory {
    let store = InMemory::new();
    for change in changes {
        match change {
            Change::Put(path, content) => {
                store.put(path, content.clone().into()).await.unwrap();
            }
            Change::Copy(from, to) => store.copy(from, to).await.unwrap(),
            Change::Delete(path) => store.delete(path).await.unwrap(),
        }
    }
    store
}

#[async_trait::async_trait]
impl ObjectStore for Recorder {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let put = self.store.put_opts(location, payload.clone(), options).await?;
        self.changes.lock().unwrap().push(Change::Put(location.clone(), payload.into()));
        Ok(put)
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unimplemented!("the store writes whole files")
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: Streamed<Path>) -> Streamed<Path> {
        let changes = self.changes.clone();
        let noted = locations.map(move |location| {
            if let Ok(path) = &location {
                changes.lock().unwrap().push(Change::Delete(path.clone()));
            }
            location
        });
        self.store.delete_stream(Box::pin(noted))
    }

    fn list(&self, prefix: Option<&Path>) -> Streamed<ObjectMeta> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await?;
        self.changes.lock().unwrap().push(Change::Copy(from.clone(), to.clone()));
        Ok(())
    }
}
