//! An object store that records all changes, so that a test can crash after any of them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio_stream::{Stream, StreamExt};

type Streamed<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// A change of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Put(Path, Bytes),
    Copy(Path, Path),
    Delete(Path),
}

/// The recorded changes.
pub type Changes = Arc<Mutex<Vec<Change>>>;

/// The reason why a listed file cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No permission, or an error of the disk.
    Denied,
    /// It was just deleted; applies once.
    Gone,
}

/// The files that cannot be read, by path.
pub type Refusals = Arc<Mutex<BTreeMap<String, Refusal>>>;

#[derive(Default)]
pub struct Recorder {
    store: InMemory,
    pub changes: Changes,
    pub refusals: Refusals,
    /// Called after each change, before anything else can happen.
    noted: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    pub fn noting(noted: impl Fn() + Send + Sync + 'static) -> Recorder {
        Recorder {
            noted: Some(Arc::new(noted)),
            ..Recorder::default()
        }
    }

    /// Fails for the files that the test made unreadable.
    fn refuse(&self, location: &Path) -> Result<()> {
        let mut refusals = self.refusals.lock().unwrap();
        let path = location.to_string();
        let source = "the test says so".into();
        match refusals.get(location.as_ref()) {
            Some(Refusal::Denied) => Err(Error::PermissionDenied { path, source }),
            Some(Refusal::Gone) => {
                refusals.remove(location.as_ref());
                Err(Error::NotFound { path, source })
            }
            None => Ok(()),
        }
    }

    fn note(&self, change: Change) {
        self.changes.lock().unwrap().push(change);
        if let Some(noted) = &self.noted {
            noted();
        }
    }
}

impl fmt::Display for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

/// A store after these changes.
pub async fn replay(changes: &[Change]) -> InMemory {
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
        let put = self
            .store
            .put_opts(location, payload.clone(), options)
            .await?;
        self.note(Change::Put(location.clone(), payload.into()));
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
        self.refuse(location)?;
        self.store.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: Streamed<Path>) -> Streamed<Path> {
        let changes = self.changes.clone();
        let noted = self.noted.clone();
        let locations = locations.map(move |location| {
            if let Ok(path) = &location {
                changes.lock().unwrap().push(Change::Delete(path.clone()));
                noted.iter().for_each(|noted| noted());
            }
            location
        });
        self.store.delete_stream(Box::pin(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> Streamed<ObjectMeta> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.refuse(from)?;
        self.store.copy_opts(from, to, options).await?;
        self.note(Change::Copy(from.clone(), to.clone()));
        Ok(())
    }
}
