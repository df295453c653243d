//! The collector's symbol files: one per build id, `xx/yyyy.symbols`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_core::Timestamp;
use symbol_files::{Facts, Names, SymbolFile, SymbolFileError};

use super::{is_build_id, path_of};
use base::disk::free_bytes;
use base::limits::{
    SYMBOL_FILE_BYTES_MAX, SYMBOL_FILES_OPEN_MAX, SYMBOL_STORE_BYTES_MAX, WRITERS_RESERVE_BYTES,
};
use base::sync::{Mutex, lock, rank};

const EXTENSION: &str = "symbols";
/// Folder of incomplete files.
const PARTIAL: &str = "partial";
/// Names reveal as much as source code.
const PRIVATE_FOLDER: u32 = 0o700;
/// A use is noted on the file at most this often.
const USE_NOTED_EVERY: Duration = Duration::from_secs(24 * 3_600);

/// Why a symbol file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    File(#[from] SymbolFileError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("it is of build id {found}, not {expected}")]
    OtherBuild { found: String, expected: String },
}

/// Why there is no room for a file.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    #[error("a symbol file of {bytes} bytes; at most {SYMBOL_FILE_BYTES_MAX} are allowed")]
    TooLarge { bytes: u64 },
    #[error(
        "the collector has {used} of {SYMBOL_STORE_BYTES_MAX} bytes of symbols, and {bytes} more are \
         too many; make room with: emberline symbols gc --unused 30d"
    )]
    Full { used: u64, bytes: u64 },
    #[error(
        "the disk of the symbols has {free} bytes free, and {bytes} more are too many: \
         {WRITERS_RESERVE_BYTES} are left to the profiles"
    )]
    Disk { free: u64, bytes: u64 },
}

/// A symbol file in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    pub build_id: String,
    pub bytes: u64,
    /// To the day.
    pub used_at: Timestamp,
    /// Facts about its content, or why it cannot be used.
    pub facts: Result<Facts, String>,
}

/// A folder of symbol files.
#[derive(Debug)]
pub(super) struct SymbolFiles {
    folder: PathBuf,
    open: Mutex<BTreeMap<String, Arc<SymbolFile<File>>>, rank::SymbolsOpen>,
    /// Held while a file is added or removed.
    pub(super) changing: Mutex<(), rank::SymbolsChanging>,
}

impl SymbolFiles {
    pub(super) fn new(folder: PathBuf) -> SymbolFiles {
        SymbolFiles {
            folder,
            open: Mutex::default(),
            changing: Mutex::default(),
        }
    }

    /// The functions at these addresses; `None` if there is no file.
    pub(super) fn lookup(
        &self,
        build: &str,
        addresses: &[u64],
    ) -> Result<Option<Names>, FileError> {
        match self.file(build)? {
            Some(file) => Ok(Some(file.lookup(addresses.iter().copied())?)),
            None => Ok(None),
        }
    }

    /// Whether there is a file, and it can be opened.
    pub(super) fn check(&self, build: &str) -> Result<bool, FileError> {
        Ok(self.file(build)?.is_some())
    }

    /// Reads all of a file.
    pub(super) fn verify(&self, build: &str) -> Result<(), FileError> {
        if let Some(file) = self.file(build)? {
            file.verify()?;
        }
        Ok(())
    }

    /// The open file of a build; `None` if there is none.
    pub(super) fn file(&self, build: &str) -> Result<Option<Arc<SymbolFile<File>>>, FileError> {
        if !is_build_id(build) {
            return Ok(None);
        }
        let known = lock(&self.open).get(build).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let path = self.path(build);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(FileError::Io { path, source }),
        };
        note_use(&file);
        let file = Arc::new(SymbolFile::open(file)?);
        check_build(&file, build)?;
        let mut open = lock(&self.open);
        if open.len() >= SYMBOL_FILES_OPEN_MAX {
            open.clear();
        }
        open.insert(build.to_owned(), file.clone());
        Ok(Some(file))
    }

    fn path(&self, build: &str) -> PathBuf {
        path_of(&self.folder, build, EXTENSION)
    }

    /// The path of the file of a build, if there is one.
    pub(super) fn stored_path(&self, build: &str) -> Option<PathBuf> {
        Some(self.path(build)).filter(|path| path.is_file())
    }

    /// The path of an incomplete file, whose folder exists afterwards.
    pub(super) fn partial(&self, name: &str) -> Result<PathBuf, FileError> {
        let folder = self.folder.join(PARTIAL);
        create_folder(&folder)?;
        Ok(folder.join(name))
    }

    /// Incomplete files.
    pub(super) fn partials(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.join(PARTIAL))
            .into_iter()
            .flatten()
            .flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Puts a complete file in the place of its build. The caller holds `changing`.
    pub(super) fn put(&self, from: &Path, build: &str) -> Result<(), FileError> {
        let path = self.path(build);
        let folder = path.parent().unwrap_or(&self.folder);
        create_folder(folder)?;
        let put = || {
            File::open(from)?.sync_all()?;
            fs::rename(from, &path)?;
            File::open(folder)?.sync_all()?;
            File::open(&self.folder)?.sync_all()
        };
        put().map_err(|source| FileError::Io {
            path: path.clone(),
            source,
        })?;
        lock(&self.open).remove(build);
        Ok(())
    }

    /// All files, by build id.
    pub(super) fn list(&self) -> Vec<ListedFile> {
        let mut files = Vec::new();
        for (build_id, path) in self.paths() {
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            let facts = File::open(&path)
                .map_err(SymbolFileError::Io)
                .and_then(SymbolFile::open);
            files.push(ListedFile {
                build_id,
                bytes: metadata.len(),
                used_at: timestamp(metadata.modified().unwrap_or(UNIX_EPOCH)),
                facts: facts
                    .map(|file| file.facts().clone())
                    .map_err(|error| error.to_string()),
            });
        }
        files.sort_by(|a, b| a.build_id.cmp(&b.build_id));
        files
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let paths = self
            .paths()
            .into_iter()
            .map(|(_, path)| path)
            .chain(self.partials());
        paths
            .filter_map(|path| fs::metadata(path).ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Checks that a file of `bytes` has room, of which `written` are on the disk already.
    pub(super) fn check_room(&self, bytes: u64, written: u64) -> Result<(), RoomError> {
        let used = self.bytes().saturating_sub(written);
        if used.saturating_add(bytes) > SYMBOL_STORE_BYTES_MAX {
            return Err(RoomError::Full { used, bytes });
        }
        // A disk that does not answer reports its own error when it is written.
        let free = free_bytes(&self.folder);
        let more = bytes.saturating_sub(written);
        match free {
            Ok(free) if free < more.saturating_add(WRITERS_RESERVE_BYTES) => {
                Err(RoomError::Disk { free, bytes: more })
            }
            _ => Ok(()),
        }
    }

    fn paths(&self) -> Vec<(String, PathBuf)> {
        let mut paths = Vec::new();
        for folder in entries(&self.folder) {
            for file in entries(&folder.path()) {
                let path = file.path();
                let first = folder.file_name();
                let (Some(first), Some(rest)) = (
                    first.to_str(),
                    path.file_stem().and_then(|stem| stem.to_str()),
                ) else {
                    continue;
                };
                let build = format!("{first}{rest}");
                let is_symbols = path.extension().is_some_and(|found| found == EXTENSION);
                if is_symbols && is_build_id(&build) {
                    paths.push((build, path));
                }
            }
        }
        paths
    }

    /// Removes the files that were not used since then.
    pub(super) fn remove_unused(&self, since: Timestamp) -> Result<Vec<ListedFile>, FileError> {
        let _changing = lock(&self.changing);
        let mut removed = Vec::new();
        for file in self.list().into_iter().filter(|file| file.used_at < since) {
            let path = self.path(&file.build_id);
            fs::remove_file(&path).map_err(|source| FileError::Io { path, source })?;
            lock(&self.open).remove(&file.build_id);
            removed.push(file);
        }
        Ok(removed)
    }
}

/// Entries of a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Whether the file is of that build.
pub(super) fn check_build(file: &SymbolFile<File>, build: &str) -> Result<(), FileError> {
    let found = &file.facts().build_id;
    if found == build {
        return Ok(());
    }
    Err(FileError::OtherBuild {
        found: found.clone(),
        expected: build.to_owned(),
    })
}

fn create_folder(folder: &Path) -> Result<(), FileError> {
    let created = fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(folder);
    created.map_err(|source| FileError::Io {
        path: folder.to_owned(),
        source,
    })
}

/// The file's time of change is its last use, to the day. A disk that refuses loses only that.
fn note_use(file: &File) {
    let now = SystemTime::now();
    let noted = file.metadata().and_then(|metadata| metadata.modified());
    let age = noted.ok().and_then(|noted| now.duration_since(noted).ok());
    if age.is_none_or(|age| age >= USE_NOTED_EVERY) {
        let _ = file.set_modified(now);
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ns(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
