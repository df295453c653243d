//! Appends to the log: frames to the current file, and new files.

use std::collections::BTreeMap;
use std::io;

use super::disk::LogDisk;
use super::frame::{self, HEADER_BYTES, Header};
use super::mark::Mark;
use super::reader::{self, LogContents};
use super::{Record, WalError, file_name, file_number};
use crate::rows::Second;
use base::limits::WAL_FILE_BYTES_MAX;

/// Frames are buffered up to about this many bytes before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// The log, open for writing.
///
/// After an error nothing that was appended since the last successful [`Wal::sync`] is in the log, and
/// the next call starts a new file.
#[derive(Debug)]
pub struct Wal {
    disk: Box<dyn LogDisk>,
    /// `None` after an error, until a new file is started.
    current: Option<Current>,
    /// Number and valid length of the file before the current one.
    previous: Option<(u64, u64)>,
    /// The number of the next file; no file ever had it or a higher one.
    next_number: u64,
    file_bytes_max: u64,
    /// The first second of data by the number of the file in which, or after which, it is.
    data_from: BTreeMap<u64, Second>,
    /// The first second of data in the last synced mark.
    marked_from: Option<Second>,
}

#[derive(Debug)]
struct Current {
    number: u64,
    name: String,
    /// Synced bytes.
    synced: u64,
    /// Written bytes.
    written: u64,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
}

impl Current {
    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }
}

impl Wal {
    /// Removes the files before `from`, whose records are all in tables, calls `visit` with each valid
    /// record of the others in order, and starts a new file.
    ///
    /// # Errors
    /// If the files have another format (nothing was changed then), or cannot be read or written.
    pub fn open(
        mut disk: Box<dyn LogDisk>,
        from: u64,
        visit: &mut dyn FnMut(Record) -> Result<(), String>,
    ) -> Result<(Wal, LogContents), WalError> {
        remove_before(&mut *disk, from).map_err(|source| WalError::Io {
            what: "remove old files of the log".to_owned(),
            source,
        })?;
        let contents = reader::read(&mut *disk, from, visit)?;
        let next_number = (contents.last_number + 1).max(from);
        let previous = contents.end;
        let file_bytes_max = WAL_FILE_BYTES_MAX;
        let mut wal = Wal {
            disk,
            current: None,
            previous,
            next_number,
            file_bytes_max,
            data_from: contents
                .data_from
                .map(|second| (contents.last_number, second))
                .into_iter()
                .collect(),
            marked_from: contents.data_from,
        };
        let source = match wal.start_file() {
            Ok(()) => return Ok((wal, contents)),
            Err(source) => source,
        };
        // A full disk must not block queries: the file is started once there is space.
        if is_full(&source) {
            return Ok((wal, contents));
        }
        Err(WalError::Io {
            what: "create a file of the log".to_owned(),
            source,
        })
    }

    /// Appends a record. It is durable after the next [`Wal::sync`].
    pub fn append(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let length = (frame::FRAME_BYTES + payload.len()) as u64;
        if self.current.as_ref().is_some_and(|current: &Current| {
            current.end() > HEADER_BYTES as u64 && current.end() + length > self.file_bytes_max
        }) {
            self.rotate()?;
        }
        let current = self.current()?;
        let offset = current.end();
        frame::append(&mut current.buffer, offset, kind, payload);
        if current.buffer.len() >= WRITE_BYTES {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Notes that the records that are appended next have data from this second on.
    pub fn note_data(&mut self, second: Second) {
        let number = self
            .current
            .as_ref()
            .map_or(self.next_number, |current| current.number);
        let first = self.data_from.entry(number).or_insert(second);
        *first = second.min(*first);
    }

    /// Writes the buffered records.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if current.buffer.is_empty() {
            return Ok(());
        }
        match self.disk.append(&current.name, &current.buffer) {
            Ok(()) => {
                current.written += current.buffer.len() as u64;
                // The next group reuses the memory.
                current.buffer.clear();
                current.buffer.shrink_to(2 * WRITE_BYTES);
                Ok(())
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    /// Makes all appended records durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if current.synced < current.written {
            if let Err(error) = self.disk.sync(&current.name) {
                return Err(self.poison(error));
            }
            current.synced = current.written;
            self.mark();
            if self.disk.is_write_once() {
                self.end_file();
            }
        }
        Ok(())
    }

    /// Marks the synced length as acknowledged. A failure costs only what a later start knows of a
    /// missing end.
    fn mark(&mut self) {
        let Some(current) = &self.current else { return };
        let data_from = self.data_from.values().min().copied();
        let is_synced = data_from.is_some_and(|from| self.marked_from.is_none_or(|at| from < at));
        let mark = Mark {
            number: current.number,
            length: current.synced,
            data_from,
        };
        match self.disk.write_mark(&mark.encode(), is_synced) {
            Ok(()) if is_synced => self.marked_from = data_from,
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "the log's acknowledged length cannot be recorded")
            }
        }
    }

    /// Starts a new file and returns its number. Earlier records are in older files, and durable.
    pub fn rotate(&mut self) -> io::Result<u64> {
        self.sync()?;
        // One that is written once and was not yet written is empty.
        if !self.disk.is_write_once() {
            self.end_file();
        }
        Ok(self.current()?.number)
    }

    fn end_file(&mut self) {
        if let Some(current) = self.current.take() {
            self.previous = Some((current.number, current.synced));
        }
    }

    /// Whether each sync makes a file.
    pub fn is_write_once(&self) -> bool {
        self.disk.is_write_once()
    }

    /// Removes the files below `number`, whose records are all in tables, except the current one.
    pub fn remove_before(&mut self, number: u64) -> io::Result<()> {
        let current = self
            .current
            .as_ref()
            .map_or(self.next_number, |current| current.number);
        let number = number.min(current);
        remove_before(&mut *self.disk, number)?;
        self.data_from = self.data_from.split_off(&number);
        self.marked_from = self.marked_from.max(self.data_from.values().min().copied());
        Ok(())
    }

    /// Starts a file if there is no current one.
    pub fn ready(&mut self) -> io::Result<()> {
        self.current().map(|_| ())
    }

    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn limit_files(&mut self, bytes_max: u64) {
        self.file_bytes_max = bytes_max;
    }

    fn current(&mut self) -> io::Result<&mut Current> {
        if self.current.is_none() {
            self.start_file()?;
        }
        Ok(self.current.as_mut().expect("it was just started"))
    }

    fn start_file(&mut self) -> io::Result<()> {
        let number = self.next_number;
        let name = file_name(number);
        let is_write_once = self.disk.is_write_once();
        // On a disk never reused, even if this fails: the file may reappear after a crash.
        self.next_number += 1;
        let header = Header {
            number,
            previous: self.previous,
        }
        .encode();
        let begun = self.disk.create(&name).and_then(|()| {
            self.disk.append(&name, &header)?;
            if is_write_once {
                return Ok(());
            }
            self.disk.sync(&name)?;
            self.disk.sync_dir()
        });
        if let Err(error) = begun {
            if is_write_once {
                // A file that is never created would leave a gap, in which another life could write.
                self.next_number = number;
                return Err(error);
            }
            // It is empty. If it stays, the next start reads it as empty.
            let _ = self.disk.remove(&name);
            return Err(error);
        }
        let written = header.len() as u64;
        self.current = Some(Current {
            number,
            name,
            synced: written,
            written,
            buffer: Vec::new(),
        });
        Ok(())
    }

    /// Abandons the current file after its last synced byte: the system may have dropped data that it
    /// could not write, and report the next sync as a success.
    fn poison(&mut self, error: io::Error) -> io::Error {
        if let Some(current) = self.current.take() {
            self.previous = Some((current.number, current.synced));
            // The next file's header has the same length, so a failure of this does no harm.
            let cut = self
                .disk
                .truncate(&current.name, current.synced)
                .and_then(|()| self.disk.sync(&current.name));
            let file = &current.name;
            let kept = current.synced;
            tracing::error!(file, kept, cut = cut.is_ok(), %error, "writing to a log file failed");
        }
        error
    }
}

pub(super) fn remove_before(disk: &mut dyn LogDisk, number: u64) -> io::Result<()> {
    let mut old = Vec::new();
    for (name, bytes) in disk.list()? {
        if file_number(&name).is_some_and(|file| file < number) && !disk.is_tombstone(bytes) {
            old.push(name);
        }
    }
    if old.is_empty() {
        return Ok(());
    }
    disk.remove_all(&old)?;
    disk.sync_dir()
}

/// Begins a log without records whose first file has this number: the files before belong to another log,
/// whose records are all in tables.
pub fn begin(disk: &mut dyn LogDisk, number: u64) -> io::Result<()> {
    let name = file_name(number);
    for (old, _) in disk
        .list()?
        .iter()
        .filter(|(old, _)| file_number(old).is_some())
    {
        disk.remove(old)?;
    }
    disk.create(&name)?;
    disk.append(
        &name,
        &Header {
            number,
            previous: None,
        }
        .encode(),
    )?;
    disk.sync(&name)?;
    disk.sync_dir()
}

/// Whether an error means that there is no space.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
