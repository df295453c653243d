//! What can go wrong with a store.

use std::io;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each text says what its values are")]
pub enum StoreError {
    /// The place of the files did not do as asked; the files may be all right.
    #[error(
        "{doing} the store's file {path} failed: {source}; check that the disk is there, writable and not full"
    )]
    Objects { doing: &'static str, path: String, source: object_store::Error },
    /// As [`StoreError::Objects`], of a call to the system.
    #[error(
        "{doing} the store's file {path} failed: {source}; check that the disk is there, writable and not full"
    )]
    Io { doing: &'static str, path: String, source: io::Error },
    /// A file that is written once is there already.
    #[error(
        "the store's file {path} exists already; is another collector writing to the same place?"
    )]
    Taken { path: String },
    /// A file is not what was written. It is named, moved to quarantine, and the rest is used.
    #[error("the store's file {path} is damaged: {reason}; what it held is missing from answers")]
    Damaged { path: String, reason: String },
    /// A newer program wrote this.
    #[error(
        "{path} is of the store's format {found}; this collector reads format {known} only and leaves \
         it untouched: use the version of Emberline that wrote it"
    )]
    Format { path: String, found: u64, known: u64 },
    /// There are tables, but no list of them that can be read.
    #[error(
        "none of the {count} files in manifest/ can be read, so the store's tables cannot be told \
         apart; bring back manifest/ from a copy, or start with another directory"
    )]
    ManifestsLost { count: usize },
    /// There is nothing to look at.
    #[error(
        "there is no store in {path}: it has no folder named manifest; is it what `--data` of the collector says?"
    )]
    NoStore { path: String },
    /// Another process works here.
    #[error("{path} is locked: a collector is using this store; stop it first")]
    Locked { path: String },
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] super::wal::WalError),
    /// More workers than a row's key has room for.
    #[error("the store names {limit} workers already, which is as many as it can")]
    TooManyWorkers { limit: u32 },
}

impl StoreError {
    pub(crate) fn damaged(path: impl Into<String>, reason: impl ToString) -> StoreError {
        StoreError::Damaged { path: path.into(), reason: reason.to_string() }
    }

    /// Whether this file could not be read, or is damaged.
    pub(crate) fn is_about(&self, file: &str) -> bool {
        match self {
            StoreError::Objects { path, .. }
            | StoreError::Io { path, .. }
            | StoreError::Damaged { path, .. } => path == file,
            _ => false,
        }
    }
}
