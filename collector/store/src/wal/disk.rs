//! The file operations of the log. Tests replace them to make any operation fail, and to build the files
//! that a crash leaves behind.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base::heartbeat;

/// Mode of new files: names and times of tasks are the owner's alone.
const PRIVATE_FILE: u32 = 0o600;

/// A folder of log files, which are named without a path. Only synced data survives a crash: `sync` for
/// content, `sync_dir` for the creation and removal of names.
pub trait LogDisk: Send + fmt::Debug {
    /// Whether the first sync of a file ends it: nothing can be appended then. Such a file does not exist
    /// before, and its number is used again if it was never synced.
    fn is_write_once(&self) -> bool {
        false
    }
    /// Keeps processes that wrote this log before from writing. Called before anything is read; `from` is
    /// the first file with records that are in no table.
    fn take_over(&mut self, _from: u64) -> io::Result<()> {
        Ok(())
    }
    /// Whether a file of this size may be a tombstone, as [`LogDisk::take_over`] creates: it is never removed.
    fn is_tombstone(&self, _bytes: u64) -> bool {
        false
    }
    /// Creates an empty file, which must not exist.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Appends to a file that this disk created.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Writes bytes again that a file already has at this place.
    fn rewrite(&mut self, name: &str, at: usize, bytes: &[u8]) -> io::Result<()>;
    /// Syncs the content of a file.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Truncates a file.
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()>;
    /// Reads at most `bytes_max` bytes from the start of a file.
    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Names and lengths of all files.
    fn list(&mut self) -> io::Result<Vec<(String, u64)>>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Removes files.
    fn remove_all(&mut self, names: &[String]) -> io::Result<()> {
        names.iter().try_for_each(|name| self.remove(name))
    }
    /// Syncs the names of the folder.
    fn sync_dir(&mut self) -> io::Result<()>;
    /// Copies a damaged file to quarantine. Returns the path of the copy.
    fn quarantine(&mut self, name: &str) -> io::Result<String>;
    /// Free bytes of the disk.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Replaces the mark. It is durable only if it is synced.
    fn write_mark(&mut self, bytes: &[u8], is_synced: bool) -> io::Result<()>;
    /// The mark; `None` if there is none.
    fn read_mark(&mut self) -> io::Result<Option<Vec<u8>>>;
}

/// A folder of the local disk.
#[derive(Debug)]
pub struct LocalDisk {
    folder: PathBuf,
    quarantine: PathBuf,
    /// The file of the last append, which is mostly the file of the next one.
    open: Option<(String, File)>,
    mark: Option<File>,
}

/// Name of the file of the mark.
pub(super) const MARK_NAME: &str = "acknowledged";

impl LocalDisk {
    /// The log files in `folder`, which is created if it does not exist; copies of damaged ones go to
    /// `quarantine`.
    pub fn new(folder: PathBuf, quarantine: PathBuf) -> io::Result<LocalDisk> {
        fs::create_dir_all(&folder)?;
        if let Some(parent) = folder.parent() {
            sync_folder(parent)?;
        }
        Ok(LocalDisk {
            folder,
            quarantine,
            open: None,
            mark: None,
        })
    }

    /// The log files in `folder`, for reading only: nothing is created.
    pub fn read_only(folder: PathBuf) -> LocalDisk {
        LocalDisk {
            quarantine: PathBuf::new(),
            folder,
            open: None,
            mark: None,
        }
    }

    /// The error of an operation on a new file, which names a deleted folder.
    fn deleted(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::NotFound || self.folder.exists() {
            return error;
        }
        let reason = format!("the folder {} was deleted", self.folder.display());
        io::Error::new(io::ErrorKind::NotFound, reason)
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let file = OpenOptions::new()
                .append(true)
                .open(self.folder.join(name))?;
            self.open = Some((name.to_owned(), file));
        }
        Ok(&mut self.open.as_mut().expect("it was just put there").1)
    }
}

/// `None` for a missing file, such as one that a collector removed meanwhile.
pub(super) fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl LogDisk for LocalDisk {
    fn create(&mut self, name: &str) -> io::Result<()> {
        heartbeat::before_io();
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(PRIVATE_FILE);
        let file = options.open(path).map_err(|error| self.deleted(error))?;
        self.open = Some((name.to_owned(), file));
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        heartbeat::before_io();
        self.file(name)?.write_all(bytes)
    }

    fn rewrite(&mut self, name: &str, at: usize, bytes: &[u8]) -> io::Result<()> {
        heartbeat::before_io();
        // A file that is open for appending appends all that is written to it.
        let file = OpenOptions::new()
            .write(true)
            .open(self.folder.join(name))?;
        file.write_all_at(bytes, at as u64)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        heartbeat::before_io();
        let file = self.file(name)?;
        // `fdatasync` includes the length of the file, because the data cannot be read without it.
        file.sync_data()?;
        // Records in a deleted file are lost, although every write succeeds.
        if file.metadata()?.nlink() == 0 {
            let path = self.folder.join(name);
            let reason = format!("{} was deleted while it was written", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        Ok(())
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        heartbeat::before_io();
        self.file(name)?.set_len(length)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        heartbeat::before_io();
        let mut bytes = Vec::new();
        File::open(self.folder.join(name))?
            .take(bytes_max)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        heartbeat::before_io();
        let mut files = Vec::new();
        let Some(entries) = if_exists(fs::read_dir(&self.folder))? else {
            return Ok(files);
        };
        for entry in entries {
            let entry = entry?;
            // Our names are UTF-8.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if let Some(metadata) = if_exists(entry.metadata())? {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        heartbeat::before_io();
        self.open.take_if(|(open, _)| open == name);
        fs::remove_file(self.folder.join(name))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        heartbeat::before_io();
        sync_folder(&self.folder)
    }

    fn quarantine(&mut self, name: &str) -> io::Result<String> {
        heartbeat::before_io();
        fs::create_dir_all(&self.quarantine)?;
        let from = self.folder.join(name);
        let to = self.quarantine.join(name);
        // The file stays in the log until its good records are in tables, so it may be found again.
        let is_copied = file_length(&to).is_some_and(|copied| file_length(&from) == Some(copied));
        if !is_copied {
            fs::copy(&from, &to)?;
        }
        Ok(to.display().to_string())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        heartbeat::before_io();
        base::disk::free_bytes(&self.folder)
    }

    fn write_mark(&mut self, bytes: &[u8], is_synced: bool) -> io::Result<()> {
        heartbeat::before_io();
        let file = match &mut self.mark {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                options
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .mode(PRIVATE_FILE);
                none.insert(options.open(self.folder.join(MARK_NAME))?)
            }
        };
        file.write_all_at(bytes, 0)?;
        if is_synced { file.sync_data() } else { Ok(()) }
    }

    fn read_mark(&mut self) -> io::Result<Option<Vec<u8>>> {
        heartbeat::before_io();
        if_exists(fs::read(self.folder.join(MARK_NAME)))
    }
}

fn file_length(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|file| file.len())
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
