//! Reads the log when a collector starts.

use std::ops::Range;

use super::disk::{LogDisk, if_exists};
use super::frame::{self, HEADER_BYTES, Header, HeaderError, Piece};
use super::mark::Mark;
use super::{Record, WalError, file_name, file_number};
use crate::rows::Second;
use base::limits::{WAL_DAMAGE_LISTED_MAX, WAL_FILE_BYTES_MAX, WAL_RECORD_BYTES_MAX};

/// Most bytes that are read of one file: the largest size that a file can reach.
const READ_BYTES_MAX: u64 = WAL_FILE_BYTES_MAX + WAL_RECORD_BYTES_MAX as u64 + (1 << 20);

/// An unreadable part of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Damage {
    file: String,
    /// Bytes of that file.
    range: Range<u64>,
    reason: String,
}

/// Statistics of a log that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogContents {
    pub files: u64,
    pub bytes: u64,
    pub records: u64,
    /// Bytes at the end of the last file of a write that a crash interrupted: never acknowledged.
    pub torn_bytes: u64,
    /// The first damaged parts.
    damage: Vec<Damage>,
    /// Number of all damaged parts.
    pub damages: u64,
    /// Names of damaged files.
    damaged_files: Vec<String>,
    /// Paths of the copies of damaged files.
    pub quarantined: Vec<String>,
    /// Highest number of any file.
    pub last_number: u64,
    /// Number and valid length of the last file.
    pub(super) end: Option<(u64, u64)>,
    /// Whether the log has a mark, which knows [`LogContents::data_from`].
    pub is_marked: bool,
    /// The first second of the log's data, lost data included; `None` if there is none, or no mark.
    pub data_from: Option<Second>,
}

impl Damage {
    /// The reason, with the position in the file.
    fn description(&self) -> String {
        let Damage { range, reason, .. } = self;
        if range.is_empty() {
            return reason.clone();
        }
        format!("bytes {} to {}: {reason}", range.start, range.end)
    }
}

impl LogContents {
    /// The path in the store of each damaged part, and a description.
    pub fn lost(&self) -> impl Iterator<Item = (String, String)> {
        let listed = self
            .damage
            .iter()
            .map(|damage| (format!("wal/{}", damage.file), damage.description()));
        let more = self.damages - self.damage.len() as u64;
        listed.chain((more > 0).then(|| ("wal".to_owned(), format!("{more} more damaged parts"))))
    }

    /// Reports a missing first file. The manifest names the file `from` which the tables need, 0 if they
    /// are empty. The file was synced before the manifest named it. If it is missing, its records are in
    /// no table: for example if the newest manifest is damaged, and the one before is used, whose part
    /// of the log was removed already.
    fn check_first_file(&mut self, files: &[LogFile], from: u64) {
        let first = files.first();
        let exists = |number: u64| files.iter().any(|file| file.number == number);
        let before = first
            .and_then(|file| file.header?.previous)
            .map(|(number, _)| number);
        let needed = [
            Some(from).filter(|from| *from > 0),
            before.filter(|before| *before >= from),
        ];
        if let Some(missing) = needed.into_iter().flatten().find(|number| !exists(*number)) {
            let next = first.map_or("the end of the log", |file| &file.name);
            let reason = format!("the log is missing from here to {next}: its records are lost");
            self.report(&file_name(missing), 0..0, reason);
        }
    }

    /// Reports that the file which the mark names is missing, with acknowledged records. Those before
    /// `from` are in tables.
    fn check_last_file(&mut self, files: &[LogFile], from: u64, mark: Mark) {
        let Mark { number, length, .. } = mark;
        let is_needed = number >= from && length > HEADER_BYTES as u64;
        // Later files name the ones before them.
        let is_named = files.iter().any(|file| file.number >= number);
        let is_reported = self
            .damage
            .iter()
            .any(|damage| damage.file == file_name(number));
        if is_needed && !is_named && !is_reported {
            let reason = "the log is missing from here on: its records are lost".to_owned();
            self.report(&file_name(number), 0..length, reason);
        }
    }

    fn report(&mut self, file: &str, range: Range<u64>, reason: String) {
        let Range { start, end } = range;
        tracing::error!(file, start, end, reason, "a part of the log cannot be read");
        self.damages += 1;
        if self.damage.len() < WAL_DAMAGE_LISTED_MAX {
            self.damage.push(Damage {
                file: file.to_owned(),
                range,
                reason,
            });
        }
    }
}

#[derive(Debug)]
struct LogFile {
    name: String,
    number: u64,
    length: u64,
    /// `None` if it is damaged, or that of another file.
    header: Option<Header>,
    /// The number in the header if it is that of another file, which was put in the place of this one.
    other_number: Option<u64>,
}

/// As [`read_unchanged`]; then copies damaged files to quarantine, truncates the last file after its last
/// valid frame, and makes it durable, because the collector acknowledges its flushes: the process that
/// wrote them may have been killed before it synced them, or after that failed.
pub(super) fn read(
    disk: &mut dyn LogDisk,
    from: u64,
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
) -> Result<LogContents, WalError> {
    let (mut contents, last) = read_unchanged(disk, from, visit)?;
    for name in std::mem::take(&mut contents.damaged_files) {
        quarantine(disk, &name, &mut contents);
    }
    if let (Some(last), Some((number, length))) = (last, contents.end)
        && number == last.number
    {
        // The next file's header says the same, should this fail.
        if length < last.length
            && let Err(error) = disk.truncate(&last.name, length)
        {
            tracing::warn!(file = last.name, %error, "the log's torn end could not be truncated");
        }
        let what = || format!("write the log file {}", last.name);
        make_durable(disk, &last.name, number, length).map_err(|source| WalError::Io {
            what: what(),
            source,
        })?;
    }
    Ok(contents)
}

/// Writes the end of a file that no mark shows to be synced once more, and syncs the file and its name. If a sync
/// fails, the system drops what it could not write, and reports the next sync as a success.
fn make_durable(
    disk: &mut dyn LogDisk,
    name: &str,
    number: u64,
    length: u64,
) -> std::io::Result<()> {
    let mark = Mark::read(disk).filter(|mark| mark.number == number);
    let synced = mark.map_or(0, |mark| mark.length);
    if synced < length {
        let bytes = disk.read(name, length)?;
        let synced = usize::try_from(synced).expect("it is at most a length in memory");
        disk.rewrite(name, synced, &bytes[synced..])?;
    }
    disk.sync(name)?;
    // The next file names this one as the one before it. The process that created this one may have died
    // before its name was durable.
    disk.sync_dir()
}

/// Reads all files in order and calls `visit` with each valid record; a record that it rejects counts as
/// damage. Unless `from` is 0, the first file must have that number. Changes nothing. Returns the last
/// file too.
fn read_unchanged(
    disk: &mut dyn LogDisk,
    from: u64,
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
) -> Result<(LogContents, Option<LogFile>), WalError> {
    // Read before the files, which a collector may be writing meanwhile.
    let mark = Mark::read(disk);
    let mut files = list(disk)?;
    let last_number = files.last().map_or(0, |file| file.number);
    if disk.is_write_once() {
        // Old tombstones.
        files.retain(|file| file.number >= from);
    }
    let data_from = mark.and_then(|mark| mark.data_from);
    let is_marked = mark.is_some();
    let mut contents = LogContents {
        last_number,
        is_marked,
        data_from,
        ..LogContents::default()
    };
    // The file that the tables need is created with its first record if it is written once.
    let is_idle = disk.is_write_once() && files.is_empty();
    if !is_idle {
        contents.check_first_file(&files, from);
    }
    // A file whose header was not synced before a crash has no records, and no valid header.
    files.retain(|file| {
        let is_unfinished = file.header.is_none() && file.length <= HEADER_BYTES as u64;
        contents.torn_bytes += if is_unfinished { file.length } else { 0 };
        !is_unfinished
    });
    for (index, file) in files.iter().enumerate() {
        contents.files += 1;
        let damages = contents.damages;
        let next = files.get(index + 1);
        let expected_next = next
            .and_then(|next| next.header)
            .map(|header| header.previous);
        match expected_next.flatten() {
            Some((previous, _)) if previous > file.number => {
                let reason = "the log's files after it are missing".to_owned();
                contents.report(&file.name, file.length..file.length, reason);
            }
            _ => {}
        }
        let valid_length = expected_next.and_then(|previous| match previous {
            Some((previous, length)) if previous == file.number => Some(length),
            Some((previous, _)) if previous > file.number => None,
            // It was abandoned before anything was written to it.
            _ => Some(0),
        });
        let acknowledged = mark.filter(|mark| mark.number == file.number && next.is_none());
        let limits = Limits {
            valid: valid_length,
            acknowledged: acknowledged.map(|mark| mark.length),
            is_last: next.is_none(),
        };
        let length = read_file(disk, file, limits, visit, &mut contents)?;
        if length > 0 {
            contents.end = Some((file.number, length));
        }
        if contents.damages > damages {
            contents.damaged_files.push(file.name.clone());
        }
    }
    if let Some(mark) = mark {
        contents.check_last_file(&files, from, mark);
    }
    Ok((contents, files.pop()))
}

/// Whether the log's folder has no file at all, not even one without records.
pub fn is_new(disk: &mut dyn LogDisk) -> Result<bool, WalError> {
    Ok(names(disk)?.is_empty())
}

/// A file of the log in a listing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListedLog {
    pub number: u64,
    bytes: u64,
}

/// The log's files by number.
pub fn list_files(disk: &mut dyn LogDisk) -> Result<Vec<ListedLog>, WalError> {
    let numbered = names(disk)?.into_iter();
    let mut files: Vec<ListedLog> = numbered
        .filter_map(|(name, bytes): (String, u64)| {
            Some(ListedLog {
                number: file_number(&name)?,
                bytes,
            })
        })
        .collect();
    files.sort_unstable();
    Ok(files)
}

/// Whether any file has more than a header.
pub fn has_records(disk: &mut dyn LogDisk) -> Result<bool, WalError> {
    let mut files = names(disk)?.into_iter();
    Ok(files.any(|(name, length)| file_number(&name).is_some() && length > HEADER_BYTES as u64))
}

/// Whether the log has records that a sealing turns into rows of tables.
pub fn has_data(disk: &mut dyn LogDisk) -> Result<bool, WalError> {
    let mut has_data = false;
    read_unchanged(disk, 0, &mut |record| {
        has_data |= matches!(record, Record::Flush(_) | Record::Run(_));
        Ok(())
    })?;
    Ok(has_data)
}

/// Whether there are files before the one of that number.
pub fn has_files_before(disk: &mut dyn LogDisk, number: u64) -> Result<bool, WalError> {
    let mut numbers = names(disk)?
        .into_iter()
        .filter_map(|(name, _)| file_number(&name));
    Ok(numbers.any(|file| file < number))
}

fn names(disk: &mut dyn LogDisk) -> Result<Vec<(String, u64)>, WalError> {
    disk.list().map_err(|source| WalError::Io {
        what: "list the log's files".to_owned(),
        source,
    })
}

/// Checks that all files have the format that this program reads.
pub fn check_formats(disk: &mut dyn LogDisk) -> Result<(), WalError> {
    list(disk).map(|_| ())
}

/// Reads the log from a file on, which a collector may be writing. Changes nothing.
pub fn follow(
    disk: &mut dyn LogDisk,
    from: u64,
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
) -> Result<LogContents, WalError> {
    read_unchanged(disk, from, visit).map(|(contents, _)| contents)
}

/// Reads the part of the log that the tables need. Changes nothing.
pub fn check(disk: &mut dyn LogDisk, from: u64) -> Result<LogContents, WalError> {
    read_unchanged(disk, from, &mut |_| Ok(())).map(|(contents, _)| contents)
}

/// The log's files by number. The headers of all are read before anything is changed.
fn list(disk: &mut dyn LogDisk) -> Result<Vec<LogFile>, WalError> {
    let mut files = Vec::new();
    for (name, length) in names(disk)? {
        let Some(number) = file_number(&name) else {
            continue;
        };
        let head = if_exists(disk.read(&name, HEADER_BYTES as u64)).map_err(|source| {
            let what = format!("read the log file {name}");
            WalError::Io { what, source }
        })?;
        let Some(head) = head else { continue };
        let decoded = match Header::decode(&head) {
            Ok(header) => Some(header),
            Err(HeaderError::Version(version)) => {
                return Err(WalError::UnknownVersion {
                    file: name,
                    version,
                });
            }
            Err(HeaderError::Damaged) => None,
        };
        let header = decoded.filter(|header| header.number == number);
        let other_number = decoded
            .map(|header| header.number)
            .filter(|other| *other != number);
        files.push(LogFile {
            name,
            number,
            length,
            header,
            other_number,
        });
    }
    files.sort_unstable_by_key(|file| file.number);
    Ok(files)
}

/// How much of a file there should be.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Its valid length by the next file's header.
    valid: Option<u64>,
    /// Its acknowledged length by the mark.
    acknowledged: Option<u64>,
    is_last: bool,
}

/// Reads one file. Returns its valid length.
fn read_file(
    disk: &mut dyn LogDisk,
    file: &LogFile,
    limits: Limits,
    visit: &mut dyn FnMut(Record) -> Result<(), String>,
    contents: &mut LogContents,
) -> Result<u64, WalError> {
    let Limits {
        valid: valid_length,
        acknowledged,
        is_last,
    } = limits;
    if valid_length == Some(0) {
        return Ok(0);
    }
    let acknowledged = acknowledged.unwrap_or(0);
    if let Some(other) = file.other_number {
        let other = file_name(other);
        let reason = format!("it is {other} by its header: its own records are lost");
        contents.report(&file.name, 0..file.length.max(acknowledged), reason);
        return Ok(0);
    }
    // Not damage: the error may pass, and the log of a collector that starts without the file is removed
    // once it has sealed.
    let bytes = if_exists(disk.read(&file.name, READ_BYTES_MAX)).map_err(|source| {
        let name = &file.name;
        let what = format!("read the log file {name}; to go on without its records, move it away");
        WalError::Io { what, source }
    })?;
    let Some(bytes) = bytes else {
        contents.report(&file.name, 0..file.length, "it is missing".to_owned());
        return Ok(file.length);
    };
    if file.length > bytes.len() as u64 {
        let reason = "the file is longer than a log file can be".to_owned();
        contents.report(&file.name, bytes.len() as u64..file.length, reason);
    }
    let valid = valid_length.unwrap_or(u64::MAX).min(bytes.len() as u64);
    if let Some(promised) = valid_length.filter(|promised| *promised > bytes.len() as u64) {
        let reason = "the end of the file is missing".to_owned();
        contents.report(&file.name, bytes.len() as u64..promised, reason);
    }
    let bytes = &bytes[..usize::try_from(valid).expect("it is at most a length in memory")];
    contents.bytes += valid;
    let mut end = valid.min(HEADER_BYTES as u64);
    let from = usize::try_from(end).expect("it is small");
    if file.header.is_none() {
        contents.report(
            &file.name,
            0..end,
            "the file's header is damaged".to_owned(),
        );
    }
    let mut reported = 0;
    let mut pieces = frame::scan(bytes, from).peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Damage(range)
                if is_last && pieces.peek().is_none() && range.start >= acknowledged =>
            {
                contents.torn_bytes += range.end - range.start;
                tracing::info!(
                    file = file.name,
                    bytes = contents.torn_bytes,
                    "the log ends with an unfinished write"
                );
            }
            Piece::Damage(range) => {
                // The end of the last file is cut off.
                end = if is_last && pieces.peek().is_none() {
                    end
                } else {
                    range.end
                };
                reported = range.end;
                contents.report(&file.name, range, "it has no valid record".to_owned());
            }
            Piece::Frame { at, kind, payload } => {
                end = at + (frame::FRAME_BYTES + payload.len()) as u64;
                contents.records += 1;
                let decoded = Record::decode(kind, payload).map_err(|error| error.to_string());
                if let Err(reason) = decoded.and_then(&mut *visit) {
                    contents.report(&file.name, at..end, reason);
                }
            }
        }
    }
    let present = end.max(reported);
    if present < acknowledged {
        let reason = "the acknowledged end of the file is missing".to_owned();
        contents.report(&file.name, present..acknowledged, reason);
    }
    Ok(end)
}

/// Copies a damaged file to quarantine. A failure is only logged: the valid records were read already.
fn quarantine(disk: &mut dyn LogDisk, name: &str, contents: &mut LogContents) {
    match disk.quarantine(name) {
        Ok(copy) => {
            tracing::error!(
                file = name,
                copy,
                "a damaged log file was copied to quarantine"
            );
            contents.quarantined.push(copy);
        }
        Err(error) => {
            tracing::error!(file = name, %error, "a damaged log file could not be copied to quarantine");
        }
    }
}
