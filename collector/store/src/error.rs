//! Errors of a store.

use std::io;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its values")]
pub enum StoreError {
    /// An operation of the object store failed; the files may be intact.
    #[error(
        "{doing} the store's file {path} failed: {source}; check that the disk is mounted, writable \
         and not full"
    )]
    Objects {
        doing: &'static str,
        path: String,
        source: object_store::Error,
    },
    /// A request to a bucket failed; the files may be intact.
    #[error("{doing} {place}/{path} failed: {reason}; {advice}")]
    Bucket {
        doing: &'static str,
        place: String,
        path: String,
        reason: String,
        advice: &'static str,
    },
    /// A client for a bucket cannot be made of the environment's variables.
    #[error("cannot use {place}: {reason}")]
    BucketSettings { place: String, reason: String },
    /// Another collector has this name, and lives.
    #[error(
        "{place} belongs to a collector that runs as process {pid} on {host}; stop it first, or choose \
         another `--name`"
    )]
    Owned {
        place: String,
        host: String,
        pid: u32,
    },
    /// Another collector has taken the store over.
    #[error("{place} was taken over ({reason}): this collector stores nothing more; stop it")]
    Fenced { place: String, reason: String },
    /// The place has something else.
    #[error(
        "{place} has other objects, such as {found}, and no store of Emberline; choose another prefix or \
         `--name`"
    )]
    Foreign { place: String, found: String },
    /// This machine and the store's server disagree about the time.
    #[error(
        "the clock of this machine is {seconds} s {direction} that of the server of {place}: all data would be \
         stored under wrong times; set the clock (NTP)"
    )]
    ClockOff {
        place: String,
        seconds: u64,
        direction: &'static str,
    },
    /// The server does not keep two processes from creating the same object.
    #[error(
        "the server of {place} ignores `If-None-Match: *`: it replaced an object that exists, so two \
         collectors could overwrite each other's data; use a server with conditional writes"
    )]
    NoConditionalWrites { place: String },
    /// This program has no client for buckets.
    #[error(
        "this program was built without the feature `s3`, so it cannot use the bucket {bucket}; use \
         file:///FOLDER, or a build with it"
    )]
    NoBuckets { bucket: String },
    /// A system call failed; as [`StoreError::Objects`].
    #[error(
        "{doing} the store's file {path} failed: {source}; check that the disk is mounted, writable \
         and not full"
    )]
    Io {
        doing: &'static str,
        path: String,
        source: io::Error,
    },
    /// A file that is written once exists already.
    #[error(
        "the store's file {path} exists already; is another collector writing to the same place?"
    )]
    AlreadyExists { path: String },
    /// A file is not as it was written. It is reported and copied to quarantine; the rest is used.
    #[error("the store's file {path} is damaged: {reason}; its data is missing from answers")]
    Damaged { path: String, reason: String },
    /// A newer program wrote the store.
    #[error(
        "{path} has store format {found}, but this collector reads format {known} only; nothing was \
         changed: use the version of Emberline that wrote it"
    )]
    Format {
        path: String,
        found: u64,
        known: u64,
    },
    /// A program with keys or tables that this one does not know wrote the store.
    #[error(
        "{path} is intact, but this collector cannot read it: {reason}; nothing was changed: use the version of \
         Emberline that wrote it"
    )]
    Unknown { path: String, reason: String },
    /// There are tables, but no readable manifest.
    #[error(
        "none of the {count} files in manifest/ can be read, so the store's tables are unknown; \
         restore manifest/ from a copy, or start with another directory"
    )]
    ManifestsLost { count: usize },
    /// The directory has no store.
    #[error(
        "no store in {path}: it has no folder named manifest; expected the directory that the \
         collector's `--data` names"
    )]
    NoStore { path: String },
    /// The place is the folder of one collector in it.
    #[error("{place} is the store of one collector: leave out the last part of the path")]
    #[non_exhaustive]
    OneStore {
        /// The place.
        place: String,
    },
    /// The place has no store of that name.
    #[error("no store in {place}: check `--store` and `--name`")]
    NoStoreInPlace { place: String },
    /// Another process uses the store.
    #[error("{path} is locked: a collector is using this store; stop it first")]
    Locked { path: String },
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] super::wal::WalError),
}

impl StoreError {
    pub fn damaged(path: impl Into<String>, reason: impl ToString) -> StoreError {
        StoreError::Damaged {
            path: path.into(),
            reason: reason.to_string(),
        }
    }

    /// Whether the error is about this file.
    pub fn is_about(&self, file: &str) -> bool {
        match self {
            StoreError::Objects { path, .. }
            | StoreError::Bucket { path, .. }
            | StoreError::Io { path, .. }
            | StoreError::Damaged { path, .. } => path == file,
            _ => false,
        }
    }
}
