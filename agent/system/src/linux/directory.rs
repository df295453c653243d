//! Lists directories of `/proc` whose entries are numbers: threads and descriptors.
//!
//! The standard library's `read_dir` panics if the program has closed its descriptor meanwhile.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;

use super::descriptors;
use super::file::CheckedFile;
use super::page_vec::PageVec;

const BUFFER_BYTES: usize = 8 << 10;
/// Where the length and the name of an entry are in the kernel's `linux_dirent64`.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// The entries of the directory `path` that are numbers.
///
/// # Errors
/// If the directory cannot be read.
pub fn numbers(path: &str) -> io::Result<PageVec<u32>> {
    numbers_from(path, 0)
}

/// Like [`numbers`], from a position in the directory. In the program's table the whole directory is
/// read: the program may open a file under the same number at any moment, and its position must not
/// be moved.
///
/// # Errors
/// If the directory cannot be read.
pub fn numbers_from(path: &str, position: u64) -> io::Result<PageVec<u32>> {
    let opened = CheckedFile::new(File::open(path)?);
    let directory = opened.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    if position > 0 && !descriptors::are_shared() {
        directory.unchecked().seek(SeekFrom::Start(position))?;
    }
    let mut numbers = PageVec::new();
    let mut buffer = [0u8; BUFFER_BYTES];
    loop {
        let descriptor = directory.unchecked().as_raw_fd();
        let room = buffer.as_mut_ptr();
        // SAFETY: the kernel writes at most `BUFFER_BYTES` into `buffer`, which has that length.
        // Any descriptor number is accepted; one that is not a directory fails.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, descriptor, room, BUFFER_BYTES) };
        match usize::try_from(read) {
            Err(_) => return Err(io::Error::last_os_error()),
            Ok(0) => return Ok(numbers),
            Ok(read) => numbers.extend(names(&buffer[..read]).filter_map(parse)),
        }
    }
}

fn parse(name: &[u8]) -> Option<u32> {
    std::str::from_utf8(name).ok()?.parse().ok()
}

/// The names in the kernel's list of entries.
fn names(mut entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = entries
            .get(LENGTH_AT..)?
            .first_chunk()
            .map(|it| u16::from_ne_bytes(*it))?;
        let (entry, rest) = entries.split_at_checked(length.into())?;
        entries = rest;
        entry.get(NAME_AT..)?.split(|byte| *byte == 0).next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_directory_is_listed_completely() {
        let folder = tempfile::tempdir().unwrap();
        let count = 3_000;
        for number in 0..count {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        std::fs::write(folder.path().join("no number"), "").unwrap();
        let mut listed = numbers(folder.path().to_str().unwrap()).unwrap();
        listed.sort_unstable();
        assert!(listed.iter().copied().eq(0..count));
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(numbers("/proc/self/no such directory").is_err());
        assert!(numbers("/proc/self/status").is_err());
    }
}
