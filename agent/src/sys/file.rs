//! Open files in a process whose program may close descriptors that are not its own.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// An open file that is identified by device and inode, because the program may close its
/// descriptor and open another file under the same number. It is closed only if the descriptor is
/// still this file.
#[derive(Debug)]
pub(crate) struct CheckedFile {
    file: ManuallyDrop<File>,
    device: u64,
    inode: u64,
}

impl CheckedFile {
    pub(crate) fn new(file: File) -> Option<CheckedFile> {
        let metadata = file.metadata().ok()?;
        let device = metadata.dev();
        let inode = metadata.ino();
        Some(CheckedFile { file: ManuallyDrop::new(file), device, inode })
    }

    /// The file, if the descriptor still refers to it.
    pub(crate) fn if_same(&self) -> Option<&File> {
        self.links_if_same().map(|_| &*self.file)
    }

    /// The file, without checking the descriptor.
    pub(crate) fn unchecked(&self) -> &File {
        &self.file
    }

    /// The file's number of hard links, if the descriptor still refers to it.
    pub(crate) fn links_if_same(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok()?;
        (metadata.dev() == self.device && metadata.ino() == self.inode).then(|| metadata.nlink())
    }

    /// Makes this the identity of another file's descriptor, as if the program had reused the
    /// number.
    #[cfg(test)]
    pub(crate) fn impersonate(&mut self, other: &CheckedFile) {
        self.inode = other.inode;
    }
}

impl Drop for CheckedFile {
    fn drop(&mut self) {
        if self.links_if_same().is_some() {
            // Nobody else has closed it. By number, because safe code cannot take the file out of
            // its wrapper. If closing fails, there is nothing to do.
            let _ = nix::unistd::close(self.file.as_raw_fd());
        }
    }
}
