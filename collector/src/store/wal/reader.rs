//! Finds out what the log holds when a collector starts.

use std::ops::Range;

use super::disk::{LogDisk, there};
use super::frame::{self, HEADER_BYTES, Header, NoHeader, Piece};
use super::{Record, WalError, file_name, file_number};
use crate::limits::{WAL_DAMAGE_LISTED_MAX, WAL_FILE_BYTES_MAX, WAL_RECORD_BYTES_MAX};

/// Most bytes of one file that are read: what a file may grow to.
const READ_BYTES_MAX: u64 = WAL_FILE_BYTES_MAX + WAL_RECORD_BYTES_MAX as u64 + (1 << 20);

/// A part of the log that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Damage {
    file: String,
    /// Bytes of that file.
    range: Range<u64>,
    reason: String,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    /// Bytes at the end of the last file of a write that a crash cut short: never acknowledged.
    pub(crate) torn_bytes: u64,
    /// The first places of damage, and their number.
    damage: Vec<Damage>,
    pub(crate) damages: u64,
    /// Files in which there is damage.
    damaged_files: Vec<String>,
    /// Where copies of damaged files are kept.
    pub(crate) quarantined: Vec<String>,
    /// Highest number of any file.
    pub(super) last_number: u64,
    /// The last file, and how far it is valid.
    pub(super) end: Option<(u64, u64)>,
}

impl Damage {
    /// What is wrong, and where in the file.
    fn told(&self) -> String {
        let Damage { range, reason, .. } = self;
        match range.is_empty() {
            true => reason.clone(),
            false => format!("bytes {} to {}: {reason}", range.start, range.end),
        }
    }
}

impl Found {
    /// The file of each place of damage, by its name in the store, and what is wrong there.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (String, String)> {
        let told = self.damage.iter().map(|damage| (format!("wal/{}", damage.file), damage.told()));
        let untold = self.damages - self.damage.len() as u64;
        told.chain((untold > 0).then(|| ("wal".to_owned(), format!("{untold} more places"))))
    }

    /// The tables name the file that goes on where they end, 0 if they hold nothing. It was safe before
    /// they named it, so if it is gone, what it held is in no table: such as when the newest list of
    /// tables was damaged, and the one before counts, whose part of the log was removed already.
    fn look_for_first(&mut self, files: &[LogFile], from: u64) {
        let first = files.first();
        let is_there = |number: u64| files.iter().any(|file| file.number == number);
        let before = first.and_then(|file| file.header?.previous).map(|(number, _)| number);
        let needed = [Some(from).filter(|from| *from > 0), before.filter(|before| *before >= from)];
        if let Some(missing) = needed.into_iter().flatten().find(|number| !is_there(*number)) {
            let next = first.map_or("the end of the log", |file| &file.name);
            let reason = format!("the log is missing from here to {next}: what it held is lost");
            self.tell(&file_name(missing), 0..0, reason);
        }
    }

    fn tell(&mut self, file: &str, range: Range<u64>, reason: String) {
        let (start, stop) = (range.start, range.end);
        tracing::error!(file, start, stop, reason, "a part of the log cannot be read");
        self.damages += 1;
        if self.damage.len() < WAL_DAMAGE_LISTED_MAX {
            self.damage.push(Damage { file: file.to_owned(), range, reason });
        }
    }
}

#[derive(Debug)]
struct LogFile {
    name: String,
    number: u64,
    length: u64,
    header: Option<Header>,
}

/// As [`look`]; then damaged files are copied to where they stay, and the last file is cut behind its
/// last good frame.
pub(super) fn read(
    disk: &mut dyn LogDisk,
    from: u64,
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
) -> Result<Found, WalError> {
    let (mut found, last) = look(disk, from, visit)?;
    for name in std::mem::take(&mut found.damaged_files) {
        quarantine(disk, &name, &mut found);
    }
    if let (Some(last), Some((number, length))) = (last, found.end)
        && number == last.number
        && length < last.length
    {
        // The next file's header says the same, should this fail.
        if let Err(error) = disk.truncate(&last.name, length) {
            tracing::warn!(file = last.name, %error, "the log's torn end could not be cut");
        }
    }
    Ok(found)
}

/// Reads all files in their order, of which the first must be that of the number `from` if that is
/// not 0, and gives each good record to `visit`, whose refusal of one counts as damage. Changes
/// nothing. Gives the last file too.
fn look(
    disk: &mut dyn LogDisk,
    from: u64,
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
) -> Result<(Found, Option<LogFile>), WalError> {
    let mut files = list(disk)?;
    let last_number = files.last().map_or(0, |file| file.number);
    let mut found = Found { last_number, ..Found::default() };
    found.look_for_first(&files, from);
    // What a crash left before its header was safe holds nothing, and says nothing of other files.
    files.retain(|file| {
        let is_unfinished = file.header.is_none() && file.length <= HEADER_BYTES as u64;
        found.torn_bytes += if is_unfinished { file.length } else { 0 };
        !is_unfinished
    });
    for (index, file) in files.iter().enumerate() {
        found.files += 1;
        let damages = found.damages;
        let next = files.get(index + 1);
        let expected_next = next.and_then(|next| next.header).map(|header| header.previous);
        match expected_next.flatten() {
            Some((previous, _)) if previous > file.number => {
                let reason = "the log's files after it are missing".to_owned();
                found.tell(&file.name, file.length..file.length, reason);
            }
            _ => {}
        }
        let valid_length = expected_next.and_then(|previous| match previous {
            Some((previous, length)) if previous == file.number => Some(length),
            Some((previous, _)) if previous > file.number => None,
            // It was given up before anything was written to it.
            _ => Some(0),
        });
        let length = read_file(disk, file, (valid_length, next.is_none()), visit, &mut found)?;
        if length > 0 {
            found.end = Some((file.number, length));
        }
        if found.damages > damages {
            found.damaged_files.push(file.name.clone());
        }
    }
    Ok((found, files.pop()))
}

/// Whether all files are of the format that this program reads.
pub(crate) fn check_formats(disk: &mut dyn LogDisk) -> Result<(), WalError> {
    list(disk).map(|_| ())
}

/// Whether all that the tables need of the log can be read. Changes nothing.
pub(crate) fn check(disk: &mut dyn LogDisk, from: u64) -> Result<Found, WalError> {
    look(disk, from, &mut |_| Ok(())).map(|(found, _)| found)
}

/// The log's files by number. All are looked at before anything is changed.
fn list(disk: &mut dyn LogDisk) -> Result<Vec<LogFile>, WalError> {
    let failed = |what: &str, source| WalError::Io { what: what.to_owned(), source };
    let mut files = Vec::new();
    for (name, length) in disk.list().map_err(|error| failed("list the log's files", error))? {
        let Some(number) = file_number(&name) else { continue };
        let head = there(disk.read(&name, HEADER_BYTES as u64));
        let head = head.map_err(|error| failed(&format!("read the log file {name}"), error))?;
        let Some(head) = head else { continue };
        let header = match Header::decode(&head) {
            Ok(header) => Some(header),
            Err(NoHeader::Version(version)) => {
                return Err(WalError::UnknownVersion { file: name, version });
            }
            Err(NoHeader::Damaged) => None,
        };
        files.push(LogFile { name, number, length, header });
    }
    files.sort_unstable_by_key(|file| file.number);
    Ok(files)
}

/// Reads one file; gives how far it is valid. `valid_length` is what the next file says of it.
fn read_file(
    disk: &mut dyn LogDisk,
    file: &LogFile,
    (valid_length, is_last): (Option<u64>, bool),
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
    found: &mut Found,
) -> Result<u64, WalError> {
    if valid_length == Some(0) {
        return Ok(0);
    }
    let bytes = match disk.read(&file.name, READ_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) => {
            found.tell(&file.name, 0..file.length, format!("it cannot be read: {error}"));
            return Ok(file.length);
        }
    };
    if file.length > bytes.len() as u64 {
        let reason = "the file is longer than any log file becomes".to_owned();
        found.tell(&file.name, bytes.len() as u64..file.length, reason);
    }
    let valid = valid_length.unwrap_or(u64::MAX).min(bytes.len() as u64);
    if let Some(promised) = valid_length.filter(|promised| *promised > bytes.len() as u64) {
        let reason = "the end of the file is missing".to_owned();
        found.tell(&file.name, bytes.len() as u64..promised, reason);
    }
    let bytes = &bytes[..usize::try_from(valid).expect("it is at most a length in memory")];
    found.bytes += valid;
    let mut end = valid.min(HEADER_BYTES as u64);
    let from = usize::try_from(end).expect("it is small");
    if file.header.is_none() {
        found.tell(&file.name, 0..end, "the file's header is damaged".to_owned());
    }
    let mut pieces = frame::scan(bytes, from).peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Damage(range) if is_last && pieces.peek().is_none() => {
                found.torn_bytes += range.end - range.start;
                tracing::info!(
                    file = file.name,
                    bytes = found.torn_bytes,
                    "the log ends with an unfinished write"
                );
            }
            Piece::Damage(range) => {
                end = range.end;
                found.tell(&file.name, range, "no good record stands there".to_owned());
            }
            Piece::Frame { at, kind, payload } => {
                end = at + (frame::FRAME_BYTES + payload.len()) as u64;
                found.records += 1;
                let taken = Record::decode(kind, payload).map_err(|error| error.to_string());
                if let Err(reason) = taken.and_then(&mut *visit) {
                    found.tell(&file.name, at..end, reason);
                }
            }
        }
    }
    Ok(end)
}

/// Copies a damaged file to where it stays. It may fail: what is good was read all the same.
fn quarantine(disk: &mut dyn LogDisk, name: &str, found: &mut Found) {
    match disk.quarantine(name) {
        Ok(place) => {
            tracing::error!(file = name, copy = place, "a damaged file of the log was copied");
            found.quarantined.push(place);
        }
        Err(error) => tracing::error!(file = name, %error, "a damaged log file was not copied"),
    }
}
