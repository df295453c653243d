//! One process at a time writes to a directory.

use std::fs::{File, TryLockError};
use std::path::Path;

use super::error::StoreError;

/// The file that is locked; it is empty and stays.
const NAME: &str = "lock";

/// A directory that is ours until this is dropped, or the process ends in any way.
#[derive(Debug)]
pub(crate) struct DirectoryLock(
    #[expect(dead_code, reason = "it is locked while it is open")] File,
);

impl DirectoryLock {
    /// Takes a directory, which must be there.
    ///
    /// # Errors
    /// [`StoreError::Locked`] if another process has it.
    pub(crate) fn take(directory: &Path) -> Result<DirectoryLock, StoreError> {
        let path = directory.join(NAME);
        let shown = || path.display().to_string();
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file =
            opened.map_err(|source| StoreError::Io { doing: "opening", path: shown(), source })?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: shown() }),
            Err(TryLockError::Error(source)) => {
                Err(StoreError::Io { doing: "locking", path: shown(), source })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_holders_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        let second = DirectoryLock::take(directory.path());
        assert!(matches!(second, Err(StoreError::Locked { .. })), "{second:?}");
        drop(lock);
        DirectoryLock::take(directory.path()).unwrap();
    }
}
