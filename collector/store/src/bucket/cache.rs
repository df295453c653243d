//! Copies of files of tables: a query reads parts of a file again and again, and each request takes tens of
//! milliseconds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use base::limits::{TABLE_CACHE_BYTES, TABLE_CACHE_MEMORY_BYTES};
use base::sync::{Mutex, lock, rank};

/// Whole files, at most a number of bytes together. The one that was used longest ago goes first.
#[derive(Debug)]
pub struct TableCache {
    /// `None`: in memory.
    folder: Option<PathBuf>,
    bytes_max: u64,
    state: Mutex<State, rank::BucketCache>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    bytes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    used: u64,
    /// `None`: in the folder.
    content: Option<Bytes>,
}

/// A cached file. It stays readable after it was removed.
#[derive(Debug)]
pub enum Cached {
    Memory(Bytes),
    File(File, u64),
}

impl TableCache {
    /// In a folder, or in memory without one, with the size by default of each unless it is given.
    pub fn of(folder: Option<PathBuf>, bytes_max: Option<u64>) -> io::Result<TableCache> {
        match folder {
            Some(folder) => TableCache::in_folder(folder, bytes_max.unwrap_or(TABLE_CACHE_BYTES)),
            None => Ok(TableCache::memory(
                bytes_max.unwrap_or(TABLE_CACHE_MEMORY_BYTES),
            )),
        }
    }

    pub fn memory(bytes_max: u64) -> TableCache {
        TableCache {
            folder: None,
            bytes_max,
            state: Mutex::default(),
        }
    }

    /// In a folder, which is emptied: nobody knows what happened to its files meanwhile.
    pub fn in_folder(folder: PathBuf, bytes_max: u64) -> io::Result<TableCache> {
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(TableCache {
            folder: Some(folder),
            bytes_max,
            state: Mutex::default(),
        })
    }

    /// Whether a file of this size has room.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    pub fn get(&self, path: &str) -> Option<Cached> {
        let mut state = lock(&self.state);
        state.uses += 1;
        let used = state.uses;
        let entry = state.entries.get_mut(path)?;
        entry.used = used;
        let bytes = entry.bytes;
        if let Some(content) = &entry.content {
            return Some(Cached::Memory(content.clone()));
        }
        let opened = self
            .folder
            .as_ref()
            .map(|folder| File::open(folder.join(file_name(path))));
        match opened {
            Some(Ok(file)) => Some(Cached::File(file, bytes)),
            _ => {
                state.remove(path);
                None
            }
        }
    }

    /// Keeps a copy if it has room. A failure costs only time.
    pub fn put(&self, path: &str, content: &Bytes) {
        let bytes = content.len() as u64;
        if !self.has_room_for(bytes) {
            return;
        }
        let kept = match &self.folder {
            None => Some(content.clone()),
            Some(folder) => {
                let file = folder.join(file_name(path));
                if let Err(error) = fs::write(&file, content) {
                    tracing::warn!(file = %file.display(), %error, "a table cannot be cached");
                    let _ = fs::remove_file(file);
                    return;
                }
                None
            }
        };
        let mut state = lock(&self.state);
        state.remove(path);
        state.uses += 1;
        let entry = Entry {
            bytes,
            used: state.uses,
            content: kept,
        };
        state.bytes += bytes;
        state.entries.insert(path.to_owned(), entry);
        while state.bytes > self.bytes_max
            && let Some(oldest) = state.oldest()
        {
            state.remove(&oldest);
            self.remove_file(&oldest);
        }
    }

    pub fn remove(&self, path: &str) {
        if lock(&self.state).remove(path) {
            self.remove_file(path);
        }
    }

    fn remove_file(&self, path: &str) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_file(folder.join(file_name(path)));
        }
    }
}

impl State {
    fn remove(&mut self, path: &str) -> bool {
        let removed = self.entries.remove(path);
        self.bytes -= removed.as_ref().map_or(0, |entry| entry.bytes);
        removed.is_some()
    }

    fn oldest(&self) -> Option<String> {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
        oldest.map(|(path, _)| path.clone())
    }
}

/// One part of a path. Paths of tables have no dash.
fn file_name(path: &str) -> PathBuf {
    Path::new(&path.replace('/', "-")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cache: &TableCache) {
        for byte in [1, 2] {
            cache.put(&format!("tables/a/{byte}"), &content(byte));
        }
        assert!(cache.get("tables/a/1").is_some());
        let held = cache.get("tables/a/2").unwrap();
        assert!(cache.get("tables/a/1").is_some());
        cache.put("tables/a/3", &content(3));
        assert!(cache.get("tables/a/2").is_none(), "it was used longest ago");
        assert!(cache.get("tables/a/1").is_some() && cache.get("tables/a/3").is_some());
        let bytes = match held {
            Cached::Memory(content) => content.to_vec(),
            Cached::File(mut file, bytes) => {
                assert_eq!(bytes, 40);
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut content).unwrap();
                content
            }
        };
        assert_eq!(bytes, [2; 40]);
        cache.put("tables/a/4", &Bytes::from(vec![4; 101]));
        assert!(cache.get("tables/a/4").is_none() && cache.get("tables/a/3").is_some());
        cache.remove("tables/a/3");
        assert!(cache.get("tables/a/3").is_none());
        assert_eq!(lock(&cache.state).bytes, 40);
    }

    fn content(byte: u8) -> Bytes {
        Bytes::from(vec![byte; 40])
    }

    #[test]
    fn the_file_that_was_used_longest_ago_goes_first() {
        check(&TableCache::memory(100));
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("cache");
        check(&TableCache::in_folder(folder.clone(), 100).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        TableCache::in_folder(folder.clone(), 100).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "it is emptied");
    }
}
