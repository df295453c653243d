//! The file operations of the log, and nothing else of it: what a test replaces to make any of them
//! fail, and to build the files that a crash leaves behind.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// A folder of log files, each named without a path. Only what was synced outlives a crash: content
/// by `sync`, the presence and absence of names by `sync_dir`.
pub(crate) trait LogDisk: Send + fmt::Debug {
    /// Makes an empty file, which must not be there.
    fn create(&mut self, name: &str) -> io::Result<()>;
    /// Writes at the end of a file that this disk created.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Makes a file's content outlive a crash.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Cuts a file.
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()>;
    /// At most `bytes_max` bytes from the start of a file.
    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>>;
    /// Names and lengths of all files.
    fn list(&mut self) -> io::Result<Vec<(String, u64)>>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Makes the folder's list of names outlive a crash.
    fn sync_dir(&mut self) -> io::Result<()>;
    /// Keeps a copy of a damaged file apart, for people to look at; says where.
    fn quarantine(&mut self, name: &str) -> io::Result<String>;
    /// Bytes that may still be written.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// A folder of the local disk.
#[derive(Debug)]
pub(crate) struct LocalDisk {
    folder: PathBuf,
    quarantine: PathBuf,
    /// The file that was last appended to, which mostly is the next one too.
    open: Option<(String, File)>,
}

impl LocalDisk {
    /// The log's files in `folder`, which is made if it is not there; damaged ones are copied to
    /// `quarantine`.
    pub(crate) fn new(folder: PathBuf, quarantine: PathBuf) -> io::Result<LocalDisk> {
        fs::create_dir_all(&folder)?;
        if let Some(parent) = folder.parent() {
            sync_folder(parent)?;
        }
        Ok(LocalDisk { folder, quarantine, open: None })
    }

    /// The same, to be read only: nothing is made.
    pub(crate) fn look(folder: PathBuf) -> LocalDisk {
        LocalDisk { quarantine: PathBuf::new(), folder, open: None }
    }

    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let file = OpenOptions::new().append(true).open(self.folder.join(name))?;
            self.open = Some((name.to_owned(), file));
        }
        Ok(&mut self.open.as_mut().expect("it was just put there").1)
    }
}

/// `None` of what is not there, such as a file that a collector removed meanwhile.
pub(super) fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

impl LogDisk for LocalDisk {
    fn create(&mut self, name: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        self.open = Some((name.to_owned(), file));
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        // The length of the file is synced with the data, for the data could not be read without.
        self.file(name)?.sync_data()
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.file(name)?.set_len(length)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.folder.join(name))?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        let Some(entries) = there(fs::read_dir(&self.folder))? else { return Ok(files) };
        for entry in entries {
            let entry = entry?;
            // What is no text is no name of ours.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if let Some(metadata) = there(entry.metadata())? {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open.take_if(|(open, _)| open == name);
        fs::remove_file(self.folder.join(name))
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        sync_folder(&self.folder)
    }

    fn quarantine(&mut self, name: &str) -> io::Result<String> {
        fs::create_dir_all(&self.quarantine)?;
        let (from, to) = (self.folder.join(name), self.quarantine.join(name));
        // The file stays where it is until tables hold what is good of it, so it may be met again.
        let held = fs::metadata(&to)
            .is_ok_and(|held| fs::metadata(&from).is_ok_and(|damaged| damaged.len() == held.len()));
        if !held {
            fs::copy(&from, &to)?;
        }
        Ok(to.display().to_string())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = nix::sys::statvfs::statvfs(&self.folder)?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
