//! Files of symbols, read in parts through a small cache. A file may also be a copy in memory.
//!
//! Nothing is mapped: a mapped file that somebody truncates would end the host with `SIGBUS`.
//! Reads of a truncated file fail instead, and the cache bounds the memory whatever the file's size.

use std::cell::RefCell;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

use system::file::CheckedFile;
use system::pages::Pages;

/// Bytes that are read from a file at once.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks in memory, of all open files together: 1 MiB.
const CHUNKS_MAX: usize = 64;
/// Larger files are not read.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// Identity of a file, to notice later that its path leads to another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i64,
}

impl FileIdentity {
    /// That of the file that is there now.
    #[must_use]
    pub fn at(path: &Path) -> Option<FileIdentity> {
        let metadata = fs::metadata(path).ok()?;
        metadata.is_file().then(|| FileIdentity::of(&metadata))
    }

    fn of(metadata: &Metadata) -> FileIdentity {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: metadata.mtime().wrapping_mul(1_000_000_000) + metadata.mtime_nsec(),
        }
    }
}

/// The memory of all chunks, shared by the files that are open at the same time.
#[derive(Clone, Debug)]
pub(super) struct ChunkCache(Rc<RefCell<Chunks>>);

#[derive(Debug)]
struct Chunks {
    memory: Pages,
    used: usize,
    /// Rises when all chunks are dropped; the tables of files are valid for one round.
    round: u32,
}

impl ChunkCache {
    /// An empty cache in the memory of an earlier one, or in new memory; `None` if there is none.
    pub(super) fn new(memory: Option<Pages>) -> Option<ChunkCache> {
        let memory = memory.or_else(|| Pages::new(CHUNKS_MAX * CHUNK_BYTES))?;
        Some(ChunkCache(Rc::new(RefCell::new(Chunks {
            memory,
            used: 0,
            round: 1,
        }))))
    }

    /// Its memory, if all files are closed.
    pub(super) fn into_memory(self) -> Option<Pages> {
        Some(Rc::try_unwrap(self.0).ok()?.into_inner().memory)
    }
}

/// An open file, read through the cache.
#[derive(Debug)]
pub(super) struct CachedFile {
    source: Source,
    bytes: u64,
    cache: ChunkCache,
    table: RefCell<Table>,
}

#[derive(Debug)]
enum Source {
    File(CheckedFile),
    Memory(Vec<u8>),
}

/// By number of a chunk of the file: 1 + its place in the cache, or 0.
#[derive(Debug)]
struct Table {
    round: u32,
    places: Vec<u16>,
}

/// A part of a file could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreadable;

impl CachedFile {
    pub(super) fn new(file: File, cache: &ChunkCache) -> Option<(CachedFile, FileIdentity)> {
        let file = CheckedFile::new(file)?;
        let metadata = file
            .unchecked()
            .metadata()
            .ok()
            .filter(|metadata| metadata.is_file())?;
        let bytes = metadata.len();
        if bytes > FILE_BYTES_MAX {
            return None;
        }
        let identity = FileIdentity::of(&metadata);
        Some((CachedFile::of(Source::File(file), bytes, cache), identity))
    }

    /// A copy of a file that only exists in memory.
    pub(super) fn in_memory(content: Vec<u8>, cache: &ChunkCache) -> (CachedFile, FileIdentity) {
        let bytes = content.len() as u64;
        let identity = FileIdentity {
            device: 0,
            inode: 0,
            bytes,
            modified_ns: 0,
        };
        (
            CachedFile::of(Source::Memory(content), bytes, cache),
            identity,
        )
    }

    fn of(source: Source, bytes: u64, cache: &ChunkCache) -> CachedFile {
        let table = RefCell::new(Table {
            round: 0,
            places: Vec::new(),
        });
        CachedFile {
            source,
            bytes,
            cache: cache.clone(),
            table,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads `buffer.len()` bytes at `offset`, without keeping them.
    pub(super) fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        match &self.source {
            Source::File(file) => {
                let file = file.if_same().ok_or(Unreadable)?;
                file.read_exact_at(buffer, offset).map_err(|_| Unreadable)
            }
            Source::Memory(content) => {
                let start = usize::try_from(offset).map_err(|_| Unreadable)?;
                let part = content
                    .get(start..)
                    .and_then(|rest| rest.get(..buffer.len()));
                buffer.copy_from_slice(part.ok_or(Unreadable)?);
                Ok(())
            }
        }
    }

    /// Reads `buffer.len()` bytes at `offset`.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let length = self.with_chunk(at, |available| {
                let length = available.len().min(rest.len());
                rest[..length].copy_from_slice(&available[..length]);
                length
            })?;
            rest = &mut rest[length..];
            at += length as u64;
        }
        Ok(())
    }

    /// The byte at `offset`.
    pub(super) fn byte(&self, offset: u64) -> Result<u8, Unreadable> {
        self.with_chunk(offset, |available| available[0])
    }

    /// The offset of the first `byte` between `start` and `end`.
    pub(super) fn find(&self, byte: u8, start: u64, end: u64) -> Result<Option<u64>, Unreadable> {
        let mut at = start;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX);
            let (found, length) = self.with_chunk(at, |available| {
                let part = &available[..available.len().min(most)];
                (part.iter().position(|next| *next == byte), part.len())
            })?;
            if let Some(found) = found {
                return Ok(Some(at + found as u64));
            }
            at += length as u64;
        }
        Ok(None)
    }

    /// Passes the rest of the chunk from `offset` on to `take`; it is never empty.
    fn with_chunk<T>(&self, offset: u64, take: impl FnOnce(&[u8]) -> T) -> Result<T, Unreadable> {
        if offset >= self.bytes {
            return Err(Unreadable);
        }
        let number = (offset / CHUNK_BYTES as u64) as usize;
        let within = (offset % CHUNK_BYTES as u64) as usize;
        let length = (self.bytes - (number * CHUNK_BYTES) as u64).min(CHUNK_BYTES as u64) as usize;
        let mut table = self.table.borrow_mut();
        let mut chunks = self.cache.0.borrow_mut();
        let known = if table.round == chunks.round {
            table.places.get(number)
        } else {
            None
        };
        let place = match known {
            Some(place) if *place > 0 => usize::from(*place) - 1,
            _ => self.load(number, length, &mut table, &mut chunks)?,
        };
        let start = place * CHUNK_BYTES;
        Ok(take(&chunks.memory[start + within..start + length]))
    }

    /// Reads a chunk and returns its place. A full cache is emptied first: reads are mostly
    /// sequential, so nothing cleverer pays.
    #[cold]
    fn load(
        &self,
        number: usize,
        length: usize,
        table: &mut Table,
        chunks: &mut Chunks,
    ) -> Result<usize, Unreadable> {
        if chunks.used == CHUNKS_MAX {
            chunks.used = 0;
            chunks.round += 1;
        }
        if table.round != chunks.round {
            let chunks_of_file = self.bytes.div_ceil(CHUNK_BYTES as u64) as usize;
            table.places.clear();
            table
                .places
                .try_reserve_exact(chunks_of_file)
                .map_err(|_| Unreadable)?;
            table.places.resize(chunks_of_file, 0);
            table.round = chunks.round;
        }
        let place = chunks.used;
        let start = place * CHUNK_BYTES;
        let target = &mut chunks.memory[start..start + length];
        self.read_uncached((number * CHUNK_BYTES) as u64, target)?;
        chunks.used += 1;
        table.places[number] = place as u16 + 1;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// More than fits the cache, so that chunks are dropped and read again.
    #[test]
    fn every_byte_is_read_through_a_cache_that_is_smaller_than_the_file() {
        let length = (CHUNKS_MAX + 40) * CHUNK_BYTES + 5;
        let expected: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&expected).unwrap();
        let cache = ChunkCache::new(None).unwrap();
        let shortened = file.try_clone().unwrap();
        let (file, _) = CachedFile::new(file, &cache).unwrap();
        let mut buffer = vec![0; 40_000];
        for start in (0..length).step_by(40_000) {
            let part = &mut buffer[..40_000.min(length - start)];
            file.read(start as u64, part).unwrap();
            assert!(*part == expected[start..start + part.len()], "at {start}");
        }
        assert_eq!(file.byte(length as u64 - 1), Ok(expected[length - 1]));
        assert_eq!(file.byte(length as u64), Err(Unreadable));
        assert_eq!(file.find(200, 300, length as u64), Ok(Some(451)));
        assert_eq!(file.find(251, 0, length as u64), Ok(None));
        // With a mapped file this would have been a signal.
        shortened.set_len(100).unwrap();
        assert_eq!(file.read(length as u64 / 2, &mut [0; 4]), Err(Unreadable));
    }
}
