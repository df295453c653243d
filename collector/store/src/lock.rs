//! The lock of a store's directory: one process at a time writes to it.

use std::fs::{File, TryLockError};
use std::path::Path;

use super::error::StoreError;

/// The locked file. It is empty and never deleted.
const NAME: &str = "lock";

/// A locked directory. The lock ends when this is dropped, or the process ends in any way.
#[derive(Debug)]
pub struct DirectoryLock(#[expect(dead_code, reason = "it is locked while it is open")] File);

impl DirectoryLock {
    /// Locks a directory, which must exist.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process holds the lock.
    pub fn take(directory: &Path) -> Result<DirectoryLock, StoreError> {
        let path = directory.join(NAME);
        let shown = || path.display().to_string();
        let opened = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = opened.map_err(|source| StoreError::Io {
            doing: "opening",
            path: shown(),
            source,
        })?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: shown() }),
            Err(TryLockError::Error(source)) => Err(StoreError::Io {
                doing: "locking",
                path: shown(),
                source,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        let second = DirectoryLock::take(directory.path());
        assert!(
            matches!(second, Err(StoreError::Locked { .. })),
            "{second:?}"
        );
        drop(lock);
        DirectoryLock::take(directory.path()).unwrap();
    }
}
