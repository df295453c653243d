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
    Objects { doing: &'static str, path: String, source: object_store::Error },
    /// A system call failed; as [`StoreError::Objects`].
    #[error(
        "{doing} the store's file {path} failed: {source}; check that the disk is mounted, writable \
         and not full"
    )]
    Io { doing: &'static str, path: String, source: io::Error },
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
    Format { path: String, found: u64, known: u64 },
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
    /// Another process uses the store.
    #[error("{path} is locked: a collector is using this store; stop it first")]
    Locked { path: String },
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] super::wal::WalError),
}

impl StoreError {
    pub(crate) fn damaged(path: impl Into<String>, reason: impl ToString) -> StoreError {
        StoreError::Damaged { path: path.into(), reason: reason.to_string() }
    }

    /// Whether the error is about this file.
    pub(crate) fn is_about(&self, file: &str) -> bool {
        match self {
            StoreError::Objects { path, .. }
            | StoreError::Io { path, .. }
            | StoreError::Damaged { path, .. } => path == file,
            _ => false,
        }
    }
}
