//! Open files in a process whose program may close descriptors that are not its own.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use super::descriptors;

/// Reads a small text file. Its descriptor is closed only if it is still that file.
///
/// # Errors
/// If it cannot be read, or is not UTF-8.
pub fn read_text(path: &str) -> io::Result<String> {
    let mut text = String::new();
    let opened = CheckedFile::new(File::open(path)?);
    let file = opened.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    file.unchecked().read_to_string(&mut text)?;
    Ok(text)
}

/// Reads as much of a file as `buffer` holds. Returns the number of bytes.
///
/// # Errors
/// If it cannot be read.
pub fn read_start(path: &str, buffer: &mut [u8]) -> io::Result<usize> {
    let opened = CheckedFile::new(File::open(path)?);
    let file = opened.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    file.unchecked().read_at(buffer, 0)
}

/// Tries to open a file or a directory.
///
/// # Errors
/// If it cannot be opened.
pub fn try_open(path: &str) -> io::Result<()> {
    File::open(path).map(CheckedFile::new).map(drop)
}

/// An open file that is closed only if its descriptor still refers to it.
///
/// In the program's table the program may close the descriptor and open another file under the same
/// number, so the file is identified by device and inode there.
#[derive(Debug)]
pub struct CheckedFile {
    file: ManuallyDrop<File>,
    /// `None` in the agent's own table, where nobody else closes it.
    identity: Option<Identity>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: u64,
    inode: u64,
}

impl CheckedFile {
    /// Remembers the file's number; `None` if it has no identity to check.
    pub fn new(file: File) -> Option<CheckedFile> {
        let file = ManuallyDrop::new(file);
        let identity = if descriptors::are_shared() {
            Some(Identity::of(&file.metadata().ok()?))
        } else {
            None
        };
        Some(CheckedFile { file, identity })
    }

    /// The file, if the descriptor still refers to it.
    pub fn if_same(&self) -> Option<&File> {
        if self.identity.is_some() {
            self.metadata_if_same()?;
        }
        Some(&self.file)
    }

    /// The file, without checking the descriptor.
    pub fn unchecked(&self) -> &File {
        &self.file
    }

    /// The file's number of hard links, if the descriptor still refers to it.
    pub fn links_if_same(&self) -> Option<u64> {
        self.metadata_if_same().map(|metadata| metadata.nlink())
    }

    fn metadata_if_same(&self) -> Option<Metadata> {
        let metadata = self.file.metadata().ok()?;
        let is_same = self
            .identity
            .is_none_or(|identity| identity == Identity::of(&metadata));
        is_same.then_some(metadata)
    }

    /// Makes this the identity of another file's descriptor, as if the program had reused the
    /// number.
    #[cfg(feature = "testing")]
    pub fn impersonate(&mut self, other: &CheckedFile) {
        self.identity = other.identity;
    }
}

impl Identity {
    fn of(metadata: &Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

impl Drop for CheckedFile {
    fn drop(&mut self) {
        if self.if_same().is_some() {
            // Nobody else has closed it. By number, because safe code cannot take the file out of
            // its wrapper. If closing fails, there is nothing to do.
            let _ = nix::unistd::close(self.file.as_raw_fd());
        }
    }
}
