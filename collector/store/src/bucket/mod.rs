//! Stores in buckets: what an object store in the network needs besides a client.
//!
//! Reading order: [`place`] (addresses), [`settings`] (variables), [`client`] (requests), [`requests`] (their counts),
//! [`create`] (the one operation that decides who wrote what), [`cache`] (files of tables), [`owner`] (one collector
//! at a time). `docs/design/scale.md` has the argument why nothing counts twice.

mod cache;
#[cfg(feature = "s3")]
mod client;
mod create;
mod owner;
mod place;
mod requests;
#[cfg(feature = "s3")]
mod settings;

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub use self::cache::{Cached, TableCache};
pub use self::create::{Patience, create};
pub use self::owner::Ack;
pub use self::owner::{LogState, Owner, OwnerSighting, random_id};
pub use self::place::{PlaceError, StoreName, StorePlace};
pub use self::requests::{BucketOperation, BucketTraffic};
use super::error::StoreError;
use super::objects::Objects;
use base::limits::BUCKET_UPLOADS_MAX;
use base::sync::{Mutex, rank};

/// The ids of files that one life of a collector may assign. The upper bits are the life's epoch.
const IDS_OF_EPOCH: u64 = 1 << 40;

/// A bucket, as one process uses it.
pub struct Bucket {
    /// For people: `s3://BUCKET/PREFIX/NAME`.
    place: String,
    /// Drives requests; `None` if they never wait.
    pub(super) runtime: Option<Handle>,
    pub(super) patience: Patience,
    pub(super) cache: TableCache,
    /// Files that are being written, until they are synced.
    pub(super) uploads: Mutex<Vec<Upload>, rank::BucketUploads>,
    /// Room for uploads.
    pub(super) room: Arc<Semaphore>,
    /// Of the life of the collector that owns the store; 0 before, and for readers.
    epoch: AtomicU64,
    /// Why this process must not write any more.
    fence: OnceLock<String>,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) path: String,
    /// With nothing in it.
    pub(super) done: JoinHandle<object_store::Result<Bytes>>,
}

/// A request that others do not wait for. One type, because tokio compiles 50 KB of code for each type of task.
pub(super) type Request = Pin<Box<dyn Future<Output = object_store::Result<Bytes>> + Send>>;

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Bucket {
    pub fn new(
        place: String,
        runtime: Option<Handle>,
        patience: Patience,
        cache: TableCache,
    ) -> Bucket {
        Bucket {
            place,
            runtime,
            patience,
            cache,
            uploads: Mutex::default(),
            room: Arc::new(Semaphore::new(BUCKET_UPLOADS_MAX)),
            epoch: AtomicU64::new(0),
            fence: OnceLock::new(),
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(super) fn own(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// The first id of a file of this life.
    pub(super) fn first_id(&self) -> u64 {
        self.epoch().saturating_mul(IDS_OF_EPOCH)
    }

    /// The first id that belongs to a later life: such files are never deleted by this one.
    pub(super) fn end_of_ids(&self) -> u64 {
        self.first_id().saturating_add(IDS_OF_EPOCH)
    }

    /// Ends all writing, for ever.
    pub(super) fn fence(&self, reason: String) {
        if self.fence.set(reason).is_ok() {
            tracing::error!(
                place = self.place,
                reason = self.fence.get(),
                "another collector has taken this store over; this one acknowledges nothing more: stop it"
            );
        }
    }

    /// # Errors
    /// If another collector has taken over.
    pub(super) fn check_fence(&self) -> Result<(), StoreError> {
        match self.fence.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Fenced {
                place: self.place.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// The error of a request, for people.
    pub(super) fn failed(
        &self,
        doing: &'static str,
        path: &str,
        source: &object_store::Error,
    ) -> StoreError {
        let Explained { reason, advice } = explain(source);
        let place = self.place.clone();
        StoreError::Bucket {
            doing,
            place,
            path: path.to_owned(),
            reason,
            advice,
        }
    }
}

/// Why a request failed, and what to do.
struct Explained {
    reason: String,
    advice: &'static str,
}

/// Longest text of a server's answer that an error has, in bytes.
const ANSWER_BYTES_MAX: usize = 400;

fn explain(error: &object_store::Error) -> Explained {
    let text = chain(error);
    let code = text
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map(|(code, _)| code)
        .filter(|code| code.len() <= 64);
    use object_store::Error::{NotFound, NotImplemented, PermissionDenied, Unauthenticated};
    if code == Some("NoSuchBucket") {
        return Explained {
            reason: with_code("there is no such bucket", code),
            advice: "create the bucket, or correct `--store` and AWS_ENDPOINT",
        };
    }
    let is_credential = [
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "AccessDenied",
    ];
    if matches!(error, PermissionDenied { .. } | Unauthenticated { .. })
        || code.is_some_and(|code| is_credential.contains(&code))
    {
        return Explained {
            reason: with_code("the server rejects the credentials", code),
            advice: "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, and that they \
                     may list, read, write and delete there",
        };
    }
    if text.contains("169.254.169.254") || text.contains("169.254.170.2") {
        return Explained {
            reason: "there are no credentials, and this machine has no role".to_owned(),
            advice: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        };
    }
    if matches!(error, NotImplemented { .. }) || code == Some("NotImplemented") {
        return Explained {
            reason: with_code(
                "the server has no conditional writes (If-None-Match: *)",
                code,
            ),
            advice: "use a server that has them: a store without them can lose data",
        };
    }
    let reason = match error {
        NotFound { .. } => with_code("it does not exist", code),
        _ => shortened(&text),
    };
    Explained {
        reason,
        advice: "check AWS_ENDPOINT, AWS_REGION, AWS_ALLOW_HTTP and the network",
    }
}

/// `what`, with the code in the answer if there is one.
fn with_code(what: &str, code: Option<&str>) -> String {
    code.map_or(what.to_owned(), |code| format!("{what} ({code})"))
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.replace(['\n', '\r'], " ")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(ANSWER_BYTES_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Makes requests to a bucket: its name, the prefix, the collector's name (`None`: all of the prefix), and the
/// cache of its tables.
type Connect = fn(&str, &str, Option<&StoreName>, TableCache) -> Result<Objects, StoreError>;

static CLIENT: OnceLock<Connect> = OnceLock::new();

/// Lets stores of this process be in buckets. Call it first. The linker leaves the client out of a program that
/// does not, which is 1.7 MB smaller.
#[cfg(feature = "s3")]
pub fn use_s3_client() {
    CLIENT.get_or_init(|| client::connect);
}

/// Connects to the store of a collector, or to the place of all. Sends nothing yet.
///
/// # Errors
/// If the program has no client, or it cannot be made of the environment's variables.
pub fn connect(
    bucket: &str,
    prefix: &str,
    name: Option<&StoreName>,
    cache: TableCache,
) -> Result<Objects, StoreError> {
    let connect = CLIENT.get().ok_or_else(|| StoreError::NoBuckets {
        bucket: bucket.to_owned(),
    })?;
    connect(bucket, prefix, name, cache)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(error: object_store::Error) -> String {
        let bucket = Bucket::new(
            "s3://b/c1".into(),
            None,
            Patience::NONE,
            TableCache::memory(0),
        );
        bucket
            .failed("writing", "manifest/1.json", &error)
            .to_string()
    }

    fn answer(code: &str) -> Box<dyn std::error::Error + Send + Sync> {
        format!("Server returned 403:\n<Error><Code>{code}</Code></Error>").into()
    }

    #[test]
    fn failed_requests_are_explained_in_one_line() {
        let path = String::new;
        let credentials = object_store::Error::PermissionDenied {
            path: path(),
            source: answer("SignatureDoesNotMatch"),
        };
        let text = reason(credentials);
        assert!(text.starts_with("writing s3://b/c1/manifest/1.json failed: the server rejects"));
        assert!(text.contains("(SignatureDoesNotMatch)"), "{text}");
        assert!(text.contains("AWS_SECRET_ACCESS_KEY"), "{text}");
        let gone = object_store::Error::NotFound {
            path: path(),
            source: answer("NoSuchBucket"),
        };
        assert!(reason(gone).contains("there is no such bucket"));
        let text = reason(object_store::Error::Generic {
            store: "S3",
            source: "GET http://169.254.169.254/latest/meta-data timed out".into(),
        });
        assert!(text.contains("set AWS_ACCESS_KEY_ID"), "{text}");
        let long = "x".repeat(10_000) + "\n";
        let text = reason(object_store::Error::Generic {
            store: "S3",
            source: long.into(),
        });
        assert!(text.len() < 700 && !text.contains('\n'), "{text}");
    }

    #[test]
    fn a_fence_is_for_ever_and_keeps_its_first_reason() {
        let bucket = Bucket::new(
            "s3://b/c1".into(),
            None,
            Patience::NONE,
            TableCache::memory(0),
        );
        bucket.check_fence().unwrap();
        bucket.fence("c1 runs on host2".into());
        bucket.fence("another".into());
        let error = bucket.check_fence().unwrap_err().to_string();
        assert!(error.contains("c1 runs on host2"), "{error}");
    }
}
