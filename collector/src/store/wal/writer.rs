//! Adds to the log: frames into the present file, and new files.

use std::io;

use super::disk::LogDisk;
use super::frame::{self, HEADER_BYTES, Header};
use super::reader::{self, Found};
use super::{Record, WalError, file_name, file_number};
use crate::limits::WAL_FILE_BYTES_MAX;

/// Frames are collected up to about this many bytes before they are handed to the system.
const WRITE_BYTES: usize = 1 << 20;

/// The log, open for writing.
///
/// After an error nothing that was appended since the last successful [`Wal::sync`] is in the log,
/// and the next call begins a new file.
#[derive(Debug)]
pub(crate) struct Wal {
    disk: Box<dyn LogDisk>,
    /// `None` after an error, until a new file could be begun.
    current: Option<Current>,
    /// The last file before the present one, and how far it is valid.
    previous: Option<(u64, u64)>,
    /// No file ever had this number or a higher one.
    next_number: u64,
    file_bytes_max: u64,
}

#[derive(Debug)]
struct Current {
    number: u64,
    name: String,
    /// Bytes that outlive a crash.
    synced: u64,
    /// Bytes that were handed to the system.
    written: u64,
    /// What comes after them.
    buffer: Vec<u8>,
}

impl Current {
    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }
}

impl Wal {
    /// Removes the files before `from`, whose records are all in tables, reads the others, each good record in its order by `visit`, and begins a new file after it.
    ///
    /// # Errors
    /// If the files are of another format (nothing was changed then), or cannot be read or written.
    pub(crate) fn open(
        mut disk: Box<dyn LogDisk>,
        from: u64,
        visit: &mut dyn FnMut(Record) -> Result<(), String>,
    ) -> Result<(Wal, Found), WalError> {
        remove_before(&mut *disk, from).map_err(|source| WalError::Io {
            what: "remove old files of the log".to_owned(),
            source,
        })?;
        let found = reader::read(&mut *disk, from, visit)?;
        let next_number = (found.last_number + 1).max(from);
        let previous = found.end;
        let file_bytes_max = WAL_FILE_BYTES_MAX;
        let mut wal = Wal { disk, current: None, previous, next_number, file_bytes_max };
        let source = match wal.begin() {
            Ok(()) => return Ok((wal, found)),
            Err(source) => source,
        };
        // A full disk must not hold up questions: the file is begun when there is room.
        if is_full(&source) {
            return Ok((wal, found));
        }
        Err(WalError::Io { what: "begin a file of the log".to_owned(), source })
    }

    /// Adds a record. It is safe after the next [`Wal::sync`].
    pub(crate) fn append(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let length = (frame::FRAME_BYTES + payload.len()) as u64;
        let full = |current: &Current| {
            current.end() > HEADER_BYTES as u64 && current.end() + length > self.file_bytes_max
        };
        if self.current.as_ref().is_some_and(full) {
            self.rotate()?;
        }
        let current = self.current()?;
        let offset = current.end();
        frame::append(&mut current.buffer, offset, kind, payload);
        if current.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    /// Hands everything that was appended to the system.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.buffer.is_empty() {
            return Ok(());
        }
        match self.disk.append(&current.name, &current.buffer) {
            Ok(()) => {
                current.written += current.buffer.len() as u64;
                // Its room serves the next group.
                current.buffer.clear();
                current.buffer.shrink_to(2 * WRITE_BYTES);
                Ok(())
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    /// Makes everything that was appended safe.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.synced < current.written {
            if let Err(error) = self.disk.sync(&current.name) {
                return Err(self.poison(error));
            }
            current.synced = current.written;
        }
        Ok(())
    }

    /// Begins a new file; gives its number. What was appended before is in older files, and safe.
    pub(crate) fn rotate(&mut self) -> io::Result<u64> {
        self.sync()?;
        if let Some(current) = self.current.take() {
            self.previous = Some((current.number, current.synced));
        }
        Ok(self.current()?.number)
    }

    /// Removes the files below `number`, whose records are all in tables. The present one stays.
    pub(crate) fn remove_before(&mut self, number: u64) -> io::Result<()> {
        let present = self.current.as_ref().map_or(self.next_number, |current| current.number);
        remove_before(&mut *self.disk, number.min(present))
    }

    /// Whether there is a file to write to; begins one if there is none.
    pub(crate) fn ready(&mut self) -> io::Result<()> {
        self.current().map(|_| ())
    }

    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    #[cfg(test)]
    pub(crate) fn limit_files(&mut self, bytes_max: u64) {
        self.file_bytes_max = bytes_max;
    }

    fn current(&mut self) -> io::Result<&mut Current> {
        if self.current.is_none() {
            self.begin()?;
        }
        Ok(self.current.as_mut().expect("one was just begun"))
    }

    fn begin(&mut self) -> io::Result<()> {
        let number = self.next_number;
        let name = file_name(number);
        // Never used again, not even if this fails: the file may come back with a crash.
        self.next_number += 1;
        let header = Header { number, previous: self.previous }.encode();
        let begun = self.disk.create(&name).and_then(|()| {
            self.disk.append(&name, &header)?;
            self.disk.sync(&name)?;
            self.disk.sync_dir()
        });
        if let Err(error) = begun {
            // It holds nothing; if it stays, the next start reads it as empty.
            let _ = self.disk.remove(&name);
            return Err(error);
        }
        let written = header.len() as u64;
        self.current = Some(Current { number, name, synced: written, written, buffer: Vec::new() });
        Ok(())
    }

    /// Gives up the present file behind what is known to be safe: the system may have dropped what
    /// it could not write, and would call the next sync a success.
    fn poison(&mut self, error: io::Error) -> io::Error {
        if let Some(current) = self.current.take() {
            self.previous = Some((current.number, current.synced));
            // The next file's header says the same, so it does no harm if this fails as well.
            let cut = self.disk.truncate(&current.name, current.synced);
            let cut = cut.and_then(|()| self.disk.sync(&current.name));
            let (file, kept) = (&current.name, current.synced);
            tracing::error!(file, kept, cut = cut.is_ok(), %error, "a file of the log failed");
        }
        error
    }
}

fn remove_before(disk: &mut dyn LogDisk, number: u64) -> io::Result<()> {
    let mut removed = false;
    for (name, _) in disk.list()? {
        if file_number(&name).is_some_and(|file| file < number) {
            disk.remove(&name)?;
            removed = true;
        }
    }
    if removed { disk.sync_dir() } else { Ok(()) }
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
