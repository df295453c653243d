//! A file that leaves room on its disk for others.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use collector::free_bytes;
use collector::limits::WRITERS_RESERVE_BYTES;

/// Bytes that are written between two looks at the free space.
const CHECK_EVERY_BYTES: u64 = 8 << 20;

/// A file of a collector's process, which ends with an error before the disk of its folder is full.
pub(super) struct Bounded<'f> {
    file: &'f File,
    folder: PathBuf,
    /// Bytes that may be written before the next look.
    unchecked: u64,
    /// Bytes of the disk that are left to others.
    reserve: u64,
}

impl<'f> Bounded<'f> {
    /// The open file at `path`, or one whose name was there.
    pub(super) fn new(file: &'f File, path: &Path) -> Bounded<'f> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        Bounded {
            file,
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            unchecked: 0,
            reserve: WRITERS_RESERVE_BYTES,
        }
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        if self.unchecked < length {
            let free = free_bytes(&self.folder)?;
            let reserve = self.reserve;
            if free < reserve.saturating_add(length.max(CHECK_EVERY_BYTES)) {
                let text =
                    format!("its disk has {free} bytes free, and {reserve} are left to others");
                return Err(io::Error::new(io::ErrorKind::StorageFull, text));
            }
            self.unchecked = length.max(CHECK_EVERY_BYTES);
        }
        let written = self.file.write(bytes)?;
        self.unchecked -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_ends_before_its_disk_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("download");
        let file = File::create(&path).unwrap();
        let mut bounded = Bounded::new(&file, &path);
        bounded.write_all(b"there is room").unwrap();
        let mut full = Bounded {
            reserve: u64::MAX,
            ..Bounded::new(&file, &path)
        };
        let error = full.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        // It looks again after some megabytes.
        bounded.reserve = u64::MAX;
        let piece = vec![0; 1 << 20];
        let written = (0..9).take_while(|_| bounded.write_all(&piece).is_ok());
        assert_eq!(written.count(), 7);
        assert_eq!(file.metadata().unwrap().len(), 13 + (7 << 20));
    }
}
