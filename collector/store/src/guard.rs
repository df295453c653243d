//! Protection of a store from other collectors.

use super::bucket::Owner;
use super::lock::DirectoryLock;

/// Held as long as the log is written.
#[derive(Debug, Default)]
pub struct StoreGuard {
    /// Of the local folder.
    _directory: Option<DirectoryLock>,
    /// Of the store in a bucket.
    owner: Option<Owner>,
}

impl StoreGuard {
    pub fn new(directory: Option<DirectoryLock>, owner: Option<Owner>) -> StoreGuard {
        StoreGuard {
            _directory: directory,
            owner,
        }
    }

    /// Lets the next collector start at once; `is_sealed` if all data is in tables. Nothing may be written
    /// any more.
    pub fn release(&mut self, is_sealed: bool) {
        let owner = self.owner.take();
        if is_sealed {
            owner.iter().for_each(Owner::note_sealed);
        }
    }
}
