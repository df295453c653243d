//! The files of a store in a bucket.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode};
use tokio_stream::StreamExt as _;

use super::{Object, Objects, Source, is_table};
use crate::bucket::{Bucket, Cached, Request, Upload, create};
use crate::error::StoreError;
use base::sync::lock;

impl Objects {
    /// The store of one collector in a bucket. Of several processes that create the same object, one
    /// succeeds.
    pub fn in_bucket(store: Arc<dyn ObjectStore>, bucket: Bucket) -> Objects {
        Objects {
            store,
            root: None,
            durability: None,
            bucket: Some(Arc::new(bucket)),
        }
    }

    /// Whether another process may have written what this one wants to write.
    pub fn is_bucket(&self) -> bool {
        self.bucket.is_some()
    }

    /// The address of a bucket's store, for people.
    pub fn place(&self) -> String {
        self.bucket
            .as_ref()
            .map_or_else(String::new, |bucket| bucket.place().to_owned())
    }

    /// The epoch of the life of the collector that writes to a bucket; 0 elsewhere.
    pub fn epoch(&self) -> u64 {
        self.bucket.as_ref().map_or(0, |bucket| bucket.epoch())
    }

    /// Makes this process the owner of a bucket's store.
    pub fn own(&self, epoch: u64) {
        self.bucket.iter().for_each(|bucket| bucket.own(epoch));
    }

    /// The ids of files that this process may assign, and delete: others are of later lives.
    pub fn ids(&self) -> Range<u64> {
        self.bucket
            .as_ref()
            .map_or(0..u64::MAX, |bucket| bucket.first_id()..bucket.end_of_ids())
    }

    /// Ends all writing to a bucket, for ever: another collector has taken over.
    pub fn fence(&self, reason: String) {
        self.bucket
            .iter()
            .for_each(|bucket| bucket.fence(reason.clone()));
    }

    /// # Errors
    /// [`StoreError::Fenced`] if another collector has taken over.
    pub fn check_fence(&self) -> Result<(), StoreError> {
        self.bucket
            .as_ref()
            .map_or(Ok(()), |bucket| bucket.check_fence())
    }

    /// Files of tables are written while the next ones are made.
    pub(super) fn put_in_bucket(
        &self,
        bucket: &Bucket,
        path: &str,
        content: Bytes,
    ) -> Result<(), StoreError> {
        bucket.check_fence()?;
        let patience = bucket.patience;
        let (true, Some(runtime)) = (is_table(path), &bucket.runtime) else {
            let put = create(&*self.store, patience, path, &content);
            return self.written(path, self.block_on(put));
        };
        bucket.cache.put(path, &content);
        let room = self.block_on(bucket.room.clone().acquire_owned());
        let store = self.store.clone();
        let owned = path.to_owned();
        let request: Request = Box::pin(async move {
            let _room = room;
            create(&*store, patience, &owned, &content)
                .await
                .map(|()| Bytes::new())
        });
        lock(&bucket.uploads).push(Upload {
            path: path.to_owned(),
            done: runtime.spawn(request),
        });
        Ok(())
    }

    /// Checks that the server refuses to create an object that exists, by creating one again.
    ///
    /// # Errors
    /// [`StoreError::NoConditionalWrites`] if it does not.
    pub fn check_refusal(&self, path: &str, content: &Bytes) -> Result<(), StoreError> {
        let location = Path::from(path);
        let create = || {
            let options = PutMode::Create.into();
            match self.block_on(
                self.store
                    .put_opts(&location, content.clone().into(), options),
            ) {
                Ok(_) => Ok(false),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(true),
                Err(error) => Err(error),
            }
        };
        match self.repeat(create) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::NoConditionalWrites {
                place: self.place(),
            }),
            Err(source) => Err(self.failed("writing", path, source)),
        }
    }

    /// Writes a file of a bucket, which may exist.
    pub fn replace(&self, path: &str, content: Bytes) -> Result<(), StoreError> {
        self.check_fence()?;
        let location = Path::from(path);
        self.written(
            path,
            self.repeat(|| self.block_on(self.store.put(&location, content.clone().into())))
                .map(|_| ()),
        )
    }

    /// Reads whole files, several at a time; `None` for one that does not exist.
    pub fn get_all(&self, paths: &[String]) -> Vec<Result<Option<Bytes>, StoreError>> {
        let runtime = self
            .bucket
            .as_ref()
            .and_then(|bucket| bucket.runtime.as_ref());
        let Some(runtime) = runtime else {
            return paths.iter().map(|path| self.get_if_exists(path)).collect();
        };
        let read = |path: &String| {
            let store = self.store.clone();
            let location = Path::from(path.as_str());
            let request: Request =
                Box::pin(async move { store.get(&location).await?.bytes().await });
            runtime.spawn(request)
        };
        let reads: Vec<_> = paths.iter().map(read).collect();
        let done = paths.iter().zip(reads).map(|(path, read)| {
            match self.block_on(read).expect("a read does not panic") {
                Ok(content) => Ok(Some(content)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                // Perhaps this one succeeds.
                Err(_) => self.get_if_exists(path),
            }
        });
        done.collect()
    }

    /// Reads the whole file at once: one request instead of one for each part. Files of tables stay in the
    /// cache.
    pub(super) fn open_in_bucket(
        &self,
        bucket: &Bucket,
        path: &str,
    ) -> Result<Option<Object>, StoreError> {
        let object = |bytes, source| {
            Some(Object {
                path: path.to_owned(),
                bytes,
                source,
            })
        };
        if is_table(path) {
            match bucket.cache.get(path) {
                Some(Cached::Memory(content)) => {
                    return Ok(object(content.len() as u64, Source::Memory(content)));
                }
                Some(Cached::File(file, bytes)) => return Ok(object(bytes, Source::File(file))),
                None => {}
            }
        }
        let location = Path::from(path);
        let read = || -> object_store::Result<(u64, Option<Bytes>)> {
            self.block_on(async {
                let found = self.store.get(&location).await?;
                let bytes = found.meta.size;
                if is_table(path) && !bucket.cache.has_room_for(bytes) {
                    return Ok((bytes, None));
                }
                Ok((bytes, Some(found.bytes().await?)))
            })
        };
        match self.repeat(read) {
            Ok((bytes, None)) => Ok(object(bytes, Source::Store(self.clone()))),
            Ok((bytes, Some(content))) => {
                if is_table(path) {
                    bucket.cache.put(path, &content);
                }
                Ok(object(bytes, Source::Memory(content)))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(self.failed("opening", path, source)),
        }
    }

    /// The path of any file; `None` if there is none.
    pub fn any_path(&self) -> Result<Option<String>, StoreError> {
        let first = self
            .repeat(|| self.block_on(self.store.list(None).next()).transpose())
            .map_err(|source| self.failed("listing", "", source))?;
        Ok(first.map(|meta| meta.location.to_string()))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Objects {
    /// A store in a bucket in memory.
    pub fn bucket_in_memory() -> Objects {
        use object_store::memory::InMemory;

        use super::super::bucket::{Patience, TableCache};

        let cache = TableCache::memory(1 << 20);
        let bucket = Bucket::new("s3://memory/c1".to_owned(), None, Patience::NONE, cache);
        Objects::in_bucket(Arc::new(InMemory::new()), bucket)
    }

    /// The same store, as another process uses it.
    pub fn of_another_process(&self) -> Objects {
        Objects {
            store: self.store.clone(),
            ..Objects::bucket_in_memory()
        }
    }
}
